# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool compare``: the before/after table of a mail."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from pagepool.cli import _inputs
from pagepool.cli._output import FAILURE, complain, fail, is_terminal, split_globs, write
from pagepool.compare import formats, report, selection
from pagepool.compare.verdict import Margin, Verdict
from pagepool.results import arguments
from pagepool.results.errors import ResultsError
from pagepool.results.reader import same_file

#: What --fail-on may name.
KINDS = ("slower", "faster", "inconclusive", "unstable")


def _margin(context: click.Context, option: click.Parameter, text: str) -> Margin:
    figures = text.split(",")
    try:
        values = [float(figure) for figure in figures]
    except ValueError:
        values = []
    if not 1 <= len(values) <= 2 or not all(0 <= value < 1e6 for value in values):
        fail(f"--margin {text}: give per cent, and nanoseconds if you like, as in 1,0.2")
    return Margin(*values) if len(values) > 1 else Margin(values[0], 0.0)


def _fail_on(context: click.Context, option: click.Parameter, text: str | None) -> dict[str, float]:
    wanted: dict[str, float] = {}
    if text is None:
        return wanted
    for part in text.split(","):
        kind, _, percent = part.strip().partition(":")
        try:
            least = float(percent) if percent else 0.0
        except ValueError:
            least = -1.0
        if kind not in KINDS or not 0 <= least < 1e6:
            fail(f"--fail-on {text}: give some of {', '.join(KINDS)}, as in slower:5")
        wanted[kind] = least
    return wanted


@click.command(short_help="Compare builds: the before/after table of a mail.")
@click.argument("files", metavar="BEFORE[@BUILD] AFTER[@BUILD]...", nargs=-1, required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(formats.FORMATS),
    default="table",
    show_default=True,
    help="Form of the output.",
)
@click.option(
    "--metric",
    type=click.Choice(["both", *report.METRICS]),
    default="both",
    show_default=True,
    help="Figures to show; both: those that there are, instructions where all builds have them.",
)
@click.option(
    "--tests",
    metavar="GLOB",
    multiple=True,
    help="Only tests whose name matches, like 'tasklet*'; repeat it or use commas.",
)
@click.option(
    "--series",
    is_flag=True,
    help="Builds in their order: each against the one before and against the first.",
)
@click.option(
    "--control",
    "controls",
    metavar="GLOB",
    multiple=True,
    help="Tests that do not touch what was changed, beside for_loop, atomic_inc, lock and rcu.",
)
@click.option(
    "--margin",
    metavar="PERCENT[,NS]",
    default="1,0.2",
    show_default=True,
    callback=_margin,
    help="What is no change: per cent, or nanoseconds if that is more.",
)
@click.option(
    "--fail-on",
    "fail_on",
    metavar="KIND[:PERCENT],...",
    callback=_fail_on,
    help="Exit with 1 if a row is so: slower, slower:5, faster, inconclusive, unstable.",
)
@_inputs.label_options
@click.option("--output", metavar="FILE", help="Write to a file instead of standard output.")
def command(
    files: tuple[str, ...],
    form: formats.Format,
    metric: str,
    tests: tuple[str, ...],
    series: bool,
    controls: tuple[str, ...],
    margin: Margin,
    fail_on: dict[str, float],
    label_options: tuple[str, ...],
    label_files: tuple[str, ...],
    output: str,
) -> None:
    """Compare builds: the before/after table of a mail.

    Every file is compared with the first. A file is a kernel log, a mail, this program's own
    output or its JSON, that of pyperf or of Google Benchmark; '-' is standard input. A pattern
    like 'logs/*.txt' is all files that match, v2 before v10. Of a file that holds several builds
    choose one with FILE@BUILD; one single file has its builds compared in order.

    Several runs a side get a verdict: slower, faster, same, inconclusive or unstable.

    Exit status: 0, 1 if --fail-on found a row, or 2 if something could not be read, chosen or
    written.
    """
    try:
        expanded = arguments.expand(files)
        selectors = [selector for group in expanded for selector in group]
        for index, one in enumerate(selectors):
            for other in selectors[:index]:
                if one.build == other.build and same_file(one.file, other.file):
                    fail(f"{one}: given twice; give two files, or FILE@BUILD of one")
        rules = _inputs.rules(label_options, label_files)
        results, errors = _inputs.read([selector.file for selector in selectors], rules)
    except ResultsError as error:
        fail(error)
    for failed in errors:
        complain(failed)
    globs = split_globs(tests)
    if tests and not globs:
        fail("--tests: an empty pattern matches no test")
    if len(errors) == len({selector.file for selector in selectors}):
        sys.exit(FAILURE)
    try:
        chosen = selection.choose_all(results, selectors)
        metrics = report.all_metrics(chosen)
        if metric != "both":
            metrics = tuple(name for name in report.METRICS if name == metric)
        found = report.compare(
            chosen,
            metrics,
            globs,
            [result for _, result in results],
            series=series,
            margin=margin,
            controls=split_globs(controls),
        )
    except ResultsError as error:
        fail(error)
    for failure in found.failures:
        complain(failure)
    status = FAILURE if errors or found.failures else 0
    for oddity in found.oddities:
        if oddity.code == "too-many":
            complain(oddity)
            status = FAILURE
    failing = [
        f"{comparison.before.name} -> {comparison.after.name}: {row.name}: {row.verdict.kind}"
        f"{formats.by(row.verdict)}"
        for comparison in found.comparisons
        for row in comparison.rows
        if row.verdict and row.verdict.kind in fail_on and _by_much(row.verdict, fail_on)
    ]
    if form == "table" and not series and not output and is_terminal():
        from pagepool.compare import terminal  # rich: only a terminal pays for it

        if terminal.show(found):
            _end(status, failing)
    write(formats.render(found, form), output)
    if form == "csv":
        # A CSV file has no room for sentences.
        for comparison in found.comparisons:
            for warning in comparison.warnings:
                complain(f"note: {warning.text}")
        for warning in found.warnings:
            complain(f"note: {warning.text}")
    _end(status, failing)


def _by_much(it: Verdict, fail_on: dict[str, float]) -> bool:
    return it.percent is None or abs(it.percent.estimate) >= fail_on[it.kind]


def _end(status: int, failing: list[str]) -> NoReturn:
    for line in failing:
        complain(f"--fail-on: {line}")
    sys.exit(status or (1 if failing else 0))
