"""The apps that `flwr run` starts."""

from pathlib import Path

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedeq.flower.strategy import Consensus

server = ServerApp()
# Nodes are `fedeq node`; Flower wants an app all the same.
client = ClientApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Train to the end of the plan."""
    config = context.run_config
    if not config["folder"]:
        message = "say where the federation is: --run-config \"folder='/path/of/the/app'\""
        raise ValueError(message)
    strategy = Consensus(
        Path(str(config["folder"])), minimum=float(config["minimum"]), deadline=float(config["deadline"])
    )
    strategy.summary()
    strategy.run(grid)
