"""Killing the processes of a federation and starting them again."""

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Self

from tests.harness.federation import Federation
from tests.harness.proxy import Proxy

# Nodes are killed more often on one request than usual owners would have it.
OPTIONS = ("--max-deaths", "1000")


@dataclass
class FaultInjector:
    """Kills nodes, the SuperLink and the server of a federation at random moments, and starts them again.

    Faults of messages are injected by the proxy that nodes connect to.
    """

    federation: Federation
    proxy: Proxy
    seed: int
    # Seconds between one node that is killed and the next, on average.
    pause: float = 2.0
    # After how many rounds the SuperLink is killed, and after how many the server is.
    links: set[int] = field(default_factory=set)
    servers: set[int] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Prepare the thread."""
        self._chance = random.Random(self.seed)  # noqa: S311 (no secret)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.problem: BaseException | None = None

    def start_nodes(self) -> None:
        """Start all nodes, behind the proxy."""
        for client in self.federation.clients:
            self.federation.start_node(client, self.proxy.port, options=OPTIONS)

    def __enter__(self) -> Self:
        """Start killing."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop killing, with everything running."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            while not self._over.wait(self._chance.expovariate(1.0 / self.pause)):
                self._kill_node()
                for rounds, kill in ((self.links, self._kill_link), (self.servers, self._kill_server)):
                    if due := {after for after in rounds if after <= self.federation.done}:
                        rounds.difference_update(due)
                        kill()
        except BaseException as problem:  # noqa: BLE001 (the test reports it)
            self.problem = problem

    def _kill_node(self) -> None:
        client = self._chance.choice(self.federation.clients)
        self.federation.nodes[client].kill()
        self.done["node killed"] += 1
        time.sleep(self._chance.random())
        self.federation.start_node(client, self.proxy.port, options=OPTIONS)

    def _kill_link(self) -> None:
        if self.federation.link:
            self.federation.link.kill()
        self.done["SuperLink killed"] += 1
        time.sleep(2.0 * self._chance.random())
        self.federation.start_link()

    def _kill_server(self) -> None:
        self.federation.kill_server()
        self.done["server killed"] += 1


def run_to_end(federation: Federation, seconds: float, **rules: float) -> None:
    """Start the run, and start it again whenever it ends before it is finished."""
    end = time.monotonic() + seconds
    while federation.state != "finished":
        if time.monotonic() > end:
            message = f"not finished after {seconds:g} s and {federation.runs} runs"
            raise TimeoutError(message)
        run = federation.start_run(**rules)
        while time.monotonic() < end and _is_under_way(federation, run.is_alive):
            time.sleep(0.2)


def _is_under_way(federation: Federation, is_followed: bool) -> bool:  # noqa: FBT001
    """Whether a run is under way: `flwr run` follows it, or its server is alive."""
    return federation.state != "finished" and (is_followed or bool(federation.processes.pids("flwr-serverapp")))
