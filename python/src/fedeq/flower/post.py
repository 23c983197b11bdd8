"""The way to the nodes: questions out, answers in.

Flower delivers a message at most once: one whose delivery is cut off, or whose node is away for a while, is lost. So
whoever does not answer is asked again. That is safe: a node answers the same question with the same bytes and trains
once.
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

from fedeq.flower.directory import Clock, Directory
from fedeq.flower.ear import LOST, Ear
from fedeq.flower.fields import brief
from fedeq.flower.letters import Request
from fedeq.flower.trouble import BREATH, push

# What Flower says in place of a node that is away, or of a message that was lost; asking again may help.
# Where another listener may have the answer already, there is no hurry.
LATE = {ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE}
PASSING = {*LATE, ErrorCode.NODE_UNAVAILABLE}

# Seconds between looks for answers: short while they come in, longer while they do not.
SHORTEST, LONGEST = 0.05, 0.5
# How often a client must refuse a question to be believed.
REFUSALS = 2


@dataclass
class Answers:
    """What came of a question."""

    replies: dict[int, Message] = field(default_factory=dict)
    # Why others did not answer.
    failures: dict[int, str] = field(default_factory=dict)


@dataclass
class Post:
    """Sends questions and waits for answers."""

    grid: Grid
    ear: Ear
    deadline: float
    repeat: float
    clock: Clock = time.monotonic
    # Told the clients that are still waited for, whenever these are others than before.
    watch: Callable[[set[int]], None] = lambda _: None

    def __post_init__(self) -> None:
        """Begin with nobody known."""
        self.directory = Directory(self.grid, self.clock)

    def meet(self, clients: int, patience: float) -> set[int]:
        """Wait until every client has a node, or not any longer, and give those who have none."""
        end = self.clock() + patience
        while missing := set(range(clients)) - set(self.directory.nodes):
            if self.clock() >= end:
                break
            self.directory.look()
            for reply in self.ear.hear(self.directory.questions, LONGEST):
                self.directory.hear(reply)
        log(INFO, "%s of %s clients have a node", clients - len(missing), clients)
        return missing

    def ask(self, request: Request, clients: Iterable[int]) -> Answers:
        """Ask clients and wait for all of them, until the deadline at most."""
        errand = _Errand(self, request, set(clients))
        end = self.clock() + self.deadline
        pause = SHORTEST
        while errand.waiting and self.clock() < end:
            before = len(errand.waiting)
            errand.ask(end - self.clock())
            errand.listen(pause)
            if len(errand.waiting) < before:
                self.watch(errand.waiting)
            pause = SHORTEST if len(errand.waiting) < before else min(1.5 * pause, LONGEST)
        for client in errand.waiting:
            errand.answers.failures.setdefault(client, f"no answer in {self.deadline:g} s")
        return errand.answers


@dataclass
class _Errand:
    """A question under way."""

    post: Post
    request: Request
    waiting: set[int]
    answers: Answers = field(default_factory=Answers)
    # Messages, and whom they are to.
    sent: dict[str, int] = field(default_factory=dict)
    # Messages whose answers are listened for. An answer that a listener brings late counts all the same.
    expected: set[str] = field(default_factory=set)
    # When a client is to be asked again.
    due: dict[int, float] = field(default_factory=dict)
    asked: Counter[int] = field(default_factory=Counter)
    refusals: Counter[int] = field(default_factory=Counter)

    def ask(self, ttl: float) -> None:
        """Ask those who have not been asked for a while."""
        directory, now = self.post.directory, self.post.clock()
        if not self.waiting <= set(directory.nodes):
            directory.look()
        asked = sorted(client for client in self.waiting & set(directory.nodes) if self.due.get(client, now) <= now)
        messages = [self.request.to(directory.nodes[client], ttl) for client in asked]
        for client, message in zip(asked, push(self.post.grid, messages), strict=True):
            # Whoever does not answer because there is too much to do must not be given more and more.
            self.due[client] = now + (self.post.repeat * 2 ** self.asked[client] if message else BREATH)
            if message:
                self.asked[client] += 1
                self.sent[message] = client
                self.expected.add(message)

    def listen(self, seconds: float) -> None:
        """Hear whoever has answered."""
        directory = self.post.directory
        for reply in self.post.ear.hear([*self.expected, *directory.questions], seconds):
            directory.hear(reply)
            self.expected.discard(reply.metadata.reply_to_message_id)
            client = self.sent.get(reply.metadata.reply_to_message_id)
            if client is None or client not in self.waiting:
                continue
            if not reply.has_error():
                self.answers.replies[client] = reply
                self._done(client)
            else:
                self._fail(client, reply.error)

    def _fail(self, client: int, error: Error) -> None:
        """Ask again what may be answered another time.

        A refusal counts when it is repeated: parts of the first question may have been lost on their way.
        """
        reason = brief(error.reason or "it failed")
        if error.code not in {*PASSING, LOST}:
            self.refusals[client] += 1
        if self.refusals[client] == REFUSALS:
            self.answers.failures[client] = reason
            self._done(client)
            return
        log(DEBUG, "client %s will be asked again: %s", client, reason)
        if error.code in LATE:
            return
        self.due[client] = self.post.clock() + BREATH
        if error.code == ErrorCode.NODE_UNAVAILABLE:
            self.post.directory.forget(client)

    def _done(self, client: int) -> None:
        self.waiting.discard(client)
        self.expected = {message for message in self.expected if self.sent[message] != client}
