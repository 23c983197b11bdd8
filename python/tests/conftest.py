"""What tests share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness import Crew, Federation

Founder = Callable[..., Federation]


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers."""
    config.addinivalue_line("markers", "federation: real processes on this machine; needs the program `fedeq`")
    config.addinivalue_line("markers", "chaos: processes that are killed and connections that break")
    config.addinivalue_line("markers", "long: takes minutes; left out unless asked for with `-m long`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long tests out, unless somebody asks for them."""
    if "long" not in str(config.getoption("-m")):
        skip = pytest.mark.skip(reason="long; ask for it with `-m long`")
        for item in items:
            if "long" in item.keywords:
                item.add_marker(skip)


@pytest.fixture
def found(tmp_path: Path) -> Iterator[Founder]:
    """Found a federation; all its processes end with the test, however it ends."""
    crews = []

    def found(*settings: str, name: str = "federation") -> Federation:
        folder = tmp_path / name
        folder.mkdir()
        crews.append(Crew(folder))
        return Federation(crews[-1], settings)

    try:
        yield found
    finally:
        for crew in crews:
            crew.end()
