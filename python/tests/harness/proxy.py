"""A proxy between nodes and the SuperLink that injects faults."""

import random
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from tests.harness.processes import free_port

Fault = Literal["drop", "delay", "duplicate", "truncate"]
BLOCK = 65536
# Seconds without data after which a connection is closed.
TIMEOUT = 60.0


@dataclass(frozen=True)
class Faults:
    """The share of requests that each fault is injected into."""

    drop: float = 0.0
    delay: float = 0.0
    duplicate: float = 0.0
    truncate: float = 0.0

    def draw(self, chance: random.Random) -> Fault | None:
        """Draw the fault of a request, if any."""
        kinds: list[Fault] = ["drop", "delay", "duplicate", "truncate"]
        shares = [getattr(self, kind) for kind in kinds]
        outcomes: list[Fault | None] = [*kinds, None]
        return chance.choices(outcomes, [*shares, max(0.0, 1.0 - sum(shares))])[0]


@dataclass
class Proxy:
    """Forwards requests to a port, one connection each, and injects faults.

    - drop: the connection is closed, before or after the request is forwarded
    - delay: the response comes late
    - duplicate: the request is forwarded twice, and the second response is returned
    - truncate: the connection is closed in the middle of the response
    """

    target: int
    faults: Faults
    seed: int
    port: int = field(default_factory=free_port)
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Listen."""
        self._chance = random.Random(self.seed)  # noqa: S311 (faults need no secrets)
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(TIMEOUT)
        with connection, suppress(OSError):
            while request := _read_message(connection):
                if not self._forward(request, connection):
                    return

    def _forward(self, request: bytes, connection: socket.socket) -> bool:
        """Forward a request, perhaps with a fault, and tell whether the connection stays open."""
        with self._lock:
            fault, early, share, seconds = self.faults.draw(self._chance), *(self._chance.random() for _ in range(3))
            self.done[fault or "passed"] += 1
        if fault == "drop" and early < 0.5:  # noqa: PLR2004 (half of them)
            return False
        if fault == "duplicate":
            self._ask(request)
        response = self._ask(request)
        if fault == "drop":
            return False
        if fault == "delay":
            time.sleep(2.0 * seconds)
        connection.sendall(response[: int(share * len(response))] if fault == "truncate" else response)
        return fault != "truncate"

    def _ask(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.target), TIMEOUT) as server:
            server.sendall(request)
            return _read_message(server)


def _read_message(connection: socket.socket) -> bytes:
    """Read one message of HTTP/1.1 with its body; empty if the connection was closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        block = connection.recv(BLOCK)
        if not block:
            return b""
        data += block
    head, body = data.split(b"\r\n\r\n", 1)
    size = len(head) + 4 + _length(head)
    while len(data) < size:
        block = connection.recv(BLOCK)
        if not block:
            return b""
        data += block
    del body
    return data


def _length(head: bytes) -> int:
    """Read the length of a message's body; Flower's messages and ours always give it."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0
