"""The command."""

import argparse
import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .bench import Bench
from .environment import HERE, build_ours, build_peer, described, machine, say, use_python
from .gpu import GPU_ROWS, within_a_budget
from .outcome import Outcome, Share, from_data
from .process import attempt
from .rows import ROWS, as_wanted
from .table import markdown

RESULTS = HERE / "results.json"
REPORT = HERE / "RESULTS.md"
BEGIN, END = "<!-- table: written by ./run --record -->", "<!-- end of table -->"
BUSY = 0.5


def main() -> int:
    """Builds, measures, prints; 0 if every row was measured."""
    options = parse()
    if options.measured:
        return show(json.loads(options.measured.read_text())["rows"], options.record)
    try:
        program = Path(options.program).resolve() if options.program else build_ours()
        use_python(Path(options.python)) if options.python else build_peer()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    conditions = machine()
    if options.commit:
        conditions["commit"] = options.commit
    if float(conditions["load before"]) > BUSY:
        say(f"warning: the machine is busy (load {conditions['load before']}); figures will scatter")
    names = options.rows or [name for name in ROWS if (name in GPU_ROWS) == options.gpu]

    def note(rows: list[Outcome | Share]) -> None:
        for row in rows:
            row.commit, row.machine = conditions["commit"], described(conditions)
        if options.json:
            write_figures(options.json, rows)

    bench = bench_of(options, program)
    if options.budget is None:
        rows = measure(names, bench)
    else:
        rows = within_a_budget([GPU_ROWS[name] for name in names], bench, note)
    note(rows)
    print(markdown(rows))
    if options.record:
        record(rows)
    return 0 if {row.name for row in rows} >= set(names) else 1


def show(rows: list[dict[str, Any]], recorded: bool) -> int:
    """Rows that were measured elsewhere."""
    outcomes = [as_wanted(from_data(row)) for row in rows]
    print(markdown(outcomes))
    if recorded:
        record(outcomes)
    return 0


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="run", description="Our program against PyTorch and Flower, interleaved.")
    parser.add_argument(
        "rows",
        nargs="*",
        type=row_name,
        metavar="ROW",
        help=f"rows to measure, of {', '.join(ROWS)}; all that need no GPU if none",
    )
    parser.add_argument("--quick", action="store_true", help="small work and one repeat: whether it runs, not how fast")
    parser.add_argument("--repeats", type=int, default=5, help="processes of each side a row (default 5)")
    parser.add_argument("--threads", type=int, default=1, help="threads of a training step (default 1)")
    parser.add_argument(
        "--workers", type=int, default=min(2, os.cpu_count() or 1), help="clients side by side in rounds (default 2)"
    )
    parser.add_argument("--data", type=Path, help="folder with LEAF's FEMNIST; made-up data of the same shapes if left out")
    parser.add_argument("--record", action="store_true", help="also write these rows into RESULTS.md")
    parser.add_argument("--gpu", action="store_true", help="all rows that need an NVIDIA GPU, if no rows are named")
    parser.add_argument("--python", help="a python with PyTorch and safetensors (default: a virtual environment is made)")
    parser.add_argument("--program", help="our program, already built (default: build it)")
    parser.add_argument("--commit", help="what it was built from, where there is no checkout to ask")
    parser.add_argument("--json", type=Path, help="also write every figure of these rows to this file")
    parser.add_argument(
        "--measured",
        type=Path,
        metavar="FILE",
        help="measure nothing: the rows that --json has written, perhaps on another machine",
    )
    parser.add_argument(
        "--budget", type=float, metavar="SECONDS", help="GPU rows in the order named, as many as so many seconds are enough for"
    )
    options = parser.parse_args()
    if options.budget is not None and not (options.gpu or options.rows and GPU_ROWS.keys() >= set(options.rows)):
        parser.error("`--budget` is for rows that need a GPU: add `--gpu`, or name such rows only")
    return options


def row_name(text: str) -> str:
    """A row that there is."""
    if text not in ROWS:
        raise argparse.ArgumentTypeError(f"there is no row `{text}`; choose from {', '.join(ROWS)}")
    return text


def bench_of(options: argparse.Namespace, program: Path) -> Bench:
    """How to measure."""
    repeats = 1 if options.quick else options.repeats
    deadline = None if options.budget is None else time.monotonic() + options.budget
    return Bench(program, repeats, options.quick, options.threads, options.workers, femnist_in(options.data), deadline)


def femnist_in(folder: Path | None) -> Path | None:
    """The first file of LEAF's FEMNIST below a folder; it holds some hundred writers."""
    if folder is None:
        return None
    files = sorted(folder.rglob("all_data*.json"))
    if not files:
        sys.exit(f"error: no all_data*.json below `{folder}`\nhint: give the folder of LEAF's FEMNIST, or leave out --data")
    return files[0].resolve()


def measure(names: list[str], bench: Bench) -> list[Outcome | Share]:
    """Row after row."""
    rows: list[Outcome | Share] = []
    for name in names:
        say(name)
        rows += attempt(name, functools.partial(ROWS[name], bench)) or []
    return rows


def record(rows: list[Outcome | Share]) -> None:
    """Figures to a file and the table into the report; rows that were not measured this time stay as they are."""
    recorded = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    known = {row.name: as_wanted(row) for row in (*map(from_data, recorded), *rows)}
    order = {name: place for place, name in enumerate(ROWS)}
    everything = sorted(known.values(), key=lambda row: order.get(row.name.removesuffix("-plain"), len(order)))
    write_figures(RESULTS, everything)
    write_report(markdown(everything))


def write_figures(path: Path, rows: list[Outcome | Share]) -> None:
    """Every single figure."""
    path.write_text(json.dumps({"rows": [row.as_data() for row in rows]}, indent=2) + "\n")


def write_report(table: str) -> None:
    """Puts the table in its place in RESULTS.md."""
    text = REPORT.read_text() if REPORT.exists() else f"# Results\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    REPORT.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
