"""One gradient step, of the shared or the personal part of a network or of all of it."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .models import Network

IGNORED = -100


class ProximalTerm(NamedTuple):
    """Adds `strength * p + offset` to the gradient of each parameter `p`."""

    strength: float
    offsets: list[Tensor]


def shared(network: Network) -> list[nn.Parameter]:
    """`theta`: everything but the head."""
    return [parameter for name, parameter in network.named_parameters() if not name.startswith("head.")]


def personal(network: Network) -> list[nn.Parameter]:
    """`w`."""
    return list(network.head.parameters())


class Trainer:
    """Plain gradient descent on some parameters of a network; the others want no gradient meanwhile."""

    def __init__(
        self, network: Network, parameters: list[nn.Parameter], learning_rate: float, proximal: ProximalTerm | None = None
    ) -> None:
        self.network = network
        self.parameters = parameters
        self.proximal = proximal
        self.optimizer = torch.optim.SGD(parameters, lr=learning_rate, fused=True)
        wanted = set(parameters)
        for parameter in network.parameters():
            parameter.requires_grad_(parameter in wanted)
        self.body_is_fixed = wanted.isdisjoint(shared(network))

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        """Moves the parameters; returns the loss before."""
        loss = self.loss(inputs, targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.proximal is not None:
            gradients = [parameter.grad for parameter in self.parameters]
            torch._foreach_add_(gradients, self.proximal.offsets)
            torch._foreach_add_(gradients, [parameter.detach() for parameter in self.parameters], alpha=self.proximal.strength)
        self.optimizer.step()
        return loss.item()

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean cross-entropy over what is not padding."""
        with torch.set_grad_enabled(not self.body_is_fixed):
            representation = self.network.represent(inputs)
        logits = self.network.predict(representation)
        targets = targets.flatten()
        if not inputs.is_floating_point():
            targets = targets.masked_fill(inputs.flatten() == 0, IGNORED)
        return F.cross_entropy(logits, targets, ignore_index=IGNORED)

    def gradient_norm(self) -> float:
        """Of the last step."""
        return torch.nn.utils.get_total_norm(parameter.grad for parameter in self.parameters).item()
