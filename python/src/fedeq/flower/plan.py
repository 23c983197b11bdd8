"""The plan of a federation, as `fedeq init-federation` wrote it: cohorts, weighting, evaluations."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

View = Literal["local", "shared"]


@dataclass(frozen=True)
class Plan:
    """All that is decided before a federation begins."""

    federation: str
    method: str
    weighting: Literal["uniform", "samples"]
    rho: float | None
    clients: int
    headline: View
    evaluate_every: int
    evaluate: Literal["evaluate", "measure"]
    cohorts: list[list[int]]
    # The summary as far as it is known before the run.
    summary: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read `plan.json` of a folder."""
        path = folder / "plan.json"
        if not path.is_file():
            message = f"`{folder}` has no `plan.json`; give the folder of an app that `fedeq init-federation` wrote"
            raise ValueError(message)
        return cls(**json.loads(path.read_text()))

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return len(self.cohorts)

    def is_evaluated_after(self, done: int) -> bool:
        """Whether clients are evaluated after so many rounds."""
        return done == self.rounds or (self.evaluate_every > 0 and done % self.evaluate_every == 0)
