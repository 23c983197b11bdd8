"""Own data from memory."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

import fedeq
import fedeq.data
from tests.harness.program import PROGRAM, REPOSITORY

Array = NDArray[Any]


def rows(count: int = 4, width: int = 2) -> Array:
    """Give rows of numbers."""
    return np.arange(count * width, dtype=np.float32).reshape(count, width)


def two(count: int = 4) -> Array:
    """Give labels of two classes."""
    return np.arange(count) % 2


def read(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read a file by another library."""
    size = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + size])
    return load_file(path), json.loads(header["__metadata__"]["fedeq"])


def test_rows_are_written_by_client_as_the_page_says(tmp_path: Path) -> None:
    """Read the file with another library."""
    path = tmp_path / "rows.safetensors"
    fedeq.data.save(path, {"bob": (rows(), ["oak", "elm", "oak", "elm"]), "ann": (rows(2), ["ash", "oak"])})
    arrays, notes = read(path)
    assert notes == {"clients": ["bob", "ann"], "classes": ["ash", "elm", "oak"]}
    assert np.array_equal(arrays["train/x"], np.concatenate([rows(), rows(2)]))
    assert arrays["train/y"].tolist() == [2, 1, 2, 1, 0, 2]
    assert arrays["train/client"].tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("dtype", [object, "<U3", np.dtypes.StringDType()])
def test_texts_of_any_type_are_classes(tmp_path: Path, dtype: Any) -> None:  # noqa: ANN401 (numpy has no type for types)
    """As numpy, pandas and lists have them."""
    path = tmp_path / "texts.safetensors"
    fedeq.data.save(path, {"ann": (rows(2), np.array(["oak", "elm"], dtype=dtype))})
    assert read(path)[1]["classes"] == ["elm", "oak"]


def test_what_is_given_for_testing_is_kept_apart(tmp_path: Path) -> None:
    """Give both parts of both clients."""
    path = tmp_path / "parts.safetensors"
    fedeq.data.save(path, {name: {"train": (rows(), two()), "test": (rows(2), two(2))} for name in "ab"})
    arrays, _ = read(path)
    assert arrays["test/client"].tolist() == [0, 0, 1, 1]
    assert arrays["train/x"].shape == (8, 2)


@pytest.mark.parametrize(
    "x",
    [
        np.full((2, 3, 3), 51, dtype=np.uint8),
        np.full((2, 3, 3, 1), 51, dtype=np.uint8),
        np.full((2, 3, 3), 0.2, dtype=np.float32),
        np.full((2, 3, 3), 0.2),
        np.full((2, 3, 3), 0.2, dtype=">f8"),
        np.full((2, 3, 3), 0.2).astype(np.dtype("f8").newbyteorder("<")),
        np.full((4, 3, 3), 51, dtype=np.uint8)[::2],
        np.full((2, 3, 3, 1), 51, dtype=np.uint8).transpose(0, 2, 1, 3),
    ],
)
def test_pictures_are_bytes_however_they_lie_in_memory(tmp_path: Path, x: Array) -> None:
    """51 of 255 is a fifth."""
    path = tmp_path / "pictures.safetensors"
    fedeq.data.save(path, {"a": (x, two(2))})
    assert np.array_equal(read(path)[0]["train/x"], np.full((2, 3, 3, 1), 51, dtype=np.uint8))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_of_any_size_are_labels_and_tokens(tmp_path: Path, dtype: str) -> None:
    """Their values count, not their type."""
    path = tmp_path / "tokens.safetensors"
    tokens = np.array([[1, 2, 3, 0], [3, 2, 1, 2]], dtype=dtype)
    x, y = tokens[:, :-1].copy(), tokens[:, 1:]
    x[y == 0] = 0
    fedeq.data.save(path, {"a": (x, y)})
    assert read(path)[1] == {"clients": ["a"], "vocabulary": 4}
    fedeq.data.save(path, {"a": (rows(2), np.array([5, 7], dtype=dtype))})
    assert read(path)[1]["classes"] == ["5", "7"]


REFUSALS: list[tuple[Callable[[], object], list[str]]] = [
    (lambda: [(rows(), two())], ["of the type `list`"]),
    (dict, ["no clients"]),
    (lambda: {0: (rows(), two())}, ["client `0`", "`int`", "client-"]),
    (lambda: {"": (rows(), two())}, ["no name"]),
    (lambda: {" ann": (rows(), two())}, ["client ` ann`", "space"]),
    (lambda: {"a\nb": (rows(), two())}, ["control characters"]),
    (lambda: {"ann": rows()}, ["client `ann`", "no pair"]),
    (lambda: {"ann": (rows(), two(), two())}, ["client `ann`", "no pair"]),
    (lambda: {"ann": {"validation": (rows(), two())}}, ["client `ann`", "`validation`", "data.split.validation"]),
    (lambda: {"ann": {"test": (rows(), two())}}, ["none to learn from"]),
    (lambda: {"ann": {"train": (rows(), two()), "test": (rows(), two())}, "bob": (rows(), two())}, ["`bob`", "`test`"]),
    (lambda: {"ann": (rows(), two(3))}, ["client `ann`", "`y`", "`3` labels for `4` samples"]),
    (lambda: {"ann": (rows(0), two(0))}, ["client `ann`", "`x`", "no samples"]),
    (
        lambda: {"ann": (rows(), two()), "bob": (rows(4, 3), two())},
        ["client `bob`", "[N, 3]", "client `ann`", "[N, 2]"],
    ),
    (lambda: {"ann": (rows(), two()), "bob": (rows(), ["a"] * 4)}, ["client `bob`", "`y`", "strings"]),
    (lambda: {"ann": (rows() * np.nan, two())}, ["client `ann`", "`x`", "`NaN` in sample 0, feature 0"]),
    (lambda: {"ann": (np.full((1, 2), 1e39), two(1))}, ["client `ann`", "`x`", "32 bits"]),
    (lambda: {"ann": (rows().astype(complex), two())}, ["client `ann`", "`x`", "`complex128`"]),
    (lambda: {"ann": (rows() > 1, two())}, ["client `ann`", "`x`", "`bool`"]),
    (lambda: {"ann": (rows(), two() > 0)}, ["client `ann`", "`y`", "`bool`"]),
    (lambda: {"ann": (rows(), two() + 0.5)}, ["client `ann`", "`y`", "float64", "astype"]),
    (lambda: {"ann": (rows(), np.eye(4, dtype=int))}, ["client `ann`", "`y`", "argmax"]),
    (lambda: {"ann": (rows(), np.array([["a"]] * 4))}, ["client `ann`", "`y`", "[4, 1]"]),
    (lambda: {"ann": (rows(), np.array([1, "a", 2, "b"], dtype=object))}, ["client `ann`", "`y`", "`object`"]),
    (lambda: {"ann": ([[1.0], [1.0, 2.0]], two(2))}, ["client `ann`", "`x`", "no array"]),
    (lambda: {"ann": (rows(), np.zeros(4, dtype=int))}, ["class `0`", "nothing to predict"]),
    (lambda: {"ann": (rows().astype(int), two())}, ["client `ann`", "`y`", "tokens", "float32"]),
    (lambda: {"ann": (np.zeros((2, 3, 8, 8), dtype=np.uint8), two(2))}, ["client `ann`", "transpose(0, 2, 3, 1)"]),
    (lambda: {"ann": (np.full((2, 4, 4), 0.3), two(2))}, ["client `ann`", "`0.3` in sample 0", "uint8"]),
    (lambda: {"ann": (np.zeros((2, 4, 4), dtype=int), two(2))}, ["client `ann`", "integers", "uint8"]),
    (lambda: {"ann": (np.full((1, 2), 300), np.full((1, 2), 1))}, ["client `ann`", "`300`", "256"]),
    (lambda: {"ann": (np.array([[1, 2]]), np.array([[2, 0]]))}, ["client `ann`", "padding"]),
    (lambda: {"ann": (rows(), np.full(4, 2**64 - 1, dtype=np.uint64))}, ["client `ann`", "`y`", "2^63"]),
]


@pytest.mark.parametrize(("data", "words"), REFUSALS)
def test_what_does_not_fit_is_refused_by_client_and_array(
    tmp_path: Path, data: Callable[[], Any], words: list[str]
) -> None:
    """Every refusal says what to do, and leaves no file."""
    with pytest.raises(fedeq.Refused) as refusal:
        fedeq.data.save(tmp_path / "refused.safetensors", data())
    assert isinstance(refusal.value, ValueError)
    assert all(word in str(refusal.value) for word in [*words, "hint: "]), refusal.value
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Nothing is made on the way."""
    with pytest.raises(fedeq.Refused, match=r"missing/rows\.safetensors"):
        fedeq.data.save(tmp_path / "missing/rows.safetensors", {"ann": (rows(), two())})


def test_a_run_refuses_in_the_same_words(tmp_path: Path) -> None:
    """Nothing is trained, and no folder is made."""
    wrong = {"ann": (rows(), two()), "bob": (rows(4, 3), two())}
    with pytest.raises(fedeq.Refused, match="client `bob`"):
        fedeq.run(method="fedavg", data=wrong, out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def pictures() -> dict[str, Any]:
    """Give grey pictures of two classes to three clients."""
    rng = np.random.default_rng(0)
    y = np.arange(20) % 2
    drawn = {name: rng.integers(0, 100, (20, 6, 6)) + 100 * y[:, None, None] for name in ("ann", "bob", "cy")}
    return {name: (x.astype(np.uint8), y) for name, x in drawn.items()}


def sequences() -> dict[str, Any]:
    """Give tokens that count on to three clients."""
    tokens = (np.arange(7) + np.arange(20)[:, None]) % 5 + 1
    return dict.fromkeys(("ann", "bob", "cy"), (tokens[:, :-1], tokens[:, 1:]))


@pytest.mark.parametrize(
    ("data", "model", "source", "shape"),
    [
        (pictures(), "deq-resnet-xs", "image-arrays", (4,)),
        (sequences(), "transformer-4", "token-arrays", (4, 6)),
    ],
)
def test_a_run_learns_from_pictures_and_tokens_in_memory(
    tmp_path: Path,
    data: dict[str, Any],
    model: str,
    source: str,
    shape: tuple[int, ...],
) -> None:
    """As it does from the same arrays in a file, to the same numbers."""
    given: dict[str, Any] = {"method": "fedavg", "model": model, "rounds": 2, "progress": False}
    everybody = {"plan.sampling.fraction": 1, "training.epochs": 1}
    run = fedeq.run(**given, data=data, settings=everybody, out=tmp_path / "memory")
    assert run.config["data"]["source"]["name"] == source
    assert (run.folder / "data.safetensors").is_file()
    fedeq.data.save(tmp_path / "data.safetensors", data)
    other = fedeq.run(**given, data=tmp_path / "data.safetensors", settings=everybody, out=tmp_path / "file")
    assert run.metrics["train_loss"] == other.metrics["train_loss"]
    assert run.metrics["accuracy"] == other.metrics["accuracy"]
    client = run.client("bob")
    x, y = client.data()["test"]
    assert client.predict(x).shape == y.shape == shape
    assert (client.predict(x) == y).mean() == pytest.approx(run.clients[1]["shared_accuracy"])


def test_the_page_on_own_data_says_what_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run its programs and its commands, from top to bottom."""
    page = (REPOSITORY / "docs/own-data.md").read_text()
    steps = re.findall(r"```python\n(.*?)```|^    (fedeq .*?)$", page, flags=re.DOTALL | re.MULTILINE)
    assert len(steps) == 5, steps  # noqa: PLR2004 (three programs and two commands)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"fedeq": fedeq}
    for program, command in steps:
        if command:
            subprocess.run([str(PROGRAM), *command.split()[1:]], check=True, capture_output=True)  # noqa: S603
        else:
            exec(compile(program, "docs/own-data.md", "exec"), names)  # noqa: S102
    assert 0.0 <= (names["client"].predict(names["x"]) == names["y"]).mean() <= 1.0
