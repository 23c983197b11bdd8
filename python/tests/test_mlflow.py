"""What `fedeq export-logs --to mlflow` writes is what MLflow's own client reads."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

mlflow = pytest.importorskip("mlflow")

FEDEQ = str(Path(__file__).parents[2] / "target/debug/fedeq")


def exported(folder: Path) -> tuple[Any, Any]:
    """Export the runs of a folder; MLflow's client of what came out, and the one run in it."""
    command = [FEDEQ, "export-logs", "runs", "--to", "mlflow", "--out", "mlruns"]
    subprocess.run(command, cwd=folder, check=True)  # noqa: S603
    client = mlflow.MlflowClient(tracking_uri=(folder / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("fedeq")
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run


def test_a_finished_run_is_read_with_its_settings_and_every_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parameters, metrics and the state are those of the run folder, also when it is exported twice."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    command = [FEDEQ, "run", "--quiet", "--rounds", "3", "--set", "plan.evaluate_every=1", "--out", "runs/one"]
    subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    for _ in range(2):
        client, run = exported(tmp_path)
        assert (run.info.status, run.info.run_name) == ("FINISHED", "one")
        assert (run.data.params["method.name"], run.data.params["plan.rounds"]) == ("fedeq", "3")
        assert run.info.end_time >= run.info.start_time
        lines = (tmp_path / "runs/one/evaluations.jsonl").read_text().splitlines()
        told = [(line["round"], line["local"]["mean"]) for line in map(json.loads, lines)]
        history = client.get_metric_history(run.info.run_id, "local/accuracy")
        assert sorted((metric.step, metric.value) for metric in history) == told


def test_a_killed_run_is_read_as_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that wrote that it runs, and that nobody works on."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    command = [FEDEQ, "run", "--quiet", "--rounds", "2", "--out", "runs/one"]
    subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    folder = tmp_path / "runs/one"
    (folder / "summary.json").unlink()
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps({**status, "state": "running"}))
    _, run = exported(tmp_path)
    assert run.info.status == "KILLED"
