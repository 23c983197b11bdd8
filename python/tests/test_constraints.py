"""What the tests run with is what `constraints.txt` says, so that what is deployed is what was tested."""

import re
from importlib.metadata import distributions, requires
from itertools import pairwise
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


def normal(name: str) -> str:
    """Give the name of a package as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints(path: Path = CONSTRAINTS) -> dict[str, str]:
    """Read the versions."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
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


def test_ci_installs_nothing_whose_version_is_not_locked() -> None:
    """Each of its commands names a list, all versions in these are exact, and what it asks for by name is in one."""
    repository = CONSTRAINTS.parents[1]
    commands = [line for line in (repository / ".ci/run").read_text().splitlines() if "pip install" in line]
    assert len(commands) > 3, commands  # noqa: PLR2004
    for command in commands:
        words = command.partition("pip install")[2].split()
        lists = [repository / path for flag, path in pairwise(words) if flag in {"-c", "-r"}]
        assert lists, command
        locked = {name for path in lists for name in constraints(path)}
        options = {word for flag, path in pairwise(words) if flag in {"-c", "-r"} for word in (flag, path)}
        asked = [word for word in words if word not in options and not word.startswith(("-", "'."))]
        assert {normal(name) for name in asked} <= locked, command
