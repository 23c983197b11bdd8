"""Time and memory of a federation on one machine: `python -m tests.measure_load many`, `many-durable` or `few`.

- `many`: fifty nodes of ours; seconds a round, against `fedeq run` on the same experiment, and the nodes' memory
- `many-durable`: the same with a SuperLink that keeps its state in a file
- `few`: two nodes, ours and then Flower's own with a client that does no work; seconds a message and memory
"""

import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.harness import Federation, Processes
from tests.harness.compare import assert_finished, lines

SMALL = ("method=fedeq", "method.rho=0.3", "training.epochs=1", "training.personal_epochs=1", "plan.evaluate_every=0")


def main(what: str) -> None:
    """Measure, and print the results as JSON."""
    folder = Path(tempfile.mkdtemp(prefix="fedeq-load-"))
    processes = Processes(folder)
    try:
        sys.stdout.write(json.dumps(MEASURES[what](processes), indent=2) + "\n")
    finally:
        processes.end()
        shutil.rmtree(folder)


def many(processes: Processes, clients: int = 50, rounds: int = 12, *, is_durable: bool = False) -> dict[str, Any]:
    """Run fifty nodes, ten in each round."""
    plan = (f"data.partition.clients={clients}", f"plan.rounds={rounds}", "plan.sampling.fraction=0.2")
    federation = Federation(processes, (*SMALL, *plan), is_durable=is_durable)
    simulation = federation.simulate()
    federation.start()
    federation.run(600.0, repeat=60.0)
    assert_finished(federation)
    resources = json.loads((simulation / "summary.json").read_text())["resources"]
    memory = [memory_of(node.process.pid) for node in federation.nodes.values()]
    return {
        "nodes": clients,
        "clients a round": len(lines(federation.app, "rounds.jsonl")[0]["cohort"]),
        "seconds a round": seconds_a_round(federation),
        "of which local work, one client after the other": local_work(federation),
        "seconds a round of `fedeq run`": resources["seconds_per_round"],
        "megabytes a node, peak": statistics.median(peak for peak, _ in memory),
        "megabytes a node, its own": statistics.median(own for _, own in memory),
    }


def few(processes: Processes, rounds: int = 16) -> dict[str, Any]:
    """Run two clients, with our nodes and with Flower's; one in each round, so that it is one request and reply."""
    data = ("data.partition.clients=2", "data.partition.shards=5", "data.limit.train=10")
    plan = (f"plan.rounds={rounds}", "plan.sampling.fraction=0.5")
    federation = Federation(processes, (*SMALL, *data, *plan), is_durable=False)
    federation.start()
    federation.run(600.0, repeat=60.0)
    assert_finished(federation)
    ours = measured(federation, [[node.process.pid] for node in federation.nodes.values()])
    for node in federation.nodes.values():
        node.kill()
    federation.write_app("echo", federation.settings)
    federation.use_client("echo")
    names = [federation.start_supernode(client) for client in federation.clients]
    federation.run(600.0, repeat=60.0)
    assert_finished(federation)
    return {"ours": ours, "Flower's": measured(federation, [processes.pids(name) for name in names])}


def measured(federation: Federation, nodes: list[list[int]]) -> dict[str, Any]:
    """Collect time a round and memory a node, whose processes are given."""
    memory = [[memory_of(pid) for pid in pids] for pids in nodes]
    return {
        "seconds a message": seconds_a_round(federation),
        "processes a node": len(nodes[0]),
        "megabytes a node, peak": statistics.median(sum(peak for peak, _ in pids) for pids in memory),
        "megabytes a node, its own": statistics.median(sum(own for _, own in pids) for pids in memory),
    }


def seconds_a_round(federation: Federation) -> float:
    """Give the median, without the first round, in which nodes load their data."""
    return statistics.median(float(timing["train"]) for timing in timings(federation)[1:])


def local_work(federation: Federation) -> float:
    """Give the median over rounds of the seconds of local work, summed over clients."""
    parts = ("solve", "backward", "update")
    return statistics.median(float(sum(timing[part] for part in parts)) for timing in timings(federation)[1:])


def timings(federation: Federation) -> list[dict[str, Any]]:
    """Read the times of all rounds."""
    return lines(federation.app, "timings.jsonl")


def memory_of(pid: int) -> tuple[float, float]:
    """Give the peak memory of a process in megabytes, and its current memory with its share of common pages."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    shares = dict(line.split(":", 1) for line in rollup)
    return _megabytes(status["VmHWM"]), _megabytes(shares["Pss"])


def _megabytes(text: str) -> float:
    return int(text.split(maxsplit=1)[0]) * 1024 / 1e6


MEASURES: dict[str, Callable[[Processes], dict[str, Any]]] = {
    "many": many,
    "many-durable": lambda processes: many(processes, is_durable=True),
    "few": few,
}

if __name__ == "__main__":
    main(sys.argv[1])
