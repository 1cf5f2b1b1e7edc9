# SPDX-License-Identifier: BSD-2-Clause
"""Writes a report: plain table, org, markdown, CSV, JSON; `html` has the page.

Table, org and markdown are one grid with three kinds of rules around it. The org form is the one
that maintainers post: header in two rows, numbers to the right, a formula line that recomputes
differences and percentages when somebody edits a figure.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from pagepool.compare import decisions, unlike
from pagepool.compare.report import Against, Cell, Comparison, Metric, Pair, Report, Row, Side
from pagepool.compare.statistics import Interval
from pagepool.compare.verdict import Margin, Verdict, percent
from pagepool.results.lines import clean
from pagepool.results.model import Key
from pagepool.results.words import count

Format: TypeAlias = Literal["table", "org", "markdown", "csv", "json", "html"]
FORMATS: tuple[Format, ...] = ("table", "org", "markdown", "csv", "json", "html")

SCHEMA = "pagepool.compare/1"

#: What figures of several runs are.
MEDIANS = "medians (of an even number of runs the lower one)"

#: Oddities of the inputs that are shown below tables; all are in the JSON.
_MAX_ODDITIES = 10

#: How a metric is called above its columns.
TITLES: dict[Metric, str] = {"cycles": "Cycles", "ns": "Nanosec", "instructions": "Instr"}
_TASKLET = re.compile(r"tasklet_page_pool\d\d_(\w+)")


class Column(NamedTuple):
    """A column: its two header cells, and whether its cells are numbers (set to the right).

    ``block``: columns of one block say one thing together; a narrow page breaks between them.
    """

    top: str
    bottom: str
    is_number: bool = True
    block: str = ""


class Grid(NamedTuple):
    """A table before it has a form: columns, rows, rows of controls, org's formula line."""

    columns: list[Column]
    rows: list[list[str]]
    controls: list[list[str]]
    formula: str


def render(report: Report, form: Format) -> str:
    """The whole report as text, ending with a newline."""
    if form == "json":
        return to_json(report)
    if form == "csv":
        return to_csv(report)
    if form == "html":
        from pagepool.compare import html  # jinja2: only a page pays for it

        return html.render(report)
    write = {"table": _plain, "org": _org, "markdown": _markdown}[form]
    if report.series:
        parts = [
            _lines(moves(report), form),
            write(series(report)),
            _lines(series_notes(report), form),
        ]
    else:
        several = len(report.comparisons) > 1
        parts = [
            _caption(comparison, form, several)
            + write(grid(comparison, report))
            + "\n"
            + _lines(list(notes(comparison)), form)
            for comparison in report.comparisons
        ]
    if below := list(notes_below(report)):
        parts.append(_lines(below, form))
    return "\n".join(parts)


def notes(comparison: Comparison) -> Iterator[str]:
    """The sentences below one table: what was compared, and what to beware of."""
    yield f"before: {side_text(comparison.before)}"
    yield f"after:  {side_text(comparison.after)}"
    if comparison.has_spread:
        yield f"{MEDIANS}; min..max and runs beside them"
    yield from beware(comparison)


def beware(comparison: Comparison) -> Iterator[str]:
    """What to beware of in one comparison, and what would decide the rows that are open."""
    for where, names in (("before", comparison.only_before), ("after", comparison.only_after)):
        if names:
            yield f"only {where}: {', '.join(names)}"
    for warning in comparison.warnings:
        yield warning.text
    yield from open_rows(comparison)


def open_rows(comparison: Comparison) -> Iterator[str]:
    """What is to be said of the verdicts beside their word: why, and what would decide."""
    said: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.verdict and row.verdict.method != "none" and (text := reason(row.verdict)):
            said.setdefault(text, []).append(row.name)
    for text, names in said.items():
        yield f"{', '.join(names)}: {text}"


def reason(it: Verdict) -> str:
    """Why a row is not decided, and what would decide it; empty if there is nothing to say."""
    parts = [it.why] if it.why else []
    if it.kind == "inconclusive":
        if it.more_runs is not None:
            parts.append(f"{count(it.more_runs, 'more run')} a side would decide")
        elif not it.why:
            parts.append("no number of runs within reason would decide")
    return f"{it.kind}: {'; '.join(parts)}" if parts else ""


def summary(report: Report) -> str:
    """How the verdicts of a report came about, in a sentence; empty if there are none."""
    if not any(report.judged.values()):
        return ""
    behind = {"previous": " against the one before", "first": " against the first"}
    rows = " and ".join(
        count(n, "row") + (behind[against] if report.series else "")
        for against, n in report.judged.items()
        if n
    )
    return (
        f"verdicts of {rows} at 95 % by Holm's rule: of 20 reports without a change at most one "
        f"has any; less than {margin_text(report.margin)} is the same"
    )


def margin_text(margin: Margin) -> str:
    """``1 % or 0.2 ns``."""
    return f"{margin.percent:g} %" + (f" or {margin.ns:g} ns" if margin.ns else "")


def notes_below(report: Report) -> Iterator[str]:
    """The sentences below all tables: about single builds, and what the readers noticed."""
    if text := summary(report):
        yield text
    yield from beware_of_builds(report)


def beware_of_builds(report: Report) -> Iterator[str]:
    """What to beware of in single builds, and what the readers noticed."""
    for warning in report.warnings:
        yield warning.text
    for oddity in report.oddities[:_MAX_ODDITIES]:
        yield str(oddity)
    if (more := len(report.oddities) - _MAX_ODDITIES) > 0:
        yield f"{more} more oddities of the inputs; 'pagepool show' lists them"


def side_text(side: Side) -> str:
    """One build in a line: label, file, number of runs, kernel."""
    runs = count(side.runs, "run")
    known = release(side.kernel) if side.kernel else ""
    kernel = f", kernel {known}" if known and not side.label.startswith(known) else ""
    return f"{side.label} ({side.file}), {runs}{kernel}"


def release(kernel: str) -> str:
    """The release in a kernel's version line."""
    return kernel.removeprefix("Linux ").removeprefix("version ").split(" ", 1)[0]


# The grid


def grid(comparison: Comparison, report: Report, *, verdicts: bool = False) -> Grid:
    """Columns and cells of one comparison; ``verdicts``: also where every test ran once.

    When every row is a tasklet test, rows are named as in the mails: ``fast_path``,
    ``ptr_ring``, ``slow`` under ``(tasklet_*)``.
    """
    shown = [
        metric
        for metric in report.metrics
        if any(_has(row.metrics.get(metric)) for row in comparison.rows)
    ] or [report.metrics[0]]
    # The percentage is that of the nanoseconds where they are shown.
    percent = "ns" if "ns" in shown else shown[0]
    short = all(_TASKLET.fullmatch(row.test) for row in comparison.rows)
    columns = [Column("Test name", "(tasklet_*)" if short else "", False)]
    formulas = []
    for metric in shown:
        first = len(columns) + 1
        columns.append(Column(TITLES[metric], "Before", True, metric))
        columns += [Column("", "After", True, metric), Column("", "diff", True, metric)]
        formulas.append(f"${first + 2}=${first + 1}-${first}")
        if metric == percent:
            columns.append(Column("%", "change", True, metric))
            formulas.append(f"${first + 3}=((${first + 2}/${first})*100);%.1f")
    spread = comparison.has_spread
    verdicts = verdicts or any(it.verdict and it.verdict.method != "none" for it in comparison.rows)
    if spread:
        columns.append(Column("Before", "min..max n", False, "spread"))
        columns.append(Column("After", "min..max n", False, "spread"))
    if spread or verdicts:
        columns.append(Column("95 %", "interval", False, "spread"))
        columns.append(Column("Verdict", "", False, "verdict"))
    rows: list[list[str]] = []
    controls: list[list[str]] = []
    for row in comparison.rows:
        cells = [_row_name(row, short)]
        for metric in shown:
            cells += _cells(row.metrics.get(metric))
            if metric == percent:
                cells.append(_percent(row.metrics.get(metric)))
        if spread:
            pair = row.metrics.get(percent)
            cells += [_spread(pair.before), _spread(pair.after)] if pair else ["-", "-"]
        if spread or verdicts:
            cells += _said(row.verdict)
        (controls if row.is_control else rows).append(cells)
    return Grid(columns, rows, controls, "#+TBLFM: " + "::".join(formulas))


def _has(pair: Pair | None) -> bool:
    return pair is not None and (pair.before is not None or pair.after is not None)


def _row_name(row: Row, short: bool) -> str:
    if short and (match := _TASKLET.fullmatch(row.test)):
        return row.name.replace(row.test, match.group(1), 1)
    return f"{row.name} (control)" if row.is_control else row.name


def _cells(pair: Pair | None) -> list[str]:
    if pair is None:
        return ["-", "-", "-"]
    before = "-" if pair.before is None else str(pair.before.printed)
    after = "-" if pair.after is None else str(pair.after.printed)
    return [before, after, "-" if pair.diff is None else str(pair.diff)]


def _percent(pair: Pair | None) -> str:
    if pair is None or pair.change_percent is None:
        return "-"
    return f"{pair.change_percent:.1f}"


def _spread(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    if cell.n == 1:
        return f"{cell.printed} n=1"
    return f"{cell.minimum}..{cell.maximum} n={cell.n}"


def _said(it: Verdict | None) -> list[str]:
    """Interval and word."""
    if it is None:
        return ["-", "-"]
    return [interval(it.percent), it.kind]


def interval(it: Interval | None, unit: str = "%") -> str:
    """``low..high unit``, with signs."""
    return "-" if it is None else f"{it.low:+.1f}..{it.high:+.1f} {unit}"


# A series


def names(report: Report) -> dict[Key, str]:
    """What each test is called: with its step, if it has to be told from another anywhere."""
    found: dict[Key, str] = {}
    for comparison in report.comparisons:
        for row in comparison.rows:
            found[row.key] = max(found.get(row.key, ""), row.name, key=len)
    return found


def moves(report: Report) -> list[str]:
    """What moved at which build: a sentence for each test that did, or is unstable."""
    steps: dict[Key, list[tuple[Side, Verdict]]] = {}
    for comparison in report.comparisons:
        for row in comparison.rows:
            if row.is_control:
                continue
            of_test = steps.setdefault(row.key, [])
            if comparison.against == "previous" and row.verdict:
                of_test.append((comparison.after, row.verdict))
    texts = []
    called = names(report)
    for key, of_test in steps.items():
        moved = [
            f"{it.kind} at {side.name}{by(it)}"
            for side, it in of_test
            if it.kind in ("slower", "faster")
        ]
        if moved:
            text = ", ".join(moved)
        elif of_test and all(it.kind == "unstable" for _, it in of_test):
            text = f"unstable, {of_test[0][1].why}; no verdict for any build"
        elif withheld := [it.why for _, it in of_test if it.why in unlike.WITHHELD]:
            text = f"no move where there is a verdict; elsewhere {withheld[0]}"
            if len(withheld) == len(of_test):
                text = f"no verdict, {withheld[0]}"
        elif all(it.kind == "same" for _, it in of_test):
            text = "no move"
        else:
            open_ = sum(it.kind != "same" for _, it in of_test)
            text = f"undecided at {open_} of {count(len(of_test), 'build')}"
        texts.append(f"{called[key]}: {text}")
    return texts


def by(it: Verdict) -> str:
    """The effect in brackets, in nanoseconds and per cent."""
    parts = [f"{it.ns.estimate:+.1f} ns"] if it.ns else []
    parts += [f"{it.percent.estimate:+.1f} %"] if it.percent else []
    return f" ({', '.join(parts)})" if parts else ""


class Step(NamedTuple):
    """One test of one build of a series: its figure, and what is said of it.

    ``previous``: against the build before, ``first``: against the first; for the second build
    both are the same.
    """

    side: Side
    cell: Cell
    previous: Verdict | None
    first: Verdict | None


def series_metric(report: Report) -> Metric:
    """The one metric that a series shows."""
    return next((name for name in decisions.TIMES if name in report.metrics), "instructions")


def steps(report: Report) -> dict[Key, list[Step]]:
    """The builds of each test of a series that is no control, in their order."""
    metric = series_metric(report)
    cells: dict[Key, dict[str, Cell]] = {}  # of a test and a build
    said: dict[tuple[Key, str, Against], Verdict | None] = {}
    for comparison in report.comparisons:
        for row in comparison.rows:
            if row.is_control:
                continue
            of_test = cells.setdefault(row.key, {})
            pair = row.metrics.get(metric)
            for side, cell in (
                (comparison.before, pair and pair.before),
                (comparison.after, pair and pair.after),
            ):
                if cell:
                    of_test.setdefault(side.name, cell)
            said[row.key, comparison.after.name, comparison.against] = row.verdict
            if comparison.before == report.sides[0]:
                # The one before may be the first.
                said[row.key, comparison.after.name, "first"] = row.verdict
    return {
        key: [
            Step(
                side,
                of_test[side.name],
                said.get((key, side.name, "previous")),
                said.get((key, side.name, "first")),
            )
            for side in report.sides
            if side.name in of_test
        ]
        for key, of_test in cells.items()
    }


def series(report: Report) -> Grid:
    """A row for each test and build: its figure, against the build before, against the first."""
    called = names(report)
    rows = [
        ["" if at else called[key], *step_cells(step)]
        for key, of_test in steps(report).items()
        for at, step in enumerate(of_test)
    ]
    return Grid([Column("Test", "", False), *step_columns(report)], rows, [], "")


def step_columns(report: Report) -> list[Column]:
    """The columns of one test of a series."""
    metric = series_metric(report)
    return [
        Column("Build", "", False),
        Column(TITLES[metric], "", True, metric),
        Column("min..max n", "", False, "spread"),
        Column("Against the one before", "95 % interval", False, "previous"),
        Column("", "verdict", False, "previous"),
        Column("Against the first", "95 % interval", False, "first"),
        Column("", "verdict", False, "first"),
    ]


def step_cells(step: Step) -> list[str]:
    """The cells of `step_columns`."""
    return [
        step.side.name,
        str(step.cell.printed),
        _spread(step.cell),
        *_said(step.previous),
        *_said(step.first),
    ]


def series_controls(report: Report) -> str:
    """By how much each control moved at most in a series; empty if there are none."""
    controls: dict[str, float] = {}
    for comparison in report.comparisons:
        for row in comparison.controls:
            if (by := decisions.moved(row)) is not None:
                controls[row.name] = max(controls.get(row.name, 0.0), abs(by))
    moved = ", ".join(f"{name} {percent(by):.1f} %" for name, by in controls.items())
    return f"controls, which do not touch the pool, moved by at most: {moved}" if moved else ""


def series_notes(report: Report) -> list[str]:
    """The sentences below a series: its builds, its controls, what to beware of at which step."""
    texts = [side_text(side) for side in report.sides]
    texts.append(f"figures are {MEDIANS}")
    if controls := series_controls(report):
        texts.append(controls)
    return [*texts, *beware_of_steps(report)]


def beware_of_steps(report: Report) -> Iterator[str]:
    """What to beware of in the steps of a series, and what would decide the rows that are open."""
    for comparison in report.comparisons:
        if comparison.against != "previous":
            continue
        where = f"{comparison.before.name} -> {comparison.after.name}"
        for side, lost in (("before", comparison.only_before), ("after", comparison.only_after)):
            if lost:
                yield f"{where}: only {side}: {', '.join(lost)}"
        for warning in comparison.warnings:
            if warning.code not in ("overlap", "controls"):
                yield f"{where}: {warning.text}"
        # What is unstable is so at every build; its values are shown below.
        for text in open_rows(comparison):
            if ": unstable: " not in text:
                yield f"{where}: {text}"


# Forms of the grid


def widths(table: Grid) -> list[int]:
    """Width of every column in characters."""
    rows = table.rows + table.controls
    return [
        max(len(text) for text in (column.top, column.bottom, *(row[index] for row in rows)))
        for index, column in enumerate(table.columns)
    ]


def _align(cells: Sequence[str], table: Grid, sizes: list[int]) -> list[str]:
    return [
        text.rjust(width) if column.is_number else text.ljust(width)
        for text, column, width in zip(cells, table.columns, sizes, strict=True)
    ]


def _caption(comparison: Comparison, form: Format, several: bool) -> str:
    """What stands above a table. The only table of a mail has nothing above it."""
    names = f"{comparison.before.name} -> {comparison.after.name}"
    if form == "table":
        return f"{names}\n\n"
    if not several:
        return ""
    return {"org": f"#+CAPTION: {names}\n", "markdown": f"**{_escape(names)}**\n\n"}[form]


def _plain(table: Grid) -> str:
    sizes = widths(table)

    def line(cells: Sequence[str]) -> str:
        return "  ".join(_align(cells, table, sizes)).rstrip()

    lines = [
        line([column.top for column in table.columns]),
        line([column.bottom for column in table.columns]),
        *map(line, table.rows),
    ]
    if table.controls:
        lines += ["", *map(line, table.controls)]
    return "\n".join(lines) + "\n"


def _org(table: Grid) -> str:
    sizes = widths(table)
    rule = "|" + "+".join("-" * (width + 2) for width in sizes) + "|"

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_align(cells, table, sizes)) + " |"

    lines = [
        line([column.top for column in table.columns]),
        line([column.bottom for column in table.columns]),
        rule,
        *map(line, table.rows),
    ]
    if table.controls:
        lines += [rule, *map(line, table.controls)] if table.rows else map(line, table.controls)
    if table.formula:
        lines.append(table.formula)
    return "\n".join(lines) + "\n"


def _markdown(table: Grid) -> str:
    # Markdown has one header row: a column's two words are joined, with the title repeated.
    heads, title = [], ""
    for column in table.columns:
        title = column.top or title
        heads.append(f"{title} {column.bottom}".strip())
    cells = [[_escape(text) for text in row] for row in table.rows + table.controls]
    columns = [
        Column("", head, column.is_number)
        for head, column in zip(heads, table.columns, strict=True)
    ]
    table = Grid(columns, cells, [], "")
    sizes = widths(table)

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_align(cells, table, sizes)) + " |"

    rule = [
        "-" * (width - 1) + (":" if column.is_number else "-")
        for width, column in zip(sizes, columns, strict=True)
    ]
    return "\n".join([line(heads), line(rule), *map(line, cells)]) + "\n"


def _escape(text: str) -> str:
    """Text as markdown shows it; an underscore within a word is no markup."""
    return re.sub(r"[|*`<\\\[\]]|^>|(?<![^\W_])_+|_+(?![^\W_])", _escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"\\{char}" for char in found[0])


def _lines(texts: list[str], form: Format) -> str:
    # `# ` is a comment in org, so that notes may stay when the table is pasted and exported.
    mark = {"org": "# ", "markdown": "- "}.get(form, "")
    lines = [clean(text) for text in texts]
    if form == "markdown":  # a name from a log is neither HTML nor markup
        lines = [_escape(text.replace("&", "&amp;")) for text in lines]
    return "".join(f"{mark}{text}\n" for text in lines)


# For programs


_CSV_FIGURES = (
    *("before", "after", "diff", "change_percent", "exact_before", "exact_after"),
    *("before_min", "before_max", "before_n", "after_min", "after_max", "after_n"),
)


def to_csv(report: Report) -> str:
    """One line a test and comparison, RFC 4180 with LF: printed figures, then exact ones."""
    output = io.StringIO()
    csv.writer(output, lineterminator="\n").writerows(csv_lines(report))
    return output.getvalue()


def csv_lines(report: Report) -> Iterator[list[object]]:
    """The header, and a line a test and comparison."""
    head: list[object] = ["before", "after", "test", "kind", "step", "cpu", "role"]
    for metric in report.metrics:
        head += [f"{metric}_{name}" for name in _CSV_FIGURES]
    head += ["against", "verdict", "why", "p_adjusted", "percent_low", "percent", "percent_high"]
    yield [*head, "smallest_percent", "more_runs"]
    for comparison in report.comparisons:
        for row in comparison.rows:
            cells: list[object] = [
                comparison.before.name,
                comparison.after.name,
                row.test,
                row.kind,
                row.step,
                row.cpu,
                "control" if row.is_control else "test",
            ]
            for metric in report.metrics:
                cells += _csv_cells(row.metrics[metric])
            it = row.verdict
            cells += [comparison.against, it and it.kind, it and it.why, it and it.p_adjusted]
            cells += list(it.percent) if it and it.percent else [None] * 3
            cells += [it and it.smallest, it and it.more_runs]
            yield cells


def _csv_cells(pair: Pair) -> list[object]:
    before, after = pair.before, pair.after
    change = None if pair.change_percent is None else f"{pair.change_percent:.1f}"
    cells: list[object] = [
        before and before.printed,
        after and after.printed,
        pair.diff,
        change,
        before and before.exact,
        after and after.exact,
    ]
    for cell in (before, after):
        cells += [None] * 3 if cell is None else [cell.minimum, cell.maximum, cell.n]
    return cells


class _Document(msgspec.Struct):
    schema: str
    comparisons: tuple[Comparison, ...]
    judged: object
    margin: object
    warnings: object
    oddities: object
    inputs: object
    problems: object


def to_json(report: Report) -> str:
    """The report field by field, schema ``pagepool.compare/1``; printed figures are numbers."""
    encoder = msgspec.json.Encoder(decimal_format="number")
    document = _Document(
        SCHEMA,
        report.comparisons,
        report.judged,
        report.margin,
        report.warnings,
        report.oddities,
        report.inputs,
        report.problems,
    )
    return msgspec.json.format(encoder.encode(document), indent=2).decode() + "\n"
