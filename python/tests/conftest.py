"""Markers and fixtures of all tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness import Federation, Processes

FederationFactory = Callable[..., Federation]


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers."""
    config.addinivalue_line("markers", "federation: a SuperLink, its app and nodes as processes of this machine")
    config.addinivalue_line("markers", "chaos: processes that are killed and connections that break")
    config.addinivalue_line("markers", "hostile: a server or a node that attacks the others")
    config.addinivalue_line("markers", "long: takes minutes; skipped unless selected with `-m long`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip long tests, unless they are selected."""
    if "long" not in str(config.getoption("-m")):
        skip = pytest.mark.skip(reason="long; select it with `-m long`")
        for item in items:
            if "long" in item.keywords:
                item.add_marker(skip)


@pytest.fixture
def make_federation(tmp_path: Path) -> Iterator[FederationFactory]:
    """Make federations whose processes all end with the test, however it ends."""
    started = []

    def make(*settings: str, name: str = "federation") -> Federation:
        folder = tmp_path / name
        folder.mkdir()
        started.append(Processes(folder))
        return Federation(started[-1], settings)

    try:
        yield make
    finally:
        for processes in started:
            processes.end()
