"""A way between nodes and the SuperLink on which things go wrong."""

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
# A connection on which nobody speaks for so long is over.
SILENCE = 60.0


@dataclass(frozen=True)
class Faults:
    """How often what goes wrong, as shares of the requests."""

    drop: float = 0.0
    delay: float = 0.0
    duplicate: float = 0.0
    truncate: float = 0.0

    def draw(self, chance: random.Random) -> Fault | None:
        """Decide what happens to a request."""
        kinds: list[Fault] = ["drop", "delay", "duplicate", "truncate"]
        shares = [getattr(self, kind) for kind in kinds]
        drawn = chance.choices([*kinds, None], [*shares, max(0.0, 1.0 - sum(shares))])
        return drawn[0]


@dataclass
class Proxy:
    """Passes requests on to a port, one connection each, and does to some of them what `faults` says.

    - drop: the connection is closed, before the request is passed on or after
    - delay: the answer comes late
    - duplicate: the request is passed on twice; the second answer is the one that counts
    - truncate: the connection is closed in the middle of the answer
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
        connection.settimeout(SILENCE)
        with connection, suppress(OSError):
            while request := _read_message(connection):
                if not self._pass_on(request, connection):
                    return

    def _pass_on(self, request: bytes, connection: socket.socket) -> bool:
        """Do with a request what chance wants, and tell whether the connection goes on."""
        with self._lock:
            fault, early, share, seconds = self.faults.draw(self._chance), *(self._chance.random() for _ in range(3))
            self.done[fault or "passed"] += 1
        if fault == "drop" and early < 0.5:  # noqa: PLR2004 (half of them)
            return False
        if fault == "duplicate":
            self._ask(request)
        answer = self._ask(request)
        if fault == "drop":
            return False
        if fault == "delay":
            time.sleep(2.0 * seconds)
        connection.sendall(answer[: int(share * len(answer))] if fault == "truncate" else answer)
        return fault != "truncate"

    def _ask(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.target), SILENCE) as server:
            server.sendall(request)
            return _read_message(server)


def _read_message(connection: socket.socket) -> bytes:
    """Read one message of HTTP/1.1 with its body; nothing if there is none."""
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
    """How long a message's body is; Flower's and ours always say so."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0
