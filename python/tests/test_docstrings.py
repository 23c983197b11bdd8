"""The examples in docstrings are run as they stand."""

import ast
import doctest
import importlib.util
import pkgutil
from pathlib import Path

import pytest

import fedeq
from tests.reference import NAMES, defined, docstring, parsed

# What parts of the package need beside it: extras, which need not be there.
EXTRAS = {"fedeq.flower": "flwr", "fedeq.torch": "torch", "fedeq.onnx": "onnx", "fedeq.networks.TorchNetwork": "torch"}
MODULES = ["fedeq", *(found.name for found in pkgutil.walk_packages(fedeq.__path__, "fedeq.", onerror=lambda _: None))]
MODULES = [name for name in MODULES if name not in {"fedeq.__main__", "fedeq._native"}]


def needed(name: str) -> list[tuple[str, str]]:
    """Give what a module or an object in it needs: the part that asks for it, and the package."""
    return [(part, package) for part, package in EXTRAS.items() if name == part or name.startswith(f"{part}.")]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of their own, an object at a time."""
    for part, package in needed(name):
        pytest.importorskip(package, reason=f"`{part}` needs `{package}`, which is not installed")
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    for place, found in enumerate(doctest.DocTestFinder().find(module, name)):
        if not all(importlib.util.find_spec(package) for _, package in needed(found.name)):
            continue
        folder = tmp_path / str(place)
        folder.mkdir()
        monkeypatch.chdir(folder)
        said: list[str] = []
        runner.run(found, out=said.append)
        assert not runner.failures, "".join(said)


# What is raised, and what the example of a network shows.
SHOWN_ELSEWHERE = {"FedeqError", "Refused", "Stopped", "SolveReport"}


def documented() -> list[tuple[str, str]]:
    """Give the public names that people call or hold, by their modules; types have nothing to show."""
    named = [(module, name) for module, names in NAMES.items() for name in names]
    kinds = {(module, name): parsed(where).body[at] for module, name in named for where, at in [defined(module, name)]}
    called = [at for at, found in kinds.items() if isinstance(found, ast.FunctionDef | ast.ClassDef)]
    return [at for at in called if at[1] not in SHOWN_ELSEWHERE]


@pytest.mark.parametrize(("module", "name"), documented())
def test_what_people_call_has_an_example(module: str, name: str) -> None:
    """Look for one, in the class or, where people do not make its objects, in what gives them."""
    where, place = defined(module, name)
    assert ">>>" in docstring(where, place) or "```pycon" in docstring(where, place), f"{module}.{name}"
