"""Replies of few megabytes that would take gigabytes, or that are larger than any reply need be.

The first six are those that a node meets (`crates/fedeq/tests/node_guarded.rs`).
"""

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from io import BytesIO

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import InflatableObject, get_object_id

MEGABYTE = 1 << 20


class Raw(ConfigRecord):
    """An object of any kind with any body, which Flower takes for a record and sends as it is."""

    def __init__(self, kind: str, body: bytes, *parts: "Raw") -> None:
        """Write the object; its parts are objects too."""
        super().__init__()
        self.parts = {part.object_id: part for part in parts}
        head = f"{kind} {','.join(self.parts)} {len(body)}"
        self.content = head.encode() + b"\x00" + body

    @cached_property
    def identity(self) -> str:
        """The hash of its content."""
        return get_object_id(self.content)

    @property
    def object_id(self) -> str:
        """The hash of its content."""
        return self.identity

    @property
    def children(self) -> dict[str, InflatableObject]:
        """Its parts."""
        return dict(self.parts)

    def deflate(self) -> bytes:
        """Give it as it is."""
        return self.content


def chunk(data: bytes) -> Raw:
    """Write a chunk of an array."""
    return Raw("ArrayChunk", data)


def array(shape: list[int], pieces: list[Raw], places: list[int]) -> Raw:
    """Write an array that refers to its chunks in this order."""
    body = {"dtype": "float32", "shape": shape, "stype": "numpy.ndarray", "arraychunk_ids": places}
    return Raw("Array", json.dumps(body).encode(), *pieces)


def named(kind: str, *parts: Raw, times: int = 1) -> Raw:
    """Write a record that gives each part so many names."""
    names = {f"{part.object_id[:8]}-{number}": part.object_id for part in parts for number in range(times)}
    return Raw(kind, json.dumps(names).encode(), *parts)


def reply_of(record: Raw, times: int = 1) -> RecordDict:
    """Put a record into a reply, under so many names."""
    return RecordDict({f"{name:06}": record for name in range(times)})


def repeated(shape: list[int], times: int) -> Raw:
    """Write an array that refers to one chunk of a megabyte so many times."""
    return array(shape, [chunk(bytes([7]) * MEGABYTE)], [0] * times)


def zeros() -> Raw:
    """Write a valid array of 30 MB of zeros, whose chunks are almost all the same object."""
    file = BytesIO()
    np.save(file, np.zeros(30 << 18, np.float32))
    data = file.getvalue()
    pieces = [chunk(data[start : start + MEGABYTE]) for start in range(0, len(data), MEGABYTE)]
    last = len(pieces) - 1
    places = [2 if place == last else min(place, 1) for place in range(last + 1)]
    return array([30 << 18], [pieces[0], pieces[1], pieces[last]], places)


def tiny(count: int) -> list[Raw]:
    """Write so many different arrays of few bytes."""
    return [array([1], [chunk(number.to_bytes(8, "little"))], [0]) for number in range(count)]


BOMBS: Mapping[str, Callable[[], RecordDict]] = {
    "more chunks than a small shape needs": lambda: reply_of(named("ArrayRecord", repeated([10], 300_000))),
    "as many chunks as a large shape needs": lambda: reply_of(named("ArrayRecord", repeated([300_000 << 18], 300_000))),
    "a shape that overflows": lambda: reply_of(named("ArrayRecord", repeated([2**64 - 1, 2**64 - 1], 1))),
    "many names for one array": lambda: reply_of(named("ArrayRecord", zeros(), times=20_000)),
    "many names for one record": lambda: reply_of(named("ArrayRecord", zeros()), 20_000),
    "millions of empty values": lambda: reply_of(Raw("ConfigRecord", b"\x0a\x00" * (4 << 20))),
    "many arrays, each as large as one may be": lambda: reply_of(
        named("ArrayRecord", *(repeated([number], 8) for number in range(400)))
    ),
    "many small arrays": lambda: reply_of(named("ArrayRecord", *tiny(2000))),
    "one long text": lambda: RecordDict({"fedeq": ConfigRecord({"header": "x" * (24 << 20)})}),
    "one large chunk": lambda: reply_of(named("ArrayRecord", array([6 << 20], [chunk(bytes(24 << 20))], [0]))),
}

# Those that are sent over a real SuperLink, one a round.
SENT = (
    "as many chunks as a large shape needs",
    "millions of empty values",
    "many arrays, each as large as one may be",
    "one large chunk",
)
