"""Receiving replies without being blocked by incomplete ones, or stopped by unreadable ones.

A reply is announced before its parts are sent. If its node is killed in between, Flower's grid waits for the parts for
minutes, and blocks everything else. So it waits in a background thread, and other threads ask for the other replies.

A reply whose parts are not a valid message makes Flower's grid fail, and loses the replies it had fetched before. So
from then on every reply is fetched by a call of its own: the unreadable one counts as a failure of its node, and the
others are asked for again.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import httpx
from flwr.app import Error, Message, Metadata
from flwr.app.message import make_message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedeq.flower.messages import shorten
from fedeq.flower.pending import OURSELVES
from fedeq.flower.superlink import tolerate_server_errors

# Seconds after which a call counts as blocked, and for every reply it asks for: it returns all of them at once.
BLOCKED_AFTER, PER_REPLY = 2.0, 0.1
# Calls at a time, at most.
MOST_CALLS = 64
# The code of a reply that may have been lost together with an unreadable one; Flower's own codes are small.
LOST = 1001


class Listener(Protocol):
    """Receives replies."""

    def receive(self, messages: Iterable[str], seconds: float) -> list[Message]:
        """Give replies to some messages that have arrived, or arrive within so many seconds."""
        ...


@dataclass(eq=False)
class _Call:
    """A call that waits for replies to some messages."""

    messages: list[str]
    begun: float

    def is_blocked(self, now: float) -> bool:
        """Whether it takes longer than it should."""
        return now - self.begun > BLOCKED_AFTER + PER_REPLY * len(self.messages)


class BackgroundListener:
    """Receives replies in threads of its own. A blocked thread does not block the end of the process.

    Usually one call asks for all replies. While one is blocked, others ask for one reply each, so that the next
    incomplete reply does not block complete ones.
    """

    def __init__(self, grid: Grid, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without any call."""
        self._grid = grid
        self._clock = clock
        self._received: queue.Queue[list[Message] | BaseException] = queue.Queue()
        self._calls: set[_Call] = set()
        # Whether a reply could not be read, and which message comes first while every reply is fetched on its own.
        self._is_one_by_one = False
        self._first = 0

    def receive(self, messages: Iterable[str], seconds: float) -> list[Message]:
        """Ask for replies, and give those that have arrived since the last time."""
        for batch in self._batches(list(messages)):
            self._start(batch)
        try:
            received = self._received.get(timeout=seconds)
        except queue.Empty:
            return []
        if isinstance(received, BaseException):
            raise received
        return received

    def _batches(self, messages: list[str]) -> list[list[str]]:
        """Decide which calls to make, in addition to those under way."""
        under_way, now = list(self._calls), self._clock()
        blocked = [call for call in under_way if call.is_blocked(now)]
        if not messages or len(blocked) < len(under_way):
            return []
        if not blocked and not self._is_one_by_one:
            return [messages]
        if self._is_one_by_one:
            self._first = (self._first + MOST_CALLS) % len(messages)
            messages = messages[self._first :] + messages[: self._first]
        alone = {message for call in blocked if len(call.messages) == 1 for message in call.messages}
        return [[message] for message in messages if message not in alone][: MOST_CALLS - len(blocked)]

    def _start(self, messages: list[str]) -> None:
        call = _Call(messages, self._clock())
        self._calls.add(call)
        threading.Thread(target=self._pull, args=(call,), daemon=True).start()

    def _pull(self, call: _Call) -> None:
        nothing: list[Message] = []
        try:
            received: list[Message] | BaseException = tolerate_server_errors(
                lambda: list(self._grid.pull_messages(call.messages)), nothing
            )
        except httpx.HTTPError as problem:
            received = problem
        except Exception as problem:  # noqa: BLE001 (nodes send the parts, and Flower fails on them in many ways)
            received = self._unreadable(call.messages, problem)
        except BaseException as problem:  # noqa: BLE001 (Flower ends a run by one; `receive` raises it again)
            received = problem
        self._calls.discard(call)
        if received:
            self._received.put(received)

    def _unreadable(self, messages: list[str], problem: Exception) -> list[Message]:
        """Give errors in place of the replies: for a single one it is unreadable, of several the others may be lost."""
        self._is_one_by_one = True
        code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION if len(messages) == 1 else LOST
        reason = f"its reply cannot be read: {type(problem).__name__}: {shorten(problem)}"
        return [_failure(message, Error(code, reason)) for message in messages]


def _failure(request: str, error: Error) -> Message:
    """Write the message that Flower itself uses in place of a reply."""
    metadata = Metadata(
        run_id=0,
        message_id="",
        src_node_id=OURSELVES,
        dst_node_id=OURSELVES,
        reply_to_message_id=request,
        group_id="",
        created_at=time.time(),
        ttl=0.0,
        message_type="system",
    )
    return make_message(metadata=metadata, error=error)
