"""What needs an extra that is not installed says which."""

import subprocess
import sys

import pytest

from tests.harness.program import TIMEOUT


@pytest.mark.parametrize(("module", "package"), [("torch", "torch"), ("onnx", "onnx"), ("flower", "flwr")])
def test_a_missing_extra_is_named(module: str, package: str) -> None:
    """Act as if it were missing."""
    program = f"import sys; sys.modules[{package!r}] = None; import fedeq.{module}"
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=TIMEOUT)  # noqa: S603
    assert done.returncode == 1
    assert f"hint: install the extra `{module}`" in done.stderr
