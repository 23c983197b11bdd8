"""A node that tries to crash the server, over a real SuperLink."""

import pytest

from tests.conftest import FederationFactory
from tests.harness.compare import assert_finished, lines
from tests.harness.settings import SHORT

pytestmark = pytest.mark.federation

SMALL = (
    *("plan.rounds=2", "plan.sampling.fraction=1", "data.partition.clients=3", "data.partition.shards=4"),
    *SHORT,
)


def test_a_run_continues_although_a_node_sends_what_flower_itself_cannot_read(
    make_federation: FederationFactory,
) -> None:
    """Client 2 is not a `fedeq node`; rounds continue with the others, and the reason is logged."""
    federation = make_federation("method=fedavg", *SMALL)
    federation.use_client("malicious")
    federation.start_link()
    federation.start_node(0)
    federation.start_node(1)
    federation.start_supernode(2)
    federation.run(minimum=0.6, deadline=60.0, repeat=5.0)
    assert_finished(federation)
    assert [line["cohort"] for line in lines(federation.app, "rounds.jsonl")] == [[0, 1]] * 2, federation.logs()
    failures = lines(federation.app, "failures.jsonl")
    assert {line["client"] for line in failures} == {2}, failures
    reasons = {line["task"]: line["reason"] for line in failures}
    assert "its reply cannot be read" in reasons["train"], failures
    assert "number out of range" in reasons["evaluate"], failures
