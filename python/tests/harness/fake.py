"""A federation without processes: nodes are functions, and waiting advances a simulated clock."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fedeq._native import Federation
from fedeq.flower.directory import Directory
from fedeq.flower.listener import Listener
from fedeq.flower.registry import Registry
from fedeq.flower.transport import Transport
from tests.harness import weights
from tests.harness.program import fedeq
from tests.harness.weights import Weights

# A node: from a message to its reply, or to none.
Node = Callable[[Message], RecordDict | Error | None]

THETA: Weights = {
    "params/a": np.zeros((2, 3), np.float32),
    "params/b": np.ones(4, np.float32),
    "statistics/n.variance": np.ones(2, np.float32),
}


@dataclass
class FakeGrid(Grid):
    """Delivers messages to nodes at once, and their replies when they are asked for."""

    nodes: dict[int, Node]
    now: float = 0.0
    # Replies that were not fetched yet, by the id of the request.
    replies: dict[str, Message] = field(default_factory=dict)
    asked: list[tuple[int, str]] = field(default_factory=list)
    # Whether replies come in the opposite order.
    is_reversed: bool = False

    def __post_init__(self) -> None:
        """Set the identity that Flower's messages require."""
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1

    def set_run(self, run: Run) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Run:
        """There is none."""
        raise NotImplementedError

    def create_message(self, *_: object, **__: object) -> Message:
        """Not used."""
        raise NotImplementedError

    def send_and_receive(self, *_: object, **__: object) -> Iterable[Message]:
        """Not used: it waits too long."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        """Give the ids of all nodes."""
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver messages to their nodes."""
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        identity = f"message-{len(self.asked)}"
        message.metadata.__dict__["_message_id"] = identity
        node = message.metadata.dst_node_id
        self.asked.append((node, message.metadata.message_type))
        reply = self.nodes[node](message) if node in self.nodes else None
        if reply is not None:
            self.replies[identity] = Message(reply, reply_to=message)
        return identity

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Give the replies that have arrived."""
        found = [identity for identity in message_ids if identity in self.replies]
        return [self.replies.pop(identity) for identity in sorted(found, reverse=self.is_reversed)]

    def clock(self) -> float:
        """Give the simulated time."""
        return self.now

    def receive(self, messages: Iterable[str], seconds: float) -> list[Message]:
        """Give the replies that have arrived, or let time pass."""
        received = list(self.pull_messages(messages))
        self.now += 0.0 if received else seconds
        return received


def identity(client: int) -> RecordDict:
    """Write the reply of a node that is asked which client it is."""
    return RecordDict({"fedeq": ConfigRecord({"client": client})})


def client(number: int, reply: Node) -> Node:
    """Make the node of a client, which replies to all other requests with a function."""

    def node(message: Message) -> RecordDict | Error | None:
        if message.metadata.message_type == "query":
            return identity(number)
        return reply(message)

    return node


def update(sent: Weights, samples: Any = 10, **header: Any) -> RecordDict:  # noqa: ANN401 (also invalid ones)
    """Write the reply of a client that has trained."""
    packed, layout = weights.pack(sent)
    phases = {"solve": "000000000.100000", "backward": "000000000.100000", "update": "000000000.100000"}
    memory = dict.fromkeys(phases, "000000000001000")
    solves = {"samples": 1, "steps": 2, "residual": 0.5, "unconverged": 0, "not_finite": 0, "warm": 0}
    stats = {"steps": 3, "loss": 0.5, "solves": solves, "seconds": phases, "memory": memory}
    fields = {"reply": "update", "samples": samples, "gap": 0.25, "descent": stats, **header}
    settings = ConfigRecord({"header": json.dumps(fields), "layout": layout})
    return RecordDict({"weights": ArrayRecord({"packed": Array(packed)}), "fedeq": settings})


def scores(correct: int, predictions: int = 10) -> RecordDict:
    """Write the reply of a client that has evaluated its models."""
    score = {"predictions": predictions, "correct": correct, "loss": 1.0}
    fields: dict[str, Any] = {"local": score, "shared": score, "validation": None, "theory": None}
    fields |= {"participations": 1, "gap": 0.1, "dual_norm": 0.2}
    return RecordDict({"fedeq": ConfigRecord({"header": json.dumps({"reply": "scores", "scores": fields})})})


def shifted(by: float) -> Weights:
    """Give the weights after adding a number."""
    return {name: array + np.float32(by if name.startswith("params") else 0) for name, array in THETA.items()}


def honest(by: float) -> Node:
    """Train by adding a number; half of the predictions are correct."""
    return lambda message: update(shifted(by)) if message.metadata.message_type == "train" else scores(5)


def write_app(folder: Path, clients: int, rounds: int = 1, *settings: str) -> Path:
    """Write an app by `fedeq init-federation` in which all clients take part, and give it other weights."""
    small = ("data.partition=iid", f"data.partition.clients={clients}", f"plan.rounds={rounds}")
    usual = ("method=fedavg", "method.weighting=uniform", "plan.evaluate_every=0", "plan.sampling.fraction=1")
    words = [word for setting in (*small, *usual, *settings) for word in ("--set", setting)]
    fedeq("init-federation", *words, "--out", folder)
    weights.write(folder / "theta.safetensors", THETA)
    return folder


class FakeContext:
    """Nobody stops anything, and nobody watches."""

    stopped = False

    def replied(self, client: int) -> None:
        """Take no note of a reply."""

    def refused(self, node: str, client: int, reason: str) -> None:
        """Take no note of a refusal."""


@dataclass
class FakeServer:
    """The server of a folder, which uses the grid's simulated clock."""

    folder: Path
    grid: FakeGrid
    minimum: float = 1.0
    bound: float = inf
    deadline: float = 3600.0
    repeat: float = 60.0
    patience: float = 600.0
    listener: Listener | None = None
    log: list[str] = field(default_factory=list)

    def run(self) -> Weights:
        """Train to the end, and give `theta`."""
        federation = Federation(self.folder)
        # Another listener waits in real time.
        clock = time.monotonic if self.listener else self.grid.clock
        directory = Directory(self.grid, Registry(self.folder / "nodes.json"), federation.clients, clock)
        link = Transport(
            self.grid,
            self.listener or self.grid,
            directory,
            federation.name,
            federation.experiment,
            self.deadline,
            self.repeat,
            self.patience,
            clock,
        )
        federation.train(link, lambda _, text: self.log.append(text), self.minimum, self.bound)
        return theta_of(self.folder)

    @property
    def state(self) -> str:
        """The state of the run, from its folder."""
        return str(json.loads((self.folder / "status.json").read_text())["state"])

    def lines(self, journal: str) -> list[dict[str, Any]]:
        """Read a journal, in which every number is finite."""
        path = self.folder / journal
        text = path.read_text() if path.exists() else ""
        return [json.loads(line, parse_constant=_no_number) for line in text.splitlines()]


def _no_number(text: str) -> Any:  # noqa: ANN401 (never gives one)
    raise ValueError(text)


def last_manifest(folder: Path) -> dict[str, Any]:
    """Read which files the last checkpoint of a run consists of."""
    manifest: dict[str, Any] = json.loads(max((folder / "checkpoints").glob("*.json")).read_text())["manifest"]
    return manifest


def theta_of(folder: Path) -> Weights:
    """Read the last shared weights of a run."""
    return weights.read(folder / "checkpoints" / str(last_manifest(folder)["server"]))
