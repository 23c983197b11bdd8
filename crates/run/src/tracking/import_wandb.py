"""Hands exported runs to Weights & Biases by its public client.

    pip install wandb
    python import_wandb.py                 # to the account that `wandb login` knows
    WANDB_MODE=offline python import_wandb.py && wandb sync wandb/offline-run-*

A run has the same id each time, so that it can be imported again when there is more of it.
"""

import json
from pathlib import Path

import wandb

UNSUCCESSFUL = ("failed", "killed", "malformed", "stopped")


def main() -> None:
    for folder in sorted(path.parent for path in Path(__file__).resolve().parent.glob("*/run.json")):
        about = json.loads((folder / "run.json").read_text())
        run = wandb.init(
            project=about["project"],
            id=about["id"],
            name=about["name"],
            notes=about["notes"],
            config=about["config"],
            resume="allow",
        )
        for line in (folder / "history.jsonl").read_text().splitlines():
            entry = json.loads(line)
            run.log(entry["values"], step=entry["step"])
        # A run that is under way cannot be left open: its tag says that it is, and it goes on when it is imported again.
        run.tags = (about["state"],)
        run.finish(exit_code=1 if about["state"] in UNSUCCESSFUL else 0)


if __name__ == "__main__":
    main()
