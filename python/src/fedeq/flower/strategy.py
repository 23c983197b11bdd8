"""Consensus over nodes that keep their heads and duals: FeDEQ, FedAvg, FedPer and FedRep."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from logging import INFO, WARNING
from math import inf
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedeq.flower import letters, metrics, weights
from fedeq.flower.ear import BackgroundEar
from fedeq.flower.fields import brief
from fedeq.flower.folder import Checkpoint, RunFolder, Stopped
from fedeq.flower.letters import Request, Task, Update
from fedeq.flower.metrics import Traffic
from fedeq.flower.plan import Plan
from fedeq.flower.post import Answers, Post
from fedeq.flower.weights import Rejected, Weights


class QuorumMissed(RuntimeError):
    """Too few clients answered in time."""


@dataclass(frozen=True)
class Rules:
    """What a server demands of its clients; the app's `pyproject.toml` says what each of them means."""

    minimum: float = 1.0
    deadline: float = 3600.0
    repeat: float = 60.0
    patience: float = 600.0
    bound: float = inf


class Consensus(Strategy):
    """Asks the cohorts of a plan and takes the mean of their answers, in the order of their numbers.

    All state of the server is `theta`, the number of rounds done and the bytes sent; they are kept in `folder` after
    every round, and a new `Consensus` over the same folder goes on from there. Who takes part was drawn when the folder
    was written, so it does not depend on who is there first.
    """

    def __init__(self, folder: Path, rules: Rules | None = None) -> None:
        """Read plan, experiment and weights, or where the last run over this folder stopped."""
        self.plan = Plan.read(folder)
        self.folder = RunFolder(folder)
        self.experiment = (folder / "experiment.toml").read_text()
        self.rules = rules or Rules()
        kept = self.folder.resume()
        self.done, self.theta, self.traffic = kept.done, kept.theta, kept.traffic
        self._beat = 0
        self._post: Post | None = None

    def run(self, grid: Grid) -> Weights:
        """Train to the end of the plan, keep what came out in the folder, and give `theta`."""
        with self.folder.held():
            self.folder.cut_back(self.done)
            self.meet(grid)
            while self.done < self.plan.rounds:
                self._obey()
                self._round(grid)
            self._conclude(grid)
        return self.theta

    def meet(self, grid: Grid) -> None:
        """Wait until every client of the plan has a node, or enough of them for the patience to be over."""
        missing = self._way(grid).meet(self.plan.clients, self.rules.patience)
        if missing:
            reasons = dict.fromkeys(sorted(missing), f"no node in {self.rules.patience:g} s")
            self._require_quorum("to begin", self.plan.clients - len(missing), self.plan.clients, reasons)

    def _round(self, grid: Grid) -> None:
        """Train, judge if it is time to, and keep."""
        begun = time.monotonic()
        answers = self._ask(grid, "train", self.plan.cohorts[self.done])
        received = time.monotonic()
        updates = self._settle(answers)
        seconds = {"train": time.monotonic() - begun, "server": time.monotonic() - received, "evaluate": 0.0}
        if self.plan.is_evaluated_after(self.done):
            begun = time.monotonic()
            self.folder.append("evaluations.jsonl", self.evaluate(grid))
            seconds["evaluate"] = time.monotonic() - begun
        self.folder.append("timings.jsonl", metrics.timing_line(self.done, updates.values(), seconds))
        self._keep()

    def evaluate(self, grid: Grid) -> dict[str, Any]:
        """Judge all clients, and put together what they say."""
        answers = self._ask(grid, self.plan.evaluate, list(range(self.plan.clients)))
        scores, failures = self._judge(answers)
        self._name(self.plan.evaluate, failures)
        self._require_quorum(f"to judge round {self.done}", len(scores), self.plan.clients, failures)
        line = metrics.evaluation_line(self.done, self.plan.clients, scores, self.traffic)
        accuracy = 100 * self._headline(line)["mean"]
        log(INFO, "after round %s: accuracy %.1f %% over %s clients", self.done, accuracy, len(scores))
        return line

    def _judge(self, answers: Answers) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
        """Read scores, and say why others cannot be read."""
        scores, failures = {}, dict(answers.failures)
        for client, reply in sorted(answers.replies.items()):
            try:
                scores[client] = letters.scores_of(reply)
            except Rejected as problem:
                failures[client] = str(problem)
        return scores, failures

    def _headline(self, evaluation: Mapping[str, Any]) -> dict[str, Any]:
        """Give the quality of the models the method is judged by."""
        quality: dict[str, Any] = evaluation[self.plan.headline] or evaluation["local"]
        return quality

    def _settle(self, answers: Answers) -> dict[int, Update]:
        """Make `theta` the mean of what the clients of the round sent; what is refused is named and does not count."""
        cohort = self.plan.cohorts[self.done]
        updates, failures = self._read(answers)
        self._name("train", failures)
        self._require_quorum(f"in round {self.done + 1}", len(updates), len(cohort), failures)
        # In the order of the cohort, whatever the order of arrival.
        counted = {client: updates[client] for client in cohort if client in updates}
        down = self._request("train").size * len(cohort)
        self.theta = weights.mean((update.weights, self._weight(update)) for update in counted.values())
        self._note(counted, Traffic(sum(update.size for update in counted.values()), down))
        self.done += 1
        log(INFO, "round %s of %s: %s of %s clients", self.done, self.plan.rounds, len(counted), len(cohort))
        return counted

    def _read(self, answers: Answers) -> tuple[dict[int, Update], dict[int, str]]:
        updates, failures = {}, dict(answers.failures)
        for client, reply in answers.replies.items():
            try:
                updates[client] = Update.read(reply, self.theta, self.rules.bound)
            except Rejected as problem:
                failures[client] = str(problem)
        return updates, failures

    def _note(self, counted: Mapping[int, Update], sent: Traffic) -> None:
        self.traffic = self.traffic.plus(sent)
        line = metrics.round_line(self.done, self.plan.rho, counted, sent, self.traffic)
        self.folder.append("rounds.jsonl", line)

    def _weight(self, update: Update) -> float:
        return float(update.samples) if self.plan.weighting == "samples" else 1.0

    def _name(self, task: Task, failures: Mapping[int, str]) -> None:
        """Say who does not count, in the log and in a journal."""
        for client, reason in sorted(failures.items()):
            log(WARNING, "client %s: %s", client, reason)
            line = {"round": self.done, "task": task, "client": client, "reason": reason}
            self.folder.append("failures.jsonl", line)

    def _require_quorum(self, what: str, answered: int, asked: int, failures: Mapping[int, str]) -> None:
        if answered == 0 or answered < self.rules.minimum * asked:
            named = "; ".join(f"client {client}: {reason}" for client, reason in sorted(failures.items()))
            message = f"only {answered} of {asked} clients are there {what} ({named})"
            raise QuorumMissed(message)

    def _request(self, task: Task) -> Request:
        return Request(task, self.done, self.plan, self.experiment, self.theta)

    def _ask(self, grid: Grid, task: Task, clients: list[int]) -> Answers:
        way = self._way(grid)
        way.watch = lambda waiting: self._tell_activity(task, clients, waiting)
        way.watch(set(clients))
        return way.ask(self._request(task), clients)

    def _way(self, grid: Grid) -> Post:
        if self._post is None or self._post.grid is not grid:
            self._post = Post(grid, BackgroundEar(grid), self.rules.deadline, self.rules.repeat)
        return self._post

    def _tell_activity(self, task: Task, clients: Iterable[int], waiting: set[int]) -> None:
        self._beat += 1
        done = sorted(set(clients) - waiting)
        activity = {"beat": self._beat, "round": self.done, "task": task, "waiting": [], "working": sorted(waiting)}
        self.folder.tell_activity({**activity, "done": done})

    def _obey(self) -> None:
        """Wait or stop between rounds, if that is what somebody wants."""
        if self.folder.order() == "pause":
            self.folder.write_status("paused")
            while self.folder.order() == "pause":
                time.sleep(0.5)
            self.folder.write_status("running")
        if self.folder.order() == "stop":
            raise Stopped

    def _keep(self) -> None:
        self.folder.keep(Checkpoint(self.done, self.theta, self.traffic))

    def _conclude(self, grid: Grid) -> None:
        """Write what came out; a run that was over before was judged before."""
        judged = [line for line in self.folder.lines("evaluations.jsonl") if line["round"] == self.done]
        self.folder.write_summary(self.plan.summary, judged[-1] if judged else self.evaluate(grid))

    # What Flower asks of every strategy, so that its own loop can use this one too.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask the cohort of a round, counted from 1."""
        del config
        self.meet(grid)
        self.done = server_round - 1
        self.theta = {name: arrays[name].numpy() for name in sorted(arrays)}
        nodes = self._way(grid).directory.nodes
        request = self._request("train")
        return [request.to(nodes[client]) for client in self.plan.cohorts[self.done] if client in nodes]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the mean of a cohort's answers."""
        self.done = server_round - 1
        self._settle(self._sorted(replies))
        self._keep()
        return ArrayRecord({name: Array(value) for name, value in self.theta.items()}), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask everybody, when the plan says so."""
        del arrays, config
        if not self.plan.is_evaluated_after(server_round):
            return []
        request = self._request(self.plan.evaluate)
        return [request.to(node) for _, node in sorted(self._way(grid).directory.nodes.items())]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Take the mean of the clients' accuracies."""
        scores, failures = self._judge(self._sorted(replies))
        self._name(self.plan.evaluate, failures)
        if not scores:
            return None
        line = metrics.evaluation_line(server_round, self.plan.clients, scores, self.traffic)
        return MetricRecord({"accuracy": self._headline(line)["mean"]})

    def _sorted(self, replies: Iterable[Message]) -> Answers:
        """Tell answers from failures, by client."""
        clients = {node: client for client, node in self._post.directory.nodes.items()} if self._post else {}
        answers = Answers()
        for reply in replies:
            client = clients.get(reply.metadata.src_node_id)
            if client is None:
                log(WARNING, "node %s is nobody's", reply.metadata.src_node_id)
            elif reply.has_error():
                answers.failures[client] = brief(reply.error.reason or "it failed")
            else:
                answers.replies[client] = reply
        return answers

    def summary(self) -> None:
        """Say what will be done."""
        plan = self.plan
        log(INFO, "%s with %s clients, %s of %s rounds done", plan.method, plan.clients, self.done, plan.rounds)
