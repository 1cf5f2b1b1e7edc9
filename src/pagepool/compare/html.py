# SPDX-License-Identifier: BSD-2-Clause
"""A report as one page of HTML: what moved in words, the tables, every run as a point.

The page needs no network and no JavaScript, and refuses both by its own policy. What it says is
collected here; `charts` has the geometry of its pictures, ``templates`` the markup, in which all
text is escaped.

A page is to stay below `LIMIT`. Of a large report the pictures give way, in the order of `Detail`,
never a table or a sentence; the page says what it left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cache
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from pagepool.compare import charts, formats
from pagepool.compare.charts import UNITS, Chart, Foot, Measured
from pagepool.compare.formats import Column, Grid, Step, interval
from pagepool.compare.report import Comparison, Report, Row, Side
from pagepool.compare.statistics import median_index
from pagepool.compare.verdict import Verdict
from pagepool.results.lines import clean
from pagepool.results.model import Key
from pagepool.results.words import count, counter_text

#: Bytes that a page may have.
LIMIT = 1_000_000

#: The words of verdicts in the order of a summary.
_ORDER = ("slower", "faster", "inconclusive", "unstable", "same", "no verdict")


class Detail(IntEnum):
    """What the pictures of a page have."""

    #: Each run a point that says its number and line, and the values below as text.
    RUNS = 0
    #: Each run a point.
    POINTS = 1
    #: Of each build the range and the median.
    RANGES = 2
    #: No pictures.
    TABLES = 3


#: What a page with less leaves out.
_LEFT_OUT = {
    Detail.POINTS: "which run a point is, the lists of values",
    Detail.RANGES: "single runs (pictures have the range and the median of each build)",
    Detail.TABLES: "the pictures",
}
#: A point is not told in fewer bytes.
_POINT_BYTES = {Detail.RUNS: 60, Detail.POINTS: 6, Detail.RANGES: 0, Detail.TABLES: 0}


class Finding(NamedTuple):
    """One thing that is said of a test: its verdict in a word, where, and the rest of it.

    ``values``: of a build, all that its runs gave.
    """

    kind: str
    name: str
    anchor: str
    where: str
    text: str
    values: tuple[tuple[str, str], ...] = ()


class Table(NamedTuple):
    """A table with two rows of heads: (text, columns, rows) of the first, texts of the second.

    ``words`` are the columns that have a verdict, ``anchors`` where the rows lead to.
    """

    caption: str
    top: list[tuple[str, int, int]]
    bottom: list[str]
    rows: list[list[str]]
    controls: list[list[str]]
    words: list[int]
    anchors: list[str]


class Section(NamedTuple):
    """One comparison: what it found, its table, and the sentences that stand below it."""

    name: str
    anchor: str
    counts: list[tuple[str, str]]
    findings: list[Finding]
    warnings: list[str]
    table: Table
    notes: list[str]


class Test(NamedTuple):
    """One test: its picture, and in a series its table."""

    name: str
    anchor: str
    is_control: bool
    chart: Chart | None
    table: Table | None


class Overview(NamedTuple):
    """Verdicts of each test (a row: name, anchor) and build (a column): kind and size."""

    caption: str
    builds: list[str]
    rows: list[tuple[str, str, list[tuple[str, str]]]]


class BuildFacts(NamedTuple):
    """What is known of one build, beside what is the same of all."""

    side: Side
    kernel: str
    facts: list[tuple[str, str]]


class Page(NamedTuple):
    """Everything on the page."""

    title: str
    lead: str
    is_series: bool
    counts: list[tuple[str, str]]
    findings: list[list[Finding]]
    overview: Overview | None
    sections: list[Section]
    tests: list[Test]
    builds: list[BuildFacts]
    shared: list[tuple[str, str]]
    rule: str
    controls: str
    notes: list[str]
    margin: str
    detail: Detail
    left_out: str
    foot: Foot
    first: str


class _Names:
    """Anchors of tests and comparisons: readable, and each given once."""

    def __init__(self) -> None:
        self._of: dict[object, str] = {}
        self._taken = {"top", "how", "summary", "builds", "notes"}

    def __call__(self, what: object, text: str) -> str:
        """The anchor of ``what``, made of ``text`` if it has none yet."""
        if what not in self._of:
            stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-") or "x"
            anchor, number = stem, 1
            while anchor in self._taken:
                number += 1
                anchor = f"{stem}-{number}"
            self._taken.add(anchor)
            self._of[what] = anchor
        return self._of[what]


class _View(NamedTuple):
    """The report as the page looks at it: every run, a row and the name of each test."""

    report: Report
    detail: Detail
    measured: dict[Key, Measured]
    rows: dict[Key, Row]
    names: dict[Key, str]
    anchors: _Names

    def anchor(self, row: Row) -> str:
        """Where the picture of a test is, if the page has one."""
        return self.place(row.key) if self.detail <= Detail.POINTS else ""

    def place(self, key: Key) -> str:
        """The anchor of a test."""
        return self.anchors(key, self.names[key])

    def values(self, key: Key, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """What the runs of some builds gave, as printed; nothing where the page has no room."""
        if self.detail != Detail.RUNS:
            return ()
        wanted = set(names)
        return tuple(
            (self.report.sides[place].name, ", ".join(str(value.printed) for value in values))
            for place, values in self.measured[key].runs.items()
            if self.report.sides[place].name in wanted
        )


def render(report: Report) -> str:
    """The whole page, ending with a newline."""
    text = ""
    measured = charts.measured(report)
    points = sum(len(values) for it in measured.values() for values in it.runs.values())
    for detail in Detail:
        if points * _POINT_BYTES[detail] > LIMIT:
            continue
        text = _written(_page(report, detail, measured))
        if len(text.encode()) <= LIMIT:
            break
    return text


def _written(page: Page) -> str:
    text = _template().render(page=page, Detail=Detail, charts=charts)
    if page.detail >= Detail.RANGES:
        # HTML knows by itself where these end.
        text = re.sub("</t[dhr]>", "", text)
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line) + "\n"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pagepool.compare", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters["px"] = charts.short
    return environment.get_template("report.html")


def _finalize(value: object) -> object:
    """Text from a log has no control characters here either."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _page(report: Report, detail: Detail, measured: dict[Key, Measured]) -> Page:
    view = _View(report, detail, measured, _rows(report), formats.names(report), _Names())
    shared, builds = _builds(report)
    notes = [*formats.notes_below(report), *(it.text for it in report.problems)]
    controls = ""
    if report.series:
        notes += formats.series_notes(report)
        controls = formats.series_controls(report)
    # Anchors are given in the order of the page's tests.
    tests = list(_tests(view))
    return Page(
        title=_title(report),
        lead=_lead(view),
        is_series=report.series,
        counts=_counts(_verdicts(report)),
        findings=list(_series_findings(view)) if report.series else [],
        overview=_overview(view),
        sections=[] if report.series else [_section(view, it) for it in report.comparisons],
        tests=tests,
        builds=builds,
        shared=shared,
        rule=formats.summary(report),
        controls=controls,
        notes=[text for text in notes if text not in (formats.summary(report), controls)],
        margin=formats.margin_text(report.margin),
        detail=detail,
        left_out=_left_out(detail),
        foot=charts.foot(report),
        first=next((test.anchor for test in tests if test.chart), ""),
    )


def _left_out(detail: Detail) -> str:
    if detail == Detail.RUNS:
        return ""
    return (
        f"To stay small this page leaves out {_LEFT_OUT[detail]}, and intervals in the summary; "
        "its tables are whole. Choose with --tests to see more; --format json has every value."
    )


def _title(report: Report) -> str:
    first, *others = report.sides
    if report.series:
        return f"page_pool, patch by patch: {first.name} → {others[-1].name}"
    if len(others) == 1:
        return f"page_pool: {first.name} → {others[0].name}"
    return f"page_pool: {count(len(others), 'build')} against {first.name}"


def _lead(view: _View) -> str:
    sides = view.report.sides
    ran = sorted({side.runs for side in sides})
    runs = count(ran[0], "run") if len(ran) == 1 else f"{ran[0]} to {count(ran[-1], 'run')}"
    tests = sum(not row.is_control for row in view.rows.values())
    controls = len(view.rows) - tests
    how = "before and after" if len(sides) == 2 else "each build against the first"
    if view.report.series:
        how = "each build against the one before and against the first"
    beside = f" and {count(controls, 'control')}" if controls else ""
    return f"{len(sides)} builds, {runs} each, {count(tests, 'test')}{beside}; {how}."


# Verdicts


def _rows(report: Report) -> dict[Key, Row]:
    """A row of each test, controls last."""
    rows: dict[Key, Row] = {}
    for comparison in report.comparisons:
        for row in comparison.rows:
            rows.setdefault(row.key, row)
    return dict(sorted(rows.items(), key=lambda pair: pair[1].is_control))


def _kind(it: Verdict) -> str:
    return "no verdict" if it.method == "none" else it.kind


def _verdicts(report: Report) -> Iterator[Verdict]:
    """Those that the page is about: in a series against the build before."""
    for comparison in _steps(report):
        for row in comparison.rows:
            if row.verdict:
                yield row.verdict


def _steps(report: Report) -> Iterator[Comparison]:
    for comparison in report.comparisons:
        if not report.series or comparison.against == "previous":
            yield comparison


def _counts(verdicts: Iterable[Verdict]) -> list[tuple[str, str]]:
    """How many there are of each kind: the kind, and a few words."""
    kinds = [_kind(it) for it in verdicts]
    return [
        (kind, f"{kinds.count(kind)} {'without a verdict' if kind == 'no verdict' else kind}")
        for kind in _ORDER
        if kind in kinds
    ]


def _size(it: Verdict) -> str:
    return f"{it.percent.estimate:+.1f} %" if it.percent else ""


def _moved(it: Verdict) -> str:
    """By how much, with the 95 % intervals, in time and in per cent."""
    if it.method == "exact":
        return f"{_size(it)}, counted, not measured".removeprefix(", ")
    time, unit = (it.ns, "ns") if it.ns else (it.cycles, "cycles")
    parts = []
    if time:
        parts.append(f"{time.estimate:+.1f} {unit} (95 % interval {interval(time, unit)})")
    if it.percent:
        parts.append(f"{_size(it)} ({interval(it.percent)})")
    return ", ".join(parts)


def _open(it: Verdict) -> str:
    """What is known of a row that is not decided: why, what would decide, and its bounds."""
    parts = [why] if (why := _reason(it)) else []
    if it.percent:
        parts.append(f"95 % interval {interval(it.percent)}")
    if it.kind == "inconclusive" and it.smallest is not None:
        parts.append(f"so many runs find {it.smallest:.1f} % with a chance of 80 %")
    return "; ".join(parts)


def _reason(it: Verdict) -> str:
    return formats.reason(it).removeprefix(f"{it.kind}: ")


def _overview(view: _View) -> Overview | None:
    """The verdicts of several comparisons, side by side."""
    compared = list(_steps(view.report))
    if len(compared) < 2:
        return None
    against = "the one before" if view.report.series else view.report.sides[0].name
    signs = ""
    if view.detail != Detail.RUNS:
        signs = ": ▲ slower, ▼ faster, = same, ? inconclusive, ~ unstable"
    rows = []
    for key, row in view.rows.items():
        if row.is_control:
            continue
        cells = []
        for comparison in compared:
            it = next((one.verdict for one in comparison.rows if one.key == key), None)
            cells.append((_kind(it), _size(it)) if it else ("", ""))
        rows.append((view.names[key], view.anchor(row), cells))
    return Overview(
        f"Each build against {against}{signs}", [it.after.name for it in compared], rows
    )


# One comparison


def _section(view: _View, comparison: Comparison) -> Section:
    name = f"{comparison.before.name} → {comparison.after.name}"
    warnings = [warning.text for warning in comparison.warnings]
    # These are said above the table.
    said = {*warnings, *formats.open_rows(comparison)}
    return Section(
        name=name,
        anchor=view.anchors(comparison.after.name, f"to-{comparison.after.name}"),
        counts=_counts(row.verdict for row in comparison.rows if row.verdict),
        findings=list(_findings(view, comparison)),
        warnings=warnings,
        table=_table(
            formats.grid(comparison, view.report), name, list(map(view.anchor, comparison.rows))
        ),
        notes=[note for note in formats.notes(comparison) if note not in said],
    )


def _findings(view: _View, comparison: Comparison) -> Iterator[Finding]:
    of_kind: dict[str, list[tuple[Row, Verdict]]] = {}
    for row in comparison.rows:
        if row.verdict:
            of_kind.setdefault(_kind(row.verdict), []).append((row, row.verdict))
    for kind in ("slower", "faster", "inconclusive", "unstable"):
        rows = of_kind.get(kind, [])
        if view.detail != Detail.RUNS:
            yield from _in_short(kind, rows)
            continue
        for row, it in rows:
            text, values = _open(it), view.values(row.key, ())
            if kind in ("slower", "faster"):
                text = f"{_figures(view, row)}: {_moved(it)}"
            elif kind == "unstable":
                values = view.values(row.key, (comparison.before.name, comparison.after.name))
            yield Finding(kind, row.name, view.anchor(row), "", text, values)
    if same := of_kind.get("same"):
        text = ", ".join(f"{row.name} ({interval(it.percent)})" for row, it in same)
        yield Finding("same", "", "", "", text)
    if without := of_kind.get("no verdict"):
        values = tuple((row.name, _seen(view, row)) for row, _ in without)
        yield Finding("no verdict", "", "", "", "seen, not judged", values)


def _in_short(kind: str, rows: Sequence[tuple[Row, Verdict]]) -> Iterator[Finding]:
    """What a large page says of rows of one kind: reasons once, sizes without their intervals."""
    names: dict[str, list[str]] = {}
    for row, it in rows:
        size = f" {_size(it)}" if kind in ("slower", "faster") else ""
        names.setdefault(_reason(it), []).append(row.name + size)
    for why, named in names.items():
        yield Finding(kind, "", "", "", ", ".join(named) + (f": {why}" if why else ""))


def _figures(view: _View, row: Row) -> str:
    metric = view.measured[row.key].metric
    pair = row.metrics.get(metric)
    if pair is None or pair.before is None or pair.after is None:
        return "not measured on both sides"
    return f"{pair.before.printed} → {pair.after.printed} {UNITS[metric]}"


def _seen(view: _View, row: Row) -> str:
    pair = row.metrics.get(view.measured[row.key].metric)
    change = pair.change_percent if pair else None
    return _figures(view, row) + ("" if change is None else f" ({change:+.1f} %)")


def _table(grid: Grid, caption: str, anchors: list[str]) -> Table:
    """A grid with its heads joined: a title without a word below it goes over both rows."""
    top: list[tuple[str, int, int]] = []
    bottom: list[str] = []
    for column in grid.columns:
        if not column.bottom:
            top.append((column.top, 1, 2))
            continue
        bottom.append(column.bottom)
        if column.top or not top:
            top.append((column.top, 1, 1))
        else:
            text, columns, rows = top[-1]
            top[-1] = (text, columns + 1, rows)
    words = [at for at, it in enumerate(grid.columns) if "verdict" in (it.top + it.bottom).lower()]
    return Table(caption, top, bottom, grid.rows, grid.controls, words, anchors)


# A series


def _series_findings(view: _View) -> Iterator[list[Finding]]:
    """What is said of each test of a series: where it moved, and what is not decided."""
    for key, of_test in formats.steps(view.report).items():
        name, anchor = view.names[key], view.anchor(view.rows[key])
        found: list[Finding] = []
        grouped: dict[tuple[str, str], list[Step]] = {}
        for step in of_test:
            it = step.previous
            if it is None:
                continue
            if it.kind in ("slower", "faster") and view.detail == Detail.RUNS:
                at = f"at {step.side.name}"
                found.append(Finding(it.kind, name, anchor, at, _moved(it)))
            else:
                # Of a large page the notes have the reasons.
                why = _reason(it) if view.detail == Detail.RUNS else ""
                grouped.setdefault((_kind(it), why), []).append(step)
        for (kind, why), steps in grouped.items():
            everywhere = len(steps) == len(of_test) - 1 and len(steps) > 1
            places = ", ".join(map(_place, steps))
            if view.detail != Detail.RUNS and kind not in ("slower", "faster"):
                places = count(len(steps), "build")
            at = "at every build" if everywhere else f"at {places}"
            of = {it.side.name for it in of_test} if kind == "unstable" else set()
            found.append(Finding(kind, name, anchor, at, why, view.values(key, of)))
        if found:
            yield sorted(found, key=lambda it: it.kind not in ("slower", "faster"))


def _place(step: Step) -> str:
    size = _size(step.previous) if step.previous else ""
    return f"{step.side.name} ({size})" if size else step.side.name


# Tests


def _tests(view: _View) -> Iterator[Test]:
    tables = _step_tables(view) if view.report.series else {}
    for key, row in view.rows.items():
        found = view.measured.get(key)
        picture = None
        if found and view.detail != Detail.TABLES:
            said = {
                comparison.after.name: one.verdict
                for comparison in _steps(view.report)
                for one in comparison.rows
                if one.key == key and one.verdict
            }
            picture = charts.chart(view.report, view.names[key], found, said)
        table = tables.get(key)
        if picture or table:
            yield Test(view.names[key], view.place(key), row.is_control, picture, table)


def _step_tables(view: _View) -> dict[Key, Table]:
    """The table of each test; with instructions, where they were counted."""
    report = view.report
    columns = formats.step_columns(report)
    counted = (
        charts.runs(report, "instructions")
        if "instructions" in report.metrics and formats.series_metric(report) != "instructions"
        else {}
    )
    if counted:
        columns.append(Column(formats.TITLES["instructions"], ""))
    tables = {}
    for key, of_test in formats.steps(report).items():
        rows = []
        for step in of_test:
            cells = formats.step_cells(step)
            if counted:
                values = counted.get(key, {}).get(report.sides.index(step.side), [])
                at = median_index([value.exact for value in values]) if values else None
                cells.append("-" if at is None else str(values[at].printed))
            rows.append(cells)
        if rows:
            tables[key] = _table(Grid(columns, rows, [], ""), view.names[key], [])
    return tables


# Builds


def _builds(report: Report) -> tuple[list[tuple[str, str]], list[BuildFacts]]:
    """What is the same of all builds, and each with the rest."""
    facts = []
    for side, build in zip(report.sides, report.builds, strict=True):
        known = {key: text for key, text in side.machine.items() if key != "kernel"}
        if counter := counter_text(build):
            known.setdefault("counter", counter)
        facts.append(known)
    shared = {
        key: text for key, text in facts[0].items() if all(it.get(key) == text for it in facts)
    }
    return list(shared.items()), [
        BuildFacts(
            side,
            formats.release(side.kernel) if side.kernel else "",
            [(key, text) for key, text in known.items() if key not in shared],
        )
        for side, known in zip(report.sides, facts, strict=True)
    ]
