"""Calls to a busy SuperLink are repeated; calls that it refuses are not."""

from collections.abc import Iterable
from pathlib import Path

import httpx
import pytest
from flwr.app import Message

from fedeq.flower.directory import Directory
from fedeq.flower.messages import identify
from fedeq.flower.registry import Registry
from fedeq.flower.superlink import push, tolerate_server_errors
from fedeq.flower.transport import Transport
from tests.harness.fake import FakeContext, FakeGrid, client, honest


def failure(status: int) -> httpx.HTTPStatusError:
    """Make an HTTP error of a status."""
    request = httpx.Request("POST", "http://127.0.0.1/")
    return httpx.HTTPStatusError("busy", request=request, response=httpx.Response(status, request=request))


class BusyGrid(FakeGrid):
    """A grid that fails every other time."""

    calls = 0

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send, or fail."""
        self.calls += 1
        if self.calls % 2:
            raise failure(500)
        return super().push_messages(messages)


def test_messages_that_a_busy_superlink_does_not_accept_are_sent_again(tmp_path: Path) -> None:
    """Every client has a node in the end."""
    grid = BusyGrid({100: client(0, honest(1.0)), 101: client(1, honest(1.0))})
    directory = Directory(grid, Registry(tmp_path / "nodes.json"), 2, grid.clock)
    transport = Transport(grid, grid, directory, "", "", deadline=60.0, repeat=60.0, patience=60.0, clock=grid.clock)
    assert transport.gather(2, FakeContext()) == {}  # type: ignore[arg-type]


def test_messages_that_are_not_accepted_have_no_id() -> None:
    """Flower gives an empty list for messages that are too large together."""

    class Narrow(FakeGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            del messages
            return []

    grid = Narrow({})
    assert push(grid, []) == []
    assert push(grid, [identify(100, 60.0), identify(101, 60.0)]) == [None, None]


def test_a_refusal_is_not_hidden() -> None:
    """Only server errors are tolerated."""

    def refuse() -> int:
        raise failure(403)

    with pytest.raises(httpx.HTTPStatusError):
        tolerate_server_errors(refuse, 0)
