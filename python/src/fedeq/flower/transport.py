"""Requests to clients and their replies.

Flower delivers a message at most once: one whose delivery is interrupted, or whose node is offline for a while, is
lost. So a client that does not reply is asked again. That is safe: a node replies to a repeated request with the same
bytes and trains only once.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from logging import DEBUG, INFO

from flwr.app import Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedeq._native import LinkContext, Request
from fedeq.flower.directory import Directory
from fedeq.flower.listener import LOST, Listener
from fedeq.flower.messages import Parts, content, parts_of, shorten
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
class Transport:
    """Sends requests to clients and waits for their replies: the link between Rust's server and Flower's grid."""

    grid: Grid
    listener: Listener
    directory: Directory
    federation: str
    experiment: str
    # Seconds to wait for replies, until a client is asked again, and for nodes to come online.
    deadline: float
    repeat: float
    patience: float
    clock: Clock = time.monotonic

    def gather(self, clients: int, context: LinkContext) -> dict[int, str]:
        """Wait until every client has a node, `patience` seconds at most, and say which have none."""
        self.directory.on_refusal = context.refused
        end = self.clock() + self.patience
        while missing := set(range(clients)) - set(self.directory.nodes):
            if self.clock() >= end or context.stopped:
                break
            self.directory.ask_new_nodes()
            for reply in self.listener.receive(self.directory.pending, LONGEST):
                self.directory.receive(reply)
        log(INFO, "%s of %s clients have a node", clients - len(missing), clients)
        return dict.fromkeys(sorted(missing), f"no node in {self.patience:g} s")

    def exchange(self, requests: Mapping[int, Request], context: LinkContext) -> dict[int, str | Parts]:
        """Send each client its request and wait for all replies, until the deadline at most."""
        self.directory.on_refusal = context.refused
        exchange = _Exchange(self, requests, context)
        end = self.clock() + self.deadline
        pause = SHORTEST
        while exchange.waiting and self.clock() < end and not context.stopped:
            before = len(exchange.waiting)
            exchange.send(end - self.clock())
            exchange.receive(pause)
            pause = SHORTEST if len(exchange.waiting) < before else min(1.5 * pause, LONGEST)
        for client in exchange.waiting:
            exchange.replies[client] = f"no reply in {self.deadline:g} s"
        return exchange.replies


@dataclass
class _Exchange:
    """Requests to several clients."""

    transport: Transport
    requests: Mapping[int, Request]
    context: LinkContext
    # Replies, or why there is none.
    replies: dict[int, str | Parts] = field(default_factory=dict)
    refusals: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        transport = self.transport
        self.waiting = set(self.requests)
        self.pending = PendingRequests(transport.grid, transport.repeat, clock=transport.clock)
        # The content of each request: clients that are asked the same share it.
        self.contents: dict[int, RecordDict] = {}

    def send(self, ttl: float) -> None:
        """Send requests to clients that were not asked for a while."""
        directory = self.transport.directory
        if not self.waiting <= set(directory.nodes):
            directory.ask_new_nodes()
        due = self.pending.due(self.waiting & set(directory.nodes))
        self.pending.send({client: self._message(client, directory.nodes[client], ttl) for client in due})

    def _message(self, client: int, node: int, ttl: float) -> Message:
        request = self.requests[client]
        if id(request) not in self.contents:
            transport = self.transport
            self.contents[id(request)] = content(request, transport.federation, transport.experiment)
        return Message(self.contents[id(request)], node, request.kind, ttl=ttl, group_id=str(request.round))

    def receive(self, seconds: float) -> None:
        """Take the replies that have arrived."""
        directory = self.transport.directory
        for reply in self.transport.listener.receive([*self.pending.messages, *directory.pending], seconds):
            directory.receive(reply)
            client = self.pending.sender_of(reply)
            if client is None or client not in self.waiting:
                continue
            if not reply.has_error():
                self._finish(client, parts_of(reply))
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
            self._finish(client, reason)
            return
        log(DEBUG, "client %s will be asked again: %s", client, reason)
        if error.code in LATE:
            return
        self.pending.retry(client)
        if error.code == ErrorCode.NODE_UNAVAILABLE:
            self.transport.directory.remove(client)

    def _finish(self, client: int, reply: str | Parts) -> None:
        self.replies[client] = reply
        self.waiting.discard(client)
        self.pending.close(client)
        self.context.replied(client)
