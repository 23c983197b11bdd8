"""Requests to clients and their replies.

Flower delivers a message at most once: one whose delivery is interrupted, or whose node is offline for a while, is
lost. So a client that does not reply is asked again. That is safe: a node replies to a repeated request with the same
bytes and trains only once.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from logging import DEBUG, INFO

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedeq.flower.directory import Directory
from fedeq.flower.fields import shorten
from fedeq.flower.listener import LOST, Listener
from fedeq.flower.messages import Request
from fedeq.flower.pending import Clock, PendingRequests

# Flower's error codes for a message or a reply that was lost, where another listener may already have the reply.
LATE = {ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE}
# Those after which asking again may help.
TRANSIENT = {*LATE, ErrorCode.NODE_UNAVAILABLE, LOST}

# Seconds between looks for replies: short while they come in, longer while they do not.
SHORTEST, LONGEST = 0.05, 0.5
# How often a client must refuse a request until that counts.
REFUSALS = 2


@dataclass
class Replies:
    """The replies to a request, by client."""

    received: dict[int, Message] = field(default_factory=dict)
    # Why others did not reply.
    failures: dict[int, str] = field(default_factory=dict)


@dataclass
class Transport:
    """Sends requests to clients and waits for their replies."""

    grid: Grid
    listener: Listener
    deadline: float
    repeat: float
    clock: Clock = time.monotonic
    # Called with the clients that have not replied yet, whenever these change.
    on_progress: Callable[[set[int]], None] = lambda _: None

    def __post_init__(self) -> None:
        """Begin with no known node."""
        self.directory = Directory(self.grid, self.clock)

    def wait_for_nodes(self, clients: int, patience: float) -> set[int]:
        """Wait until every client has a node, `patience` seconds at most, and give the clients without one."""
        end = self.clock() + patience
        while missing := set(range(clients)) - set(self.directory.nodes):
            if self.clock() >= end:
                break
            self.directory.ask_new_nodes()
            for reply in self.listener.receive(self.directory.pending, LONGEST):
                self.directory.receive(reply)
        log(INFO, "%s of %s clients have a node", clients - len(missing), clients)
        return missing

    def ask(self, request: Request, clients: Iterable[int]) -> Replies:
        """Send a request to clients and wait for all replies, until the deadline at most."""
        exchange = _Exchange(self, request, set(clients))
        end = self.clock() + self.deadline
        pause = SHORTEST
        while exchange.waiting and self.clock() < end:
            before = len(exchange.waiting)
            exchange.send(end - self.clock())
            exchange.receive(pause)
            if len(exchange.waiting) < before:
                self.on_progress(exchange.waiting)
            pause = SHORTEST if len(exchange.waiting) < before else min(1.5 * pause, LONGEST)
        for client in exchange.waiting:
            exchange.replies.failures.setdefault(client, f"no reply in {self.deadline:g} s")
        return exchange.replies


@dataclass
class _Exchange:
    """One request to several clients."""

    transport: Transport
    request: Request
    waiting: set[int]
    replies: Replies = field(default_factory=Replies)
    refusals: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        transport = self.transport
        self.pending = PendingRequests(transport.grid, transport.repeat, clock=transport.clock)

    def send(self, ttl: float) -> None:
        """Send the request to clients that were not asked for a while."""
        directory = self.transport.directory
        if not self.waiting <= set(directory.nodes):
            directory.ask_new_nodes()
        due = self.pending.due(self.waiting & set(directory.nodes))
        self.pending.send({client: self.request.to(directory.nodes[client], ttl) for client in due})

    def receive(self, seconds: float) -> None:
        """Take the replies that have arrived."""
        directory = self.transport.directory
        for reply in self.transport.listener.receive([*self.pending.messages, *directory.pending], seconds):
            directory.receive(reply)
            client = self.pending.sender_of(reply)
            if client is None or client not in self.waiting:
                continue
            if not reply.has_error():
                self.replies.received[client] = reply
                self._finish(client)
            else:
                self._fail(client, reply.error)

    def _fail(self, client: int, error: Error) -> None:
        """Ask again after an error that may be transient.

        A refusal counts when it is repeated: parts of the first request may have been lost on their way.
        """
        reason = shorten(error.reason or "it failed")
        if error.code not in TRANSIENT:
            self.refusals[client] += 1
        if self.refusals[client] == REFUSALS:
            self.replies.failures[client] = reason
            self._finish(client)
            return
        log(DEBUG, "client %s will be asked again: %s", client, reason)
        if error.code in LATE:
            return
        self.pending.retry(client)
        if error.code == ErrorCode.NODE_UNAVAILABLE:
            self.transport.directory.remove(client)

    def _finish(self, client: int) -> None:
        self.waiting.discard(client)
        self.pending.close(client)
