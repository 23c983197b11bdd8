"""Requests to nodes and their replies, as Flower's records. The other side is `crates/flower/src/letter.rs`."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedeq.flower import weights
from fedeq.flower.plan import Plan
from fedeq.flower.weights import Rejected, Weights

# The name of the one array that all weights travel in.
PACKED = "packed"

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
        with _damage_refused():
            text, header = _header(reply, "update")
            samples, gap, descent = header["samples"], header["gap"], header["descent"]
            if not isinstance(samples, int) or samples < 1:
                message = f"`samples` is `{samples}`, not a whole number of at least 1"
                raise Rejected(message)
            _require_finite("gap", gap)
            _require_finite("loss", descent["loss"])
            packed = reply.content.array_records["weights"][PACKED].numpy()
            sent = weights.unpack(packed, str(reply.content.config_records["fedeq"]["layout"]))
        weights.check(sent, like, bound)
        return cls(sent, samples, gap, descent, weights.size(sent, text))


def scores_of(reply: Message) -> dict[str, Any]:
    """How a client says its models do."""
    with _damage_refused():
        _, header = _header(reply, "scores")
        scores: dict[str, Any] = header["scores"]
        for view in ("local", "shared", "validation"):
            _require_sound(view, scores[view])
        _require_finite("participations", scores["participations"])
        _require_finite("gap", scores["gap"])
        _require_finite("dual_norm", scores["dual_norm"])
    return scores


def who_are_you(node: int, ttl: float) -> Message:
    """Ask a node which client it is."""
    return Message(RecordDict({"fedeq": ConfigRecord({})}), node, "query", ttl=ttl)


def client_of(reply: Message) -> int:
    """Which client a node says it is."""
    with _damage_refused():
        return int(reply.content.config_records["fedeq"]["client"])  # type: ignore[arg-type]


@contextmanager
def _damage_refused() -> Iterator[None]:
    """Refuse what cannot even be read, instead of failing over it."""
    try:
        yield
    except Rejected:
        raise
    except KeyError as problem:
        message = f"it has no {problem}"
        raise Rejected(message) from problem
    except (TypeError, ValueError) as problem:
        message = f"it is damaged: {problem}"
        raise Rejected(message) from problem


def _header(reply: Message, kind: str) -> tuple[str, dict[str, Any]]:
    """Read what a node says beside its weights, as text and as values."""
    text = str(reply.content.config_records["fedeq"]["header"])
    header: dict[str, Any] = json.loads(text)
    if header["reply"] != kind:
        message = f"its header says `{header['reply']}` and not `{kind}`"
        raise Rejected(message)
    return text, header


def _require_finite(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        message = f"`{name}` is `{value}`, not a finite number"
        raise Rejected(message)


def _require_sound(view: str, score: dict[str, Any] | None) -> None:
    """Refuse a client that was right more often than it was asked."""
    if score is None:
        return
    _require_finite(f"{view} loss", score["loss"])
    if not 0 <= score["correct"] <= score["predictions"]:
        message = f"`{view}` has {score['correct']} of {score['predictions']} predictions right"
        raise Rejected(message)
