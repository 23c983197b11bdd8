"""Comparisons, sweeps and figures from Python: what the commands say."""
# ruff: noqa: PLR2004 (numbers of runs and points)

import json
from pathlib import Path

import pytest

import fedeq
from tests.harness.program import fedeq as command
from tests.test_run import SMALL


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
    assert "fedavg" in shown
    assert "fedavg" in str(comparison)
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
    with pytest.raises(fedeq.Refused, match="methud"):
        fedeq.sweep(grid={"methud": ["fedavg"]}, out=tmp_path / "other")


def test_what_cannot_be_reproduced_is_refused() -> None:
    """Name an experiment that there is not."""
    with pytest.raises(fedeq.Refused, match="table-99"):
        fedeq.reproduce("table-99")
