# SPDX-License-Identifier: BSD-2-Clause
"""``--until-decided``: judges at the looks that were planned, and runs again what is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
from pagepool.compare.verdict import Margin
from pagepool.results.errors import ResultsError
from pagepool.results.model import Key, ResultSet
from pagepool.results.words import count, test_names

if TYPE_CHECKING:
    from pagepool.bench import Event, Suite
    from pagepool.bench.rounds import Test


def check_runs(rows: int, most: int) -> None:
    """Raises `Wrong`: so many runs can call none of so many rows, whatever they give."""
    if most < (least := looks.least_runs(rows)):
        raise Wrong(
            f"--max-runs {most}: cannot call any of {count(rows, 'row')} slower or faster; "
            f"give {least} at least"
        )


def rows_of(name: str, settings: Mapping[str, Any]) -> int:
    """The rows of one side: a test, or each of its CPUs and their average; no control is one."""
    from pagepool.bench import select_tests

    if name == "simple":
        return sum(test.name not in report.CONTROLS for test in select_tests(settings["tests"]))
    if name == "cross-cpu":
        return int(settings["returning"]) + 2
    return sum(producers + 1 for producers in settings["producers"])


class Decider:
    """Which tests are run again: by the verdicts, at the looks that are planned after round 1."""

    def __init__(
        self, asked: Asked, judge: Callable[[], Report], tell: Callable[[str], None]
    ) -> None:
        """``judge`` compares all that was measured, and raises `ResultsError`; ``tell`` says it."""
        self._asked = asked
        self._judge = judge
        self._tell = tell
        self._looks: Looks | None = None
        self._undecided: Undecided[tuple[str, Key]] = Undecided()
        self._open: dict[Test, str] = {}
        self._controls: list[Test] = []

    @property
    def plan(self) -> str:
        """The looks, as runs have them in their settings; empty: nothing was judged yet."""
        return "" if self._looks is None else str(self._looks)

    def again(self, done: int) -> list[Test]:
        """Tests of the round after ``done`` rounds, controls first; empty: there is none.

        Raises `BenchError`: there is nothing to compare.
        """
        if self._looks is None:
            self._looks = self._make_plan()
        if done in self._looks.at:
            self._look(self._looks, done)
        if not self._open or done >= self._asked.most:
            return []
        return [*self._controls, *self._open]

    def _make_plan(self) -> Looks:
        """Fixes the looks when it is known how many rows there are."""
        from pagepool.bench import BenchError

        try:
            found = self._judge()
        except ResultsError as error:
            raise BenchError(str(error)) from None
        for failure in found.failures:
            self._tell(failure)
        rows = [row for _, row in _rows(found)]
        if not rows:
            raise BenchError("only tests that do not touch the pool: there is nothing to decide")
        # A test is all its records: those of each CPU, and their average.
        keys: list[Key] = [("elem", row.test, row.step, -1) for row in rows]
        self._open = {(key[1], key[2]): name for key, name in test_names(keys).items()}
        controls = (row for comparison in found.comparisons for row in comparison.controls)
        self._controls = list(dict.fromkeys((row.test, row.step) for row in controls))
        plan = looks.plan(len(rows), self._asked.most)
        self._tell(f"round 1 of at most {plan.at[-1]}: {count(len(rows), 'row')}, {plan} a side")
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
        self._tell(f"{where}: {text}")


def judge(results: ResultSet, source: str, margin: Margin) -> Report:
    """The comparison of all sides that ran in one invocation. Raises `ResultsError`."""
    chosen = two_at_least([Chosen(source, build) for build in results.builds])
    # What differs was asked for, the DMA settings too: that is what is to be decided.
    return report.compare(
        chosen, report.metrics_of(chosen), (), [results], margin=margin, anyway=True
    )


def show(found: Report, asked: Asked, *, to_stdout: bool) -> int:
    """Prints the comparison, unless the JSON is printed, and the rows that --fail-on is about.

    The exit status: 1 if there are such rows.
    """
    if not to_stdout and not (is_terminal() and _show_rich(found)):
        click.echo(formats.render(found, "table"), nl=False)
    failing = failures(found, asked.fail_on)
    for line in failing:
        say(f"--fail-on: {line}")
    return 1 if failing else 0


def _show_rich(found: Report) -> bool:
    from pagepool.compare import terminal  # rich: only a terminal pays for it

    return terminal.show(found)


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
        self._decider = Decider(asked, self._judge, lambda text: say(text, self._bar))

    def more(self, run: int) -> Mapping[str, Any] | None:
        """What the next round runs; ``None``: there is none. Raises `BenchError`."""
        if run == 1:
            return {}
        if not self._decider.plan:
            self._check_sides()
        tests = self._decider.again(run - 1)
        collector = self._collector
        collector.settings = collector.settings | {looks.SETTING: self._decider.plan}
        return self._suite.only(tests) if tests else None

    def _check_sides(self) -> None:
        from pagepool.bench import BenchError

        collector = self._collector
        missing = [side for side in collector.designs if not collector.of(side)]
        if len(collector.designs) - len(missing) < 2:
            raise BenchError(f"{', '.join(missing)} gave no figure: there is nothing to compare")

    def _judge(self) -> Report:
        results = self._collector.results(self._stem, self._given_label)
        return judge(results, self._source, self._asked.margin)

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
        return show(found, self._asked, to_stdout=self._to_stdout)


def _rows(found: Report) -> Iterator[tuple[str, Row]]:
    """The rows that have a verdict, each with the side that is compared with the first."""
    for comparison in found.comparisons:
        for row in comparison.rows:
            if row.verdict is not None:
                yield comparison.after.name, row
