"""Our program."""

import os
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
PROGRAM = Path(os.environ.get("FEDEQ_PROGRAM", REPOSITORY / "target/debug/fedeq")).absolute()
# Seconds that a test waits at most, on a machine that may be busy.
TIMEOUT = 120.0


def fedeq(*arguments: str | Path) -> str:
    """Run it to its end and give its output."""
    command = [str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT)  # noqa: S603
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
