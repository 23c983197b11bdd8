"""The metrics of a federation, the same numbers that `fedeq run` reports (`crates/core/src/metrics.rs`)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedeq.flower.messages import PHASES, Update

Score = Mapping[str, Any]
NO_SCORE: Score = {"predictions": 0, "correct": 0, "loss": 0.0}
SOLVES = ("samples", "steps", "residual", "unconverged", "not_finite", "warm")


@dataclass(frozen=True)
class Traffic:
    """Bytes of the messages of training."""

    up: int = 0
    down: int = 0

    def plus(self, other: "Traffic") -> "Traffic":
        """Add later traffic."""
        return Traffic(self.up + other.up, self.down + other.down)


def round_line(
    number: int, rho: float | None, updates: Mapping[int, Update], sent: Traffic, traffic: Traffic
) -> dict[str, Any]:
    """Aggregate the metrics of a round, from the updates in the order of its cohort."""
    stats = [update.stats for update in updates.values()]
    told = [update for update in updates.values() if tells(update.stats)]
    return {
        "round": number,
        "cohort": list(updates),
        "loss": mean(update.stats["loss"] for update in told),
        "gap": mean(update.gap for update in told),
        "rho": rho,
        "solves": {name: total(client["solves"][name] for client in stats) for name in SOLVES},
        "steps": total(client["steps"] for client in stats),
        "sent": asdict(sent),
        "traffic": asdict(traffic),
    }


def timing_line(done: int, updates: Iterable[Update], seconds: Mapping[str, float]) -> dict[str, Any]:
    """Aggregate the times of a round; the time of messages and the memory of the server are not measured."""
    stats = [update.stats for update in updates]
    local = {phase: total(float(client["seconds"][phase]) for client in stats) for phase in PHASES}
    memory = {phase: max(int(client["memory"][phase]) for client in stats) for phase in PHASES}
    return {"round": done, **local, **seconds, "communicate": 0.0, "client_memory": memory, "peak_memory": None}


def evaluation_line(
    done: int, clients: int, scores: Mapping[int, Mapping[str, Any]], traffic: Traffic
) -> dict[str, Any]:
    """Aggregate the clients' scores. A client that did not reply counts as one without test samples."""
    reported = [scores[client] for client in sorted(scores)]
    trained = [score for score in reported if score["participations"] > 0]
    told = [score for score in trained if tells(score)]
    of = {
        view: [scores.get(client, {}).get(view) or NO_SCORE for client in range(clients)]
        for view in ("local", "shared", "validation")
    }
    fixed_points = _fixed_points(reported)
    is_shared = bool(reported) and all(score["shared"] is not None for score in reported)
    is_validated = any(score["predictions"] for score in of["validation"])
    return {
        "round": done,
        "local": quality(of["local"]),
        "shared": quality(of["shared"]) if is_shared else None,
        "validation": quality(of["validation"]) if is_validated else None,
        "untrained": len(reported) - len(trained),
        "gap": mean(score["gap"] for score in told),
        "dual_norm": mean(score["dual_norm"] for score in told),
        "theory": _theory(reported),
        **({"fixed_points": fixed_points} if fixed_points else {}),
        "traffic": asdict(traffic),
    }


def tells(reported: Mapping[str, Any]) -> bool:
    """Whether a client tells its numbers: those of one that does not are 0 and mean nothing."""
    return bool(reported["disclosure"] != "none")


def quality(scores: Sequence[Score]) -> dict[str, Any]:
    """Compute accuracy and loss, averaged over samples and over clients, and the spread over clients."""
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
    """Take the mean; that of nothing is 0."""
    values = list(values)
    return total(values) / len(values) if values else 0.0


def total(values: Iterable[float]) -> float:
    """Add one after the other: `sum` of newer Python versions rounds differently from Rust."""
    result: float = 0
    for value in values:
        result += value
    return result


def _share(score: Score, part: str) -> float | None:
    return score[part] / score["predictions"] if score["predictions"] else None


def _theory(scores: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    theories = [score["theory"] for score in scores if tells(score) and score["theory"] is not None]
    if not theories or len(theories) < len(scores):
        return None
    return {
        "lagrangian": total(theory["lagrangian"] for theory in theories),
        "stationarity": mean(theory["stationarity"] for theory in theories),
        "head_gradient": mean(theory["head_gradient"] for theory in theories),
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
    reported = [score["fixed_points"] for score in scores if score.get("fixed_points")]
    if not reported:
        return None
    largest = ("distance", "largest_radius")
    of = {name: [found[name] for found in reported] for name in FIXED_POINTS}
    return {name: max(of[name]) if name in largest else total(of[name]) for name in FIXED_POINTS}
