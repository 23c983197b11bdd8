"""`python -m flower JOB`: runs the task that the job describes, and prints what came out as JSON."""

import os
import sys
from pathlib import Path

os.environ["FLOWER_JOB"] = sys.argv[1]
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from flwr.simulation import run_simulation

from flower.app import client_app, job, server_app


def main() -> None:
    """One core a client, as many clients side by side as the job has workers."""
    backend = {"init_args": {"num_cpus": job()["workers"]}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app, client_app, num_supernodes=job()["clients"], backend_config=backend)
    print(Path(job()["answer"]).read_text())


if __name__ == "__main__":
    main()
