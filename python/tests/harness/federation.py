"""A federation over an app that `fedeq init-federation` wrote."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedeq.flower import weights
from fedeq.flower.weights import Weights
from tests.harness.processes import Crew, Service, free_port, until

REPOSITORY = Path(__file__).parents[3]
PROGRAM = Path(os.environ.get("FEDEQ_PROGRAM", REPOSITORY / "target/debug/fedeq")).absolute()
# Flower's commands are beside the Python that runs the tests.
COMMANDS = Path(sys.executable).parent
# What a test waits for at most, on a machine that has other things to do.
PATIENCE = 120.0


def fedeq(*arguments: str | Path) -> str:
    """Run our program to its end and give what it writes."""
    command = [str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)  # noqa: S603
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@dataclass
class Federation:
    """A SuperLink, nodes and runs, all of them real."""

    crew: Crew
    settings: Sequence[str]
    name: str = "app"
    port: int = field(default_factory=free_port)
    nodes: dict[int, Service] = field(default_factory=dict)
    link: Service | None = None
    runs: int = 0
    # Whether the SuperLink keeps its state in a file.
    is_durable: bool = True

    def __post_init__(self) -> None:
        """Write the app, and tell Flower where the SuperLink is."""
        self.write_app(self.name, self.settings)
        home = self.folder / "flower"
        home.mkdir()
        entry = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        (home / "config.toml").write_text(entry)

    def write_app(self, name: str, settings: Sequence[str]) -> None:
        """Write an app; from now on it is the one at work, with the same SuperLink and the same nodes."""
        self.name, self.settings = name, settings
        fedeq("init-federation", *self._settings(), "--out", self.app)

    @property
    def folder(self) -> Path:
        """Where everything is."""
        return self.crew.folder

    @property
    def app(self) -> Path:
        """The app, which is also the folder of its run."""
        return self.folder / self.name

    @property
    def clients(self) -> range:
        """The clients' numbers."""
        return range(self.plan["clients"])

    @property
    def plan(self) -> dict[str, Any]:
        """What was decided before it began."""
        plan: dict[str, Any] = json.loads((self.app / "plan.json").read_text())
        return plan

    def _settings(self) -> list[str]:
        return [word for setting in self.settings for word in ("--set", setting)]

    @property
    def environment(self) -> dict[str, str]:
        """What Flower's commands need to know."""
        return {
            "FLWR_HOME": str(self.folder / "flower"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": f"{COMMANDS}:{os.environ['PATH']}",
            "PYTHONPATH": f"{REPOSITORY / 'python/src'}:{REPOSITORY / 'python'}",
        }

    def simulate(self) -> Path:
        """Carry out the same experiment in one process, and give its folder."""
        folder = self.folder / f"{self.name}-simulated"
        if not folder.exists():
            fedeq("run", *self._settings(), "--out", folder, "--quiet")
        return folder

    def start_link(self) -> None:
        """Start the SuperLink and wait until it listens."""
        where = ["--host", "127.0.0.1", "--port", str(self.port)]
        memory = ["--database", str(self.folder / "link.db")] if self.is_durable else []
        words = ["--insecure", *where, *memory, "--disable-runtime-dependency-installation"]
        self.link = self.crew.start("link", COMMANDS / "flower-superlink", words, self.environment)
        until("the SuperLink listens", lambda: is_listening(self.port), PATIENCE)

    def start_node(self, client: int, port: int | None = None, data: Path | None = None) -> Service:
        """Start a client's node; by another port if it does not speak to the SuperLink directly."""
        address = f"127.0.0.1:{port or self.port}"
        state = self.folder / f"node-{client}"
        who = ["--client", str(client), "--state", str(state)]
        where = ["--data", str(data)] if data else []
        words = ["node", "--superlink", address, "--insecure", *who, *where]
        self.nodes[client] = self.crew.start(f"node-{client}", PROGRAM, words, self.environment)
        return self.nodes[client]

    def use_client(self, client: str) -> None:
        """Give the app another client, for Flower's own nodes."""
        path = self.app / "pyproject.toml"
        path.write_text(path.read_text().replace("fedeq.flower.app:client", client))

    def start_supernode(self, client: int) -> str:
        """Start one of Flower's own nodes, and give a word that all its processes have in their command lines."""
        port = free_port()
        where = ["--superlink", f"127.0.0.1:{self.port}", "--host", "127.0.0.1", "--port", str(port)]
        words = ["--insecure", *where, "--node-config", f"partition-id={client}"]
        self.crew.start(f"supernode-{client}", COMMANDS / "flower-supernode", words, self.environment)
        return str(port)

    def start(self) -> None:
        """Start the SuperLink and all nodes."""
        self.start_link()
        for client in self.clients:
            self.start_node(client)

    def kill_server(self) -> None:
        """End the ServerApp and whoever listens to it, as a power cut would."""
        for pid in [*self.crew.pids("flwr-serverapp"), *self.crew.pids("run-config")]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start_run(self, **rules: float) -> Service:
        """Submit the app; what the server says is streamed to a log."""
        config = {"repeat": 3.0, "patience": PATIENCE, "deadline": PATIENCE, **rules}
        settings = " ".join([f"folder='{self.app}'", *(f"{name}={value}" for name, value in config.items())])
        self.runs += 1
        self._last = self._status["pid"]
        words = ["run", str(self.app), "here", "--stream", "--run-config", settings]
        return self.crew.start(f"run-{self.runs}", COMMANDS / "flwr", words, self.environment)

    def run(self, seconds: float = PATIENCE, **rules: float) -> Service:
        """Submit the app and wait until it is over, however it ends."""
        run = self.start_run(**rules)
        self.wait_for_end(seconds)
        return run

    def wait_for_end(self, seconds: float = PATIENCE) -> None:
        """Wait until the run that was submitted last is over."""
        until("the run has begun", lambda: self._status["pid"] != self._last, PATIENCE)
        until("the run is over", lambda: self.state not in {"running", "paused"}, seconds)

    @property
    def state(self) -> str:
        """How the run stands, as its folder says."""
        return str(self._status["state"])

    @property
    def _status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads((self.app / "status.json").read_text())
        return status

    @property
    def done(self) -> int:
        """How many rounds are kept."""
        with suppress(FileNotFoundError):
            return int(json.loads((self.app / "checkpoint.json").read_text())["done"])
        return 0

    def theta(self) -> Weights:
        """Read what the federation agreed on."""
        return weights.read(self.app / f"theta-{self.done}.safetensors")

    def words(self) -> str:
        """Everything that was said, for a test that failed."""
        return "\n".join(
            f"== {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in sorted(self.folder.glob("*.log"))
        )


def theta_of_simulation(folder: Path) -> Weights:
    """Read what a simulation agreed on."""
    manifest: Mapping[str, Any] = json.loads(max((folder / "checkpoints").glob("*.json")).read_text())["manifest"]
    return weights.read(folder / "checkpoints" / str(manifest["server"]))


def is_same(some: Weights, other: Weights) -> bool:
    """Whether weights are equal to the bit."""
    return set(some) == set(other) and all(some[name].tobytes() == other[name].tobytes() for name in some)


def is_listening(port: int) -> bool:
    """Whether somebody listens on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
