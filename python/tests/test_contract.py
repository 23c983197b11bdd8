"""A federation of Rust nodes over a real SuperLink does what the simulation does, to the bit."""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Founder
from tests.harness import Federation
from tests.harness.federation import PROGRAM, fedeq, is_listening, is_same, theta_of_simulation
from tests.harness.processes import free_port, until

pytestmark = pytest.mark.federation

SMALL = (
    "data.partition.clients=5",
    "data.limit.train=30",
    "data.limit.test=30",
    "training.epochs=1",
    "training.personal_epochs=1",
)
BY_SAMPLES = ("method.weighting=samples", "plan.rounds=2", "plan.sampling.fraction=0.4", *SMALL)
# rho is neither 0 nor 1, which hide mistakes in the dual.
FEDEQ = (
    *("method=fedeq", "method.rho=0.3"),
    *("plan.rounds=4", "plan.evaluate_every=2", "plan.sampling.fraction=0.6"),
    *SMALL,
)


def lines(folder: Path, journal: str) -> list[dict[str, Any]]:
    """Read a journal."""
    return [json.loads(line) for line in (folder / journal).read_text().splitlines()]


def test_fedeq_over_flower_is_the_simulation_to_the_bit(found: Founder) -> None:
    """Five nodes, three of them a round: the same theta, the same accuracies, the same report."""
    federation = found(*FEDEQ)
    federation.start()
    simulation = federation.simulate()
    federation.run()
    assert federation.state == "finished", federation.words()
    assert is_same(federation.theta(), theta_of_simulation(simulation)), federation.words()
    same_journals(federation.app, simulation)
    same_reports(federation.app, simulation)
    for folder in (federation.app, simulation):
        memory = [timing["client_memory"] for timing in lines(folder, "timings.jsonl")]
        assert all(isinstance(count, int) for phases in memory for count in phases.values()), memory
    is_on_the_dashboard(federation)


def test_other_methods_over_flower_are_the_simulation_to_the_bit(found: Founder) -> None:
    """One SuperLink and the same nodes for all of them: a node keeps federations apart."""
    federation = found("method=fedavg", *BY_SAMPLES)
    federation.start()
    for method in ("fedavg", "fedper", "fedrep"):
        federation.write_app(method, (f"method={method}", *BY_SAMPLES))
        simulation = federation.simulate()
        federation.run()
        assert federation.state == "finished", federation.words()
        assert is_same(federation.theta(), theta_of_simulation(simulation)), (method, federation.words())
        same_journals(federation.app, simulation)


@pytest.mark.long
def test_a_whole_training_on_digits_is_the_simulation(found: Founder, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the program's own experiment with a node for each of its thirty clients, and nothing made small."""
    federation = found("method=fedeq")
    federation.start()
    simulation = federation.simulate()
    federation.run(1500.0, repeat=30.0)
    assert federation.state == "finished", federation.words()
    assert is_same(federation.theta(), theta_of_simulation(simulation)), federation.words()
    same_journals(federation.app, simulation)
    last = lines(federation.app, "evaluations.jsonl")[-1]
    with capsys.disabled():
        sys.stdout.write(f"after round {last['round']}: accuracy {last['local']['mean']:.4f}\n")


def is_on_the_dashboard(federation: Federation) -> None:
    """Ask `fedeq dashboard` for the run and its clients."""
    port = free_port()
    federation.crew.start(
        "dashboard", PROGRAM, ["dashboard", str(federation.app), "--no-token", "--port", str(port)], {}
    )
    until("the dashboard listens", lambda: is_listening(port), 30)
    (run,) = asked(f"http://127.0.0.1:{port}/api/runs")
    assert (run["state"], run["round"], run["problem"]) == ("finished", 4, None)
    clients = asked(f"http://127.0.0.1:{port}/api/clients?run={run['run']}")
    assert [client["client"] for client in clients] == list(federation.clients)


def asked(address: str) -> list[dict[str, Any]]:
    """Read a list from the dashboard."""
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 (on this machine)
        values: list[dict[str, Any]] = json.load(answer)
    return values


def same_journals(app: Path, simulation: Path) -> None:
    """Compare what both wrote about rounds and evaluations."""
    for journal in ("rounds.jsonl", "evaluations.jsonl"):
        assert lines(app, journal) == approximately(lines(simulation, journal))


def same_reports(app: Path, simulation: Path) -> None:
    """Compare what `fedeq report` makes of both."""
    ours, theirs = (json.loads(fedeq("report", folder, "--format", "json")) for folder in (app, simulation))
    for report in (ours, theirs):
        del report["title"]
        for run in report["runs"]:
            private = ("path", "program", "timings")
            for name in private:
                del run[name]
            del run["summary"]["resources"]
    assert ours["runs"] == approximately(theirs["runs"])


def approximately(value: Any) -> Any:  # noqa: ANN401 (whatever JSON holds)
    """Allow floats to differ in the last digit: Python and Rust read decimals in two ways. All else must be equal."""
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-14)
    if isinstance(value, list):
        return [approximately(item) for item in value]
    if isinstance(value, dict):
        return {key: approximately(item) for key, item in value.items()}
    return value
