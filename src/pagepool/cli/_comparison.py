# SPDX-License-Identifier: BSD-2-Clause
"""What the commands that compare share: their arguments and options, reading and choosing."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple, NoReturn

import click

from pagepool.cli import _inputs
from pagepool.cli._output import FAILURE, complain, fail, split_globs
from pagepool.cli._verdicts import fail_on_option, failures, margin_option
from pagepool.compare import report, selection
from pagepool.compare.verdict import Margin
from pagepool.results import arguments
from pagepool.results.errors import ResultsError
from pagepool.results.reader import same_file


@dataclass(frozen=True)
class Compared:
    """What was asked for, and what came out.

    ``files`` are the arguments, patterns expanded, ``chosen`` the builds that were compared.
    ``status`` is that of the exit so far; ``failing`` are the rows that --fail-on found.
    ``options`` are those of `_PARAMETERS` that were given and change the report, ``labels``
    those that say which builds there are.
    """

    files: tuple[arguments.Selector, ...]
    chosen: tuple[selection.Chosen, ...]
    report: report.Report
    status: int
    failing: tuple[str, ...]
    options: tuple[str, ...]
    labels: tuple[str, ...]

    def words(self, short: Mapping[str, str]) -> list[str]:
        """The arguments again, with other names for files: what changes the text, and no more."""
        files = [str(one._replace(file=short.get(one.file, one.file))) for one in self.files]
        options = [*self.options, *self.labels]
        for file, name in short.items():
            options = [option.replace(f"={file}", f"={name}") for option in options]
        mark = ["--"] if any(name.startswith("-") and name != "-" for name in files) else []
        return [*options, *mark, *files] if mark else [*files, *options]

    def end(self) -> NoReturn:
        """Names what --fail-on found, and exits."""
        for line in self.failing:
            complain(f"--fail-on: {line}")
        sys.exit(self.status or (1 if self.failing else 0))


#: In the order of the help.
_PARAMETERS = (
    click.argument("files", metavar="BEFORE[@BUILD] AFTER[@BUILD]...", nargs=-1, required=True),
    click.option(
        "--metric",
        type=click.Choice(["both", *report.METRICS]),
        default="both",
        show_default=True,
        help="Figures to show; both: all that there are, instructions if all builds have them.",
    ),
    click.option(
        "--tests",
        metavar="GLOB",
        multiple=True,
        help="Only tests whose name matches, like 'tasklet*'; repeat it or use commas.",
    ),
    click.option(
        "--series",
        is_flag=True,
        help="Builds in their order: each against the one before and against the first.",
    ),
    click.option(
        "--control",
        "controls",
        metavar="GLOB",
        multiple=True,
        help="Tests that do not touch what was changed, beside for_loop, atomic_inc, lock and rcu.",
    ),
    margin_option,
    click.option(
        "--anyway",
        is_flag=True,
        help="Verdicts also where machines, clocks, loops or DMA settings are unlike.",
    ),
    fail_on_option,
    *_inputs.LABEL_OPTIONS,
    click.option("--output", metavar="FILE", help="Write to a file instead of standard output."),
)


class _Asked(NamedTuple):
    """The values of `_PARAMETERS`, but for ``--output``, which is for the command."""

    files: tuple[str, ...]
    metric: str
    tests: tuple[str, ...]
    series: bool
    controls: tuple[str, ...]
    margin: Margin
    anyway: bool
    fail_on: dict[str, float]
    label_options: tuple[str, ...]
    label_files: tuple[str, ...]

    def options(self) -> tuple[str, ...]:
        """Those that were given and change the report."""
        words = [word for glob in self.tests for word in ("--tests", glob)]
        words += ["--metric", self.metric] if self.metric != "both" else []
        words += ["--series"] if self.series else []
        words += [word for glob in self.controls for word in ("--control", glob)]
        if self.margin != Margin():
            words += ["--margin", f"{self.margin.percent:.12g},{self.margin.ns:.12g}"]
        words += ["--anyway"] if self.anyway else []
        return tuple(words)

    def labels(self) -> tuple[str, ...]:
        """Those that say which builds there are."""
        words = [word for text in self.label_options for word in ("--label", text)]
        words += [word for file in self.label_files for word in ("--labels", PurePath(file).name)]
        return tuple(words)


def compares(function: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the arguments and options of a comparison.

    Its first argument is then what was `Compared`, the others are its own.
    """

    @functools.wraps(function)
    def command(**given: Any) -> None:
        asked = _Asked(**{name: given.pop(name) for name in _Asked._fields})
        function(_compare(asked, given.get("output")), **given)

    for parameter in reversed(_PARAMETERS):
        command = parameter(command)
    return command


def _compare(asked: _Asked, output: str | None) -> Compared:
    try:
        expanded = arguments.expand(asked.files)
        selectors = [selector for group in expanded for selector in group]
        for index, one in enumerate(selectors):
            for other in selectors[:index]:
                if one.build == other.build and same_file(one.file, other.file):
                    fail(f"{one}: given twice; give two files, or FILE@BUILD of one")
        _inputs.check_output(output, (*(one.file for one in selectors), *asked.label_files))
        rules = _inputs.rules(asked.label_options, asked.label_files)
        results, errors = _inputs.read([selector.file for selector in selectors], rules)
    except ResultsError as error:
        fail(error)
    for failed in errors:
        complain(failed)
    globs = split_globs(asked.tests)
    if asked.tests and not globs:
        fail("--tests: an empty pattern matches no test")
    if len(errors) == len({selector.file for selector in selectors}):
        sys.exit(FAILURE)
    try:
        chosen = selection.choose_all(results, selectors)
        metrics = (
            report.metrics_of(chosen, globs)
            if asked.metric == "both"
            else tuple(name for name in report.METRICS if name == asked.metric)
        )
        found = report.compare(
            chosen,
            metrics,
            globs,
            [result for _, result in results],
            series=asked.series,
            margin=asked.margin,
            controls=split_globs(asked.controls),
            anyway=asked.anyway,
            unread=errors,
        )
    except ResultsError as error:
        fail(error)
    for failure in found.failures:
        complain(failure)
    status = FAILURE if errors or found.failures else 0
    if _inputs.cut_short(found.oddities):
        status = FAILURE
    return Compared(
        files=tuple(selectors),
        chosen=tuple(report.with_times(chosen)),
        report=found,
        status=status,
        failing=tuple(failures(found, asked.fail_on)),
        options=asked.options(),
        labels=asked.labels(),
    )
