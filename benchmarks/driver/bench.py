"""What every row needs: our program, a folder to work in, and how thorough to be."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import process
from .environment import HERE, say
from .outcome import Agreement, Side
from .process import Answer, Failed, Job

WORK = HERE / "work"
LOSS_TOLERANCE = 1e-3
GRADIENT_TOLERANCE = 1e-2
ROUND_TOLERANCE = 2e-2  # Dozens of steps in a row let rounding grow.
LEARNING_RATE = 0.01
CHECK_LEARNING_RATE = 0.001  # Long steps let rounding grow, and say nothing about who is right.
DEFAULT_WARM_START = {"by-sample": {"precision": "half"}}


@dataclass(frozen=True)
class Bench:
    """How to measure."""

    program: Path
    repeats: int
    quick: bool
    threads: int
    workers: int
    femnist: Path | None
    # By the clock that never goes back, if there is an end.
    deadline: float | None = None

    def seconds_left(self) -> float:
        """How long a job may take."""
        return process.LONGEST if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)

    def folder(self, name: str) -> Path:
        """An empty folder for a row."""
        folder = WORK / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def ours(self, job: Job) -> Answer:
        return process.ours(self.program, job, self.seconds_left())

    def prepare(self, folder: Path, setting: dict[str, Any], clients: int, samples: int, training: dict[str, Any]) -> None:
        """Lets our program write samples, orders and weights for both sides."""
        real = self.femnist if setting["kind"] == "femnist" else None
        job = {"job": "prepare", "setting": setting, "folder": str(folder), "clients": clients, "samples": samples}
        self.ours({**job, "training": training, "femnist": str(real) if real else None})


def training(
    batch: int, epochs: int = 1, personal_epochs: int = 0, warm: bool = False, learning_rate: float = LEARNING_RATE
) -> dict[str, Any]:
    """How clients train, as our program reads it."""
    return {
        "learning_rate": learning_rate,
        "batch_size": batch,
        "epochs": epochs,
        "personal_epochs": personal_epochs,
        "warm_start": DEFAULT_WARM_START if warm else "off",
    }


def agree(
    name: str, ours: Answer, theirs: Answer, tolerances: dict[str, float], between: str = "ours, PyTorch"
) -> list[Agreement]:
    """Holds the two answers side by side; nothing is timed before they agree."""
    agreements = [Agreement(what, ours[what], theirs[what], tolerance, between) for what, tolerance in tolerances.items()]
    for each in agreements:
        figures = f"{each.ours:.6f} and {each.theirs:.6f}, relative difference {each.difference:.1e}"
        say(f"{name}: {each.what} ({between}) {figures}")
    wrong = [each for each in agreements if not each.holds]
    if wrong:
        raise Failed(f"the two sides do not compute the same: {', '.join(each.what for each in wrong)}")
    return agreements


def in_turn(repeats: int, sides: list[tuple[Side, Any]]) -> None:
    """A, B, A, B, ...: what else the machine does then falls on both."""
    for repeat in range(repeats):
        for side, work in sides:
            times, answer = work()
            side.note(times, answer)
            say(
                f"  {repeat + 1}/{repeats} {side.label}: {', '.join(f'{time:.3g}' for time in times)}; {answer['peak_mb']:.0f} MB"
            )
