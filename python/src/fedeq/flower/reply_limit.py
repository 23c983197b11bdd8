"""Limits on what a reply may take, on its way and unpacked.

A reply comes as many objects: records, arrays and their chunks. Flower pulls all of them and joins chunks before
anybody can look at what is in them, and an array may refer to one chunk a hundred thousand times: megabytes on the
way, gigabytes in memory. With these limits

- the list of a reply's objects and every object are measured before they are read from the connection,
- a reply may have so many objects, and so many bytes in all,
- its records (texts, names, numbers) may have so many bytes before they are parsed,
- its arrays may have so many bytes when they are joined, all of them together.

What is beyond them is a reply that cannot be read (`listener`): its client is named, and the round continues.
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from flwr.app import Array
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_children_ids_from_object_content,
    get_object_type_from_object_content,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects
from flwr.superlink.grid import http_grid

# A header and a layout of a megabyte each, which is the most that is read of them, and the names around them.
LARGEST_RECORDS = (2 << 20) + (64 << 10)
# A reply has a message, three records and an array; and chunks of 5 MiB, of which nodes may make smaller ones.
FEWEST_OBJECTS, SMALLEST_CHUNK = 32, 1 << 20
# What a response may have around an object, and for each object in a list of objects.
ENVELOPE, ENTRY = 64 << 10, 128
# The calls that bring something of a reply.
LIST, OBJECT = "/v1/runtime/pull-messages", "/v1/runtime/pull-object"
# The least bytes of a message's id in a call that asks for replies.
IDENTITY = 64


class TooLarge(ValueError):
    """A reply that would take more than it may."""


@dataclass
class Budget:
    """What is left of the bytes that a reply may have."""

    most: int
    what: str
    _left: int = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Begin with all of it."""
        self._left = self.most

    def take(self, count: int) -> None:
        """Take some of it."""
        with self._lock:
            self._left -= count
            if self._left < 0:
                message = f"its {self.what} have more than {self.most} bytes"
                raise TooLarge(message)


@dataclass(frozen=True)
class ReplyLimit:
    """What one reply may take."""

    # Bytes of all its arrays, joined.
    arrays: int

    @property
    def objects(self) -> int:
        """How many objects it may have."""
        return FEWEST_OBJECTS + self.arrays // SMALLEST_CHUNK

    def pull(self, object_ids: list[str], pull_object_fn: Callable[[str], bytes], **options: Any) -> dict[str, bytes]:  # noqa: ANN401 (Flower's own)
        """Pull the objects of a reply, as Flower does, within the limits."""
        if len(object_ids) > self.objects:
            message = f"it has {len(object_ids)} objects, more than {self.objects}"
            raise TooLarge(message)
        total = Budget(self.arrays + LARGEST_RECORDS, "objects")

        def pull_object(object_id: str) -> bytes:
            content = pull_object_fn(object_id)
            total.take(len(content))
            return content

        contents = pull_objects(object_ids, pull_object, **options)
        records = Budget(LARGEST_RECORDS, "records")
        for content in contents.values():
            if get_object_type_from_object_content(content) != "ArrayChunk":
                records.take(len(content))
        return contents

    def inflate(self, object_id: str, object_contents: dict[str, bytes], **options: Any) -> object:  # noqa: ANN401 (Flower's own)
        """Make a reply of its objects, as Flower does, within the limits."""
        _thread.arrays = Budget(self.arrays, "arrays")
        return inflate_object_from_contents(object_id, object_contents, **options)

    def require_short(self, response: httpx.Response) -> None:
        """Refuse a response whose body is too long, before it is read."""
        most = self._longest_response(response.request)
        if most is not None and int(response.headers.get("content-length", 0)) > most:
            message = f"it has more than {most} bytes on its way"
            raise TooLarge(message)

    def _longest_response(self, request: httpx.Request) -> int | None:
        if request.url.path == OBJECT:
            return max(self.arrays, LARGEST_RECORDS) + ENVELOPE
        if request.url.path == LIST:
            replies = 1 + len(request.content) // IDENTITY
            return (1 << 20) + replies * (ENVELOPE + ENTRY * self.objects)
        return None


# What is left for the arrays of the reply that a thread unpacks.
_thread = threading.local()
_inflate_array: Callable[..., Array] = Array.inflate


def _inflate_within(cls: type[Array], object_content: bytes, children: Mapping[str, Any] | None = None) -> Array:
    """Join an array's chunks, as Flower does, if as much is left for arrays."""
    budget: Budget | None = getattr(_thread, "arrays", None)
    if budget is not None:
        ids = get_object_children_ids_from_object_content(object_content)
        lengths = [len(children[chunk].data) for chunk in ids] if children else []
        header = json.loads(get_object_body(object_content, cls))
        budget.take(sum(lengths[place] for place in header["arraychunk_ids"]))
    return _inflate_array(object_content, children)


def limit_replies(grid: Grid, arrays: int) -> None:
    """Let the arrays of no reply have more than so many bytes, in this process, and the rest no more than it needs."""
    limit = ReplyLimit(arrays)
    # By these names Flower's grid has them.
    http_grid.__dict__.update(pull_objects=limit.pull, inflate_object_from_contents=limit.inflate)
    Array.inflate = classmethod(_inflate_within)  # type: ignore[method-assign, assignment]
    if isinstance(grid, http_grid.HttpGrid):
        # Its connection is not public. Flower's version is pinned, and a test sends such replies over a real SuperLink.
        grid._runtime_client._client.event_hooks["response"].append(limit.require_short)  # noqa: SLF001
