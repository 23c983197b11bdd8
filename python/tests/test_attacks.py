"""All attacks: those in Rust by one command, and the table of docs/security.md, which names the same."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness.program import REPOSITORY

pytestmark = pytest.mark.hostile

PAGE = REPOSITORY / "docs" / "security.md"
# Files of tests.
FILES = (
    *(
        f"crates/fedeq/tests/{name}.rs"
        for name in ("attack", "node", "node_consent", "node_guarded", "node_secrets", "node_stopped")
    ),
    "crates/core/tests/liars.rs",
    "crates/core/tests/robust.rs",
    "crates/secure/tests/bytes.rs",
    "crates/secure/tests/sums.rs",
    "crates/secure/tests/threats.rs",
)
# Files that hold their tests, and how these are called.
MODULES = {
    "crates/core/src/acceptance.rs": "acceptance::tests",
    "crates/core/src/disclosure.rs": "disclosure::tests",
    "crates/core/src/secure/tests.rs": "secure::tests",
    "crates/fedeq/src/cli/node/guard.rs": "cli::node::guard::tests",
    "crates/flower/src/parts.rs": "parts::tests",
    "crates/flower/src/store/attempts.rs": "store::attempts::tests",
    "crates/flower/src/store/federation.rs": "store::federation::tests",
    "crates/run/src/agreement/request.rs": "agreement::request::tests",
}


def cargo_test(*words: str) -> str:
    """Run tests, and give what it says."""
    cargo = shutil.which("cargo")
    assert cargo, "cargo is needed"
    command = [cargo, "test", "--workspace", "--locked", *words]
    done = subprocess.run(command, check=False, cwd=REPOSITORY, timeout=1800, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert done.returncode == 0, done.stdout[-10_000:]
    return done.stdout


@pytest.mark.long
def test_all_attacks_in_rust_fail() -> None:
    """Those that take longer included."""
    words = [word for path in FILES for word in ("--test", Path(path).stem)]
    cargo_test(*words, "--", "--include-ignored")
    # One of these only runs as a part of another one.
    said = cargo_test("--lib", "--", *MODULES.values())
    for name in MODULES.values():
        assert re.search(rf"^test {name}::\w+ \.\.\. ok$", said, re.MULTILINE), name


def table() -> list[str]:
    """Read where the attacks are that the page lists, line by line."""
    section = PAGE.read_text().partition("## The attacks, as tests")[2].partition("\n## ")[0]
    return [line.split("|")[-2] for line in section.splitlines() if line.startswith("| ")][1:]


def listed(suffix: str) -> set[str]:
    """Give the files with this suffix that the page lists."""
    return {name for line in table() for name in re.findall(r"`([^`]+)`", line) if name.endswith(suffix)}


def test_the_page_lists_the_attacks_in_rust_that_the_command_runs() -> None:
    """All of them and no other, each by enough of its path to tell which it is."""
    files = [*FILES, *MODULES]
    assert all((REPOSITORY / path).is_file() for path in files)
    found = {name: [path for path in files if f"/{path}".endswith(f"/{name}")] for name in listed(".rs")}
    assert all(len(paths) == 1 for paths in found.values()), found
    assert {path for paths in found.values() for path in paths} == set(files)


def test_the_page_lists_the_attacks_in_python_that_the_command_runs() -> None:
    """Every file with such a test, and no other."""
    here = Path(__file__)
    hostile = {path.name for path in here.parent.glob("test_*.py") if "pytest.mark.hostile" in path.read_text()}
    assert listed(".py") == hostile - {here.name}


def test_every_line_of_the_page_says_where_its_attack_is() -> None:
    """In a file of tests."""
    lines = table()
    assert len(lines) > 15, lines  # noqa: PLR2004
    assert all(re.search(r"`[\w/]+\.(rs|py)`", line) for line in lines), lines
