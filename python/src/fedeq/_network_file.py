"""Networks as files: what `fedeq export` writes, for `fedeq.torch` and `fedeq.onnx`."""

import json
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from fedeq import _given, _native
from fedeq._given import refuse

AnyPath: TypeAlias = str | PathLike[str]


class HasFolder(Protocol):
    """A run, as `fedeq.run` gives it."""

    @property
    def folder(self) -> AnyPath:
        """Its run folder."""
        ...


# What comes of reading a text of another form than it should have.
MALFORMED = (ValueError, LookupError, TypeError, AttributeError)

Source: TypeAlias = AnyPath | bytes | HasFolder


@dataclass(frozen=True)
class NetworkFile:
    """A network as data, and its numbers by name."""

    graph: dict[str, Any]
    arrays: dict[str, NDArray[np.float32]]
    scaling: dict[str, Any] | None = None
    classes: tuple[str, ...] = ()
    notes: dict[str, str] = field(default_factory=dict)


def read(source: Source, client: str | None = None) -> NetworkFile:
    """Read the model of a client: a file or a folder that `fedeq export` wrote, a run folder or a run."""
    if isinstance(source, bytes):
        return _parsed(source, "the bytes given")
    if client is not None:
        _given.text(client, "client", "client-07")
    path = _given.path(getattr(source, "folder", source), "source")
    if path.is_file():
        return _named(_parsed(_content(path), f"`{path}`"), path, client)
    if (path / "export.json").is_file():
        path = _exported(path, client)
        return _parsed(_content(path), f"`{path}`")
    return _parsed(_native.client_file(path, client), f"`{path}`")


def _content(path: Path) -> bytes:
    with _given.access(path, "read"):
        return path.read_bytes()


def _words(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, LookupError) else str(error)


def _named(file: NetworkFile, path: Path, client: str | None) -> NetworkFile:
    found = file.notes.get("client")
    if client not in {None, found}:
        problem = f"`{path}` is the model of `{found}`, not of `{client}`"
        refuse(problem, "leave the client out, or name the folder of the export")
    return file


def _exported(folder: Path, client: str | None) -> Path:
    """Find the file of a client in the folder of an export."""
    files = _files(folder / "export.json")
    if client is None and len(files) > 1:
        problem = f"`{folder}` has the models of {len(files)} clients, and none was named"
        refuse(problem, f'name one, such as `client="{min(files)}"`')
    if client is not None and client not in files:
        refuse(f"`{folder}` has no client `{client}`", f"choose one of {', '.join(sorted(files))}")
    return folder / files[client if client is not None else next(iter(files))]


def _files(listing: Path) -> dict[str, str]:
    """Read which file each client has, of one at least."""
    content = _content(listing)
    try:
        files = {str(entry["name"]): str(entry["file"]) for entry in json.loads(content)["clients"]}
        problem = "it names no client"
    except MALFORMED as error:
        files, problem = {}, _words(error)
    if not files:
        refuse(f"`{listing}` is not what `fedeq export` writes: {problem}", "write it again with `fedeq export`")
    return files


def _parsed(content: bytes, what: str) -> NetworkFile:
    try:
        arrays = safetensors.numpy.load(content)
        notes = _notes(content)
        graph = json.loads(notes["network"]) if "network" in notes else None
        scaling, classes = json.loads(notes.get("scaling", "null")), tuple(json.loads(notes.get("classes", "[]")))
        expected = expected_shapes(graph) if isinstance(graph, dict) else {}
    except (safetensors.SafetensorError, *MALFORMED) as error:
        refuse(f"{what} cannot be read: {_words(error)}", "write it again with `fedeq export`")
    if not isinstance(graph, dict):
        problem = f"{what} does not say which network it holds"
        refuse(problem, "write it again with `fedeq export` of this version")
    file = NetworkFile(graph=graph, arrays=arrays, scaling=scaling, classes=classes, notes=notes)
    _check(file, expected, what)
    return file


def _notes(content: bytes) -> dict[str, str]:
    """Read what a sound safetensors file says about itself."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    notes: dict[str, str] = json.loads(header.get("__metadata__", {}).get("fedeq", "{}"))
    return notes


def expected_shapes(graph: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """All arrays of a network, by name."""
    shapes = {parameter["path"]: tuple(parameter["shape"]) for parameter in graph["parameters"]}
    for layer in graph["statistics"]:
        for name, count in (("mean", layer["channels"]), ("variance", layer["channels"]), ("steps", 1)):
            shapes[f"{layer['path']}.{name}"] = (count,)
    return shapes


def _check(file: NetworkFile, expected: dict[str, tuple[int, ...]], what: str) -> None:
    found = {name: array.shape for name, array in file.arrays.items()}
    different = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if different:
        problem = f"{what} does not hold the network it says it holds: `{different[0]}` is missing or of another shape"
        refuse(problem, "write it again with `fedeq export`")
