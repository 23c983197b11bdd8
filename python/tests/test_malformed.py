"""Malformed replies are read or rejected, and the run continues."""

import json
import math
import random
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedeq.flower.directory import Directory
from fedeq.flower.listener import BackgroundListener
from fedeq.flower.messages import shorten
from fedeq.flower.registry import Registry
from tests.harness.fake import THETA, FakeGrid, FakeServer, client, honest, scores, shifted, update, write_app

pytestmark = pytest.mark.hostile

# JSON values that are invalid at some place of a header, as text.
NASTY: list[str] = [
    str(10**400),
    "-" + str(10**400),
    "1" * 5000,
    "1e999",
    "-1e999",
    "NaN",
    "Infinity",
    "-1",
    "-0.5",
    "1.5",
    "1e308",
    "true",
    "null",
    "[]",
    "{}",
    '""',
    '"12"',
    '"many"',
    json.dumps("x" * 100_000),
    json.dumps("\x1b[2J\n\r\u202e"),
    "[" * 100_000 + "]" * 100_000,
    '{"a":' * 50_000 + "1" + "}" * 50_000,
    "[1,2,3]",
    '{"solve":1}',
]
# Texts that are not a header at all.
BROKEN = ["", "{", "[]", "3", "null", '"update"', "x" * 2_000_000, "[" * 200_000, '{"reply":["update"]}', "\x00"]
PLACEHOLDER = "@"


def header_of(content: RecordDict) -> dict[str, Any]:
    """Read the header of a valid reply."""
    header: dict[str, Any] = json.loads(str(content.config_records["fedeq"]["header"]))
    return header


def paths(value: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Give the paths of all values."""
    inner = (
        [way for name, part in value.items() for way in paths(part, (*path, name))] if isinstance(value, dict) else []
    )
    return [*([path] if path else []), *inner]


def changed(content: RecordDict, path: tuple[str, ...], raw: str | None) -> RecordDict:
    """Replace a value of the header by raw JSON, or remove it."""
    header = header_of(content)
    *way, last = path
    part = header
    for name in way:
        part = part[name]
    if raw is None:
        del part[last]
    else:
        part[last] = PLACEHOLDER
    return with_header(content, json.dumps(header).replace(json.dumps(PLACEHOLDER), raw or ""))


def with_header(content: RecordDict, header: str) -> RecordDict:
    """Replace the header of a reply."""
    settings = ConfigRecord({**content.config_records["fedeq"], "header": header})
    return RecordDict({**content.array_records, "fedeq": settings})


def with_layout(layout: str) -> RecordDict:
    """Replace the layout of an update."""
    content = update(THETA)
    return RecordDict(
        {**content.array_records, "fedeq": ConfigRecord({**content.config_records["fedeq"], "layout": layout})}
    )


def with_array(array: Array) -> RecordDict:
    """Replace the array of an update."""
    return RecordDict({"weights": ArrayRecord({"packed": array}), "fedeq": update(THETA).config_records["fedeq"]})


def raw_array(data: bytes, stype: str = "numpy.ndarray") -> Array:
    """Make an array of raw bytes."""
    return Array(dtype="float32", shape=(12,), stype=stype, data=data)


def npy(header: str, data: bytes = b"") -> bytes:
    """Write an array with any header."""
    head = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + data


def saved(array: np.ndarray[Any, Any]) -> bytes:
    """Write an array as numpy does."""
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def archive() -> bytes:
    """Write an archive, which `numpy.load` would read."""
    file = BytesIO()
    np.savez_compressed(file, packed=np.zeros(12, np.float32))
    return file.getvalue()


F4 = "{'descr': '<f4', 'fortran_order': False, 'shape': "
ARRAYS: list[Array] = [
    raw_array(b""),
    raw_array(b"\x93NUMPY"),
    raw_array(archive()),
    raw_array(npy(F4 + "(10**12,), }")),
    raw_array(npy(F4 + f"({10**12},), }}")),
    raw_array(npy(F4 + "(-1,), }")),
    raw_array(npy(F4 + "(12,), }", bytes(47))),
    raw_array(npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", bytes(8))),
    raw_array(npy("[" * 10_000)),
    raw_array(saved(np.zeros((2, 6), np.float32))),
    raw_array(saved(np.zeros(12, np.float64))),
    raw_array(saved(np.zeros(12, ">f4"))),
    raw_array(saved(np.zeros(1_000_000, np.float32))),
    raw_array(saved(np.full(12, np.nan, np.float32))),
    raw_array(saved(np.full(12, np.inf, np.float32))),
]
LAYOUTS = [
    "",
    "{}",
    "null",
    "[" * 100_000,
    *(
        f'[["params/a",[2,3]],{b},["statistics/n.variance",[2]]]'
        for b in (
            '["params/b",["4"]]',
            '["params/b",[-1]]',
            '["params/b",[4.0]]',
            '["params/b",[true,4]]',
            '["params/a",[4]]',
            f'["params/b",[{10**400}]]',
            json.dumps(["params/b", [4] + [1] * 1000]),
            '["params/b",4]',
            "[1,[4]]",
            '["params/b",[4],1]',
            '["params/b",[2,2]]',
        )
    ),
]
MISSING: list[RecordDict] = [
    RecordDict(),
    RecordDict({"fedeq": ConfigRecord({})}),
    RecordDict({"fedeq": ConfigRecord({"header": 12})}),
    RecordDict({"fedeq": MetricRecord({"header": 12})}),
    RecordDict({"fedeq": ConfigRecord({"header": b"\xff\xfe"})}),
    RecordDict({"fedeq": ConfigRecord({"header": ["{", "}"]})}),
    RecordDict({"fedeq": update(THETA).config_records["fedeq"]}),
    RecordDict({"weights": update(THETA).array_records["weights"]}),
    RecordDict({"weights": ArrayRecord({}), "fedeq": update(THETA).config_records["fedeq"]}),
]


def malformed_updates() -> list[RecordDict]:
    """Give updates that are each invalid in one place."""
    good = update(THETA)
    values = [changed(good, path, raw) for path in paths(header_of(good)) for raw in (*NASTY, None)]
    headers = [with_header(good, header) for header in BROKEN]
    layouts = [with_layout(layout) for layout in LAYOUTS]
    return [*values, *headers, *layouts, *map(with_array, ARRAYS), *MISSING]


def malformed_scores() -> list[RecordDict]:
    """Give scores that are each invalid in one place."""
    good = scores(5)
    header = header_of(good)
    header["scores"]["theory"] = {"lagrangian": 1.0, "stationarity": 1.0, "head_gradient": 1.0}
    good = with_header(good, json.dumps(header))
    values = [changed(good, path, raw) for path in paths(header) for raw in (*NASTY, None)]
    return [*values, *(with_header(good, broken) for broken in BROKEN), *MISSING]


@pytest.mark.parametrize(
    "value", [10**18, 3, -1, 1.0, 1e300, math.inf, math.nan, "7", "", b"7", True, [7], [1.5], ["7"]], ids=repr
)
def test_a_node_must_say_which_client_it_is_by_a_whole_number(value: Any, tmp_path: Path) -> None:  # noqa: ANN401
    """Anything else is no client, and is not asked again."""
    grid = FakeGrid({100: lambda _: RecordDict({"fedeq": ConfigRecord({"client": value})})})
    directory = Directory(grid, Registry(tmp_path / "nodes.json"), 3, grid.clock)
    directory.ask_new_nodes()
    for reply in grid.pull_messages(directory.pending):
        directory.receive(reply)
    grid.now += 1000.0
    directory.ask_new_nodes()
    assert directory.nodes == {}
    assert len(grid.asked) == 1
    assert not (tmp_path / "nodes.json").exists()


def nonsense(chance: random.Random, depth: int = 0) -> str:
    """Make random JSON, or something like it."""
    kind = chance.randrange(8)
    if kind == 0 and depth < 4:  # noqa: PLR2004
        return "[" + ",".join(nonsense(chance, depth + 1) for _ in range(chance.randrange(4))) + "]"
    if kind == 1 and depth < 4:  # noqa: PLR2004
        names = chance.choices(
            ["reply", "samples", "gap", "descent", "loss", "solve", "", "\u202e"], k=chance.randrange(4)
        )
        return "{" + ",".join(f"{json.dumps(name)}:{nonsense(chance, depth + 1)}" for name in names) + "}"
    if kind == 2:  # noqa: PLR2004
        return str(chance.getrandbits(chance.choice([1, 8, 64, 2000])))
    return chance.choice(NASTY)


def mutated(chance: random.Random, text: str) -> str:
    """Change some characters of a text."""
    place, length = chance.randrange(len(text)), chance.randrange(12)
    inserted = "".join(chance.choice('0123456789eE-+.{}[]",: \x00naN') for _ in range(chance.randrange(12)))
    return text[:place] + inserted + text[place + length :]


def random_updates(seed: int, amount: int) -> list[RecordDict]:
    """Make random replies: several invalid values at once, changed texts, changed bytes."""
    chance = random.Random(seed)  # noqa: S311 (no secret)
    good = update(THETA)
    ways = [path for path in paths(header_of(good)) if len(path) == 2]  # noqa: PLR2004
    data = good.array_records["weights"]["packed"].data
    layout = str(good.config_records["fedeq"]["layout"])
    contents: list[RecordDict] = []
    while len(contents) < amount:
        several = good
        for path in chance.sample(ways, 2):
            several = changed(several, path, nonsense(chance)) if len(str(several)) < 10**6 else several
            if not is_json(several):
                break
        changed_bytes = bytearray(data)
        changed_bytes[chance.randrange(len(data))] = chance.randrange(256)
        contents += [
            several,
            with_header(good, mutated(chance, str(good.config_records["fedeq"]["header"]))),
            with_layout(mutated(chance, layout)),
            with_array(raw_array(bytes(changed_bytes))),
            with_header(good, nonsense(chance)),
        ]
    return contents


def is_json(content: RecordDict) -> bool:
    """Whether the header can still be changed value by value."""
    try:
        header_of(content)
    except (ValueError, RecursionError):
        return False
    return True


def some(cases: list[RecordDict], amount: int) -> list[RecordDict]:
    """Select cases evenly."""
    return cases[:: max(1, len(cases) // amount)]


def assert_survives(folder: Path, updates: list[RecordDict], evaluations: list[RecordDict]) -> FakeServer:
    """Run a round for every case of client 1; the run goes on, and all that is written can be read."""
    replies = {"train": iter(updates), "evaluate": iter(evaluations * (2 + 2 * len(updates) // len(evaluations)))}

    def malicious(message: Message) -> RecordDict | Error | None:
        return next(replies[message.metadata.message_type])

    app = write_app(folder, 3, len(updates), "plan.evaluate_every=1", "method.weighting=samples")
    grid = FakeGrid({100: client(0, honest(1.0)), 101: client(1, malicious), 102: client(2, honest(3.0))})
    server = FakeServer(app, grid, minimum=0.5, deadline=40.0)
    server.run()
    for journal in ("rounds.jsonl", "evaluations.jsonl", "timings.jsonl"):
        assert len(server.lines(journal)) == len(updates)
    json.loads((app / "summary.json").read_text(), parse_constant=pytest.fail)
    for failure in server.lines("failures.jsonl"):
        assert failure["client"] == 1, failure
        assert len(failure["reason"]) < 300, failure  # noqa: PLR2004
        assert failure["reason"].isprintable()
        assert f"client 1: {failure['reason']}" in server.log
    for line in server.lines("rounds.jsonl"):
        # What was accepted is a number like any other.
        assert line["cohort"] in ([0, 2], [0, 1, 2])
        assert line["loss"] >= 0.0
    return server


def test_a_run_continues_whatever_one_client_replies(tmp_path: Path) -> None:
    """Most cases are rejected; some values are unusual but valid."""
    updates, evaluations = some(malformed_updates(), 150), some(malformed_scores(), 100)
    server = assert_survives(tmp_path / "app", updates, evaluations)
    dropped = [line["round"] for line in server.lines("rounds.jsonl") if "dropped" in line]
    assert len(dropped) > 0.8 * len(updates)
    assert sum("dropped" in line for line in server.lines("evaluations.jsonl")) > 0.6 * len(updates)


def test_a_run_continues_whatever_nonsense_one_client_replies(tmp_path: Path) -> None:
    """Random replies."""
    assert_survives(tmp_path / "app", random_updates(1, 150), [scores(5)])


def test_texts_from_outside_are_shown_in_one_short_line() -> None:
    """Logs stay readable."""
    assert shorten("a\nb\x1b[2J") == "a b [2J"
    assert len(shorten("x" * 10**6)) < 250  # noqa: PLR2004
    assert shorten(10**5000) == "int that cannot be shown"


class FailingGrid(FakeGrid):
    """A grid that fails like Flower's on the replies of some nodes, and loses the others that it had fetched."""

    unreadable: frozenset[int] = frozenset()

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Fail, if such a reply is among those asked for."""
        replies = list(super().pull_messages(message_ids))
        if any(reply.metadata.src_node_id in self.unreadable for reply in replies):
            message = "Unexpected set of `children`."
            raise ValueError(message)
        return replies


def test_a_reply_that_flower_cannot_read_is_a_failure_of_its_node(tmp_path: Path) -> None:
    """The other replies are received, and the run continues with them."""
    nodes = {100 + number: client(number, honest(float(number))) for number in range(3)}
    grid = FailingGrid(nodes)
    folder = write_app(tmp_path / "app", 3, 2)
    server = FakeServer(folder, grid, minimum=0.5, deadline=20.0, repeat=1.0, patience=20.0)
    server.listener = BackgroundListener(grid)
    trained = grid.nodes[101]

    def late(message: Message) -> RecordDict | Error | None:
        if message.metadata.message_type != "query":
            grid.unreadable = frozenset({101})
        return trained(message)

    grid.nodes[101] = late
    theta = server.run()
    assert np.array_equal(theta["params/a"], shifted(1.0)["params/a"])
    failures = server.lines("failures.jsonl")
    assert {line["client"] for line in failures} == {1}
    assert all("cannot be read: ValueError" in line["reason"] for line in failures)
