"""`python -m peer JOB`: does a job given as JSON, and prints what came out as JSON."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from . import models
from .cohort import rounds as rounds_on_gpu
from .data import Data
from .fedeq import Federation, Settings
from .memory import megabytes
from .train import Trainer

Job = dict[str, Any]
Answer = dict[str, Any]


def network_of(job: Job) -> models.Network:
    """The job's network with our weights."""
    network = models.build(job["model"], job.get("solver_steps", 0), job.get("dropout", 0.0))
    return models.load(network, Path(job["folder"]) / "weights.safetensors")


def data_of(job: Job) -> Data:
    """The job's samples."""
    return Data(Path(job["folder"]) / "data.safetensors")


def check(job: Job) -> Answer:
    """The loss and the size of its gradient on the first batch, and the mean loss over an epoch of training."""
    batches = list(data_of(job).batches(0, "body", 0, job["batch"]))
    network = network_of(job)
    trainer = Trainer(network, list(network.parameters()), job["learning_rate"])
    losses, norms = [], []
    for inputs, targets in batches:
        losses.append(trainer.step(inputs, targets))
        norms.append(trainer.gradient_norm())
    return {"loss": losses[0], "gradient_norm": norms[0], "epoch_loss": sum(losses) / len(losses)}


def step(job: Job) -> Answer:
    """Milliseconds a training step, for every repeat; the first one is not counted."""
    batches = list(data_of(job).batches(0, "body", 0, job["batch"]))
    network = network_of(job)
    trainer = Trainer(network, list(network.parameters()), job["learning_rate"])
    times = []
    for _ in range(job["repeats"] + 1):
        begun = time.perf_counter()
        for inputs, targets in batches:
            trainer.step(inputs, targets)
        times.append(1e3 * (time.perf_counter() - begun) / len(batches))
    return {"milliseconds": times[1:]}


def rounds(job: Job) -> Answer:
    """Seconds a round."""
    if job.get("device") == "cuda":
        return rounds_on_gpu(network_of(job), data_of(job), job)
    settings = Settings(job["method"], job["batch"], job["epochs"], job["personal_epochs"], job["learning_rate"])
    federation = Federation.begin(network_of(job), data_of(job), settings, job["clients"], job["workers"])
    cohort = list(range(job["cohort"]))
    start = federation.parameters
    seconds, losses, moves = [], [], []
    for _ in range(job["rounds"]):
        begun = time.perf_counter()
        losses.append(federation.round(cohort, job["workers"]))
        seconds.append(time.perf_counter() - begun)
        moves.append(distance(federation.parameters, start))
    return {"seconds": seconds, "loss": losses[0], "move": moves[0]}


def distance(a: list[torch.Tensor], b: list[torch.Tensor]) -> float:
    """Of two lists of tensors, as if each were one vector."""
    return torch.nn.utils.get_total_norm([x - y for x, y in zip(a, b, strict=True)]).item()


def wake() -> None:
    """One step of almost nothing, so that what PyTorch loads on first use counts neither as time nor as memory of the work."""
    layer = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, fused=True)
    layer(torch.ones(1, 1)).sum().backward()
    optimizer.step()


def main() -> None:
    """Does the job."""
    job = json.loads(sys.argv[1])
    torch.set_num_threads(job["threads"])
    torch.manual_seed(0)
    wake()
    idle = megabytes("VmRSS")
    answer = {"check": check, "step": step, "round": rounds}[job["job"]](job)
    print(json.dumps({**answer, "idle_mb": idle, "peak_mb": megabytes("VmHWM")}))


if __name__ == "__main__":
    main()
