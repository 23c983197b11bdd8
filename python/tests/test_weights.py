"""Weights are stored, checked and averaged as the Rust side does it."""

from pathlib import Path

import numpy as np
import pytest

from fedeq.flower import weights
from fedeq.flower.weights import Rejected


def one(value: float) -> weights.Weights:
    """Make weights of one array."""
    return {"params/a": np.full((2, 3), value, np.float32)}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """A file holds the same arrays."""
    path = tmp_path / "theta.safetensors"
    held = {"b": np.arange(4, dtype=np.float32), "a": np.float32(2.5) * np.ones((), np.float32)}
    weights.write(path, held)
    again = weights.read(path)
    assert list(again) == ["a", "b"]
    assert all(np.array_equal(again[name], held[name]) for name in held)


def test_the_mean_is_weighted_and_in_double_precision() -> None:
    """Sums in single precision would lose the small one."""
    mean = weights.mean([(one(16_777_216.0), 1.0), (one(1.0), 1.0), (one(-16_777_216.0), 1.0)])
    assert np.array_equal(mean["params/a"], np.full((2, 3), np.float32(1 / 3)))
    assert weights.mean([(one(1.0), 3.0), (one(5.0), 1.0)])["params/a"][0, 0] == np.float32(2.0)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({}, "missing"),
        ({"params/a": np.zeros((3, 2), np.float32)}, "shape"),
        ({"params/a": np.full((2, 3), np.nan, np.float32)}, "not finite"),
        (one(100.0), "away"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(sent: weights.Weights, words: str) -> None:
    """Another layout, other numbers than finite ones, and large steps."""
    with pytest.raises(Rejected, match=words):
        weights.check(sent, one(0.0), bound=10.0)


def test_what_fits_is_taken() -> None:
    """A small step is fine."""
    weights.check(one(1.0), one(0.0), bound=10.0)
