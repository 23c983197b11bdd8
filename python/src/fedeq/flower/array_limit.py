"""A limit on the memory that Flower unpacks a message to.

An array comes in chunks, and its header may refer to one chunk a hundred thousand times: megabytes on the way,
gigabytes in memory. Flower joins the chunks before anybody can check the header. With this limit it checks first.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Array
from flwr.supercore.inflatable.inflatable_object import get_object_body, get_object_children_ids_from_object_content


class TooLarge(ValueError):
    """An array that would take more memory than it may."""


_unlimited: Callable[..., Array] = Array.inflate


def limit_arrays(most: int) -> None:
    """Let no array in this process unpack to more than so many bytes."""

    def inflate(cls: type[Array], object_content: bytes, children: Mapping[str, Any] | None = None) -> Array:
        ids = get_object_children_ids_from_object_content(object_content)
        lengths = [len(children[chunk].data) for chunk in ids] if children else []
        header = json.loads(get_object_body(object_content, cls))
        if sum(lengths[place] for place in header["arraychunk_ids"]) > most:
            message = f"an array unpacks to more than {most} bytes"
            raise TooLarge(message)
        return _unlimited(object_content, children)

    Array.inflate = classmethod(inflate)  # type: ignore[method-assign, assignment]
