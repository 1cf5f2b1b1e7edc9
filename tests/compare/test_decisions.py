# SPDX-License-Identifier: BSD-2-Clause
"""The verdicts of a report: whose noise is whose, what controls bound, how many rows there are."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from compare.made import build, record
from pagepool.compare import formats, mail
from pagepool.compare.decisions import Pool
from pagepool.compare.report import Report, Row, compare
from pagepool.compare.selection import Chosen
from pagepool.compare.verdict import Margin, Verdict
from pagepool.results.model import Record, ResultSet

NS = 10**8  # of so many loops: a nanosecond each


def runs(label: str, times: Sequence[float], name: str = "x", **machine: str) -> Chosen:
    """A build that ran once for each of these times in nanoseconds."""
    return build(label, *([record(name, int(time * NS))] for time in times), **machine)


def both(label: str, **times: Sequence[float]) -> Chosen:
    """A build with several tests."""
    passes = zip(*times.values(), strict=True)
    return build(
        label,
        *(
            [record(name, int(ns * NS)) for name, ns in zip(times, one, strict=True)]
            for one in passes
        ),
    )


def row(report: Report, name: str = "x", at: int = 0) -> Row:
    return next(row for row in report.comparisons[at].rows if row.test == name)


def said(report: Report, name: str = "x", at: int = 0) -> Verdict:
    verdict = row(report, name, at).verdict
    assert verdict is not None
    return verdict


SOME = [100.0, 100.4, 99.7, 100.1, 99.8, 100.3, 100.2, 99.9]
MORE = [time * 1.05 for time in SOME]


def test_the_effect_in_all_units() -> None:
    verdict = said(compare([runs("a", SOME), runs("b", MORE)]))
    assert (verdict.kind, verdict.method) == ("slower", "ranks")
    assert verdict.percent is not None and verdict.ns is not None and verdict.cycles is not None
    assert verdict.percent.low < verdict.percent.estimate < verdict.percent.high
    assert verdict.percent.estimate == pytest.approx(5.0, abs=0.2)
    assert verdict.ns.estimate == pytest.approx(5.0, abs=0.2)
    assert verdict.cycles.estimate == pytest.approx(5.0 * 3.6, abs=0.7)
    assert verdict.p == verdict.p_adjusted


def test_few_runs_in_all_units() -> None:
    verdict = said(compare([runs("a", SOME[:3]), runs("b", MORE[:3])]))
    assert (verdict.kind, verdict.method) == ("slower", "pooled")
    assert verdict.ns is not None and verdict.cycles is not None
    assert verdict.ns.low < 5 < verdict.ns.high
    assert verdict.cycles.low == pytest.approx(verdict.ns.low * 3.6)


def test_a_control_has_no_verdict_and_bounds_the_others() -> None:
    quiet = both("a", x=SOME, lock=SOME), both("b", x=MORE, lock=SOME)
    report = compare(quiet)
    assert row(report, "lock").verdict is None
    assert said(report).kind == "slower"
    moved = compare(
        [both("a", x=SOME, lock=SOME), both("b", x=MORE, lock=[t * 1.06 for t in SOME])]
    )
    assert said(moved).kind == "inconclusive"
    assert "control moved by 6.0 %" in said(moved).why
    # Also where it was not asked for.
    (before, after) = both("a", x=SOME, y=SOME), both("b", x=MORE, y=[t * 1.06 for t in SOME])
    assert said(compare([before, after], controls=["y"])).kind == "inconclusive"
    assert said(compare([before, after], tests=["x"], controls=["y"])).kind == "inconclusive"
    assert said(compare([before, after], tests=["x"])).kind == "slower"


def test_noise_comes_from_builds_of_the_same_machine() -> None:
    loud = runs("c", [100.0, 104.0, 97.0, 101.0], cpu="A")
    one, two = runs("a", [100.0], cpu="A"), runs("b", [105.0], cpu="A")
    results = [ResultSet((one.build, two.build, loud.build))]
    assert said(compare([one, two])).method == "none"
    assert said(compare([one, two], results=results)).method == "pooled"
    # Of another machine nothing is to be had.
    other = msgspec.structs.replace(loud.build, machine={"cpu": "B"})
    elsewhere = [ResultSet((one.build, two.build, other))]
    assert said(compare([one, two], results=elsewhere)).method == "none"


def test_a_build_that_is_given_twice_lends_its_noise_once() -> None:
    one = runs("a", SOME)
    renamed = msgspec.structs.replace(one.build, label="b")
    noise = Pool([one.build, renamed]).of(one.build)[one.build.records[0].key]
    assert noise is not None and noise.runs == len(SOME)


def test_unlike_machines_have_no_verdict() -> None:
    report = compare([runs("a", SOME, cpu="A"), runs("b", MORE, cpu="B")])
    assert (said(report).kind, said(report).why) == ("inconclusive", "unlike machines")
    slower_clock = build("b", *([record("x", int(t * NS), ghz=2.4)] for t in MORE))
    assert said(compare([runs("a", SOME), slower_clock])).why == "unlike clocks"


def test_many_rows_are_adjusted_together() -> None:
    """p of 6 and 6 runs is 2/924 at best: significant of one row, not of thirty."""
    names = [f"t{k}" for k in range(30)]
    before = both("a", x=SOME[:6], **dict.fromkeys(names, SOME[:6]))
    after = both("b", x=MORE[:6], **dict.fromkeys(names, SOME[1:7]))
    report = compare([before, after])
    assert report.judged == {"first": 31}
    assert said(report).kind == "inconclusive"
    assert said(report).more_runs == 1
    assert said(report).p_adjusted == pytest.approx(31 * 2 / 924)
    assert said(compare([before, after], tests=["x"])).kind == "slower"


def test_a_series_is_compared_both_ways_in_one_family() -> None:
    report = compare([runs("a", SOME), runs("b", MORE), runs("c", SOME)], series=True)
    ways = [(one.against, one.before.label, one.after.label) for one in report.comparisons]
    assert ways == [("previous", "a", "b"), ("previous", "b", "c"), ("first", "a", "c")]
    assert report.judged == {"previous": 2, "first": 1}
    # Of the whole report 5 % may be called without a change: three rows share it.
    ps = [(it.p, it.p_adjusted) for k in range(3) if (it := said(report, at=k)).p is not None]
    least = min(ps)
    assert least[0] is not None and least[1] == pytest.approx(3 * least[0])
    assert [said(report, at=k).kind for k in range(3)] == ["slower", "faster", "same"]


def test_instructions_are_compared_exactly() -> None:
    def counted(label: str, *counts: int) -> Chosen:
        return build(label, *([record("x", instructions=count * 10**8)] for count in counts))

    def kind(before: Chosen, after: Chosen) -> str:
        return said(compare([before, after], metrics=("instructions",))).kind

    assert kind(counted("a", 50, 50), counted("b", 50, 50)) == "same"
    assert kind(counted("a", 50), counted("b", 51)) == "slower"
    assert kind(counted("a", 50, 50), counted("b", 49, 49)) == "faster"
    assert kind(counted("a", 50, 52, 52), counted("b", 51, 51, 51)) == "unstable"


def test_what_controls_moved_by_is_said_of_what_is_counted() -> None:
    def counted(label: str, x: int, lock: int) -> Chosen:
        names = {"x": x, "lock": lock}
        return build(
            label, [record(name, instructions=count * 10**8) for name, count in names.items()]
        )

    def judged(x: int, lock: int) -> tuple[Verdict, list[str]]:
        report = compare([counted("a", 50, 20), counted("b", x, lock)], metrics=("instructions",))
        found = next(row.verdict for row in report.comparisons[0].rows if row.test == "x")
        assert found is not None
        codes = {it.code: it.text for it in report.comparisons[0].warnings}
        return found, [codes["control-instructions"]] if "control-instructions" in codes else []

    moved = ["controls moved by instructions: lock +2.000"]
    for x, kind, why in (
        (53, "slower", ""),
        (52, "slower", "a control moved by 2.000 instructions"),
        (49, "faster", "a control moved by 2.000 instructions"),
        (50, "same", ""),
    ):
        it, said_of_controls = judged(x, 22)
        assert (it.kind, it.why, said_of_controls) == (kind, why, moved)
    it, said_of_controls = judged(51, 20)
    assert (it.kind, it.why, said_of_controls) == ("slower", "", [])


def test_the_margin_is_in_the_report() -> None:
    margin = Margin(10, 0)
    report = compare([runs("a", SOME), runs("b", MORE)], margin=margin)
    assert report.margin == margin
    assert said(report).kind == "same"


def test_a_record_that_measures_nothing_is_no_noise() -> None:
    bad = Record(name="x", printed_cycles=9, printed_ns="9.000", oddities=("zero-loops",))
    one = build("a", *([record("x", int(t * NS))] for t in SOME), [bad])
    noise = Pool([one.build]).of(one.build)[one.build.records[0].key]
    assert noise is not None and noise.runs == len(SOME)


@pytest.mark.parametrize("style", ["table", "markdown", "csv", "json", "html"])
def test_intervals_beyond_all_numbers(style: formats.Format) -> None:
    """Found by hypothesis: runs of one build 10^26 apart, in a series."""
    builds = [
        build("a", [record("x", 1, 1)]),
        build("b", [record("x", 1, 10**8)]),
        build("c", [record("x", 1, 10**8)], [record("x", 6247118747787545089, 1, 1.0)]),
    ]
    report = compare(builds, series=True)
    assert formats.render(report, style)
    assert mail.render(report, [it.build for it in builds])
