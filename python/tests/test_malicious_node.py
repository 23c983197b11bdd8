"""Nodes that try to crash the server, or to pass for another, over a real SuperLink."""

import json
import subprocess

import pytest

from tests.conftest import FederationFactory
from tests.harness import Federation
from tests.harness.bombs import SENT
from tests.harness.compare import assert_finished, lines
from tests.harness.program import TIMEOUT
from tests.harness.settings import SHORT

pytestmark = [pytest.mark.federation, pytest.mark.hostile]

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


def test_a_run_continues_although_a_node_sends_what_would_take_gigabytes(make_federation: FederationFactory) -> None:
    """Client 2 sends another bomb in every round; the server's memory stays that of a server."""
    several = [f"plan.rounds={len(SENT)}" if setting.startswith("plan.rounds") else setting for setting in SMALL]
    federation = make_federation("method=fedavg", *several, "plan.evaluate_every=0")
    federation.use_client("bomber")
    federation.start_link()
    federation.start_node(0)
    federation.start_node(1)
    federation.start_supernode(2)
    federation.start_run(minimum=0.6, deadline=90.0, repeat=10.0)
    peaks: list[int] = []
    federation.wait_for_end(5 * TIMEOUT, lambda: peaks.append(federation.server_memory))
    assert_finished(federation)
    assert [line["cohort"] for line in lines(federation.app, "rounds.jsonl")] == [[0, 1]] * len(SENT), federation.logs()
    failures = {line["round"]: line for line in lines(federation.app, "failures.jsonl")}
    assert {line["client"] for line in failures.values()} == {2}
    reasons = [failures[number]["reason"] for number in range(len(SENT))]
    assert all("its reply cannot be read: TooLarge: it" in reason for reason in reasons), reasons
    assert 0 < max(peaks) < 600 << 20, max(peaks)


def test_a_node_whose_key_is_not_that_of_the_client_is_asked_for_nothing(make_federation: FederationFactory) -> None:
    """The owner has written down whose client 1 is; the node that comes has another key, and the run does without."""
    federation = make_federation("method=fedavg", *SMALL)
    (federation.app / "nodes.json").write_text(json.dumps({"1": "0" * 64}))
    federation.start()
    federation.run(minimum=0.6, patience=10.0, deadline=10.0)
    assert_finished(federation)
    assert [line["cohort"] for line in lines(federation.app, "rounds.jsonl")] == [[0, 2]] * 2, federation.logs()
    refused = [line for line in lines(federation.app, "failures.jsonl") if "node" in line]
    assert [(line["client"], "belongs to the key 0000" in line["reason"]) for line in refused] == [(1, True)]
    keys = json.loads((federation.app / "nodes.json").read_text())
    assert keys == {"0": key_of(federation, 0), "1": "0" * 64, "2": key_of(federation, 2)}


def key_of(federation: Federation, client: int) -> str:
    """Compute the fingerprint of a node's key, as the documentation says."""
    key = federation.folder / f"node-{client}" / "key.pem"
    command = f"openssl pkey -in '{key}' -pubout -outform DER | sha256sum"
    return subprocess.run(["/bin/sh", "-c", command], check=True, capture_output=True, text=True).stdout.split()[0]  # noqa: S603
