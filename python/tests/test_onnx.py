"""ONNX files of explicit networks give the logits of the engine in ONNX's own runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime", reason="not installed: pip install '.[onnx]' onnxruntime")
pytest.importorskip("onnx", reason="not installed: pip install '.[onnx]'")

import fedeq.onnx  # noqa: E402
from fedeq import FedeqError  # noqa: E402
from tests.harness.networks import COLOURS, PICTURES, Sample, catalog, sample, settings_of, task_of  # noqa: E402


def run(given: Sample, path: Path, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Export a network and run it."""
    fedeq.onnx.export(given.file, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"x": x})
    return np.asarray(logits)


@pytest.mark.parametrize("name", [name for name in catalog() if not name.startswith("deq-")])
def test_every_explicit_network_gives_the_engines_logits(name: str, tmp_path: Path) -> None:
    """To 1e-5, for batches of any size."""
    given = sample(settings_of(name), task_of(name))
    path = tmp_path / "model.onnx"
    np.testing.assert_allclose(run(given, path, given.x), given.logits(), atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(run(given, path, given.x[:2]), given.logits()[:2], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "task"),
    [
        ({"name": "tied-resnet-xs", "cell_norm": "row-wise", "activation": "softplus", "norm": "group"}, PICTURES),
        ({"name": "resnet-20"}, COLOURS),
        ({"name": "resnet-14", "norm": "group"}, PICTURES),
        ({"name": "mlp"}, PICTURES),
    ],
    ids=lambda each: str(each.get("name", "")),
)
def test_so_do_networks_with_other_settings(settings: dict[str, Any], task: dict[str, Any], tmp_path: Path) -> None:
    """Whatever layer they need."""
    given = sample(settings, task)
    # Rows of four pixels are normalised by what is little more than rounding in places.
    near = 1e-4 if settings.get("cell_norm") == "row-wise" else 1e-5
    np.testing.assert_allclose(run(given, tmp_path / "model.onnx", given.x), given.logits(), atol=near, rtol=near)


def test_sequences_may_be_shorter(tmp_path: Path) -> None:
    """What comes later has no say in what is said before."""
    given = sample(settings_of("transformer-4"), task_of("transformer-4"))
    found = run(given, tmp_path / "model.onnx", given.x[:, :5])
    np.testing.assert_allclose(found, given.logits()[:, :5], atol=1e-5, rtol=1e-5)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Where there is no folder."""
    given = sample(settings_of("mlp"), task_of("mlp"))
    with pytest.raises(FedeqError, match=r"model\.onnx`: cannot write to it: .*\nhint: check that"):
        fedeq.onnx.export(given.file, tmp_path / "nowhere" / "model.onnx")


@pytest.mark.parametrize("name", [name for name in catalog() if name.startswith("deq-")])
def test_equilibrium_networks_are_refused(name: str, tmp_path: Path) -> None:
    """With the reason."""
    given = sample(settings_of(name), task_of(name))
    with pytest.raises(FedeqError, match=r"solves for an equilibrium.*\n.*fedeq\.torch\.load"):
        fedeq.onnx.export(given.file, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()
