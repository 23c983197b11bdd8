"""What a network of one's own costs: the same small network by fedeq, by numpy and by PyTorch, one after the other.

`python -m tests.measure_own_network` in `python/` prints milliseconds a round; it needs PyTorch.
"""

import importlib
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedeq
from fedeq.networks import Arrays, Inputs, Network, Targets, TorchNetwork

ROUNDS, REPETITIONS = 10, 5
WIDTHS = (64, 128, 10)
SETTINGS = {
    "plan.rounds": ROUNDS,
    "plan.evaluate_every": ROUNDS,
    "plan.sampling.fraction": 1,
    "training.epochs": 5,
    "training.batch_size": 20,
}

Floats = NDArray[np.float32]


class Dense:
    """`W2 relu(W1 x + b1) + b2`, by numpy in single precision."""

    def parameters(self) -> dict[str, Floats]:
        """Draw the first values."""
        draw = np.random.default_rng(0)
        found: dict[str, Floats] = {}
        for layer, (wide, narrow) in enumerate(pairwise(WIDTHS)):
            found[f"{layer}.weight"] = (draw.standard_normal((wide, narrow)) / wide**0.5).astype(np.float32)
            found[f"{layer}.bias"] = np.zeros(narrow, np.float32)
        return found

    def _hidden(self, p: Arrays, x: Inputs) -> tuple[Floats, Floats]:
        flat = np.asarray(x, np.float32).reshape(len(x), -1)
        return flat, np.maximum(flat @ p["0.weight"] + p["0.bias"], np.float32(0))

    def logits(self, parameters: Arrays, x: Inputs) -> Floats:
        """Go forward."""
        _, hidden = self._hidden(parameters, x)
        return hidden @ parameters["1.weight"] + parameters["1.bias"]

    def loss_and_gradient(self, parameters: Arrays, x: Inputs, y: Targets) -> tuple[float, dict[str, Floats]]:
        """Go forward and back."""
        flat, hidden = self._hidden(parameters, x)
        slope = hidden @ parameters["1.weight"] + parameters["1.bias"]
        slope = np.exp(slope - slope.max(axis=1, keepdims=True))
        slope /= slope.sum(axis=1, keepdims=True)
        rows = np.arange(len(y))
        loss = -np.log(slope[rows, y]).mean()
        slope[rows, y] -= 1
        slope /= len(y)
        back = (slope @ parameters["1.weight"].T) * (hidden > 0)
        return float(loss), {
            "0.weight": flat.T @ back,
            "0.bias": back.sum(axis=0),
            "1.weight": hidden.T @ slope,
            "1.bias": slope.sum(axis=0),
        }


def module() -> Network:
    """Make the same of PyTorch's layers."""
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(0)
    wide, hidden, classes = WIDTHS
    layers = torch.nn.Linear(wide, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, classes)
    return TorchNetwork(torch.nn.Sequential(torch.nn.Flatten(), *layers))


def milliseconds(given: dict[str, Any], workers: int) -> float:
    """Give the median time of a round, without the first and the evaluation after the last."""
    at: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        fedeq.run(
            method="fedavg",
            data="digits",
            settings={**SETTINGS, "engine.workers": workers},
            callbacks=[lambda _: at.append(time.perf_counter())],
            out=Path(folder) / "run",
            progress=False,
            **given,
        )
    return 1e3 * statistics.median(after - before for before, after in pairwise(at[:-1]))


def main() -> None:
    """Measure all of them in turn, again and again, so that whatever else the machine does meets all."""
    kinds: dict[str, dict[str, Any]] = {
        "fedeq": {"model": {"name": "mlp", "hidden": [WIDTHS[1]]}},
        "numpy": {"network": Dense()},
        "PyTorch": {"network": module()},
    }
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(REPETITIONS):
        for workers in (1, 2):
            for name, given in kinds.items():
                found.setdefault((name, workers), []).append(milliseconds(given, workers))
    for (name, workers), times in found.items():
        middle, least, most = statistics.median(times), min(times), max(times)
        sys.stdout.write(f"{name}, {workers} workers: {middle:.0f} ms a round ({least:.0f} to {most:.0f})\n")


if __name__ == "__main__":
    main()
