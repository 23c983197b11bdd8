"""What the tests run with is what `constraints.txt` says, so that what is deployed is what was tested."""

import re
from importlib.metadata import distributions, requires
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


def normal(name: str) -> str:
    """Give the name of a package as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints() -> dict[str, str]:
    """Read the versions."""
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if line and not line.startswith("#")]
    pairs = [line.split("==") for line in lines]
    assert all(len(pair) == 2 for pair in pairs), "every version is exact"  # noqa: PLR2004 (a name and a version)
    return {normal(name): version for name, version in pairs}


def needed(package: str) -> set[str]:
    """Give all packages that one needs, itself included, as far as they are installed."""
    installed = {normal(one.metadata["Name"]) for one in distributions()}
    found: set[str] = set()
    waiting = [normal(package)]
    while waiting:
        name = waiting.pop()
        if name not in found and name in installed:
            found.add(name)
            names = [re.match(r"[\w.-]+", text) for text in requires(name) or []]
            waiting.extend(normal(match.group()) for match in names if match)
    return found


def test_all_that_is_installed_for_the_server_has_the_version_that_is_locked() -> None:
    """Compare versions."""
    locked = constraints()
    installed = {normal(one.metadata["Name"]): one.version for one in distributions()}
    for name in needed("fedeq") - {"fedeq", "pip", "setuptools"}:
        assert locked.get(name) == installed[name], f"{name}: {installed[name]}"
