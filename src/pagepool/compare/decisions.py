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

from pagepool.compare import looks, statistics, unlike, verdict
from pagepool.compare.statistics import Interval
from pagepool.compare.verdict import Case, Decision, Judgement, Margin, Noise, Verdict
from pagepool.results.model import Build, Key, Record

if TYPE_CHECKING:
    from pagepool.compare.report import Cell, Comparison, Pair, Row

#: The metrics that verdicts are of, the first that there is.
TIMES: tuple[Literal["ns", "cycles"], ...] = ("ns", "cycles")


class Pool:
    """The noise of each test, of all builds that ran on the machine of given ones."""

    def __init__(self, builds: Iterable[Build]) -> None:
        """All builds that were read; one that is given twice, by whatever name, counts once."""
        self._builds = [
            (unlike.known(build), _times_of(build), records_of(build))
            for build in {id(build.runs): build for build in builds}.values()
        ]
        self._of: dict[object, dict[Key, Noise | None]] = {}

    def of(self, *builds: Build, anyway: bool = False) -> dict[Key, Noise | None]:
        """The noise of all tests on the machine of these builds, measured with as many loops.

        ``anyway``: on the machine of any of them.
        """
        known = [unlike.known(build) for build in builds]
        quantor = any if anyway else all
        friends = tuple(
            index
            for index, (other, _, _) in enumerate(self._builds)
            if quantor(unlike.alike(one, other) for one in known)
        )
        tests = records_of(builds[0])
        key = (friends, frozenset((test, unlike.loops_of(of)) for test, of in tests.items()))
        if key not in self._of:
            runs: dict[Key, list[list[float]]] = {}
            for index in friends:
                _, times, records = self._builds[index]
                for test, values in times.items():
                    if test in tests and unlike.same_loops(tests[test], records[test]):
                        runs.setdefault(test, []).append(values)
            self._of[key] = {test: verdict.noise(values) for test, values in runs.items()}
        return self._of[key]


def _times_of(build: Build) -> dict[Key, list[float]]:
    times: dict[Key, list[float]] = {}
    for record in build.records:
        time = record.ns if record.ns is not None else record.cycles
        if record.is_usable and time is not None:
            times.setdefault(record.key, []).append(time)
    return times


def records_of(build: Build) -> dict[Key, list[Record]]:
    """The records of each test, in the order of the runs. Counters have no time, and are none."""
    records: dict[Key, list[Record]] = {}
    for record in build.records:
        if record.kind != "event":
            records.setdefault(record.key, []).append(record)
    return records


class Between(NamedTuple):
    """One comparison and the builds that it is of."""

    comparison: Comparison
    before: Build
    after: Build


class _Open(NamedTuple):
    """A row that was judged by itself, or ``withheld`` for the reason given."""

    row: Row
    case: Case
    withheld: str


def decide_all(
    compared: Sequence[Between], pool: Pool, margin: Margin, *, anyway: bool = False
) -> list[Comparison]:
    """The comparisons with a verdict in each row that is no control.

    The p of all of these are adjusted together. ``anyway``: also where `unlike` says that builds or
    tests cannot be judged by each other.
    """
    whys = [
        "" if anyway else unlike.why(unlike.known(it.before), unlike.known(it.after))
        for it in compared
    ]
    opened = [
        _judge_all(between, pool, margin, why, anyway)
        for between, why in zip(compared, whys, strict=True)
    ]
    decisions, judged = verdict.decide_all([it.case for rows in opened for it in rows if it])
    left = iter(decisions)
    comparisons = []
    for between, rows, why in zip(compared, opened, whys, strict=True):
        controls = between.comparison.controls
        by = max((abs(moved_instructions(control)) for control in controls), default=0.0)
        decided = tuple(
            msgspec.structs.replace(row, verdict=_verdict(it, next(left), max(judged, 1)))
            if it
            else _exactly(row, by, why)
            for row, it in zip(between.comparison.rows, rows, strict=True)
        )
        comparisons.append(msgspec.structs.replace(between.comparison, rows=decided))
    return comparisons


def moved(row: Row) -> float | None:
    """By how much the shown median of a row moved, a logarithm; ``None``: it has no times."""
    found = _times(row)
    if found is None:
        return None
    one, other = (cell.exact for cell in found[1:])
    return math.log(other / one) if one > 0 and other > 0 else None


def moved_instructions(row: Row) -> float:
    """By how many instructions the shown median of a row moved; 0 also if none were counted."""
    pair = row.metrics.get("instructions")
    return float(pair.diff) if pair is not None and pair.diff is not None else 0.0


def _times(row: Row) -> tuple[str, Cell, Cell] | None:
    """The times of a row that are judged: nanoseconds, or cycles where there are none."""
    for metric in TIMES:
        pair = row.metrics.get(metric)
        if pair is not None and pair.before is not None and pair.after is not None:
            return metric, pair.before, pair.after
    return None


def _judge_all(
    between: Between, pool: Pool, margin: Margin, why: str, anyway: bool
) -> list[_Open | None]:
    """Each row by itself; ``None``: a control, or without times. ``why`` none gets a verdict."""
    builds = between.before, between.after
    noises = pool.of(*builds, anyway=anyway)
    records = [records_of(build) for build in builds]
    looked = looks.of_pair(*builds)
    share = looked[0].share if looked else 1.0
    moves = [abs(by) for row in between.comparison.controls if (by := moved(row)) is not None]
    controls = max(moves, default=None)
    opened: list[_Open | None] = []
    for row in between.comparison.rows:
        found = _times(row)
        if row.is_control or found is None:
            opened.append(None)
            continue
        metric, before, after = found
        noise = noises.get(row.key)
        it = verdict.judge(before.values, after.values, noise, share)
        withheld = why
        if not (anyway or withheld or unlike.same_loops(*(of[row.key] for of in records))):
            withheld = unlike.HOW["loops"].words
        if withheld:
            it = msgspec.structs.replace(it, method="none", p=None)
        limit = margin.log(median(before.values) if metric == "ns" else None)
        opened.append(_Open(row, Case(it, noise, limit, controls), withheld))
    return opened


def _verdict(opened: _Open, decision: Decision, rows: int) -> Verdict:
    row, (it, noise, _, _), withheld = opened
    intervals = {
        metric: _in(it, pair) for metric, pair in row.metrics.items() if metric != "instructions"
    }
    effect = it.effect
    known = effect is not None and math.isfinite(effect.low)
    return Verdict(
        kind=decision.kind,
        method=it.method,
        why=withheld or decision.why,
        p=it.p,
        p_adjusted=decision.p_adjusted,
        percent=Interval(*map(verdict.percent, effect)) if effect and known else None,
        ns=intervals.get("ns"),
        cycles=intervals.get("cycles"),
        smallest=verdict.smallest(it, noise, rows),
        more_runs=None if withheld else decision.more_runs,
    )


def _in(it: Judgement, pair: Pair) -> Interval | None:
    """The effect in the unit of a metric."""
    before, after, effect = pair.before, pair.after, it.effect
    if before is None or after is None or effect is None or not math.isfinite(effect.low):
        return None
    if it.method == "ranks":
        return statistics.shift(before.values, after.values, verdict.ALPHA * it.share)
    middle = median(before.values)
    return Interval(*(middle * verdict.share(log) for log in effect))


def _exactly(row: Row, controls: float, withheld: str) -> Row:
    """Where only instructions were counted: any difference is one, if it can be judged.

    ``controls``: by how many instructions a control moved at most; it is said, and decides nothing.
    """
    pair = row.metrics.get("instructions")
    if row.is_control or pair is None or pair.before is None or pair.after is None:
        return row
    if withheld:
        said = Verdict(kind="inconclusive", method="none", why=withheld)
        return msgspec.structs.replace(row, verdict=said)
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
    # It is a difference; but what is compiled otherwise where the pool has no part may be so here.
    if kind in ("slower", "faster") and abs(moved_instructions(row)) <= controls:
        why = f"a control moved by {controls:.3f} instructions"
    said = Verdict(kind=kind, method="exact", why=why, percent=exact)
    return msgspec.structs.replace(row, verdict=said)
