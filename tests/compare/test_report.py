# SPDX-License-Identifier: BSD-2-Clause
"""Pairs, warnings and selections."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.made import build, record
from pagepool.compare import compare as compare_files
from pagepool.compare.formats import FORMATS, Format, render
from pagepool.compare.report import METRICS, Report, compare
from pagepool.compare.selection import Chosen, choose, choose_all
from pagepool.results.arguments import Selector, parse
from pagepool.results.errors import ResultsError
from pagepool.results.model import Build, Record, ResultSet
from pagepool.results.reader import read

DATA = Path(__file__).parents[1] / "data"


def texts(report: Report, code: str) -> list[str]:
    pairs = [warning for one in report.comparisons for warning in one.warnings]
    return [warning.text for warning in (*pairs, *report.warnings) if warning.code == code]


def chosen(*names: str) -> list[Chosen]:
    return choose_all(
        [(name, read(str(DATA / name))) for name in names], [parse(name) for name in names]
    )


def test_shown_figures_are_the_printed_ones_and_exact_ones_stand_beside() -> None:
    (comparison,) = compare(chosen("x86-before.txt", "x86-v7.txt")).comparisons
    row = next(row for row in comparison.rows if row.test == "tasklet_page_pool01_fast_path")
    pair = row.metrics["ns"]
    assert pair.before is not None and pair.after is not None
    assert (pair.before.printed, pair.after.printed) == (Decimal("5.399"), Decimal("6.928"))
    assert pair.diff == Decimal("1.529")
    assert pair.change_percent == pytest.approx(1.529 / 5.399 * 100)
    assert pair.before.exact == 5.39904228
    assert pair.exact_diff == pytest.approx(6.92852876 - 5.39904228)
    assert pair.ranges_overlap is None


def test_the_median_of_five_runs_and_their_spread() -> None:
    report = compare(chosen("arm64-patch-by-patch.txt"), tests=["tasklet*fast*"])
    assert len(report.comparisons) == 7
    cell = report.comparisons[0].rows[0].metrics["ns"].before
    assert cell is not None
    assert (cell.printed, cell.n) == (Decimal("28.824"), 5)
    assert (cell.minimum, cell.maximum) == (Decimal("14.236"), Decimal("31.172"))
    assert [round(value, 3) for value in cell.values] == [31.172, 31.172, 28.824, 19.581, 14.237]
    assert "07ea810753bd: tasklet_page_pool01_fast_path has several modes: 31.171, 31.172, " in (
        "\n".join(texts(report, "modes"))
    )
    assert texts(report, "slow-counter") == [
        "the counter of all builds is a 100 MHz timer: compare nanoseconds, not its cycles"
    ]


def test_oddities_of_the_compared_builds_are_kept() -> None:
    name = "arm64-patch-by-patch.txt"
    results = read(str(DATA / name))
    for label, lines in (("e8e4", [389]), ("5760", [])):
        both = choose_all([(name, results)], [parse(f"{name}@07ea"), parse(f"{name}@{label}")])
        assert [oddity.line for oddity in compare(both, results=[results]).oddities] == lines


def test_controls_are_told_even_when_they_were_not_asked_for() -> None:
    report = compare(chosen("x86-before.txt", "x86-v7.txt"), tests=["tasklet*"])
    assert texts(report, "controls") == [
        "controls, which do not touch the pool, moved: "
        "for_loop -9.5 %, atomic_inc +0.9 %, lock +3.2 %"
    ]
    assert not any(row.is_control for row in report.comparisons[0].rows)


def test_one_run_carries_no_verdict() -> None:
    one, two = build("a", [record()]), build("b", [record(interval=2 * 10**9)])
    three = build("c", [record()], [record(interval=10**9 + 9)])
    assert len(texts(compare([one, two]), "one-run")) == 1
    assert "a side with one run" in texts(compare([one, three]), "one-run")[0]
    four = build("d", [record(interval=10**9 + 1)], [record(interval=10**9 + 2)])
    assert texts(compare([three, four]), "one-run") == []


def test_overlapping_ranges_are_named() -> None:
    def runs(label: str, *intervals: int) -> Chosen:
        return build(label, *([record("x", interval)] for interval in intervals))

    overlapping = compare([runs("a", 10**9, 11 * 10**8), runs("b", 105 * 10**7, 12 * 10**8)])
    assert overlapping.comparisons[0].rows[0].metrics["ns"].ranges_overlap is True
    assert texts(overlapping, "overlap") == ["ranges of both sides overlap: x"]
    apart = compare([runs("a", 10**9, 11 * 10**8), runs("b", 12 * 10**8, 13 * 10**8)])
    assert apart.comparisons[0].rows[0].metrics["ns"].ranges_overlap is False
    assert texts(apart, "overlap") == []


@pytest.mark.parametrize(
    ("after", "code", "part"),
    [
        (record(count=10**7), "loops", "lock 100000000 and 10000000"),
        (record(ghz=2.3), "clocks", "3.60 GHz and 2.30 GHz"),
        (record(), "same-measurement", "lock"),
        (record(interval=9_900_000), "short", "lock (0.0099 s)"),
        (record(ghz=0.1), "slow-counter", "b is a 100 MHz timer"),
    ],
)
def test_warnings(after: Record, code: str, part: str) -> None:
    (text,) = texts(compare([build("a", [record()]), build("b", [after])]), code)
    assert part in text


def test_no_warning_without_a_reason() -> None:
    report = compare([build("a", [record()]), build("b", [record(interval=101 * 10**7)])])
    codes = {warning.code for one in report.comparisons for warning in one.warnings}
    assert codes == {"controls", "one-run"}
    assert report.warnings == ()


def test_unlike_machines() -> None:
    one = build("a", [record()], cpu="X", kernel="1", governor="performance")
    two = build("b", [record(interval=11 * 10**8)], cpu="Y", kernel="2", governor="performance")
    assert texts(compare([one, two]), "machines") == [
        "unlike machines: cpu (X and Y); no verdict, unless with --anyway"
    ]


def test_an_impossible_record_is_left_out_and_said() -> None:
    bad = Record(name="lock", printed_cycles=9, printed_ns="9.000", oddities=("zero-loops",))
    report = compare([build("a", [record()], [bad]), build("b", [record(interval=11 * 10**8)])])
    cell = report.comparisons[0].rows[0].metrics["ns"].before
    assert cell is not None and cell.n == 1
    assert "lock is left out (zero-loops)" in texts(report, "left-out")[0]


def test_instructions_are_shown_per_element() -> None:
    one = build("a", [record(instructions=12 * 10**8)])
    two = build("b", [record(interval=11 * 10**8, instructions=13 * 10**8 + 1)])
    pair = compare([one, two], ["instructions"]).comparisons[0].rows[0].metrics["instructions"]
    assert pair.before is not None and pair.after is not None
    assert (pair.before.printed, pair.after.printed) == (Decimal("12.000"), Decimal("13.000"))
    with pytest.raises(ResultsError, match="no selected test has such figures"):
        compare([build("a", [record()]), build("b", [record(interval=5)])], ["instructions"])


def test_a_build_without_a_shared_test_does_not_stop_the_others() -> None:
    one, two = build("a", [record()]), build("b", [record("x")])
    three = build("c", [record(interval=11 * 10**8)])
    with pytest.raises(ResultsError, match="a and b: share no test"):
        compare([one, two])
    report = compare([one, two, three])
    assert [comparison.after.name for comparison in report.comparisons] == ["c"]
    assert "a and b: share no test" in report.failures[0]


def test_globs() -> None:
    both = chosen("x86-before.txt", "x86-v7-p1-5.txt")
    (comparison,) = compare(both, tests=["tasklet*slow", "no-*01"]).comparisons
    assert [row.test for row in comparison.rows] == [
        "no-softirq-page_pool01",
        "tasklet_page_pool03_slow",
    ]
    with pytest.raises(ResultsError, match="matches no test"):
        compare(both, tests=["tasklet*", "nothing*"])
    with pytest.raises(ResultsError, match="share no such test"):
        compare(both, tests=["for_loop"])


def test_tests_of_one_side_only_are_named() -> None:
    (comparison,) = compare(chosen("x86-before.txt", "x86-v7-p1-5.txt")).comparisons
    assert comparison.only_before == ("for_loop", "atomic_inc", "lock")
    assert comparison.only_after == ()


def test_a_step_tells_tests_apart_and_a_missing_one_is_zero() -> None:
    def stepped(step: int | None, interval: int) -> Record:
        return Record(name="x", step=step, time_interval_ns=interval, invoke_count=10**8)

    one = build("a", [stepped(None, 10**9), stepped(8, 2 * 10**9)])
    two = build("b", [stepped(0, 11 * 10**8), stepped(8, 3 * 10**9)])
    rows = compare([one, two], ["ns"]).comparisons[0].rows
    assert [row.name for row in rows] == ["x step:0", "x step:8"]


COUNTS = st.none() | st.integers(0, 3) | st.integers(0, 2**63 - 1)
RECORDS = st.builds(
    Record,
    name=st.sampled_from(["lock", "tasklet_page_pool01_fast_path", "x"]),
    kind=st.sampled_from(["elem", "cpu", "sum"]),
    step=st.none() | st.integers(0, 2),
    cpu=st.none() | st.integers(0, 2),
    printed_cycles=COUNTS,
    printed_ns=st.none() | st.sampled_from(["0.000", "5.000", "5.1000", "99999999999.5"]),
    time_interval_ns=COUNTS,
    invoke_count=COUNTS,
    tsc_interval=COUNTS,
    instructions=COUNTS,
)
BUILDS = st.lists(st.lists(RECORDS, max_size=4), max_size=4)


@settings(max_examples=300, deadline=None)
@given(BUILDS, BUILDS, st.sampled_from(FORMATS))
def test_any_figures_can_be_compared_or_are_refused(
    one: list[list[Record]], other: list[list[Record]], form: Format
) -> None:
    try:
        report = compare([build("a", *one), build("b", *other)], METRICS)
    except ResultsError as error:
        assert "\n" not in str(error)
    else:
        assert render(report, form).endswith("\n")


# Which build of which file


def test_selectors(tmp_path: Path) -> None:
    assert parse("a.txt") == Selector("a.txt", None)
    assert parse("a.txt@before") == Selector("a.txt", "before")
    assert parse("-@2") == Selector("-", "2")
    assert parse("@x") == Selector("@x", None)
    assert parse("x@") == Selector("x@", None)
    odd = tmp_path / "log@host"
    odd.write_text("")
    assert parse(str(odd)) == Selector(str(odd), None)
    assert parse(f"{odd}@a") == Selector(str(odd), "a")


def test_choosing_a_build() -> None:
    labels = ["Before", "before2", "07ea810753bd", "2"]
    results = ResultSet(builds=tuple(Build(label) for label in labels))

    def pick(build: str) -> str:
        return choose(results, Selector("f", build)).build.label

    assert pick("Before") == "Before"
    assert pick("before") == "Before"
    assert pick("07e") == "07ea810753bd"
    assert pick("2") == "2"  # a label goes before a number
    assert pick("1") == "Before"
    for wrong in ("", "bef", "9", "x"):
        with pytest.raises(ResultsError):
            pick(wrong)
    with pytest.raises(ResultsError, match=r"holds 4 builds: Before, .*; choose one, like f@Bef"):
        choose(results, Selector("f", None))


def test_the_builds_to_compare() -> None:
    assert len(chosen("arm64-patch-by-patch.txt")) == 8
    with pytest.raises(ResultsError, match="one build only"):
        chosen("x86-before.txt")
    with pytest.raises(ResultsError, match="holds 8 builds"):
        chosen("x86-before.txt", "arm64-patch-by-patch.txt")
    only = ("x86-before.txt", read(str(DATA / "x86-before.txt")))
    with pytest.raises(ResultsError, match="was not read"):
        choose_all([only], [parse("none"), parse("x86-before.txt")])
    with pytest.raises(ResultsError, match="is alone"):
        choose_all([only], [parse("x86-before.txt"), parse("none")])
    with pytest.raises(ResultsError, match="chosen twice"):
        choose_all([only], [parse("x86-before.txt@1"), parse("x86-before.txt@x86")])


def test_counters_have_no_time_and_are_said(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    perf = "  3.780.344.586      cycles           ( +-  0,00% )\n"
    rate = (
        "Running XDP on dev:x (ifindex:7) action:XDP_DROP options:no_touch\nXDP-RX CPU total {}\n"
    )
    before, after = rate.format("22,188,213"), rate.format("22,901,924")
    log.write_text(f"Before:\n{before}\nAfter:\n{after}\n{perf}\nperf only, before:\n{perf}\n")
    report = compare_files(str(log))
    assert [side.name for side in report.sides] == ["Before", "After"]
    assert report.metrics == ("ns",)
    (comparison,) = report.comparisons
    assert [row.name for row in comparison.rows] == ["XDP_DROP"]
    pair = comparison.rows[0].metrics["ns"]
    assert pair.exact_diff == pytest.approx(1e9 / 22_901_924 - 1e9 / 22_188_213)
    (said,) = [warning for warning in report.warnings if warning.code == "counters"]
    assert "are not compared" in said.text and said.text.endswith(": cycles")
    log.write_text(f"Before:\n{perf}\nAfter:\n{perf}\n")
    with pytest.raises(ResultsError, match="holds counters only"):
        compare_files(str(log))
