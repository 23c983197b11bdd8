"""The reference in docs/python.md is what the sources say, and has every public name."""

import importlib
import inspect
import pkgutil

import pytest

import fedeq
from tests.reference import NAMES, PAGE, defined, page, parsed


def test_the_page_is_up_to_date() -> None:
    """Write it anew with `python -m tests.reference`."""
    assert PAGE.read_text() == page()


def test_every_public_name_is_in_it() -> None:
    """But for the version, which is a number."""
    assert set(fedeq.__all__) == {*NAMES["fedeq"], "__version__"}


def test_every_public_module_is_in_it() -> None:
    """Those of the package, and what is part of an extra."""
    found = {f"fedeq.{module.name}" for module in pkgutil.iter_modules(fedeq.__path__)}
    assert {name for name in found if not name.removeprefix("fedeq.").startswith("_")} == set(NAMES) - {"fedeq"}


@pytest.mark.parametrize("module", ["fedeq", "fedeq.data", "fedeq.client", "fedeq.networks"])
def test_sources_say_what_is_imported(module: str) -> None:
    """Names are found in the sources where Python finds them."""
    for name in NAMES[module]:
        where, place = defined(module, name)
        assert parsed(where).body[place] is not None
        found = getattr(importlib.import_module(module), name)
        if inspect.isclass(found) and name not in {"open", "FedeqError", "Refused", "Stopped"}:
            assert found.__module__ == where
