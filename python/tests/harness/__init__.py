"""Real federations on one machine: a SuperLink, a ServerApp and nodes, each a process of its own."""

from tests.harness.federation import Federation
from tests.harness.processes import Processes
from tests.harness.proxy import Faults, Proxy

__all__ = ["Faults", "Federation", "Processes", "Proxy"]
