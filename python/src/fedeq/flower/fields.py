"""Values that come from nodes: of the kind and the size they should have, or refused by name.

Nodes are other people's programs. Whatever they send (a number of four hundred digits, a text in place of a number,
lists in lists without end) ends here, as a `Rejected` with a short sentence.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fedeq.flower.weights import Rejected

# Nobody has as many samples, and sums over clients stay exact; a loss beyond the second number is no loss.
LARGEST_COUNT, LARGEST_NUMBER = 2**48, 1e100
# Characters of a header or a layout, and of what is said about somebody else's words.
LONGEST_TEXT, LONGEST_WORDS = 1 << 20, 200

Group = Mapping[str, Any]


@contextmanager
def damage_refused() -> Iterator[None]:
    """Refuse what cannot even be read, instead of failing over it."""
    try:
        yield
    except Rejected as problem:
        raise Rejected(brief(problem)) from None
    except KeyError as problem:
        message = f"it has no {brief(problem)}"
        raise Rejected(message) from None
    except Exception as problem:  # noqa: BLE001 (whatever one node sends, the others go on)
        message = f"it is damaged: {type(problem).__name__}: {brief(problem)}"
        raise Rejected(message) from None


def brief(words: object) -> str:
    """Give somebody else's words in one short line."""
    try:
        text = str(words)
    except Exception:  # noqa: BLE001 (some numbers are too long even to be written down)
        text = f"{type(words).__name__} that cannot be written"
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: LONGEST_WORDS + 1])
    return shown if len(shown) <= LONGEST_WORDS else shown[:LONGEST_WORDS] + "..."


def values(text: object, name: str) -> Group:
    """Read JSON that holds named values."""
    return group({name: document(text, name)}, name)


def document(text: object, name: str) -> Any:  # noqa: ANN401 (whatever it holds)
    """Read JSON of a length that it may have."""
    if not isinstance(text, str) or len(text) > LONGEST_TEXT:
        message = f"`{name}` is no text of at most {LONGEST_TEXT} characters"
        raise Rejected(message)
    return json.loads(text)


def group(of: Group, name: str) -> Group:
    """Give named values within others."""
    value = of[name]
    if not isinstance(value, dict):
        raise _refusal(name, value, "named values")
    return value


def count(of: Group, name: str, least: int = 0) -> int:
    """Give a whole number."""
    value = of[name]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST_COUNT:
        raise _refusal(name, value, f"a whole number of at least {least} and at most 2^48")
    return int(value)


def number(of: Group, name: str) -> float:
    """Give a finite number."""
    value = of[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
        raise _refusal(name, value, "a finite number")
    return value


def digits(of: Group, name: str, points: int = 0) -> str:
    """Give a number that is written with a fixed number of digits, so that messages are of one size."""
    value = of[name]
    is_plain = isinstance(value, str) and value.isascii() and len(value) < 20  # noqa: PLR2004 (fits into 64 bits)
    if not is_plain or not value.replace(".", "", points).isdigit():
        raise _refusal(name, value, "a number in digits")
    return str(value)


def _refusal(name: str, value: object, wanted: str) -> Rejected:
    return Rejected(f"`{name}` is `{brief(value)}`, not {wanted}")
