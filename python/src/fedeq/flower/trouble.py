"""A SuperLink in trouble: if its database is busy, it answers some calls with an error, and the next as it should."""

from collections.abc import Callable
from logging import DEBUG
from typing import TypeVar

import httpx
from flwr.app import Message
from flwr.common.logger import log
from flwr.serverapp import Grid

T = TypeVar("T")
# Seconds until what did not come through is tried again.
BREATH = 1.0


def despite_trouble(call: Callable[[], T], otherwise: T) -> T:
    """Call, or go on without: whoever calls does so again. Flower itself waits for a SuperLink that is away."""
    try:
        return call()
    except httpx.HTTPStatusError as problem:
        if not problem.response.is_server_error:
            raise
        log(DEBUG, "the SuperLink is in trouble: %s", problem)
        return otherwise


def push(grid: Grid, messages: list[Message]) -> list[str | None]:
    """Send messages, and give their ids; nothing for those that were not taken."""
    nothing: list[str | None] = [None] * len(messages)
    sent = despite_trouble(lambda: list(grid.push_messages(messages)), nothing) if messages else []
    return sent if len(sent) == len(messages) else nothing
