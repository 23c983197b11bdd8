"""Named arrays: how they are stored, checked and averaged."""

import hashlib
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Weights = dict[str, NDArray[np.float32]]


class Rejected(ValueError):
    """Weights that a client should not have sent."""


def read(path: Path) -> Weights:
    """Read a safetensors file of 32-bit floats."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    return {name: _array(data[end:], entry, name) for name, entry in sorted(header.items())}


def write(path: Path, weights: Weights) -> str:
    """Write a safetensors file, whole or not at all, and give its fingerprint."""
    head = _head(weights, {})
    body = b"".join(np.ascontiguousarray(array, np.float32).tobytes() for _, array in sorted(weights.items()))
    data = len(head).to_bytes(8, "little") + head + body
    write_atomically(path, data)
    return fingerprint(data)


def size(weights: Weights, header: str) -> int:
    """Count the bytes of a message as `fedeq run` writes it: weights and a header in the form of a safetensors file."""
    metadata = json.dumps({"header": header}, separators=(",", ":"), ensure_ascii=False)
    return 8 + len(_head(weights, {"fedeq": metadata})) + sum(array.nbytes for array in weights.values())


def fingerprint(data: bytes) -> str:
    """Give what tells data from other data, as the Rust side does it."""
    return hashlib.sha256(data).digest()[:16].hex()


def write_atomically(path: Path, data: bytes) -> None:
    """Write, sync and rename: after a power cut there is the old file or the new one, never a part."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def mean(items: Iterable[tuple[Weights, float]]) -> Weights:
    """Take the weighted mean, summed as given and in double precision: to the bit what `fedeq run` computes."""
    items = list(items)
    total = sum(weight for _, weight in items)
    first, _ = items[0]
    result: Weights = {}
    for name in first:
        sums = np.zeros(first[name].shape, np.float64)
        for weights, weight in items:
            sums += weight * weights[name].astype(np.float64)
        result[name] = (sums / total).astype(np.float32)
    return result


def check(weights: Weights, like: Weights, bound: float = float("inf")) -> None:
    """Refuse another layout, numbers that are not finite, and weights further than `bound` from those sent out."""
    if set(weights) != set(like):
        odd = min(set(weights) ^ set(like))
        message = f"`{odd}` is missing or not expected"
        raise Rejected(message)
    for name, array in weights.items():
        if array.shape != like[name].shape:
            message = f"`{name}` has shape {array.shape} instead of {like[name].shape}"
            raise Rejected(message)
        if not np.isfinite(array).all():
            message = f"`{name}` holds a value that is not finite"
            raise Rejected(message)
    distance = float(np.sqrt(sum(np.square(weights[name].astype(np.float64) - like[name]).sum() for name in like)))
    if distance > bound:
        message = f"it is {distance:.3g} away from what was sent out, more than {bound:.3g}"
        raise Rejected(message)


def pack(weights: Weights) -> tuple[NDArray[np.float32], str]:
    """Put all numbers into one array, and say as JSON how they belong together.

    Flower moves every array with calls of its own; one array is moved much faster than many.
    """
    layout = [[name, list(array.shape)] for name, array in sorted(weights.items())]
    flat = [np.ascontiguousarray(array, np.float32).ravel() for _, array in sorted(weights.items())]
    return np.concatenate([np.zeros(0, np.float32), *flat]), json.dumps(layout, separators=(",", ":"))


def unpack(packed: NDArray[np.float32], layout: str) -> Weights:
    """Take the arrays apart again."""
    if packed.dtype != np.float32 or packed.ndim != 1:
        message = f"`packed` has type {packed.dtype} and {packed.ndim} dimensions, not float32 and 1"
        raise Rejected(message)
    weights: Weights = {}
    begin = 0
    for name, shape in json.loads(layout):
        end = begin + math.prod(shape)
        weights[str(name)] = packed[begin:end].reshape(shape)
        begin = end
    if begin != packed.size:
        message = f"`packed` has {packed.size} numbers, and its layout {begin}"
        raise Rejected(message)
    return dict(sorted(weights.items()))


def _head(weights: Weights, metadata: dict[str, str]) -> bytes:
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, array in sorted(weights.items()):
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    head = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return head + b" " * (-len(head) % 8)


def _array(data: bytes, entry: dict[str, Any], name: str) -> NDArray[np.float32]:
    if entry["dtype"] != "F32":
        message = f"`{name}` is of type {entry['dtype']}, not F32"
        raise Rejected(message)
    begin, end = entry["data_offsets"]
    flat: NDArray[np.float32] = np.frombuffer(data[begin:end], np.float32)
    return flat.reshape(entry["shape"]).copy()
