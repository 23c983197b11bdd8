"""Many runs at once: sweeps and reproductions, each carried out by the command `fedeq` in a process of its own."""

import json
import math
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import IO, Any, SupportsFloat, SupportsIndex

import numpy as np

from fedeq import _given, _native
from fedeq._compare import Comparison, compare
from fedeq._run import Run
from fedeq._table import Table
from fedeq.data import FederationData, arrays

REFUSED, OUT_OF_TIME, INTERRUPTED = 2, 3, 130


class Sweep:
    """The folder of a sweep, and what came out point by point."""

    def __init__(self, folder: Path, found: dict[str, Any]) -> None:
        """Take over what the command says."""
        self.folder = folder
        self._found = found

    @property
    def points(self) -> Table:
        """A row a point: its settings, and means and standard deviations over its seeds."""
        return Table(_point(self._found["axes"], point) for point in self._found["points"])

    @property
    def runs(self) -> list[Run]:
        """All runs, in the order of their names."""
        return [Run(file.parent) for file in sorted(self.folder.rglob("experiment.toml"))]

    def compare(self, view: Any = None) -> Comparison:  # noqa: ANN401 (`fedeq.compare` says what)
        """Compare the points."""
        return compare(self.folder, view=view)

    def _repr_html_(self) -> str:
        """Show the points in a notebook."""
        return self.points._repr_html_()

    def __repr__(self) -> str:
        """Say where it is."""
        return f"a sweep of {len(self._found['points'])} points in {str(self.folder)!r}"


def _point(axes: Sequence[str], point: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {axis: _value(text) for axis, text in zip(axes, point["values"], strict=True)}
    row["seeds"] = len(point["seeds"])
    row["failed"] = point["failed"]
    measures = point.get("measures") or {}
    for view in ("local", "shared"):
        found = measures.get(view)
        row[f"{view}_mean"] = found and found["mean"]["mean"]
        row[f"{view}_deviation"] = found and found["mean"]["deviation"]
    return row


def _value(text: str) -> Any:  # noqa: ANN401 (whatever a setting is)
    """Read a value as it stood in the grid: TOML, or a text without quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def sweep(  # noqa: PLR0913 (what the command has, by the same names)
    config: Mapping[str, Any] | str | PathLike[str] | None = None,
    *,
    grid: Mapping[str, Sequence[Any] | str],
    out: str | PathLike[str],
    together: Mapping[str, Sequence[Any] | str] | None = None,
    seeds: Iterable[int] | None = None,
    method: str | None = None,
    model: str | None = None,
    data: str | PathLike[str] | FederationData | None = None,
    rounds: int | None = None,
    clients: int | None = None,
    lr: float | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    random: int | None = None,
    halving: int | None = None,
    budget: int | None = None,
    search_seed: int | None = None,
    jobs: int | None = None,
    device: str | None = None,
    time_budget: str | None = None,
    progress: bool | None = None,
) -> Sweep:
    """Train over a grid of settings and several seeds, as `fedeq sweep` does; the same call again continues.

    `grid` has the values that settings take in turn, by their dotted paths: `{"method": ["fedeq", "fedrep"]}`. In a
    search (`random`, `halving`, `budget`) it may also have ranges: `{"training.learning_rate": "log:0.001..0.5"}`.
    `together` has settings that change with one of the grid, and as many values: `{"model": ["deq-mlp", "mlp"]}`. What
    all runs have in common is said as for `fedeq.run`; arrays are kept in the folder `out`.

    >>> import fedeq
    >>> small = {"method": "fedavg", "model": "linear", "rounds": 2}
    >>> grid = {"training.learning_rate": [0.01, 0.1]}
    >>> sweep = fedeq.sweep(**small, grid=grid, seeds=range(2), out="sweeps/rate", progress=False)
    >>> sweep.points["training.learning_rate"], sweep.points["seeds"], len(sweep.runs)
    ([0.01, 0.1], [2, 2], 4)
    """
    folder = _given.path(out, "out")
    words = [*_experiment(config, settings), "--out", str(folder), *_axes("grid", grid)]
    words += _axes("with", {} if together is None else together, "together")
    if seeds is not None:
        words += ["--seeds", ",".join(_seeds(seeds))]
    search = {"random": random, "halving": halving, "budget": budget, "search-seed": search_seed}
    short = {"method": method, "model": model, "rounds": rounds, "clients": clients, "lr": lr, "preset": preset}
    words += _options({**short, **search, "jobs": jobs, "device": device, "time-budget": time_budget})
    words += _data(data, folder)
    return Sweep(folder, json.loads(carry_out(["sweep", "--json", *words], progress=progress)))


def _data(data: object, folder: Path) -> list[str]:
    """Say where the data is; arrays become a file in the folder."""
    if data is None:
        return []
    if isinstance(data, Mapping):
        held = arrays(data)
        folder.mkdir(parents=True, exist_ok=True)
        held.save(folder / "data.safetensors")
        return ["--data", str(folder / "data.safetensors")]
    where = _given.path(data, "data")
    is_name = isinstance(data, str) and not where.exists()
    return ["--set", f"data={toml(data)}"] if is_name else ["--data", str(where)]


def reproduce(  # noqa: PLR0913
    name: str,
    *,
    scale: str | None = None,
    seeds: int | None = None,
    only: Iterable[str] = (),
    data: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    runs: str | PathLike[str] | None = None,
    jobs: int | None = None,
    device: str | None = None,
    time_budget: str | None = None,
    progress: bool | None = None,
) -> Path:
    """Reproduce a table or figure of the paper, or one of ours, as `fedeq reproduce` does; give the results' folder.

    `fedeq reproduce --list` names all of them. The same call again skips what is finished.

    >>> import fedeq
    >>> fedeq.reproduce("table-9")
    Traceback (most recent call last):
    fedeq.Refused: ...
    """
    paths = {"data": data, "out": out, "runs": runs}
    words = _options(
        {"scale": scale, "seeds": seeds, "jobs": jobs, "device": device, "time-budget": time_budget, **paths}
    )
    for cell in only:
        words += ["--only", cell]
    carry_out(["reproduce", *words, "--", name], progress=progress)
    on_gpu = device is not None and device.startswith("cuda")
    return Path(out) if out is not None else Path("experiments") / (f"{name}-cuda" if on_gpu else name)


def _options(options: Mapping[str, object]) -> list[str]:
    return [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]


def _axes(option: str, given: object, name: str | None = None) -> list[str]:
    """Give settings with the values that they take in turn as words of the command line."""
    name = name or option
    words = []
    for key, values in _given.mapping(given, name, '{"method": ["fedeq", "fedrep"]}').items():
        if not isinstance(values, Iterable) or isinstance(values, Mapping):
            _given.refuse(f"`{name}` has `{values!r}` for `{key}`", "give a list of the values that it takes in turn")
        # A text is a range, or values as they are typed.
        words += [f"--{option}", f"{key}={values if isinstance(values, str) else ','.join(map(toml, values))}"]
    return words


def _seeds(seeds: object) -> list[str]:
    if isinstance(seeds, SupportsIndex):
        hint = f"give the seeds themselves, such as `range({seeds.__index__()})`"
        _given.refuse(f"`seeds` is a number, `{seeds}`", hint)
    found = list(seeds) if isinstance(seeds, Iterable) and not isinstance(seeds, str | bytes) else []
    if not found or not all(isinstance(seed, SupportsIndex) for seed in found):
        _given.refuse(f"`seeds` is `{seeds!r}`", "give whole numbers, such as `range(5)`")
    return [str(seed.__index__()) for seed in found]


def _experiment(
    config: Mapping[str, Any] | str | PathLike[str] | None, settings: Mapping[str, Any] | None
) -> list[str]:
    """Give an experiment as words of the command line."""
    told = {} if settings is None else _given.mapping(settings, "settings", '{"plan.rounds": 20}')
    if isinstance(config, Mapping):
        told = {**leaves(config), **told}
    words = [word for key, value in told.items() for word in ("--set", f"{key}={toml(value)}")]
    return words if config is None or isinstance(config, Mapping) else [*words, str(_given.path(config, "config"))]


def leaves(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Give the values of nested dictionaries by their dotted paths."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        below = leaves(value, f"{before}{key}.") if isinstance(value, Mapping) and value else {f"{before}{key}": value}
        found.update(below)
    return found


def toml(value: object) -> str:
    """Write a value as TOML."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, str | PathLike):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(str(key))} = {toml(below)}" for key, below in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, SupportsIndex):
        return str(value.__index__())
    if not isinstance(value, SupportsFloat):
        problem = f"`{value!r}` of the type `{type(value).__name__}` is no setting's value"
        _given.refuse(problem, "give a number, a text, a truth value, a path, a list or a dictionary of these")
    number = float(value)
    return repr(number) if math.isfinite(number) else str(number)


def carry_out(words: Sequence[str], *, progress: bool | None) -> str:
    """Run a command to its end and give its output; Ctrl-C stops it at a checkpoint."""
    quiet = ["--quiet"] if progress is False else []
    process = subprocess.Popen(  # noqa: S603 (the program is this one)
        [sys.executable, "-m", "fedeq", words[0], *quiet, *words[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        # Ctrl-C reaches it once: through us.
        process_group=None if sys.platform == "win32" else 0,
    )
    stdout, stderr = process.stdout, process.stderr
    assert stdout is not None  # They are pipes.
    assert stderr is not None
    output: list[str] = []
    reader = threading.Thread(target=lambda: output.append(stdout.read()))
    reader.start()
    errors: list[str] = []
    interrupted = False
    while True:
        try:
            _pass_on(stderr, errors)
            code = process.wait()
            break
        except KeyboardInterrupt:
            if interrupted:
                process.kill()
            interrupted = True
            # On Windows the console has told it already.
            if sys.platform != "win32":
                process.send_signal(signal.SIGINT)
    reader.join()
    text = "\n".join(errors)
    if interrupted:
        raise KeyboardInterrupt(text or "stopped\nhint: the same call again continues")
    if code != 0:
        raise _exception(code, text)
    return output[0]


def _pass_on(stream: IO[str], errors: list[str]) -> None:
    """Show what a command says beside its output, but for the error that it ends with, which is kept."""
    for line in stream:
        text = line.rstrip("\n")
        if errors or text.startswith("error: "):
            errors.append(text.removeprefix("error: "))
        elif sys.stderr is not None:
            print(text, file=sys.stderr, flush=True)  # noqa: T201 (progress goes to stderr)


def _exception(code: int, text: str) -> Exception:
    if code == REFUSED:
        return _native.Refused(text)
    if code in {OUT_OF_TIME, INTERRUPTED}:
        return _native.Stopped(text or "the time is over\nhint: the same call again continues")
    return _native.FedeqError(text or f"the command ended with {code}\nhint: see what it said before")
