"""Small networks by hand, for tests of networks that are not fedeq's."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeq.networks import Arrays, Inputs, Targets

Floats = NDArray[np.float32]

CLASSES = 10


def cross_entropy(logits: NDArray[np.float64], y: Targets) -> tuple[float, NDArray[np.float64]]:
    """Give the mean loss, and its gradient with respect to the logits."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    slope = np.exp(log_p)
    slope[np.arange(len(y)), y] -= 1.0
    return float(-log_p[np.arange(len(y)), y].mean()), slope / len(y)


class Convolutional:
    """`logits = W flatten(relu(conv(x) + b)) + c` with four kernels of 3x3, for digits of 8x8. Computed in double."""

    name = "small-cnn"

    def __init__(self, seed: int = 0, personal: str | Sequence[str] = ()) -> None:
        """Draw the first values."""
        draw = np.random.default_rng(seed)
        self.personal = personal
        self._first: dict[str, Floats] = {
            "conv.weight": (draw.standard_normal((4, 1, 3, 3)) / 3.0).astype(np.float32),
            "conv.bias": np.zeros(4, np.float32),
            "head.weight": (draw.standard_normal((CLASSES, 4 * 36)) / 12.0).astype(np.float32),
            "head.bias": np.zeros(CLASSES, np.float32),
        }

    def parameters(self) -> dict[str, Floats]:
        """Give the first values."""
        return {name: array.copy() for name, array in self._first.items()}

    @staticmethod
    def _hidden(parameters: Arrays, x: Inputs) -> tuple[NDArray[Any], NDArray[Any]]:
        windows = np.lib.stride_tricks.sliding_window_view(x[..., 0].astype(float), (3, 3), axis=(1, 2))
        weight, bias = parameters["conv.weight"].astype(float), parameters["conv.bias"].astype(float)
        before = np.einsum("bijuv,kuv->bkij", windows, weight[:, 0]) + bias[None, :, None, None]
        return windows, before

    @classmethod
    def _logits(cls, parameters: Arrays, before: NDArray[Any]) -> NDArray[np.float64]:
        flat = np.maximum(before, 0.0).reshape(len(before), -1)
        weight, bias = (parameters[f"head.{name}"].astype(np.float64) for name in ("weight", "bias"))
        return np.asarray(flat @ weight.T + bias, np.float64)

    def loss_and_gradient(self, parameters: Arrays, x: Inputs, y: Targets) -> tuple[float, dict[str, Floats]]:
        """Go forward and back."""
        windows, before = self._hidden(parameters, x)
        loss, slope = cross_entropy(self._logits(parameters, before), y)
        return loss, self._pulled_back(parameters, windows, before, slope)

    @staticmethod
    def _pulled_back(
        parameters: Arrays, windows: NDArray[Any], before: NDArray[Any], slope: NDArray[np.float64]
    ) -> dict[str, Floats]:
        """Go back from a gradient with respect to the logits."""
        flat = np.maximum(before, 0.0).reshape(len(before), -1)
        back = (slope @ parameters["head.weight"].astype(float)).reshape(before.shape) * (before > 0.0)
        gradient = {
            "conv.weight": np.einsum("bkij,bijuv->kuv", back, windows)[:, None],
            "conv.bias": back.sum(axis=(0, 2, 3)),
            "head.weight": slope.T @ flat,
            "head.bias": slope.sum(axis=0),
        }
        return {name: array.astype(np.float32) for name, array in gradient.items()}

    def logits(self, parameters: Arrays, x: Inputs) -> Floats:
        """Go forward."""
        return self._logits(parameters, self._hidden(parameters, x)[1]).astype(np.float32)
