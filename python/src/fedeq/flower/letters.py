"""Requests to nodes and their replies, as Flower's records. The other side is `crates/flower/src/letter.rs`.

This is the one place where replies are read: what comes out of it has the kinds and sizes it should have, and
everything else is a `Rejected`.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from fedeq.flower import fields, weights
from fedeq.flower.fields import Group, brief, damage_refused
from fedeq.flower.plan import Plan
from fedeq.flower.weights import Rejected, Weights

# The name of the one array that all weights travel in, and how it is written.
PACKED, NUMPY = "packed", "numpy.ndarray"
# The phases of local work.
PHASES = ("solve", "backward", "update")

Task = Literal["train", "evaluate", "measure"]


@dataclass(frozen=True)
class Request:
    """What nodes are asked to do."""

    task: Task
    round: int
    plan: Plan
    experiment: str
    weights: Weights

    @property
    def header(self) -> str:
        """Everything but the weights."""
        header = {"task": self.task, "round": self.round, "rounds": self.plan.rounds, "rho": self.plan.rho}
        return json.dumps(header, separators=(",", ":"))

    @property
    def size(self) -> int:
        """Its bytes, as `fedeq run` counts them: Flower's envelopes are not among them."""
        return weights.size(self.weights, self.header)

    def content(self) -> RecordDict:
        """Write it as records."""
        packed, layout = weights.pack(self.weights)
        settings = {"federation": self.plan.federation, "experiment": self.experiment}
        settings |= {"header": self.header, "layout": layout}
        return RecordDict({"weights": ArrayRecord({PACKED: Array(packed)}), "fedeq": ConfigRecord({**settings})})

    def to(self, node: int, ttl: float | None = None) -> Message:
        """Address it to a node; after so many seconds nobody waits for the answer."""
        kind = "train" if self.task == "train" else "evaluate"
        return Message(self.content(), node, kind, ttl=ttl, group_id=str(self.round))


@dataclass(frozen=True)
class Update:
    """What a client sends after training."""

    weights: Weights
    samples: int
    gap: float
    descent: dict[str, Any]
    size: int

    @classmethod
    def read(cls, reply: Message, like: Weights, bound: float = math.inf) -> Self:
        """Read a reply; refuse what is not finite, not of the layout of `like`, or further than `bound` from it."""
        with damage_refused():
            text, header = _header(reply, "update")
            samples, gap = fields.count(header, "samples", least=1), fields.number(header, "gap")
            descent = _descent(fields.group(header, "descent"))
            packed = _array(reply, 4 * sum(array.size for array in like.values()))
            sent = weights.unpack(packed, fields.document(_settings(reply)["layout"], "layout"))
            weights.check(sent, like, bound)
            return cls(sent, samples, gap, descent, weights.size(sent, text))


def scores_of(reply: Message) -> dict[str, Any]:
    """How a client says its models do."""
    with damage_refused():
        _, header = _header(reply, "scores")
        scores = fields.group(header, "scores")
        return {
            "local": _score("local", fields.group(scores, "local")),
            **{view: _score(view, _optional(scores, view)) for view in ("shared", "validation")},
            "participations": fields.count(scores, "participations"),
            "gap": fields.number(scores, "gap"),
            "dual_norm": fields.number(scores, "dual_norm"),
            "theory": _theory(_optional(scores, "theory")),
            **_fixed_points(scores),
        }


def who_are_you(node: int, ttl: float) -> Message:
    """Ask a node which client it is."""
    return Message(RecordDict({"fedeq": ConfigRecord({})}), node, "query", ttl=ttl)


def client_of(reply: Message) -> int:
    """Which client a node says it is."""
    with damage_refused():
        return fields.count(_settings(reply), "client")


def _settings(reply: Message) -> Group:
    """Give what a node says in words and numbers."""
    return dict(reply.content.config_records["fedeq"])


def _header(reply: Message, kind: str) -> tuple[str, Group]:
    """Read what a node says beside its weights, as text and as values."""
    text = _settings(reply)["header"]
    header = fields.values(text, "header")
    if header["reply"] != kind:
        message = f"its header says `{brief(header['reply'])}` and not `{kind}`"
        raise Rejected(message)
    return str(text), header


def _array(reply: Message, size: int) -> NDArray[np.float32]:
    """Give the one array that all weights travel in, which has so many bytes."""
    array = reply.content.array_records["weights"][PACKED]
    if array.stype != NUMPY:
        message = f"`{PACKED}` is written as `{brief(array.stype)}`, not as `{NUMPY}`"
        raise Rejected(message)
    return weights.from_npy(array.data, size)


def _descent(descent: Group) -> dict[str, Any]:
    """Read how training went."""
    loss, solves = fields.number(descent, "loss"), fields.group(descent, "solves")
    counts = ("samples", "steps", "unconverged", "not_finite", "warm")
    seconds, memory = fields.group(descent, "seconds"), fields.group(descent, "memory")
    return {
        "loss": loss,
        "steps": fields.count(descent, "steps"),
        "solves": {
            **{name: fields.count(solves, name) for name in counts},
            "residual": fields.number(solves, "residual"),
        },
        "seconds": {phase: fields.digits(seconds, phase, points=1) for phase in PHASES},
        "memory": {phase: fields.digits(memory, phase) for phase in PHASES},
    }


def _optional(of: Group, name: str) -> Group | None:
    return None if of[name] is None else fields.group(of, name)


def _fixed_points(scores: Group) -> dict[str, Any]:
    """Read how many fixed points were found, where somebody looked."""
    if scores.get("fixed_points") is None:
        return {}
    found = fields.group(scores, "fixed_points")
    counts = ("samples", "several", "answers_differ", "unsettled", "unstable")
    numbers = ("distance", "radius", "largest_radius")
    read = {name: fields.count(found, name) for name in counts} | {name: fields.number(found, name) for name in numbers}
    return {"fixed_points": read}


def _score(view: str, score: Group | None) -> dict[str, Any] | None:
    """Read how often a model was right; refuse more often than it was asked."""
    if score is None:
        return None
    correct, predictions = fields.count(score, "correct"), fields.count(score, "predictions")
    if correct > predictions:
        message = f"`{view}` has {correct} of {predictions} predictions right"
        raise Rejected(message)
    return {"predictions": predictions, "correct": correct, "loss": fields.number(score, "loss")}


def _theory(theory: Group | None) -> dict[str, float] | None:
    names = ("lagrangian", "stationarity", "head_gradient")
    return None if theory is None else {name: fields.number(theory, name) for name in names}
