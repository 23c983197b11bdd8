"""Own data from memory: numpy arrays by client."""

from collections.abc import Iterator, Mapping
from os import PathLike
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeq._given import path as given_path
from fedeq._given import refuse
from fedeq._native import Arrays

Pair: TypeAlias = tuple[ArrayLike, ArrayLike]
"""Samples and what is to be predicted for each."""

ClientData: TypeAlias = Pair | Mapping[str, Pair]
"""What a client holds: a pair, which the experiment splits, or pairs `train` and `test`."""

FederationData: TypeAlias = Mapping[str, ClientData]
"""What all clients hold, by their names."""

_PAIR = 'give `(x, y)`, or `{"train": (x, y), "test": (x, y)}`'


def save(path: str | PathLike[str], data: FederationData) -> None:
    """Write the data of a federation as one safetensors file, which `fedeq run --data FILE` learns from as well.

    `data` has a pair `(x, y)` for every client, or `{"train": (x, y), "test": (x, y)}`. What `x` is follows from its
    shape and type:

    - pictures: `[N, H, W]` or `[N, H, W, C]` of `uint8` (floats only if they are bytes divided by 255);
    - rows of numbers: `[N, D]` of floats;
    - sequences of tokens: `[N, T]` of integers below 256, 0 being padding; `y` has the tokens that follow.

    `y` has a class for every sample, an integer or a string. What does not fit is refused by client and array.

    >>> import numpy as np, fedeq.data
    >>> x = np.array([[0.0, 1.0], [1.0, 0.0], [0.1, 0.9], [0.9, 0.1]])
    >>> fedeq.data.save("two.safetensors", {"ann": (x, ["oak", "elm", "oak", "elm"]), "bob": (x[:2], ["oak", "elm"])})
    """
    where = given_path(path, "path")
    arrays(data).save(where)


def arrays(data: FederationData) -> Arrays:
    """Put the data of a federation together, and refuse what does not fit by client and array."""
    if not isinstance(data, Mapping):
        refuse(
            f"data is of the type `{type(data).__name__}`", "give a mapping from the name of a client to its `(x, y)`"
        )
    return Arrays(_parts(data))


def _parts(data: FederationData) -> Iterator[tuple[str, str, NDArray[np.generic], NDArray[np.generic] | list[str]]]:
    for client, held in data.items():
        if not isinstance(client, str):
            hint = 'name clients by strings, such as `{f"client-{i:02}": data[i] for i in data}`'
            refuse(f"client `{client!r}` is of the type `{type(client).__name__}`", hint)
        parts = held if isinstance(held, Mapping) else {"train": held}
        for part, pair in parts.items():
            if part not in {"train", "test"}:
                hint = f"{_PAIR}; samples to tune on are split off with the setting `data.split.validation`"
                refuse(f"client `{client}`: there is a part `{part}`", hint)
            if not isinstance(pair, tuple) or len(pair) != 2:  # noqa: PLR2004
                refuse(f"client `{client}`: `{part}` is no pair `(x, y)`", _PAIR)
            about = f"client `{client}`: `{part}`"
            yield client, part, plain(pair[0], f"{about} `x`"), _labels(pair[1], f"{about} `y`")


def plain(values: ArrayLike, about: str) -> NDArray[np.generic]:
    """Give an array of one of the types that Rust reads, without a copy where it is of one."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        refuse(f"{about}: is no array: {error}", "give an array, all samples of one shape")
    if array.dtype.kind == "f" and array.dtype.itemsize == 2:  # noqa: PLR2004
        array = array.astype(np.float32)
    if array.dtype == np.uint64:
        if array.size and array.max() > np.iinfo(np.int64).max:
            refuse(f"{about}: `{array.max()}` is too large", "give integers below 2^63")
        array = array.astype(np.int64)
    if array.dtype.kind == "T":  # Texts of any length, which have no byte order.
        return array
    # Rust knows types by their letter alone, and numpy may have written the byte order of this machine in front of it.
    native = array.dtype.newbyteorder("=")
    return array.view(native) if array.dtype.isnative else array.astype(native)


def _labels(values: ArrayLike, about: str) -> NDArray[np.generic] | list[str]:
    array = plain(values, about)
    texts = array.dtype.kind in "UT" or (
        array.dtype.kind == "O" and array.size > 0 and all(isinstance(value, str) for value in array.flat)
    )
    if not texts:
        return array
    if array.ndim != 1:
        refuse(f"{about}: has the shape `{list(array.shape)}`", "give one class a sample, as [N]")
    return [str(value) for value in array]
