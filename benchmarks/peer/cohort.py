"""Whole rounds on a GPU, as fast as PyTorch's means allow: all clients of a round in one batch by `vmap`, training steps as CUDA graphs.

Factors of convolutions and products are TF32, or 16-bit by autocast if that is asked for.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional as F

from . import equilibrium
from .anderson import LARGEST_COEFFICIENT_SUM, MEMORY, RIDGE
from .data import Data
from .fedeq import RHO
from .layers import DECAY, BatchNorm
from .models import Network
from .train import IGNORED

Tensors = dict[str, Tensor]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def solve(step: Callable[[Tensor], Tensor], z0: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Anderson's method as in `anderson.py`, without anything the host must wait for. States are `[..., n]`."""
    residuals: list[Tensor] = []
    images: list[Tensor] = []
    z = best_z = best_image = z0
    smallest = torch.full(z0.shape[:-1], torch.inf, device=z0.device)
    for index in range(steps):
        image = step(z)
        residual = image - z
        size = residual.norm(dim=-1)
        improved = (size < smallest).unsqueeze(-1)
        best_z, best_image = torch.where(improved, z, best_z), torch.where(improved, image, best_image)
        smallest = torch.minimum(size, smallest)
        if index + 1 == steps:
            break
        residuals, images = [*residuals, residual][-MEMORY - 1 :], [*images, image][-MEMORY - 1 :]
        z = extrapolate(residuals, images) if len(residuals) > 1 else image
    return best_z, best_image


def extrapolate(residuals: list[Tensor], images: list[Tensor]) -> Tensor:
    """The next iterate from the last residuals and images, oldest first."""
    changes = torch.stack([new - old for old, new in pairwise(residuals)], -2)
    moves = torch.stack([new - old for old, new in pairwise(images)], -2)
    with exact_products():
        gram = (changes @ changes.transpose(-1, -2)).double()
        dots = (changes @ residuals[-1].unsqueeze(-1)).squeeze(-1).double()
    norms = gram.diagonal(dim1=-2, dim2=-1).sqrt()
    scaled = gram / (norms.unsqueeze(-1) * norms.unsqueeze(-2)) + RIDGE * torch.eye(gram.shape[-1], device=gram.device)
    gamma = gauss_jordan(scaled, dots / norms) / norms
    trusted = gamma.abs().sum(-1, keepdim=True) <= LARGEST_COEFFICIENT_SUM
    gamma = torch.where(trusted, gamma, 0.0).to(images[-1].dtype)
    return images[-1] - (gamma.unsqueeze(-2) @ moves).squeeze(-2)


def gauss_jordan(matrix: Tensor, right: Tensor) -> Tensor:
    """Solves small positive definite systems; PyTorch's own solver cannot be recorded in a CUDA graph."""
    system = torch.cat([matrix, right.unsqueeze(-1)], -1)
    unit = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for k in range(matrix.shape[-1]):
        row = system[..., k : k + 1, :] / system[..., k : k + 1, k : k + 1]
        system = system - (system[..., :, k : k + 1] - unit[:, k : k + 1]) * row
    return system[..., -1]


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """The error of TF32 would be larger than the ridge."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        with torch.autocast(DEVICE, enabled=False):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def settle(cell: Callable[[Tensor], Tensor], z0: Tensor, steps: int) -> Tensor:
    """Takes the place of `equilibrium.settle` on a GPU."""
    shape = z0.shape

    def detached(z: Tensor) -> Tensor:
        return cell(z.reshape(shape)).detach().reshape(shape[0], -1)

    z, _ = solve(detached, z0.detach().reshape(shape[0], -1), steps)
    return cell(z.detach().reshape(shape))


class Statistics:
    """What batch normalisations have seen in one pass, by the name of the buffer."""

    def __init__(self, network: nn.Module) -> None:
        self.norms = {name: module for name, module in network.named_modules() if isinstance(module, BatchNorm)}
        self.new: Tensors = {}
        for name, module in self.norms.items():
            module.forward = self.normaliser(name, module)  # type: ignore[method-assign]

    def normaliser(self, name: str, module: BatchNorm) -> Callable[[Tensor], Tensor]:
        def forward(x: Tensor) -> Tensor:
            dims = (0, 2, 3) if x.dim() == 4 else (0,)
            shape = (1, -1, 1, 1) if x.dim() == 4 else (1, -1)
            variance, mean = torch.var_mean(x.float(), dims, unbiased=False)
            for kind, old, seen in (("mean", module.running_mean, mean), ("var", module.running_var, variance)):
                self.new[f"{name}.running_{kind}"] = DECAY * old + (1.0 - DECAY) * seen.detach()
            y = (x - mean.view(shape)) * torch.rsqrt(variance.view(shape) + module.eps)
            return y * module.weight.view(shape) + module.bias.view(shape)

        return forward

    def take(self) -> Tensors:
        """The new running statistics; the averages are plain ones, which training does not see."""
        new, self.new = self.new, {}
        return new


class Graphed:
    """A function of tensors, recorded as a CUDA graph at its first call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, *arguments: Any) -> Any:
        leaves, spec = torch.utils._pytree.tree_flatten(arguments)
        if not torch.cuda.is_available():
            return self.function(*arguments)
        if self.graph is None:
            self.leaves = [leaf.clone() for leaf in leaves]
            inside = torch.utils._pytree.tree_unflatten(self.leaves, spec)
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(2):
                    self.function(*inside)
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.result = self.function(*inside)
        torch._foreach_copy_(self.leaves, leaves)
        self.graph.replay()
        return self.result


class Cohort:
    """A server and clients that all take part in every round, one row of every tensor a client."""

    def __init__(self, network: Network, data: Data, job: dict[str, Any]) -> None:
        equilibrium_on_gpu()
        self.network, self.data, self.job, self.clients = network.to(DEVICE), data, job, job["cohort"]
        self.statistics = Statistics(self.network)
        values = {name: value.detach() for name, value in self.network.named_parameters()}
        shares_all = job["method"] == "fedavg"
        self.theta = {name: value for name, value in values.items() if shares_all or not name.startswith("head.")}
        self.head = {name: self.stacked(value) for name, value in values.items() if name not in self.theta}
        self.buffers = {name: value for name, value in self.network.named_buffers() if "running" in name}
        self.dual = {name: torch.zeros_like(self.stacked(value)) for name, value in self.theta.items()}
        every = (0, 0, 0, 0, 0)
        self.head_step = Graphed(vmap(self.one_head_step, in_dims=(None, *every[1:]), randomness="different"))
        self.body_step = Graphed(vmap(self.one_body_step, in_dims=(*every, 0), randomness="different"))

    def stacked(self, value: Tensor) -> Tensor:
        return value.unsqueeze(0).repeat(self.clients, *[1] * value.dim())

    def loss(self, trained: Tensors, fixed: Tensors, buffers: Tensors, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensors]:
        with torch.autocast(DEVICE, torch.float16, enabled=self.job.get("half", False)):
            logits = functional_call(self.network, ({**fixed, **trained}, buffers), (inputs,))
        targets = targets.flatten()
        if not inputs.is_floating_point():
            targets = torch.where(inputs.flatten() == 0, IGNORED, targets)
        chosen = F.log_softmax(logits.float(), -1).gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        counts = targets != IGNORED
        return -(chosen * counts).sum() / counts.sum(), self.statistics.take()

    def one_head_step(
        self, theta: Tensors, head: Tensors, buffers: Tensors, inputs: Tensor, targets: Tensor
    ) -> tuple[Tensors, Tensors]:
        gradient, (_, new) = grad_and_value(self.loss, has_aux=True)(head, theta, buffers, inputs, targets)
        return {name: head[name] - self.job["learning_rate"] * gradient[name] for name in head}, new

    def one_body_step(
        self, theta: Tensors, head: Tensors, buffers: Tensors, inputs: Tensor, targets: Tensor, offsets: Tensors
    ) -> tuple[Tensors, Tensors, Tensor]:
        gradient, (loss, new) = grad_and_value(self.loss, has_aux=True)(theta, head, buffers, inputs, targets)
        rho = RHO if self.job["method"] == "fedeq" else 0.0
        moved = {
            name: theta[name] - self.job["learning_rate"] * (gradient[name] + rho * theta[name] + offsets[name]) for name in theta
        }
        return moved, new, loss

    def batches(self, phase: str, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All clients' batches side by side; they have the same number of samples."""
        size = self.job["batch"]
        orders = torch.stack([self.data.orders[f"order/{client}/{phase}/{epoch}"] for client in range(self.clients)]).to(DEVICE)
        for indices in orders.split(size, 1):
            yield self.data.inputs(indices.flatten()).unflatten(0, indices.shape), self.data.targets[indices]

    def round(self) -> float:
        """One round; returns the mean loss of the clients' last epochs."""
        buffers = {name: self.stacked(value) for name, value in self.buffers.items()}
        head, theta = self.head, {name: self.stacked(value) for name, value in self.theta.items()}
        if head:
            for epoch in range(self.job["personal_epochs"]):
                for inputs, targets in self.batches("head", epoch):
                    head, new = self.head_step(self.theta, head, buffers, inputs, targets)
                    buffers = {**buffers, **new}
            self.head = {name: value.clone() for name, value in head.items()}
        rho = RHO if self.job["method"] == "fedeq" else 0.0
        offsets = {name: self.dual[name] - rho * theta[name] for name in theta}
        losses: list[Tensor] = []
        for epoch in range(self.job["epochs"]):
            losses = []
            for inputs, targets in self.batches("body", epoch):
                theta, new, loss = self.body_step(theta, self.head, buffers, inputs, targets, offsets)
                buffers = {**buffers, **new}
                losses.append(loss.clone())
        if rho:
            self.dual = {name: self.dual[name] + rho * (theta[name] - self.theta[name]) for name in theta}
        self.theta = {name: value.mean(0) for name, value in theta.items()}
        self.buffers = {name: value.mean(0) for name, value in buffers.items()}
        return torch.stack(losses).mean().item()


def equilibrium_on_gpu() -> None:
    """Networks solve for their fixed points without waiting for the host, and attend by what `vmap` knows."""
    from . import text, vision

    for module in (equilibrium, text, vision):
        module.settle = settle  # type: ignore[attr-defined]
    text.attend = text.attend_plainly


def rounds(network: Network, data: Data, job: dict[str, Any]) -> dict[str, Any]:
    """Seconds a round, and the most memory on the device."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not job.get("exact", False)
    cohort = Cohort(network, data.to(DEVICE), job)
    start = {name: value.clone() for name, value in cohort.theta.items()}
    seconds, losses, moves = [], [], []
    for _ in range(job["rounds"]):
        torch.cuda.synchronize() if DEVICE == "cuda" else None
        begun = time.perf_counter()
        losses.append(cohort.round())
        torch.cuda.synchronize() if DEVICE == "cuda" else None
        seconds.append(time.perf_counter() - begun)
        moves.append(sum((cohort.theta[name] - start[name]).square().sum() for name in start).sqrt().item())
    return {"seconds": seconds, "loss": losses[0], "move": moves[0], "device_gb": torch.cuda.max_memory_reserved() / 1e9}
