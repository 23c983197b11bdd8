"""What a reply may take, on its way and unpacked."""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.message import make_message
from flwr.app.metadata import Metadata
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from flwr.superlink.grid import http_grid

from fedeq.flower.messages import parts_of
from fedeq.flower.reply_limit import ENVELOPE, LARGEST_RECORDS, LIST, OBJECT, ReplyLimit, TooLarge, limit_replies
from tests.harness.bombs import BOMBS, MEGABYTE
from tests.harness.fake import THETA, FakeGrid, update

pytestmark = pytest.mark.hostile

# What arrays may have in these tests.
ARRAYS = 16 * MEGABYTE


@pytest.fixture(autouse=True)
def limit() -> Iterator[ReplyLimit]:
    """Set the limits, and restore Flower's own functions after the test."""
    grid, inflate = dict(vars(http_grid)), Array.__dict__["inflate"]
    limit_replies(FakeGrid({}), ARRAYS)
    yield ReplyLimit(ARRAYS)
    http_grid.__dict__.update(grid)
    Array.inflate = inflate  # type: ignore[method-assign]


def message_of(content: RecordDict) -> Message:
    """Put a reply into a message."""
    metadata = Metadata(
        run_id=1,
        message_id="",
        src_node_id=2,
        dst_node_id=1,
        reply_to_message_id="request",
        group_id="",
        created_at=time.time(),
        ttl=60.0,
        message_type="train",
    )
    return make_message(metadata=metadata, content=content)


def flower(name: str) -> Callable[..., Any]:
    """Give a function as Flower's grid has it."""
    function: Callable[..., Any] = vars(http_grid)[name]
    return function


def received(content: RecordDict) -> Message:
    """Take a reply to its objects and receive them as Flower's grid does."""
    message = message_of(content)
    objects = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
    tree = get_object_tree(message)
    contents = flower("pull_objects")([part.object_id for part in iterate_object_tree(tree)], objects.__getitem__)
    inflated = flower("inflate_object_from_contents")(tree.object_id, contents)
    assert isinstance(inflated, Message)
    return inflated


def test_a_reply_as_large_as_one_may_be_is_received_whole() -> None:
    """In four chunks of Flower's own size, one of which is there twice, and with texts as long as they are read."""
    numbers = np.zeros((ARRAYS - 4096) // 4, np.float32)
    texts = ConfigRecord({"header": "h" * MEGABYTE, "layout": "l" * MEGABYTE})
    reply = RecordDict({"weights": ArrayRecord({"packed": Array(numbers)}), "fedeq": texts})
    header, layout, packed = parts_of(received(reply))
    assert (header, layout) == (texts["header"], texts["layout"])
    assert packed == Array(numbers).data
    assert parts_of(received(update(THETA))) == parts_of(message_of(update(THETA)))


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_left_out_before_it_is_unpacked(name: str) -> None:
    """Or it is harmless, and holds nothing that a reply has."""
    content = BOMBS[name]()
    message_of(content).deflate()
    tracemalloc.start()
    try:
        if name == "a shape that overflows":
            assert parts_of(received(content)) == (None, None, None)
        else:
            with pytest.raises(TooLarge, match=r"its (objects|records|arrays) have more than|objects, more than"):
                received(content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The objects as they are sent, twice at most: here they are not on another machine.
    assert peak < 100 * MEGABYTE, peak


def test_arrays_are_counted_together_in_one_reply_and_anew_in_the_next() -> None:
    """Two halves of what a reply may have fit, three do not; the thread's next reply has all of it."""

    def reply_with(count: int) -> RecordDict:
        arrays = {str(name): Array(np.full((ARRAYS // 2 - 4096) // 4, name, np.float32)) for name in range(count)}
        return RecordDict({"weights": ArrayRecord(arrays)})

    for _ in range(2):
        received(reply_with(2))
        with pytest.raises(TooLarge):
            received(reply_with(3))


def response(path: str, length: int, request: bytes = b"") -> httpx.Response:
    """Give the head of a response of so many bytes."""
    asked = httpx.Request("POST", f"http://link{path}", content=request)
    return httpx.Response(200, headers={"content-length": str(length)}, request=asked)


def test_a_response_is_measured_before_it_is_read(limit: ReplyLimit) -> None:
    """An object by what a reply may have, a list of objects by how many replies it is about."""
    largest = max(ARRAYS, LARGEST_RECORDS) + ENVELOPE
    limit.require_short(response(OBJECT, largest))
    limit.require_short(response("/v1/runtime/get-nodes", 1 << 40))
    limit.require_short(response(LIST, 30 * MEGABYTE, bytes(66 * 1000)))
    for path, length in ((OBJECT, largest + 1), (LIST, 30 * MEGABYTE)):
        with pytest.raises(TooLarge, match="on its way"):
            limit.require_short(response(path, length))


def test_a_body_that_is_too_long_is_not_read(limit: ReplyLimit) -> None:
    """The connection is closed after the head."""
    read = []

    def body() -> Iterator[bytes]:
        for part in range(1000):
            read.append(part)
            yield bytes(MEGABYTE)

    def reply(request: httpx.Request) -> httpx.Response:
        del request
        return httpx.Response(200, headers={"content-length": str(1000 * MEGABYTE)}, content=body())

    client = httpx.Client(transport=httpx.MockTransport(reply))
    client.event_hooks["response"].append(limit.require_short)
    with pytest.raises(TooLarge):
        client.post(f"http://link{OBJECT}")
    assert not read
