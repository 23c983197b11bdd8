"""A federation continues after its server was killed, and without missing nodes."""

import json

import pytest

from tests.conftest import FederationFactory
from tests.harness.compare import assert_equals_simulation, assert_finished, lines
from tests.harness.processes import until
from tests.harness.settings import FEDEQ, SMALL

pytestmark = pytest.mark.federation


def test_a_server_that_is_killed_continues_to_the_same_bytes(make_federation: FederationFactory) -> None:
    """Killed twice in the middle of a round, in which some nodes have replied and others have not."""
    federation = make_federation(*FEDEQ, "plan.rounds=6")
    federation.start()
    simulation = federation.simulate()
    for saved in (1, 3):
        federation.start_run()
        until(f"{saved} rounds are saved", lambda saved=saved: federation.done >= saved, 120)  # type: ignore[misc]
        federation.kill_server()
        assert federation.done < 6, "too fast to be killed"  # noqa: PLR2004
    federation.run()
    assert_equals_simulation(federation, simulation)


def test_rounds_continue_without_a_missing_node_if_enough_others_reply(make_federation: FederationFactory) -> None:
    """Client 1 has no node; if all clients are required, the run fails and names it."""
    federation = make_federation("method=fedeq", "plan.rounds=2", "plan.sampling.fraction=1.0", *SMALL)
    federation.start_link()
    for client in (0, 2, 3, 4):
        federation.start_node(client)
    run = federation.run(patience=5.0, deadline=5.0)
    assert federation.state == "failed", federation.logs()
    until("the reason is logged", lambda: "client 1: no node in 5 s" in run.text(), 30)
    federation.run(patience=10.0, deadline=10.0, minimum=0.6)
    assert_finished(federation)
    assert [line["cohort"] for line in lines(federation.app, "rounds.jsonl")] == [[0, 2, 3, 4]] * 2
    evaluation = json.loads((federation.app / "summary.json").read_text())["evaluation"]
    assert [accuracy is None for accuracy in evaluation["local"]["clients"]] == [False, True, False, False, False]
