"""Named arrays: how they are stored, checked and averaged."""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Weights = dict[str, NDArray[np.float32]]

# No array has more sides, nor longer ones.
MOST_SIDES, LONGEST_SIDE = 32, 2**40
# Bytes that somebody may have sent too many and is still told what exactly is wrong.
SPARE = 1 << 20


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


def unpack(packed: NDArray[np.float32], layout: object) -> Weights:
    """Take the arrays apart again, by a layout that somebody else has written."""
    weights: Weights = {}
    begin = 0
    for name, shape in _entries(layout):
        end = begin + math.prod(shape)
        if end > packed.size or name in weights:
            message = f"its layout names an array twice, or more numbers than the {packed.size} there are"
            raise Rejected(message)
        weights[name] = packed[begin:end].reshape(shape)
        begin = end
    if begin != packed.size:
        message = f"`packed` has {packed.size} numbers, and its layout {begin}"
        raise Rejected(message)
    return dict(sorted(weights.items()))


def _entries(layout: object) -> Iterator[tuple[str, list[int]]]:
    """Give names and shapes, one after the other."""
    message = "its layout is no list of names and shapes"
    for entry in layout if isinstance(layout, list) else [layout]:
        if not isinstance(entry, list) or len(entry) != 2:  # noqa: PLR2004 (a name and a shape)
            raise Rejected(message)
        name, shape = entry
        if not isinstance(name, str) or not isinstance(shape, list) or len(shape) > MOST_SIDES:
            raise Rejected(message)
        if not all(
            isinstance(side, int) and not isinstance(side, bool) and 0 <= side <= LONGEST_SIDE for side in shape
        ):
            raise Rejected(message)
        yield name, shape


def from_npy(data: bytes, size: int) -> NDArray[np.float32]:
    """Read a list of 32-bit floats as `numpy.save` writes it, which has so many bytes beside its head.

    `numpy.load` would also read archives, and make room for as much as a head says before it looks whether it is there.
    """
    file = BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        message = "`packed` is no array of numpy's, version 1"
        raise Rejected(message)
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype != np.dtype("<f4") or is_fortran or len(shape) != 1:
        message = f"`packed` has type {dtype} and {len(shape)} dimensions, not float32 and 1"
        raise Rejected(message)
    body = data[file.tell() :]
    if len(body) != 4 * shape[0]:
        message = f"`packed` says that it has {shape[0]} numbers, but has {len(body)} bytes"
        raise Rejected(message)
    if len(body) > size + SPARE:
        message = f"`packed` has {len(body)} bytes, and {size} are expected"
        raise Rejected(message)
    return np.frombuffer(body, np.float32)


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
