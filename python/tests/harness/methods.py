"""The catalogue of methods."""

import re

import pytest

import fedeq


def methods() -> list[str]:
    """Give the names of all methods, as a run tells whoever names another."""
    with pytest.raises(fedeq.Refused) as error:
        fedeq.run(method="no such method", progress=False)
    names = re.findall(r"[a-z][\w-]+", str(error.value).split("choose one of ")[1])
    assert len(names) >= 15, names  # noqa: PLR2004 (as many as there were when this was written)
    return names
