"""What functions of the package are given: of the kind that it should be, or refused by its name."""

import errno
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NoReturn, SupportsIndex

from fedeq._native import FedeqError, Refused


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


def whole(given: object, name: str) -> int:
    """Give a whole number that is not negative, of Python or of numpy."""
    found = given.__index__() if isinstance(given, SupportsIndex) and not isinstance(given, bool) else -1
    if not 0 <= found < 1 << 64:
        refuse(f"`{name}` is `{given!r}`", "give a whole number from 0 on, below 2^64")
    return found


def as_json(given: object, name: str, example: str) -> str:
    """Give a mapping as JSON."""
    found = dict(mapping(given, name, example))
    try:
        return json.dumps(found)
    except (TypeError, ValueError) as error:
        refuse(f"`{name}` has what no file can: {error}", f"give numbers and texts of Python, as in `{example}`")


@contextmanager
def access(file: Path, to: Literal["read", "write"]) -> Iterator[None]:
    """Say which file it is that cannot be read or written, in our words."""
    try:
        yield
    except OSError as error:
        problem = f"`{file}`: cannot {'read it' if to == 'read' else 'write to it'}: "
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:  # Nothing that was wrong with the request.
            message = f"{problem}the disk is full\nhint: free some space on that disk, then try again"
            raise FedeqError(message) from error
        place = file if to == "read" else file.parent
        refuse(problem + str(error.strerror or error), f"check that `{place}` exists and may be accessed")


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
