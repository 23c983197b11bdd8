"""What `fedeq init-federation` wrote: who takes part, how answers are combined, what nodes train."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self


@dataclass(frozen=True)
class Plan:
    """A federation, decided before it begins."""

    federation: str
    method: str
    weighting: Literal["uniform", "samples"]
    rho: float | None
    clients: int
    headline: Literal["local", "shared"]
    evaluate_every: int
    cohorts: list[list[int]]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read `plan.json` of a folder."""
        return cls(**json.loads((folder / "plan.json").read_text()))

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self.cohorts)

    def is_evaluated_after(self, done: int) -> bool:
        """Whether clients are judged when so many rounds are done."""
        return done == self.rounds or (self.evaluate_every > 0 and done % self.evaluate_every == 0)
