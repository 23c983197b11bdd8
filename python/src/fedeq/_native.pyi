"""The Rust side of the package (`crates/python`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Protocol, Self, final, type_check_only

import numpy as np
from numpy.typing import NDArray

from fedeq.networks import Network

__version__: str

class FedeqError(RuntimeError):
    """What went wrong, in a sentence, and in the next line what to do about it."""

class Stopped(FedeqError):
    """The run was stopped; it continues from its last checkpoint when it is started again."""

class Refused(FedeqError, ValueError):
    """What was asked for makes no sense or cannot be done: a setting, a value, a file. Nothing was trained."""

def main(arguments: list[str], words: list[str]) -> int:
    """Run a command of the command line and give its exit code; `words` start the program again."""

@type_check_only
class Watcher(Protocol):
    """Who is told what happens in a run, on the thread that called."""

    def started(self, lines: list[str], done: int, rounds: int, /) -> None: ...
    def warned(self, text: str, /) -> None: ...
    def settled(self, numbers: str, words: str, /) -> bool: ...

def run(
    config: dict[str, Any] | str | PathLike[str] | None,
    keywords: dict[str, Any],
    settings: dict[str, Any],
    arrays: Arrays | None,
    network: Network | None,
    out: str | PathLike[str] | None,
    watch: Watcher,
) -> tuple[Path, bool]:
    """Carry out an experiment in a new folder; give the folder, and whether the run is finished."""

def resume(
    folder: str | PathLike[str],
    previous: bool,
    device: str | None,
    data: str | PathLike[str] | None,
    network: Network | None,
    watch: Watcher,
) -> tuple[Path, bool]:
    """Continue a run from its last checkpoint, or the one before it."""

def words(
    config: dict[str, Any] | None, keywords: dict[str, Any], settings: dict[str, Any]
) -> tuple[str | None, list[str]]:
    """Give an experiment as words of the command line: a dictionary as the text of a file, the rest as options."""

def in_turn(key: str, values: Sequence[object]) -> str:
    """Give the values that a setting takes in turn, as they are typed."""

@final
class Folder:
    """The folder of a run, to be read."""

    def __new__(cls, path: str | PathLike[str]) -> Self: ...
    @property
    def path(self) -> Path: ...
    def state(self) -> str: ...
    def experiment(self) -> str: ...
    def summary(self) -> str | None: ...
    def metrics(self) -> str: ...
    def clients(self) -> str: ...
    def facts(self) -> tuple[str, list[tuple[str, str]]] | None: ...

@final
class Compare:
    """Finished runs side by side."""

    def __new__(cls, paths: Sequence[str | PathLike[str]], view: str | None) -> Self: ...
    @property
    def left_out(self) -> list[str]: ...
    def json(self) -> str: ...
    def text(self) -> str: ...
    def html(self) -> str: ...
    def markdown(self) -> str: ...
    def latex(self) -> str: ...
    def notes(self) -> list[str]: ...

def figure(paths: Sequence[str | PathLike[str]], name: str, view: str | None) -> tuple[str, bytes]:
    """Draw a figure of runs, as SVG and PNG."""

@final
class Request:
    """A request, in the parts that Flower's records are made of. Clients that are asked the same share one."""

    @property
    def kind(self) -> Literal["train", "evaluate"]: ...
    @property
    def round(self) -> int: ...
    @property
    def header(self) -> str: ...
    @property
    def layout(self) -> str: ...
    @property
    def dtype(self) -> Literal["float32", "uint8"]: ...
    @property
    def count(self) -> int: ...
    @property
    def packed(self) -> bytes: ...

@final
class LinkContext:
    """What may be asked and told while clients are waited for."""

    @property
    def stopped(self) -> bool: ...
    def replied(self, client: int) -> None: ...
    def refused(self, node: str, client: int, reason: str) -> None: ...

@type_check_only
class Link(Protocol):
    """The way to clients; see `Federation.train`."""

    def gather(self, clients: int, context: LinkContext, /) -> Mapping[int, str]: ...
    def exchange(
        self, requests: Mapping[int, Request], context: LinkContext, /
    ) -> Mapping[int, str | tuple[object, object, object]]: ...

@final
class Federation:
    """The server of a federation, from the folder that `fedeq init-federation` wrote.

    The folder belongs to this process as long as the object lives.
    """

    def __new__(cls, folder: str | PathLike[str]) -> Self: ...
    @property
    def title(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def experiment(self) -> str: ...
    @property
    def clients(self) -> int: ...
    @property
    def round(self) -> int: ...
    @property
    def rounds(self) -> int: ...
    @property
    def array_limit(self) -> int: ...
    def train(
        self,
        link: Link,
        log: Callable[[Literal["info", "warning"], str], object],
        minimum: float = 1.0,
        bound: float = ...,
    ) -> str:
        """Train to the end of the plan, and give the summary as JSON.

        `link.gather` waits for clients, and gives the reasons of those that cannot be reached, by client.
        `link.exchange` sends each client its request, and gives replies by client: header, layout and array as they
        came, of whatever type, or the reason why there is none. Rust checks them.
        """

@final
class Arrays:
    """The arrays of all clients, put together; see `fedeq.data`, which is the way to make them."""

    def __new__(
        cls, parts: Iterable[tuple[str, str, NDArray[np.generic], NDArray[np.generic] | list[str]]]
    ) -> Self: ...
    @property
    def source(self) -> Literal["image-arrays", "vector-arrays", "token-arrays"]: ...
    def save(self, path: str | PathLike[str]) -> str:
        """Write them as one safetensors file, and give its SHA-256. They are gone then."""

@final
class TrainedRun:
    """A finished run with its data and its models; see `fedeq.client`."""

    def __new__(cls, folder: str | PathLike[str], data: str | PathLike[str] | None = None) -> Self: ...
    @property
    def clients(self) -> list[str]: ...
    @property
    def classes(self) -> list[str] | None: ...

@final
class Model:
    """The model of a client; arrays come as type, shape and bytes."""

    def __new__(cls, run: TrainedRun, client: str) -> Self: ...
    @property
    def name(self) -> str: ...
    def predict(self, x: NDArray[np.generic]) -> tuple[str, list[int], bytearray]: ...
    def logits(self, x: NDArray[np.generic]) -> tuple[str, list[int], bytearray]: ...
    def state(self) -> dict[str, tuple[str, list[int], bytearray]]: ...
    def data(self) -> dict[str, tuple[tuple[str, list[int], bytearray], tuple[str, list[int], bytearray]]]: ...

def client_file(folder: str | PathLike[str], client: str | None = None) -> bytes:
    """Give the safetensors file of a client of a finished run, as `fedeq export` writes it."""

@final
class Engine:
    """A network of the catalog for a task, run by the CPU engine: what `fedeq.torch` is compared with."""

    def __new__(cls, model: str, task: str) -> Self:
        """`model` is a name or a model's settings as JSON, `task` inputs and classes as JSON."""

    def file(self, seed: int) -> bytes:
        """Give a safetensors file with the network's first values."""

    def logits(self, file: bytes, x: bytes, size: tuple[int, int]) -> bytes:
        """Give the logits of a batch of 32-bit floats (symbols: integers), `size` samples and their length."""

    def pull_back(self, file: bytes, x: bytes, size: tuple[int, int], of_logits: bytes) -> tuple[bytes, bytes]:
        """Give the logits of a training pass, and a file of gradients of parameters, with the statistics after it."""
