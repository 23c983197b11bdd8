"""What the pages about Python say to type is run as it stands."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
# The packages that a page needs beside our own.
PAGES = {"pytorch.md": ("torch", "onnx")}


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in a folder of their own; each begins with nothing defined."""
    for package in PAGES[page]:
        pytest.importorskip(package, reason=f"{page} needs `{package}`, which is not installed")
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, page, "exec"), {"__name__": "__main__"})  # noqa: S102 (our own page)
