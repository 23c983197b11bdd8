"""The strategy with nodes that are late, offline, mistaken or malicious."""

import json
from math import nan
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode

from fedeq.flower.folder import Damaged, Stopped
from fedeq.flower.strategy import Consensus, QuorumMissed
from tests.harness.fake import THETA, FakeGrid, Node, client, consensus, honest, scores, shifted, update, write_app


def grid_of(*replies: Node) -> FakeGrid:
    """Make a grid in which client i is node 100 + i."""
    return FakeGrid({100 + number: client(number, reply) for number, reply in enumerate(replies)})


def test_theta_is_the_mean_of_the_cohort_whatever_the_order_of_arrival(tmp_path: Path) -> None:
    """Sums in another order would be rounded differently."""
    thetas = []
    for name, is_reversed in (("a", False), ("b", True)):
        folder = write_app(tmp_path / name, [[0, 2, 1]], 3)
        grid = grid_of(honest(1e8), honest(0.1), honest(-1e8))
        grid.is_reversed = is_reversed
        thetas.append(consensus(folder, grid).run(grid))
    expected = {name: np.float64(array.astype(np.float64)) for name, array in shifted(0.1).items()}
    assert all(thetas[0][name].tobytes() == thetas[1][name].tobytes() for name in THETA)
    assert np.allclose(thetas[0]["params/a"], expected["params/a"] / 3)


def test_only_the_cohort_is_asked_to_train(tmp_path: Path) -> None:
    """All clients are evaluated."""
    folder = write_app(tmp_path / "app", [[2], [0]], 3)
    grid = grid_of(*[honest(1.0)] * 3)
    consensus(folder, grid).run(grid)
    assert [node for node, kind in grid.asked if kind == "train"] == [102, 100]
    assert sorted(node for node, kind in grid.asked if kind == "evaluate") == [100, 101, 102]


BAD: list[tuple[RecordDict, str]] = [
    (update({"params/a": THETA["params/a"]}), "`params/b` is missing"),
    (update({**THETA, "head/w": np.zeros(2, np.float32)}), "`head/w` is not expected"),
    (update({**THETA, "params/b": np.ones((2, 2), np.float32)}), "`params/b` has shape"),
    (update({**THETA, "params/b": np.full(4, np.inf, np.float32)}), "`params/b` contains NaN or infinity"),
    (update(shifted(50.0)), "distance from the weights that were sent out"),
    (update(THETA, samples=-3), "`samples` is `-3`"),
    (update(THETA, samples="many"), "`samples` is `many`"),
    (update(THETA, gap=nan), "`gap` is `nan`"),
    (update(THETA, gap=None), "`gap` is `None`"),
    (update(THETA, descent={}), "it lacks 'loss'"),
    (update(THETA, reply="scores"), "it is a reply of kind `scores`"),
    (scores(5), "it is a reply of kind `scores`"),
    (RecordDict(), "it lacks 'fedeq'"),
]


@pytest.mark.parametrize(("reply", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_a_bad_update_is_left_out_and_its_client_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reply: RecordDict, reason: str
) -> None:
    """The round continues with the others; the client and the reason are logged."""
    folder = write_app(tmp_path / "app", [[0, 1, 2]], 3)
    grid = grid_of(
        honest(1.0), lambda message: reply if message.metadata.message_type == "train" else scores(5), honest(3.0)
    )
    with caplog.at_level("INFO", "flwr"):
        theta = consensus(folder, grid, minimum=0.5, bound=10.0).run(grid)
    assert np.array_equal(theta["params/a"], shifted(2.0)["params/a"])
    assert "client 1: " in caplog.text
    assert reason in caplog.text
    assert json.loads((folder / "rounds.jsonl").read_text())["cohort"] == [0, 2]


def test_a_round_without_quorum_names_who_failed_and_changes_nothing(tmp_path: Path) -> None:
    """Two of three must reply; one does, one refuses, one does not reply."""
    folder = write_app(tmp_path / "app", [[0, 1, 2]], 3)
    refusal = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "no state")
    grid = grid_of(honest(1.0), lambda _: refusal, lambda _: None)
    problem = r"1 of 3 clients .* round 1 \(client 1: no state; client 2: no reply in 40 s\)"
    with pytest.raises(QuorumMissed, match=problem):
        consensus(folder, grid, minimum=0.6, deadline=40.0).run(grid)
    assert json.loads((folder / "status.json").read_text())["state"] == "failed"
    assert not (folder / "checkpoint.json").exists()


def test_a_client_that_is_too_late_is_left_out_if_enough_others_reply(tmp_path: Path) -> None:
    """The deadline passes once for training and once for the evaluation."""
    folder = write_app(tmp_path / "app", [[0, 1]], 2)
    grid = grid_of(honest(1.0), lambda _: None)
    consensus(folder, grid, minimum=0.5, deadline=40.0).run(grid)
    evaluation = json.loads((folder / "evaluations.jsonl").read_text())
    assert evaluation["local"]["clients"] == [0.5, None]
    waits = 2 * 40.0
    assert grid.now == pytest.approx(waits, abs=5.0)


def test_a_message_that_is_lost_is_sent_again(tmp_path: Path) -> None:
    """A node receives only every third request."""
    folder = write_app(tmp_path / "app", [[0]], 1)
    received = []

    def unreliable(message: Message) -> RecordDict | Error | None:
        received.append(message)
        return honest(1.0)(message) if len(received) % 3 == 0 else None

    grid = grid_of(unreliable)
    theta = consensus(folder, grid, repeat=5.0).run(grid)
    assert np.array_equal(theta["params/a"], shifted(1.0)["params/a"])
    headers = [message.content.config_records["fedeq"]["header"] for message in received]
    assert headers[0] == headers[1] == headers[2] != headers[3]


def test_a_client_is_asked_again_when_it_comes_back_as_another_node(tmp_path: Path) -> None:
    """A device that lost its key registers as a new node."""
    folder = write_app(tmp_path / "app", [[0]], 1)
    grid = FakeGrid({})

    def leaving(message: Message) -> RecordDict | Error | None:
        del message
        grid.nodes = {200: client(0, honest(1.0))}
        return Error(ErrorCode.NODE_UNAVAILABLE, "offline")

    grid.nodes = {100: client(0, leaving)}
    theta = consensus(folder, grid).run(grid)
    assert np.array_equal(theta["params/a"], shifted(1.0)["params/a"])


def test_a_run_begins_without_missing_nodes_if_enough_are_online(tmp_path: Path) -> None:
    """Client 2 has no node, and client 7 is not in the plan."""
    grid = grid_of(honest(1.0), honest(1.0))
    grid.nodes[300] = client(7, honest(1.0))
    folder = write_app(tmp_path / "app", [[0, 1]], 3)
    consensus(folder, grid, minimum=0.6, patience=30.0, deadline=20.0).run(grid)
    with pytest.raises(QuorumMissed, match=r"2 of 3 .*client 2: no node in 30 s"):
        consensus(write_app(tmp_path / "other", [[0, 1]], 3), grid, patience=30.0).run(grid)


def test_a_run_continues_from_its_checkpoint(tmp_path: Path) -> None:
    """The third round fails twice; the next run begins with the checkpoint of the second."""
    folder = write_app(tmp_path / "app", [[0], [0], [0]], 1)
    trained = []

    def failing(message: Message) -> RecordDict | Error | None:
        if message.metadata.message_type != "train":
            return scores(5)
        trained.append(json.loads(str(message.content.config_records["fedeq"]["header"]))["round"])
        return Error(2, "broken") if len(trained) in {3, 4} else update(shifted(len(trained)))

    grid = grid_of(failing)
    with pytest.raises(QuorumMissed):
        consensus(folder, grid).run(grid)
    with (folder / "rounds.jsonl").open("a") as file:
        file.write('{"round": 2, "half a li')
    again = consensus(folder, grid)
    assert again.done == 2  # noqa: PLR2004
    assert np.array_equal(again.theta["params/a"], shifted(2)["params/a"])
    again.run(grid)
    assert trained == [0, 1, 2, 2, 2]
    assert [json.loads(line)["round"] for line in (folder / "rounds.jsonl").read_text().splitlines()] == [0, 1, 2]
    assert json.loads((folder / "status.json").read_text())["state"] == "finished"


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    """The run does not start over silently."""
    folder = write_app(tmp_path / "app", [[0]], 1)
    grid = grid_of(honest(1.0))
    consensus(folder, grid).run(grid)
    path = folder / "theta-1.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"abcd")
    with pytest.raises(Damaged, match=r"theta-1\.safetensors"):
        Consensus(folder)
    path.unlink()
    with pytest.raises(Damaged, match=r"theta-1\.safetensors"):
        Consensus(folder)


def test_two_processes_cannot_use_one_folder(tmp_path: Path) -> None:
    """The second one fails."""
    folder = write_app(tmp_path / "app", [[0]], 1)
    grid = grid_of(honest(1.0))
    with consensus(folder, grid).folder.locked(), pytest.raises(RuntimeError, match="another process"):
        consensus(folder, grid).run(grid)


def test_a_run_stops_between_rounds_on_a_command(tmp_path: Path) -> None:
    """The dashboard writes it to a file."""
    folder = write_app(tmp_path / "app", [[0], [0]], 1)

    def stopping(message: Message) -> RecordDict | Error | None:
        (folder / "control.json").write_text('{"order": "stop"}')
        return honest(1.0)(message)

    grid = grid_of(stopping)
    with pytest.raises(Stopped):
        consensus(folder, grid).run(grid)
    assert json.loads((folder / "status.json").read_text())["state"] == "stopped"
    assert json.loads((folder / "checkpoint.json").read_text())["done"] == 1


def test_flowers_own_loop_can_use_the_strategy(tmp_path: Path) -> None:
    """Configure and aggregate are the two halves of a round."""
    folder = write_app(tmp_path / "app", [[0, 1]], 2)
    grid = grid_of(honest(1.0), honest(3.0))
    strategy = consensus(folder, grid)
    arrays, _ = strategy.aggregate_train(1, _replies(grid, strategy))
    assert arrays is not None
    assert np.array_equal(arrays["params/a"].numpy(), shifted(2.0)["params/a"])


def _replies(grid: FakeGrid, strategy: Consensus) -> list[Message]:
    record = ArrayRecord({name: Array(value) for name, value in THETA.items()})
    messages = strategy.configure_train(1, record, ConfigRecord(), grid)
    return list(grid.pull_messages(grid.push_messages(messages)))


def test_a_folder_without_a_plan_is_refused(tmp_path: Path) -> None:
    """The error says what to do."""
    with pytest.raises(ValueError, match="init-federation"):
        Consensus(tmp_path)


def test_of_two_nodes_of_one_client_the_first_one_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The other one is logged."""
    folder = write_app(tmp_path / "app", [[0]], 2)
    nodes: dict[int, Node] = {100: client(0, honest(1.0)), 101: client(0, honest(9.0)), 102: client(1, honest(1.0))}
    grid = FakeGrid(nodes)
    with caplog.at_level("INFO", "flwr"):
        theta = consensus(folder, grid).run(grid)
    assert np.array_equal(theta["params/a"], shifted(1.0)["params/a"])
    assert "node 101 says that it is client 0" in caplog.text
