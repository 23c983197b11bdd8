"""Runs from Python: the same bytes as those of the command, clear refusals, clean stops."""
# ruff: noqa: PLR2004 (numbers of rounds and exit codes)

import contextlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedeq
import fedeq.data
from fedeq.client import Client, Models
from tests.harness.processes import until
from tests.harness.program import REPOSITORY, TIMEOUT
from tests.harness.program import fedeq as command

# Little work: five clients, a network of one layer.
SMALL: dict[str, Any] = {"method": "fedavg", "model": "linear", "data": "digits", "clients": 5, "progress": False}
TYPED = ["--method", "fedavg", "--model", "linear", "--set", "data=digits", "--clients", "5", "--quiet"]


def lasting(folder: Path) -> dict[str, bytes]:
    """Read what is the same for the same experiment, wherever and however often it was interrupted."""
    names = ["experiment.toml", "rounds.jsonl", "evaluations.jsonl", "metrics.csv", "clients.json"]
    states = [path for below in ("checkpoints", "clients") for path in sorted((folder / below).rglob("*.safetensors"))]
    assert states, "a finished run has models"
    return {str(path.relative_to(folder)): path.read_bytes() for path in [*(folder / name for name in names), *states]}


def test_a_run_has_the_bytes_of_the_command(tmp_path: Path) -> None:
    """Compare the folders of both."""
    run = fedeq.run(**SMALL, rounds=3, seed=7, settings={"plan.evaluate_every": 2}, out=tmp_path / "python")
    command(
        "run", *TYPED, "--rounds", "3", "--seed", "7", "--set", "plan.evaluate_every=2", "--out", tmp_path / "typed"
    )
    assert lasting(run.folder) == lasting(tmp_path / "typed")
    assert run.state == "finished"


def test_a_dictionary_and_a_file_say_the_same(tmp_path: Path) -> None:
    """Give an experiment in both ways, with a setting over it."""
    told = {"method": "fedavg", "model": "linear", "plan": {"rounds": 1}, "data": {"partition": {"clients": 5}}}
    file = tmp_path / "experiment.toml"
    file.write_text('method = "fedavg"\nmodel = "linear"\nplan.rounds = 1\ndata.partition.clients = 5\n')
    first = fedeq.run(told, seed=3, out=tmp_path / "first", progress=False)
    second = fedeq.run(file, settings={"seed": 3}, out=tmp_path / "second", progress=False)
    assert lasting(first.folder) == lasting(second.folder)
    assert first.config["seed"] == 3


def refusal(**given: Any) -> str:  # noqa: ANN401 (whatever is refused)
    """Give the words with which something is refused."""
    with pytest.raises(fedeq.Refused) as caught:
        fedeq.run(**given)
    return str(caught.value)


def test_what_makes_no_sense_is_refused_by_name_and_with_a_hint(tmp_path: Path) -> None:
    """Try all kinds of wrong input; nothing is left behind."""
    os.chdir(tmp_path)
    assert "did you mean `rounds`?" in refusal(roundz=3)
    assert 'settings={"method.rho": ..}' in refusal(rho=0.1)
    assert "`fedprox2`" in refusal(method="fedprox2")
    assert "plan.round" in refusal(settings={"plan.round": 3})
    assert "both say `plan.rounds`" in refusal(rounds=3, settings={"plan.rounds": 3})
    assert "`rounds` cannot be" in refusal(rounds=object())
    assert "`plan.rounds` is `None`" in refusal(settings={"plan.rounds": None})
    assert "rounds" in refusal(rounds=0.5)
    assert "rounds" in refusal(rounds=2**70)
    assert "digitz" in refusal(data="digitz")
    assert "nowhere.toml" in refusal(config="nowhere.toml")
    assert "give a list of functions" in refusal(callbacks=print)
    assert "`callbacks` is of the type `NoneType`" in refusal(callbacks=None)
    assert "`callbacks` has `3`" in refusal(callbacks=[3])
    assert "`settings` is of the type `list`" in refusal(settings=["plan.rounds"])
    assert "`out` is of the type `int`" in refusal(out=3)
    for words in [refusal(roundz=3), refusal(lr=-1.0)]:
        assert re.search(r"\nhint: .", words)
    assert isinstance(fedeq.Refused("x"), ValueError)
    assert isinstance(fedeq.Refused("x"), fedeq.FedeqError)
    assert not any(tmp_path.iterdir())


def test_a_folder_that_is_taken_is_refused(tmp_path: Path) -> None:
    """Run twice into the same folder."""
    fedeq.run(**SMALL, rounds=1, out=tmp_path / "run")
    assert "run" in refusal(**SMALL, rounds=1, out=tmp_path / "run")
    with pytest.raises(fedeq.Refused):
        fedeq.Run(tmp_path)
    with pytest.raises(fedeq.Refused, match="`folder` is of the type `int`"):
        fedeq.Run(3)  # type: ignore[arg-type]


def test_callbacks_are_told_every_round_on_the_thread_that_called(tmp_path: Path) -> None:
    """Collect what they are told."""
    told: list[tuple[int, fedeq.Round]] = []
    run = fedeq.run(
        **SMALL, rounds=3, out=tmp_path / "run", callbacks=[lambda this: told.append((threading.get_ident(), this))]
    )
    assert [this["round"] for _, this in told] == [1, 2, 3]
    assert {thread for thread, _ in told} == {threading.get_ident()}
    last = told[-1][1]
    assert last["accuracy"] == pytest.approx(run.accuracy)
    assert last["train_loss"] == pytest.approx(run.metrics[-1]["train_loss"])


def test_a_callback_stops_a_run_that_is_then_resumed_to_the_same_bytes(tmp_path: Path) -> None:
    """Stop after two of four rounds."""
    whole = fedeq.run(**SMALL, rounds=4, out=tmp_path / "whole")
    run = fedeq.run(**SMALL, rounds=4, out=tmp_path / "run", callbacks=[lambda this: this["round"] == 2])
    assert run.state == "stopped"
    assert len(run.metrics) == 2
    with pytest.raises(fedeq.FedeqError, match=r"fedeq\.resume"):
        _ = run.summary
    assert fedeq.resume(run, progress=False).state == "finished"
    assert lasting(run.folder) == lasting(whole.folder)
    assert fedeq.resume(run.folder, progress=False).summary["rounds"] == 4


def test_a_run_goes_back_to_the_checkpoint_before_the_last(tmp_path: Path) -> None:
    """And ends with the same bytes; callbacks are told what is trained again."""
    given: dict[str, Any] = {**SMALL, "rounds": 4, "settings": {"engine.checkpoint_every": 1}}
    whole = fedeq.run(**given, out=tmp_path / "whole")
    for name, previous, again in [("last", False, [4]), ("before", True, [3, 4])]:
        run = fedeq.run(**given, out=tmp_path / name, callbacks=[lambda this: this["round"] == 3])
        told: list[fedeq.Round] = []
        fedeq.resume(run, previous=previous, callbacks=[told.append], progress=False)
        assert [this["round"] for this in told] == again
        assert lasting(run.folder) == lasting(whole.folder)


def test_a_callback_stops_a_resumed_run_too(tmp_path: Path) -> None:
    """At every round in turn, until it is over."""
    whole = fedeq.run(**SMALL, rounds=3, out=tmp_path / "whole")
    run = fedeq.run(**SMALL, rounds=3, out=tmp_path / "run", callbacks=[lambda _: True])
    assert fedeq.resume(run, callbacks=[lambda _: True], progress=False).state == "stopped"
    assert len(run.metrics) == 2
    assert fedeq.resume(run, callbacks=[lambda _: True], progress=False).state == "finished"
    assert lasting(run.folder) == lasting(whole.folder)


def test_a_run_whose_data_has_moved_continues_where_it_lies_now(tmp_path: Path) -> None:
    """To the same bytes; without a word about it, it is refused and says what is missing."""
    before, after = tmp_path / "before.safetensors", tmp_path / "after.safetensors"
    fedeq.data.save(before, SOFTMAX_RUN["data"])
    given: dict[str, Any] = {**SOFTMAX_RUN, "data": before, "model": "linear", "rounds": 3}
    whole = fedeq.run(**given, out=tmp_path / "whole")
    run = fedeq.run(**given, out=tmp_path / "run", callbacks=[lambda this: this["round"] == 1])
    before.rename(after)
    with pytest.raises(fedeq.Refused, match=r"before\.safetensors"):
        fedeq.resume(run, progress=False)
    with pytest.raises(fedeq.Refused, match="nowhere"):
        fedeq.resume(run, data=tmp_path / "nowhere", progress=False)
    assert fedeq.resume(run, data=after, progress=False).state == "finished"
    assert lasting(run.folder) == lasting(whole.folder)
    assert Models(run.folder, data=after).names == ["ann", "bob"]


KILLED: dict[str, Any] = {**SMALL, "rounds": 150, "settings": {"plan.evaluate_every": 150}}
TO_BE_KILLED = f"import fedeq, sys; fedeq.run(**{KILLED}, out=sys.argv[1])"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_run_that_was_killed_is_resumed_to_the_same_bytes(tmp_path: Path) -> None:
    """With nothing done on the way out."""
    whole, folder = fedeq.run(**KILLED, out=tmp_path / "whole"), tmp_path / "run"
    code, _, errors = interrupted([sys.executable, "-c", TO_BE_KILLED, str(folder)], folder, by=signal.SIGKILL)
    assert (code, fedeq.Run(folder).state) == (-signal.SIGKILL, "killed"), errors
    assert fedeq.resume(folder, progress=False).state == "finished"
    assert lasting(folder) == lasting(whole.folder)


def test_an_exception_of_a_callback_stops_the_run_and_is_raised(tmp_path: Path) -> None:
    """Raise one in the second round."""

    def callback(this: fedeq.Round) -> None:
        if this["round"] == 2:
            message = "mine"
            raise LookupError(message)

    with pytest.raises(LookupError, match="mine") as caught:
        fedeq.run(**SMALL, rounds=4, out=tmp_path / "run", callbacks=[callback])
    assert "stopped after 2 of 4 rounds" in caught.value.__notes__[0]
    assert fedeq.resume(tmp_path / "run", progress=False).state == "finished"
    with pytest.raises(TypeError, match="gave `1`\nhint: give `True` to stop"):
        fedeq.run(**SMALL, rounds=1, out=tmp_path / "other", callbacks=[lambda _: 1])  # type: ignore[list-item, return-value]


@pytest.mark.parametrize(("name", "given"), [("device", 3), ("previous", 3), ("data", 3)])
def test_what_a_run_is_continued_with_is_refused_by_name(name: str, given: object, tmp_path: Path) -> None:
    """Of another kind than it should be."""
    run = fedeq.run(**SMALL, rounds=2, out=tmp_path / "run", callbacks=[lambda _: True])
    with pytest.raises(fedeq.Refused, match=f"`{name}` is of the type `int`"):
        fedeq.resume(run, **{name: given})  # type: ignore[arg-type]
    assert run.state == "stopped"


ENDLESS = """
import fedeq, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # Whoever runs in the background inherits that it is ignored.
try:
    fedeq.run(method="fedavg", model="linear", clients=5, rounds=1_000_000, out=sys.argv[1])
except KeyboardInterrupt as stopped:
    print(stopped)
"""


def interrupted(
    words: list[str], folder: Path, journal: str = "rounds.jsonl", by: signal.Signals = signal.SIGINT
) -> tuple[int, str, str]:
    """Start a process that trains, press Ctrl-C after its first rounds; give its exit code and what it said."""
    here = REPOSITORY / "python"
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=here)  # noqa: S603

    def is_under_way() -> bool:
        return child.poll() is not None or any(file.stat().st_size > 0 for file in folder.glob(journal))

    try:
        until("rounds", is_under_way, TIMEOUT)
        child.send_signal(by)
        output, errors = child.communicate(timeout=TIMEOUT)
    finally:
        child.kill()
    return child.returncode, output, errors


def test_ctrl_c_stops_at_a_checkpoint_and_says_how_to_continue(tmp_path: Path) -> None:
    """Interrupt a process that trains."""
    folder = tmp_path / "run"
    code, output, _ = interrupted([sys.executable, "-c", ENDLESS, str(folder)], folder)
    assert code == 0
    assert f'continue from there with `fedeq.resume("{folder}")`' in output
    run = fedeq.Run(folder)
    assert run.state == "stopped"
    kept = re.search(r"stopped after (\d[\d,]*) of", output)
    assert kept is not None
    assert int(kept[1].replace(",", "")) == len(run.metrics)


WITH_A_NETWORK = """
import fedeq, signal, sys
from tests.test_run import SOFTMAX_RUN, Softmax
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    fedeq.run(**SOFTMAX_RUN, network=Softmax(), rounds=1_000_000, out=sys.argv[1])
except KeyboardInterrupt as stopped:
    print(stopped)
"""


def test_ctrl_c_stops_a_network_of_ones_own_too(tmp_path: Path) -> None:
    """Wherever in its calls it comes; the rounds that were over are kept, and the run goes on from there."""
    folder = tmp_path / "run"
    code, output, errors = interrupted([sys.executable, "-c", WITH_A_NETWORK, str(folder)], folder)
    assert code == 0, errors
    assert f'continue from there with `fedeq.resume("{folder}")`' in output
    run = fedeq.Run(folder)
    kept = len(run.metrics)
    assert (run.state, kept > 0) == ("stopped", True)
    told: list[fedeq.Round] = []
    fedeq.resume(run, network=Softmax(), callbacks=[told.append, lambda _: True], progress=False)
    assert [this["round"] for this in told] == [kept + 1]


def test_two_runs_train_in_two_threads(tmp_path: Path) -> None:
    """Compare each with one that was alone."""
    alone = fedeq.run(**SMALL, rounds=2, out=tmp_path / "alone")
    threads = [
        threading.Thread(target=fedeq.run, kwargs={**SMALL, "rounds": 2, "out": tmp_path / name}) for name in ("a", "b")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert lasting(tmp_path / "a") == lasting(tmp_path / "b") == lasting(alone.folder)


def test_a_run_in_another_thread_is_stopped_by_a_callback(tmp_path: Path) -> None:
    """Python tells that thread nothing of Ctrl-C; an event does."""
    begun, enough = threading.Event(), threading.Event()
    callbacks = [lambda _: begun.set(), lambda _: enough.is_set()]
    given = {**SMALL, "rounds": 1_000_000, "out": tmp_path / "run", "callbacks": callbacks}
    thread = threading.Thread(target=fedeq.run, kwargs=given)
    thread.start()
    try:
        assert begun.wait(TIMEOUT)
    finally:
        enough.set()
        thread.join(TIMEOUT)
    assert fedeq.Run(tmp_path / "run").state == "stopped"


def test_other_threads_go_on_while_a_run_trains(tmp_path: Path) -> None:
    """Count in one, within a single round: nothing of Python is called meanwhile."""
    over = threading.Event()
    counts: list[int] = []

    def count() -> None:
        while not over.wait(0.001):
            counts.append(len(counts))

    seen: list[int] = []
    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = len(counts)
        work = {"training.epochs": 100, "plan.sampling.fraction": 1}
        fedeq.run(
            **SMALL, rounds=1, settings=work, out=tmp_path / "run", callbacks=[lambda _: seen.append(len(counts))]
        )
    finally:
        over.set()
        thread.join(TIMEOUT)
    assert seen[0] - before > 2, "it stood still"


TERMINAL = """
import fedeq, sys
fedeq.run(method="fedavg", model="linear", clients=5, rounds=3, out=sys.argv[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_terminal_shows_one_line_that_is_written_over(tmp_path: Path) -> None:
    """Train on a pseudo-terminal, and read what would be on the screen."""
    ours, theirs = os.openpty()
    words = [sys.executable, "-c", TERMINAL, str(tmp_path / "run")]
    child = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs)  # noqa: S603
    os.close(theirs)
    written = b""
    # When nobody writes any more, Linux says so by an error.
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 4096):
            written += piece
    os.close(ours)
    assert child.wait(TIMEOUT) == 0
    lines = written.decode().replace("\r\n", "\n").split("\n")
    bars = [line for line in lines if "█" in line]
    assert len(bars) == 1, "all rounds are on one line"
    shown = bars[0].split("\r\x1b[K")
    assert [text.split("█")[0] for text in shown] == [f"round {number} of 3 " for number in (1, 2, 3)]
    assert "░" not in shown[-1]
    assert "accuracy" in shown[-1] or "%" in shown[-1]


def train_in_child(folder: str) -> str:
    """Train in another process; give how it went."""
    try:
        return fedeq.run(**SMALL, rounds=1, out=folder).state
    except fedeq.FedeqError as error:
        return str(error)


def test_processes_that_are_spawned_train_and_those_that_are_forked_are_refused(tmp_path: Path) -> None:
    """Start a child in both ways from a process that has trained."""
    fedeq.run(**SMALL, rounds=1, out=tmp_path / "parent")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply_async(train_in_child, (str(tmp_path / "spawned"),)).get(TIMEOUT) == "finished"
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert 'get_context("spawn")' in pool.apply_async(train_in_child, (str(tmp_path / "forked"),)).get(TIMEOUT)


def ask_in_child(folder: str) -> list[str]:
    """Read, compare and predict in another process; give how it went."""
    run = fedeq.Run(folder)
    said = [run.state, str(len(run.metrics)), fedeq.compare(run).table[0]["method"], run.plot().svg[:4]]
    for ask in (lambda: run.client("client-1"), lambda: HELD[0].predict(np.zeros((1, 8, 8, 1), np.uint8))):
        try:
            ask()
            said.append("done")
        except fedeq.Refused as refusal:
            said.append(str(refusal))
    return said


# What a forked process finds in its memory.
HELD: list[Client] = []


def test_a_forked_process_reads_runs_and_refuses_to_predict(tmp_path: Path) -> None:
    """What needs no threads works as ever; what would wait for threads that are missing is refused at once."""
    run = fedeq.run(**SMALL, rounds=2, out=tmp_path / "run")
    HELD[:] = [run.client("client-0")]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        *read, opened, predicted = pool.apply_async(ask_in_child, (str(run.folder),)).get(TIMEOUT)
    assert read == ["finished", "2", "fedavg", "<svg"]
    for refusal in (opened, predicted):
        assert 'get_context("spawn")' in refusal
    assert HELD[0].predict(np.zeros((1, 8, 8, 1), np.uint8)).shape == (1,)


def test_tables_give_rows_columns_and_frames(tmp_path: Path) -> None:
    """Read metrics and clients of a run."""
    run = fedeq.run(**SMALL, rounds=2, out=tmp_path / "run")
    metrics = run.metrics
    assert (len(metrics), metrics["round"], metrics.columns[:2]) == (2, [1, 2], ("round", "accuracy"))
    assert metrics[-1:].to_dicts() == [metrics[-1]]
    assert run.accuracy == pytest.approx(run.summary["evaluation"]["shared"]["mean"])
    with pytest.raises(KeyError, match="no column"):
        metrics["nothing"]
    clients = run.clients
    assert len(clients) == 5
    assert all(row["train"] > 0 and 0 <= row["shared_accuracy"] <= 1 for row in clients)
    assert "<table>" in metrics._repr_html_()


def from_the_wheel(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run the command that comes with the package."""
    words = [sys.executable, "-m", "fedeq", *map(str, arguments)]
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=TIMEOUT)  # noqa: S603


def test_the_package_brings_the_command(tmp_path: Path) -> None:
    """Compare output and exit codes with those of the program."""
    assert from_the_wheel("--version").stdout == command("--version")
    assert from_the_wheel("node", "--help").stdout.startswith("Join a Flower federation")
    assert from_the_wheel("nothing").returncode == 2
    assert from_the_wheel("resume", tmp_path).returncode == 2
    done = from_the_wheel("run", *TYPED, "--rounds", "1", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    command("run", *TYPED, "--rounds", "1", "--out", tmp_path / "typed")
    assert lasting(tmp_path / "run") == lasting(tmp_path / "typed")


def test_the_command_of_the_package_is_stopped_by_ctrl_c_like_the_program(tmp_path: Path) -> None:
    """Interrupt it."""
    folder = tmp_path / "run"
    words = [sys.executable, "-m", "fedeq", "run", *TYPED, "--rounds", "1000000", "--out", str(folder)]
    code, _, errors = interrupted(words, folder)
    assert code == 130
    assert "fedeq resume" in errors


def test_arrays_and_networks_are_handed_over_by_the_program(tmp_path: Path) -> None:
    """Train a network of the test on arrays of the test, stop, and continue; then predict with one of ours."""
    given: dict[str, Any] = {**SOFTMAX_RUN, "rounds": 3}
    small = Softmax()
    whole = fedeq.run(**given, network=small, out=tmp_path / "whole")
    run = fedeq.run(**given, network=small, out=tmp_path / "run", callbacks=[lambda this: this["round"] == 1])
    with pytest.raises(fedeq.FedeqError):
        fedeq.resume(run, progress=False)
    fedeq.resume(run, network=small, progress=False)
    assert run.metrics["local_accuracy"] == whole.metrics["local_accuracy"]
    assert "does not go with" in refusal(**given, network=small, model="linear")
    ours = fedeq.run(**given, model="linear", out=tmp_path / "ours")
    assert ours.client("ann").predict(SOFTMAX_RUN["data"]["ann"][0]).shape == (40,)
    small.fails = True
    with pytest.raises(ZeroDivisionError):
        fedeq.run(**given, network=small, out=tmp_path / "failed")


def _separable() -> dict[str, Any]:
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    return {name: (x, (x[:, 0] > 0).astype(np.int64)) for name in ("ann", "bob")}


# Two clients that take part in every round.
SOFTMAX_RUN: dict[str, Any] = {
    "method": "fedavg",
    "data": _separable(),
    "settings": {"plan.sampling.fraction": 1},
    "progress": False,
}


class Softmax:
    """Softmax regression on four numbers and two classes."""

    fails = False

    def parameters(self) -> dict[str, NDArray[np.float32]]:
        """Begin with zeros."""
        return {"weight": np.zeros((4, 2), np.float32), "bias": np.zeros(2, np.float32)}

    def logits(self, parameters: Mapping[str, NDArray[np.float32]], x: NDArray[Any]) -> NDArray[np.float32]:
        """Give a number a class."""
        return np.asarray(x @ parameters["weight"] + parameters["bias"], np.float32)

    def loss_and_gradient(
        self, parameters: Mapping[str, NDArray[np.float32]], x: NDArray[Any], y: NDArray[Any]
    ) -> tuple[float, dict[str, NDArray[np.float32]]]:
        """Give the mean loss and its gradient."""
        if self.fails:
            raise ZeroDivisionError
        p = np.exp(self.logits(parameters, x))
        p /= p.sum(axis=1, keepdims=True)
        loss = -np.log(p[np.arange(len(y)), y]).mean()
        p[np.arange(len(y)), y] -= 1
        p /= len(y)
        return float(loss), {"weight": np.asarray(x.T @ p, np.float32), "bias": np.asarray(p.sum(axis=0), np.float32)}
