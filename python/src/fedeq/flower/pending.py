"""Requests that wait for a reply."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from flwr.app import Message
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.serverapp import Grid

from fedeq.flower.superlink import RETRY_DELAY, push

Clock = Callable[[], float]

# The sender of what this process puts in place of a reply. No node has this number.
OURSELVES = 0


@dataclass
class PendingRequests:
    """Requests that wait for a reply, and when each recipient (a node or a client, by its number) is asked again.

    Flower delivers a message at most once, so a recipient that does not reply is asked again. The waits double: one
    that does not reply because it has too much to do must not get more and more requests.
    """

    grid: Grid
    # Seconds until a recipient is asked a second time, and the longest wait.
    first_wait: float
    longest_wait: float = inf
    clock: Clock = time.monotonic
    # The recipient of each message.
    _recipients: dict[str, int] = field(default_factory=dict)
    # The node that each message was sent to.
    _nodes: dict[str, int] = field(default_factory=dict)
    # Messages whose replies are listened for. A reply that arrives later counts all the same.
    _unanswered: set[str] = field(default_factory=set)
    # When a recipient is asked again, and how long the wait after that is.
    _due: dict[int, float] = field(default_factory=dict)
    _wait: dict[int, float] = field(default_factory=dict)

    @property
    def messages(self) -> list[str]:
        """The ids of the messages whose replies to listen for."""
        return list(self._unanswered)

    def due(self, recipients: Iterable[int]) -> list[int]:
        """Give the recipients that were not asked yet, or not for a while."""
        now = self.clock()
        return sorted(recipient for recipient in recipients if self._due.get(recipient, now) <= now)

    def send(self, messages: Mapping[int, Message]) -> None:
        """Send each recipient its message. One that the SuperLink does not accept is due again soon."""
        now = self.clock()
        pushed = push(self.grid, list(messages.values()))
        for (recipient, sent), message in zip(messages.items(), pushed, strict=True):
            wait = self._wait.get(recipient, self.first_wait)
            self._due[recipient] = now + (wait if message else RETRY_DELAY)
            if message:
                self._wait[recipient] = min(2.0 * wait, self.longest_wait)
                self._recipients[message] = recipient
                self._nodes[message] = sent.metadata.dst_node_id
                self._unanswered.add(message)

    def sender_of(self, reply: Message) -> int | None:
        """Say whose reply this is, and stop listening for another one to the same message.

        Not every SuperLink checks that a reply comes from the node that was asked; one that does not is no client's.
        Errors may also come from the SuperLink, which lost a message or a node, and from this process.
        """
        message = reply.metadata.reply_to_message_id
        senders = {self._nodes.get(message)} | ({SUPERLINK_NODE_ID, OURSELVES} if reply.has_error() else set())
        if reply.metadata.src_node_id not in senders:
            return None
        self._unanswered.discard(message)
        return self._recipients.get(message)

    def retry(self, recipient: int) -> None:
        """Let a recipient be due again soon."""
        self._due[recipient] = self.clock() + RETRY_DELAY

    def close(self, recipient: int) -> None:
        """Forget all messages to a recipient: it has replied."""
        self._recipients = {message: other for message, other in self._recipients.items() if other != recipient}
        self._nodes = {message: node for message, node in self._nodes.items() if message in self._recipients}
        self._unanswered &= set(self._recipients)

    def reset(self, recipient: int) -> None:
        """Let a recipient be asked as if for the first time."""
        self._due.pop(recipient, None)
        self._wait.pop(recipient, None)
