"""One job in one fresh process, and the memory of all its children where it has some."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from . import environment
from .environment import HERE, say

Job = dict[str, Any]
Answer = dict[str, Any]
SAMPLING_SECONDS = 0.25
# A job that takes longer hangs.
LONGEST = 7200.0


class Failed(Exception):
    """A job that did not come to its end."""


def ours(program: Path, job: Job, timeout: float = LONGEST) -> Answer:
    """Our program does a job."""
    threads = job.get("threads", job.get("workers", 1))
    return finish([str(program), json.dumps(job)], {"RAYON_NUM_THREADS": str(threads)}, timeout)


def peer(job: Job, timeout: float = LONGEST) -> Answer:
    """PyTorch does a job."""
    threads = str(job["threads"])
    return finish(
        [str(environment.PYTHON), "-m", "peer", json.dumps(job)],
        {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
        timeout,
    )


def flower(job: Job, timeout: float = 1200.0) -> Answer:
    """Flower's simulation does a job; the peak is that of all its processes together, shared pages counted once."""
    environment = {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": str(job["threads"]), "RAY_DEDUP_LOGS": "1"}
    return finish([str(environment.PYTHON), "-m", "flower", json.dumps(job)], environment, timeout, watch_children=True)


def finish(command: list[str], environment: dict[str, str], timeout: float, watch_children: bool = False) -> Answer:
    """Runs a command to its end; its last line is the answer."""
    settings = {**os.environ, **environment}
    with subprocess.Popen(
        command, cwd=HERE, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        watch = Watch(process.pid) if watch_children else None
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, 9)
            raise Failed(f"it took longer than {timeout:.0f} s") from error
        finally:
            if watch is not None:
                watch.stop()
    if process.returncode != 0:
        print(err[-4000:], file=sys.stderr)
        raise Failed(f"`{' '.join(command[:3])}` ended with {process.returncode}")
    answer = json.loads(out.strip().splitlines()[-1])
    if watch is not None:
        answer["peak_mb"] = watch.peak
    return answer


class Watch:
    """Samples the memory of a process and of all its descendants."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.peak = 0.0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)
        self.thread.start()

    def sample(self) -> None:
        while not self.over.wait(SAMPLING_SECONDS):
            self.peak = max(self.peak, sum(proportional_megabytes(pid) for pid in descendants(self.pid)))

    def stop(self) -> None:
        self.over.set()
        self.thread.join()


def descendants(pid: int) -> list[int]:
    """A process and everything it started, however indirectly."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for each in found:
        found.extend(children.get(each, []))
    return found


def proportional_megabytes(pid: int) -> float:
    """The process's memory in units of 1e6 bytes; of pages it shares with others, its share."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    return 0.0


def attempt(name: str, work: Any) -> Any:
    """The outcome of some work, or nothing if it failed: one row that fails leaves the others standing."""
    try:
        return work()
    except Failed as error:
        say(f"{name}: {error}")
        return None
