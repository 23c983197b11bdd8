"""Many runs at once: sweeps and reproductions, each carried out by the command `fedeq` in a process of its own."""

import filecmp
import json
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Literal, Never, SupportsIndex

from fedeq import _given, _native
from fedeq._compare import Comparison, compare
from fedeq._run import Run, plain
from fedeq._table import Table
from fedeq.data import FederationData, arrays

REFUSED, OUT_OF_TIME, INTERRUPTED = 2, 3, 130


class Sweep:
    """The folder of a sweep, and what came out point by point.

    >>> import fedeq
    >>> grid = {"method": ["fedavg", "local"]}
    >>> sweep = fedeq.sweep(grid=grid, model="linear", rounds=1, out="sweeps/methods", progress=False)
    >>> sweep
    a sweep of 2 points in 'sweeps/methods'
    >>> [row["method"] for row in sweep.points], sweep.compare().table["method"]
    (['fedavg', 'local'], ['fedavg', 'local'])
    """

    def __init__(self, folder: Path, found: dict[str, Any]) -> None:
        """Take over what the command says."""
        self._folder = folder
        self._found = found

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self._folder

    @property
    def points(self) -> Table:
        """A row a point: its settings, and means and standard deviations over its seeds.

        With `halving`, those that were trained to their end; `search.csv` in the folder says how far all others came.
        """
        return Table(_point(self._found["axes"], point) for point in self._found["points"])

    @property
    def runs(self) -> list[Run]:
        """All runs, in the order of their names."""
        return [Run(file.parent) for file in sorted(self.folder.rglob("experiment.toml"))]

    def compare(self, view: Literal["local", "shared"] | None = None) -> Comparison:
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
    method: str | Mapping[str, Any] | None = None,
    model: str | Mapping[str, Any] | None = None,
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
    **unknown: Never,
) -> Sweep:
    """Train over a grid of settings and several seeds, as `fedeq sweep` does; the same call again continues.

    `grid` has the values that settings take in turn, by their dotted paths: `{"method": ["fedeq", "fedrep"]}`. In a
    search (`random`, `halving`, `budget`) it may also have ranges: `{"training.learning_rate": "log:0.001..0.5"}`.
    `together` has settings that change with one of the grid, and as many values: `{"model": ["deq-mlp", "mlp"]}`. What
    all runs have in common is said as for `fedeq.run`; arrays are kept in the folder `out`, which keeps to them. Runs
    are processes of their own, so that there is no `network` here: call `fedeq.run` in a loop, and compare.

    >>> import fedeq
    >>> small = {"method": "fedavg", "model": "linear", "rounds": 2}
    >>> grid = {"training.learning_rate": [0.01, 0.1]}
    >>> sweep = fedeq.sweep(**small, grid=grid, seeds=range(2), out="sweeps/rate", progress=False)
    >>> sweep.points["training.learning_rate"], sweep.points["seeds"], len(sweep.runs)
    ([0.01, 0.1], [2, 2], 4)
    """
    if "network" in unknown:
        hint = "call `fedeq.run(network=..)` in a loop, each run below the same folder, and `fedeq.compare` that folder"
        _given.refuse("a sweep takes no `network`: its runs are processes of their own, which do not have it", hint)
    folder = _given.path(out, "out")
    axes = ["--out", str(folder), *_axes("grid", grid)]
    axes += _axes("with", {} if together is None else together, "together")
    if seeds is not None:
        axes += ["--seeds", ",".join(_seeds(seeds))]
    axes += _options({"random": random, "halving": halving, "budget": budget, "search-seed": search_seed, "jobs": jobs})
    axes += _options({"time-budget": time_budget})
    named: dict[str, Any] = {"method": method, "model": model, "rounds": rounds, "clients": clients, "lr": lr}
    named |= {"preset": preset, "device": device, **unknown}
    if data is not None and not isinstance(data, Mapping):
        named["data"] = data if isinstance(data, str) else _given.path(data, "data")
    with _experiment(config, named, settings) as words, _kept(data, folder) as place:
        return Sweep(folder, json.loads(carry_out(["sweep", "--json", *words, *axes, *place], progress=progress)))


@contextmanager
def _kept(data: object, folder: Path) -> Iterator[list[str]]:
    """Keep arrays in the folder of a sweep, and say where; a sweep that is refused leaves nothing behind."""
    if not isinstance(data, Mapping):
        yield []
        return
    if folder.exists() and not folder.is_dir():
        _given.refuse(f"`{folder}` is no folder", "give another `out`")
    held, file = arrays(data), folder / "data.safetensors"
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    begun, is_new = _begun(folder), not file.exists()
    with TemporaryDirectory(prefix=".fedeq-", dir=made[-1].parent if made else folder) as aside:
        written = Path(aside) / file.name
        held.save(written)
        if is_new:
            folder.mkdir(parents=True, exist_ok=True)
            written.replace(file)
        elif not filecmp.cmp(written, file, shallow=False):
            problem = f"`data` has other arrays than `{file}`, by which this sweep was begun"
            _given.refuse(problem, "give the same arrays, or another folder as `out`")
    try:
        yield ["--data", str(file)]
    except _native.Refused:
        if is_new and _begun(folder) == begun:
            file.unlink()
            # Whatever else is in a folder keeps it.
            with suppress(OSError):
                for path in made:
                    path.rmdir()
        raise


def _begun(folder: Path) -> set[Path]:
    return set(folder.rglob("experiment.toml"))


class Reproduction:
    """Experiments that were reproduced: where their results are, and what they are.

    >>> import fedeq
    >>> forecast = fedeq.reproduce("fig-dual", only="rho-fedrep", seeds=1, dry_run=True, progress=False)
    >>> "1 cell, 1 seed" in str(forecast), forecast.folders
    (True, {})
    """

    def __init__(self, said: str, *, is_forecast: bool) -> None:
        """Take over what the command says."""
        found = [] if is_forecast else json.loads(said)
        self._forecast = said if is_forecast else None
        self._found: list[dict[str, Any]] = found if isinstance(found, list) else [found]

    @property
    def folders(self) -> dict[str, Path]:
        """The folder of the results of every experiment, by its name; none after a dry run."""
        return {one["experiment"]: Path(one["folder"]) for one in self._found}

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """What came out of every cell so far, by experiment; none after a dry run."""
        return {one["experiment"]: one["cells"] for one in self._found}

    def __str__(self) -> str:
        """Give the forecast of a dry run, or say where the results are."""
        if self._forecast is not None:
            return self._forecast.rstrip("\n")
        return "\n".join(f"{name}: {len(self.results[name])} cells in {str(at)!r}" for name, at in self.folders.items())

    def __repr__(self) -> str:
        """Say the same where there is no `print`."""
        return str(self)


def reproduce(  # noqa: PLR0913
    *names: str,
    scale: str | None = None,
    seeds: int | None = None,
    only: str | Iterable[str] = (),
    settings: Mapping[str, Any] | None = None,
    data: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    runs: str | PathLike[str] | None = None,
    state: str | PathLike[str] | None = None,
    dry_run: bool = False,
    publish: bool = False,
    discard_models: bool = False,
    jobs: int | None = None,
    device: str | None = None,
    time_budget: str | None = None,
    progress: bool | None = None,
) -> Reproduction:
    """Reproduce tables and figures of the paper, or of ours, as `fedeq reproduce` does; say where the results are.

    `fedeq reproduce --list` names all of them; several are one queue. The same call again skips what is finished.
    `only` has the cells that are wanted, such as `"fedeq-*"`. `settings` go over those of the experiments, by their
    dotted paths, and need an `out`. `state` is a folder, or an archive that ends in `.tar.gz`, by which another machine
    continues. `dry_run` runs nothing and says what would run and how long, `publish` runs nothing and writes what there
    is; `discard_models` keeps what was measured and no models.

    >>> import fedeq
    >>> fedeq.reproduce("table-9")
    Traceback (most recent call last):
    fedeq.Refused: ...
    """
    if not names:
        _given.refuse("no experiment is named", "name some; `fedeq reproduce --list` lists all")
    cells = [only] if isinstance(only, str) else _given.texts(only, "only", '["fedeq-*"]')
    paths = {"data": data, "out": out, "runs": runs, "state": state}
    flags = {"dry-run": dry_run, "publish": publish, "discard-models": discard_models}
    words = _options({"scale": scale, "seeds": seeds, "jobs": jobs, "device": device, "time-budget": time_budget})
    words += _options({name: _given.path(path, name) for name, path in paths.items() if path is not None})
    words += [f"--{name}" for name, flag in flags.items() if _given.truth(flag, name.replace("-", "_"))]
    words += [word for cell in cells for word in ("--only", cell)]
    with _experiment(None, {}, settings) as told:
        named = ["--", *(_given.text(name, "name", "fig-rho") for name in names)]
        said = carry_out(["reproduce", "--json", *words, *told, *named], progress=progress)
    return Reproduction(said, is_forecast=dry_run)


def _options(options: Mapping[str, object]) -> list[str]:
    return [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]


def _axes(option: str, given: object, name: str | None = None) -> list[str]:
    """Give settings with the values that they take in turn as words of the command line."""
    name = name or option
    words = []
    for key, values in _given.mapping(given, name, '{"method": ["fedeq", "fedrep"]}').items():
        if not isinstance(values, Iterable) or isinstance(values, Mapping):
            _given.refuse(f"`{name}` has `{values!r}` for `{key}`", "give a list of the values that it takes in turn")
        path = _given.text(key, f"a key of {name}", "training.learning_rate")
        # A text is a range, or values as they are typed.
        typed = values if isinstance(values, str) else _native.in_turn(path, [plain(value) for value in values])
        words += [f"--{option}", f"{path}={typed}"]
    return words


def _seeds(seeds: object) -> list[str]:
    if isinstance(seeds, SupportsIndex):
        hint = f"give the seeds themselves, such as `range({seeds.__index__()})`"
        _given.refuse(f"`seeds` is a number, `{seeds}`", hint)
    found = list(seeds) if isinstance(seeds, Iterable) and not isinstance(seeds, str | bytes) else []
    if not found or not all(isinstance(seed, SupportsIndex) for seed in found):
        _given.refuse(f"`seeds` is `{seeds!r}`", "give whole numbers, such as `range(5)`")
    return [str(seed.__index__()) for seed in found]


@contextmanager
def _experiment(
    config: Mapping[str, Any] | str | PathLike[str] | None,
    named: Mapping[str, Any],
    settings: Mapping[str, Any] | None,
) -> Iterator[list[str]]:
    """Give an experiment as words of the command line, read as by `fedeq.run`; a dictionary is a file meanwhile."""
    more = {} if settings is None else plain(_given.mapping(settings, "settings", '{"plan.rounds": 20}'))
    keywords = {name: plain(value) for name, value in named.items() if value is not None}
    told = plain(config) if isinstance(config, Mapping) else None
    file, words = _native.words(told, keywords, more)
    if config is None:
        yield words
    elif file is None:
        yield [*words, str(_given.path(config, "config"))]
    else:
        with TemporaryDirectory(prefix="fedeq-") as folder:
            path = Path(folder) / "experiment.toml"
            path.write_text(file, encoding="utf-8")
            yield [*words, str(path)]


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
