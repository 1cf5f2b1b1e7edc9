# SPDX-License-Identifier: BSD-2-Clause
"""Lists what was read: builds, runs, every figure, every oddity. Plain text."""

from __future__ import annotations

from collections.abc import Iterator

from pagepool.results.lines import clean
from pagepool.results.model import Build, Key, Record, ResultSet
from pagepool.results.words import count, counter_ghz, hertz, test_names

#: Runs that fit beside each other; a longer series goes on below.
_RUNS_A_LINE = 6


def listing(file: str, results: ResultSet) -> str:
    """Everything in one file, ending with a newline. Figures are cycles/nanoseconds."""
    return "\n".join(clean(line) for line in _lines(file, results)) + "\n"


def summary(file: str, results: ResultSet) -> str:
    """One line: how many builds, runs and records."""
    runs = sum(len(build.runs) for build in results.builds)
    records = sum(len(build.records) for build in results.builds)
    counts = [
        count(len(results.builds), "build"),
        count(runs, "run"),
        count(records, "record"),
    ]
    return f"{file}: {', '.join(counts)}"


def _lines(file: str, results: ResultSet) -> Iterator[str]:
    yield summary(file, results)
    for build in results.builds:
        yield ""
        yield from _build(build)
    if results.oddities:
        yield ""
        yield from map(str, results.oddities)


def _build(build: Build) -> Iterator[str]:
    loops = sorted({run.loops for run in build.runs if run.loops})
    facts = [count(len(build.runs), "run"), count(len(build.records), "record")]
    if loops:
        facts.append(f"loops {'/'.join(map(str, loops))}")
    if (clock := counter_ghz(build.records)) is not None:
        facts.append(f"counter {hertz(clock)}")
    yield f"{build.label}: {', '.join(facts)}"
    if build.heading and build.heading.rstrip(":") != build.label:
        yield f"  heading: {build.heading}"
    if build.kernel:
        yield f"  kernel: {build.kernel}"
    for fact, value in build.machine.items():
        yield f"  {fact}: {value}"
    rows: dict[Key, list[Record | None]] = {}
    for number, run in enumerate(build.runs):
        for record in run.records:
            row = rows.setdefault(record.key, [])
            row += [None] * (number - len(row))
            row.append(record)
    names = test_names(rows)
    width = max(map(len, names.values()), default=0)
    for first in range(0, len(build.runs), _RUNS_A_LINE):
        runs = range(first, min(first + _RUNS_A_LINE, len(build.runs)))
        if len(build.runs) > 1:
            head = "".join(f"{f'run {number + 1}':>{_CELL}}" for number in runs)
            yield f"  {'':{width}}{head}"
        for key, row in rows.items():
            cells = [row[number] if number < len(row) else None for number in runs]
            if any(cells):
                yield f"  {names[key]:{width}}{''.join(map(_figures, cells))}".rstrip()


_CELL = 16


def _figures(record: Record | None) -> str:
    if record is None:
        return f"{'-':>{_CELL}}"
    cycles = "-" if record.cycles_printed is None else record.cycles_printed
    ns = "-" if record.ns_printed is None else record.ns_printed
    mark = "!" if record.oddities else ""
    text = f"{cycles}/{ns}{mark}"
    if record.pps is not None:
        text = f"{record.pps:,} pps{mark}"
    elif record.events is not None:
        text = f"{record.events:,}{mark}"
    if (instructions := record.instructions_per_elem) is not None:
        text += f" ({instructions:.1f} instr)"
    return f"  {text:>{_CELL - 2}}"
