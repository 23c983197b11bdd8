"""Hearing answers without being held up by those that come in parts, or brought down by those that cannot be read.

An answer is announced before its parts are sent. If its node is killed in between, Flower's grid waits for the parts
for minutes, and with it everything else. So it waits in the background, and others are listened to anew meanwhile.

An answer whose parts are no message makes Flower's grid fail, and whatever it had fetched before with it. So from then
on every answer is listened for alone: the one that cannot be read is its node's failure, and the others are asked for
again.
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

from fedeq.flower.fields import brief
from fedeq.flower.trouble import despite_trouble

# Seconds after which a listener is taken to be held up, and for every answer it may bring: it brings all at once.
HELD_UP, EACH = 2.0, 0.1
# Listeners at a time, at most.
LISTENERS = 64
# The code of an answer that may have been lost together with one that could not be read; Flower's codes are small.
LOST = 1001


class Ear(Protocol):
    """Somebody who hears answers."""

    def hear(self, messages: Iterable[str], seconds: float) -> list[Message]:
        """Give the answers to some messages that are there, or come within so many seconds."""


@dataclass(eq=False)
class _Listener:
    """A thread that waits for answers to some messages."""

    messages: list[str]
    begun: float

    def is_held_up(self, now: float) -> bool:
        """Whether it takes longer than it should."""
        return now - self.begun > HELD_UP + EACH * len(self.messages)


class BackgroundEar:
    """Listens in threads of its own. A thread that is held up does not hold up the end of the process either.

    Usually one listener asks for all answers. While one is held up, others ask for one answer each, so that the next
    one that comes in parts takes no whole ones with it.
    """

    def __init__(self, grid: Grid, clock: Callable[[], float] = time.monotonic) -> None:
        """Listen to nobody yet."""
        self._grid = grid
        self._clock = clock
        self._heard: queue.Queue[list[Message] | BaseException] = queue.Queue()
        self._listeners: set[_Listener] = set()
        # Whether an answer could not be read, and who is listened for first while everybody is listened for alone.
        self._is_spoiled = False
        self._turn = 0

    def hear(self, messages: Iterable[str], seconds: float) -> list[Message]:
        """Listen, and give what was heard since."""
        for batch in self._batches(list(messages)):
            self._listen(batch)
        try:
            heard = self._heard.get(timeout=seconds)
        except queue.Empty:
            return []
        if isinstance(heard, BaseException):
            raise heard
        return heard

    def _batches(self, messages: list[str]) -> list[list[str]]:
        """Decide who is to listen for what, beside those who listen already."""
        at_work, now = list(self._listeners), self._clock()
        held_up = [listener for listener in at_work if listener.is_held_up(now)]
        if not messages or len(held_up) < len(at_work):
            return []
        if not held_up and not self._is_spoiled:
            return [messages]
        if self._is_spoiled:
            self._turn = (self._turn + LISTENERS) % len(messages)
            messages = messages[self._turn :] + messages[: self._turn]
        alone = {message for listener in held_up if len(listener.messages) == 1 for message in listener.messages}
        return [[message] for message in messages if message not in alone][: LISTENERS - len(held_up)]

    def _listen(self, messages: list[str]) -> None:
        listener = _Listener(messages, self._clock())
        self._listeners.add(listener)
        threading.Thread(target=self._work, args=(listener,), daemon=True).start()

    def _work(self, listener: _Listener) -> None:
        nothing: list[Message] = []
        try:
            heard: list[Message] | BaseException = despite_trouble(
                lambda: list(self._grid.pull_messages(listener.messages)), nothing
            )
        except httpx.HTTPError as problem:
            heard = problem
        except Exception as problem:  # noqa: BLE001 (nodes send the parts; Flower fails over them in many ways)
            heard = self._spoiled(listener.messages, problem)
        except BaseException as problem:  # noqa: BLE001 (Flower ends a run by one; whoever hears it raises it again)
            heard = problem
        self._listeners.discard(listener)
        if heard:
            self._heard.put(heard)

    def _spoiled(self, messages: list[str], problem: Exception) -> list[Message]:
        """Say that an answer cannot be read, or that one of several cannot and the others may be lost."""
        self._is_spoiled = True
        alone = len(messages) == 1
        code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION if alone else LOST
        reason = f"its answer cannot be read: {type(problem).__name__}: {brief(problem)}"
        return [_failure(message, Error(code, reason)) for message in messages]


def _failure(question: str, error: Error) -> Message:
    """Write what Flower would say in place of an answer."""
    metadata = Metadata(
        run_id=0,
        message_id="",
        src_node_id=0,
        dst_node_id=0,
        reply_to_message_id=question,
        group_id="",
        created_at=time.time(),
        ttl=0.0,
        message_type="system",
    )
    return make_message(metadata=metadata, error=error)
