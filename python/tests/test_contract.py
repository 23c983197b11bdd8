"""A federation of Rust nodes over a real SuperLink does what the simulation does, to the bit."""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FederationFactory
from tests.harness import Federation
from tests.harness.compare import assert_equals_simulation, lines
from tests.harness.federation import is_listening
from tests.harness.methods import methods
from tests.harness.processes import free_port, until
from tests.harness.program import PROGRAM, fedeq
from tests.harness.settings import FEDEQ, SMALL

pytestmark = pytest.mark.federation

BY_SAMPLES = ("method.weighting=samples", "plan.rounds=2", "plan.sampling.fraction=0.4", *SMALL)


def test_fedeq_over_flower_is_the_simulation_to_the_bit(make_federation: FederationFactory) -> None:
    """Five nodes, three of them in each round: the same theta, the same accuracies, the same report."""
    federation = make_federation(*FEDEQ)
    federation.start()
    simulation = federation.simulate()
    federation.run()
    assert_equals_simulation(federation, simulation)
    assert_same_reports(federation.app, simulation)
    for folder in (federation.app, simulation):
        memory = [timing["client_memory"] for timing in lines(folder, "timings.jsonl")]
        assert all(isinstance(count, int) for phases in memory for count in phases.values()), memory
    assert_on_dashboard(federation)


# What is sent is kept for one round, so that some of it is differences and some whole models.
COMPRESSED = ("plan.compression.up=int4", "plan.compression.down=int8", "plan.compression.keep_rounds=1")
ROBUST = ("plan.aggregation.rule.trimmed-mean.share=0.2", "plan.aggregation.clip.adaptive.quantile=0.5")
CONSENSUS = ("method=fedeq", "method.rho=0.3", "method.server_step=consensus")
OTHERS = {
    **{method: (f"method={method}", *BY_SAMPLES) for method in ("fedavg", "fedper", "fedrep", "ditto", "knn-per")},
    # Who counts by samples, and who counts alike whatever they hold.
    **{method: (f"method={method}", *BY_SAMPLES) for method in ("fedprox", "apfl", "moon")},
    **{method: (f"method={method}", *BY_SAMPLES[1:]) for method in ("scaffold", "feddyn", "pfedme")},
    # A network with normalisations, which stay with clients.
    "fedbn": ("method=fedbn", "model=resnet-xs", *BY_SAMPLES),
    # Fine-tuned at the end, by a task of its own.
    "fedavg-ft": ("method=fedavg-ft", *BY_SAMPLES),
    # Steps so short that no accuracy changes: the third of twenty rounds is the last, and then clients are fine-tuned.
    "patient": (
        *("method=fedavg-ft", "model=mlp", "plan.rounds=20", "plan.evaluate_every=1", "plan.patience=1"),
        *("data.split.validation=0.2", "training.learning_rate=1e-9", "plan.sampling.fraction=0.4", *SMALL),
    ),
    # Nothing is shared.
    "local": ("method=local", "plan.rounds=2", *SMALL),
    # The penalty moves, and the theory is measured.
    "balanced": ("method=fedeq", "method.balance.factor=2", "plan.measure_theory=true", *BY_SAMPLES[1:]),
    # Duals enter the server's step, and stay with their clients.
    "consensus": (*CONSENSUS, "plan.rounds=3", "plan.sampling.fraction=0.4", *SMALL),
    "asynchronous": (*CONSENSUS, "plan.asynchronous.slowest=4", "plan.rounds=3", "plan.sampling.fraction=0.6", *SMALL),
    # Both ways; nodes keep what was lost, and what they have of the server's model.
    "compressed": ("method=fedeq", "method.rho=0.3", *COMPRESSED, "plan.rounds=5", *BY_SAMPLES[2:]),
    "compressed-async": (*CONSENSUS, *COMPRESSED, "plan.asynchronous.slowest=4", "plan.rounds=3", *BY_SAMPLES[2:]),
    # Two liars could not move it far.
    "robust": (
        "method=fedrep",
        "method.weighting=uniform",
        *ROBUST,
        "plan.rounds=2",
        "plan.sampling.fraction=1",
        *SMALL,
    ),
    # Under a rule what was sent counts otherwise than its client takes it to.
    "robust-consensus": (
        *CONSENSUS,
        "plan.aggregation.rule=geometric-median",
        "plan.aggregation.clip.adaptive.quantile=0.5",
        "plan.aggregation.cap=0.3",
        "plan.rounds=3",
        "plan.sampling.fraction=0.8",
        *SMALL,
    ),
    # No client has more than three tenths, however many samples it has.
    "capped": (
        *("method=fedavg", "method.weighting=samples", "plan.aggregation.cap=0.3", "plan.rounds=2"),
        *("data.partition=quantity-skew", "data.partition.clients=5", "data.partition.minimum=10"),
        *("data.limit.test=30", "training.epochs=1", "plan.sampling.fraction=1"),
    ),
    # Two of the five are met after training.
    "unseen": ("method=fedrep", "data.unseen.count=2", *BY_SAMPLES),
}


def test_every_method_of_the_catalogue_is_compared_over_flower() -> None:
    """A method that is new is added to those above."""
    told = [dict(setting.split("=", 1) for setting in settings) for settings in (FEDEQ, *OTHERS.values())]
    assert {settings["method"] for settings in told} == set(methods())


# Tests that can be carried out side by side.
PARTS = 4


@pytest.mark.parametrize("first", range(PARTS))
def test_other_methods_over_flower_are_the_simulation_to_the_bit(
    make_federation: FederationFactory, first: int
) -> None:
    """One SuperLink and the same folders of nodes for all of a part: a node keeps federations apart."""
    federation = make_federation("method=fedavg", *BY_SAMPLES)
    federation.start()
    for name in list(OTHERS)[first::PARTS]:
        federation.write_app(name, OTHERS[name])
        federation.restart_nodes()
        simulation = federation.simulate()
        federation.run()
        assert_equals_simulation(federation, simulation)


@pytest.mark.long
def test_a_whole_training_on_digits_is_the_simulation(
    make_federation: FederationFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run the default experiment in full size, with a node for each of its thirty clients."""
    federation = make_federation("method=fedeq")
    federation.start()
    simulation = federation.simulate()
    federation.run(1500.0, repeat=30.0)
    assert_equals_simulation(federation, simulation)
    last = lines(federation.app, "evaluations.jsonl")[-1]
    with capsys.disabled():
        sys.stdout.write(f"after round {last['round']}: accuracy {last['local']['mean']:.4f}\n")


def assert_on_dashboard(federation: Federation) -> None:
    """Ask `fedeq dashboard` for the run and its clients."""
    port = free_port()
    federation.processes.start(
        "dashboard", PROGRAM, ["dashboard", str(federation.app), "--no-token", "--port", str(port)], {}
    )
    until("the dashboard listens", lambda: is_listening(port), 30)
    (run,) = get(f"http://127.0.0.1:{port}/api/runs")
    assert (run["state"], run["round"], run["problem"]) == ("finished", 4, None)
    answer = get(f"http://127.0.0.1:{port}/api/clients?run={run['run']}")
    assert [client["client"] for client in answer["clients"]] == list(federation.clients)


def get(address: str) -> Any:  # noqa: ANN401 (it is JSON)
    """Ask the dashboard."""
    with urllib.request.urlopen(address, timeout=30) as response:  # noqa: S310 (on this machine)
        return json.load(response)


def assert_same_reports(app: Path, simulation: Path) -> None:
    """Compare the reports of both."""
    ours, theirs = (json.loads(fedeq("report", folder, "--format", "json")) for folder in (app, simulation))
    for report in (ours, theirs):
        del report["title"]
        for run in report["runs"]:
            private = ("path", "program", "timings")
            for name in private:
                del run[name]
            del run["summary"]["resources"]
    assert ours["runs"] == theirs["runs"]
