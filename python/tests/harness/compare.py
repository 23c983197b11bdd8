"""Comparing a federation with the simulation of the same experiment."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedeq.flower import weights
from fedeq.flower.weights import Weights
from tests.harness.federation import Federation


def assert_finished(federation: Federation) -> None:
    """Demand that the run came to its end."""
    assert federation.state == "finished", federation.logs()


def assert_equals_simulation(federation: Federation, simulation: Path) -> None:
    """Demand that a run came to its end, with the `theta` and the journals of the simulation."""
    assert_finished(federation)
    ours, theirs = federation.theta(), theta_of_simulation(simulation)
    assert set(ours) == set(theirs), federation.logs()
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours), federation.logs()
    for journal in ("rounds.jsonl", "evaluations.jsonl"):
        assert lines(federation.app, journal) == approximately(lines(simulation, journal))


def theta_of_simulation(folder: Path) -> Weights:
    """Read the last shared weights of a simulation."""
    return weights.read(folder / "checkpoints" / str(last_manifest(folder)["server"]))


def last_manifest(folder: Path) -> Mapping[str, Any]:
    """Read which files the last checkpoint of a simulation consists of."""
    manifest: Mapping[str, Any] = json.loads(max((folder / "checkpoints").glob("*.json")).read_text())["manifest"]
    return manifest


def lines(folder: Path, journal: str) -> list[dict[str, Any]]:
    """Read a journal."""
    return [json.loads(line) for line in (folder / journal).read_text().splitlines()]


def approximately(value: Any) -> Any:  # noqa: ANN401 (any JSON value)
    """Allow floats to differ in the last digit: Python and Rust read decimals in two ways. All else must be equal."""
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-14)
    if isinstance(value, list):
        return [approximately(item) for item in value]
    if isinstance(value, dict):
        return {key: approximately(item) for key, item in value.items()}
    return value
