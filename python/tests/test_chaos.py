"""Processes are killed and messages lost, and a federation ends with the bytes of the simulation."""

import json
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import FederationFactory
from tests.harness import Faults, Federation, Proxy
from tests.harness.chaos import FaultInjector, run_to_end
from tests.harness.compare import assert_equals_simulation, lines
from tests.harness.fake import last_manifest
from tests.harness.settings import FEDEQ

pytestmark = [pytest.mark.federation, pytest.mark.chaos]

FAULTS = Faults(drop=0.03, delay=0.03, duplicate=0.03, truncate=0.03)


def test_a_federation_survives_chaos(make_federation: FederationFactory) -> None:
    """Nodes, SuperLink and server are killed, messages are dropped, delayed, duplicated and truncated."""
    federation = make_federation(*FEDEQ)
    proxy = Proxy(federation.port, FAULTS, seed=1)
    injector = FaultInjector(federation, proxy, seed=1, pause=3.0, links={1}, servers={2})
    run_with_faults(injector, seconds=600.0)
    assert injector.done["node killed"] > 0, injector.done
    assert sum(count for fault, count in proxy.done.items() if fault != "passed") > 0, proxy.done


@pytest.mark.long
def test_thirty_rounds_of_chaos(make_federation: FederationFactory, capsys: pytest.CaptureFixture[str]) -> None:
    """Twelve clients; the counts are printed for docs/reliability.md."""
    federation = make_federation(*FEDEQ, "plan.rounds=30", "plan.evaluate_every=5", "data.partition.clients=12")
    proxy = Proxy(federation.port, FAULTS, seed=2)
    injector = FaultInjector(federation, proxy, seed=2, pause=4.0, links={4, 12, 20}, servers={8, 16, 24})
    begun = time.monotonic()
    try:
        run_with_faults(injector, seconds=3000.0)
    finally:
        counts = {"rounds": federation.done, "runs": federation.runs, "seconds": round(time.monotonic() - begun)}
        with capsys.disabled():
            sys.stdout.write(json.dumps({**proxy.done, **injector.done, **counts}, indent=2) + "\n")


def run_with_faults(injector: FaultInjector, seconds: float) -> None:
    """Run a federation to its end while faults are injected, and compare it with the simulation."""
    federation = injector.federation
    simulation = federation.simulate()
    federation.start_link()
    injector.start_nodes()
    with injector:
        run_to_end(federation, seconds)
    assert injector.problem is None, injector.problem
    assert_equals_simulation(federation, simulation)
    assert_same_states(federation, simulation)


def assert_same_states(federation: Federation, simulation: Path) -> None:
    """Compare every client's model, head and dual with those of the simulation, to the byte."""
    manifest = last_manifest(simulation)
    for client in {client for line in lines(federation.app, "rounds.jsonl") for client in line["cohort"]}:
        (state,) = (federation.folder / f"node-{client}/federations").glob("*/state-*")
        simulated = simulation / "clients" / manifest["clients"][str(client)]
        assert state.read_bytes() == simulated.read_bytes(), f"client {client}"
