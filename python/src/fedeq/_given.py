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


def text(given: object, name: str, example: str) -> str:
    """Give a text."""
    if not isinstance(given, str):
        refuse(f"`{name}` is of the type `{type(given).__name__}`", f'give a text, such as `"{example}"`')
    return given


def texts(given: object, name: str, example: str) -> list[str]:
    """Give several texts."""
    found = list(given) if isinstance(given, Iterable) and not isinstance(given, bytes) else None
    if found is None or not all(isinstance(one, str) for one in found):
        refuse(f"`{name}` is `{given!r}`", f"give a list of texts, such as `{example}`")
    return found


def truth(given: object, name: str) -> bool:
    """Give a truth value."""
    if not isinstance(given, bool):
        refuse(f"`{name}` is of the type `{type(given).__name__}`", "give `True` or `False`")
    return given


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
