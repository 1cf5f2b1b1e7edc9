# SPDX-License-Identifier: BSD-2-Clause
"""``--until-decided``: judges at the looks that were planned, and runs again what is open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from pagepool.cli._bench import Progress, Wrong, say
from pagepool.cli._output import is_terminal
from pagepool.cli._session import Session
from pagepool.cli._sides import Asked
from pagepool.cli._verdicts import failures
from pagepool.compare import formats, looks, report
from pagepool.compare.looks import Looks, Undecided
from pagepool.compare.report import Report, Row
from pagepool.compare.selection import Chosen, two_at_least
from pagepool.results.errors import ResultsError
from pagepool.results.model import Key
from pagepool.results.words import count, test_names

if TYPE_CHECKING:
    from pagepool.bench import Event, Suite
    from pagepool.bench.rounds import Test


def check_runs(name: str, settings: Mapping[str, Any], sides: int, most: int) -> None:
    """Raises `Wrong`: so many runs of a suite can call no row, whatever they give."""
    rows = _rows_of(name, settings) * (sides - 1)
    if most < (least := looks.least_runs(rows)):
        raise Wrong(
            f"--max-runs {most}: cannot call any of {count(rows, 'row')} slower or faster; "
            f"give {least} at least"
        )


def _rows_of(name: str, settings: Mapping[str, Any]) -> int:
    """The rows of one side: a test, or each of its CPUs and their average; no control is one."""
    from pagepool.bench import select_tests

    if name == "simple":
        return sum(test.name not in report.CONTROLS for test in select_tests(settings["tests"]))
    if name == "cross-cpu":
        return int(settings["returning"]) + 2
    return sum(producers + 1 for producers in settings["producers"])


class UntilSession(Session):
    """One invocation with ``--until-decided``: prints the comparison instead of the runs."""

    def __init__(
        self, json_path: str | None, label: str | None, name: str, suite: Suite, asked: Asked
    ) -> None:
        super().__init__(json_path, label, lambda _collector: None)
        self._source = f"pagepool bench {name}" if self._file is None else str(json_path)
        self._suite = suite
        self._asked = asked
        self._bar: Progress | None = None
        self._looks: Looks | None = None
        self._undecided: Undecided[tuple[str, Key]] = Undecided()
        self._open: dict[Test, str] = {}
        self._controls: list[Test] = []

    def more(self, run: int) -> Mapping[str, Any] | None:
        """What the next round runs; ``None``: there is none. Raises `BenchError`."""
        done = run - 1
        if done == 0:
            return {}
        if self._looks is None:
            self._looks = self._plan()
        if done in self._looks.at:
            self._look(self._looks, done)
        if not self._open or done >= self._asked.most:
            return None
        return self._suite.only([*self._controls, *self._open])

    def _plan(self) -> Looks:
        """Fixes the looks when it is known how many rows there are: after the first round."""
        from pagepool.bench import BenchError

        collector = self._collector
        missing = [side for side in collector.designs if not collector.of(side)]
        if len(collector.designs) - len(missing) < 2:
            raise BenchError(f"{', '.join(missing)} gave no figure: there is nothing to compare")
        try:
            found = self._judge()
        except ResultsError as error:
            raise BenchError(str(error)) from None
        for failure in found.failures:
            say(failure, self._bar)
        rows = [row for _, row in _rows(found)]
        if not rows:
            raise BenchError("only tests that do not touch the pool: there is nothing to decide")
        # A test is all its records: those of each CPU, and their average.
        keys: list[Key] = [("elem", row.test, row.step, -1) for row in rows]
        self._open = {(key[1], key[2]): name for key, name in test_names(keys).items()}
        controls = (row for comparison in found.comparisons for row in comparison.controls)
        self._controls = list(dict.fromkeys((row.test, row.step) for row in controls))
        plan = looks.plan(len(rows), self._asked.most)
        say(
            f"round 1 of at most {plan.at[-1]}: {count(len(rows), 'row')}, {plan} a side", self._bar
        )
        collector.settings = collector.settings | {looks.SETTING: str(plan)}
        return plan

    def _look(self, plan: Looks, done: int) -> None:
        """Judges all rows; a test that is decided once is not run again."""
        rows = list(_rows(self._judge()))
        kinds = {
            (side, row.key): row.verdict.kind
            for side, row in rows
            if row.verdict and row.verdict.method != "none"
        }
        undecided = set(self._undecided.look(kinds))
        still = {
            (row.test, row.step)
            for side, row in rows
            # An average is of the CPUs' figures, and in whole cycles: it opens nothing by itself.
            if (side, row.key) in undecided and row.kind != "sum"
        }
        before = len(self._open)
        self._open = {test: name for test, name in self._open.items() if test in still}
        where = f"round {done} of at most {plan.at[-1]}, look {plan.made(done)} of {len(plan.at)}"
        text = f"{before - len(self._open)} more decided, "
        text += f"open: {', '.join(self._open.values())}" if self._open else "none is open"
        say(f"{where}: {text}", self._bar)

    def _judge(self) -> Report:
        """The comparison of all that was measured. Raises `ResultsError`."""
        results = self._collector.results(self._stem, self._given_label)
        chosen = two_at_least([Chosen(self._source, build) for build in results.builds])
        # What differs was asked for, the DMA settings too: that is what is to be decided.
        return report.compare(
            chosen,
            report.metrics_of(chosen),
            (),
            [results],
            margin=self._asked.margin,
            anyway=True,
        )

    def _print(self, event: Event, bar: Progress) -> None:
        from pagepool.bench import TestFailed, Warned

        self._bar = bar
        if isinstance(event, (Warned, TestFailed)):
            super()._print(event, bar)

    def _show(self) -> int:
        try:
            found = self._judge()
        except ResultsError:
            return 0  # a side has no figure, and why has been said
        if not self._to_stdout and not (is_terminal() and self._show_rich(found)):
            click.echo(formats.render(found, "table"), nl=False)
        failing = failures(found, self._asked.fail_on)
        for line in failing:
            say(f"--fail-on: {line}")
        return 1 if failing else 0

    def _show_rich(self, found: Report) -> bool:
        from pagepool.compare import terminal  # rich: only a terminal pays for it

        return terminal.show(found)


def _rows(found: Report) -> Iterator[tuple[str, Row]]:
    """The rows that have a verdict, each with the side that is compared with the first."""
    for comparison in found.comparisons:
        for row in comparison.rows:
            if row.verdict is not None:
                yield comparison.after.name, row
