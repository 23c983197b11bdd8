"""`z = f(z)` for every sample of a batch: the solvers of the engine, on tensors of any device and precision.

Each sample stops on its own, and the result holds, sample by sample, the best iterate seen. The iterates are those of
`crates/equilibrium`, up to rounding.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from fedeq._given import refuse

# `f` on rows of states; the second argument says which samples these are.
Step: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# Beyond this sum of absolute coefficients a combination amplifies rounding more than it extrapolates.
LARGEST_COEFFICIENT_SUM = 1e6


@dataclass(frozen=True)
class SolveReport:
    """How a solve went, sample by sample."""

    steps: Tensor
    """Evaluations of the cell."""
    residual: Tensor
    """`||f(z) - z|| / ||f(z)||` at the result."""
    converged: Tensor
    """Whether it ended within the tolerance."""


@dataclass(frozen=True)
class Solution:
    """Fixed points, what the map makes of them, and how they were found."""

    z: Tensor
    image: Tensor
    report: SolveReport


class Iteration(Protocol):
    """One solver at work on one batch."""

    def next(self, z: Tensor, image: Tensor, residual: Tensor) -> Tensor:
        """Propose the next iterate."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows from now on."""


def solve(
    step: Step, start: Tensor, solver: Mapping[str, Any], stop: Mapping[str, Any], shrink_below: float
) -> Solution:
    """Find `z = f(z)` for every row of `start`; samples that are done leave once that saves work."""
    run = _Run(start, stop)
    iteration = begin(solver, start)
    z = start
    while True:
        image = step(z, run.present)
        residual = image - z
        if run.judge(z, image, residual):
            return run.solution()
        z, kept = run.freeze(iteration.next(z, image, residual), shrink_below)
        if kept is not None:
            iteration.keep(kept)


class _Run:
    """Who is still at work, and the best of all samples so far."""

    def __init__(self, start: Tensor, stop: Mapping[str, Any]) -> None:
        count, device = len(start), start.device
        self.stop = stop
        self.present = torch.arange(count, device=device)
        self.best_z, self.best_image = start.clone(), start.clone()
        self.smallest = torch.full((count,), torch.inf, dtype=torch.float64, device=device)
        self.relative = self.smallest.clone()
        self.steps = torch.zeros(count, dtype=torch.int64, device=device)
        self.is_open = torch.ones(count, dtype=torch.bool, device=device)
        self.converged = torch.zeros(count, dtype=torch.bool, device=device)

    def judge(self, z: Tensor, image: Tensor, residual: Tensor) -> bool:
        """Take note of one evaluation; say whether all samples are finished."""
        if len(z) == 0:
            return True
        here, size, scale = self.present, _norm(residual), _norm(image)
        is_open, is_finite = self.is_open[here], torch.isfinite(size) & torch.isfinite(scale)
        improved = is_open & is_finite & (size < self.smallest[here])
        met = is_open & is_finite & (size <= self.stop["absolute"] + self.stop["relative"] * scale)
        self.steps[here[is_open]] += 1
        better = here[improved]
        self.smallest[better] = size[improved]
        self.relative[better] = torch.where(size == 0, size, size / scale)[improved]
        self.best_z[better], self.best_image[better] = z[improved], image[improved]
        self.converged[here[met]] = True
        self.is_open[here] = is_open & is_finite & ~met & (self.steps[here] < self.stop["max_steps"])
        return not bool(self.is_open.any())

    def freeze(self, following: Tensor, shrink_below: float) -> tuple[Tensor, Tensor | None]:
        """Hold finished samples at their best, or leave them out: then say which rows stay."""
        is_open = self.is_open[self.present]
        alive = int(is_open.sum())
        if alive == len(is_open):
            return following, None
        if alive <= shrink_below * len(is_open):
            rows = is_open.nonzero().flatten()
            self.present = self.present[rows]
            return following[rows], rows
        return torch.where(is_open[:, None], following, self.best_z[self.present]), None

    def solution(self) -> Solution:
        report = SolveReport(steps=self.steps, residual=self.relative, converged=self.converged)
        return Solution(self.best_z, self.best_image, report)


def begin(solver: Mapping[str, Any], like: Tensor) -> Iteration:
    """Start a solver that has seen nothing yet."""
    ((name, settings),) = solver.items()
    if name not in {"fixed-point", "anderson", "broyden"}:
        refuse(f"there is no solver `{name}`", "choose `fixed-point`, `anderson` or `broyden`")
    if name == "fixed-point":
        return DampedIteration(settings)
    if name == "anderson":
        return AndersonIteration(settings, like)
    return BroydenIteration(settings["memory"], like)


class DampedIteration:
    """The damped fixed-point iteration."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Take the share of the old iterate that is kept."""
        self.damping: float = settings["damping"]

    def next(self, z: Tensor, image: Tensor, residual: Tensor) -> Tensor:
        """Propose the next iterate."""
        return image if self.damping == 0.0 else z + (1.0 - self.damping) * residual

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows from now on."""


class AndersonIteration:
    """Anderson acceleration with a Gram matrix for every sample.

    On differences of successive plain steps `p = z + mixing r` and residuals: the next iterate is
    `p - sum_j gamma_j dp_j`, where `gamma` minimises `||r - sum_j gamma_j dr_j||^2` plus the ridge.
    """

    def __init__(self, settings: Mapping[str, Any], like: Tensor) -> None:
        """Start on states like these."""
        self.settings = settings
        self.memory: int = settings["memory"]
        ((self.ridge_kind, self.ridge),) = settings["ridge"].items()
        self.plain_changes = like.new_zeros(len(like), self.memory, like.shape[1])
        self.residual_changes = torch.zeros_like(self.plain_changes)
        self.grams = like.new_zeros(len(like), self.memory, self.memory, dtype=torch.float64)
        # How many of the newest changes of each sample may be used.
        self.usable = torch.zeros(len(like), dtype=torch.int64, device=like.device)
        self.previous: tuple[Tensor, Tensor] | None = None
        self.step = 0

    def next(self, z: Tensor, image: Tensor, residual: Tensor) -> Tensor:
        """Propose the next iterate."""
        mixing = self.settings["mixing"]
        plain = image if mixing == 1.0 else z + mixing * residual
        newest = self._learn(plain, residual)
        if self.settings["restart"] is not None and self.step % self.settings["restart"] == 0:
            self.usable.zero_()
        self.step += 1
        self.previous = plain, residual
        if newest is None or self.step <= self.settings["delay"]:
            return plain
        gamma = self._coefficients(newest, residual).to(plain.dtype)
        return plain - torch.einsum("bm,bmn->bn", gamma, self.plain_changes)

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows from now on."""
        self.plain_changes, self.residual_changes = self.plain_changes[rows], self.residual_changes[rows]
        self.grams, self.usable = self.grams[rows], self.usable[rows]
        if self.previous is not None:
            self.previous = self.previous[0][rows], self.previous[1][rows]

    def _learn(self, plain: Tensor, residual: Tensor) -> int | None:
        """Take note of the newest change; say in which slot it is."""
        if self.previous is None:
            return None
        slot = (self.step - 1) % self.memory
        self.plain_changes[:, slot] = plain - self.previous[0]
        self.residual_changes[:, slot] = residual - self.previous[1]
        dots = _dots(self.residual_changes, self.residual_changes[:, slot])
        self.grams[:, slot, :], self.grams[:, :, slot] = dots, dots
        self.usable = (self.usable + 1).clamp(max=self.memory)
        return slot

    def _coefficients(self, newest: int, residual: Tensor) -> Tensor:
        """Solve every sample's least-squares problem; zero (a plain step) where that cannot be trusted.

        Changes shrink by orders of magnitude along a solve, so the system is written for `gamma_j ||dr_j||`.
        """
        memory = self.memory
        slots = [(newest - age) % memory for age in reversed(range(memory))]  # Oldest first.
        grams = self.grams[:, slots][:, :, slots]
        dots = _dots(self.residual_changes, residual)[:, slots]
        is_used = torch.arange(memory, device=grams.device) >= memory - self.usable[:, None]
        norms = grams.diagonal(dim1=1, dim2=2).sqrt()
        is_broken = (is_used & ~((norms > 0) & torch.isfinite(norms))).any(1)
        is_used = is_used & ~is_broken[:, None]
        norms = torch.where(is_used, norms, 1.0)
        one = torch.eye(memory, dtype=grams.dtype, device=grams.device)
        system = (grams + self._penalty(norms)) / (norms[:, :, None] * norms[:, None, :])
        system = torch.where(is_used[:, :, None] & is_used[:, None, :], system, one)
        right = torch.where(is_used, (dots + self._pull(dots)) / norms, 0.0)
        factor, info = torch.linalg.cholesky_ex(system)
        # A pivot lost in the rounding of what it was computed from carries no information.
        pivots = factor.diagonal(dim1=1, dim2=2).square()
        is_broken = is_broken | (info != 0) | ~(pivots > torch.finfo(torch.float64).eps).all(1)
        factor = torch.where(is_broken[:, None, None], one, factor)
        gamma = torch.cholesky_solve(right[:, :, None], factor)[:, :, 0] / norms
        is_broken = is_broken | ~(gamma.abs().sum(1) <= LARGEST_COEFFICIENT_SUM)
        self.usable = torch.where(is_broken, 0, self.usable)
        by_slot = torch.zeros_like(gamma)
        by_slot[:, slots] = torch.where(is_broken[:, None], 0.0, gamma)
        return by_slot

    def _penalty(self, norms: Tensor) -> Tensor:
        """Say what the ridge adds to the matrix.

        In terms of `gamma`, oldest first, the weights of the iterates are
        `gamma_0, gamma_1 - gamma_0, ..., 1 - gamma_last`; their squares sum to a tridiagonal form.
        """
        if self.ridge_kind == "relative":
            return torch.diag_embed(self.ridge * norms.square())
        beside = torch.ones(self.memory - 1, dtype=norms.dtype, device=norms.device)
        twice = 2.0 * torch.eye(self.memory, dtype=norms.dtype, device=norms.device)
        form: Tensor = self.ridge * (twice - torch.diag(beside, 1) - torch.diag(beside, -1))
        return form

    def _pull(self, dots: Tensor) -> Tensor:
        """Say what the ridge adds to the right-hand side, from the `1` in the newest weight."""
        pull = torch.zeros_like(dots[:1])
        if self.ridge_kind == "absolute":
            pull[:, -1] = self.ridge
        return pull


class BroydenIteration:
    """Broyden's good method on `f(z) - z`, with the inverse Jacobian `-I + sum_i u_i v_i^T` for every sample."""

    def __init__(self, memory: int, like: Tensor) -> None:
        """Start on states like these."""
        self.memory = memory
        self.u = like.new_zeros(len(like), memory, like.shape[1])
        self.v = torch.zeros_like(self.u)
        self.terms = 0
        self.previous: tuple[Tensor, Tensor] | None = None

    def next(self, z: Tensor, image: Tensor, residual: Tensor) -> Tensor:  # noqa: ARG002
        """Propose the next iterate."""
        if self.previous is not None:
            self._learn(z - self.previous[0], residual - self.previous[1])
        self.previous = z, residual
        return z - _rank_one_sum(self.u, self.v, residual)

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows from now on."""
        self.u, self.v = self.u[rows], self.v[rows]
        if self.previous is not None:
            self.previous = self.previous[0][rows], self.previous[1][rows]

    def _learn(self, dz: Tensor, dh: Tensor) -> None:
        """Add the term that makes the approximation map the newest change of `h` to that of `z`."""
        if self.terms == self.memory:
            self.u, self.v, self.terms = torch.zeros_like(self.u), torch.zeros_like(self.v), 0
        mapped = _rank_one_sum(self.u, self.v, dh)
        back = _rank_one_sum(self.v, self.u, dz)
        dot = _dots(dz[:, None], mapped)[:, 0]
        size = _norm(dz) * _norm(mapped)
        is_usable = torch.isfinite(dot) & (dot.abs() > 1e-6 * size) & (dot.abs() > torch.finfo(torch.float32).tiny)
        inverse = torch.where(is_usable, 1.0 / dot, 0.0).to(dz.dtype)
        # A sample without a usable change learns nothing: both halves of its term are zero.
        self.u[:, self.terms] = (dz - mapped) * inverse[:, None]
        self.v[:, self.terms] = torch.where(is_usable[:, None], back, 0.0)
        self.terms += 1


def _rank_one_sum(left: Tensor, right: Tensor, x: Tensor) -> Tensor:
    """`(-I + sum_i left_i right_i^T) x`."""
    return torch.einsum("bm,bmn->bn", _dots(right, x).to(x.dtype), left) - x


def _dots(many: Tensor, one: Tensor) -> Tensor:
    """Inner products `[B, m]` of `[B, m, n]` with `[B, n]`, in double precision."""
    return torch.einsum("bmn,bn->bm", many.double(), one.double())


def _norm(x: Tensor) -> Tensor:
    return x.double().square().sum(1).sqrt()
