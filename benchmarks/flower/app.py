"""The client and the server of the FedAvg task."""

import functools
import itertools
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from peer import models
from peer.data import Data
from peer.train import Trainer

client_app = ClientApp()
server_app = ServerApp()


@functools.cache
def job() -> dict[str, Any]:
    """What to do; it reaches Ray's processes through the environment."""
    return json.loads(os.environ["FLOWER_JOB"])


@functools.cache
def data() -> Data:
    """The samples of all clients, read once a process."""
    return Data(Path(job()["folder"]) / "data.safetensors")


@functools.cache
def network() -> models.Network:
    """One network a process; every client fills it with what it receives."""
    torch.set_num_threads(job()["threads"])
    return models.build(job()["model"], 0)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Local epochs from the global model, on the client's samples in our order."""
    client = int(context.node_config["partition-id"])
    net = network()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    trainer = Trainer(net, list(net.parameters()), job()["learning_rate"])
    losses = [0.0]
    for epoch in range(job()["epochs"]):
        losses = [trainer.step(*batch) for batch in data().batches(client, "body", epoch, job()["batch"])]
    metrics = MetricRecord({"loss": sum(losses) / len(losses), "num-examples": data().samples(client)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


class TimedFedAvg(FedAvg):
    """FedAvg that notes when each round is over."""

    def __init__(self, fraction: float, cohort: int) -> None:
        super().__init__(fraction_train=fraction, fraction_evaluate=0.0, min_train_nodes=cohort)
        self.ends: list[float] = []

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        result = super().aggregate_train(server_round, replies)
        self.ends.append(time.perf_counter())
        return result


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Some rounds; what they took goes to the file that the job names."""
    settings = job()
    net = models.load(models.build(settings["model"], 0), Path(settings["folder"]) / "weights.safetensors")
    strategy = TimedFedAvg(settings["cohort"] / settings["clients"], settings["cohort"])
    begun = time.perf_counter()
    result = strategy.start(grid, ArrayRecord(net.state_dict()), num_rounds=settings["rounds"], timeout=settings["timeout"])
    times = [begun, *strategy.ends]
    loss = result.train_metrics_clientapp[settings["rounds"]]["loss"]
    answer = {"seconds": [after - before for before, after in itertools.pairwise(times)], "loss": loss}
    Path(settings["answer"]).write_text(json.dumps(answer))
