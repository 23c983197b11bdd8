"""Which client is on which node."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from logging import WARNING

from flwr.app import Message
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedeq.flower import messages
from fedeq.flower.messages import shorten
from fedeq.flower.pending import Clock, PendingRequests
from fedeq.flower.registry import Registry, fingerprint
from fedeq.flower.superlink import tolerate_server_errors

# Seconds until a node that did not say which client it is is asked again, twice as long every time up to the second
# number, and until such a message expires. Idle nodes ask for messages every few seconds.
FIRST_WAIT, LONGEST_WAIT, LIFETIME = 8.0, 32.0, 60.0


@dataclass
class Directory:
    """Which client is on which node. New nodes are asked which client they are; their keys say whether that is so."""

    grid: Grid
    registry: Registry
    # How many clients there are.
    clients: int
    clock: Clock = time.monotonic
    # The node of each client.
    nodes: dict[int, int] = field(default_factory=dict)
    # Called with a node, the client it says it is, and why it is not taken for it.
    on_refusal: Callable[[str, int, str], object] = lambda *_: None
    # The keys of the nodes that are online.
    _keys: dict[int, str] = field(default_factory=dict)
    # Nodes that are not asked again: they are no client of ours.
    _refused: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Begin with no node."""
        self._pending = PendingRequests(self.grid, FIRST_WAIT, LONGEST_WAIT, self.clock)

    def ask_new_nodes(self) -> None:
        """Ask new nodes which client they are."""
        none: dict[int, str] = {}
        online = tolerate_server_errors(self._online, none)
        self._keys |= online
        new = self._pending.due(set(online) - set(self.nodes.values()) - self._refused)
        self._pending.send({node: messages.identify(node, LIFETIME) for node in new})

    def _online(self) -> dict[int, str]:
        """Give the nodes that are online, with the fingerprints of their keys.

        A SuperLink knows the key that every node signs its calls with. Where a grid knows none, its ids have to do.
        """
        return {
            node.node_id: fingerprint(node.public_key) if node.public_key else f"node {node.node_id}"
            for node in self.grid.get_nodes()
        }

    @property
    def pending(self) -> list[str]:
        """The ids of the messages whose replies to listen for."""
        return self._pending.messages

    def receive(self, reply: Message) -> None:
        """Read which client a node is, if the reply is about that."""
        node = self._pending.sender_of(reply)
        if node is not None and reply.has_content():
            self._add(node, messages.client_of(reply))

    def remove(self, client: int) -> None:
        """Forget the node of a client, which may be online again later."""
        self._pending.reset(self.nodes.pop(client, 0))

    def _add(self, node: int, client: object) -> None:
        if isinstance(client, bool) or not isinstance(client, int) or not 0 <= client < self.clients:
            log(WARNING, "node %s says that it is client `%s`, and there is none", node, shorten(client))
            self._refused.add(node)
            return
        self._pending.close(node)
        problem = self.registry.refusal(client, self._keys.get(node, f"node {node}"))
        if problem is None and self.nodes.setdefault(client, node) != node:
            problem = f"client {client} is node {self.nodes[client]}"
        if problem is not None:
            log(WARNING, "node %s is not taken for client %s: %s", node, client, problem)
            self._refused.add(node)
            self.on_refusal(str(node), client, problem)
