"""Networks of the catalog with numbers in which every parameter has a say."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from fedeq import FedeqError, _native
from fedeq._network_file import read

PICTURES = {"input": {"kind": "image", "height": 9, "width": 8, "channels": 1}, "classes": 10}
COLOURS = {"input": {"kind": "image", "height": 12, "width": 12, "channels": 3}, "classes": 10}
VECTORS = {"input": {"kind": "vector", "width": 6}, "classes": 3}
SYMBOLS = {"input": {"kind": "symbols", "length": 12, "vocabulary": 20}, "classes": 20}
# The same few steps on both sides: whether a cell contracts depends on its numbers and on the input.
FEW = {"stop": {"relative": 0.0, "absolute": 0.0, "max_steps": 7}}


def catalog() -> list[str]:
    """Give the names of all networks, as the program tells whoever names another."""
    with pytest.raises(FedeqError) as error:
        _native.Engine("no such network", json.dumps(VECTORS))
    names = re.findall(r"[a-z][\w-]+", str(error.value).split("choose one of ")[1])
    assert len(names) >= 20, names  # noqa: PLR2004 (as many as there were when this was written)
    return names


def settings_of(name: str, **equilibrium: object) -> dict[str, Any]:
    """Give a network's settings: no dropout, and an equilibrium as wanted, where there are such."""
    settings: dict[str, Any] = {"name": name}
    if "transformer" in name:
        settings["dropout"] = 0.0
    if name.startswith("deq-") and equilibrium:
        settings["equilibrium"] = equilibrium
    return settings


def task_of(name: str) -> dict[str, Any]:
    """Give a small task that a network takes."""
    if "transformer" in name:
        return SYMBOLS
    return VECTORS if name in {"linear", "mlp", "deq-mlp"} else PICTURES


@dataclass(frozen=True)
class Sample:
    """A network by the engine, its file, a batch, and a class for every row of logits."""

    engine: _native.Engine
    file: bytes
    x: NDArray[Any]
    targets: NDArray[np.int64]
    classes: int

    @property
    def size(self) -> tuple[int, int]:
        """Samples, and the length of sequences."""
        return len(self.x), self.x.shape[1] if self.x.dtype == np.int64 else 1

    def logits(self) -> NDArray[np.float32]:
        """Give what the engine says."""
        found = self.engine.logits(self.file, self._bytes(), self.size)
        return self._shaped(found)

    def gradients(self, of_logits: NDArray[np.float32]) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]:
        """Give logits in training, gradients by parameter and statistics afterwards, all by the engine."""
        logits, arrays = self.engine.pull_back(self.file, self._bytes(), self.size, of_logits.tobytes())
        return self._shaped(logits), safetensors.numpy.load(arrays)

    def _shaped(self, logits: bytes) -> NDArray[np.float32]:
        shape = (*self.targets.shape, self.classes)
        return np.frombuffer(logits, dtype="<f4").reshape(shape)

    def _bytes(self) -> bytes:
        return self.x.astype("<i4" if self.x.dtype == np.int64 else "<f4").tobytes()


def sample(settings: Mapping[str, Any], task: Mapping[str, Any], samples: int = 5, seed: int = 3) -> Sample:
    """Make a network with numbers that are not those it starts with, and a batch for it."""
    engine = _native.Engine(json.dumps(settings), json.dumps(task))
    draw = np.random.default_rng(seed)
    file = _shaken(engine.file(seed), draw)
    kind, classes = task["input"], task["classes"]
    if kind["kind"] == "symbols":
        x: NDArray[Any] = draw.integers(1, kind["vocabulary"], (samples, kind["length"]))
        x[1, kind["length"] // 2 :] = 0  # Padding.
        return Sample(engine, file, x, draw.integers(0, classes, x.shape), classes)
    shape = [kind[name] for name in ("height", "width", "channels") if name in kind]
    # Samples of different strengths: a normalisation over samples that hardly differ is nothing but rounding.
    strength = np.linspace(0.5, 3.0, samples).reshape(-1, *(1 for _ in shape))
    x = (strength * draw.uniform(-1.0, 1.0, (samples, *shape))).astype(np.float32)
    return Sample(engine, file, x, draw.integers(0, classes, samples), classes)


def _shaken(content: bytes, draw: np.random.Generator) -> bytes:
    file = read(content)
    arrays = {}
    for name, array in sorted(file.arrays.items()):
        # Matrices by a tenth of their own size.
        size = 0.1 * float(array.std()) if array.ndim > 1 else 0.02
        noise = draw.normal(0.0, size, array.shape).astype(np.float32)
        arrays[name] = np.full_like(array, 3.0) if name.endswith(".steps") else array + noise
    return safetensors.numpy.save(arrays, metadata={"fedeq": json.dumps(file.notes)})
