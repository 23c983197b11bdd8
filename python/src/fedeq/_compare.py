"""Finished runs side by side."""

import json
from collections.abc import Iterable
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from fedeq import _given, _native
from fedeq._figure import Figure, draw
from fedeq._run import Run
from fedeq._table import Table


class Comparison:
    """Groups of runs that differ only in their seed, and how sure it is that they differ.

    >>> import fedeq
    >>> small = {"model": "linear", "rounds": 2, "progress": False}
    >>> runs = [fedeq.run(method=method, out=f"runs/{method}", **small) for method in ("fedavg", "local")]
    >>> comparison = fedeq.compare(runs)
    >>> comparison.table["method"], comparison.to_markdown().startswith("|")
    (['fedavg', 'local'], True)
    >>> comparison.plot("accuracy-over-rounds").save("curves.svg").name
    'curves.svg'
    """

    def __init__(self, folders: Iterable[Path], view: str | None) -> None:
        """Read the runs."""
        self._folders = list(folders)
        self._view = None if view is None else _given.text(view, "view", "local")
        self._compared = _native.Compare(self._folders, view)

    @property
    def left_out(self) -> list[str]:
        """Runs that are not part of it, and why."""
        return self._compared.left_out

    @property
    def notes(self) -> list[str]:
        """What the table means, and which differences are sure, in sentences."""
        return self._compared.notes()

    def to_dict(self) -> dict[str, Any]:
        """Give all of it, the tests included."""
        found: dict[str, Any] = json.loads(self._compared.json())
        return found

    @property
    def table(self) -> Table:
        """A row a group: means and standard deviations over its seeds."""
        whole = self.to_dict()
        return Table(_row(place, group, whole) for place, group in enumerate(whole["groups"]))

    def to_markdown(self) -> str:
        """Give a table for a page."""
        return self._compared.markdown()

    def to_latex(self) -> str:
        """Give a table for a paper, by the package `booktabs`."""
        return self._compared.latex()

    def plot(self, name: str = "accuracy-over-rounds", path: str | PathLike[str] | None = None) -> Figure:
        """Draw a figure of the runs: a curve a group."""
        return draw(self._folders, name, self._view, path)

    def __str__(self) -> str:
        """Write the table as text."""
        return self._compared.text() + "\n" + "\n".join(self.notes)

    def __repr__(self) -> str:
        """Show the table where there is no notebook."""
        return str(self)

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        notes = [*self.notes, *(f"left out: {reason}" for reason in self.left_out)]
        return self._compared.html() + "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>"


def _row(place: int, group: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    measures = group["measures"]
    row = {name: group[name] for name in ("method", "model", "data", "rounds")}
    row["settings"] = " ".join(f"{key}={value}" for key, value in group["settings"].items())
    row["seeds"] = len(group["seeds"])
    for view in ("local", "shared"):
        found = measures[view]
        for part in ("mean", "weighted", "worst_decile"):
            row[f"{view}_{part}"] = found and found[part]["mean"]
        row[f"{view}_deviation"] = found and found["mean"]["deviation"]
    row["bytes"], row["seconds"] = measures["bytes"]["mean"], measures["seconds"]["mean"]
    row["best"] = place in whole["best"]
    return row


def compare(
    *runs: Run | str | PathLike[str] | Iterable[Run | str | PathLike[str]],
    view: Literal["local", "shared"] | None = None,
) -> Comparison:
    """Put finished runs side by side, as `fedeq compare` does: runs, their folders, or folders that hold them.

    Runs that differ only in their seed are one line. On each data set the most accurate line is set against every other
    by a t-test over the seeds, corrected for their number; one seed is never tested. `view` says by which of their
    clients' models they are compared: a client's own (`local`, if left out) or the server's with a client's head.

    >>> import fedeq
    >>> small = {"model": "linear", "rounds": 2, "progress": False}
    >>> for method in ("fedavg", "local"):
    ...     for seed in (0, 1):
    ...         run = fedeq.run(method=method, seed=seed, out=f"runs/{method}-{seed}", **small)
    >>> comparison = fedeq.compare("runs")
    >>> [(row["method"], row["seeds"]) for row in comparison.table]
    [('fedavg', 2), ('local', 2)]
    >>> comparison.left_out
    []
    """
    return Comparison([_folder(run) for run in _flat(runs)], view)


def _flat(runs: Iterable[Any]) -> list[Any]:
    single = (str, PathLike, Run)
    found: list[Any] = []
    for run in runs:
        if isinstance(run, single):
            found.append(run)
        elif isinstance(run, Iterable):
            found += _flat(run)
        else:
            _given.refuse(
                f"`{run!r}` is neither a run nor a folder", "give runs, their folders, or folders that hold them"
            )
    return found


def _folder(run: Run | str | PathLike[str]) -> Path:
    return run.folder if isinstance(run, Run) else Path(run)
