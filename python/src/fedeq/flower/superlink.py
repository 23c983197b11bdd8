"""Calls to a SuperLink whose database may be busy: it answers some calls with a server error, and the next normally."""

from collections.abc import Callable
from logging import DEBUG
from typing import TypeVar

import httpx
from flwr.app import Message
from flwr.common.logger import log
from flwr.serverapp import Grid

T = TypeVar("T")
# Seconds until a call that failed is repeated.
RETRY_DELAY = 1.0


def tolerate_server_errors(call: Callable[[], T], default: T) -> T:
    """Call, and give `default` after a server error: the caller tries again later.

    A SuperLink that is unreachable is waited for by Flower itself.
    """
    try:
        return call()
    except httpx.HTTPStatusError as problem:
        if not problem.response.is_server_error:
            raise
        log(DEBUG, "the SuperLink reports a server error: %s", problem)
        return default


def push(grid: Grid, messages: list[Message]) -> list[str | None]:
    """Send messages, and give their ids; `None` for those that were not accepted."""
    nothing: list[str | None] = [None] * len(messages)
    sent: list[str | None] = []
    if messages:
        sent = tolerate_server_errors(lambda: [*grid.push_messages(messages)], nothing)
    return sent if len(sent) == len(messages) else nothing
