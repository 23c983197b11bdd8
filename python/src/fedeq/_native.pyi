"""The server of a federation, in Rust (`crates/python`)."""

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Literal, Protocol

class FedeqError(RuntimeError):
    """What went wrong, in a sentence, and in the next line what to do about it."""

class Stopped(FedeqError):
    """The run was stopped; it continues from its last checkpoint when it is started again."""

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
    def count(self) -> int: ...
    @property
    def packed(self) -> bytes: ...

class Watch:
    """What may be asked and told while clients are waited for."""

    @property
    def stopped(self) -> bool: ...
    def replied(self, client: int) -> None: ...
    def refused(self, node: str, client: int, reason: str) -> None: ...

class Link(Protocol):
    """The way to clients; see `Federation.train`."""

    def gather(self, clients: int, watch: Watch, /) -> Mapping[int, str]: ...
    def exchange(
        self, requests: Mapping[int, Request], watch: Watch, /
    ) -> Mapping[int, str | tuple[object, object, object]]: ...

class Federation:
    """The server of a federation, from the folder that `fedeq init-federation` wrote.

    The folder belongs to this process as long as the object lives.
    """

    def __init__(self, folder: str | PathLike[str]) -> None: ...
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
