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
from fedeq.flower.folder import Stopped
from fedeq.flower.narrow import bound_arrays
from fedeq.flower.strategy import Consensus, Rules

server = ServerApp()
# Nodes are `fedeq node`; Flower wants an app all the same.
client = ClientApp()


def folder_of(config: Mapping[str, object]) -> Path:
    """Say where the federation is."""
    if not config["folder"]:
        message = "say where the federation is: --run-config \"folder='/path/of/the/app'\""
        raise ValueError(message)
    return Path(str(config["folder"]))


def rules_of(config: Mapping[str, object]) -> Rules:
    """Read what is demanded of clients; a bound of 0 is none."""
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
    bound_arrays(weights.size(strategy.theta, "") + weights.SPARE)
    strategy.summary()
    try:
        strategy.run(grid)
    except Stopped:
        log(INFO, "stopped after round %s; start it again to go on", strategy.done)
