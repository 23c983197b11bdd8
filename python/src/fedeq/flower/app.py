"""The apps that `flwr run` starts."""

from collections.abc import Mapping
from logging import INFO, WARNING
from math import inf, nan
from pathlib import Path

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

from fedeq._given import refuse
from fedeq._native import Federation, Stopped
from fedeq.flower.directory import Directory
from fedeq.flower.listener import BackgroundListener
from fedeq.flower.registry import Registry
from fedeq.flower.reply_limit import limit_replies
from fedeq.flower.transport import Transport

server = ServerApp()
# Nodes are `fedeq node`, but Flower requires a client app.
client = ClientApp()


def folder_of(config: Mapping[str, object]) -> Path:
    """Read the folder of the federation."""
    if not config.get("folder"):
        refuse("`folder` is not set", "give the folder of the app: `--run-config \"folder='/path/of/the/app'\"`")
    return Path(str(config["folder"]))


def number_of(config: Mapping[str, object], name: str) -> float:
    """Read a number that is not negative."""
    given = config.get(name)
    try:
        value = nan if given is None or isinstance(given, bool) else float(str(given))
    except ValueError:
        value = nan
    if not value >= 0.0:
        refuse(f"`{name}` is `{given}`", f'give a number of at least 0: `--run-config "{name}=1.0"`')
    return value


def log_line(level: str, text: str) -> None:
    """Log what the server tells."""
    log(WARNING if level == "warning" else INFO, "%s", text)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Train to the end of the plan."""
    config = context.run_config
    federation = Federation(folder_of(config))
    limit_replies(grid, federation.array_limit)
    log(INFO, "%s", federation.title)
    directory = Directory(grid, Registry(folder_of(config) / "nodes.json"), federation.clients)
    transport = Transport(
        grid,
        BackgroundListener(grid),
        directory,
        federation.name,
        federation.experiment,
        deadline=number_of(config, "deadline"),
        repeat=number_of(config, "repeat"),
        patience=number_of(config, "patience"),
    )
    # A `bound` of 0 means none.
    minimum, bound = number_of(config, "minimum"), number_of(config, "bound") or inf
    try:
        federation.train(transport, log_line, minimum, bound)
    except Stopped as stopped:
        log(INFO, "%s", stopped)
