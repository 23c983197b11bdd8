"""Named arrays: how they are stored and sent, written anew for tests."""

import json
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Weights = dict[str, NDArray[np.float32]]


def read(path: Path) -> Weights:
    """Read a safetensors file of 32-bit floats."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    weights = {}
    for name, entry in sorted(header.items()):
        begin, stop = entry["data_offsets"]
        weights[name] = np.frombuffer(data[end + begin : end + stop], np.float32).reshape(entry["shape"])
    return weights


def write(path: Path, weights: Weights) -> None:
    """Write a safetensors file."""
    header, offset = {}, 0
    for name, array in sorted(weights.items()):
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    body = b"".join(np.ascontiguousarray(array, np.float32).tobytes() for _, array in sorted(weights.items()))
    path.write_bytes(len(head).to_bytes(8, "little") + head + body)


def pack(weights: Weights) -> tuple[NDArray[np.float32], str]:
    """Pack all numbers into one array, with names and shapes as JSON."""
    layout = [[name, list(array.shape)] for name, array in sorted(weights.items())]
    flat = [np.ascontiguousarray(array, np.float32).ravel() for _, array in sorted(weights.items())]
    return np.concatenate([np.zeros(0, np.float32), *flat]), json.dumps(layout, separators=(",", ":"))


def unpack(packed: NDArray[np.float32], layout: str) -> Weights:
    """Unpack the arrays."""
    weights: Weights = {}
    begin = 0
    for name, shape in json.loads(layout):
        end = begin + math.prod(shape)
        weights[name] = packed[begin:end].reshape(shape)
        begin = end
    return weights
