"""A federation without processes: nodes are functions, and time passes when somebody waits for it."""

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
from fedeq.flower.weights import Weights

# What a node does with a message: its answer, or nothing.
Node = Callable[[Message], RecordDict | Error | None]

THETA: Weights = {"params/a": np.zeros((2, 3), np.float32), "params/b": np.ones(4, np.float32)}


@dataclass
class FakeGrid(Grid):
    """Delivers messages to nodes at once, and their answers when they are asked for."""

    nodes: dict[int, Node]
    now: float = 0.0
    # Answers under way, by the question.
    answers: dict[str, Message] = field(default_factory=dict)
    asked: list[tuple[int, str]] = field(default_factory=list)
    # Whether answers come in the opposite order.
    is_reversed: bool = False

    def __post_init__(self) -> None:
        """Flower's messages want to know on whose behalf they are written."""
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1

    def set_run(self, run: Run) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Run:
        """There is none."""
        raise NotImplementedError

    def create_message(self, *_: object, **__: object) -> Message:
        """Not used any more."""
        raise NotImplementedError

    def send_and_receive(self, *_: object, **__: object) -> Iterable[Message]:
        """Not used: it waits too long."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        """Give those who are there."""
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Let nodes work."""
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        identity = f"message-{len(self.asked)}"
        message.metadata.__dict__["_message_id"] = identity
        node = message.metadata.dst_node_id
        self.asked.append((node, message.metadata.message_type))
        answer = self.nodes[node](message) if node in self.nodes else None
        if answer is not None:
            self.answers[identity] = Message(answer, reply_to=message)
        return identity

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Give the answers that are there."""
        found = [identity for identity in message_ids if identity in self.answers]
        return [self.answers.pop(identity) for identity in sorted(found, reverse=self.is_reversed)]

    def clock(self) -> float:
        """Say what time it is."""
        return self.now

    def hear(self, messages: Iterable[str], seconds: float) -> list[Message]:
        """Give the answers that are there, or let time pass."""
        heard = list(self.pull_messages(messages))
        self.now += 0.0 if heard else seconds
        return heard


def client(number: int, answer: Callable[[Message], RecordDict | Error | None]) -> Node:
    """Be a client that says who it is, and does something about everything else."""

    def node(message: Message) -> RecordDict | Error | None:
        if message.metadata.message_type == "query":
            return RecordDict({"fedeq": ConfigRecord({"client": number})})
        return answer(message)

    return node


def update(sent: Weights, samples: Any = 10, **header: Any) -> RecordDict:  # noqa: ANN401 (also what it should not be)
    """Write what a client sends after training."""
    packed, layout = weights.pack(sent)
    phases = {"solve": "0000000.100000", "backward": "0000000.100000", "update": "0000000.100000"}
    memory = dict.fromkeys(phases, "0000001000")
    solves = {"samples": 1, "steps": 2, "residual": 0.5, "unconverged": 0, "not_finite": 0, "warm": 0}
    descent = {"steps": 3, "loss": 0.5, "solves": solves, "seconds": phases, "memory": memory}
    words = {"reply": "update", "samples": samples, "gap": 0.25, "descent": descent, **header}
    settings = ConfigRecord({"header": json.dumps(words), "layout": layout})
    return RecordDict({"weights": ArrayRecord({"packed": Array(packed)}), "fedeq": settings})


def scores(correct: int, predictions: int = 10) -> RecordDict:
    """Write how a client says its models do."""
    score = {"predictions": predictions, "correct": correct, "loss": 1.0}
    words: dict[str, Any] = {"local": score, "shared": score, "validation": None, "theory": None}
    words |= {"participations": 1, "gap": 0.1, "dual_norm": 0.2}
    return RecordDict({"fedeq": ConfigRecord({"header": json.dumps({"reply": "scores", "scores": words})})})


def shifted(by: float) -> Weights:
    """Give weights that moved."""
    return {name: array + np.float32(by) for name, array in THETA.items()}


def honest(by: float) -> Callable[[Message], RecordDict | Error | None]:
    """Train by adding a number; be right in half of the cases."""
    return lambda message: update(shifted(by)) if message.metadata.message_type == "train" else scores(5)


def write_app(folder: Path, cohorts: list[list[int]], clients: int) -> Path:
    """Write what `fedeq init-federation` would."""
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
