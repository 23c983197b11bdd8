"""The apps that `flwr run` starts."""

from collections.abc import Mapping
from logging import INFO
from math import inf
from pathlib import Path

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

from fedeq.flower import weights
from fedeq.flower.array_limit import limit_arrays
from fedeq.flower.folder import Stopped
from fedeq.flower.strategy import Consensus, Rules

server = ServerApp()
# Nodes are `fedeq node`, but Flower requires a client app.
client = ClientApp()


def folder_of(config: Mapping[str, object]) -> Path:
    """Read the folder of the federation."""
    if not config["folder"]:
        message = "`folder` is not set; give the folder of the app: --run-config \"folder='/path/of/the/app'\""
        raise ValueError(message)
    return Path(str(config["folder"]))


def rules_of(config: Mapping[str, object]) -> Rules:
    """Read the rules for clients; a `bound` of 0 means none."""
    names = ("minimum", "deadline", "repeat", "patience", "bound")
    values = {name: float(str(config[name])) for name in names}
    for name, value in values.items():
        if not value >= 0.0:
            message = f"`{name}` is `{value}`; give a number of at least 0"
            raise ValueError(message)
    return Rules(**{**values, "bound": values["bound"] or inf})


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Train to the end of the plan."""
    strategy = Consensus(folder_of(context.run_config), rules_of(context.run_config))
    limit_arrays(weights.size(strategy.theta, "") + weights.SPARE)
    strategy.summary()
    try:
        strategy.run(grid)
    except Stopped:
        log(INFO, "stopped after round %s; start it again to continue", strategy.done)
