"""The model of a client of a finished run."""

from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeq import _given
from fedeq._native import Model, TrainedRun
from fedeq.data import plain

_Lent = tuple[str, list[int], bytearray]
"""Type, shape and bytes."""


class Models:
    """The models of all clients of a finished run, by their names.

    `data` says where the data of the run lies now, if it has moved.

    >>> import fedeq
    >>> run = fedeq.run(method="fedavg", model="linear", rounds=2, out="runs/first", progress=False)
    >>> from fedeq.client import Models
    >>> models = Models("runs/first")
    >>> models.names[0], len(models.classes), models["client-07"].name
    ('client-00', 10, 'client-07')
    """

    def __init__(self, folder: str | PathLike[str], data: str | PathLike[str] | None = None) -> None:
        """Read the folder of a finished run."""
        where = None if data is None else _given.path(data, "data")
        self._run = TrainedRun(_given.path(folder, "folder"), where)

    @property
    def names(self) -> list[str]:
        """The clients' names; those kept out of training come last."""
        return self._run.clients

    @property
    def classes(self) -> NDArray[Any] | None:
        """The classes, in order of their numbers: integers if all their names are, else strings; None for sequences."""
        names = self._run.classes
        if names is None:
            return None
        if all(name.removeprefix("-").isdecimal() and str(int(name)) == name for name in names):
            return np.array([int(name) for name in names])
        return np.array(names)

    def __getitem__(self, name: str) -> "Client":
        """Give the model of a client."""
        if not isinstance(name, str):
            _given.refuse(f"`{name!r}` is no client's name", f"give it as text, such as `{self.names[0]}`")
        return Client(self, name)


class Client:
    """The model by which a client is evaluated: the shared part and its own.

    >>> import fedeq
    >>> run = fedeq.run(method="fedavg", model="linear", rounds=2, out="runs/first", progress=False)
    >>> client = run.client("client-07")
    >>> x, y = client.data()["test"]
    >>> x.shape[1:], client.predict(x).shape == y.shape, client.logits(x).shape[1]
    ((8, 8, 1), True, 10)
    >>> sorted(client.state_dict())
    ['output.bias', 'output.weight']
    """

    def __init__(self, models: Models, name: str) -> None:
        """Take the model of a client from those of a run."""
        self._model = Model(models._run, name)  # noqa: SLF001
        self._classes = models.classes

    @property
    def name(self) -> str:
        """The client's name."""
        return self._model.name

    @property
    def classes(self) -> NDArray[Any] | None:
        """What columns of `logits` stand for; for sequences None, since they stand for tokens."""
        return self._classes

    def predict(self, x: ArrayLike) -> NDArray[Any]:
        """Give the class of every sample, for sequences the next token at every position.

        `x` is like the data of the run, in its units: what standardises features is part of the model. Where a method
        lets training samples vote (kNN-Per), they do.
        """
        return self._named(_array(self._model.predict(plain(x, "`x`"))))

    def logits(self, x: ArrayLike) -> NDArray[np.float32]:
        """Give what the network says to every sample, one number a class, before it becomes probabilities."""
        return _array(self._model.logits(plain(x, "`x`")))

    def state_dict(self) -> dict[str, NDArray[np.float32]]:
        """Give parameters and statistics by their names, those of `fedeq export`."""
        return {name: _array(lent) for name, lent in self._model.state().items()}

    def data(self) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
        """Give what the client holds: `(x, y)` by `train`, `validation` and `test`, in the units of the data."""
        return {part: (_array(x), self._named(_array(y))) for part, (x, y) in self._model.data().items()}

    def __repr__(self) -> str:
        """Say whose model it is."""
        return f"<fedeq.client.Client {self.name!r}>"

    def _named(self, numbers: NDArray[Any]) -> NDArray[Any]:
        return numbers if self._classes is None else self._classes[numbers]


def _array(lent: _Lent) -> NDArray[Any]:
    dtype, shape, values = lent
    return np.frombuffer(values, dtype=dtype).reshape(shape)
