"""Which client is on which node."""

import time
from dataclasses import dataclass, field
from logging import WARNING

from flwr.app import Message
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedeq.flower import messages
from fedeq.flower.pending import Clock, PendingRequests
from fedeq.flower.superlink import tolerate_server_errors
from fedeq.flower.weights import Rejected

# Seconds until a node that did not say which client it is is asked again, twice as long every time up to the second
# number, and until such a message expires. Idle nodes ask for messages every few seconds.
FIRST_WAIT, LONGEST_WAIT, LIFETIME = 8.0, 32.0, 60.0


@dataclass
class Directory:
    """Which client is on which node. New nodes are asked which client they are."""

    grid: Grid
    clock: Clock = time.monotonic
    nodes: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with no node."""
        self._pending = PendingRequests(self.grid, FIRST_WAIT, LONGEST_WAIT, self.clock)

    def ask_new_nodes(self) -> None:
        """Ask new nodes which client they are."""
        none: list[int] = []
        online = tolerate_server_errors(lambda: list(self.grid.get_node_ids()), none)
        new = self._pending.due(set(online) - set(self.nodes.values()))
        self._pending.send({node: messages.identify(node, LIFETIME) for node in new})

    @property
    def pending(self) -> list[str]:
        """The ids of the messages whose replies to listen for."""
        return self._pending.messages

    def receive(self, reply: Message) -> None:
        """Read which client a node is, if the reply is about that."""
        node = self._pending.sender_of(reply)
        if node is not None and reply.has_content():
            self._add(node, reply)

    def remove(self, client: int) -> None:
        """Forget the node of a client: it may come back as another node."""
        self._pending.reset(self.nodes.pop(client, 0))

    def _add(self, node: int, reply: Message) -> None:
        try:
            client = messages.client_of(reply)
        except Rejected as problem:
            log(WARNING, "node %s: %s", node, problem)
            return
        self._pending.close(node)
        if self.nodes.setdefault(client, node) != node:
            log(WARNING, "node %s says that it is client %s, but that is node %s", node, client, self.nodes[client])
