"""Nodes that tell less than everything, over a real SuperLink."""

import pytest

from tests.conftest import FederationFactory
from tests.harness.compare import assert_finished, lines
from tests.harness.fake import theta_of
from tests.harness.settings import SHORT

pytestmark = [pytest.mark.federation, pytest.mark.hostile]

SETTINGS = (
    *("method=fedeq", "method.rho=0.3", "plan.rounds=2", "plan.evaluate_every=1", "plan.sampling.fraction=1"),
    *("data.partition.clients=3", "data.partition.shards=4", *SHORT),
)


def test_what_nodes_do_not_tell_is_left_out_and_changes_no_weight(make_federation: FederationFactory) -> None:
    """One node tells everything, one rounds, one is silent: the same theta, and means over those who tell."""
    federation = make_federation(*SETTINGS)
    simulation = federation.simulate()
    federation.start_link()
    for client, metrics in enumerate(("everything", "coarse", "none")):
        federation.start_node(client, options=("--metrics", metrics))
    run = federation.run()
    assert_finished(federation)
    ours, theirs = federation.theta(), theta_of(simulation)
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs), federation.logs()
    exact = lines(simulation, "evaluations.jsonl")[-1]["local"]["clients"]
    told = lines(federation.app, "evaluations.jsonl")[-1]
    first, second, third = told["local"]["clients"]
    assert first == pytest.approx(exact[0])
    assert second == pytest.approx(round(20 * exact[1]) / 20)
    assert third is None
    assert told["untrained"] == 0
    assert told["gap"] > 0
    assert "over 2 clients (1 without a score, 1 with a rounded one)" in run.text(), run.text()
    assert lines(federation.app, "rounds.jsonl")[-1]["loss"] > 0
