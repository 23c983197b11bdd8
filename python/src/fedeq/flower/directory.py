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

# Seconds until a node that did not say who it is is asked again, and until nobody wants to know it any more.
# Idle nodes listen every few seconds.
INTRODUCTION, LIFETIME = 8.0, 60.0

Clock = Callable[[], float]


@dataclass
class Directory:
    """Which client has which node. Nodes that are new are asked who they are."""

    grid: Grid
    clock: Clock = time.monotonic
    nodes: dict[int, int] = field(default_factory=dict)
    _asked: dict[str, int] = field(default_factory=dict)
    _again: dict[int, float] = field(default_factory=dict)

    def look(self) -> None:
        """Ask newcomers who they are."""
        now = self.clock()
        known = set(self.nodes.values())
        nobody: list[int] = []
        there = despite_trouble(lambda: list(self.grid.get_node_ids()), nobody)
        new = [node for node in there if node not in known and self._again.get(node, now) <= now]
        sent = push(self.grid, [letters.who_are_you(node, LIFETIME) for node in new])
        for node, message in zip(new, sent, strict=True):
            self._again[node] = now + (INTRODUCTION if message else BREATH)
            if message:
                self._asked[message] = node

    @property
    def questions(self) -> list[str]:
        """The questions that are not answered yet."""
        return list(self._asked)

    def hear(self, reply: Message) -> None:
        """Hear who a node is, if that is what it says."""
        node = self._asked.pop(reply.metadata.reply_to_message_id, None)
        if node is not None and reply.has_content():
            self._introduce(node, reply)

    def forget(self, client: int) -> None:
        """Forget where a client is: it may come back as another node."""
        self._again.pop(self.nodes.pop(client, 0), None)

    def _introduce(self, node: int, reply: Message) -> None:
        try:
            client = letters.client_of(reply)
        except Rejected as problem:
            log(WARNING, "node %s: %s", node, problem)
            return
        if self.nodes.setdefault(client, node) != node:
            log(WARNING, "node %s says it is client %s, which is node %s", node, client, self.nodes[client])
