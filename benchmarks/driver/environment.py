"""Both sides, built: a virtual environment with PyTorch and Flower, and our program."""

import os
import platform
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
VENV = HERE / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = HERE / "requirements.txt"
INSTALLED = VENV / "installed.txt"


def build_peer() -> None:
    """Makes the virtual environment, unless it is already there with these very requirements."""
    wanted = REQUIREMENTS.read_text()
    if INSTALLED.exists() and INSTALLED.read_text() == wanted:
        return
    say("making a virtual environment with PyTorch and Flower (a download of some GB)")
    if not PYTHON.exists():
        venv.create(VENV, with_pip=True)
    subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", "-r", REQUIREMENTS], check=True, stdout=sys.stderr)
    INSTALLED.write_text(wanted)


def use_python(python: Path) -> None:
    """Takes an interpreter that already has what is needed, for machines that nothing can be installed on."""
    global PYTHON
    PYTHON = python


def build_ours() -> Path:
    """Builds our program; returns its path."""
    say("building our program")
    command = ["cargo", "build", "--release", "--workspace", "--example", "fedeq-benchmarks"]
    subprocess.run(command, check=True, cwd=HERE.parent, stdout=sys.stderr)
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))
    return target / "release" / "examples" / "fedeq-benchmarks"


def machine() -> dict[str, str]:
    """What the figures depend on."""
    return {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "load before": f"{os.getloadavg()[0]:.1f}",
        "commit": output(["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]),
        "rustc": output(["rustc", "--version"]),
        **gpu(),
        **{name: version(name) for name in ("torch", "flwr", "ray")},
    }


def described(conditions: dict[str, str]) -> str:
    """The machine and what both sides are made with, without what differs from sitting to sitting."""
    return "; ".join(f"{key} {value}" for key, value in conditions.items() if value and key not in ("commit", "load before"))


def processor() -> str:
    """The processor's name and its widest vector instructions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    flags = next((line for line in lines if line.startswith("flags")), "")
    widest = next((shown for flag, shown in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "no AVX2")
    return f"{named[0] if named else 'unknown'}, {widest}"


def gpu() -> dict[str, str]:
    """The cards, where there are some."""
    found = output(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    return {"GPU": found.replace("\n", "; ")} if found else {}


def version(package: str) -> str:
    """Of a package that the other side uses."""
    return output([str(PYTHON), "-c", f"from importlib import metadata; print(metadata.version('{package}'))"]) or "not installed"


def output(command: list[str]) -> str:
    """What a command prints, or nothing."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def say(text: str) -> None:
    """Progress goes to stderr; the table alone goes to stdout."""
    print(f"benchmarks: {text}", file=sys.stderr, flush=True)
