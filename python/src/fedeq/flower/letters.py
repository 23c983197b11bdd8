"""Requests to nodes and their replies, as Flower's records. The other side is `crates/flower/src/letter.rs`."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedeq.flower.plan import Plan
from fedeq.flower.weights import Weights

# Also the types of Flower's messages.
Task = Literal["train", "evaluate"]


@dataclass(frozen=True)
class Request:
    """What a node is asked to do."""

    task: Task
    round: int
    plan: Plan
    experiment: str
    weights: Weights

    def to(self, node: int) -> Message:
        """Address it to a node."""
        header = {"task": self.task, "round": self.round, "rounds": self.plan.rounds, "rho": self.plan.rho}
        settings = ConfigRecord(
            {"federation": self.plan.federation, "experiment": self.experiment, "header": json.dumps(header)},
        )
        arrays = ArrayRecord({name: Array(value) for name, value in self.weights.items()})
        content = RecordDict({"weights": arrays, "fedeq": settings})
        return Message(content, node, self.task, group_id=str(self.round))


def who_are_you(node: int) -> Message:
    """Ask a node which client it is."""
    return Message(RecordDict({"fedeq": ConfigRecord({})}), node, "query")


def client_of(reply: Message) -> int:
    """Which client a node says it is."""
    return int(reply.content.config_records["fedeq"]["client"])  # type: ignore[arg-type]


def header_of(reply: Message) -> dict[str, Any]:
    """What a node says beside its weights."""
    header: dict[str, Any] = json.loads(str(reply.content.config_records["fedeq"]["header"]))
    return header


def weights_of(reply: Message) -> Weights:
    """Collect the weights a node sends, ordered by name."""
    arrays = reply.content.array_records["weights"]
    return {name: arrays[name].numpy() for name in sorted(arrays)}
