"""A panic of the Rust side is an exception with our words, wherever it happens; the process works on."""

import re
from pathlib import Path
from typing import Any

import pytest

import fedeq
from fedeq import _native
from fedeq._watch import Watcher
from tests.harness.program import REPOSITORY
from tests.test_run import SMALL

# What panics on purpose, and is only in builds for development, such as those of CI.
trouble: Any = getattr(_native, "Trouble", None)
at_work: Any = getattr(_native, "panic_at_work", None)
needs_trouble = pytest.mark.skipif(trouble is None, reason="this is a release, which has nothing that panics")


@needs_trouble
@pytest.mark.parametrize(
    ("reason", "touch"),
    [
        ("in a constructor", lambda: trouble(at_once=True)),
        ("in a getter", lambda: trouble(at_once=False).value),
        ("without the lock, 7", lambda: trouble(at_once=False).work()),
        ("at work", lambda: at_work(Watcher((), progress=False))),
    ],
)
def test_a_panic_is_an_exception_and_the_process_works_on(reason: str, touch: Any, tmp_path: Path) -> None:  # noqa: ANN401
    """An ordinary one, which `except Exception` catches; then train."""
    with pytest.raises(fedeq.FedeqError, match=f"a bug in fedeq: {reason}\nhint: report it"):
        touch()
    assert fedeq.run(**SMALL, rounds=1, out=tmp_path / "run").state == "finished"


def test_all_that_python_calls_is_sheltered() -> None:
    """Look at the attributes of everything that PyO3 exports."""
    sources = "".join(file.read_text() for file in sorted((REPOSITORY / "crates/python/src").glob("*.rs")))
    exported = re.findall(r"(?m)^(.*)\n#\[(?:pymethods|pyfunction)\]$", sources)
    assert len(exported) > 10  # noqa: PLR2004 (all of them, and not a few)
    assert set(exported) == {"#[sheltered]"}
