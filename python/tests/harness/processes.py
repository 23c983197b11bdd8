"""Processes that end with the test that started them."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

# All processes of a test have this in their environment, and so have the processes that they start.
MARK = "FEDEQ_TEST_RUN"


@dataclass
class Service:
    """A process with a log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Kill it, like a power cut."""
        if self.is_alive:
            self.process.kill()
            self.process.wait()

    def wait(self, seconds: float) -> int:
        """Wait until it ends by itself, and give its exit code."""
        return self.process.wait(seconds)

    def text(self) -> str:
        """Read its log."""
        return self.log.read_text(errors="replace")


@dataclass
class Processes:
    """All processes of a test."""

    folder: Path
    mark: str = field(default_factory=lambda: secrets.token_hex(8))

    def start(self, name: str, program: Path, words: Sequence[str], environment: dict[str, str]) -> Service:
        """Start a process; its output is appended to a log of its name."""
        log = self.folder / f"{name}.log"
        # If the tests themselves are killed, the kernel kills their processes.
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 (tests say what they start)
                [*guard, str(program), *words],
                cwd=self.folder,
                env={**os.environ, **environment, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Service(name, process, log)

    def end(self) -> None:
        """Kill all of them, and all processes that they have started."""
        while pids := self.pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def pids(self, name: str = "") -> list[int]:
        """Find the processes of this test whose command lines contain a name."""
        mark = f"{MARK}={self.mark}".encode()
        return [pid for pid in _pids() if mark in _read(pid, "environ") and name.encode() in _read(pid, "cmdline")]


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, what: str) -> bytes:
    """Read a file of a process in `/proc`; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


def free_port() -> int:
    """Find a free port, below those that the system assigns to outgoing connections, and not of tests beside this."""
    first = 22000 + 1000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for _ in range(1000):
        port = first + secrets.randbelow(1000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    message = f"no port between {first} and {first + 999} is free"
    raise RuntimeError(message)


def until(what: str, is_true: Callable[[], bool], seconds: float, pause: float = 0.1) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > end:
            message = f"not within {seconds:g} s: {what}"
            raise TimeoutError(message)
        time.sleep(pause)
