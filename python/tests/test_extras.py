"""What needs an extra that is not installed says which."""

import subprocess
import sys

import pytest

from tests.harness.program import TIMEOUT


@pytest.mark.parametrize(("module", "package"), [("torch", "torch"), ("onnx", "onnx"), ("flower", "flwr")])
def test_a_missing_extra_is_named(module: str, package: str) -> None:
    """Act as if it were missing."""
    assert f"hint: install the extra `{module}`" in failure(f"sys.modules[{package!r}] = None; import fedeq.{module}")


def test_a_network_of_pytorch_names_it_too() -> None:
    """Its module is there without PyTorch, and says what it lacks when it is asked for one."""
    said = failure("sys.modules['torch'] = None; import fedeq.networks; fedeq.networks.TorchNetwork(None)")
    assert "hint: install the extra `torch`" in said


def failure(program: str) -> str:
    """Give what a program says that ends with an exception."""
    words = [sys.executable, "-c", f"import sys; {program}"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=TIMEOUT)  # noqa: S603
    assert done.returncode == 1
    return done.stderr
