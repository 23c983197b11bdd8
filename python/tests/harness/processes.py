"""Processes that end with whoever started them."""

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

# Everything a test starts has this in its environment, and so has everything that starts in turn.
MARK = "FEDEQ_TEST_CREW"


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
        """End it without a word, as a power cut would."""
        if self.is_alive:
            self.process.kill()
            self.process.wait()

    def wait(self, seconds: float) -> int:
        """Wait until it ends by itself, and give its exit status."""
        return self.process.wait(seconds)

    def text(self) -> str:
        """Read what it said."""
        return self.log.read_text(errors="replace")


@dataclass
class Crew:
    """All processes of a test."""

    folder: Path
    mark: str = field(default_factory=lambda: secrets.token_hex(8))

    def start(self, name: str, program: Path, words: Sequence[str], environment: dict[str, str]) -> Service:
        """Start a process; what it says is added to a log of its name."""
        log = self.folder / f"{name}.log"
        # Should the tests be killed themselves, the kernel ends what they started.
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
        """End all of them, and whatever they have started, whoever that belongs to now."""
        while pids := self.pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def pids(self, name: str = "") -> list[int]:
        """Find the processes that carry the mark and have a name in their command line."""
        mark = f"{MARK}={self.mark}".encode()
        return [pid for pid in _pids() if mark in _read(pid, "environ") and name.encode() in _read(pid, "cmdline")]


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, what: str) -> bytes:
    """Read what the system says of a process; nothing if it is gone, or dead and not yet buried."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


def free_port() -> int:
    """Find a port that nobody listens on, below those that the system gives to connections."""
    for _ in range(1000):
        port = 22000 + secrets.randbelow(1000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    message = "no port between 22000 and 22999 is free"
    raise RuntimeError(message)


def until(what: str, is_true: Callable[[], bool], seconds: float, pause: float = 0.1) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > end:
            message = f"after {seconds:g} s still not: {what}"
            raise TimeoutError(message)
        time.sleep(pause)
