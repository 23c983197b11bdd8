"""Hearing answers without being held up by those that come in parts.

An answer is announced before its parts are sent. If its node is killed in between, Flower's grid waits for the parts
for minutes, and with it everything else. So it waits in the background, and others are listened to anew meanwhile.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from flwr.app import Message
from flwr.serverapp import Grid

from fedeq.flower.trouble import despite_trouble

# Seconds after which a listener is taken to be held up, and for every answer it may bring: it brings all at once.
HELD_UP, EACH = 2.0, 0.1
# Listeners at a time, at most.
LISTENERS = 64


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
        if not held_up:
            return [messages]
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
        except BaseException as problem:  # noqa: BLE001 (Flower ends a run by one; whoever hears it raises it again)
            heard = problem
        self._listeners.discard(listener)
        if heard:
            self._heard.put(heard)
