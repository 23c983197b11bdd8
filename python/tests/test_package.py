"""What is installed: the command beside Python's own, licences, and the word that there are types."""

import subprocess
import sys
import sysconfig
from importlib.metadata import files, version
from pathlib import Path

import fedeq
from tests.harness.program import REPOSITORY, TIMEOUT
from tests.harness.program import fedeq as command


def test_the_command_is_beside_python() -> None:
    """Run it by its path, as a shell finds it where the environment is active."""
    script = Path(sysconfig.get_path("scripts")) / ("fedeq.exe" if sys.platform == "win32" else "fedeq")
    assert script.parent == Path(sys.executable).parent
    done = subprocess.run([str(script), "--version"], check=False, capture_output=True, text=True, timeout=TIMEOUT)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == command("--version")
    assert done.stdout.split()[-1] == fedeq.__version__ == version("fedeq")


def test_licences_and_types_come_along() -> None:
    """Read what pip has noted of the wheel; licences are those of the repository."""
    found = {file.name: file for file in files("fedeq") or []}
    for name in ("LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY.md"):
        assert Path(found[name].locate()).read_bytes() == (REPOSITORY / name).read_bytes()
    assert "fedeq/py.typed" in {file.as_posix() for file in found.values()}
    assert "_native.pyi" in found
