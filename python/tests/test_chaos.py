"""Whatever is killed or lost on its way, a federation ends with the bytes of the simulation."""

import json
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Founder
from tests.harness import Faults, Federation, Proxy
from tests.harness.chaos import Gremlin, run_to_the_end
from tests.harness.federation import is_same, theta_of_simulation
from tests.test_contract import FEDEQ, same_journals

pytestmark = [pytest.mark.federation, pytest.mark.chaos]

FAULTS = Faults(drop=0.03, delay=0.03, duplicate=0.03, truncate=0.03)


def test_a_federation_survives_chaos(found: Founder) -> None:
    """Nodes, SuperLink and server are killed, messages are dropped, delayed, duplicated and cut."""
    federation = found(*FEDEQ)
    proxy = Proxy(federation.port, FAULTS, seed=1)
    gremlin = Gremlin(federation, proxy, seed=1, pause=3.0, links={1}, servers={2})
    unleash(gremlin, seconds=150.0)
    assert gremlin.done["node killed"] > 0, gremlin.done
    assert sum(count for fault, count in proxy.done.items() if fault != "passed") > 0, proxy.done


@pytest.mark.long
def test_thirty_rounds_of_chaos(found: Founder, capsys: pytest.CaptureFixture[str]) -> None:
    """Twelve clients; what happened is written down for docs/reliability.md."""
    federation = found(*FEDEQ, "plan.rounds=30", "plan.evaluate_every=5", "data.partition.clients=12")
    proxy = Proxy(federation.port, FAULTS, seed=2)
    gremlin = Gremlin(federation, proxy, seed=2, pause=4.0, links={4, 12, 20}, servers={8, 16, 24})
    begun = time.monotonic()
    try:
        unleash(gremlin, seconds=3000.0)
    finally:
        counts = {"rounds": federation.done, "runs": federation.runs, "seconds": round(time.monotonic() - begun)}
        with capsys.disabled():
            sys.stdout.write(json.dumps({**proxy.done, **gremlin.done, **counts}, indent=2) + "\n")


def unleash(gremlin: Gremlin, seconds: float) -> None:
    """Let a federation run to its end under a gremlin's eyes, and see that nothing is lost."""
    federation = gremlin.federation
    simulation = federation.simulate()
    federation.start_link()
    gremlin.start_nodes()
    with gremlin:
        run_to_the_end(federation, seconds)
    assert gremlin.problem is None, gremlin.problem
    assert is_same(federation.theta(), theta_of_simulation(simulation)), federation.words()
    same_journals(federation.app, simulation)
    same_states(federation, simulation)


def same_states(federation: Federation, simulation: Path) -> None:
    """Compare every client's model, head and dual with those of the simulation, to the byte."""
    manifest = json.loads(max((simulation / "checkpoints").glob("*.json")).read_text())["manifest"]
    for client in {client for cohort in federation.plan["cohorts"] for client in cohort}:
        (state,) = (federation.folder / f"node-{client}/federations").glob("*/state-*")
        simulated = simulation / "clients" / manifest["clients"][str(client)]
        assert state.read_bytes() == simulated.read_bytes(), f"client {client}"
