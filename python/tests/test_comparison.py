"""Comparisons, sweeps and figures from Python: what the commands say."""
# ruff: noqa: PLR2004 (numbers of runs and points)

import json
import re
import shutil
import sys
from functools import partial
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
    with pytest.raises(fedeq.Refused, match="`view` is of the type `int`"):
        fedeq.compare(runs, view=3)  # type: ignore[arg-type]


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
    with pytest.raises(fedeq.Refused, match="`name` is of the type `int`"):
        run.plot(3)  # type: ignore[arg-type]
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


SEARCHED: dict[str, Any] = {
    "method": "fedavg",
    "model": "linear",
    "clients": 5,
    "settings": {"plan.evaluate_every": 1, "data.split.validation": 0.2, "data.limit.train": 20},
    "grid": {"training.learning_rate": "log:0.001..0.5"},
    "progress": False,
}


def test_points_are_drawn_from_a_range(tmp_path: Path) -> None:
    """The same ones for the same seed of the search, and as many as were asked for."""
    first, again, other = (
        fedeq.sweep(**SEARCHED, rounds=1, random=3, search_seed=seed, out=tmp_path / name).points
        for name, seed in [("first", 1), ("again", 1), ("other", 2)]
    )
    rates = first["training.learning_rate"]
    assert len(set(rates)) == 3
    assert all(0.001 <= rate <= 0.5 for rate in rates)
    assert again == first
    assert other["training.learning_rate"] != rates
    with pytest.raises(fedeq.Refused, match="budget"):
        fedeq.sweep(**SEARCHED, rounds=4, budget=3, out=tmp_path / "refused")
    assert len(fedeq.sweep(**SEARCHED, rounds=2, budget=4, out=tmp_path / "budget").points) == 2


def test_the_better_half_of_the_points_is_trained_further(tmp_path: Path) -> None:
    """Four for a round, two for two, one for all four; the table has the one, the folder all."""
    sweep = fedeq.sweep(**SEARCHED, rounds=4, random=4, halving=2, out=tmp_path / "sweep")
    assert sorted(len(run.metrics) for run in sweep.runs) == [1, 1, 2, 4]
    (best,) = [run for run in sweep.runs if run.state == "finished"]
    assert sweep.points["training.learning_rate"] == [best.config["training"]["learning_rate"]]
    assert len((sweep.folder / "search.csv").read_text().splitlines()) == 1 + 4


def two_clients(seed: int) -> dict[str, Any]:
    """Draw rows of numbers with a class each, for two clients."""
    generator = np.random.default_rng(seed)
    return {name: (generator.normal(size=(20, 3)), np.arange(20) % 2) for name in ("ann", "bob")}


ARRAYS: dict[str, Any] = {
    "method": "fedavg",
    "model": "linear",
    "rounds": 1,
    "settings": {"plan.sampling.fraction": 1},
    "grid": {"training.learning_rate": [0.01, 0.1]},
    "progress": False,
}


def test_a_sweep_keeps_to_the_arrays_that_it_began_with(tmp_path: Path) -> None:
    """Other arrays are refused by name, and nothing of what there is changes; with the same ones it continues."""
    sweep = fedeq.sweep(**ARRAYS, data=two_clients(0), out=tmp_path / "sweep")
    before = {path: path.read_bytes() for path in sweep.folder.rglob("*") if path.is_file()}
    with pytest.raises(fedeq.Refused, match=r"`data` has other arrays than `.*data\.safetensors`"):
        fedeq.sweep(**ARRAYS, data=two_clients(1), out=tmp_path / "sweep")
    assert {path: path.read_bytes() for path in sweep.folder.rglob("*") if path.is_file()} == before
    assert fedeq.sweep(**ARRAYS, data=two_clients(0), out=tmp_path / "sweep").points == sweep.points
    assert sweep.runs[0].client("ann").data()["train"][0].shape[1] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["sweep"]


@pytest.mark.parametrize("wrong", [{"methud": ["fedavg"]}, {"training.learning_rate": [-1.0]}])
def test_a_sweep_that_is_refused_leaves_nothing_behind(wrong: dict[str, Any], tmp_path: Path) -> None:
    """Neither its folder nor those above; what was there before stays."""
    given: dict[str, Any] = {**ARRAYS, "grid": wrong, "data": two_clients(0)}
    with pytest.raises(fedeq.Refused):
        fedeq.sweep(**given, out=tmp_path / "above" / "sweep")
    assert not any(tmp_path.iterdir())
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(fedeq.Refused):
        fedeq.sweep(**given, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_data_set_of_a_name_is_meant_also_where_a_folder_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For runs and sweeps alike; a path means the folder."""
    monkeypatch.chdir(tmp_path)
    Path("digits").mkdir()
    small: dict[str, Any] = {"method": "fedavg", "model": "linear", "rounds": 1, "clients": 5, "progress": False}
    run = fedeq.run(**small, data="digits", out="run")
    (swept,) = fedeq.sweep(**small, data="digits", grid={"seed": [0]}, out="sweep").runs
    assert run.config["data"] == swept.config["data"]
    refusals = []
    calls: tuple[Any, ...] = (fedeq.run, partial(fedeq.sweep, grid={"seed": [0]}))
    for call in calls:
        with pytest.raises(fedeq.Refused) as refused:
            call(**small, data=Path("digits"), out="other")
        # A run remembers where its data lies, and names the whole path.
        refusals.append(str(refused.value).replace(f"{tmp_path}/", ""))
    assert refusals[0] == refusals[1]


def test_a_sweep_takes_what_a_run_takes(tmp_path: Path) -> None:
    """A method with its settings, and a dictionary as what a file says."""
    method = {"name": "fedeq", "rho": 0.3}
    config = {"model": "linear", "plan": {"rounds": 1}, "data": {"partition": {"clients": 5}}}
    given: dict[str, Any] = {"method": method, "settings": {"training.epochs": np.int64(2)}, "progress": False}
    run = fedeq.run(config, **given, out=tmp_path / "run")
    sweep = fedeq.sweep(config, **given, grid={"seed": [0]}, out=tmp_path / "sweep")
    assert run.config == sweep.runs[0].config
    pairs = {"method": [method, "fedavg"]}
    points = fedeq.sweep(config, grid=pairs, out=tmp_path / "pairs", progress=False).points
    assert points["method"] == [method, "fedavg"]


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
        ({"grid": {3: ["fedavg"]}}, "`a key of grid` is of the type `int`"),
        ({"grid": {"method": [None]}}, "`method` is `None`"),
        ({"grid": {"method": ["fedavg"]}, "settings": {"plan.rounds": None}}, "`plan.rounds` is `None`"),
        ({"grid": {"method": ["fedavg"]}, "rounds": object()}, "`rounds` cannot be"),
        ({"grid": {"method": ["fedavg"]}, "rounds": 3, "settings": {"plan.rounds": 3}}, "both say `plan.rounds`"),
        ({"grid": {"method": ["fedavg"]}, "device": 3}, "device"),
        ({"grid": {"method": ["fedavg"]}, "roundz": 3}, "did you mean `rounds`?"),
        ({"grid": {"method": ["fedavg"]}, "network": object()}, "a sweep takes no `network`"),
    ],
)
def test_a_sweep_refuses_what_is_of_the_wrong_kind(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    """By its name."""
    with pytest.raises(fedeq.Refused, match=re.escape(words)):
        fedeq.sweep(**given, out=tmp_path / "sweep")
    assert not any(tmp_path.iterdir())


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


CELL: dict[str, Any] = {"seeds": 1, "only": "rho-fedrep", "progress": False}


def test_a_cell_of_an_experiment_is_reproduced(tmp_path: Path) -> None:
    """The smallest one, with one seed; what is finished is skipped when it is asked for again."""
    where: dict[str, Any] = {"out": tmp_path / "results", "runs": tmp_path / "runs"}
    reproduced = fedeq.reproduce("fig-dual", **where, **CELL)
    assert reproduced.folders == {"fig-dual": tmp_path / "results"}
    assert list(reproduced.results["fig-dual"]) == ["rho-fedrep"]
    assert str(tmp_path / "results") in str(reproduced)
    (run,) = (fedeq.Run(file.parent) for file in (tmp_path / "runs").rglob("summary.json"))
    assert (run.config["method"]["name"], run.state) == ("fedrep", "finished")
    made = {file: file.stat().st_mtime_ns for file in run.folder.rglob("*") if file.is_file()}
    fedeq.reproduce("fig-dual", **where, **CELL)
    assert {file: file.stat().st_mtime_ns for file in run.folder.rglob("*") if file.is_file()} == made


def test_several_experiments_are_one_queue_whose_state_goes_elsewhere(tmp_path: Path) -> None:
    """One cell of each, with fewer rounds; a forecast, the runs, and what is published of them on another machine."""
    given: dict[str, Any] = {
        "only": ["fig-rho/rho-0.01", "rho-fedrep"],
        "seeds": 1,
        "settings": {"plan.rounds": 2},
        "progress": False,
        "out": tmp_path / "results",
        "state": tmp_path / "state",
    }
    names = ("fig-rho", "fig-dual")
    forecast = fedeq.reproduce(*names, **given, dry_run=True)
    assert "2 cells, 1 seed" in str(forecast)
    assert not any(tmp_path.iterdir())
    reproduced = fedeq.reproduce(*names, **given)
    assert reproduced.folders == {name: tmp_path / "results" / name for name in names}
    assert [list(cells) for cells in reproduced.results.values()] == [["rho-0.01"], ["rho-fedrep"]]
    shutil.rmtree(tmp_path / "results")
    published = fedeq.reproduce(*names, **given, publish=True)
    assert published.results == reproduced.results
    assert all((folder / "README.md").is_file() for folder in published.folders.values())


@pytest.mark.parametrize(
    ("names", "given", "words"),
    [
        ((), {}, "no experiment is named"),
        ((3,), {}, "`name` is of the type `int`"),
        (("fig-rho",), {"out": 3}, "`out` is of the type `int`"),
        (("fig-rho",), {"only": "nothing"}, "named like `nothing`"),
        (("fig-rho",), {"only": [3]}, "`only` is `[3]`"),
        (("fig-rho",), {"publish": 3}, "`publish` is of the type `int`"),
        (("fig-rho",), {"scale": 3}, "'3'"),
        (("fig-rho", "fig-rho"), {}, "`fig-rho` is named twice"),
    ],
)
def test_a_reproduction_refuses_what_is_of_the_wrong_kind(
    names: tuple[Any, ...], given: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name, and no folder appears."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fedeq.Refused, match=re.escape(words)):
        fedeq.reproduce(*names, **given)
    assert not any(tmp_path.iterdir())


def test_what_is_neither_a_run_nor_a_folder_is_not_compared() -> None:
    """A number, also among others."""
    for given in (3, [3], None):
        with pytest.raises(fedeq.Refused, match="neither a run nor a folder"):
            fedeq.compare(given)  # type: ignore[arg-type]


def test_what_cannot_be_reproduced_is_refused() -> None:
    """Name an experiment that there is not."""
    with pytest.raises(fedeq.Refused, match="table-99"):
        fedeq.reproduce("table-99")
