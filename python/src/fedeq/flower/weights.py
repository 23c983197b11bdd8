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

# No array has more dimensions, nor longer ones.
MOST_DIMENSIONS, LONGEST_DIMENSION = 32, 2**40
# A message may be so many bytes too large and still be read, so that the reason can say what exactly is wrong.
SPARE = 1 << 20


class Rejected(ValueError):
    """A reply that cannot be used, with the reason."""


def read(path: Path) -> Weights:
    """Read a safetensors file of 32-bit floats."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    return {name: _array(data[end:], entry, name) for name, entry in sorted(header.items())}


def write(path: Path, weights: Weights) -> str:
    """Write a safetensors file atomically, and give its fingerprint."""
    head = _head(weights, {})
    body = b"".join(np.ascontiguousarray(array, np.float32).tobytes() for _, array in sorted(weights.items()))
    data = len(head).to_bytes(8, "little") + head + body
    write_atomically(path, data)
    return fingerprint(data)


def size(weights: Weights, header: str) -> int:
    """Count the bytes of a message as `fedeq run` does: weights and header in the safetensors format."""
    metadata = json.dumps({"header": header}, separators=(",", ":"), ensure_ascii=False)
    return 8 + len(_head(weights, {"fedeq": metadata})) + sum(array.nbytes for array in weights.values())


def fingerprint(data: bytes) -> str:
    """Compute the fingerprint of data, as the Rust program does."""
    return hashlib.sha256(data).digest()[:16].hex()


def write_atomically(path: Path, data: bytes) -> None:
    """Write, sync and rename: after a power cut the old file is there or the new one, never a part of it."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def mean(items: Iterable[tuple[Weights, float]]) -> Weights:
    """Take the weighted mean in double precision, summed in the given order: to the bit as in `fedeq run`."""
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
    """Reject other names or shapes, values that are not finite, and weights further than `bound` from `like`."""
    if set(weights) != set(like):
        name = min(set(weights) ^ set(like))
        problem = "is missing" if name in like else "is not expected"
        message = f"`{name}` {problem}"
        raise Rejected(message)
    for name, array in weights.items():
        if array.shape != like[name].shape:
            message = f"`{name}` has shape {array.shape} instead of {like[name].shape}"
            raise Rejected(message)
        if not np.isfinite(array).all():
            message = f"`{name}` contains NaN or infinity"
            raise Rejected(message)
    distance = float(np.sqrt(sum(np.square(weights[name].astype(np.float64) - like[name]).sum() for name in like)))
    if distance > bound:
        message = f"its distance from the weights that were sent out is {distance:.3g}, more than {bound:.3g}"
        raise Rejected(message)


def pack(weights: Weights) -> tuple[NDArray[np.float32], str]:
    """Pack all numbers into one array, with names and shapes as JSON.

    Flower transfers every array with calls of its own; one array is transferred much faster than many.
    """
    layout = [[name, list(array.shape)] for name, array in sorted(weights.items())]
    flat = [np.ascontiguousarray(array, np.float32).ravel() for _, array in sorted(weights.items())]
    return np.concatenate([np.zeros(0, np.float32), *flat]), json.dumps(layout, separators=(",", ":"))


def unpack(packed: NDArray[np.float32], layout: object) -> Weights:
    """Unpack the arrays, by the layout of a client."""
    weights: Weights = {}
    begin = 0
    for name, shape in _entries(layout):
        end = begin + math.prod(shape)
        if end > packed.size or name in weights:
            message = f"its layout contains an array twice, or more numbers than the {packed.size} of `packed`"
            raise Rejected(message)
        weights[name] = packed[begin:end].reshape(shape)
        begin = end
    if begin != packed.size:
        message = f"`packed` has {packed.size} numbers, but its layout describes {begin}"
        raise Rejected(message)
    return dict(sorted(weights.items()))


def _entries(layout: object) -> Iterator[tuple[str, list[int]]]:
    """Give the names and shapes of a layout."""
    message = "its layout is not a list of names and shapes"
    for entry in layout if isinstance(layout, list) else [layout]:
        if not isinstance(entry, list) or len(entry) != 2:  # noqa: PLR2004 (a name and a shape)
            raise Rejected(message)
        name, shape = entry
        if not isinstance(name, str) or not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS:
            raise Rejected(message)
        if not all(
            isinstance(length, int) and not isinstance(length, bool) and 0 <= length <= LONGEST_DIMENSION
            for length in shape
        ):
            raise Rejected(message)
        yield name, shape


def from_npy(data: bytes, size: int) -> NDArray[np.float32]:
    """Read a vector of 32-bit floats in numpy's format, which has `size` bytes of data.

    `numpy.load` would also read archives, and would allocate what a header says before checking that the data is there.
    """
    file = BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        message = "`packed` is not in numpy's format, version 1"
        raise Rejected(message)
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype != np.dtype("<f4") or is_fortran or len(shape) != 1:
        message = f"`packed` has type {dtype} and {len(shape)} dimensions, not float32 and 1"
        raise Rejected(message)
    body = data[file.tell() :]
    if len(body) != 4 * shape[0]:
        message = f"`packed` has {len(body)} bytes, not those of {shape[0]} numbers as its header says"
        raise Rejected(message)
    if len(body) > size + SPARE:
        message = f"`packed` has {len(body)} bytes instead of {size}"
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
