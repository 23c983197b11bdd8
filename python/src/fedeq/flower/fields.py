"""Reading values that come from nodes: of the right type and size, or rejected with their name.

Nodes are other people's programs. Whatever they send (a number of four hundred digits, a text in place of a number, a
hundred thousand nested lists) is either valid or raises `Rejected` with a short reason.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fedeq.flower.weights import Rejected

# No client has more samples, and sums over clients stay exact; larger numbers are not plausible.
LARGEST_COUNT, LARGEST_NUMBER = 2**48, 1e100
# Characters of a header or a layout, and of a text that is shown.
LONGEST_TEXT, LONGEST_SHOWN = 1 << 20, 200

Group = Mapping[str, Any]


@contextmanager
def reject_malformed() -> Iterator[None]:
    """Turn every error while reading a reply into `Rejected`."""
    try:
        yield
    except Rejected as problem:
        raise Rejected(shorten(problem)) from None
    except KeyError as problem:
        message = f"it lacks {shorten(problem)}"
        raise Rejected(message) from None
    except Exception as problem:  # noqa: BLE001 (one malformed reply must not stop the run)
        message = f"it is malformed: {type(problem).__name__}: {shorten(problem)}"
        raise Rejected(message) from None


def shorten(value: object) -> str:
    """Give a value from outside as one short printable line."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 (some numbers are too long to be converted to text)
        text = f"{type(value).__name__} that cannot be shown"
    shown = "".join(character if character.isprintable() else " " for character in text[: LONGEST_SHOWN + 1])
    return shown if len(shown) <= LONGEST_SHOWN else shown[:LONGEST_SHOWN] + "..."


def values(text: object, name: str) -> Group:
    """Read a JSON object."""
    return group({name: document(text, name)}, name)


def document(text: object, name: str) -> Any:  # noqa: ANN401 (any JSON value)
    """Read JSON of limited length."""
    if not isinstance(text, str) or len(text) > LONGEST_TEXT:
        message = f"`{name}` is not a text of at most {LONGEST_TEXT} characters"
        raise Rejected(message)
    return json.loads(text)


def group(of: Group, name: str) -> Group:
    """Give a JSON object within another."""
    value = of[name]
    if not isinstance(value, dict):
        raise _rejection(name, value, "an object")
    return value


def count(of: Group, name: str, least: int = 0) -> int:
    """Give a whole number."""
    value = of[name]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST_COUNT:
        raise _rejection(name, value, f"a whole number of at least {least} and at most 2^48")
    return int(value)


def number(of: Group, name: str) -> float:
    """Give a finite number."""
    value = of[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
        raise _rejection(name, value, "a finite number")
    return value


def digits(of: Group, name: str, points: int = 0) -> str:
    """Give a number that is sent as text with a fixed number of digits, so that all messages have the same size."""
    value = of[name]
    is_plain = isinstance(value, str) and value.isascii() and len(value) < 20  # noqa: PLR2004 (fits into 64 bits)
    if not is_plain or not value.replace(".", "", points).isdigit():
        raise _rejection(name, value, "a number in digits")
    return str(value)


def _rejection(name: str, value: object, wanted: str) -> Rejected:
    return Rejected(f"`{name}` is `{shorten(value)}`, not {wanted}")
