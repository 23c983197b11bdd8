"""A server that attacks its nodes, over a real SuperLink. `test_attacks.py` runs the attacks written in Rust."""

from pathlib import Path

import pytest

from tests.conftest import FederationFactory
from tests.harness import Federation
from tests.harness.compare import assert_finished, lines

pytestmark = [pytest.mark.federation, pytest.mark.hostile]

ROWS = 24
TABLE = (
    *("data=csv", "data.partition.rule=own", "data.partition.clients=2", "model=mlp"),
    *("plan.rounds=1", "plan.sampling.fraction=1"),
)
# What the owners have accepted.
HARMLESS = ("method=fedrep", *TABLE)
# One gradient step on one sample, and the whole model back: the first layer has then moved by the sample.
ROW = ("method=fedavg", "data.limit.train=1", "training.batch_size=1", "training.epochs=1", *TABLE)


def write_table(path: Path, client: int) -> list[str]:
    """Write a device's private table, and give the cells that nobody else may see."""
    heights = [f"{150 + 10 * client + row}.{row:02}375" for row in range(ROWS)]
    rows = [f"{'well' if row % 2 else 'ill'},{height},{60 + row}" for row, height in enumerate(heights)]
    path.write_text("\n".join(["label,height,weight", *rows]) + "\n")
    return heights


def with_tables(federation: Federation) -> list[str]:
    """Start two nodes with tables of their own, on whose experiment their owners have agreed; give the cells."""
    federation.start_link()
    cells = []
    for client in federation.clients:
        table = federation.folder / f"patients-{client}.csv"
        cells += write_table(table, client)
        federation.start_node(client, data=table)
    return cells


def received(federation: Federation) -> bytes:
    """Give all that the SuperLink and the server have written down."""
    link = b"".join(path.read_bytes() for path in federation.folder.glob("link.db*"))
    return link + b"".join(path.read_bytes() for path in federation.app.rglob("*") if path.is_file())


def test_a_server_that_asks_for_another_experiment_gets_nothing(
    make_federation: FederationFactory, tmp_path: Path
) -> None:
    """One row after the other: all nodes refuse, and then carry out what was accepted."""
    example = tmp_path / "example.csv"
    example.write_text("label,height,weight\nwell,150,60\nill,190,80\nwell,160,90\n")
    folder = f"data.folder={example}"
    federation = make_federation(*HARMLESS, folder)
    harmless = federation.name
    cells = with_tables(federation)
    for seed in (1, 2):
        federation.write_app(f"row-{seed}", (*ROW, folder, f"seed={seed}"))
        federation.run(deadline=40.0, repeat=20.0, minimum=0.1)
        assert federation.state == "failed", federation.logs()
        reasons = {line["reason"] for line in lines(federation.app, "failures.jsonl")}
        assert len(reasons) == 1, reasons
        assert "refused: this node has not accepted this experiment" in reasons.pop()
        assert not list(federation.app.glob("theta-*.safetensors"))
        sent = received(federation)
        assert not [cell for cell in cells if cell.encode() in sent]
        assert b"patients" not in sent
    for node in federation.nodes.values():
        assert node.is_alive
        assert "has not accepted: fedavg on csv with mlp" in node.text(), node.text()
    federation.name = harmless
    federation.run()
    assert_finished(federation)
