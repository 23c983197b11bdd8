"""A federation without processes: nodes are functions, and waiting advances a simulated clock."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fedeq.flower import weights
from fedeq.flower.strategy import Consensus, Rules
from fedeq.flower.transport import Transport
from fedeq.flower.weights import Weights

# A node: from a message to its reply, or to none.
Node = Callable[[Message], RecordDict | Error | None]

THETA: Weights = {"params/a": np.zeros((2, 3), np.float32), "params/b": np.ones(4, np.float32)}


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
    phases = {"solve": "0000000.100000", "backward": "0000000.100000", "update": "0000000.100000"}
    memory = dict.fromkeys(phases, "0000001000")
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
    return {name: array + np.float32(by) for name, array in THETA.items()}


def honest(by: float) -> Node:
    """Train by adding a number; half of the predictions are correct."""
    return lambda message: update(shifted(by)) if message.metadata.message_type == "train" else scores(5)


def write_app(folder: Path, cohorts: list[list[int]], clients: int) -> Path:
    """Write an app like `fedeq init-federation`."""
    folder.mkdir(exist_ok=True)
    plan = {
        "federation": "test",
        "method": "fedeq",
        "weighting": "uniform",
        "rho": 0.1,
        "clients": clients,
        "headline": "local",
        "evaluate_every": 0,
        "evaluate": "evaluate",
        "cohorts": cohorts,
        "summary": {"method": "fedeq", "evaluation": {}, "resources": {"peak_memory": None}},
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "experiment.toml").write_text("")
    weights.write(folder / "theta.safetensors", THETA)
    return folder


def consensus(folder: Path, grid: FakeGrid, **rules: float) -> Consensus:
    """Make a strategy that uses the grid's simulated clock."""
    strategy = Consensus(folder, Rules(**rules))
    strategy._transport = Transport(grid, grid, strategy.rules.deadline, strategy.rules.repeat, grid.clock)  # noqa: SLF001
    return strategy
