"""What a row comes to."""

import statistics
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass
class Side:
    """Every timing of one side, and its memory."""

    label: str
    times: list[float] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)
    idles: list[float] = field(default_factory=list)

    def note(self, times: list[float], answer: dict[str, Any]) -> None:
        """Takes in one process's figures."""
        self.times += times
        self.peaks.append(answer["peak_mb"])
        self.idles.append(answer.get("idle_mb", 0.0))

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def peak(self) -> float:
        """Megabytes at most, the median over processes."""
        return statistics.median(self.peaks)

    @property
    def work_memory(self) -> float:
        """Megabytes above what the process held before it did anything."""
        return statistics.median(peak - idle for peak, idle in zip(self.peaks, self.idles, strict=True))


@dataclass
class Agreement:
    """The same quantity computed by both sides."""

    what: str
    ours: float
    theirs: float
    tolerance: float
    # Who the two sides are.
    between: str = "ours, PyTorch"

    @property
    def difference(self) -> float:
        return abs(self.ours - self.theirs) / max(abs(self.theirs), 1e-12)

    @property
    def holds(self) -> bool:
        return self.difference <= self.tolerance


@dataclass
class Outcome:
    """A row of the table. The ratio is theirs by ours, so that above 1 is better. Wanted is a ratio, or a time of ours."""

    name: str
    title: str
    unit: str
    ours: Side
    theirs: Side
    target: float | None
    # Of whole processes.
    memory_target: float | None = None
    agreements: list[Agreement] = field(default_factory=list)
    remark: str = ""
    commit: str = ""
    machine: str = ""
    time_target: float | None = None
    # Of what processes held above what they held before they began.
    work_memory_target: float | None = None

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "Outcome":
        """A row that was recorded."""
        inner = {"ours": Side(**data["ours"]), "theirs": Side(**data["theirs"])}
        agreements = [Agreement(**each) for each in data["agreements"]]
        return cls(**{**own(cls, data), **inner, "agreements": agreements})

    @property
    def ratio(self) -> float:
        return self.theirs.median / self.ours.median

    @property
    def work_share(self) -> float:
        """Our memory by theirs, both above what an idle process holds: importing PyTorch alone takes hundreds of megabytes."""
        return self.ours.work_memory / self.theirs.work_memory

    @property
    def process_share(self) -> float:
        """Our memory by theirs, as whole processes: what a device must have."""
        return self.ours.peak / self.theirs.peak

    @property
    def reached(self) -> bool | None:
        if self.target is None and self.time_target is None:
            return None
        is_small = self.memory_target is None or self.process_share <= self.memory_target
        is_lean = self.work_memory_target is None or self.work_share <= self.work_memory_target
        is_ahead = self.target is None or self.ratio >= self.target
        is_fast = self.time_target is None or self.ours.median <= self.time_target
        return is_small and is_lean and is_ahead and is_fast

    def as_data(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "ratio": self.ratio,
            "process_share": self.process_share,
            "work_share": self.work_share,
            "reached": self.reached,
        }


@dataclass
class Share:
    """A row about the machine's limit: what is reached, and what there is."""

    name: str
    title: str
    reached_gflops: list[float]
    peak_gflops: list[float]
    target: float
    remark: str = ""
    commit: str = ""
    machine: str = ""

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "Share":
        """A row that was recorded."""
        return cls(**own(cls, data))

    @property
    def share(self) -> float:
        return statistics.median(self.reached_gflops) / statistics.median(self.peak_gflops)

    def as_data(self) -> dict[str, Any]:
        return {**asdict(self), "share": self.share, "reached": self.share >= self.target}


def own(kind: type[Outcome] | type[Share], data: dict[str, Any]) -> dict[str, Any]:
    """What a row is made of, without what follows from it."""
    return {each.name: data[each.name] for each in fields(kind) if each.name in data}


def from_data(data: dict[str, Any]) -> Outcome | Share:
    """A row that was recorded."""
    return Share.from_data(data) if "share" in data else Outcome.from_data(data)
