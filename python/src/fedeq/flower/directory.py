"""Which client has which node."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from logging import WARNING

from flwr.app import Message
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedeq.flower import letters
from fedeq.flower.trouble import BREATH, despite_trouble, push
from fedeq.flower.weights import Rejected

# Seconds until a node that did not say who it is is asked again, twice as long every time up to the second number, and
# until nobody wants to know it any more. Idle nodes listen every few seconds.
INTRODUCTION, LONGEST, LIFETIME = 8.0, 32.0, 60.0

Clock = Callable[[], float]


@dataclass
class Directory:
    """Which client has which node. Nodes that are new are asked who they are."""

    grid: Grid
    clock: Clock = time.monotonic
    nodes: dict[int, int] = field(default_factory=dict)
    # Questions, and whom they are to.
    _asked: dict[str, int] = field(default_factory=dict)
    # Those whose answers are listened for. An answer that a listener brings late counts all the same.
    _expected: set[str] = field(default_factory=set)
    # When a node is to be asked again, and how long it is left alone after that.
    _again: dict[int, float] = field(default_factory=dict)
    _pause: dict[int, float] = field(default_factory=dict)

    def look(self) -> None:
        """Ask newcomers who they are."""
        now = self.clock()
        known = set(self.nodes.values())
        nobody: list[int] = []
        there = despite_trouble(lambda: list(self.grid.get_node_ids()), nobody)
        new = [node for node in there if node not in known and self._again.get(node, now) <= now]
        sent = push(self.grid, [letters.who_are_you(node, LIFETIME) for node in new])
        for node, message in zip(new, sent, strict=True):
            # Whoever does not answer because there is too much to do must not be given more and more.
            pause = self._pause.get(node, INTRODUCTION)
            self._again[node] = now + (pause if message else BREATH)
            if message:
                self._pause[node] = min(2.0 * pause, LONGEST)
                self._asked[message] = node
                self._expected.add(message)

    @property
    def questions(self) -> list[str]:
        """The questions that are not answered yet."""
        return list(self._expected)

    def hear(self, reply: Message) -> None:
        """Hear who a node is, if that is what it says."""
        message = reply.metadata.reply_to_message_id
        self._expected.discard(message)
        node = self._asked.get(message)
        if node is not None and reply.has_content():
            self._introduce(node, reply)

    def forget(self, client: int) -> None:
        """Forget where a client is: it may come back as another node."""
        node = self.nodes.pop(client, 0)
        self._again.pop(node, None)
        self._pause.pop(node, None)

    def _introduce(self, node: int, reply: Message) -> None:
        try:
            client = letters.client_of(reply)
        except Rejected as problem:
            log(WARNING, "node %s: %s", node, problem)
            return
        self._asked = {message: asked for message, asked in self._asked.items() if asked != node}
        self._expected &= set(self._asked)
        if self.nodes.setdefault(client, node) != node:
            log(WARNING, "node %s says it is client %s, which is node %s", node, client, self.nodes[client])
