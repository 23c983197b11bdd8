"""The rows that need an NVIDIA GPU: whole rounds, all clients of a round at once on both sides."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from . import process
from .bench import CHECK_LEARNING_RATE, LEARNING_RATE, Bench, agree, in_turn, training
from .environment import say
from .outcome import Agreement, Outcome, Share, Side
from .process import Answer, Job, attempt

# 16-bit factors against TF32, over dozens of steps.
TOLERANCE = 3e-2
# Who is compared before anything is timed: first the two programs, then the two precisions of ours.
PROGRAMS = "ours in 32 bits, PyTorch"
PRECISIONS = "ours with 16-bit factors, ours in 32 bits"
# With the first, which is not counted.
ROUNDS_WITHIN_A_BUDGET = 3


@dataclass(frozen=True)
class GpuRound:
    """A round of all clients, ours against PyTorch with `vmap` over clients and CUDA graphs."""

    name: str
    title: str
    method: str
    model: str
    kind: str
    batch: int
    clients: int
    samples: int
    # Seconds of ours; nothing where the other side is not the one that is to be beaten.
    time_target: float | None
    solver_steps: int | None = None
    epochs: int = 5
    personal_epochs: int = 3
    dropout: float = 0.0
    memory_target: float | None = None
    rounds: int = 4
    learning_rate: float = LEARNING_RATE
    remark: str = ""

    def __call__(self, bench: Bench) -> list[Outcome | Share]:
        return [self.timed(bench, self.checked(bench))]

    def checked(self, bench: Bench) -> list[Agreement]:
        """Whether both sides compute the same, on a small federation."""
        small = replace(self, clients=3, samples=2 * self.batch, epochs=1, personal_epochs=min(self.personal_epochs, 1), rounds=1)
        small = replace(small, learning_rate=CHECK_LEARNING_RATE, dropout=0.0)
        folder = small.prepare(bench, f"{self.name}-check")
        ours = small.ours(bench, folder, "exact")
        tolerances = {"loss": TOLERANCE, "move": TOLERANCE}
        agreements = agree(self.name, ours, small.peer(bench, folder, exact=True), tolerances, PROGRAMS)
        return agreements + agree(self.name, small.ours(bench, folder, "mixed"), ours, tolerances, PRECISIONS)

    def timed(self, bench: Bench, agreements: list[Agreement]) -> Outcome:
        """Both sides in turn."""
        rounds = self.rounds if bench.deadline is None else min(self.rounds, ROUNDS_WITHIN_A_BUDGET)
        work = replace(self, samples=2 * self.batch, rounds=2) if bench.quick else replace(self, rounds=rounds)
        folder = work.prepare(bench, self.name)
        sides = Side("ours"), Side("PyTorch")
        turns = [
            (sides[0], lambda: settled(work.ours(bench, folder, "mixed"))),
            (sides[1], lambda: settled(work.peer(bench, folder))),
        ]
        in_turn(min(bench.repeats, 2), turns)
        return self.judged(Outcome(self.name, self.title, "s", *sides, None, agreements=agreements))

    def judged(self, outcome: Outcome) -> Outcome:
        """A row with what is wanted of it: that is said here, whenever it was measured."""
        return replace(
            outcome,
            target=None,
            time_target=self.time_target,
            memory_target=self.memory_target,
            agreements=with_sides(outcome.agreements),
            remark=self.remark,
        )

    def prepare(self, bench: Bench, name: str) -> str:
        folder = bench.folder(name)
        bench.prepare(folder, self.setting(), self.clients, self.samples, self.training())
        return str(folder)

    def ours(self, bench: Bench, folder: str, precision: str) -> Answer:
        job: Job = {"job": "round", "setting": self.setting(), "folder": folder, "training": self.training()}
        job |= {"method": self.method, "clients": self.clients, "cohort": self.clients, "rounds": self.rounds, "workers": 1}
        return bench.ours({**job, "device": "cuda", "precision": precision})

    def peer(self, bench: Bench, folder: str, exact: bool = False) -> Answer:
        job: Job = {"job": "round", "method": self.method, "model": self.model, "batch": self.batch, "folder": folder}
        job |= {"learning_rate": self.learning_rate, "epochs": self.epochs, "personal_epochs": self.personal_epochs}
        job |= {"solver_steps": self.solver_steps or 0, "dropout": self.dropout, "clients": self.clients, "cohort": self.clients}
        job |= {"rounds": self.rounds, "workers": 1, "threads": 4, "device": "cuda", "exact": exact}
        return process.peer(job, bench.seconds_left())

    def setting(self) -> dict[str, Any]:
        return {"model": self.model, "kind": self.kind, "solver_steps": self.solver_steps, "dropout": self.dropout}

    def training(self) -> dict[str, Any]:
        return training(self.batch, self.epochs, self.personal_epochs, False, self.learning_rate)


def with_sides(agreements: list[Agreement]) -> list[Agreement]:
    """Who was compared, also in a row that was recorded before this was: always the same two pairs, one after the other."""
    half = len(agreements) // 2
    names = [PROGRAMS] * half + [PRECISIONS] * (len(agreements) - half)
    return [replace(each, between=between) for each, between in zip(agreements, names, strict=True)]


def within_a_budget(rows: list[GpuRound], bench: Bench, note: Callable[[list[Outcome | Share]], None]) -> list[Outcome | Share]:
    """The rows that the bench's time is enough for, in this order: all checks first, side by side, then every row alone. Each is noted as soon as it is there."""
    with ThreadPoolExecutor(len(rows)) as pool:
        checks = list(pool.map(lambda row: attempt(row.name, partial(row.checked, bench)), rows))
    done: list[Outcome | Share] = []
    for row, agreements in zip(rows, checks, strict=True):
        if agreements is None:
            continue
        say(f"{row.name}: {bench.seconds_left():.0f} s are left")
        outcome = attempt(row.name, partial(row.timed, bench, agreements))
        if outcome is not None:
            done.append(outcome)
            note(done)
    return done


def settled(answer: Answer) -> tuple[list[float], Answer]:
    """The rounds after the first, which loads kernels and records graphs; with the memory of the device."""
    return answer["seconds"][1:], {"peak_mb": 1e3 * answer["device_gb"], "idle_mb": 0.0}


def deq_m(steps: int, seconds: float) -> GpuRound:
    title = f"GPU: FeDEQ round, DEQ-ResNet-M, CIFAR-10, 10 clients x 500, batch 20, {steps} Anderson steps, 5 + 3 epochs"
    return GpuRound(f"gpu-deq-m-{steps}", title, "fedeq", "deq-resnet-m", "cifar10", 20, 10, 500, seconds, steps)


GPU_ROWS = {
    row.name: row
    for row in (
        deq_m(8, 0.6),
        deq_m(20, 1.3),
        GpuRound(
            "gpu-resnet-34",
            "GPU: FedRep round, ResNet-34, CIFAR-10, 10 clients x 500, batch 20, 5 + 3 epochs",
            "fedrep",
            "resnet-34",
            "cifar10",
            20,
            10,
            500,
            1.5,
            memory_target=0.5,
        ),
        GpuRound(
            "gpu-deq-s",
            "GPU: FeDEQ round, DEQ-ResNet-S, FEMNIST, 10 writers x 190, batch 10, 20 Anderson steps, 5 + 3 epochs",
            "fedeq",
            "deq-resnet-s",
            "femnist",
            10,
            10,
            190,
            0.2,
            20,
        ),
        GpuRound(
            "gpu-deq-transformer",
            "GPU: FeDEQ round, DEQ-Transformer, T = 16, 20 roles x 320 texts, batch 16, 20 Anderson steps, 5 + 3 epochs",
            "fedeq",
            "deq-transformer",
            "shakespeare",
            16,
            20,
            320,
            0.4,
            20,
            dropout=0.1,
        ),
        GpuRound(
            "gpu-fedavg",
            "GPU: FedAvg round, MLP, FEMNIST, 100 clients x 100, batch 10, 5 epochs",
            "fedavg",
            "mlp",
            "femnist",
            10,
            100,
            100,
            None,
            personal_epochs=0,
            remark="wanted is ten times Flower's or pfl-research's simulation, and this is neither",
        ),
    )
}
