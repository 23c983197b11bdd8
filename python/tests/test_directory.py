"""Nodes say who they are, however slowly their answers come."""

from itertools import pairwise

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode

from fedeq.flower.directory import INTRODUCTION, Directory
from tests.harness.fake import FakeGrid, client, honest


def unavailable(answer: Message) -> Message:
    """Write what Flower says to a second listener, after a first has taken an answer that it has not brought yet."""
    error = Message(Error(code=ErrorCode.MESSAGE_UNAVAILABLE), reply_to=answer)
    error.metadata.__dict__["_reply_to_message_id"] = answer.metadata.reply_to_message_id
    return error


def test_an_answer_that_comes_after_an_error_counts() -> None:
    """Fifty answers at once take a listener seconds; meanwhile another one is told that they cannot be had."""
    grid = FakeGrid({100: client(7, honest(1.0))})
    directory = Directory(grid, grid.clock)
    directory.look()
    (answer,) = grid.pull_messages(directory.questions)
    directory.hear(unavailable(answer))
    assert directory.nodes == {}
    assert directory.questions == [], "there is nothing to listen for any more"
    directory.hear(answer)
    assert directory.nodes == {7: 100}


def test_whoever_does_not_answer_is_asked_at_longer_and_longer_intervals() -> None:
    """A SuperLink with too much to do is not given more and more."""
    grid = FakeGrid({100: lambda _: None})
    directory = Directory(grid, grid.clock)
    times = []
    while grid.now < 20 * INTRODUCTION:
        before = len(grid.asked)
        directory.look()
        if len(grid.asked) > before:
            times.append(grid.now)
        grid.now += 1.0
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[:3] == [INTRODUCTION, 2 * INTRODUCTION, 4 * INTRODUCTION]
    assert set(pauses[3:]) == {4 * INTRODUCTION}


def test_a_node_that_is_known_is_not_listened_for_any_more() -> None:
    """It was asked twice, and the first answer came after the second question."""
    grid = FakeGrid({100: client(7, honest(1.0))})
    directory = Directory(grid, grid.clock)
    directory.look()
    (answer,) = grid.pull_messages(directory.questions)
    grid.now += INTRODUCTION
    directory.look()
    directory.hear(answer)
    assert directory.nodes == {7: 100}
    assert directory.questions == []
