# SPDX-License-Identifier: BSD-2-Clause
"""The verdicts of a whole report: whose noise is whose, and how many rows there are.

`verdict` judges one row. What is of the report is here: builds of one machine lend each other
their noise, the p of all rows are adjusted together, and what the controls did bounds what a row
between the same builds can have done by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from pagepool.compare import statistics, verdict
from pagepool.compare.statistics import Interval
from pagepool.compare.verdict import Judgement, Margin, Noise, Verdict
from pagepool.results.model import Build, Key
from pagepool.results.words import counter_ghz

if TYPE_CHECKING:
    from pagepool.compare.report import Cell, Comparison, Pair, Row

#: Two builds whose counters differ by more than this ran on unlike machines.
CLOCK_TOLERANCE = 0.01

#: The metrics that verdicts are of, the first that there is.
TIMES: tuple[Literal["ns", "cycles"], ...] = ("ns", "cycles")


def alike(one: Build, other: Build) -> bool:
    """Whether nothing says that two builds ran on unlike machines."""
    clocks = [counter_ghz(build.records) for build in (one, other)]
    if clocks[0] and clocks[1] and abs(clocks[1] / clocks[0] - 1) > CLOCK_TOLERANCE:
        return False
    cpus = [build.machine.get("cpu") for build in (one, other)]
    return None in cpus or cpus[0] == cpus[1]


class Pool:
    """The noise of each test, of all builds that ran on the machine of a given one."""

    def __init__(self, builds: Iterable[Build]) -> None:
        """All builds that were read; one that is given twice, by whatever name, counts once."""
        self._builds = list({id(build.runs): build for build in builds}.values())
        self._of: dict[int, dict[Key, Noise | None]] = {}

    def of(self, build: Build, key: Key) -> Noise | None:
        """The noise of one test on the machine of a build."""
        tests = self._of.get(id(build))
        if tests is None:
            runs: dict[Key, list[list[float]]] = {}
            for other in self._builds:
                if alike(build, other):
                    mine: dict[Key, list[float]] = {}
                    for record in other.records:
                        time = record.ns if record.ns is not None else record.cycles
                        if record.is_usable and time is not None:
                            mine.setdefault(record.key, []).append(time)
                    for test, times in mine.items():
                        runs.setdefault(test, []).append(times)
            tests = {test: verdict.noise(times) for test, times in runs.items()}
            self._of[id(build)] = tests
        return tests.get(key)


class Between(NamedTuple):
    """One comparison and the builds that it is of."""

    comparison: Comparison
    before: Build
    after: Build


class _Open(NamedTuple):
    """A row that was judged by itself."""

    row: Row
    metric: str
    it: Judgement
    noise: Noise | None
    margin: float
    controls: float | None
    unlike: bool

    @property
    def p(self) -> float | None:
        return None if verdict.hidden(self.it, self.noise) else self.it.p


def decide_all(
    compared: Sequence[Between], pool: Pool, margin: Margin
) -> tuple[list[Comparison], int]:
    """The comparisons with a verdict in each row that is no control; how many rows have a p.

    The p of all of these are adjusted together.
    """
    opened = [
        [_judge(row, between, pool, margin) for row in between.comparison.rows]
        for between in compared
    ]
    # What modes hide is never called, so it raises no false alarm.
    judged = [it for rows in opened for it in rows if it and it.p is not None]
    adjusted = iter(statistics.holm([it.p for it in judged if it.p is not None]))
    comparisons = []
    for between, rows in zip(compared, opened, strict=True):
        decided = []
        for row, it in zip(between.comparison.rows, rows, strict=True):
            if it is None:
                decided.append(_exactly(row))
                continue
            p = None if it.p is None else next(adjusted)
            said = _decide(it, p, max(len(judged), 1))
            decided.append(msgspec.structs.replace(row, verdict=said))
        comparisons.append(msgspec.structs.replace(between.comparison, rows=tuple(decided)))
    return comparisons, len(judged)


def moved(row: Row) -> float | None:
    """By how much the shown median of a row moved, a logarithm; ``None``: it has no times."""
    for metric in TIMES:
        pair = row.metrics.get(metric)
        if pair is not None and pair.before is not None and pair.after is not None:
            one, other = pair.before.exact, pair.after.exact
            return math.log(other / one) if one > 0 and other > 0 else None
    return None


def _times(row: Row) -> tuple[str, tuple[Sequence[float], Sequence[float]]] | None:
    """The times of a row that are judged: nanoseconds, or cycles where there are none."""
    for metric in TIMES:
        pair = row.metrics.get(metric)
        if pair is not None and pair.before is not None and pair.after is not None:
            return metric, (pair.before.values, pair.after.values)
    return None


def _judge(row: Row, between: Between, pool: Pool, margin: Margin) -> _Open | None:
    found = _times(row)
    if row.is_control or found is None:
        return None
    metric, (before, after) = found
    unlike = not alike(between.before, between.after)
    noise = pool.of(between.before, row.key)
    it = verdict.judge(before, after, noise)
    if unlike:
        it = msgspec.structs.replace(it, method="none", p=None)
    before_ns = median(before) if metric == "ns" else None
    moves = [abs(by) for row in between.comparison.controls if (by := moved(row)) is not None]
    controls = max(moves, default=None)
    return _Open(row, metric, it, noise, margin.log(before_ns), controls, unlike)


def _decide(it: _Open, p_adjusted: float | None, rows: int) -> Verdict:
    judgement = it.it
    kind, why, more = verdict.decide(
        judgement,
        it.noise,
        p_adjusted=p_adjusted,
        rows=rows,
        margin=it.margin,
        controls=it.controls,
    )
    if it.unlike:
        why, more = "unlike machines", None
    intervals = {
        metric: _in(metric, it, pair)
        for metric, pair in it.row.metrics.items()
        if metric != "instructions"
    }
    effect = judgement.effect
    known = effect is not None and math.isfinite(effect.low)
    return Verdict(
        kind=kind,
        method=judgement.method,
        why=why,
        p=judgement.p,
        p_adjusted=p_adjusted,
        percent=Interval(*map(verdict.percent, effect)) if effect and known else None,
        ns=intervals.get("ns"),
        cycles=intervals.get("cycles"),
        smallest=verdict.smallest(judgement, it.noise, rows),
        more_runs=more,
    )


def _in(metric: str, it: _Open, pair: Pair) -> Interval | None:
    """The effect in the unit of a metric."""
    before: Cell | None = pair.before
    after: Cell | None = pair.after
    effect = it.it.effect
    if before is None or after is None or effect is None or not math.isfinite(effect.low):
        return None
    if it.it.method == "ranks":
        return statistics.shift(before.values, after.values, verdict.ALPHA)
    middle = median(before.values)
    return Interval(*(middle * math.expm1(log) for log in effect))


def _exactly(row: Row) -> Row:
    """Where only instructions were counted: any difference is one."""
    pair = row.metrics.get("instructions")
    if row.is_control or pair is None or pair.before is None or pair.after is None:
        return row
    before, after = pair.before, pair.after
    kind: verdict.Kind
    if before.exact == after.exact:
        kind = "same"
    elif statistics.ranges_overlap(before.values, after.values):
        kind = "unstable"
    else:
        kind = "slower" if after.exact > before.exact else "faster"
    change = statistics.change_percent(before.exact, after.exact)
    exact = None if change is None else Interval(change, change, change)
    why = "runs of one build count unlike numbers" if kind == "unstable" else ""
    said = Verdict(kind=kind, method="exact", why=why, percent=exact)
    return msgspec.structs.replace(row, verdict=said)
