"""Secure aggregation over a real SuperLink: the server gets the sum, whoever drops out, and a liar gets nothing."""

import json
from pathlib import Path

import pytest

from tests.conftest import FederationFactory
from tests.harness import Federation
from tests.harness.compare import assert_finished, lines
from tests.harness.fake import last_manifest
from tests.harness.server_apps import FAULTS
from tests.harness.settings import FEDEQ, SMALL

pytestmark = pytest.mark.federation

SECURE = ("plan.secure_aggregation.clip=0.5", "plan.secure_aggregation.precision_bits=20")


def use_faults(federation: Federation, faults: dict[str, str]) -> None:
    """Let the app's server do what it should not, in some rounds."""
    path = federation.app / "pyproject.toml"
    path.write_text(path.read_text().replace("fedeq.flower.app:server", "tests.harness.server_apps:server"))
    (federation.app / FAULTS).write_text(json.dumps(faults))


def server_of(folder: Path) -> bytes:
    """Read the last state of a server."""
    return (folder / "checkpoints" / str(last_manifest(folder)["server"])).read_bytes()


def rounds_of(folder: Path) -> list[dict[str, object]]:
    """Read the journal of rounds, but for what only a simulation can count: how many numbers were cut off."""
    return [{key: value for key, value in line.items() if key != "clipped"} for line in lines(folder, "rounds.jsonl")]


def test_sums_over_flower_are_those_of_the_simulation(make_federation: FederationFactory) -> None:
    """The same theta to the bit, and the bytes of the protocol as they were counted; with weights by samples too."""
    federation = make_federation(*FEDEQ, *SECURE, "plan.rounds=2")
    federation.start()
    simulation = federation.simulate()
    federation.run()
    assert_finished(federation)
    assert server_of(federation.app) == server_of(simulation)
    assert rounds_of(federation.app) == rounds_of(simulation)
    assert (federation.app / "evaluations.jsonl").read_text() == (simulation / "evaluations.jsonl").read_text()
    weighted = ("method=fedavg", "method.weighting=samples", "plan.secure_aggregation.largest_weight=100")
    federation.write_app("weighted", (*weighted, *SECURE, "plan.rounds=1", "plan.sampling.fraction=1", *SMALL))
    federation.restart_nodes()
    simulation = federation.simulate()
    federation.run()
    assert_finished(federation)
    assert server_of(federation.app) == server_of(simulation)


def test_sums_of_changes_from_a_compressed_theta_are_those_of_the_simulation(
    make_federation: FederationFactory,
) -> None:
    """Changes are from what arrived, which is another thing at each client."""
    small = ("plan.compression.down=int4", "plan.compression.keep_rounds=1", "plan.rounds=3")
    federation = make_federation(*FEDEQ[:2], *FEDEQ[4:], *SECURE, *small)
    federation.start()
    simulation = federation.simulate()
    federation.run()
    assert_finished(federation)
    assert server_of(federation.app) == server_of(simulation)
    assert rounds_of(federation.app) == rounds_of(simulation)
    # Nothing is left of the sessions.
    assert not (federation.app / "secure").exists()


@pytest.mark.hostile
def test_drop_outs_and_tampered_shares_do_no_harm_and_a_lie_ends_the_run(make_federation: FederationFactory) -> None:
    """One fault a round; then a server that tells some clients that another has dropped out."""
    settings = ("method=fedeq", "method.rho=0.3", "plan.sampling.fraction=1", "plan.evaluate_every=0", *SECURE, *SMALL)
    federation = make_federation(*settings, "plan.rounds=3")
    use_faults(federation, {"0": "before reveal", "1": "tampered", "2": "before masking"})
    federation.start()
    simulation = federation.simulate()
    federation.run()
    assert_finished(federation)
    rounds = lines(federation.app, "rounds.jsonl")
    assert [line["cohort"] for line in rounds] == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 3, 4]]
    # Whose vector came is in the sum: the theta that the third round begins with is the simulation's.
    theirs = lines(simulation, "rounds.jsonl")
    assert [line["loss"] for line in rounds[:2]] == [line["loss"] for line in theirs[:2]]
    failures = {(line["round"], line["client"]): line["reason"] for line in lines(federation.app, "failures.jsonl")}
    assert failures[0, 2] == failures[2, 2] == "it has dropped out"
    assert failures[1, 4] == "secure aggregation: client 1 cannot read its shares"

    federation.write_app("lie", (*settings, "plan.rounds=2"))
    use_faults(federation, {"1": "lie"})
    federation.restart_nodes()
    federation.run()
    assert federation.state == "failed", federation.logs()
    assert [line["round"] for line in lines(federation.app, "rounds.jsonl")] == [0]
    session = json.loads((federation.app / "secure" / "session.json").read_text())
    assert (session["round"], session["failed"]) == (1, "after-masks")
    # Vectors are masked once: the round is left out when the run is started again.
    federation.run()
    assert_finished(federation)
    assert [line["cohort"] for line in lines(federation.app, "rounds.jsonl")] == [[0, 1, 2, 3, 4], []]


@pytest.mark.hostile
def test_with_known_keys_a_server_that_lies_gets_no_sum_at_all(make_federation: FederationFactory) -> None:
    """Without a lie the sum of the simulation, to the bit; then keys of the server's own, and different lists."""
    settings = ("method=fedeq", "method.rho=0.3", "plan.sampling.fraction=1", "plan.evaluate_every=0", *SECURE, *SMALL)
    federation = make_federation(*settings, "plan.rounds=1")
    keys = federation.collect_signing_keys()
    pinned = ("--signing-keys", str(keys))
    federation.write_app("known", (*settings, "plan.rounds=2"), ("--signing-keys", keys))
    federation.start_link()
    for client in federation.clients:
        federation.start_node(client, options=pinned)
    simulation = federation.simulate()
    federation.run()
    assert_finished(federation)
    assert server_of(federation.app) == server_of(simulation)

    federation.write_app("invented", (*settings, "plan.rounds=1"), ("--signing-keys", keys))
    use_faults(federation, {"0": "invent"})
    federation.restart_nodes(pinned)
    federation.run()
    assert federation.state == "failed", federation.logs()
    session = json.loads((federation.app / "secure" / "session.json").read_text())
    assert session["failed"] == "before-masks", "no vector was sent, not even under masks"

    federation.write_app("lists", (*settings, "plan.rounds=1", "seed=1"), ("--signing-keys", keys))
    use_faults(federation, {"0": "lie"})
    federation.restart_nodes(pinned)
    federation.run()
    assert federation.state == "failed", federation.logs()
    session = json.loads((federation.app / "secure" / "session.json").read_text())
    assert session["failed"] == "after-masks"
    # Nobody was asked to reveal anything, since too few had signed the same list.
    assert not (federation.app / "secure" / "reveals").exists()
