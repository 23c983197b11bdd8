"""Whole rounds: FeDEQ with the preset `recommended`, and FedAvg."""

import copy
import queue
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from .data import Data
from .layers import BatchNorm
from .models import Network
from .train import ProximalTerm, Trainer, personal, shared

RHO = 0.01


@dataclass(frozen=True)
class Settings:
    """How a client trains."""

    method: str
    batch: int
    epochs: int
    personal_epochs: int
    learning_rate: float


@dataclass
class Client:
    """What a client keeps between rounds: `w_i` and `lambda_i`."""

    number: int
    head: list[Tensor]
    dual: list[Tensor]


@dataclass
class Update:
    """What a client sends."""

    parameters: list[Tensor]
    statistics: list[Tensor]
    samples: int
    loss: float = 0.0


@dataclass
class Federation:
    """A server, its clients and as many networks as clients train side by side."""

    data: Data
    settings: Settings
    clients: list[Client]
    parameters: list[Tensor]
    statistics: list[Tensor]
    networks: "queue.SimpleQueue[Network]" = field(default_factory=queue.SimpleQueue)

    @classmethod
    def begin(cls, network: Network, data: Data, settings: Settings, clients: int, workers: int) -> "Federation":
        """All clients start from the same weights, duals from zero."""
        theta = copies(shared_part(network, settings))
        fresh = lambda number: Client(number, copies(personal(network)), [torch.zeros_like(value) for value in theta])
        federation = cls(data, settings, [fresh(number) for number in range(clients)], theta, copies(buffers(network)))
        for _ in range(workers):
            federation.networks.put(copy.deepcopy(network))
        return federation

    def round(self, cohort: list[int], workers: int) -> float:
        """One round; returns the mean loss of the clients' last epochs."""
        with ThreadPoolExecutor(workers) as pool:
            updates = list(pool.map(self.serve, cohort))
        weights = [float(update.samples) if self.settings.method == "fedavg" else 1.0 for update in updates]
        self.parameters = mean([update.parameters for update in updates], weights)
        self.statistics = mean([update.statistics for update in updates], weights)
        return sum(update.loss for update in updates) / len(updates)

    def serve(self, number: int) -> Update:
        """Lets one client work on a network that is free."""
        network = self.networks.get()
        try:
            work = fedavg_client if self.settings.method == "fedavg" else fedeq_client
            return work(self, network, self.clients[number])
        finally:
            self.networks.put(network)


def fedeq_client(server: Federation, network: Network, client: Client) -> Update:
    """Algorithm 1 of the paper, with the theta-step started from the received `theta`."""
    settings = server.settings
    theta = shared(network)
    assign(theta, server.parameters)
    assign(buffers(network), server.statistics)
    assign(personal(network), client.head)

    run_phase(server, client, "head", settings.personal_epochs, Trainer(network, personal(network), settings.learning_rate))
    client.head = copies(personal(network))

    offsets = torch._foreach_add(client.dual, server.parameters, alpha=-RHO)
    trainer = Trainer(network, theta, settings.learning_rate, ProximalTerm(RHO, list(offsets)))
    loss = run_phase(server, client, "body", settings.epochs, trainer)

    trained = copies(theta)
    torch._foreach_add_(client.dual, torch._foreach_sub(trained, server.parameters), alpha=RHO)
    return Update(trained, copies(buffers(network)), server.data.samples(client.number), loss)


def fedavg_client(server: Federation, network: Network, client: Client) -> Update:
    """The global model, trained on local data."""
    settings = server.settings
    parameters = list(network.parameters())
    assign(parameters, server.parameters)
    assign(buffers(network), server.statistics)
    loss = run_phase(server, client, "body", settings.epochs, Trainer(network, parameters, settings.learning_rate))
    return Update(copies(parameters), copies(buffers(network)), server.data.samples(client.number), loss)


def run_phase(server: Federation, client: Client, phase: str, epochs: int, trainer: Trainer) -> float:
    """Passes over the client's data; returns the mean loss of the last one."""
    losses = [0.0]
    for epoch in range(epochs):
        batches = server.data.batches(client.number, phase, epoch, server.settings.batch)
        losses = [trainer.step(inputs, targets) for inputs, targets in batches]
    return sum(losses) / len(losses)


def shared_part(network: Network, settings: Settings) -> list[nn.Parameter]:
    """What is sent."""
    return list(network.parameters()) if settings.method == "fedavg" else shared(network)


def buffers(network: Network) -> list[Tensor]:
    """The running statistics of batch normalisation."""
    norms = [module for module in network.modules() if isinstance(module, BatchNorm)]
    return [statistic for norm in norms for statistic in (norm.running_mean, norm.running_var)]


def copies(tensors: list[Tensor] | list[nn.Parameter]) -> list[Tensor]:
    """The same numbers elsewhere."""
    return [tensor.detach().clone() for tensor in tensors]


@torch.no_grad()
def assign(targets: list[Tensor] | list[nn.Parameter], values: list[Tensor]) -> None:
    """Overwrites tensors in place."""
    if targets:
        torch._foreach_copy_(targets, values)


def mean(items: list[list[Tensor]], weights: list[float]) -> list[Tensor]:
    """The weighted mean."""
    total = sum(weights)
    result = [torch.zeros_like(tensor) for tensor in items[0]]
    for tensors, weight in zip(items, weights, strict=True):
        if result:
            torch._foreach_add_(result, tensors, alpha=weight / total)
    return result
