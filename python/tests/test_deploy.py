"""The commands of `docs/deploy.md`, as they stand there."""

import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness import Processes
from tests.harness.federation import COMMANDS
from tests.harness.processes import Service, free_port, until
from tests.harness.program import PROGRAM, REPOSITORY, TIMEOUT

pytestmark = pytest.mark.federation

SERVER = "fl.example.org"
OWNER_ALONE = 0o600
# Blocks that CI runs in the checkout, or that are not run since they take too long.
ELSEWHERE = ("checkout", "long")
BLOCK = re.compile(r"^```sh (\S+)( stays)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Machines are folders here.
SCP = """#!/bin/sh
place() { case "$1" in *:*) echo "$MACHINES/${1%%:*}/${1#*:}" ;; *) echo "$1" ;; esac }
cp "$(place "$1")" "$(place "$2")"
"""


@dataclass(frozen=True)
class Block:
    """Commands for a machine."""

    machine: str
    stays: bool
    commands: str

    @property
    def service(self) -> str:
        """What keeps running: one program on a machine."""
        return f"{self.machine}-{self.commands.split()[0]}"


def blocks() -> Iterator[Block]:
    """Read the document."""
    text = (REPOSITORY / "docs/deploy.md").read_text()
    for machine, stays, commands in BLOCK.findall(text):
        if machine not in ELSEWHERE:
            yield Block(machine, bool(stays), commands)


@dataclass
class Machines:
    """Folders that stand for machines."""

    processes: Processes
    port: int

    def __post_init__(self) -> None:
        """Put our program and a replacement of `scp` into a folder for PATH."""
        programs = self.processes.folder / "bin"
        programs.mkdir()
        (programs / "fedeq").symlink_to(PROGRAM)
        (programs / "scp").write_text(SCP)
        (programs / "scp").chmod(0o755)

    def home(self, machine: str) -> Path:
        """Give the home of a machine."""
        home = self.processes.folder / machine
        home.mkdir(exist_ok=True)
        return home

    def environment(self, machine: str) -> dict[str, str]:
        """Give the environment of a machine."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FLWR_", "FEDEQ_"))}
        return {
            **inherited,
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "HOME": str(self.home(machine)),
            "MACHINES": str(self.processes.folder),
            "PATH": f"{self.processes.folder / 'bin'}:{COMMANDS}:{os.environ['PATH']}",
        }

    def script(self, block: Block) -> str:
        """Give the commands with the host name and the port replaced, but for `scp`."""
        here = block.commands
        for there, replacement in {
            f"{SERVER}:8000": f"localhost:{self.port}",
            f"DNS:{SERVER}": "DNS:localhost",
            "--host 0.0.0.0 --port 8000": f"--host 127.0.0.1 --port {self.port}",
        }.items():
            here = here.replace(there, replacement)
        return f"set -euo pipefail\ncd {shlex.quote(str(self.home(block.machine)))}\n{here}"

    def carry_out(self, block: Block) -> str:
        """Run commands to their end and give their output."""
        done = subprocess.run(  # noqa: S603 (tests say what they start)
            ["/bin/bash", "-c", self.script(block)],
            env=self.environment(block.machine),
            capture_output=True,
            check=False,
            text=True,
            timeout=TIMEOUT,
        )
        assert done.returncode == 0, f"{block.commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def leave(self, block: Block) -> Service:
        """Start commands that keep running."""
        return self.processes.start(
            block.service, Path("/bin/bash"), ["-c", self.script(block)], self.environment(block.machine)
        )

    def is_listening(self) -> bool:
        """Whether the SuperLink listens."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        return False


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """Three machines, all of whose processes end with the test."""
    processes = Processes(tmp_path)
    try:
        yield Machines(processes, free_port())
    finally:
        processes.end()


def follow(machines: Machines, document: Iterable[Block]) -> tuple[str, list[Service]]:
    """Carry out blocks in their order; give their output, and the processes that keep running."""
    outputs = []
    services: list[Service] = []
    for block in document:
        if not block.stays:
            outputs.append(machines.carry_out(block))
            continue
        for earlier in [service for service in services if service.name == block.service]:
            interrupt(earlier)
            services.remove(earlier)
        services.append(machines.leave(block))
        if block.machine == SERVER:
            until("the SuperLink listens", machines.is_listening, TIMEOUT)
    return "\n".join([*outputs, *(service.text() for service in services)]), services


def interrupt(service: Service) -> None:
    """Press Ctrl-C, and wait until it has ended."""
    os.killpg(service.process.pid, signal.SIGINT)
    service.wait(TIMEOUT)


def test_the_document_leads_to_a_federation(machines: Machines) -> None:
    """Carry out all its commands in order."""
    output, services = follow(machines, blocks())
    assert output.count("after round 3: accuracy") == 2, output  # noqa: PLR2004 (digits, then leaves)
    answers = (machines.home("device-1") / "answers.csv").read_text().splitlines()
    assert answers[0] == "input,class,probability,expected"
    assert len(answers) > 1
    assert all(service.is_alive for service in services), output
    assert_no_secrets(machines, output)


def test_the_readme_of_an_app_leads_to_a_run(machines: Machines) -> None:
    """Run its commands, but for the installation and with another port."""
    small = ("plan.rounds=1", "plan.sampling.fraction=1", "data.partition.clients=3", "data.partition.shards=4")
    settings = " ".join(f"--set {setting}" for setting in (*small, "data.limit.train=10"))
    machines.carry_out(Block(SERVER, stays=False, commands=f"fedeq init-federation {settings} --out app"))
    app = machines.home(SERVER) / "app"
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", (app / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    commands = re.sub(r"^pip .*$", "cd app", commands, flags=re.MULTILINE).replace("8000", str(machines.port))
    paste = machines.leave(Block(SERVER, stays=True, commands=commands))
    until("the run is over", lambda: not paste.is_alive, TIMEOUT)
    assert "after round 1: accuracy" in paste.text(), paste.text()


def test_a_node_that_cannot_join_says_why(machines: Machines) -> None:
    """Another authority, none, a key that is not registered, and no TLS."""
    follow(machines, [block for block in blocks() if block.machine == SERVER][:2])
    stranger = machines.home("stranger")
    (stranger / "ca.pem").write_bytes((machines.home(SERVER) / "ca.pem").read_bytes())
    authority = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=other -keyout o.key"
    )
    machines.carry_out(Block("stranger", stays=False, commands=f"{authority} -out other.pem"))
    for options, problem in {
        "--roots other.pem": "its certificate is not accepted",
        "": "its certificate is not accepted",
        "--roots ca.pem": "the SuperLink refused `activate-node`",
        "--insecure": "perhaps the SuperLink uses TLS",
    }.items():
        node = f"fedeq node --superlink {SERVER}:8000 --client 0 --state node --accept none {options}"
        # After an error that may be transient, a node tries again for ever.
        commands = f"(timeout 3 {node} 2>&1 || echo exit code $?)"
        output = machines.carry_out(Block("stranger", stays=False, commands=commands))
        assert problem in output, output
        assert ("exit code 2" in output) == (options != "--insecure"), output


def assert_no_secrets(machines: Machines, output: str) -> None:
    """Only their owners can read private keys, and they are not in any output."""
    keys = [machines.home(SERVER) / "ca.key", machines.home(SERVER) / "server.key"]
    keys += [machines.home(device) / "node/key.pem" for device in ("device-1", "device-2")]
    for key in keys:
        assert key.stat().st_mode & 0o777 == OWNER_ALONE, key
        secret = "".join(key.read_text().splitlines()[1:-1])
        assert secret[-40:] not in output
    assert "PRIVATE KEY" not in output
