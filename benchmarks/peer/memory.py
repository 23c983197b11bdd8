"""How much memory this process has held."""

from pathlib import Path


def megabytes(key: str) -> float:
    """`VmRSS` (now) or `VmHWM` (at most so far), in units of 1e6 bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"the system does not tell `{key}`")
