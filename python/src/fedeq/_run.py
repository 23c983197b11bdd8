"""Runs: carried out, continued, opened."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any, Never

from fedeq import _given, _native
from fedeq._figure import Figure, draw
from fedeq._table import Table
from fedeq._watch import Callback, Watcher
from fedeq.client import Client, Models
from fedeq.data import FederationData, arrays
from fedeq.networks import Network


class Run:
    """The folder of a run, finished or not.

    >>> import fedeq
    >>> trained = fedeq.run(method="fedavg", model="linear", rounds=2, out="runs/first", progress=False)
    >>> found = fedeq.Run("runs/first")  # the same, from another program and later
    >>> found.state, len(found.metrics), found.config["method"]["name"]
    ('finished', 2, 'fedavg')
    >>> found == trained
    True
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        """Open the folder; what it holds is read when it is asked for."""
        self._folder = _native.Folder(_given.path(folder, "folder"))

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self._folder.path

    @property
    def state(self) -> str:
        """How it stands: running, paused, stopped, killed, finished or failed."""
        return self._folder.state()

    @property
    def config(self) -> dict[str, Any]:
        """The experiment, every choice explicit."""
        return tomllib.loads(self._folder.experiment())

    @property
    def summary(self) -> dict[str, Any]:
        """What came out."""
        text = self._folder.summary()
        if text is None:
            message = (
                f"`{self.folder}` is not finished: it is {self.state}"
                f'\nhint: continue with `fedeq.resume("{self.folder}")`; `metrics` has the rounds so far'
            )
            raise _native.FedeqError(message)
        found: dict[str, Any] = json.loads(text)
        return found

    @property
    def metrics(self) -> Table:
        """Every number of every round: `accuracy` by the model with which the method is evaluated, and more."""
        return Table(json.loads(self._folder.metrics()), ["round", "accuracy", "worst_decile", "train_loss"])

    @property
    def accuracy(self) -> float:
        """The mean accuracy of clients at the last evaluation, by the model with which the method is evaluated."""
        known = [row["accuracy"] for row in self.metrics if row.get("accuracy") is not None]
        if not known:
            message = f'`{self.folder}` has no evaluation yet\nhint: continue with `fedeq.resume("{self.folder}")`'
            raise _native.FedeqError(message)
        return float(known[-1])

    @property
    def clients(self) -> Table:
        """Clients: names, how many samples they hold, and how accurate their models were when last evaluated."""
        return Table(json.loads(self._folder.clients()), ["client", "name"])

    def client(self, name: str) -> Client:
        """Give the model of a client of a finished run, by its name."""
        return Models(self.folder)[name]

    def plot(self, name: str = "accuracy-over-rounds", path: str | PathLike[str] | None = None) -> Figure:
        """Draw a figure, which notebooks show; written to a file (SVG or PNG) if one is named."""
        return draw([self.folder], name, None, path)

    def _repr_html_(self) -> str:
        """Show what came out in a notebook, or how it stands."""
        found = self._folder.facts()
        if found is None:
            return f"<p>{escape(repr(self))}: {escape(self.state)}, {len(self.metrics)} rounds</p>"
        title, facts = found
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts)
        return f"<p>{escape(title)}</p><table>{rows}</table>{self.plot().svg}"

    def __repr__(self) -> str:
        """Say where it is."""
        return f"fedeq.Run({str(self.folder)!r})"

    def __eq__(self, other: object) -> bool:
        """Tell whether both are the same folder."""
        return isinstance(other, Run) and self.folder.absolute() == other.folder.absolute()

    def __hash__(self) -> int:
        """Hash the folder."""
        return hash(self.folder.absolute())


def run(  # noqa: PLR0913 (settings that are given most have names)
    config: Mapping[str, Any] | str | PathLike[str] | None = None,
    *,
    method: str | Mapping[str, Any] | None = None,
    model: str | Mapping[str, Any] | None = None,
    data: str | PathLike[str] | FederationData | None = None,
    network: Network | None = None,
    rounds: int | None = None,
    clients: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    device: str | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | PathLike[str] | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool | None = None,
    **unknown: Never,
) -> Run:
    """Train a federation, as `fedeq run` does, and give its run.

    `config` is an experiment as a dictionary or as the path of a TOML file. Arguments and `settings`, by their dotted
    paths, go over it: `settings={"method.rho": 0.1}`. What is left out comes from a preset. `data` is the name of a
    data set, the path of your own data, or numpy arrays by client (`fedeq.data` says which); those are kept in the run
    folder. `network` is one of your own (`fedeq.networks`). `out` is the folder of the run, which must not exist yet;
    one below `runs` if left out. The same settings give the same bytes as `fedeq run`.

    Callbacks are called after every round with its numbers as a dictionary; one that returns `True` stops the run at a
    checkpoint, and the run is returned as it is. An exception of a callback stops it too, and is raised here.
    `progress=False` shows nothing but warnings; `True` is as if it were left out: a bar in a terminal, one in the cell
    of a notebook, a line an evaluation anywhere else.

    Other threads go on meanwhile. Ctrl-C stops after the clients at work and raises `KeyboardInterrupt`, whose text
    says how to continue; Python tells only its main thread of it, so a run in another one is stopped by a callback,
    such as `lambda _: enough.is_set()` with a `threading.Event`. `fedeq.Refused` is raised where something given makes
    no sense, before anything is trained; `fedeq.Stopped` where somebody else stopped the run, such as the dashboard.

    >>> import fedeq
    >>> seen = []
    >>> run = fedeq.run(
    ...     method="fedrep",
    ...     model="mlp",
    ...     data="digits",
    ...     rounds=3,
    ...     settings={"training.epochs": 2},
    ...     callbacks=[lambda this: seen.append(this["round"])],
    ...     out="runs/fedrep",
    ...     progress=False,
    ... )
    >>> seen, 0 < run.accuracy < 1
    ([1, 2, 3], True)
    >>> fedeq.run(method="fedrap")
    Traceback (most recent call last):
    fedeq.Refused: ...
    """
    named = {
        "method": method,
        "model": model,
        "data": None if isinstance(data, Mapping) else data,
        "rounds": rounds,
        "clients": clients,
        "lr": lr,
        "seed": seed,
        "device": device,
        "preset": preset,
    }
    given = {name: plain(value) for name, value in named.items() if value is not None}
    given.update(unknown)
    held = arrays(data) if isinstance(data, Mapping) else None
    more = {} if settings is None else plain(_given.mapping(settings, "settings", '{"plan.rounds": 20}'))
    where = None if out is None else _given.path(out, "out")
    watcher = Watcher(callbacks, progress)
    try:
        folder, _ = _native.run(plain(config), given, more, held, network, where, watcher)
    finally:
        watcher.ended()
    return Run(folder)


def resume(  # noqa: PLR0913
    folder: str | PathLike[str] | Run,
    *,
    previous: bool = False,
    device: str | None = None,
    data: str | PathLike[str] | None = None,
    network: Network | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool | None = None,
) -> Run:
    """Continue a run that was stopped or killed, as `fedeq resume` does; one that is finished stays as it is.

    It ends with the same bytes as one that was never stopped. `previous` goes back to the checkpoint before the last,
    `device` continues on another device, `data` says where the data lies now. A run with a network of
    your own needs it as `network`.

    >>> import fedeq
    >>> small = {"method": "fedavg", "model": "linear", "rounds": 4, "progress": False}
    >>> run = fedeq.run(**small, out="runs/stopped", callbacks=[lambda this: this["round"] == 2])
    >>> run.state
    'stopped'
    >>> fedeq.resume(run, progress=False).state
    'finished'
    """
    path = folder.folder if isinstance(folder, Run) else _given.path(folder, "folder")
    where = None if data is None else _given.path(data, "data")
    on = None if device is None else _given.text(device, "device", "cuda")
    watcher = Watcher(callbacks, progress)
    try:
        done, _ = _native.resume(path, _given.truth(previous, "previous"), on, where, network, watcher)
    finally:
        watcher.ended()
    return Run(done)


def plain(value: object) -> Any:  # noqa: ANN401 (whatever a setting is)
    """Make plain dictionaries of mappings, which is what Rust reads."""
    if isinstance(value, Mapping):
        return {key: plain(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
