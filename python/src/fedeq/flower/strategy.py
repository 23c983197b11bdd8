"""Consensus over nodes that keep their heads and duals: FeDEQ, FedAvg, FedPer and FedRep."""

import json
import time
from collections.abc import Iterable, Mapping
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedeq.flower import letters, weights
from fedeq.flower.letters import Request, Task
from fedeq.flower.plan import Plan
from fedeq.flower.weights import Rejected, Weights, write_atomically


class QuorumMissed(RuntimeError):
    """Too few clients of a cohort answered in time."""


class Consensus(Strategy):
    """Asks the cohorts of a plan and takes the mean of their answers, in the order of their numbers.

    All state of the server is `theta` and the number of rounds done; both are kept in `folder` after every round, and a new
    `Consensus` over the same folder goes on from there.
    """

    def __init__(
        self, folder: Path, *, minimum: float = 1.0, deadline: float = 3600.0, bound: float = float("inf")
    ) -> None:
        """Read plan, experiment and weights. `bound` is the largest distance an answer may have from what was sent."""
        self.folder = folder
        self.plan = Plan.read(folder)
        self.experiment = (folder / "experiment.toml").read_text()
        self.minimum = minimum
        self.deadline = deadline
        self.bound = bound
        self.done, self.theta = self._resume()
        self._nodes: dict[int, int] = {}

    def run(self, grid: Grid) -> Weights:
        """Train to the end of the plan and give `theta`."""
        self.meet(grid)
        while self.done < self.plan.rounds:
            self.train(grid)
            self._keep()
            if self.plan.is_evaluated_after(self.done):
                self.evaluate(grid)
        return self.theta

    def meet(self, grid: Grid, patience: float = 600.0) -> None:
        """Wait until every client of the plan has a node, and remember which is whose."""
        end = time.monotonic() + patience
        while True:
            unknown = [node for node in grid.get_node_ids() if node not in self._nodes.values()]
            replies = grid.send_and_receive([letters.who_are_you(node) for node in unknown], timeout=30.0)
            for reply in replies:
                if reply.has_content():
                    self._nodes[letters.client_of(reply)] = reply.metadata.src_node_id
            missing = sorted(set(range(self.plan.clients)) - set(self._nodes))
            if not missing:
                return
            if time.monotonic() > end:
                message = f"no node came for client {missing[0]} ({len(missing)} missing)"
                raise QuorumMissed(message)
            time.sleep(0.2)

    def train(self, grid: Grid) -> None:
        """Carry out the next round."""
        self._settle(self._ask(grid, "train", self.plan.cohorts[self.done]))

    def evaluate(self, grid: Grid) -> float:
        """Judge all clients and give the mean of their accuracies by the model the method is meant by."""
        replies = self._ask(grid, "evaluate", list(range(self.plan.clients)))
        scores = {client: letters.header_of(reply)["scores"] for client, reply in sorted(replies.items())}
        shares = self._accuracies(scores.values())
        accuracy = sum(shares) / max(1, len(shares))
        line = {"round": self.done, "accuracy": accuracy, "scores": scores}
        with (self.folder / "evaluations.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        log(INFO, "after round %s: accuracy %.1f %% over %s clients", self.done, 100 * accuracy, len(shares))
        return accuracy

    def _settle(self, replies: Mapping[int, Message]) -> None:
        """Make `theta` the mean of what the clients of the round sent; what is refused is named and does not count."""
        cohort = self.plan.cohorts[self.done]
        updates = {}
        for client, reply in replies.items():
            try:
                updates[client] = self._update(reply)
            except Rejected as problem:
                log(WARNING, "client %s: %s", client, problem)
        self._require_quorum(len(updates), len(cohort))
        # In the order of the cohort, whatever the order of arrival.
        self.theta = weights.mean(updates[client] for client in cohort if client in updates)
        self.done += 1
        log(INFO, "round %s of %s: %s of %s clients", self.done, self.plan.rounds, len(updates), len(cohort))

    def _accuracies(self, scores: Iterable[dict[str, Any]]) -> list[float]:
        """Collect the clients' accuracies by the model the method is meant by; clients without test data have none."""
        judged = [score[self.plan.headline] for score in scores]
        return [score["correct"] / score["predictions"] for score in judged if score["predictions"]]

    def _update(self, reply: Message) -> tuple[Weights, float]:
        sent = letters.weights_of(reply)
        weights.check(sent, self.theta, self.bound)
        samples = float(letters.header_of(reply)["samples"])
        return sent, samples if self.plan.weighting == "samples" else 1.0

    def _ask(self, grid: Grid, task: Task, clients: list[int]) -> dict[int, Message]:
        request = Request(task, self.done, self.plan, self.experiment, self.theta)
        asked = {self._nodes[client]: client for client in clients}
        replies = grid.send_and_receive([request.to(node) for node in asked], timeout=self.deadline)
        answered = {}
        for reply in replies:
            client = asked[reply.metadata.src_node_id]
            if reply.has_error():
                log(WARNING, "client %s: %s", client, reply.error.reason)
            else:
                answered[client] = reply
        return answered

    def _require_quorum(self, answered: int, asked: int) -> None:
        if answered == 0 or answered < self.minimum * asked:
            message = f"only {answered} of {asked} clients answered in round {self.done + 1}"
            raise QuorumMissed(message)

    def _keep(self) -> None:
        """Keep `theta`, then the round: the round is what counts."""
        weights.write(self.folder / f"theta-{self.done}.safetensors", self.theta)
        write_atomically(self.folder / "done.json", json.dumps({"done": self.done}).encode())
        for old in self.folder.glob("theta-*.safetensors"):
            if old.name != f"theta-{self.done}.safetensors":
                old.unlink()

    def _resume(self) -> tuple[int, Weights]:
        path = self.folder / "done.json"
        done = int(json.loads(path.read_text())["done"]) if path.exists() else 0
        name = f"theta-{done}.safetensors" if done else "theta.safetensors"
        return done, weights.read(self.folder / name)

    # What Flower asks of every strategy, so that its own loop can use this one too.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask the cohort of a round, counted from 1."""
        del config
        self.meet(grid)
        self.done = server_round - 1
        self.theta = {name: arrays[name].numpy() for name in sorted(arrays)}
        request = Request("train", self.done, self.plan, self.experiment, self.theta)
        return [request.to(self._nodes[client]) for client in self.plan.cohorts[self.done]]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the mean of a cohort's answers."""
        clients = {node: client for client, node in self._nodes.items()}
        self.done = server_round - 1
        self._settle({clients[reply.metadata.src_node_id]: reply for reply in replies if reply.has_content()})
        self._keep()
        return ArrayRecord({name: Array(value) for name, value in self.theta.items()}), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask everybody, when the plan says so."""
        del arrays, config, grid
        if not self.plan.is_evaluated_after(server_round):
            return []
        request = Request("evaluate", server_round, self.plan, self.experiment, self.theta)
        return [request.to(node) for _, node in sorted(self._nodes.items())]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Take the mean of the clients' accuracies."""
        del server_round
        shares = self._accuracies(letters.header_of(reply)["scores"] for reply in replies if reply.has_content())
        return MetricRecord({"accuracy": sum(shares) / len(shares)}) if shares else None

    def summary(self) -> None:
        """Say what will be done."""
        plan = self.plan
        log(INFO, "%s with %s clients, %s of %s rounds done", plan.method, plan.clients, self.done, plan.rounds)
