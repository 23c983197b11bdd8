"""Requests to nodes and their replies, as Flower's records. The nodes' side of it is `crates/flower/src/envelope.rs`.

Replies are read here and nowhere else: the values have the right types and sizes, or `Rejected` is raised.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from fedeq.flower import fields, weights
from fedeq.flower.fields import Group, reject_malformed, shorten
from fedeq.flower.plan import Plan
from fedeq.flower.weights import Rejected, Weights

# The name of the one array that contains all weights, and its serialisation.
PACKED, NUMPY = "packed", "numpy.ndarray"
# How much a client tells beside its weights; `crates/core/src/disclosure.rs`.
DISCLOSURES = ("everything", "coarse", "none")
# The phases of local work.
PHASES = ("solve", "backward", "update")

Task = Literal["train", "evaluate", "measure"]


@dataclass(frozen=True)
class Request:
    """What clients are asked to do."""

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
        """Its bytes, as `fedeq run` counts them: without the overhead of Flower's protocol."""
        return weights.size(self.weights, self.header)

    def content(self) -> RecordDict:
        """Encode it as records."""
        packed, layout = weights.pack(self.weights)
        settings = {"federation": self.plan.federation, "experiment": self.experiment}
        settings |= {"header": self.header, "layout": layout}
        return RecordDict({"weights": ArrayRecord({PACKED: Array(packed)}), "fedeq": ConfigRecord({**settings})})

    def to(self, node: int, ttl: float | None = None) -> Message:
        """Make the message for a node, which expires after `ttl` seconds."""
        kind = "train" if self.task == "train" else "evaluate"
        return Message(self.content(), node, kind, ttl=ttl, group_id=str(self.round))


@dataclass(frozen=True)
class Update:
    """What a client sends after training."""

    weights: Weights
    samples: int
    gap: float
    stats: dict[str, Any]
    size: int

    @classmethod
    def read(cls, reply: Message, like: Weights, bound: float = math.inf) -> Self:
        """Read a reply; reject weights that are not finite, not of the shapes of `like`, or too far from it."""
        with reject_malformed():
            text, header = _header(reply, "update")
            samples, gap = fields.count(header, "samples", least=1), fields.number(header, "gap")
            stats = _train_stats(fields.group(header, "descent"))
            packed = _array(reply, 4 * sum(array.size for array in like.values()))
            sent = weights.unpack(packed, fields.document(_settings(reply)["layout"], "layout"))
            weights.check(sent, like, bound)
            return cls(sent, samples, gap, stats, weights.size(sent, text))


def scores_of(reply: Message) -> dict[str, Any]:
    """Read the scores of a client's models."""
    with reject_malformed():
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
            "disclosure": _disclosure(scores),
        }


def identify(node: int, ttl: float) -> Message:
    """Ask a node which client it is."""
    return Message(RecordDict({"fedeq": ConfigRecord({})}), node, "query", ttl=ttl)


def client_of(reply: Message) -> int:
    """Read which client a node says it is."""
    with reject_malformed():
        return fields.count(_settings(reply), "client")


def _settings(reply: Message) -> Group:
    """Give the settings of a reply: texts and numbers."""
    return dict(reply.content.config_records["fedeq"])


def _header(reply: Message, kind: str) -> tuple[str, Group]:
    """Read the header of a reply, as text and as values."""
    text = _settings(reply)["header"]
    header = fields.values(text, "header")
    if header["reply"] != kind:
        message = f"it is a reply of kind `{shorten(header['reply'])}`, not `{kind}`"
        raise Rejected(message)
    return str(text), header


def _array(reply: Message, size: int) -> NDArray[np.float32]:
    """Give the one array that contains all weights, which has `size` bytes."""
    array = reply.content.array_records["weights"][PACKED]
    if array.stype != NUMPY:
        message = f"`{PACKED}` is serialised as `{shorten(array.stype)}`, not as `{NUMPY}`"
        raise Rejected(message)
    return weights.from_npy(array.data, size)


def _train_stats(stats: Group) -> dict[str, Any]:
    """Read the statistics of a client's training."""
    loss, solves = fields.number(stats, "loss"), fields.group(stats, "solves")
    counts = ("samples", "steps", "unconverged", "not_finite", "warm")
    seconds, memory = fields.group(stats, "seconds"), fields.group(stats, "memory")
    return {
        "loss": loss,
        "steps": fields.count(stats, "steps"),
        "solves": {
            **{name: fields.count(solves, name) for name in counts},
            "residual": fields.number(solves, "residual"),
        },
        "seconds": {phase: fields.digits(seconds, phase, points=1) for phase in PHASES},
        "memory": {phase: fields.digits(memory, phase) for phase in PHASES},
        "disclosure": _disclosure(stats),
    }


def _disclosure(of: Group) -> str:
    """Read how much the client tells; numbers that it does not tell are 0."""
    disclosure = of.get("disclosure", DISCLOSURES[0])
    if disclosure not in DISCLOSURES:
        message = f"`disclosure` is `{shorten(disclosure)}`, not one of {', '.join(DISCLOSURES)}"
        raise Rejected(message)
    return str(disclosure)


def _optional(of: Group, name: str) -> Group | None:
    return None if of[name] is None else fields.group(of, name)


def _fixed_points(scores: Group) -> dict[str, Any]:
    """Read the counts of fixed points, if the client searched for them."""
    if scores.get("fixed_points") is None:
        return {}
    found = fields.group(scores, "fixed_points")
    counts = ("samples", "several", "answers_differ", "unsettled", "unstable")
    numbers = ("distance", "radius", "largest_radius")
    read = {name: fields.count(found, name) for name in counts} | {name: fields.number(found, name) for name in numbers}
    return {"fixed_points": read}


def _score(view: str, score: Group | None) -> dict[str, Any] | None:
    """Read how many predictions were correct; reject more correct predictions than predictions."""
    if score is None:
        return None
    correct, predictions = fields.count(score, "correct"), fields.count(score, "predictions")
    if correct > predictions:
        message = f"`{view}` says that {correct} of {predictions} predictions are correct"
        raise Rejected(message)
    return {"predictions": predictions, "correct": correct, "loss": fields.number(score, "loss")}


def _theory(theory: Group | None) -> dict[str, float] | None:
    names = ("lagrangian", "stationarity", "head_gradient")
    return None if theory is None else {name: fields.number(theory, name) for name in names}
