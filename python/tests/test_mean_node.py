"""A node that wants to bring the server down, over a real SuperLink."""

import pytest

from tests.conftest import Founder
from tests.test_contract import lines

pytestmark = pytest.mark.federation

SMALL = (
    *("plan.rounds=2", "plan.sampling.fraction=1", "data.partition.clients=3", "data.partition.shards=4"),
    *("data.limit.train=30", "data.limit.test=30", "training.epochs=1", "training.personal_epochs=1"),
)


def test_a_run_goes_on_although_a_node_sends_what_flower_itself_cannot_read(found: Founder) -> None:
    """Client 2 is no `fedeq node`; rounds are made up of the others, and it is named with the reason."""
    federation = found("method=fedavg", *SMALL)
    federation.use_client("tests.harness.mean:client")
    federation.start_link()
    federation.start_node(0)
    federation.start_node(1)
    federation.start_supernode(2)
    federation.run(minimum=0.6, deadline=60.0, repeat=5.0)
    assert federation.state == "finished", federation.words()
    assert [line["cohort"] for line in lines(federation.app, "rounds.jsonl")] == [[0, 1]] * 2, federation.words()
    failures = lines(federation.app, "failures.jsonl")
    assert {line["client"] for line in failures} == {2}, failures
    reasons = {line["task"]: line["reason"] for line in failures}
    assert "its answer cannot be read" in reasons["train"], failures
    assert "`predictions` is `1000" in reasons["evaluate"], failures
