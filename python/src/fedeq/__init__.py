"""Personalised federated learning with deep equilibrium models.

    import fedeq

    run = fedeq.run(method="fedeq", data="digits", rounds=20)
    print(run.accuracy)

Experiments, methods, networks and run folders are those of the command `fedeq`, which comes with this package.
"""

from fedeq._compare import Comparison, compare
from fedeq._figure import Figure
from fedeq._jobs import Reproduction, Sweep, reproduce, sweep
from fedeq._native import FedeqError, Refused, Stopped, __version__
from fedeq._run import Run, resume, run
from fedeq._table import Table
from fedeq._watch import Callback, Round

open = Run  # noqa: A001 (by its full name it is no other)
"""Open the folder of a run, as one opens a file: `fedeq.open("runs/first")`."""

__all__ = [
    "Callback",
    "Comparison",
    "FedeqError",
    "Figure",
    "Refused",
    "Reproduction",
    "Round",
    "Run",
    "Stopped",
    "Sweep",
    "Table",
    "__version__",
    "compare",
    "open",
    "reproduce",
    "resume",
    "run",
    "sweep",
]
