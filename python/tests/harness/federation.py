"""A federation of real processes, from an app that `fedeq init-federation` wrote."""

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness.fake import last_manifest, theta_of
from tests.harness.processes import Processes, Service, free_port, until
from tests.harness.program import PROGRAM, REPOSITORY, TIMEOUT, fedeq
from tests.harness.weights import Weights

# Flower's commands are beside the Python that runs the tests.
COMMANDS = Path(sys.executable).parent


@dataclass
class Federation:
    """A SuperLink, nodes and runs, each a process."""

    processes: Processes
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

    def write_app(self, name: str, settings: Sequence[str], options: Sequence[str | Path] = ()) -> None:
        """Write an app, which is run from now on, with the same SuperLink."""
        self.name, self.settings = name, settings
        fedeq("init-federation", *self._settings(), *options, "--out", self.app)

    def collect_signing_keys(self) -> Path:
        """Let every client's owner make a key to sign with, and collect the list."""
        path = self.folder / "clients.toml"
        make = ("node", "key", "--signing", "--client")
        lines = [fedeq(*make, str(client), "--state", self.folder / f"node-{client}") for client in self.clients]
        path.write_text("".join(lines))
        return path

    @property
    def folder(self) -> Path:
        """The folder of all files."""
        return self.processes.folder

    @property
    def app(self) -> Path:
        """The app's folder, which is also the run folder."""
        return self.folder / self.name

    @property
    def clients(self) -> range:
        """The clients' numbers."""
        return range(self.plan["clients"] + self.plan.get("unseen", 0))

    @property
    def plan(self) -> dict[str, Any]:
        """The contents of `plan.json`."""
        plan: dict[str, Any] = json.loads((self.app / "plan.json").read_text())
        return plan

    def _settings(self) -> list[str]:
        return [word for setting in self.settings for word in ("--set", setting)]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of all processes."""
        return {
            "FLWR_HOME": str(self.folder / "flower"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": f"{COMMANDS}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY / "python"),
        }

    def simulate(self) -> Path:
        """Run the same experiment as a simulation, and give its folder."""
        folder = self.folder / f"{self.name}-simulated"
        if not folder.exists():
            # What a federation notes unless it is told otherwise, and a simulation does not.
            noted = "distances = true" in (self.app / "experiment.toml").read_text()
            more = ("--set", "plan.aggregation.distances=true") if noted else ()
            fedeq("run", *self._settings(), *more, "--out", folder, "--quiet")
        return folder

    def start_link(self) -> None:
        """Start the SuperLink and wait until it listens."""
        where = ["--host", "127.0.0.1", "--port", str(self.port)]
        memory = ["--database", str(self.folder / "link.db")] if self.is_durable else []
        words = ["--insecure", *where, *memory, "--disable-runtime-dependency-installation"]
        self.link = self.processes.start("link", COMMANDS / "flower-superlink", words, self.environment)
        until("the SuperLink listens", lambda: is_listening(self.port), TIMEOUT)

    @property
    def fingerprint(self) -> str:
        """What nodes accept the app's experiment by."""
        return fedeq("node", "inspect", self.app, "--fingerprint").strip()

    def start_node(
        self, client: int, port: int | None = None, data: Path | None = None, options: Sequence[str] = ()
    ) -> Service:
        """Start a client's node; with a port if it should connect to a proxy instead of the SuperLink."""
        address = f"127.0.0.1:{port or self.port}"
        state = self.folder / f"node-{client}"
        who = ["--client", str(client), "--state", str(state)]
        where = ["--data", str(data)] if data else []
        accept = [] if "--accept" in options else ["--accept", self.fingerprint]
        words = ["node", "--superlink", address, "--insecure", *who, *where, *accept, *options]
        self.nodes[client] = self.processes.start(f"node-{client}", PROGRAM, words, self.environment)
        return self.nodes[client]

    def restart_nodes(self, options: Sequence[str] = ()) -> None:
        """Start all nodes again: their owners accept the app that was written last."""
        for client, node in list(self.nodes.items()):
            node.kill()
            self.start_node(client, options=options)

    def use_client(self, client: str) -> None:
        """Set the client app of `tests.harness.client_apps` that Flower's own nodes run."""
        path = self.app / "pyproject.toml"
        path.write_text(path.read_text().replace("fedeq.flower.app:client", f"tests.harness.client_apps:{client}"))

    def start_supernode(self, client: int) -> str:
        """Start one of Flower's own nodes, and give a text that is in the command lines of all its processes."""
        port = free_port()
        where = ["--superlink", f"127.0.0.1:{self.port}", "--host", "127.0.0.1", "--port", str(port)]
        words = ["--insecure", *where, "--node-config", f"partition-id={client}"]
        self.processes.start(f"supernode-{client}", COMMANDS / "flower-supernode", words, self.environment)
        return str(port)

    def start(self) -> None:
        """Start the SuperLink and all nodes."""
        self.start_link()
        for client in self.clients:
            self.start_node(client)

    def kill_server(self) -> None:
        """Kill the ServerApp and the `flwr run` that follows it, like a power cut."""
        for pid in [*self.processes.pids("flwr-serverapp"), *self.processes.pids("run-config")]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def server_memory(self) -> int:
        """The peak memory of the ServerApp's processes so far, in bytes."""
        return max((peak_memory(pid) for pid in self.processes.pids("flwr-serverapp")), default=0)

    def start_run(self, **rules: float) -> Service:
        """Submit the app; the server's output is streamed to a log."""
        config = {"repeat": 3.0, "patience": TIMEOUT, "deadline": TIMEOUT, **rules}
        settings = " ".join([f"folder='{self.app}'", *(f"{name}={value}" for name, value in config.items())])
        self.runs += 1
        self._last = self._status["pid"]
        words = ["run", str(self.app), "here", "--stream", "--run-config", settings]
        return self.processes.start(f"run-{self.runs}", COMMANDS / "flwr", words, self.environment)

    def run(self, seconds: float = TIMEOUT, **rules: float) -> Service:
        """Submit the app and wait until it is over, however it ends."""
        run = self.start_run(**rules)
        self.wait_for_end(seconds)
        return run

    def wait_for_end(self, seconds: float = TIMEOUT, watch: Callable[[], object] = lambda: None) -> None:
        """Wait until the run that was submitted last is over, and look at something meanwhile."""

        def is_over() -> bool:
            watch()
            return self.state not in {"running", "paused"}

        until("the run has begun", lambda: self._status["pid"] != self._last, TIMEOUT)
        until("the run is over", is_over, seconds)

    @property
    def state(self) -> str:
        """The state of the run, from its folder."""
        return str(self._status["state"])

    @property
    def _status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads((self.app / "status.json").read_text())
        return status

    @property
    def done(self) -> int:
        """How many rounds are saved."""
        with suppress(FileNotFoundError, ValueError):
            return int(last_manifest(self.app)["round"])
        return 0

    def theta(self) -> Weights:
        """Read the last shared weights."""
        return theta_of(self.app)

    def logs(self) -> str:
        """Read the ends of all logs, for the message of a failed test."""
        return "\n".join(
            f"== {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in sorted(self.folder.glob("*.log"))
        )


def peak_memory(pid: int) -> int:
    """Read the peak memory of a process; none if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


def is_listening(port: int) -> bool:
    """Whether a process listens on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
