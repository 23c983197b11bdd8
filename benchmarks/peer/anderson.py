"""Anderson acceleration of a batch of fixed points, each sample for itself, with as many steps as asked."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

MEMORY = 5
RIDGE = 1e-6
LARGEST_COEFFICIENT_SUM = 1e6


class Solution(NamedTuple):
    """The iterate with the smallest residual, sample by sample, and its image under the map; `[batch, n]` each."""

    z: Tensor
    image: Tensor


class History:
    """The last changes of residuals and images, `[batch, MEMORY, n]`, and the Gram matrix of the former."""

    def __init__(self, like: Tensor) -> None:
        batch, n = like.shape
        self.residuals = like.new_zeros(batch, MEMORY, n)
        self.images = like.new_zeros(batch, MEMORY, n)
        self.gram = torch.zeros(batch, MEMORY, MEMORY, dtype=torch.float64)
        self.seen = 0

    def learn(self, residual: Tensor, image: Tensor, old_residual: Tensor, old_image: Tensor) -> None:
        """Stores the newest change in place of the oldest one."""
        slot = self.seen % MEMORY
        change = torch.sub(residual, old_residual, out=self.residuals[:, slot])
        torch.sub(image, old_image, out=self.images[:, slot])
        dots = self.dots(change)
        self.gram[:, slot, :] = dots
        self.gram[:, :, slot] = dots
        self.seen += 1

    def dots(self, state: Tensor) -> Tensor:
        """Inner products of a state with all changes of residuals, `[batch, MEMORY]`."""
        return torch.bmm(self.residuals, state.unsqueeze(2)).squeeze(2).double()

    def extrapolate(self, residual: Tensor, image: Tensor) -> Tensor:
        """`image - sum_j gamma_j d_image_j`, where `gamma` minimises `||residual - sum_j gamma_j d_residual_j||^2` plus the ridge."""
        used = min(self.seen, MEMORY)
        gamma = coefficients(self.gram[:, :used, :used], self.dots(residual)[:, :used]).to(image.dtype)
        weights = gamma.unsqueeze(1)
        return torch.baddbmm(image.unsqueeze(1), weights, self.images[:, :used], alpha=-1.0).squeeze(1)


def coefficients(gram: Tensor, dots: Tensor) -> Tensor:
    """Solves the small systems, scaled by the size of each change; zero (a plain step) where they cannot be trusted."""
    norms = gram.diagonal(dim1=1, dim2=2).sqrt()
    scaled = gram / (norms.unsqueeze(1) * norms.unsqueeze(2))
    scaled.diagonal(dim1=1, dim2=2).add_(RIDGE)
    solved, _ = torch.linalg.solve_ex(scaled, dots / norms)
    gamma = solved / norms
    trusted = gamma.abs().sum(1, keepdim=True) <= LARGEST_COEFFICIENT_SUM  # Also false for NaN.
    return torch.where(trusted, gamma, 0.0)


@torch.no_grad()
def solve(step: Callable[[Tensor], Tensor], z0: Tensor, steps: int) -> Solution:
    """Runs `steps` evaluations of `step` on `[batch, n]`, from `z0`."""
    history = History(z0)
    z, best = z0, Solution(z0, z0)
    smallest = torch.full((z0.shape[0],), torch.inf)
    previous: tuple[Tensor, Tensor] | None = None
    for index in range(steps):
        image = step(z)
        residual = image - z
        size = residual.norm(dim=1)
        best = better(best, Solution(z, image), size < smallest)
        smallest = torch.minimum(size, smallest)
        if index + 1 == steps:
            break
        if previous is not None:
            history.learn(residual, image, *previous)
        previous = (residual, image)
        z = history.extrapolate(residual, image) if history.seen else image
    return best


def better(best: Solution, newest: Solution, improved: Tensor) -> Solution:
    """The newest iterate where it improved; the usual case costs no copy."""
    if improved.all():
        return newest
    rows = improved.unsqueeze(1)
    return Solution(torch.where(rows, newest.z, best.z), torch.where(rows, newest.image, best.image))
