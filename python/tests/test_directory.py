"""Nodes say which client they are, however slowly their replies come."""

from itertools import pairwise
from pathlib import Path

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode

from fedeq.flower.directory import FIRST_WAIT, Directory
from fedeq.flower.registry import Registry
from tests.harness.fake import FakeGrid, client, honest


def unavailable(reply: Message) -> Message:
    """Write the error that Flower gives to a second call, while a first one is still fetching the reply."""
    error = Message(Error(code=ErrorCode.MESSAGE_UNAVAILABLE), reply_to=reply)
    error.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
    return error


def directory_of(grid: FakeGrid, folder: Path) -> Directory:
    """Make a directory of ten clients."""
    return Directory(grid, Registry(folder / "nodes.json"), 10, grid.clock)


def test_a_reply_that_comes_after_an_error_counts(tmp_path: Path) -> None:
    """Fifty replies at once take a call seconds; meanwhile another call gets the error that they are unavailable."""
    grid = FakeGrid({100: client(7, honest(1.0))})
    directory = directory_of(grid, tmp_path)
    directory.ask_new_nodes()
    (reply,) = grid.pull_messages(directory.pending)
    directory.receive(unavailable(reply))
    assert directory.nodes == {}
    assert directory.pending == [], "nothing is pending any more"
    directory.receive(reply)
    assert directory.nodes == {7: 100}


def test_a_node_that_does_not_reply_is_asked_at_longer_and_longer_intervals(tmp_path: Path) -> None:
    """A SuperLink with too much to do does not get more and more requests."""
    grid = FakeGrid({100: lambda _: None})
    directory = directory_of(grid, tmp_path)
    times = []
    while grid.now < 20 * FIRST_WAIT:
        before = len(grid.asked)
        directory.ask_new_nodes()
        if len(grid.asked) > before:
            times.append(grid.now)
        grid.now += 1.0
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[:3] == [FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT]
    assert set(pauses[3:]) == {4 * FIRST_WAIT}


def test_nothing_is_pending_for_a_node_that_is_known(tmp_path: Path) -> None:
    """It was asked twice, and the first reply came after the second request."""
    grid = FakeGrid({100: client(7, honest(1.0))})
    directory = directory_of(grid, tmp_path)
    directory.ask_new_nodes()
    (reply,) = grid.pull_messages(directory.pending)
    grid.now += FIRST_WAIT
    directory.ask_new_nodes()
    directory.receive(reply)
    assert directory.nodes == {7: 100}
    assert directory.pending == []
