"""The rows of the table."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import median
from typing import Any

from . import process
from .bench import (
    CHECK_LEARNING_RATE,
    GRADIENT_TOLERANCE,
    LEARNING_RATE,
    LOSS_TOLERANCE,
    ROUND_TOLERANCE,
    Bench,
    agree,
    in_turn,
    training,
)
from .gpu import GPU_ROWS
from .outcome import Agreement, Outcome, Share, Side
from .process import Answer, Job

SOLVER_STEPS = 20
# What training on a CPU may hold above what the process held before it began, of what PyTorch's holds.
WORK_MEMORY = 0.5
Row = Callable[[Bench], list[Outcome | Share]]


@dataclass(frozen=True)
class Step:
    """A training step of one network, ours against PyTorch."""

    name: str
    title: str
    model: str
    kind: str
    batch: int
    target: float
    batches: int = 4
    passes: int = 3
    dropout: float = 0.0

    def __call__(self, bench: Bench) -> list[Outcome | Share]:
        folder = bench.folder(self.name)
        batches = 2 if bench.quick else self.batches
        bench.prepare(folder, self.setting(0.0), 1, batches * self.batch, training(self.batch))
        agreements = self.agreements(bench, str(folder))
        sides = Side("ours"), Side("PyTorch")
        ours = lambda: timed(bench.ours(self.our_job("step", bench, str(folder), self.dropout)), "milliseconds")
        theirs = lambda: timed(process.peer(self.peer_job("step", bench, str(folder), self.dropout)), "milliseconds")
        in_turn(bench.repeats, [(sides[0], ours), (sides[1], theirs)])
        return [self.judged(Outcome(self.name, self.title, "ms", *sides, None, agreements=agreements))]

    def judged(self, outcome: Outcome) -> Outcome:
        """A row with what is wanted of it: that is said here, whenever it was measured."""
        return replace(outcome, target=self.target, work_memory_target=WORK_MEMORY)

    def agreements(self, bench: Bench, folder: str) -> list[Agreement]:
        """Without dropout, whose masks differ."""
        ours = bench.ours(self.our_job("check", bench, folder, 0.0))
        theirs = process.peer(self.peer_job("check", bench, folder, 0.0))
        tolerances = {"loss": LOSS_TOLERANCE, "gradient_norm": GRADIENT_TOLERANCE, "epoch_loss": GRADIENT_TOLERANCE}
        return agree(self.name, ours, theirs, tolerances)

    def setting(self, dropout: float) -> dict[str, Any]:
        return {"model": self.model, "kind": self.kind, "solver_steps": SOLVER_STEPS, "dropout": dropout}

    def our_job(self, name: str, bench: Bench, folder: str, dropout: float) -> Job:
        job: Job = {
            "job": name,
            "setting": self.setting(dropout),
            "folder": folder,
            "training": training(self.batch, learning_rate=rate_of(name)),
        }
        return {**job, "threads": bench.threads, "repeats": 1 if bench.quick else self.passes}

    def peer_job(self, name: str, bench: Bench, folder: str, dropout: float) -> Job:
        job: Job = {"job": name, "model": self.model, "solver_steps": SOLVER_STEPS, "dropout": dropout, "folder": folder}
        job |= {"batch": self.batch, "learning_rate": rate_of(name), "threads": bench.threads}
        return {**job, "repeats": 1 if bench.quick else self.passes}


@dataclass(frozen=True)
class Rounds:
    """A federation whose rounds are timed."""

    method: str
    model: str
    kind: str
    batch: int
    clients: int
    cohort: int
    samples: int
    rounds: int
    epochs: int = 5
    personal_epochs: int = 3
    solver_steps: int | None = SOLVER_STEPS
    warm: bool = False
    learning_rate: float = LEARNING_RATE

    def prepare(self, bench: Bench, name: str) -> str:
        folder = bench.folder(name)
        bench.prepare(folder, self.setting(), self.clients, self.samples, self.training())
        return str(folder)

    def ours(self, bench: Bench, folder: str, workers: int) -> Answer:
        job: Job = {"job": "round", "setting": self.setting(), "folder": folder, "training": self.training()}
        job |= {"method": self.method, "clients": self.clients, "cohort": self.cohort, "rounds": self.rounds, "workers": workers}
        return bench.ours(job)

    def peer(self, folder: str, workers: int) -> Answer:
        return process.peer({"job": "round", **self.peer_settings(folder, workers)})

    def peer_settings(self, folder: str, workers: int) -> Job:
        """Clients side by side, one thread each: faster than one client at a time on several threads."""
        settings: Job = {
            "method": self.method,
            "model": self.model,
            "batch": self.batch,
            "folder": folder,
            "learning_rate": self.learning_rate,
        }
        settings |= {"epochs": self.epochs, "personal_epochs": self.personal_epochs, "solver_steps": self.solver_steps or 0}
        settings |= {"clients": self.clients, "cohort": self.cohort, "rounds": self.rounds}
        return {**settings, "workers": workers, "threads": 1}

    def setting(self) -> dict[str, Any]:
        return {"model": self.model, "kind": self.kind, "solver_steps": self.solver_steps}

    def training(self) -> dict[str, Any]:
        return training(self.batch, self.epochs, self.personal_epochs, self.warm, self.learning_rate)


def fedeq_round(samples: int, clients: int = 10) -> Rounds:
    """FeDEQ on FEMNIST as the paper runs it, all clients taking part."""
    return Rounds("fedeq", "deq-resnet-s", "femnist", 10, clients, clients, samples, rounds=1)


def whole_round(bench: Bench) -> list[Outcome | Share]:
    """FeDEQ on FEMNIST against PyTorch; first a small federation shows that both do the same."""
    small = replace(fedeq_round(samples=30, clients=2), learning_rate=CHECK_LEARNING_RATE)
    folder = small.prepare(bench, "round-check")
    tolerances = {"loss": ROUND_TOLERANCE, "move": ROUND_TOLERANCE}
    agreements = agree("round", small.ours(bench, folder, 1), small.peer(folder, 1), tolerances)
    work = fedeq_round(samples=20 if bench.quick else 195)
    folder = work.prepare(bench, "round")
    sides = Side("ours"), Side("PyTorch")
    ours = lambda: timed(work.ours(bench, folder, bench.workers), "seconds")
    theirs = lambda: timed(work.peer(folder, bench.workers), "seconds")
    in_turn(min(bench.repeats, 3), [(sides[0], ours), (sides[1], theirs)])
    title = "a whole FeDEQ round, FEMNIST, 10 writers, 5 + 3 epochs"
    remark = f"{bench.workers} clients side by side, {work.samples} samples a writer"
    return [judged_round(Outcome("round", title, "s", *sides, None, agreements=agreements, remark=remark))]


def judged_round(outcome: Outcome) -> Outcome:
    """The row with what is wanted of it, whenever it was measured."""
    return replace(outcome, target=3.0, memory_target=1 / 3, work_memory_target=WORK_MEMORY)


def fedavg(bench: Bench) -> list[Outcome | Share]:
    """FedAvg against Flower's simulation, and against a plain loop in PyTorch."""
    rounds = 4 if bench.quick else 8
    work = Rounds("fedavg", "mlp", "femnist", 10, 100, 10, 100, rounds, personal_epochs=0, solver_steps=None)
    all_clients = Rounds("fedavg", "mlp", "femnist", 10, 10, 10, 100, rounds=1, personal_epochs=0, solver_steps=None)
    folder = all_clients.prepare(bench, "fedavg-check")
    tolerances = {"loss": ROUND_TOLERANCE, "move": ROUND_TOLERANCE}
    agreements = agree("fedavg", all_clients.ours(bench, folder, 1), all_clients.peer(folder, 1), tolerances)
    folder = work.prepare(bench, "fedavg")
    job = {**work.peer_settings(folder, bench.workers), "timeout": 600, "answer": f"{folder}/flower.json"}
    ours, flower, plain = Side("ours"), Side("Flower"), Side("PyTorch")
    turns = [
        (ours, lambda: settled(work.ours(bench, folder, bench.workers))),
        (flower, lambda: settled(process.flower(job))),
        (plain, lambda: settled(work.peer(folder, bench.workers))),
    ]
    in_turn(min(bench.repeats, 3), turns)
    title = "FedAvg round, MLP, 100 clients, 10 a round, 5 epochs"
    return [
        Outcome("fedavg", title, "s", ours, flower, 5.0, agreements=agreements, remark="rounds after the first"),
        Outcome("fedavg-plain", title, "s", ours, plain, None, remark="a plain loop instead of Flower"),
    ]


def explicit(bench: Bench) -> list[Outcome | Share]:
    """In our engine: FeDEQ with an equilibrium network against FedRep with the explicit one, both at their defaults."""
    samples, clients = (20, 2) if bench.quick else (100, 4)
    shape: dict[str, Any] = {
        "kind": "cifar10",
        "batch": 20,
        "clients": clients,
        "cohort": clients,
        "samples": samples,
        "rounds": 2,
    }
    implicit = Rounds("fedeq", "deq-resnet-m", **shape, solver_steps=None, warm=True)
    layered = Rounds("fedrep", "resnet-34", **shape, solver_steps=None)
    folders = implicit.prepare(bench, "explicit-deq"), layered.prepare(bench, "explicit-resnet")
    sides = Side("FeDEQ, DEQ-ResNet-M"), Side("ours: FedRep, ResNet-34")
    turns = [
        (sides[0], lambda: trained(implicit.ours(bench, folders[0], bench.workers))),
        (sides[1], lambda: trained(layered.ours(bench, folders[1], bench.workers))),
    ]
    in_turn(min(bench.repeats, 2), turns)
    remark = f"in our engine, {clients} clients of {samples} samples; memory: what the training of one client takes at most"
    return [
        Outcome("explicit", "FeDEQ / DEQ-ResNet-M against FedRep / ResNet-34, CIFAR-10", "s", *sides, 1.0, 0.5, remark=remark)
    ]


def scaling(bench: Bench) -> list[Outcome | Share]:
    """Clients side by side on several cores."""
    work = fedeq_round(samples=20 if bench.quick else 60)
    folder = work.prepare(bench, "scaling")
    sides = Side("2 workers"), Side("ours: 1 worker")
    turns = [
        (sides[0], lambda: timed(work.ours(bench, folder, 2), "seconds")),
        (sides[1], lambda: timed(work.ours(bench, folder, 1), "seconds")),
    ]
    in_turn(bench.repeats, turns)
    return [Outcome("scaling", "two workers against one, FeDEQ round on FEMNIST", "s", *sides, 1.85)]


def cores(bench: Bench) -> list[Outcome | Share]:
    """Every core of the machine at work: two clients of one size for each."""
    count = os.cpu_count() or 1
    # Little of it: one worker has to do the work of all.
    work = replace(fedeq_round(samples=20, clients=2 * count), epochs=1, personal_epochs=1, rounds=2)
    equal = replace(bench, femnist=None)  # Writers have different numbers of samples, and the last one to finish would be timed.
    folder = work.prepare(equal, "cores")
    sides = Side(f"{count} workers"), Side("ours: 1 worker")
    turns = [
        (sides[0], lambda: settled(work.ours(equal, folder, count))),
        (sides[1], lambda: settled(work.ours(equal, folder, 1))),
    ]
    in_turn(min(bench.repeats, 3), turns)
    title = f"all {count} cores against one, FeDEQ round, DEQ-ResNet-S, {2 * count} equal clients"
    limit = count * sides[1].median / median_side_by_side(lambda: settled(work.ours(equal, folder, 1))[0], count)
    remark = (
        f"rounds after the first; {count} processes of one worker each, which share nothing, do {limit:.1f} times the work of one"
    )
    return [Outcome("cores", title, "s", *sides, round(count * 13 / 16, 2), remark=remark)]


def median_side_by_side(work: Callable[[], list[float]], count: int) -> float:
    """The median of all times of as many processes at once: what the machine's memory, caches and clocks allow."""
    with ThreadPoolExecutor(count) as pool:
        return median(chain.from_iterable(pool.map(lambda _: work(), range(count))))


@dataclass(frozen=True)
class Limit:
    """How near the machine's limit a cell's forward pass comes."""

    name: str
    title: str
    model: str
    kind: str
    batch: int
    remark: str = field(default="direct convolutions counted; the solver's mixing is part of the time")

    def __call__(self, bench: Bench) -> list[Outcome | Share]:
        setting = {"model": self.model, "kind": self.kind}
        job = {"job": "peak", "setting": setting, "batch": self.batch, "repeats": 1 if bench.quick else bench.repeats}
        answer = bench.ours(job)
        remark = f"{answer['instructions']}; {self.remark}"
        return [Share(self.name, self.title, answer["cell_gflops"], answer["peak_gflops"], 0.6, remark)]


def rate_of(job: str) -> float:
    """The step size of a job."""
    return CHECK_LEARNING_RATE if job == "check" else LEARNING_RATE


def timed(answer: Answer, key: str) -> tuple[list[float], Answer]:
    """All timings of an answer."""
    return answer[key], answer


def trained(answer: Answer) -> tuple[list[float], Answer]:
    """All rounds, with the memory that training took instead of the whole process's: models at rest are not part of it."""
    return answer["seconds"], {"peak_mb": answer["training_mb"], "idle_mb": 0.0}


def settled(answer: Answer) -> tuple[list[float], Answer]:
    """The rounds after the first, which starts processes and fills caches."""
    return answer["seconds"][1:], answer


ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        Step("deq-s", "DEQ-ResNet-S training step, FEMNIST, batch 10, 20 Anderson steps", "deq-resnet-s", "femnist", 10, 3.0),
        Step("deq-m", "DEQ-ResNet-M training step, CIFAR, batch 20, 20 Anderson steps", "deq-resnet-m", "cifar10", 20, 3.0, 2, 2),
        Step("resnet-20", "ResNet-20 training step, FEMNIST, batch 10", "resnet-20", "femnist", 10, 2.5),
        Step("resnet-34", "ResNet-34 training step, CIFAR, batch 20", "resnet-34", "cifar10", 20, 1.5, 2, 2),
        Step(
            "deq-transformer",
            "DEQ-Transformer training step, T = 16, batch 16, 20 Anderson steps",
            "deq-transformer",
            "shakespeare",
            16,
            1.5,
            dropout=0.1,
        ),
    )
}
ROWS |= GPU_ROWS
ROWS |= {"round": whole_round, "fedavg": fedavg, "explicit": explicit, "scaling": scaling, "cores": cores}
ROWS |= {
    "limit-s": Limit("limit-s", "DEQ-ResNet-S cell forward, share of a core's peak", "deq-resnet-s", "femnist", 10),
    "limit-m": Limit("limit-m", "DEQ-ResNet-M cell forward, share of a core's peak", "deq-resnet-m", "cifar10", 20),
}


def as_wanted(row: Outcome | Share) -> Outcome | Share:
    """A row with what is wanted of it today, where that is said beside it."""
    if not isinstance(row, Outcome):
        return row
    if row.name in GPU_ROWS:
        return GPU_ROWS[row.name].judged(row)
    if row.name == "round":
        return judged_round(row)
    known = ROWS.get(row.name)
    return known.judged(row) if isinstance(known, Step) else row
