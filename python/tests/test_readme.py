"""What the READMEs say to type in Python is run as it stands."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "python/README.md"])
def test_the_examples_of_a_readme_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of their own."""
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```python\n(.*?)^```$", (REPOSITORY / page).read_text(), re.MULTILINE | re.DOTALL)
    assert examples, page
    for example in examples:
        exec(compile(example, page, "exec"), {"__name__": "__main__"})  # noqa: S102 (our own page)
