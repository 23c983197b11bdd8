"""What the tests run with is what `constraints.txt` says, so that what is deployed is what was tested."""

import re
import shlex
import tomllib
from importlib.metadata import distributions, requires
from itertools import pairwise
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
CONSTRAINTS = REPOSITORY / "python/constraints.txt"


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


def installing(script: str) -> list[str]:
    """Give what stands behind `pip install` in a script, command by command."""
    lines = [line for line in script.splitlines() if not line.lstrip().startswith("#")]
    return [line.partition("pip install")[2] for line in lines if "pip install" in line]


def assert_locked(command: str, *also: Path) -> None:
    """Require that lists of exact versions are named, or hold anyway, and have what is asked for by name."""
    words = shlex.split(command, comments=True)
    named = [path for flag, path in pairwise(words) if flag in {"-c", "-r"}]
    lists = [*also, *(REPOSITORY / path for path in named)]
    assert lists, command
    asked = [word for word in words if word not in named and not word.startswith(("-", "."))]
    assert {normal(name) for name in asked} <= {name for path in lists for name in constraints(path)}, command


def test_ci_installs_nothing_whose_version_is_not_locked() -> None:
    """Each of its commands names a list, and so does whoever types what the pages say to type in the checkout."""
    script = (REPOSITORY / ".ci/run").read_text()
    commands = installing(script)
    assert len(commands) > 3, commands  # noqa: PLR2004
    for command in commands:
        assert_locked(command)
    typing = r"^PIP_CONSTRAINT=\$PWD/(\S+) (?:\\\n.*)?bash .* target/typed-in-the-checkout$"
    (everywhere,) = re.findall(typing, script, re.MULTILINE)
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    block = re.compile(r"^```sh checkout\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    typed = [command for page in pages for found in block.findall(page.read_text()) for command in installing(found)]
    assert len(typed) > 1, typed
    for command in typed:
        assert_locked(command, REPOSITORY / everywhere)


def test_what_builds_the_package_has_one_version() -> None:
    """Pip fetches it into an environment of its own, whatever list it is given."""
    described = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert described["build-system"]["requires"]
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", needed) for needed in described["build-system"]["requires"])


def test_an_app_installs_the_package_from_the_checkout_and_never_by_its_name() -> None:
    """It is not on PyPI, where the name is whoever's takes it, and SuperLinks install what an app depends on."""
    app = REPOSITORY / "crates/fedeq/src/federation/app"
    described = tomllib.loads((app / "pyproject.toml").read_text())
    assert {re.split(r"[=<>]", needed)[0] for needed in described["project"]["dependencies"]} == {"flwr"}
    (command,) = installing((app / "README.md").read_text())
    assert_locked(command.replace("CHECKOUT/", "").replace("CHECKOUT[", ".["))
