"""The outcome as Markdown."""

from .outcome import Outcome, Share, Side

HEADER = "| work | ours | other side | ratio | target | reached | memory of ours | of the other side | commit, machine |"
RULE = "|---|---|---|---|---|---|---|---|---|"


def markdown(rows: list[Outcome | Share]) -> str:
    """The table, what it was measured on and what it says about agreement."""
    machines = list(dict.fromkeys(row.machine for row in rows))
    lines = [HEADER, RULE, *(line_of(row, machines) for row in rows), "", READING, ""]
    lines += [f"Machine {place}: {machine}." for place, machine in enumerate(machines, start=1)] + [""]
    lines += ["| the same on both sides | between | the one | the other | relative difference |", "|---|---|---|---|---|"]
    lines += [agreement for row in rows if isinstance(row, Outcome) for agreement in agreements_of(row)]
    return "\n".join(lines)


READING = (
    "Times: median (smallest - largest) over all repeats. Ratio: the other side's median by ours, above 1 is faster. "
    "Memory, in MB: the process's peak (in brackets: above what it held before it began); of a row on a GPU, what it held of the device's at most."
)


def line_of(row: Outcome | Share, machines: list[str]) -> str:
    """One row, with the number of its machine."""
    source = f"{row.commit}, {machines.index(row.machine) + 1}"
    if isinstance(row, Share):
        return share_line(row, source)
    cells = [titled(row.title, row.remark), times(row.ours, row.unit), f"{row.theirs.label}: {times(row.theirs, row.unit)}"]
    cells += [f"{row.ratio:.2f}x", target_of(row), yes(row.reached), memory(row.ours), memory(row.theirs), source]
    return "| " + " | ".join(cells) + " |"


def share_line(row: Share, source: str) -> str:
    reached, peak = sorted(row.reached_gflops), sorted(row.peak_gflops)
    cells = [titled(row.title, row.remark), spread(reached, "GFLOP/s"), f"peak of a core: {spread(peak, 'GFLOP/s')}"]
    cells += [f"{100 * row.share:.0f} %", f"{100 * row.target:.0f} %", yes(row.share >= row.target), "", "", source]
    return "| " + " | ".join(cells) + " |"


def titled(title: str, remark: str) -> str:
    return f"{title} ({remark})" if remark else title


def target_of(row: Outcome) -> str:
    wanted = [f"{row.target:g}x"] if row.target is not None else []
    if row.time_target is not None:
        wanted.append(f"{row.time_target:g} {row.unit}")
    if row.memory_target is not None:
        wanted.append(f"{row.memory_target:.2f} of the memory (is {row.process_share:.2f})")
    if row.work_memory_target is not None:
        wanted.append(
            f"{row.work_memory_target:.2f} of the memory above what the processes held before they began (is {row.work_share:.2f})"
        )
    return ", ".join(wanted)


def yes(reached: bool | None) -> str:
    return "" if reached is None else "yes" if reached else "**no**"


def times(side: Side, unit: str) -> str:
    return spread(sorted(side.times), unit)


def spread(values: list[float], unit: str) -> str:
    """`median (smallest - largest) unit`."""
    middle = len(values) // 2
    median = values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
    return f"{number(median)} ({number(values[0])} - {number(values[-1])}) {unit}"


def number(value: float) -> str:
    """Three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def memory(side: Side) -> str:
    inner = "" if not any(side.idles) else f" ({number(side.work_memory)})"
    return f"{number(side.peak)}{inner}"


def agreements_of(row: Outcome) -> list[str]:
    return [
        f"| {row.name}: {each.what} | {each.between} | {each.ours:.6f} | {each.theirs:.6f} | {each.difference:.1e} |"
        for each in row.agreements
    ]
