"""The equilibrium layer: solve without a graph, then one tracked application (the Jacobian-free gradient)."""

from collections.abc import Callable

import torch
from torch import Tensor

from .anderson import solve

Cell = Callable[[Tensor], Tensor]


def settle(cell: Cell, z0: Tensor, steps: int) -> Tensor:
    """`g(z*)` for the fixed point found in `steps` evaluations from `z0`; states may have any shape and memory layout."""
    flat, unflat = layout_of(z0)
    solution = solve(lambda z: flat(cell(unflat(z))), flat(z0.detach()), steps)
    if torch.is_grad_enabled():
        return cell(unflat(solution.z))
    return unflat(solution.image)


def layout_of(z: Tensor) -> tuple[Cell, Cell]:
    """To rows `[B, n]` and back, in the order in which the numbers lie in memory, so that nothing is copied."""
    shape = z.shape
    if z.dim() == 4 and z.is_contiguous(memory_format=torch.channels_last):
        batch, channels, height, width = shape
        return (
            lambda z: z.permute(0, 2, 3, 1).reshape(z.shape[0], -1),
            lambda z: z.view(batch, height, width, channels).permute(0, 3, 1, 2),
        )
    return lambda z: z.reshape(z.shape[0], -1), lambda z: z.view(shape)
