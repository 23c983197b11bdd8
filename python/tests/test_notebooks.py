"""The notebooks are executed as they stand, by a kernel as Jupyter starts it."""

from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_to_its_end(path: Path, tmp_path: Path) -> None:
    """Every cell, in order, in a folder of its own; what is shown is what a reader looks for."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not kept: they would grow old"
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    kinds = {kind for output in shown for kind in output.get("data", {})}
    assert {"text/html", "image/svg+xml", "text/plain"} <= kinds
    assert any("round" in text and "█" in text for text in _texts(shown)), "progress is shown in the cell"
    assert not any(output["output_type"] == "error" for output in shown)


def test_there_are_two() -> None:
    """A first federation, and own data."""
    assert [path.stem for path in NOTEBOOKS] == ["first-federation", "own-data"]


def _texts(outputs: list[Any]) -> list[str]:
    return [str(output.get("data", {}).get("text/plain", "")) for output in outputs]
