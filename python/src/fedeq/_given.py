"""What functions of the package are given: of the kind that it should be, or refused by its name."""

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

from fedeq._native import Refused


def refuse(problem: str, hint: str) -> NoReturn:
    """Say what is wrong, and what to do about it."""
    message = f"{problem}\nhint: {hint}"
    raise Refused(message)


def path(given: object, name: str) -> Path:
    """Give a path."""
    if not isinstance(given, str | PathLike):
        refuse(f"`{name}` is of the type `{type(given).__name__}`", "give a path, as text or as `pathlib.Path`")
    return Path(given)


def mapping(given: object, name: str, example: str) -> Mapping[str, Any]:
    """Give a mapping."""
    if not isinstance(given, Mapping):
        refuse(f"`{name}` is of the type `{type(given).__name__}`", f"give a dictionary, such as `{example}`")
    return given


def functions(given: object, name: str) -> tuple[Any, ...]:
    """Give what can be called."""
    if callable(given):
        refuse(f"`{name}` is a function", "give a list of functions, such as `[callback]`")
    if not isinstance(given, Iterable):
        refuse(f"`{name}` is of the type `{type(given).__name__}`", "give a list of functions")
    found = tuple(given)
    for one in found:
        if not callable(one):
            refuse(f"`{name}` has `{one!r}`, which cannot be called", "give a list of functions")
    return found
