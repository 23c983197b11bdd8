"""Pictures of runs, drawn by Rust: nothing else is needed to show or to keep them."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from fedeq import _given, _native


class Figure:
    """A picture, which notebooks show.

    >>> import fedeq
    >>> run = fedeq.run(method="fedavg", model="linear", rounds=3, out="runs/first", progress=False)
    >>> run.plot("training-loss").save("loss.png").name
    'loss.png'
    """

    def __init__(self, svg: str, png: bytes) -> None:
        """Hold both forms of it."""
        self._svg = svg
        self._png = png

    @property
    def svg(self) -> str:
        """The text of an SVG file."""
        return self._svg

    @property
    def png(self) -> bytes:
        """The bytes of a PNG file."""
        return self._png

    def save(self, path: str | PathLike[str]) -> Path:
        """Write it to a file whose name ends in `.svg` or `.png`."""
        file = _given.path(path, "path")
        ending = file.suffix.lower()
        if ending not in {".svg", ".png"}:
            _given.refuse(f"`{file}` is no picture's name", "let it end in `.svg` or `.png`")
        with _given.access(file, "write"):
            file.write_bytes(self.png if ending == ".png" else self.svg.encode())
        return file

    def _repr_svg_(self) -> str:
        """Show it in a notebook."""
        return self.svg

    def __repr__(self) -> str:
        """Say how large it is."""
        return f"a figure ({len(self.svg):,} bytes of SVG)"


def draw(folders: Sequence[Path], name: str, view: str | None, path: str | PathLike[str] | None) -> Figure:
    """Draw a figure of runs, and write it to a file if one is named."""
    _given.text(name, "name", "accuracy-over-rounds")
    figure = Figure(*_native.figure(list(folders), name, view))
    if path is not None:
        figure.save(path)
    return figure
