"""Consensus over nodes that keep their heads and duals: FeDEQ, FedAvg, FedPer and FedRep."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from logging import INFO, WARNING
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedeq.flower import metrics, weights
from fedeq.flower.fields import shorten
from fedeq.flower.folder import Checkpoint, RunFolder, Stopped
from fedeq.flower.listener import BackgroundListener
from fedeq.flower.messages import Request, Task, Update, scores_of
from fedeq.flower.metrics import Traffic
from fedeq.flower.plan import Plan
from fedeq.flower.transport import Replies, Transport
from fedeq.flower.weights import Rejected, Weights

T = TypeVar("T")


class QuorumMissed(RuntimeError):
    """Too few clients replied in time."""


@dataclass(frozen=True)
class Rules:
    """What a server requires of its clients; the app's `pyproject.toml` explains each of them."""

    minimum: float = 1.0
    deadline: float = 3600.0
    repeat: float = 60.0
    patience: float = 600.0
    bound: float = inf


class Consensus(Strategy):
    """Asks the cohorts of a plan to train and takes the mean of their weights, in the order of the cohort.

    The state of the server is `theta`, the number of finished rounds and the bytes sent; they are saved in `folder`
    after every round, and a new `Consensus` on the same folder continues from there. The cohorts were drawn when the
    folder was written, so they do not depend on which nodes come first.
    """

    def __init__(self, folder: Path, rules: Rules | None = None) -> None:
        """Read plan, experiment and weights, or the checkpoint of the last run in this folder."""
        self.plan = Plan.read(folder)
        self.folder = RunFolder(folder)
        self.experiment = (folder / "experiment.toml").read_text()
        self.rules = rules or Rules()
        saved = self.folder.resume()
        self.done, self.theta, self.traffic = saved.done, saved.theta, saved.traffic
        self._beat = 0
        self._transport: Transport | None = None

    def run(self, grid: Grid) -> Weights:
        """Train to the end of the plan, save the results in the folder, and give `theta`."""
        with self.folder.locked():
            self.folder.truncate(self.done)
            self.wait_for_nodes(grid)
            while self.done < self.plan.rounds:
                self._obey_dashboard()
                self._round(grid)
            self._write_summary(grid)
        return self.theta

    def wait_for_nodes(self, grid: Grid) -> None:
        """Wait until every client of the plan has a node, or until `patience` is over and enough of them have one."""
        missing = self._transport_over(grid).wait_for_nodes(self.plan.clients, self.rules.patience)
        if missing:
            reasons = dict.fromkeys(sorted(missing), f"no node in {self.rules.patience:g} s")
            self._require_quorum("have a node", self.plan.clients - len(missing), self.plan.clients, reasons)

    def _round(self, grid: Grid) -> None:
        """Train, evaluate if the plan says so, and save."""
        begun = time.monotonic()
        replies = self._ask(grid, "train", self.plan.cohorts[self.done])
        received = time.monotonic()
        updates = self._aggregate(replies)
        seconds = {"train": time.monotonic() - begun, "server": time.monotonic() - received, "evaluate": 0.0}
        if self.plan.is_evaluated_after(self.done):
            begun = time.monotonic()
            self.folder.append("evaluations.jsonl", self.evaluate(grid))
            seconds["evaluate"] = time.monotonic() - begun
        self.folder.append("timings.jsonl", metrics.timing_line(self.done, updates.values(), seconds))
        self._save()

    def evaluate(self, grid: Grid) -> dict[str, Any]:
        """Ask all clients for their scores, and aggregate them."""
        replies = self._ask(grid, self.plan.evaluate, list(range(self.plan.clients)))
        scores, failures = _read_all(replies, scores_of)
        self._log_failures(self.plan.evaluate, failures)
        what = f"were evaluated after round {self.done}"
        self._require_quorum(what, len(scores), self.plan.clients, failures)
        line = metrics.evaluation_line(self.done, self.plan.clients, scores, self.traffic)
        log(INFO, "after round %s: %s", self.done, self._summary(line, scores))
        return line

    def _summary(self, line: Mapping[str, Any], scores: Mapping[int, Mapping[str, Any]]) -> str:
        """Say how accurate the clients' models are, and from what this is known."""
        quality, reported = self._headline(line), [score["disclosure"] for score in scores.values()]
        coarse, silent = reported.count("coarse"), reported.count("none")
        remarks = [f"{coarse} of them rounded"] * bool(coarse) + [f"{silent} do not tell"] * bool(silent)
        if silent == len(reported):
            return f"no accuracy is known: none of {silent} clients tells its scores"
        known = f"accuracy {100 * quality['mean']:.1f} % over {len(reported) - silent} clients"
        return f"{known} ({', '.join(remarks)})" if remarks else known

    def _headline(self, evaluation: Mapping[str, Any]) -> dict[str, Any]:
        """Give the quality of the models that the method is evaluated by."""
        quality: dict[str, Any] = evaluation[self.plan.headline] or evaluation["local"]
        return quality

    def _aggregate(self, replies: Replies) -> dict[int, Update]:
        """Set `theta` to the mean of the cohort's weights; clients with rejected updates are logged and left out."""
        cohort = self.plan.cohorts[self.done]
        updates, failures = _read_all(replies, lambda reply: Update.read(reply, self.theta, self.rules.bound))
        self._log_failures("train", failures)
        self._require_quorum(f"sent an update in round {self.done + 1}", len(updates), len(cohort), failures)
        # In the order of the cohort, whatever the order of arrival.
        counted = {client: updates[client] for client in cohort if client in updates}
        down = self._request("train").size * len(cohort)
        self.theta = weights.mean((update.weights, self._weight(update)) for update in counted.values())
        self._write_round(counted, Traffic(sum(update.size for update in counted.values()), down))
        self.done += 1
        log(INFO, "round %s of %s: %s of %s clients", self.done, self.plan.rounds, len(counted), len(cohort))
        return counted

    def _write_round(self, counted: Mapping[int, Update], sent: Traffic) -> None:
        self.traffic = self.traffic.plus(sent)
        line = metrics.round_line(self.done, self.plan.rho, counted, sent, self.traffic)
        self.folder.append("rounds.jsonl", line)

    def _weight(self, update: Update) -> float:
        return float(update.samples) if self.plan.weighting == "samples" else 1.0

    def _log_failures(self, task: Task, failures: Mapping[int, str]) -> None:
        """Write which clients failed and why, to the log and to a journal."""
        for client, reason in sorted(failures.items()):
            log(WARNING, "client %s: %s", client, reason)
            line = {"round": self.done, "task": task, "client": client, "reason": reason}
            self.folder.append("failures.jsonl", line)

    def _require_quorum(self, what: str, count: int, asked: int, failures: Mapping[int, str]) -> None:
        if count == 0 or count < self.rules.minimum * asked:
            reasons = "; ".join(f"client {client}: {reason}" for client, reason in sorted(failures.items()))
            message = f"only {count} of {asked} clients {what} ({reasons}); `minimum` is {self.rules.minimum:g}"
            raise QuorumMissed(message)

    def _request(self, task: Task) -> Request:
        return Request(task, self.done, self.plan, self.experiment, self.theta)

    def _ask(self, grid: Grid, task: Task, clients: list[int]) -> Replies:
        transport = self._transport_over(grid)
        transport.on_progress = lambda waiting: self._write_activity(task, clients, waiting)
        transport.on_progress(set(clients))
        return transport.ask(self._request(task), clients)

    def _transport_over(self, grid: Grid) -> Transport:
        if self._transport is None or self._transport.grid is not grid:
            self._transport = Transport(grid, BackgroundListener(grid), self.rules.deadline, self.rules.repeat)
        return self._transport

    def _write_activity(self, task: Task, clients: Iterable[int], waiting: set[int]) -> None:
        self._beat += 1
        done = sorted(set(clients) - waiting)
        activity = {"beat": self._beat, "round": self.done, "task": task, "waiting": [], "working": sorted(waiting)}
        self.folder.write_activity({**activity, "done": done})

    def _obey_dashboard(self) -> None:
        """Pause or stop between rounds, if the dashboard says so."""
        if self.folder.command() == "pause":
            self.folder.write_status("paused")
            while self.folder.command() == "pause":
                time.sleep(0.5)
            self.folder.write_status("running")
        if self.folder.command() == "stop":
            raise Stopped

    def _save(self) -> None:
        self.folder.save(Checkpoint(self.done, self.theta, self.traffic))

    def _write_summary(self, grid: Grid) -> None:
        """Write the summary, with the last evaluation: a run that was finished before need not be evaluated again."""
        last = [line for line in self.folder.lines("evaluations.jsonl") if line["round"] == self.done]
        self.folder.write_summary(self.plan.summary, last[-1] if last else self.evaluate(grid))

    # The methods that Flower requires of every strategy, so that its own loop can use this one too.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Make the requests to the cohort of a round, counted from 1."""
        del config
        self.wait_for_nodes(grid)
        self.done = server_round - 1
        self.theta = {name: arrays[name].numpy() for name in sorted(arrays)}
        nodes = self._transport_over(grid).directory.nodes
        request = self._request("train")
        return [request.to(nodes[client]) for client in self.plan.cohorts[self.done] if client in nodes]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the mean of a cohort's weights."""
        self.done = server_round - 1
        self._aggregate(self._by_client(replies))
        self._save()
        return ArrayRecord({name: Array(value) for name, value in self.theta.items()}), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Make the requests to all clients, when the plan says so."""
        del arrays, config
        if not self.plan.is_evaluated_after(server_round):
            return []
        request = self._request(self.plan.evaluate)
        return [request.to(node) for _, node in sorted(self._transport_over(grid).directory.nodes.items())]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Take the mean of the clients' accuracies."""
        scores, failures = _read_all(self._by_client(replies), scores_of)
        self._log_failures(self.plan.evaluate, failures)
        if not scores:
            return None
        line = metrics.evaluation_line(server_round, self.plan.clients, scores, self.traffic)
        return MetricRecord({"accuracy": self._headline(line)["mean"]})

    def _by_client(self, replies: Iterable[Message]) -> Replies:
        """Sort replies and failures by client."""
        nodes = self._transport.directory.nodes if self._transport else {}
        clients = {node: client for client, node in nodes.items()}
        result = Replies()
        for reply in replies:
            client = clients.get(reply.metadata.src_node_id)
            if client is None:
                log(WARNING, "node %s is not the node of any client", reply.metadata.src_node_id)
            elif reply.has_error():
                result.failures[client] = shorten(reply.error.reason or "it failed")
            else:
                result.received[client] = reply
        return result

    def summary(self) -> None:
        """Log what will be done."""
        plan = self.plan
        log(INFO, "%s with %s clients, %s of %s rounds done", plan.method, plan.clients, self.done, plan.rounds)


def _read_all(replies: Replies, read: Callable[[Message], T]) -> tuple[dict[int, T], dict[int, str]]:
    """Read the replies that can be read, and give the reasons of all other clients."""
    values, failures = {}, dict(replies.failures)
    for client, reply in sorted(replies.received.items()):
        try:
            values[client] = read(reply)
        except Rejected as problem:
            failures[client] = str(problem)
    return values, failures
