"""Hearing answers without being held up by those that come in parts.

An answer is announced before its parts are sent. If its node is killed in between, Flower's grid waits for the parts
for minutes, and with it everything else. So it waits in the background, and others are listened to anew meanwhile.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from flwr.app import Message
from flwr.serverapp import Grid

from fedeq.flower.trouble import despite_trouble

# Seconds after which a listener is taken to be held up.
HELD_UP = 3.0
# Listeners that are held up at a time, at most.
LISTENERS = 16


class Ear(Protocol):
    """Somebody who hears answers."""

    def hear(self, messages: Iterable[str], seconds: float) -> list[Message]:
        """Give the answers to some messages that are there, or come within so many seconds."""


class BackgroundEar:
    """Listens in threads of its own. A thread that is held up does not hold up the end of the process either."""

    def __init__(self, grid: Grid, clock: Callable[[], float] = time.monotonic) -> None:
        """Listen to nobody yet."""
        self._grid = grid
        self._clock = clock
        self._heard: queue.Queue[list[Message] | Exception] = queue.Queue()
        # When those who listen now began.
        self._begun: dict[int, float] = {}

    def hear(self, messages: Iterable[str], seconds: float) -> list[Message]:
        """Listen, and give what was heard since."""
        now, wanted = self._clock(), list(messages)
        is_held_up = all(now - begun > HELD_UP for begun in list(self._begun.values()))
        if wanted and is_held_up and len(self._begun) < LISTENERS:
            self._listen(wanted, now)
        try:
            heard = self._heard.get(timeout=seconds)
        except queue.Empty:
            return []
        if isinstance(heard, Exception):
            raise heard
        return heard

    def _listen(self, messages: list[str], now: float) -> None:
        thread = threading.Thread(target=self._work, args=(messages,), daemon=True)
        self._begun[id(messages)] = now
        thread.start()

    def _work(self, messages: list[str]) -> None:
        try:
            nothing: list[Message] = []
            heard: list[Message] | Exception = despite_trouble(
                lambda: list(self._grid.pull_messages(messages)), nothing
            )
        except Exception as problem:  # noqa: BLE001 (raised again by whoever hears it)
            heard = problem
        del self._begun[id(messages)]
        if heard:
            self._heard.put(heard)
