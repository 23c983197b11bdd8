"""The models of clients of finished runs."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

import fedeq
import fedeq.data
from fedeq.client import Client, Models
from tests.harness.program import fedeq as program

pytestmark = pytest.mark.federation

SMALL = (
    *("plan.rounds=2", "plan.sampling.fraction=1", "plan.evaluate_every=1"),
    *("training.epochs=1", "training.personal_epochs=1"),
)


def clients(count: int = 4) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Rows whose classes are apart, in features of very different sizes."""
    rng = np.random.default_rng(0)
    data = {}
    for client in range(count):
        y = np.arange(20) % 2
        x = rng.normal(size=(20, 3)) + 2 * y[:, None] + client
        data[f"client-{client}"] = (x * [1.0, 1000.0, 0.001], np.array(["elm", "oak"])[y])
    return data


def train(folder: Path, data: Path, *settings: str) -> Path:
    """Carry out a small run."""
    words = [word for setting in (*SMALL, *settings) for word in ("--set", setting)]
    program("run", "--data", data, "--out", folder, "--quiet", *words)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run that the tests share: nothing they do changes it."""
    folder = tmp_path_factory.mktemp("runs")
    fedeq.data.save(folder / "mine.safetensors", clients())
    return train(folder / "run", folder / "mine.safetensors", "model=deq-mlp")


def accuracy(client: Client) -> float:
    """Count what is right among the client's test samples."""
    x, y = client.data()["test"]
    return float((client.predict(x) == y).mean())


@pytest.mark.parametrize("method", ["fedeq", "fedavg", "fedrep", "knn-per", "ditto"])
def test_predictions_are_right_as_often_as_the_last_evaluation_says(run: Path, tmp_path: Path, method: str) -> None:
    """Some methods are evaluated by the local model, some by the shared one, and one lets neighbours vote."""
    folder = train(
        tmp_path / "run",
        run.parent / "mine.safetensors",
        "model=mlp" if method != "fedeq" else "model=deq-mlp",
        f"method={method}",
    )
    models = Models(folder)
    summary = json.loads((folder / "summary.json").read_text())
    found = [accuracy(models[name]) for name in models.names]
    evaluations = [
        summary["evaluation"][view]["clients"] for view in ("local", "shared") if summary["evaluation"].get(view)
    ]
    assert found in [pytest.approx(evaluation, abs=1e-12) for evaluation in evaluations]


def test_a_client_holds_what_it_was_given(run: Path) -> None:
    """All rows in their own units, none twice."""
    data = Models(run)["client-2"].data()
    x, y = clients()["client-2"]
    assert list(data) == ["train", "validation", "test"]
    assert sum(len(held) for held, _ in data.values()) == len(x)
    for held, labels in data.values():
        for row, label in zip(held, labels, strict=True):
            at = np.flatnonzero((x.astype(np.float32) == row).all(axis=1))
            assert len(at) == 1
            assert y[at[0]] == label


def test_predictions_are_the_largest_of_the_logits(run: Path) -> None:
    """One number a class, in the order of the classes."""
    client = Models(run)["client-0"]
    x, _ = clients()["client-0"]
    logits = client.logits(x)
    assert (logits.shape, str(logits.dtype)) == ((20, 2), "float32")
    assert client.classes is not None
    assert client.classes.tolist() == ["elm", "oak"]
    assert np.array_equal(client.predict(x), client.classes[logits.argmax(axis=1)])


def test_the_state_is_what_is_exported(run: Path, tmp_path: Path) -> None:
    """Name by name, and number by number."""
    program("export", run, "--out", tmp_path / "models")
    exported = load_file(tmp_path / "models/client-1.safetensors")
    state = Models(run)["client-1"].state_dict()
    assert state.keys() == exported.keys()
    assert all(np.array_equal(state[name], exported[name]) for name in state)
    next(iter(state.values()))[...] = 0.0  # It is the caller's own.


def test_tokens_are_predicted_at_every_position(tmp_path: Path) -> None:
    """Sequences that count on."""
    tokens = (np.arange(60 * 7).reshape(60, 7) + np.arange(60)[:, None]) % 5 + 1
    parts = {f"client-{number}": (tokens[number::3, :-1], tokens[number::3, 1:]) for number in range(3)}
    fedeq.data.save(tmp_path / "tokens.safetensors", parts)
    folder = train(tmp_path / "run", tmp_path / "tokens.safetensors", "model=transformer-4", "method=fedavg")
    client = Models(folder)["client-0"]
    x, y = client.data()["test"]
    assert client.predict(x).shape == y.shape == (4, 6)
    assert client.logits(x).shape == (4, 6, 6)
    summary = json.loads((folder / "summary.json").read_text())
    assert accuracy(client) in [
        pytest.approx(summary["evaluation"][view]["clients"][0])
        for view in ("local", "shared")
        if summary["evaluation"].get(view)
    ]


def test_integer_classes_come_back_as_integers(tmp_path: Path) -> None:
    """Also those that do not begin at 0."""
    data = {name: (np.random.default_rng(0).normal(size=(10, 2)), np.arange(10) % 2 * 7 - 3) for name in "ab"}
    fedeq.data.save(tmp_path / "mine.safetensors", data)
    models = Models(train(tmp_path / "run", tmp_path / "mine.safetensors", "model=mlp", "method=fedavg"))
    assert models.classes is not None
    assert models.classes.tolist() == [-3, 4]
    assert set(models["a"].data()["train"][1].tolist()) == {-3, 4}


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.zeros((2, 4)), ["`x`", "[N, 4]", "[N, 3]"]),
        (np.zeros(3), ["`x`", "shape `[3]`"]),
        (np.zeros((0, 3)), ["`x`", "no samples"]),
        (np.full((1, 3), np.inf), ["`x`", "`inf`"]),
        (np.zeros((2, 3), dtype=int), ["`x`", "sequences [N, 3] of integers", "rows [N, 3] of floats"]),
        (np.zeros((2, 3), dtype=bool), ["`x`", "`bool`"]),
        (np.zeros((2, 3, 3), dtype=np.uint8), ["`x`", "pictures [N, 3, 3, 1]"]),
    ],
)
def test_other_samples_than_those_learned_from_are_refused(run: Path, x: NDArray[Any], words: list[str]) -> None:
    """By the name `x`, with what was expected."""
    client = Models(run)["client-0"]
    for ask in (client.predict, client.logits):
        with pytest.raises(fedeq.Refused) as refusal:
            ask(x)
        assert all(word in str(refusal.value) for word in [*words, "hint: "]), refusal.value


def test_clients_and_runs_that_are_not_there_are_refused(run: Path, tmp_path: Path) -> None:
    """With what was perhaps meant."""
    with pytest.raises(fedeq.Refused, match=r"`client-9`(.|\n)*hint: "):
        Models(run)["client-9"]
    with pytest.raises(fedeq.Refused, match="such as `client-0`"):
        fedeq.Run(run).client(0)  # type: ignore[arg-type]
    with pytest.raises(fedeq.Refused, match="not a run folder"):
        Models(tmp_path)


def test_other_data_than_the_run_has_learned_from_is_refused(run: Path, tmp_path: Path) -> None:
    """The right file may lie elsewhere."""
    os.link(run.parent / "mine.safetensors", tmp_path / "moved.safetensors")
    assert Models(run, tmp_path / "moved.safetensors").names == list(clients())
    fedeq.data.save(tmp_path / "other.safetensors", clients(5))
    with pytest.raises(fedeq.Refused, match="not the data of the experiment"):
        Models(run, tmp_path / "other.safetensors")
