# SPDX-License-Identifier: BSD-2-Clause
"""Looks at runs that are added until the verdict is clear: the plan, its price, what stays open."""

from __future__ import annotations

import math

import msgspec
import pytest

from compare.made import build, record
from pagepool.compare import looks, verdict
from pagepool.compare.formats import render
from pagepool.compare.looks import SETTING, Looks, Undecided
from pagepool.compare.report import Report, compare
from pagepool.compare.selection import Chosen
from pagepool.compare.statistics import least_p
from pagepool.compare.verdict import ALPHA, RANK_RUNS, Verdict

SOME = [100.0, 100.4, 99.7, 100.1, 99.8, 100.3, 100.2, 99.9]
SIX = Looks((7, 10, 14, 20, 28, 40))


def chosen(label: str, times: list[float], setting: str | None = None) -> Chosen:
    made = build(label, *([record("x", int(time * 10**8))] for time in times))
    settings = {} if setting is None else {SETTING: setting}
    runs = tuple(msgspec.structs.replace(run, settings=settings) for run in made.build.runs)
    return Chosen(made.file, msgspec.structs.replace(made.build, runs=runs))


def said(report: Report) -> Verdict:
    found = report.comparisons[0].rows[0].verdict
    assert found is not None
    return found


def notes(report: Report) -> list[str]:
    return [it.text for it in report.comparisons[0].warnings if it.code == "looks"]


@pytest.mark.parametrize("rows", [1, 3, 4, 6, 14, 50, 300])
@pytest.mark.parametrize("most", [6, 7, 9, 10, 20, 40, 100, 1000])
def test_the_plan(rows: int, most: int) -> None:
    plan = looks.plan(rows, most)
    first, last = plan.at[0], plan.at[-1]
    assert first >= RANK_RUNS and last == most
    # One that could call nothing would be paid for by the others.
    assert len(plan.at) == 1 or least_p(first, first) <= ALPHA * plan.share / rows
    # And an earlier one could not.
    assert first in (RANK_RUNS, most) or least_p(first - 1, first - 1) > ALPHA * plan.share / rows
    for one, other in zip(plan.at, plan.at[1:], strict=False):
        assert other >= math.floor(looks.GROWTH * one)
    assert plan.share * len(plan.at) == pytest.approx(1.0)


def test_the_plan_of_the_usual_run() -> None:
    assert looks.plan(6, 40) == SIX
    assert str(SIX) == "looks at 7,10,14,20,28,40 runs"
    assert looks.parse(str(SIX)) == SIX
    assert [SIX.made(runs) for runs in (0, 6, 7, 13, 40, 99)] == [0, 0, 1, 2, 6, 6]


@pytest.mark.parametrize("text", ["", "yes", "looks at runs", "looks at 7, 9 runs", "looks at 7"])
def test_what_is_no_plan(text: str) -> None:
    assert looks.parse(text) is None
    assert notes(compare([chosen("a", SOME, text), chosen("b", SOME, text)])) == []


def test_unstable_needs_two_looks_in_a_row() -> None:
    undecided = Undecided[str]()
    assert undecided.look({"a": "unstable", "b": "inconclusive", "c": "same"}) == ["a", "b"]
    assert undecided.look({"a": "unstable", "b": "inconclusive", "c": "same"}) == ["b"]
    again = Undecided[str]()
    assert again.look({"a": "unstable"}) == ["a"]
    assert again.look({"a": "inconclusive"}) == ["a"]
    assert again.look({"a": "unstable"}) == ["a"]
    assert again.look({"a": "faster"}) == []


def test_a_share_of_the_level() -> None:
    more = [time * 1.003 for time in SOME]
    pooled = verdict.noise([SOME, more])
    whole = verdict.judge(SOME, more, pooled)
    part = verdict.judge(SOME, more, pooled, share=0.1)
    assert whole.p is not None and part.p == pytest.approx(10 * whole.p)
    assert whole.effect and part.effect
    assert part.effect.low < whole.effect.low and whole.effect.high < part.effect.high
    assert part.effect.estimate == whole.effect.estimate
    one, other = (verdict.smallest(it, pooled, 1) for it in (whole, part))
    assert one is not None and other is not None and other > one

    def kind(share: float) -> str:
        it = verdict.judge(SOME, more, pooled, share)
        # Between both ends of the interval: the wider one reaches over the margin.
        assert whole.effect and part.effect
        limit = (whole.effect.high + part.effect.high) / 2
        (decision,), _ = verdict.decide_all([verdict.Case(it, pooled, limit)])
        return decision.kind

    assert (kind(1.0), kind(0.1)) == ("same", "inconclusive")


@pytest.mark.parametrize("runs", [3, 8])
def test_p_is_never_above_one(runs: int) -> None:
    pooled = verdict.noise([SOME, SOME])
    assert verdict.judge(SOME[:runs], SOME[:runs], pooled, share=0.01).p == 1.0


def test_runs_that_say_so_are_judged_by_their_looks() -> None:
    more = [time * 1.05 for time in SOME]
    plain = compare([chosen("a", SOME), chosen("b", more)])
    looked = compare([chosen("a", SOME, str(SIX)), chosen("b", more, str(SIX))])
    assert notes(plain) == []
    assert said(plain).kind == said(looked).kind == "slower"
    assert said(looked).p_adjusted == pytest.approx(6 * (said(plain).p_adjusted or 0))
    for unit in ("percent", "ns", "cycles"):
        one, other = getattr(said(plain), unit), getattr(said(looked), unit)
        assert other.low < one.low and one.high < other.high
    (note,) = notes(looked)
    assert "1 look of at most 6 (7,10,14,20,28,40 runs a side), each judged at 1/6" in note
    assert note in render(looked, "table")


def test_one_side_that_was_looked_at_is_enough() -> None:
    few = Looks((6, 10))
    report = compare([chosen("a", SOME, str(few)), chosen("b", SOME, str(SIX))])
    assert "of at most 6" in notes(report)[0]
    assert "of at most 2" in notes(compare([chosen("a", SOME, str(few)), chosen("b", SOME)]))[0]


def test_a_single_look_was_not_chosen_by_the_runs() -> None:
    only = str(Looks((8,)))
    report = compare([chosen("a", SOME, only), chosen("b", SOME, only)])
    assert notes(report) == []
    assert said(report) == said(compare([chosen("a", SOME), chosen("b", SOME)]))
