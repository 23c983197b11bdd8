"""The examples in docstrings are run as they stand."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import fedeq

# What parts of the package need beside it: extras, which need not be there.
EXTRAS = {"fedeq.flower": "flwr", "fedeq.torch": "torch", "fedeq.onnx": "onnx"}
MODULES = ["fedeq", *(found.name for found in pkgutil.walk_packages(fedeq.__path__, "fedeq.", onerror=lambda _: None))]
MODULES = [name for name in MODULES if name not in {"fedeq.__main__", "fedeq._native"}]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of their own, an object at a time."""
    for part, package in EXTRAS.items():
        if name == part or name.startswith(f"{part}."):
            pytest.importorskip(package, reason=f"`{part}` needs `{package}`, which is not installed")
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    for place, found in enumerate(doctest.DocTestFinder().find(module, name)):
        folder = tmp_path / str(place)
        folder.mkdir()
        monkeypatch.chdir(folder)
        said: list[str] = []
        runner.run(found, out=said.append)
        assert not runner.failures, "".join(said)


@pytest.mark.parametrize("name", ["run", "resume", "sweep", "reproduce", "compare", "Run", "Table", "Figure"])
def test_what_people_call_has_an_example(name: str) -> None:
    """Look for one."""
    assert ">>>" in (getattr(fedeq, name).__doc__ or ""), name
