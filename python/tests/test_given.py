"""What cannot be read, written or understood is refused in our words, with a hint."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedeq
from fedeq import _given

WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: _given.whole(-1, "seed"), "`seed` is `-1`"),
    (lambda: _given.whole(1 << 64, "seed"), "`seed` is `18446744073709551616`"),
    (lambda: _given.whole(0.5, "seed"), "`seed` is `0.5`"),
    (lambda: _given.whole(True, "seed"), "`seed` is `True`"),  # noqa: FBT003 (that is the point)
    (lambda: _given.as_json(3, "task", "{}"), "`task` is of the type `int`"),
    (lambda: _given.as_json({"classes": object()}, "task", "{}"), "`task` has what no file can: .*object"),
]


@pytest.mark.parametrize(("ask", "words"), WRONG)
def test_what_is_of_the_wrong_kind_is_refused_by_its_name(ask: Callable[[], object], words: str) -> None:
    """Numbers, and what becomes JSON."""
    with pytest.raises(fedeq.Refused, match=rf"{words}.*\nhint: .") as refused:
        ask()
    assert str(refused.value).count("\n") == 1


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Where there is no folder, and where there is one in its place."""
    figure = fedeq.Figure("<svg/>", b"")
    (tmp_path / "taken.svg").mkdir()
    for path in (tmp_path / "nowhere" / "loss.svg", tmp_path / "taken.svg"):
        with pytest.raises(fedeq.Refused, match=r"`.*\.svg`: cannot write to it: .*\nhint: check that `.*` exists"):
            figure.save(path)


def test_a_full_disk_is_nothing_that_was_wrong_with_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is no refusal."""

    def write_bytes(*_: Any) -> int:  # noqa: ANN401
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    with pytest.raises(fedeq.FedeqError, match="the disk is full\nhint: free some space") as raised:
        fedeq.Figure("<svg/>", b"").save("loss.svg")
    assert not isinstance(raised.value, fedeq.Refused)


def test_what_a_federation_is_started_with_is_refused_by_name() -> None:
    """As `flwr run --run-config` gives it."""
    app = pytest.importorskip("fedeq.flower.app", reason="Flower is not installed")
    assert app.number_of({"deadline": 30}, "deadline") == 30.0  # noqa: PLR2004
    for given in ("soon", -1.0, float("nan"), True, None):
        with pytest.raises(fedeq.Refused, match=rf"`deadline` is `{given}`\nhint: give a number of at least 0"):
            app.number_of({"deadline": given}, "deadline")
    for config in ({}, {"folder": ""}):
        with pytest.raises(fedeq.Refused, match=r"`folder` is not set\nhint: .*--run-config"):
            app.folder_of(config)


@pytest.mark.parametrize(
    ("listing", "words"),
    [
        ("nothing", "is not what `fedeq export` writes: Expecting value"),
        ("[]", "is not what `fedeq export` writes: "),
        ("{}", "is not what `fedeq export` writes: it lacks 'clients'"),
        ('{"clients": []}', "is not what `fedeq export` writes: it names no client"),
        ('{"clients": [{"name": "ann"}]}', "is not what `fedeq export` writes: it lacks 'file'"),
        ('{"clients": [{"name": "ann", "file": "ann.safetensors"}]}', r"ann\.safetensors`: cannot read it: "),
    ],
)
def test_an_export_that_is_malformed_is_refused_by_its_file(listing: str, words: str, tmp_path: Path) -> None:
    """Whatever is wrong with the list of its clients."""
    network_file = pytest.importorskip("fedeq._network_file", reason="safetensors is not installed")
    (tmp_path / "export.json").write_text(listing)
    with pytest.raises(fedeq.Refused, match=rf"`{tmp_path}/.*{words}.*\nhint: ."):
        network_file.read(tmp_path)


@pytest.mark.parametrize(
    "notes",
    [
        {"network": "{}"},
        {"network": "3"},
        {"network": '{"parameters": [], "statistics": []}', "scaling": "{"},
        {"network": '{"parameters": [], "statistics": []}', "classes": "3"},
        {"network": '{"parameters": [{"path": "a", "shape": 3}], "statistics": []}'},
        3,
    ],
)
def test_a_file_that_says_nonsense_of_its_network_is_refused(notes: object) -> None:
    """Whatever it says."""
    network_file = pytest.importorskip("fedeq._network_file", reason="safetensors is not installed")
    numpy_files = pytest.importorskip("safetensors.numpy")
    content = numpy_files.save({"a": np.zeros(1, np.float32)}, metadata={"fedeq": json.dumps(notes)})
    with pytest.raises(fedeq.Refused, match=r"the bytes given .*\nhint: write it again with `fedeq export`"):
        network_file.read(content)
