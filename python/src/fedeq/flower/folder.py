"""The run folder, in the format of `fedeq run`, for `fedeq report` and `fedeq dashboard`.

In addition to the files of `fedeq init-federation` it contains

- `checkpoint.json` and the `theta-N.safetensors` it names: where a restarted run continues
- `rounds.jsonl`, `evaluations.jsonl`, `timings.jsonl`: a line for each round, evaluation, and time of a round
- `failures.jsonl`: a line for every client that failed, and why; also in rounds that were repeated
- `status.json`, `lock`, `version.json`, `activity.json`, `control.json`, `summary.json`: as in any run folder

There is no `heads.jsonl`: the server knows nothing of the heads.
"""

import fcntl
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from flwr.supercore.run import RunNotRunningException

from fedeq.flower import weights
from fedeq.flower.metrics import SOLVES, Traffic
from fedeq.flower.weights import Weights, write_atomically

State = Literal["running", "paused", "finished", "stopped", "failed"]
Command = Literal["go-on", "pause", "stop"]


class Damaged(RuntimeError):
    """A file whose content is not what was written."""


class Stopped(Exception):
    """The run was stopped by a command from the dashboard."""


@dataclass(frozen=True)
class Checkpoint:
    """The whole state of the server."""

    done: int
    theta: Weights
    traffic: Traffic


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run."""

    path: Path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run for this process, and write how it ended."""
        with (self.path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as problem:
                message = f"`{self.path}` is in use by another process; wait until that ends, or stop it"
                raise RuntimeError(message) from problem
            self._begin()
            state: State = "failed"
            try:
                yield
                state = "finished"
            except (Stopped, RunNotRunningException, KeyboardInterrupt):
                # By the dashboard, by `flwr stop` or by a signal.
                state = "stopped"
                raise
            finally:
                self.write_status(state)
                (self.path / "activity.json").unlink(missing_ok=True)

    def _begin(self) -> None:
        (self.path / "control.json").unlink(missing_ok=True)
        self.write_json("version.json", _version())
        self.write_status("running")

    def write_status(self, state: State) -> None:
        """Write the status of the run."""
        self.write_json("status.json", {"state": state, "pid": os.getpid()})

    def command(self) -> Command:
        """Read the command of the dashboard, if there is one."""
        try:
            command: Command = json.loads((self.path / "control.json").read_text())["order"]
        except (OSError, ValueError, KeyError, TypeError):
            return "go-on"
        return command

    def write_activity(self, activity: Mapping[str, Any]) -> None:
        """Write which clients are working, for the dashboard: not synced, and errors are ignored."""
        partial = self.path / "activity.json.partial"
        try:
            partial.write_text(json.dumps(activity))
            partial.replace(self.path / "activity.json")
        except OSError:
            return

    def append(self, journal: str, line: Mapping[str, Any]) -> None:
        """Add a line to a journal."""
        with (self.path / journal).open("a") as file:
            file.write(json.dumps(line) + "\n")

    def lines(self, journal: str) -> list[dict[str, Any]]:
        """Read the complete lines of a journal."""
        path = self.path / journal
        whole = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in whole]

    def truncate(self, done: int) -> None:
        """Remove the lines of later rounds from the journals: these rounds are repeated."""
        self._keep_lines("rounds.jsonl", lambda line: line["round"] < done)
        for journal in ("evaluations.jsonl", "timings.jsonl"):
            self._keep_lines(journal, lambda line: line["round"] <= done)

    def _keep_lines(self, journal: str, is_kept: Callable[[dict[str, Any]], bool]) -> None:
        path = self.path / journal
        if path.exists():
            kept = [json.dumps(line) + "\n" for line in self.lines(journal) if is_kept(line)]
            write_atomically(path, "".join(kept).encode())

    def save(self, checkpoint: Checkpoint) -> None:
        """Write `theta`, then the note that refers to it: replacing the note is what commits."""
        name = f"theta-{checkpoint.done}.safetensors"
        fingerprint = weights.write(self.path / name, checkpoint.theta)
        note = {"done": checkpoint.done, "theta": fingerprint, "traffic": asdict(checkpoint.traffic)}
        self.write_json("checkpoint.json", note)
        for old in self.path.glob("theta-*.safetensors"):
            if old.name != name:
                old.unlink()

    def resume(self) -> Checkpoint:
        """Read the last checkpoint; before the first one, the initial weights."""
        note = self.path / "checkpoint.json"
        if not note.exists():
            return Checkpoint(0, weights.read(self.path / "theta.safetensors"), Traffic())
        saved = json.loads(note.read_text())
        path = self.path / f"theta-{saved['done']}.safetensors"
        if not path.exists() or weights.fingerprint(path.read_bytes()) != saved["theta"]:
            message = (
                f"`{path}` does not have the fingerprint in `{note}`; restore it from a copy, or start in a new folder"
            )
            raise Damaged(message)
        return Checkpoint(saved["done"], weights.read(path), Traffic(**saved["traffic"]))

    def write_summary(self, expected: Mapping[str, Any], evaluation: Mapping[str, Any]) -> None:
        """Write the summary: what was known before, the last evaluation, and the resources."""
        resources = {**expected["resources"], **_resources(self.lines("timings.jsonl"))}
        results = {"evaluation": evaluation, "solves": _solves(self.lines("rounds.jsonl")), "resources": resources}
        self.write_json("summary.json", {**expected, **results})

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a file atomically."""
        write_atomically(self.path / name, (json.dumps(value, indent=2) + "\n").encode())


def _solves(rounds: list[dict[str, Any]]) -> dict[str, float]:
    return {name: sum(line["solves"][name] for line in rounds) for name in SOLVES}


def _resources(timings: list[dict[str, Any]]) -> dict[str, float]:
    parts = ("train", "evaluate", "solve", "backward", "update")
    seconds = {part: sum(timing[part] for timing in timings) for part in parts}
    per_round = seconds["train"] / max(1, len(timings))
    return {**{f"{part}_seconds": time for part, time in seconds.items()}, "seconds_per_round": per_round}


def _version() -> dict[str, Any]:
    return {
        "fedeq": version("fedeq"),
        "system": platform.system().lower(),
        "architecture": platform.machine(),
        "processor": None,
        "cores": os.cpu_count(),
    }
