"""Writes `anderson.json`: what jaxopt's Anderson acceleration does on a small problem, step by step.

The settings are those of the FeDEQ authors' code: a history of 5, no damping, a ridge of 1e-4, at most 20 steps, an absolute tolerance of 1e-3.
Run with `pip install jaxopt==0.8.5 jax`, then `python anderson.py > anderson.json`.
"""

import json

import jax
import jax.numpy as jnp
from jaxopt import AndersonAcceleration

jax.config.update("jax_enable_x64", True)

SIZE, SAMPLES, STEPS = 12, 4, 20


def numbers(count: int, seed: int) -> list[float]:
    """Numbers between -1 and 1 that any language can make."""
    state, values = seed, []
    for _ in range(count):
        state = (1103515245 * state + 12345) % 2**31
        values.append(2 * state / 2**31 - 1)
    return values


matrix = jnp.array(numbers(SIZE * SIZE, 1)).reshape(SIZE, SIZE) * 0.55
inputs = jnp.array(numbers(SAMPLES * SIZE, 2)).reshape(SAMPLES, SIZE)


def cell(z, u):
    return jnp.tanh(matrix @ z + u)


def solved(u, steps: int):
    solver = AndersonAcceleration(cell, history_size=5, mixing_frequency=1, beta=1.0, ridge=1e-4, maxiter=steps, tol=1e-3)
    return solver.run(u, u)


def sample(u) -> dict[str, object]:
    """The relative residual `|f(a) - a| / |f(a)|` after every step, and `f(a)` after the last."""
    runs = [solved(u, steps) for steps in range(1, STEPS + 1)]
    taken = int(runs[-1].state.iter_num)
    residuals = [float(run.state.error / jnp.linalg.norm(run.params)) for run in runs[:taken]]
    return {"input": u.tolist(), "residuals": residuals, "image": runs[-1].params.tolist()}


print(json.dumps({"matrix": matrix.tolist(), "samples": [sample(u) for u in inputs]}))
