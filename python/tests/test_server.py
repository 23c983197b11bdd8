"""The server with nodes that are late, offline, mistaken or malicious."""

import json
import threading
from collections.abc import Callable, Iterable
from math import nan
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Error, Message, RecordDict
from flwr.common.constant import ErrorCode

from fedeq import FedeqError, Stopped
from fedeq._native import Federation
from tests.harness.fake import (
    THETA,
    FakeGrid,
    FakeServer,
    Node,
    client,
    honest,
    last_manifest,
    scores,
    shifted,
    theta_of,
    update,
    write_app,
)


def grid_of(*replies: Node) -> FakeGrid:
    """Make a grid in which client i is node 100 + i."""
    return FakeGrid({100 + number: client(number, reply) for number, reply in enumerate(replies)})


def test_theta_is_the_mean_of_the_cohort_whatever_the_order_of_arrival(tmp_path: Path) -> None:
    """Sums in another order would be rounded differently."""
    thetas = []
    for name, is_reversed in (("a", False), ("b", True)):
        grid = grid_of(honest(1e5), honest(0.1), honest(-1e5))
        grid.is_reversed = is_reversed
        thetas.append(FakeServer(write_app(tmp_path / name, 3), grid).run())
    assert all(thetas[0][name].tobytes() == thetas[1][name].tobytes() for name in THETA)
    sums = [np.float64(shifted(by)["params/a"]) for by in (1e5, 0.1, -1e5)]
    assert np.array_equal(thetas[0]["params/a"], np.float32((sums[0] + sums[1] + sums[2]) / 3))


BAD: list[tuple[RecordDict, str]] = [
    (update({"params/a": THETA["params/a"]}), "`b` is missing"),
    (update({**THETA, "params/w": np.zeros(2, np.float32)}), "`w` is not expected"),
    (update({**THETA, "params/w": np.zeros(100_000, np.float32)}), "bytes, more than"),
    (update({**THETA, "params/b": np.ones((2, 2), np.float32)}), "`b` has shape `[2, 2]` instead of [4]"),
    (update({**THETA, "params/b": np.full(4, np.inf, np.float32)}), "`b` holds the value `inf`"),
    (update({**THETA, "params/b": np.full(4, np.nan, np.float32)}), "`b` holds the value `NaN`"),
    (update({**THETA, "params/b": np.full(4, 1e30, np.float32)}), "`b` holds the value `1e30`"),
    (update({**THETA, "statistics/n.variance": np.full(2, -1, np.float32)}), "`n.variance` holds the value `-1e0`"),
    (update(shifted(50.0)), "distance from the weights that were sent out"),
    (update(THETA, samples=10**400), "number out of range"),
    (update(THETA, samples=0), "`samples` is `0`"),
    (update(THETA, samples=-3), "invalid value: integer `-3`"),
    (update(THETA, samples="many"), 'invalid type: string "many"'),
    (update(THETA, gap=nan), "its header is damaged"),
    (update(THETA, gap=None), "invalid type: null"),
    (update(THETA, descent={}), "missing field `steps`"),
    (update(THETA, reply="scores"), "unknown field"),
    (scores(5), "it was asked to `train` and replied with `scores`"),
    (RecordDict(), "it has no `header`"),
]


@pytest.mark.hostile
@pytest.mark.parametrize(("reply", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_a_bad_update_is_left_out_and_its_client_named(tmp_path: Path, reply: RecordDict, reason: str) -> None:
    """The round continues with the others; the client and the reason are logged, in the journals and in the summary."""
    grid = grid_of(
        honest(1.0), lambda message: reply if message.metadata.message_type == "train" else scores(5), honest(3.0)
    )
    server = FakeServer(write_app(tmp_path / "app", 3), grid, minimum=0.5, bound=10.0)
    theta = server.run()
    assert np.array_equal(theta["params/a"], shifted(2.0)["params/a"])
    (line,) = server.lines("rounds.jsonl")
    (failure,) = server.lines("failures.jsonl")
    assert (line["cohort"], [dropped["client"] for dropped in line["dropped"]]) == ([0, 2], [1])
    assert reason in failure["reason"], failure
    assert failure == {"round": 0, "task": "train", **line["dropped"][0]}
    assert f"client 1: {failure['reason']}" in server.log
    assert json.loads((server.folder / "summary.json").read_text())["dropped"] == {"1": 1}


def test_a_round_without_quorum_names_who_failed_and_changes_nothing(tmp_path: Path) -> None:
    """Two of three must reply; one does, one refuses, one does not reply."""
    refusal = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "no state")
    grid = grid_of(honest(1.0), lambda _: refusal, lambda _: None)
    server = FakeServer(write_app(tmp_path / "app", 3), grid, minimum=0.6, deadline=40.0)
    problem = r"1 of 3 clients .* round 1 \(client 1: no state; client 2: no reply in 40 s\)"
    with pytest.raises(FedeqError, match=problem):
        server.run()
    assert server.state == "failed"
    assert last_manifest(server.folder)["round"] == 0
    assert [line["client"] for line in server.lines("failures.jsonl")] == [1, 2]


def test_a_client_that_is_too_late_is_left_out_if_enough_others_reply(tmp_path: Path) -> None:
    """The deadline passes once for training and once for the evaluation."""
    grid = grid_of(honest(1.0), lambda _: None)
    server = FakeServer(write_app(tmp_path / "app", 2), grid, minimum=0.5, deadline=40.0)
    server.run()
    (evaluation,) = server.lines("evaluations.jsonl")
    assert evaluation["local"]["clients"] == [0.5, None]
    waits = 2 * 40.0
    assert grid.now == pytest.approx(waits, abs=5.0)


def test_a_message_that_is_lost_is_sent_again(tmp_path: Path) -> None:
    """A node receives only every third request."""
    received = []

    def unreliable(message: Message) -> RecordDict | Error | None:
        received.append(message)
        return honest(1.0)(message) if len(received) % 3 == 0 else None

    grid = grid_of(unreliable)
    theta = FakeServer(write_app(tmp_path / "app", 1), grid, repeat=5.0).run()
    assert np.array_equal(theta["params/a"], shifted(1.0)["params/a"])
    headers = [message.content.config_records["fedeq"]["header"] for message in received]
    assert headers[0] == headers[1] == headers[2] != headers[3]


@pytest.mark.hostile
def test_a_client_does_not_come_back_with_another_key(tmp_path: Path) -> None:
    """Its node goes offline, and a node with a fresh key says that it is the client: it is not asked for anything."""
    grid = FakeGrid({})

    def leaving(message: Message) -> RecordDict | Error | None:
        del message
        grid.nodes = {200: client(0, honest(9.0)), 101: client(1, honest(1.0))}
        return Error(ErrorCode.NODE_UNAVAILABLE, "offline")

    grid.nodes = {100: client(0, leaving), 101: client(1, honest(1.0))}
    server = FakeServer(write_app(tmp_path / "app", 2), grid, minimum=0.5, deadline=40.0)
    theta = server.run()
    assert np.array_equal(theta["params/a"], shifted(1.0)["params/a"])
    assert all(kind == "query" for node, kind in grid.asked if node == 200)  # noqa: PLR2004
    refused = [line for line in server.lines("failures.jsonl") if "node" in line]
    assert [(line["node"], line["client"]) for line in refused] == [("200", 0)]
    assert "belongs to the key" in refused[0]["reason"]
    # The same holds for the next process.
    assert json.loads((server.folder / "nodes.json").read_text()) == {"0": "node 100", "1": "node 101"}


FORGERIES: dict[str, Callable[[Message], Message]] = {
    "an update": lambda reply: Message(update(shifted(99.0)), reply_to=reply),
    "a refusal": lambda reply: Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "no"), reply_to=reply),
    "an absence": lambda reply: Message(Error(ErrorCode.NODE_UNAVAILABLE, "offline"), reply_to=reply),
}


@pytest.mark.hostile
@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_a_reply_in_the_name_of_another_node_does_not_count(
    tmp_path: Path, forge: Callable[[Message], Message]
) -> None:
    """Node 101 replies to every message that node 100 was sent, before node 100 and twice: a refusal counts then."""
    grid = grid_of(honest(1.0), honest(3.0))
    genuine = grid.pull_messages
    forged = []

    def pull(message_ids: Iterable[str]) -> list[Message]:
        replies = list(genuine(message_ids))
        for reply in list(replies):
            if reply.metadata.src_node_id == 100 and not reply.metadata.message_type.startswith("query"):  # noqa: PLR2004
                forgery = forge(reply)
                forgery.metadata.__dict__["_src_node_id"] = 101
                forgery.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
                forged.append(forgery)
                replies[:0] = [forgery, forgery]
        return replies

    grid.pull_messages = pull  # type: ignore[method-assign]
    theta = FakeServer(write_app(tmp_path / "app", 2), grid).run()
    assert np.array_equal(theta["params/a"], shifted(2.0)["params/a"])
    assert forged
    # It was not taken for offline, and asked who it is once more.
    assert grid.asked.count((100, "query")) == 1


@pytest.mark.hostile
def test_a_reply_that_is_sent_twice_counts_once(tmp_path: Path) -> None:
    """Also in a later round, in which it would be the reply of the round before."""
    grid = grid_of(honest(1.0), honest(3.0))
    genuine = grid.pull_messages
    seen: list[Message] = []

    def pull(message_ids: Iterable[str]) -> list[Message]:
        replies = list(genuine(message_ids))
        repeated = [*seen, *replies, *replies]
        seen.extend(replies)
        return repeated

    grid.pull_messages = pull  # type: ignore[method-assign]
    server = FakeServer(write_app(tmp_path / "app", 2, 3), grid)
    theta = server.run()
    assert np.array_equal(theta["params/a"], shifted(2.0)["params/a"])
    assert [line["cohort"] for line in server.lines("rounds.jsonl")] == [[0, 1]] * 3


def test_a_run_begins_without_missing_nodes_if_enough_are_online(tmp_path: Path) -> None:
    """Client 2 has no node, and there is no client 7."""
    grid = grid_of(honest(1.0), honest(1.0))
    grid.nodes[300] = client(7, honest(1.0))
    FakeServer(write_app(tmp_path / "app", 3), grid, minimum=0.6, patience=30.0, deadline=20.0).run()
    with pytest.raises(FedeqError, match=r"2 of 3 .*client 2: no node in 30 s"):
        FakeServer(write_app(tmp_path / "other", 3), grid, patience=30.0).run()


def test_a_run_continues_from_its_checkpoint(tmp_path: Path) -> None:
    """The third round fails twice; the next run begins with the checkpoint of the second."""
    trained = []

    def failing(message: Message) -> RecordDict | Error | None:
        if message.metadata.message_type != "train":
            return scores(5)
        trained.append(json.loads(str(message.content.config_records["fedeq"]["header"]))["round"])
        return Error(2, "broken") if len(trained) in {3, 4} else update(shifted(len(trained)))

    server = FakeServer(write_app(tmp_path / "app", 1, 3), grid_of(failing))
    with pytest.raises(FedeqError, match="client 0: broken"):
        server.run()
    with (server.folder / "rounds.jsonl").open("a") as file:
        file.write('{"round": 2, "half a li')
    assert Federation(server.folder).round == 2  # noqa: PLR2004
    assert np.array_equal(theta_of(server.folder)["params/a"], shifted(2)["params/a"])
    server.run()
    assert trained == [0, 1, 2, 2, 2]
    assert [line["round"] for line in server.lines("rounds.jsonl")] == [0, 1, 2]
    assert server.state == "finished"
    # A run that is finished needs no node.
    FakeServer(server.folder, FakeGrid({})).run()


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    """The run does not start over silently."""
    server = FakeServer(write_app(tmp_path / "app", 1), grid_of(honest(1.0)))
    server.run()
    path = server.folder / "checkpoints" / last_manifest(server.folder)["server"]
    path.write_bytes(path.read_bytes()[:-4] + b"abcd")
    with pytest.raises(FedeqError, match=r"its content does not match its name\nhint: "):
        Federation(server.folder)
    path.unlink()
    with pytest.raises(FedeqError, match="cannot be read"):
        Federation(server.folder)


def test_two_processes_cannot_use_one_folder(tmp_path: Path) -> None:
    """The second one fails, until the first one has ended."""
    folder = write_app(tmp_path / "app", 1)
    first = Federation(folder)
    with pytest.raises(FedeqError, match="is being worked on by"):
        Federation(folder)
    del first
    Federation(folder)


def test_a_run_stops_on_a_command(tmp_path: Path) -> None:
    """The dashboard writes it to a file; the round under way is done again."""
    folder = write_app(tmp_path / "app", 1, 2)
    rounds = []

    def stopping(message: Message) -> RecordDict | Error | None:
        header = json.loads(str(message.content.config_records["fedeq"]["header"]))
        rounds.append(header["round"])
        if header["round"] == 1 and len(rounds) == 2:  # noqa: PLR2004
            (folder / "control.json").write_text('{"order": "stop"}')
            return None
        return honest(1.0)(message)

    # It waits in vain, in real time: nothing is received.
    grid = grid_of(stopping)
    server = FakeServer(folder, grid, listener=RealTime(grid), deadline=30.0)
    with pytest.raises(Stopped, match="stopped before the work was done"):
        server.run()
    assert server.state == "stopped"
    assert last_manifest(folder)["round"] == 1
    server.listener = None
    server.run()
    assert server.state == "finished"


class RealTime:
    """A listener that waits in real time."""

    def __init__(self, grid: FakeGrid) -> None:
        """Listen to a grid."""
        self._grid = grid

    def receive(self, messages: Iterable[str], seconds: float) -> list[Message]:
        """Give what is there."""
        received = list(self._grid.pull_messages(messages))
        if not received:
            threading.Event().wait(min(seconds, 0.05))
        return received


@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_exception_while_waiting_keeps_the_rounds_that_are_over(
    tmp_path: Path, exception: type[BaseException]
) -> None:
    """An interrupt stops the run, an error fails it; either goes through, and the run continues from its checkpoint."""
    raised: list[Message] = []

    def interrupted(message: Message) -> RecordDict | Error | None:
        if json.loads(str(message.content.config_records["fedeq"]["header"]))["round"] == 1 and not raised:
            raised.append(message)
            raise exception
        return honest(1.0)(message)

    server = FakeServer(write_app(tmp_path / "app", 1, 2), grid_of(interrupted))
    with pytest.raises(exception):
        server.run()
    assert server.state == ("failed" if exception is ValueError else "stopped")
    assert [line["round"] for line in server.lines("rounds.jsonl")] == [0]
    server.run()
    assert server.state == "finished"


def test_a_folder_without_a_plan_is_refused(tmp_path: Path) -> None:
    """The error says what to do."""
    with pytest.raises(FedeqError, match=r"has no `plan.json`\nhint: .*init-federation"):
        Federation(tmp_path)


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, nan])
def test_a_share_that_means_nothing_is_refused(tmp_path: Path, share: float) -> None:
    """Before anybody is asked for anything."""
    with pytest.raises(FedeqError, match="the share of clients that must reply"):
        FakeServer(write_app(tmp_path / "app", 1), grid_of(honest(1.0)), minimum=share).run()


@pytest.mark.hostile
def test_of_two_nodes_of_one_client_the_first_one_counts(tmp_path: Path) -> None:
    """The other one is in the journal."""
    nodes: dict[int, Node] = {100: client(0, honest(1.0)), 101: client(0, honest(9.0)), 102: client(1, honest(1.0))}
    server = FakeServer(write_app(tmp_path / "app", 2), FakeGrid(nodes))
    theta = server.run()
    assert np.array_equal(theta["params/a"], shifted(1.0)["params/a"])
    assert [(line["node"], line["client"]) for line in server.lines("failures.jsonl")] == [("101", 0)]


def test_a_federation_that_an_earlier_version_began_continues(tmp_path: Path) -> None:
    """It kept `theta` and a note beside the plan."""
    folder = write_app(tmp_path / "app", 1, 2)
    server = FakeServer(folder, grid_of(honest(1.0)))
    server.run()
    assert server.state == "finished"
    # What the earlier version would have left after the first round.
    manifest = last_manifest(folder)
    theta = (folder / "checkpoints" / manifest["server"]).read_bytes()
    for path in (folder / "checkpoints").iterdir():
        path.unlink()
    (folder / "summary.json").unlink()
    (folder / "metrics.csv").unlink()
    (folder / "theta-1.safetensors").write_bytes(theta)
    name = manifest["server"].removeprefix("server-").removesuffix(".safetensors")
    note = {"done": 1, "theta": name, "traffic": {"up": 7, "down": 8}}
    (folder / "checkpoint.json").write_text(json.dumps(note))
    assert Federation(folder).round == 1
    assert not (folder / "checkpoint.json").exists()
    server.run()
    lines = server.lines("rounds.jsonl")
    assert [line["round"] for line in lines] == [0, 1]
    assert lines[1]["traffic"]["up"] == 7 + lines[1]["sent"]["up"]
