"""The script that hands exported runs to Weights & Biases does so by the client's public calls."""

import json
import runpy
import shutil
import sys
import types
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "crates/run/src/tracking/import_wandb.py"


class Client(types.ModuleType):
    """Stands in for the client, and notes what it is asked for."""

    def __init__(self) -> None:
        """Begin with nothing noted."""
        super().__init__("wandb")
        self.about: dict[str, object] = {}
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.tags: tuple[str, ...] = ()
        self.exit_code: int | None = None

    def init(self, **about: object) -> "Client":
        """Begin a run."""
        self.about = about
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        """Take what was measured in a step."""
        self.logged.append((step, values))

    def finish(self, exit_code: int) -> None:
        """End the run."""
        self.exit_code = exit_code


STEPS = [(1, {"train/loss": 2.5}), (2, {"train/loss": 1.5})]


def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str) -> Client:
    """Import a run in some state; what the client was asked for."""
    client = Client()
    monkeypatch.setitem(sys.modules, "wandb", client)
    folder = tmp_path / "0123"
    folder.mkdir()
    about = {"id": "0123", "name": "one", "notes": "FeDEQ", "project": "fedeq", "config": {"seed": "0"}}
    (folder / "run.json").write_text(json.dumps({**about, "state": state}))
    lines = [json.dumps({"step": step, "values": values}) for step, values in STEPS]
    (folder / "history.jsonl").write_text("\n".join(lines) + "\n")
    shutil.copy(SCRIPT, tmp_path)
    runpy.run_path(str(tmp_path / SCRIPT.name), run_name="__main__")
    return client


def test_every_step_of_a_run_is_logged_under_its_own_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was exported arrives, in order, and the run is finished."""
    client = imported(tmp_path, monkeypatch, "finished")
    assert (client.about["id"], client.about["config"], client.about["resume"]) == ("0123", {"seed": "0"}, "allow")
    assert (client.logged, client.tags, client.exit_code) == (STEPS, ("finished",), 0)


@pytest.mark.parametrize(
    ("state", "code"), [("running", 0), ("paused", 0), ("stopped", 1), ("killed", 1), ("failed", 1)]
)
def test_only_a_run_that_ended_without_success_is_marked_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, code: int
) -> None:
    """One that is under way has not failed, and says by its tag how it stands."""
    client = imported(tmp_path, monkeypatch, state)
    assert (client.logged, client.tags, client.exit_code) == (STEPS, (state,), code)
