"""How gradients pass through an equilibrium.

By the implicit function theorem a gradient `v` that arrives at `z* = g(z*; x)` goes on as that of one application of
the cell, multiplied by `u` with `(I - J^T) u = v` and `J = dg/dz`. The choices differ in how `u` is found.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from fedeq._given import refuse
from fedeq.torch.solve import solve

Cell: TypeAlias = Callable[[Tensor], Tensor]
Product: TypeAlias = Callable[[Tensor], Tensor]


def attach(cell: Cell, z: Tensor, adjoint: str | Mapping[str, Any]) -> Tensor:
    """`g(z*; x)` with a graph that passes gradients to the cell and to `x` in the way that `adjoint` says."""
    name, settings = (adjoint, {}) if isinstance(adjoint, str) else next(iter(adjoint.items()))
    if name not in {"jacobian-free", "phantom", "implicit"}:
        refuse(f"there is no adjoint `{name}`", "choose `jacobian-free`, `phantom` or `implicit`")
    z = z.detach()
    if name == "jacobian-free":
        return cell(z)
    if name == "phantom":
        for _ in range(settings["steps"]):
            z = settings["damping"] * z + (1.0 - settings["damping"]) * cell(z)
        return z
    z.requires_grad_()
    image: Tensor = Implicit.apply(cell(z), z, settings)
    return image


class Implicit(torch.autograd.Function):
    """The identity forward; backward, the solution of the linear system by vector-Jacobian products alone."""

    @staticmethod
    def forward(ctx: FunctionCtx, image: Tensor, z: Tensor, settings: Mapping[str, Any]) -> Tensor:
        """`image` is what the cell makes of `z`, with its graph, through which the products go."""
        ctx.save_for_backward(image, z)
        ctx.settings = settings  # type: ignore[attr-defined]
        return image.clone()

    @staticmethod
    @once_differentiable  # Its type loses the names of parameters.
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        *grad_outputs: Tensor,
    ) -> tuple[Tensor, None, None]:
        """Turn the gradient that arrives into the one that goes on."""
        image, z = ctx.saved_tensors
        (v,) = grad_outputs

        def transposed(rows: Tensor) -> Tensor:
            product: Tensor = torch.autograd.grad(image, z, rows.reshape(z.shape), retain_graph=True)[0]
            return product.reshape(rows.shape)

        u = solve_transposed(transposed, v.reshape(len(v), -1), ctx.settings["solver"], ctx.settings["stop"])
        return u.reshape(v.shape), None, None


def solve_transposed(
    transposed: Product, v: Tensor, solver: str | Mapping[str, Any], stop: Mapping[str, Any]
) -> Tensor:
    """Solve `(I - J^T) u = v`, each row for itself."""
    name, settings = (solver, {}) if isinstance(solver, str) else next(iter(solver.items()))
    if name == "gmres":
        return gmres(transposed, v, settings["memory"], stop)
    anderson = {"ridge": {"relative": 1e-6}, "mixing": 1.0, "delay": 0, "restart": None, **settings}
    iterations = {
        "anderson": {"anderson": anderson},
        "broyden": {"broyden": settings},
        "neumann": {"fixed-point": {"damping": 0.0}},
    }
    if name not in iterations:
        refuse(f"there is no linear solver `{name}`", "choose `gmres`, `anderson`, `broyden` or `neumann`")
    # Products are for the whole batch, so nobody leaves.
    return solve(lambda u, _: v + transposed(u), v, iterations[name], stop, shrink_below=0.0).image


def gmres(transposed: Product, v: Tensor, memory: int, stop: Mapping[str, Any]) -> Tensor:
    """GMRES with restarts: one Krylov space a sample, all of them advanced by the same products."""
    scale = v.double().norm(dim=1)
    target = stop["absolute"] + stop["relative"] * scale
    is_open = torch.isfinite(scale) & (scale > target)
    u, residual, steps = torch.zeros_like(v), v, 0
    while bool(is_open.any()):
        space = _Space(residual, is_open, min(memory, stop["max_steps"] - steps))
        while space.columns < space.memory and bool(is_open.any()):
            size = space.advance(transposed, is_open)
            steps += 1
            is_open = is_open & torch.isfinite(size) & (size > target)
            if steps >= stop["max_steps"]:
                is_open = torch.zeros_like(is_open)
        u = u + space.correction()
        if bool(is_open.any()):
            residual = v - u + transposed(u)
    return u


class _Space:
    """Orthonormal bases, and least-squares problems that Givens rotations keep triangular, in double precision."""

    def __init__(self, residual: Tensor, is_open: Tensor, memory: int) -> None:
        samples, self.memory, self.columns = len(residual), memory, 0
        self.basis = residual.new_zeros(samples, memory + 1, residual.shape[1])
        self.triangle = residual.new_zeros(samples, memory, memory, dtype=torch.float64)
        self.rotations: list[tuple[Tensor, Tensor]] = []
        norms = residual.double().norm(dim=1)
        self.right = [torch.where(is_open, norms, 0.0)]
        self._add(residual, norms, is_open)

    def _add(self, x: Tensor, norms: Tensor, is_open: Tensor) -> None:
        """Add a unit vector; zero for samples that are finished or have no direction left."""
        is_usable = is_open & torch.isfinite(norms) & (norms > 0)
        inverse = torch.where(is_usable, 1.0 / norms, 0.0).to(x.dtype)
        self.basis[:, self.columns] = torch.where(is_usable[:, None], x * inverse[:, None], 0.0)

    def advance(self, transposed: Product, is_open: Tensor) -> Tensor:
        """Take one more product, orthogonalised twice; give the norms of the residuals with it."""
        newest = self.basis[:, self.columns]
        image = newest - transposed(newest)
        basis = self.basis[:, : self.columns + 1].double()
        column = torch.zeros_like(basis[:, :, 0])
        for _ in range(2):
            part = torch.einsum("bmn,bn->bm", basis, image.double())
            image = image - torch.einsum("bm,bmn->bn", part, basis).to(image.dtype)
            column = column + part
        below = image.double().norm(dim=1)
        is_taken = is_open & torch.isfinite(below) & torch.isfinite(column).all(1)
        size = self._push(torch.where(is_taken[:, None], column, 0.0), torch.where(is_taken, below, 0.0))
        self.columns += 1
        self._add(image, below, is_taken)
        return torch.where(is_taken, size, torch.nan)

    def _push(self, column: Tensor, below: Tensor) -> Tensor:
        """Add a column of the Hessenberg matrix: projections on the basis and the length of what is left."""
        for at, (c, s) in enumerate(self.rotations):
            upper, lower = column[:, at].clone(), column[:, at + 1].clone()
            column[:, at], column[:, at + 1] = c * upper + s * lower, c * lower - s * upper
        last = self.columns
        length = torch.hypot(column[:, last], below)
        is_zero = length == 0
        divisor = torch.where(is_zero, 1.0, length)
        c, s = torch.where(is_zero, 1.0, column[:, last] / divisor), torch.where(is_zero, 0.0, below / divisor)
        column[:, last] = length
        self.triangle[:, : last + 1, last] = column
        self.rotations.append((c, s))
        carried = self.right[last]
        self.right[last] = c * carried
        self.right.append(-s * carried)
        return (s * carried).abs()

    def correction(self) -> Tensor:
        """Give the combination of basis vectors with the smallest residual."""
        count = self.columns
        y = torch.stack(self.right[:count], dim=1)
        for j in reversed(range(count)):
            pivot = self.triangle[:, j, j]
            y[:, j] = torch.where(pivot == 0, 0.0, y[:, j] / torch.where(pivot == 0, 1.0, pivot))
            y[:, :j] -= self.triangle[:, :j, j] * y[:, j : j + 1]
        return torch.einsum("bm,bmn->bn", y, self.basis[:, :count].double()).to(self.basis.dtype)
