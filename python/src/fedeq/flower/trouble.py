"""A SuperLink in trouble: if its database is busy, it answers some calls with an error, and the next as it should."""

from collections.abc import Callable
from logging import DEBUG
from typing import TypeVar

import httpx
from flwr.common.logger import log

T = TypeVar("T")


def despite_trouble(call: Callable[[], T], otherwise: T) -> T:
    """Call, or go on without: whoever calls does so again. Flower itself waits for a SuperLink that is away."""
    try:
        return call()
    except httpx.HTTPStatusError as problem:
        if not problem.response.is_server_error:
            raise
        log(DEBUG, "the SuperLink is in trouble: %s", problem)
        return otherwise
