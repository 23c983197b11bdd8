"""Tables of numbers: rows as dictionaries, or as a data frame."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

PANDAS, POLARS = "pandas", "polars"

MOST_ROWS = 20
"""Rows that are shown; the table has all of them."""


class _Missing(ImportError):
    """An extra that is not installed."""

    def __init__(self, package: str) -> None:
        """Say how to install it."""
        super().__init__(
            f"`{package}` is not installed\nhint: install it with `pip install {package}`, or use `to_dicts()`"
        )


class Table(Sequence[dict[str, Any]]):
    """Rows with the same columns; `None` where there is no value.

    >>> table = Table([{"round": 1, "loss": 0.5}, {"round": 2, "loss": 0.25, "accuracy": 0.9}])
    >>> table
    Table of 2 rows: round, loss, accuracy
    >>> table["accuracy"], table[-1]["loss"], len(table[:1])
    ([None, 0.9], 0.25, 1)
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], first: Sequence[str] = ()) -> None:
        """Collect rows; columns stand in the order in which rows have them, after those of `first`."""
        given = list(rows)
        found = dict.fromkeys(name for row in given for name in row)
        self._columns = tuple(dict.fromkeys([*(name for name in first if name in found), *found]))
        self._rows = [{name: row.get(name) for name in self._columns} for row in given]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self._columns

    def __len__(self) -> int:
        """Count the rows."""
        return len(self._rows)

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> "Table": ...
    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    def __getitem__(self, key: int | slice | str) -> "dict[str, Any] | Table | list[Any]":
        """Give a row by its place, several by a slice, or a column by its name."""
        if isinstance(key, str):
            if key not in self._columns:
                message = f"there is no column `{key}`; there are {', '.join(f'`{name}`' for name in self._columns)}"
                raise KeyError(message)
            return [row[key] for row in self._rows]
        if isinstance(key, slice):
            return Table(self._rows[key], self._columns)
        return dict(self._rows[key])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Give the rows in order."""
        return (dict(row) for row in self._rows)

    def __eq__(self, other: object) -> bool:
        """Compare rows."""
        return isinstance(other, Table) and self._rows == other._rows

    __hash__ = None  # type: ignore[assignment]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Give the rows."""
        return list(self)

    def to_pandas(self) -> "pd.DataFrame":
        """Give a frame of pandas."""
        try:
            import pandas as pd  # noqa: PLC0415 (an extra)
        except ImportError:
            raise _Missing(PANDAS) from None
        return pd.DataFrame(self._rows, columns=list(self._columns))

    def to_polars(self) -> "pl.DataFrame":
        """Give a frame of polars."""
        try:
            import polars as pl  # noqa: PLC0415 (an extra)
        except ImportError:
            raise _Missing(POLARS) from None
        return pl.DataFrame({name: self[name] for name in self._columns}, strict=False)

    def __repr__(self) -> str:
        """Say how large it is, and what it has."""
        return f"Table of {len(self)} rows: {', '.join(self._columns)}"

    def _repr_html_(self) -> str:
        """Show the last rows, and only columns with values."""
        names = [name for name in self._columns if any(row[name] is not None for row in self._rows)]
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        shown = self._rows[-MOST_ROWS:]
        body = "".join(f"<tr>{''.join(f'<td>{escape(_text(row[name]))}</td>' for name in names)}</tr>" for row in shown)
        more = "" if len(shown) == len(self._rows) else f"<p>the last {len(shown)} of {len(self._rows)} rows</p>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
