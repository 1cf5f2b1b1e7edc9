# SPDX-License-Identifier: BSD-2-Clause
"""The same figures in any table that people draw are the same figures."""

from __future__ import annotations

import io
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from pagepool.results.reader import read_stream

TESTS = [
    "tasklet_page_pool01_fast_path", "tasklet_page_pool02_ptr_ring", "tasklet_page_pool03_slow",
    "no-softirq-page_pool01", "no-softirq-page_pool03", "page_pool_cross_cpu",
]  # fmt: skip
BUILDS = ["baseline", "v6.12", "6.13.0-rc6+", "with fix", "patch 1-4", "07ea810753bd", "xarray"]
#: What stands between cells, before and behind them, and below the head.
DRESSES = ["markdown", "org", "drawn", "blanks", "rule", "tabs", "commas"]

WAYS = ["builds beside", "builds above units", "builds in a column", "tests beside"]


class Figure(NamedTuple):
    """What one test cost in one build."""

    cycles: int
    ns: str


class Table(NamedTuple):
    """Figures of tests (rows) and builds (columns), and how they are set."""

    tests: list[str]
    builds: list[str]
    figures: list[list[Figure]]
    what: str
    way: str
    dress: str
    has_change: bool
    missing: tuple[int, int] | None
    added: str
    quoted: int


figures = st.builds(
    Figure,
    st.integers(1, 99999),
    st.builds("{}.{:03}".format, st.integers(0, 99999), st.integers(0, 999)),
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    tests = draw(st.lists(st.sampled_from(TESTS), min_size=2, max_size=5, unique=True))
    builds = draw(st.lists(st.sampled_from(BUILDS), min_size=2, max_size=3, unique=True))
    row = st.lists(figures, min_size=len(builds), max_size=len(builds))
    return Table(
        tests,
        builds,
        draw(st.lists(row, min_size=len(tests), max_size=len(tests))),
        draw(st.sampled_from(["ns", "cycles", "both", "pair", "pair without units"])),
        draw(st.sampled_from(WAYS)),
        draw(st.sampled_from(DRESSES)),
        draw(st.booleans()),
        draw(
            st.none() | st.tuples(st.integers(0, len(tests) - 1), st.integers(0, len(builds) - 1))
        ),
        draw(st.sampled_from(["", "", " (+3.7%)", " +- 0.2", " \u00b1 2%"])),
        draw(st.integers(0, 2)),
    )


def cells_of(it: Table, test: int, build: int) -> list[str]:
    figure = it.figures[test][build]
    if (test, build) == it.missing:
        return ["-"] * len(units_of(it))
    if it.what in ("ns", "cycles") and build:
        return [
            getattr(figure, it.what) + it.added if it.what == "ns" else f"{figure.cycles}{it.added}"
        ]
    if it.what == "pair":
        return [f"{figure.cycles} cycles ({figure.ns} ns)"]
    if it.what == "pair without units":
        return [f"{figure.cycles}/{figure.ns}"]
    return {
        "ns": [figure.ns], "cycles": [str(figure.cycles)], "both": [str(figure.cycles), figure.ns]
    }[it.what]  # fmt: skip


def units_of(it: Table) -> list[str]:
    if it.what == "both":
        return ["cycles", "ns"]
    return [{"pair": "", "pair without units": "cycles/ns"}.get(it.what, it.what)]


def rows_of(it: Table) -> list[list[str]]:
    """The head and the rows."""
    units, tests, builds = units_of(it), range(len(it.tests)), range(len(it.builds))
    if it.way.startswith("builds in"):
        head = ["test", "kernel", *(unit or "cost" for unit in units)]
        return [head] + [
            [it.tests[test], it.builds[build], *cells_of(it, test, build)]
            for test in tests
            for build in builds
        ]
    if it.way == "tests beside":
        head = [
            "kernel",
            *(f"{test} ({unit})" if unit else test for test in it.tests for unit in units),
        ]
        return [head] + [
            [it.builds[build], *(cell for test in tests for cell in cells_of(it, test, build))]
            for build in builds
        ]
    heads = [["test", *(f"{build} {unit}".strip() for build in it.builds for unit in units)]]
    if it.way == "builds above units":
        above = [cell for build in it.builds for cell in [build, *[""] * (len(units) - 1)]]
        heads = [["", *above], ["test", *units * len(builds)]]
    rows = [
        [it.tests[test], *(cell for build in builds for cell in cells_of(it, test, build))]
        for test in tests
    ]
    if it.has_change:
        for row in heads:
            row.append("")
        heads[-1][-1] = "diff"
        for row in rows:
            row.append("+3.7%")
    return [*heads, *rows]


def text_of(it: Table) -> str:
    rows = rows_of(it)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    head, dashes = 1 + (it.way == "builds above units"), ["-" * (width + 2) for width in widths]
    bars = [f"| {' | '.join(row)} |" for row in padded]
    if it.dress == "markdown":
        lines = [*bars[:head], f"|{'|'.join(dashes)}|", *bars[head:]]
    elif it.dress == "org":
        lines = [*bars[:head], f"|{'+'.join(dashes)}|", *bars[head:]]
    elif it.dress == "drawn":
        rule = f"+{'+'.join(dashes)}+"
        lines = [rule, *bars[:head], rule, *bars[head:], rule]
    elif it.dress in ("blanks", "rule"):
        lines = ["   ".join(row).rstrip() for row in padded]
        if it.dress == "rule":
            lines[head:head] = ["-" * len(lines[0])]
    elif it.dress == "tabs":
        lines = ["\t".join(row) for row in rows]
    else:
        lines = [",".join(row) for row in rows]
    text = "\n".join(["Hi,", "", "this is what I get:", "", *lines, "", "Thanks,", "me", ""])
    marks = "> " * it.quoted
    return "".join(f"{marks}{line}".rstrip() + "\n" for line in text.splitlines())


@settings(max_examples=500, deadline=None)
@given(tables())
def test_any_table_has_the_figures_that_were_set(it: Table) -> None:
    text = text_of(it)
    found = {
        build.label: {
            r.name: (r.cycles_printed, None if r.ns_printed is None else str(r.ns_printed))
            for r in build.records
        }
        for build in read_stream(io.BytesIO(text.encode()), "mail.txt").builds
    }
    wanted: dict[str, dict[str, tuple[int | None, str | None]]] = {}
    for test, row in enumerate(it.figures):
        for build, figure in enumerate(row):
            if (test, build) != it.missing:
                wanted.setdefault(it.builds[build], {})[it.tests[test]] = (
                    figure.cycles if it.what != "ns" else None,
                    figure.ns if it.what != "cycles" else None,
                )
    assert found == wanted, text
