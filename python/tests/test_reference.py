"""The reference in docs/python.md is what the sources say, and has every public name."""

import ast
import importlib
import inspect
import pkgutil

import pytest

import fedeq
from tests.reference import NAMES, PAGE, attributes, defined, members, page, parsed


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


def test_every_attribute_that_an_object_has_is_in_it() -> None:
    """What a class keeps in its objects under a public name is a property, or a field with words below it."""
    looked_at = 0
    for module, names in NAMES.items():
        for name in names:
            where, place = defined(module, name)
            found = parsed(where).body[place]
            if not isinstance(found, ast.ClassDef):
                continue
            written = {
                ast.unparse(one.target) if isinstance(one, ast.AnnAssign) else one.name: text
                for one, text in members(found)
            }
            assert attributes(found) <= {given for given, text in written.items() if text}, f"{module}.{name}"
            looked_at += len(written)
    assert looked_at > 50  # noqa: PLR2004 (there are about seventy)


@pytest.mark.parametrize("module", ["fedeq", "fedeq.data", "fedeq.client", "fedeq.networks"])
def test_sources_say_what_is_imported(module: str) -> None:
    """Names are found in the sources where Python finds them."""
    for name in NAMES[module]:
        where, place = defined(module, name)
        assert parsed(where).body[place] is not None
        found = getattr(importlib.import_module(module), name)
        if inspect.isclass(found) and name not in {"open", "FedeqError", "Refused", "Stopped"}:
            assert found.__module__ == where
