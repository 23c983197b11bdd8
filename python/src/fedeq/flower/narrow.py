"""A bound on what Flower unpacks.

An array comes in pieces, and its head may name one piece a hundred thousand times: megabytes on the way, gigabytes in
memory. Flower puts together whatever a head says, before anybody can look at it. Here it looks first.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Array
from flwr.supercore.inflatable.inflatable_object import get_object_body, get_object_children_ids_from_object_content

from fedeq.flower.weights import Rejected

_unbounded: Callable[..., Array] = Array.inflate


def bound_arrays(most: int) -> None:
    """Let no array in this process unpack to more than so many bytes."""

    def inflate(cls: type[Array], object_content: bytes, children: Mapping[str, Any] | None = None) -> Array:
        ids = get_object_children_ids_from_object_content(object_content)
        lengths = [len(children[piece].data) for piece in ids] if children else []
        head = json.loads(get_object_body(object_content, cls))
        if sum(lengths[place] for place in head["arraychunk_ids"]) > most:
            message = f"an array unpacks to more than {most} bytes"
            raise Rejected(message)
        return _unbounded(object_content, children)

    Array.inflate = classmethod(inflate)  # type: ignore[method-assign, assignment]
