"""Replies are received although others are incomplete."""

import threading
from collections.abc import Iterable

import pytest
from flwr.app import Message
from flwr.supercore.run import RunNotRunningException

from fedeq.flower import listener
from fedeq.flower.listener import BackgroundListener
from fedeq.flower.messages import identify
from tests.harness.fake import FakeGrid, client, honest


class HalfSentGrid(FakeGrid):
    """A grid that waits for the rest of some replies, which never comes."""

    half: frozenset[str] = frozenset()

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Wait, if such a reply is among those asked for."""
        wanted = list(message_ids)
        if self.half & set(wanted):
            threading.Event().wait(60.0)
        return super().pull_messages(wanted)


def test_incomplete_replies_do_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call for all replies is blocked, and then two of the calls for one."""
    monkeypatch.setattr(listener, "BLOCKED_AFTER", 0.05)
    monkeypatch.setattr(listener, "PER_REPLY", 0.0)
    grid = HalfSentGrid({100: client(0, honest(1.0))})
    requests = list(grid.push_messages([identify(100, 60.0) for _ in range(5)]))
    grid.half = frozenset(requests[1:3])
    background, received = BackgroundListener(grid), set()
    for _ in range(100):
        received |= {message.metadata.reply_to_message_id for message in background.receive(requests, 0.02)}
    assert received == {requests[0], *requests[3:]}


def test_an_exception_in_the_background_is_raised_again() -> None:
    """Flower ends a run that was stopped by an exception that is not a subclass of `Exception`."""

    class Broken(FakeGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            del message_ids
            raise RunNotRunningException

    with pytest.raises(RunNotRunningException):
        BackgroundListener(Broken({})).receive(["a"], 5.0)
