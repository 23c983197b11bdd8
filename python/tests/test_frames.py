"""Tables as data frames of pandas and polars, where these are installed."""
# ruff: noqa: PLR2004 (numbers of rows)

import pytest

import fedeq
from tests.test_run import SMALL


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedeq.Run:
    """Train for three rounds, evaluated after the second and the last: there are numbers that some rounds lack."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    return fedeq.run(**SMALL, rounds=3, settings={"plan.evaluate_every": 2}, out=folder)


def test_pandas_has_a_row_a_round(run: fedeq.Run) -> None:
    """Numbers are numbers, and what is missing is NaN."""
    pytest.importorskip("pandas")
    frame = run.metrics.to_pandas()
    assert list(frame.columns) == list(run.metrics.columns)
    assert list(frame["round"]) == [1, 2, 3]
    assert list(frame["accuracy"].isna()) == [True, False, False]
    assert frame["accuracy"].iloc[-1] == run.accuracy
    assert frame["train_loss"].dtype == "float64"
    assert len(run.clients.to_pandas()) == 5


def test_polars_has_a_row_a_round(run: fedeq.Run) -> None:
    """Numbers are numbers, and what is missing is null."""
    pytest.importorskip("polars")
    frame = run.metrics.to_polars()
    assert frame.columns == list(run.metrics.columns)
    assert frame["round"].to_list() == [1, 2, 3]
    assert frame["accuracy"].is_null().to_list() == [True, False, False]
    assert frame["accuracy"][-1] == run.accuracy
    assert str(frame["train_loss"].dtype) == "Float64"
    assert len(run.clients.to_polars()) == 5


def test_a_table_without_rows_is_a_frame_without_rows() -> None:
    """Before the first round there is nothing."""
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    assert len(fedeq.Table([]).to_pandas()) == 0
    assert len(fedeq.Table([]).to_polars()) == 0


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Act as if nothing were."""
    for name in ("pandas", "polars"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
        with pytest.raises(ImportError, match=f"pip install {name}"):
            getattr(fedeq.Table([{"round": 1}]), f"to_{name}")()
