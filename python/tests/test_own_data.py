"""Devices that have only their own samples."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import FederationFactory
from tests.harness.compare import assert_equals_simulation
from tests.harness.program import fedeq

pytestmark = pytest.mark.federation

SIDE = 6
CLASSES = ("circle", "cross", "square")
SMALL = (
    *("data=images", "model=deq-mlp", "method.rho=0.3", "plan.rounds=2", "plan.evaluate_every=1"),
    *("plan.sampling.fraction=1", "training.epochs=1", "training.personal_epochs=1"),
)


def draw(folder: Path, label: str, count: int, rng: np.random.Generator) -> None:
    """Write small grey pictures of a class, in a format that needs no library."""
    (folder / label).mkdir(parents=True)
    for number in range(count):
        pixels = rng.integers(0, 80, size=(SIDE, SIDE), dtype=np.uint8) + np.uint8(80 * CLASSES.index(label))
        (folder / label / f"{number:02}.pgm").write_bytes(b"P5 %d %d 255\n" % (SIDE, SIDE) + pixels.tobytes())


def test_devices_with_their_own_pictures_agree_with_a_simulation_over_all(
    make_federation: FederationFactory, tmp_path: Path
) -> None:
    """Three devices, none with all classes; the server has one picture of each."""
    rng = np.random.default_rng(0)
    everybody, example = tmp_path / "everybody", tmp_path / "example"
    for client, labels in enumerate((("circle", "square"), ("cross", "square"), ("cross",))):
        for label in labels:
            draw(everybody / f"device-{client}", label, 12 + 3 * client, rng)
        shutil.copytree(everybody / f"device-{client}", tmp_path / f"alone-{client}/mine")
    for label in CLASSES:
        draw(example / "anybody", label, 1, rng)

    # As a federation has it.
    noted = "plan.aggregation.distances=true"
    words = [word for setting in (*SMALL, "data.partition=natural", noted) for word in ("--set", setting)]
    fedeq("run", *words, "--data", everybody, "--out", tmp_path / "simulation", "--quiet")
    own = ("data.partition.rule=own", "data.partition.clients=3", f"data.folder={example}")
    federation = make_federation(*SMALL, *own)
    federation.start_link()
    for client in federation.clients:
        federation.start_node(client, data=tmp_path / f"alone-{client}")
    federation.run()
    assert_equals_simulation(federation, tmp_path / "simulation")
    # The server has no samples of the devices.
    roster = json.loads((federation.app / "clients.json").read_text())
    assert all(client["train"]["samples"] == 0 for client in roster["clients"])
