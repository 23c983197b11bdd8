"""Comparing a federation with the simulation of the same experiment."""

import json
from pathlib import Path
from typing import Any

from tests.harness.fake import last_manifest
from tests.harness.federation import Federation


def assert_finished(federation: Federation) -> None:
    """Demand that the run came to its end."""
    assert federation.state == "finished", federation.logs()


def assert_equals_simulation(federation: Federation, simulation: Path) -> None:
    """Demand that a run came to its end, with the `theta` and the journals of the simulation, to the byte."""
    assert_finished(federation)
    server = last_manifest(federation.app)["server"]
    assert server == last_manifest(simulation)["server"], federation.logs()
    ours, theirs = (folder / "checkpoints" / server for folder in (federation.app, simulation))
    assert ours.read_bytes() == theirs.read_bytes()
    for journal in ("rounds.jsonl", "evaluations.jsonl", "metrics.csv"):
        assert (federation.app / journal).read_text() == (simulation / journal).read_text(), journal
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (federation.app, simulation)]
    for summary in summaries:
        del summary["resources"]
    assert summaries[0] == summaries[1]


def lines(folder: Path, journal: str) -> list[dict[str, Any]]:
    """Read a journal."""
    return [json.loads(line) for line in (folder / journal).read_text().splitlines()]
