"""Whatever is killed or lost on its way, a federation ends with the bytes of the simulation."""

import json
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


def unleash(gremlin: Gremlin, seconds: float) -> int:
    """Let a federation run to its end under a gremlin's eyes, see that nothing is lost, and count its runs."""
    federation = gremlin.federation
    simulation = federation.simulate()
    federation.start_link()
    gremlin.start_nodes()
    with gremlin:
        runs = run_to_the_end(federation, seconds)
    assert gremlin.problem is None, gremlin.problem
    assert is_same(federation.theta(), theta_of_simulation(simulation)), federation.words()
    same_journals(federation.app, simulation)
    same_states(federation, simulation)
    return runs


def same_states(federation: Federation, simulation: Path) -> None:
    """Compare every client's model, head and dual with those of the simulation, to the byte."""
    manifest = json.loads(max((simulation / "checkpoints").glob("*.json")).read_text())["manifest"]
    for client, name in manifest["clients"].items():
        (state,) = (federation.folder / f"node-{client}/federations").glob("*/state-*")
        assert state.read_bytes() == (simulation / "clients" / name).read_bytes(), f"client {client}"
