"""Weights are stored, checked and averaged as in the Rust program."""

from pathlib import Path

import numpy as np
import pytest

from fedeq.flower import weights
from fedeq.flower.weights import Rejected


def one(value: float) -> weights.Weights:
    """Make weights of one array."""
    return {"params/a": np.full((2, 3), value, np.float32)}


def test_weights_are_read_as_they_were_written(tmp_path: Path) -> None:
    """The arrays are the same, in the order of their names."""
    path = tmp_path / "theta.safetensors"
    written = {"b": np.arange(4, dtype=np.float32), "a": np.float32(2.5) * np.ones((), np.float32)}
    weights.write(path, written)
    again = weights.read(path)
    assert list(again) == ["a", "b"]
    assert all(np.array_equal(again[name], written[name]) for name in written)


def test_the_mean_is_weighted_and_in_double_precision() -> None:
    """Sums in single precision would lose the small one."""
    mean = weights.mean([(one(16_777_216.0), 1.0), (one(1.0), 1.0), (one(-16_777_216.0), 1.0)])
    assert np.array_equal(mean["params/a"], np.full((2, 3), np.float32(1 / 3)))
    assert weights.mean([(one(1.0), 3.0), (one(5.0), 1.0)])["params/a"][0, 0] == np.float32(2.0)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ({}, "missing"),
        ({"params/a": np.zeros((3, 2), np.float32)}, "shape"),
        ({"params/a": np.full((2, 3), np.nan, np.float32)}, "NaN or infinity"),
        (one(100.0), "distance"),
    ],
)
def test_weights_that_do_not_fit_are_rejected(sent: weights.Weights, reason: str) -> None:
    """Other names or shapes, NaN, and too large a distance."""
    with pytest.raises(Rejected, match=reason):
        weights.check(sent, one(0.0), bound=10.0)


def test_weights_that_fit_are_accepted() -> None:
    """A small distance is allowed."""
    weights.check(one(1.0), one(0.0), bound=10.0)
