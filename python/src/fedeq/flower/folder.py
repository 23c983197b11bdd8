"""The folder of a run, as `fedeq run` writes it: `fedeq report` and `fedeq dashboard` read both alike.

Beside what `fedeq init-federation` put there it holds

- `checkpoint.json` and the `theta-N.safetensors` it names: what a run that is started again goes on from
- `rounds.jsonl`, `evaluations.jsonl`, `timings.jsonl`: a line a round, an evaluation, a round's time
- `failures.jsonl`: a line for every answer that did not count, and why; also those of rounds that had to be done again
- `status.json`, `lock`, `version.json`, `activity.json`, `control.json`, `summary.json`: as in any run folder

There is no `heads.jsonl`: heads are none of the server's business.
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
Order = Literal["go-on", "pause", "stop"]


class Damaged(RuntimeError):
    """A file that is not what was written."""


class Stopped(Exception):
    """Somebody wants the run to stop."""


@dataclass(frozen=True)
class Checkpoint:
    """All state of a server."""

    done: int
    theta: Weights
    traffic: Traffic


@dataclass(frozen=True)
class RunFolder:
    """A folder that holds a run."""

    path: Path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Take the run for this process, and say how it ended."""
        with (self.path / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as problem:
                message = f"`{self.path}` is being worked on by another process; wait until it is done, or stop it"
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
        """Say how the run stands."""
        self.write_json("status.json", {"state": state, "pid": os.getpid()})

    def order(self) -> Order:
        """Read what somebody wants of the run, as the dashboard leaves it."""
        try:
            order: Order = json.loads((self.path / "control.json").read_text())["order"]
        except (OSError, ValueError, KeyError, TypeError):
            return "go-on"
        return order

    def tell_activity(self, activity: Mapping[str, Any]) -> None:
        """Tell who is at work: not synced, and not worth failing for."""
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
        """Read the whole lines of a journal."""
        path = self.path / journal
        whole = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in whole]

    def cut_back(self, done: int) -> None:
        """Forget what was written after so many rounds: it will happen again."""
        self._keep_lines("rounds.jsonl", lambda line: line["round"] < done)
        for journal in ("evaluations.jsonl", "timings.jsonl"):
            self._keep_lines(journal, lambda line: line["round"] <= done)

    def _keep_lines(self, journal: str, is_wanted: Callable[[dict[str, Any]], bool]) -> None:
        path = self.path / journal
        if path.exists():
            kept = [json.dumps(line) + "\n" for line in self.lines(journal) if is_wanted(line)]
            write_atomically(path, "".join(kept).encode())

    def keep(self, checkpoint: Checkpoint) -> None:
        """Keep `theta`, then the note that names it: the note is what counts."""
        name = f"theta-{checkpoint.done}.safetensors"
        fingerprint = weights.write(self.path / name, checkpoint.theta)
        note = {"done": checkpoint.done, "theta": fingerprint, "traffic": asdict(checkpoint.traffic)}
        self.write_json("checkpoint.json", note)
        for old in self.path.glob("theta-*.safetensors"):
            if old.name != name:
                old.unlink()

    def resume(self) -> Checkpoint:
        """Read where the run stands: before the first round if it was never kept."""
        note = self.path / "checkpoint.json"
        if not note.exists():
            return Checkpoint(0, weights.read(self.path / "theta.safetensors"), Traffic())
        kept = json.loads(note.read_text())
        path = self.path / f"theta-{kept['done']}.safetensors"
        if not path.exists() or weights.fingerprint(path.read_bytes()) != kept["theta"]:
            message = f"`{path}` is not what `{note}` says was written; bring it back, or begin with a new folder"
            raise Damaged(message)
        return Checkpoint(kept["done"], weights.read(path), Traffic(**kept["traffic"]))

    def write_summary(self, expected: Mapping[str, Any], evaluation: Mapping[str, Any]) -> None:
        """Say what came out: what was known before, the last evaluation, and what it took."""
        resources = {**expected["resources"], **_resources(self.lines("timings.jsonl"))}
        told = {"evaluation": evaluation, "solves": _solves(self.lines("rounds.jsonl")), "resources": resources}
        self.write_json("summary.json", {**expected, **told})

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a file, whole or not at all."""
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
