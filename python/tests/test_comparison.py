"""Comparisons, sweeps and figures from Python: what the commands say."""
# ruff: noqa: PLR2004 (numbers of runs and points)

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedeq
from tests.harness.program import fedeq as command
from tests.test_run import SMALL, interrupted, lasting


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train two methods with two seeds each."""
    folder = tmp_path_factory.mktemp("runs")
    for method in ("fedavg", "local"):
        for seed in (0, 1):
            fedeq.run(**{**SMALL, "method": method}, rounds=2, seed=seed, out=folder / f"{method}-{seed}")
    return folder


def test_a_comparison_says_what_the_command_says(runs: Path) -> None:
    """Compare both, and the forms of it."""
    comparison = fedeq.compare(runs)
    assert comparison.to_dict() == json.loads(command("compare", runs, "--json"))
    assert comparison.to_latex() in command("compare", runs, "--format", "latex")
    assert comparison.to_markdown() in command("compare", runs, "--format", "markdown")
    assert [row["method"] for row in comparison.table] == ["fedavg", "local"]
    assert all(row["seeds"] == 2 for row in comparison.table)
    shown = comparison._repr_html_()
    assert "<table>" in shown
    assert "FedAvg" in shown
    assert "FedAvg" in str(comparison) == repr(comparison)
    named = fedeq.compare([fedeq.Run(runs / "fedavg-0"), runs / "local-0"], runs / "local-0", view="shared")
    assert named.left_out == [f"`{runs / 'local-0'}` repeats an experiment with the same seed"]
    with pytest.raises(fedeq.Refused, match="no view"):
        fedeq.compare(runs, view="global")  # type: ignore[arg-type]


def test_figures_are_shown_and_kept(runs: Path, tmp_path: Path) -> None:
    """Draw one run and several."""
    run = fedeq.Run(runs / "fedavg-0")
    figure = run.plot(path=tmp_path / "one.svg")
    assert figure._repr_svg_().startswith("<svg")
    assert (tmp_path / "one.svg").read_text() == figure.svg
    assert fedeq.compare(runs).plot(path=tmp_path / "all.png").png == (tmp_path / "all.png").read_bytes()
    assert run.plot("clients").svg != figure.svg
    with pytest.raises(fedeq.Refused, match="choose one of `accuracy-over-rounds`"):
        run.plot("nothing")
    with pytest.raises(fedeq.Refused, match=r"\.svg"):
        figure.save(tmp_path / "one.pdf")
    shown = run._repr_html_()
    assert "worst tenth" in shown
    assert "<svg" in shown


def test_a_sweep_gives_its_points_and_continues_when_it_is_asked_for_again(tmp_path: Path) -> None:
    """Sweep over two methods, twice."""
    settings = {"model": "linear", "data.partition.clients": 5, "plan.rounds": 1}
    grid = {"method": ["fedavg", "local"]}
    once = fedeq.sweep(settings, grid=grid, seeds=[0, 1], out=tmp_path / "sweep", progress=False)
    again = fedeq.sweep(settings, grid=grid, seeds=[0, 1], out=tmp_path / "sweep", progress=False)
    assert once.points == again.points
    assert [row["seeds"] for row in once.points] == [2, 2]
    assert len(once.runs) == 4
    assert len(once.compare().table) == 2
    with pytest.raises(fedeq.Refused, match=r"range\(2\)"):
        fedeq.sweep(grid={}, seeds=2, out=tmp_path / "other")  # type: ignore[arg-type]
    with pytest.raises(fedeq.Refused, match="methud"):
        fedeq.sweep(grid={"methud": ["fedavg"]}, out=tmp_path / "other")


def test_a_sweep_learns_from_arrays_and_changes_settings_together(tmp_path: Path) -> None:
    """Two methods, each with a network of its own, on rows of numbers."""
    generator = np.random.default_rng(0)
    y = np.arange(20) % 2
    data = {name: (generator.normal(size=(20, 3)) + 3 * y[:, None], y) for name in ("ann", "bob")}
    sweep = fedeq.sweep(
        data=data,
        rounds=1,
        grid={"method": ["fedavg", "fedrep"]},
        together={"model": ["linear", "mlp"]},
        settings={"plan.sampling.fraction": 1},
        out=tmp_path / "sweep",
        progress=False,
    )
    assert {(run.config["method"]["name"], run.config["model"]["name"]) for run in sweep.runs} == {
        ("fedavg", "linear"),
        ("fedrep", "mlp"),
    }
    assert all(run.clients["name"] == ["ann", "bob"] for run in sweep.runs)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"grid": ["method"]}, "`grid` is of the type `list`"),
        ({"grid": {"seed": 3}}, "`grid` has `3` for `seed`"),
        ({"grid": {}, "together": {"model": 3}}, "`together` has `3` for `model`"),
        ({"grid": {}, "seeds": "abc"}, "`seeds` is `'abc'`"),
        ({"grid": {}, "seeds": [0.5]}, "give whole numbers"),
        ({"grid": {}, "settings": ["a"]}, "`settings` is of the type `list`"),
        ({"grid": {}, "config": 3}, "`config` is of the type `int`"),
        ({"grid": {}, "data": 3}, "`data` is of the type `int`"),
        ({"grid": {}, "data": "digitz"}, "digitz"),
    ],
)
def test_a_sweep_refuses_what_is_of_the_wrong_kind(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    """By its name."""
    with pytest.raises(fedeq.Refused, match=re.escape(words)):
        fedeq.sweep(**given, out=tmp_path / "sweep")


LONG = {
    "method": "fedavg",
    "model": "linear",
    "data.partition.clients": 5,
    "plan.rounds": 150,
    "plan.evaluate_every": 150,
}
RATES = {"training.learning_rate": [0.01, 0.1]}
SWEEP = f"""
import fedeq, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # Whoever runs in the background inherits that it is ignored.
try:
    fedeq.sweep({LONG}, grid={RATES}, out=sys.argv[1], jobs=1, progress=False)
except KeyboardInterrupt as stopped:
    print(stopped)
"""


def test_ctrl_c_stops_a_sweep_which_the_same_call_continues(tmp_path: Path) -> None:
    """Interrupt it in its first run; afterwards it has the bytes of one that nobody interrupted."""
    folders = tmp_path / "stopped", tmp_path / "whole"
    code, output, errors = interrupted([sys.executable, "-c", SWEEP, str(folders[0])], folders[0], "**/rounds.jsonl")
    assert (code, "hint: " in output) == (0, True), errors
    assert "finished" not in {fedeq.Run(file.parent).state for file in folders[0].rglob("status.json")}
    stopped, whole = (fedeq.sweep(LONG, grid=RATES, out=folder, jobs=1, progress=False) for folder in folders)
    assert stopped.points == whole.points
    assert stopped.points["training.learning_rate"] == [0.01, 0.1]
    for one, other in zip(stopped.runs, whole.runs, strict=True):
        assert lasting(one.folder) == lasting(other.folder)


def test_a_cell_of_an_experiment_is_reproduced(tmp_path: Path) -> None:
    """The smallest one, with one seed; what is finished is skipped when it is asked for again."""
    where: dict[str, Any] = {"out": tmp_path / "results", "runs": tmp_path / "runs", "seeds": 1, "only": ["rho-fedrep"]}
    assert fedeq.reproduce("fig-dual", **where, progress=False) == tmp_path / "results"
    (run,) = (fedeq.Run(file.parent) for file in (tmp_path / "runs").rglob("summary.json"))
    assert (run.config["method"]["name"], run.state) == ("fedrep", "finished")
    made = {file: file.stat().st_mtime_ns for file in run.folder.rglob("*") if file.is_file()}
    fedeq.reproduce("fig-dual", **where, progress=False)
    assert {file: file.stat().st_mtime_ns for file in run.folder.rglob("*") if file.is_file()} == made


def test_what_is_neither_a_run_nor_a_folder_is_not_compared() -> None:
    """A number, also among others."""
    for given in (3, [3], None):
        with pytest.raises(fedeq.Refused, match="neither a run nor a folder"):
            fedeq.compare(given)  # type: ignore[arg-type]


def test_what_cannot_be_reproduced_is_refused() -> None:
    """Name an experiment that there is not."""
    with pytest.raises(fedeq.Refused, match="table-99"):
        fedeq.reproduce("table-99")
