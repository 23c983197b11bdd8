"""What is reported of a federation, number by number as `fedeq run` reports it.

The other side is `crates/core/src/metrics.rs`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedeq.flower.letters import PHASES, Update

Score = Mapping[str, Any]
NO_SCORE: Score = {"predictions": 0, "correct": 0, "loss": 0.0}
SOLVES = ("samples", "steps", "residual", "unconverged", "not_finite", "warm")


@dataclass(frozen=True)
class Traffic:
    """Bytes of messages about training."""

    up: int = 0
    down: int = 0

    def plus(self, other: "Traffic") -> "Traffic":
        """Add what was sent later."""
        return Traffic(self.up + other.up, self.down + other.down)


def round_line(
    number: int, rho: float | None, updates: Mapping[int, Update], sent: Traffic, traffic: Traffic
) -> dict[str, Any]:
    """Put a round together, from the updates in the order of its cohort."""
    descents = [update.descent for update in updates.values()]
    return {
        "round": number,
        "cohort": list(updates),
        "loss": mean(descent["loss"] for descent in descents),
        "gap": mean(update.gap for update in updates.values()),
        "rho": rho,
        "solves": {name: total(descent["solves"][name] for descent in descents) for name in SOLVES},
        "steps": total(descent["steps"] for descent in descents),
        "sent": asdict(sent),
        "traffic": asdict(traffic),
    }


def timing_line(done: int, updates: Iterable[Update], seconds: Mapping[str, float]) -> dict[str, Any]:
    """Say where the time of a round went; the time that messages took and the memory of the server are left out."""
    descents = [update.descent for update in updates]
    local = {phase: total(float(descent["seconds"][phase]) for descent in descents) for phase in PHASES}
    memory = {phase: max(int(descent["memory"][phase]) for descent in descents) for phase in PHASES}
    return {"round": done, **local, **seconds, "communicate": 0.0, "client_memory": memory, "peak_memory": None}


def evaluation_line(
    done: int, clients: int, scores: Mapping[int, Mapping[str, Any]], traffic: Traffic
) -> dict[str, Any]:
    """Put the clients' scores together. A client that did not answer counts as one without samples to judge by."""
    told = [scores[client] for client in sorted(scores)]
    trained = [score for score in told if score["participations"] > 0]
    of = {
        view: [scores.get(client, {}).get(view) or NO_SCORE for client in range(clients)]
        for view in ("local", "shared", "validation")
    }
    watched = _fixed_points(told)
    is_shared = bool(told) and all(score["shared"] is not None for score in told)
    is_validated = any(score["predictions"] for score in of["validation"])
    return {
        "round": done,
        "local": quality(of["local"]),
        "shared": quality(of["shared"]) if is_shared else None,
        "validation": quality(of["validation"]) if is_validated else None,
        "untrained": len(told) - len(trained),
        "gap": mean(score["gap"] for score in trained),
        "dual_norm": mean(score["dual_norm"] for score in trained),
        "theory": _theory(told),
        **({"fixed_points": watched} if watched else {}),
        "traffic": asdict(traffic),
    }


def quality(scores: Sequence[Score]) -> dict[str, Any]:
    """Accuracy and loss, both ways of averaging, and the spread."""
    accuracies = [_share(score, "correct") for score in scores]
    known = sorted(accuracy for accuracy in accuracies if accuracy is not None)
    average = mean(known)
    whole = {name: total(score[name] for score in scores) for name in NO_SCORE}
    losses = [_share(score, "loss") for score in scores]
    return {
        "weighted": _share(whole, "correct") or 0.0,
        "mean": average,
        "deviation": math.sqrt(mean((accuracy - average) * (accuracy - average) for accuracy in known)),
        "worst_decile": mean(known[: math.ceil(len(known) / 10)]),
        "loss": _share(whole, "loss") or 0.0,
        "mean_loss": mean(loss for loss in losses if loss is not None),
        "clients": accuracies,
    }


def mean(values: Iterable[float]) -> float:
    """Take the mean; nothing has 0."""
    values = list(values)
    return total(values) / len(values) if values else 0.0


def total(values: Iterable[float]) -> float:
    """Add one after the other: `sum` of newer Pythons rounds otherwise than Rust does."""
    result: float = 0
    for value in values:
        result += value
    return result


def _share(score: Score, part: str) -> float | None:
    return score[part] / score["predictions"] if score["predictions"] else None


def _theory(scores: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    told = [score["theory"] for score in scores]
    if not told or None in told:
        return None
    return {
        "lagrangian": total(theory["lagrangian"] for theory in told),
        "stationarity": mean(theory["stationarity"] for theory in told),
        "head_gradient": mean(theory["head_gradient"] for theory in told),
    }


FIXED_POINTS = (
    "samples",
    "several",
    "answers_differ",
    "unsettled",
    "unstable",
    "distance",
    "radius",
    "largest_radius",
)


def _fixed_points(scores: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    told = [score["fixed_points"] for score in scores if score.get("fixed_points")]
    if not told:
        return None
    largest = ("distance", "largest_radius")
    of = {name: [found[name] for found in told] for name in FIXED_POINTS}
    return {name: max(of[name]) if name in largest else total(of[name]) for name in FIXED_POINTS}
