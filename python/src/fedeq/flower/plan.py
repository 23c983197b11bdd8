"""What `fedeq init-federation` wrote: who takes part, how answers are combined, what nodes train."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

View = Literal["local", "shared"]


@dataclass(frozen=True)
class Plan:
    """A federation, decided before it begins."""

    federation: str
    method: str
    weighting: Literal["uniform", "samples"]
    rho: float | None
    clients: int
    headline: View
    evaluate_every: int
    evaluate: Literal["evaluate", "measure"]
    cohorts: list[list[int]]
    # What will have come out, as far as it is known before.
    summary: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read `plan.json` of a folder."""
        path = folder / "plan.json"
        if not path.is_file():
            message = f"`{folder}` is no federation: it has no `plan.json`; make one with `fedeq init-federation`"
            raise ValueError(message)
        return cls(**json.loads(path.read_text()))

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self.cohorts)

    def is_evaluated_after(self, done: int) -> bool:
        """Whether clients are judged when so many rounds are done."""
        return done == self.rounds or (self.evaluate_every > 0 and done % self.evaluate_every == 0)
