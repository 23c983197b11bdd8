"""A federation goes on when its server is killed, and without those who are not there."""

import json

import pytest

from tests.conftest import Founder
from tests.harness.federation import is_same, theta_of_simulation
from tests.harness.processes import until
from tests.test_contract import FEDEQ, SMALL, lines, same_journals

pytestmark = pytest.mark.federation


def test_a_server_that_is_killed_goes_on_to_the_same_bytes(found: Founder) -> None:
    """Killed twice in the middle of a round, whose questions some nodes have answered and others not."""
    federation = found(*FEDEQ, "plan.rounds=6")
    federation.start()
    simulation = federation.simulate()
    for kept in (1, 3):
        federation.start_run()
        until(f"{kept} rounds are kept", lambda kept=kept: federation.done >= kept, 120)  # type: ignore[misc]
        federation.kill_server()
        assert federation.done < 6, "too fast to be killed"  # noqa: PLR2004
    federation.run()
    assert federation.state == "finished", federation.words()
    assert is_same(federation.theta(), theta_of_simulation(simulation)), federation.words()
    same_journals(federation.app, simulation)


def test_rounds_go_on_without_a_node_that_is_down_if_enough_are_there(found: Founder) -> None:
    """Client 1 never comes; if all are demanded, the run fails and says who is missing."""
    federation = found("method=fedeq", "plan.rounds=2", "plan.sampling.fraction=1.0", *SMALL)
    federation.start_link()
    for client in (0, 2, 3, 4):
        federation.start_node(client)
    run = federation.run(patience=5.0, deadline=5.0)
    assert federation.state == "failed", federation.words()
    until("the reason is said", lambda: "client 1: no node in 5 s" in run.text(), 30)
    federation.run(patience=5.0, deadline=5.0, minimum=0.6)
    assert federation.state == "finished", federation.words()
    assert [line["cohort"] for line in lines(federation.app, "rounds.jsonl")] == [[0, 2, 3, 4]] * 2
    evaluation = json.loads((federation.app / "summary.json").read_text())["evaluation"]
    assert [accuracy is None for accuracy in evaluation["local"]["clients"]] == [False, True, False, False, False]
