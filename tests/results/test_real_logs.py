# SPDX-License-Identifier: BSD-2-Clause
"""Real inputs (machine output of mails and logs), and what a right reader gets from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagepool.results import text as text_module
from pagepool.results.errors import ResultsError
from pagepool.results.model import Build, ResultSet
from pagepool.results.reader import read
from pagepool.results.time_bench import format_record

DATA = Path(__file__).parents[1] / "data"
X86_BEFORE = (
    "1/0.284 17/4.769 37/10.431 20/5.713 56/15.560 225/62.763 19/5.399 54/15.090 238/66.134"
)
X86_V7 = "0/0.257 17/4.814 38/10.763 24/6.880 71/19.844 273/76.069 24/6.928 79/21.976 299/83.298"
X86_P15 = "19/5.539 61/17.095 272/75.826 19/5.492 57/15.849 284/78.909"


def load(name: str) -> ResultSet:
    return read(str(DATA / name))


def figures(build: Build, run: int = 0) -> str:
    return " ".join(f"{r.cycles_printed}/{r.ns_printed}" for r in build.runs[run].records)


def shape(results: ResultSet) -> list[tuple[str, list[int]]]:
    return [(b.label, [len(run.records) for run in b.runs]) for b in results.builds]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x86-before.txt", X86_BEFORE),
        ("dmesg-time-stamps.txt", X86_BEFORE),
        ("x86-v7.txt", X86_V7),
        ("x86-v7-p1-5.txt", X86_P15),
    ],
)
def test_x86(name: str, expected: str) -> None:
    results = load(name)
    (build,) = results.builds
    assert len(build.runs) == 1
    assert figures(build) == expected
    assert results.oddities == ()
    assert build.runs[0].loops == 100_000_000
    for record in build.records:
        assert record.tsc_ghz == pytest.approx(3.6, abs=0.01)
        # What the kernel printed is what the intervals give.
        assert f" {record.printed_ns} ns " in format_record(record)


def test_a_record_knows_its_lines() -> None:
    source = load("x86-before.txt").builds[0].records[1].source
    assert source is not None
    assert (source.line, source.last_line) == (5, 8)


def test_the_kernel_and_the_machine_of_a_mail() -> None:
    (build,) = load("x86-v7-p1-5.txt").builds
    assert build.label == "6.13.0-rc6-pp01-DMA-fix-v7-p1-5+"
    assert build.kernel is not None and build.kernel.startswith(build.label)
    assert build.machine == {"cpu": "Intel(R) Xeon(R) CPU E5-1650 v4 @ 3.60GHz"}
    assert build.runs[0].settings == {"loops": "100000000"}


def test_arm64_patch_by_patch() -> None:
    results = load("arm64-patch-by-patch.txt")
    assert shape(results) == [
        ("07ea810753bd", [10] * 5),
        ("c8cd65aea46f", [10] * 2),
        ("d8de0484ad23", [10] * 2),
        ("b53806ee8b03", [10] * 2),
        ("249fa431270c", [10] * 2),
        ("bd05af7e28d2", [10] * 2),
        ("e8e4ef65fd4b", [10] * 4),
        ("5760bcdd3fef", [10] * 3),
    ]
    first = results.builds[0]
    fast = [str(run.records[7].ns_printed) for run in first.runs]
    assert fast == ["31.171", "31.172", "28.824", "19.581", "14.236"]
    assert first.kernel is not None and "g07ea810753bd" in first.kernel
    assert results.builds[2].kernel is None
    for build in results.builds:
        if build.kernel is not None:
            assert f"-g{build.label} " in build.kernel
        for record in build.records:
            # for_loop's 77 million ticks are read some thousand ticks apart.
            assert record.tsc_ghz is None or record.tsc_ghz == pytest.approx(0.1, rel=1e-3)


def test_the_record_that_is_cut_short_is_kept_and_said() -> None:
    results = load("arm64-patch-by-patch.txt")
    (oddity,) = results.oddities
    assert (oddity.line, oddity.severity, oddity.code) == (389, "warning", "cut-short")
    (record,) = [r for b in results.builds for r in b.records if r.oddities]
    assert record.oddities == ("cut-short",)
    assert record.ns == 191.98137710
    assert record.tsc_interval is None


def test_quoted_at_depth_one() -> None:
    results = load("quoted-before-after.txt")
    assert shape(results) == [("Before this patchset", [10]), ("After this patchset", [10])]
    before, after = results.builds
    assert figures(before).endswith("2/29.632 7/79.523 19/190.104")
    assert figures(after).endswith("1/15.005 6/68.269 20/205.376")


def test_org_document() -> None:
    results = load("org-document.txt")
    assert shape(results) == [
        ("Before this patchset", [9]),
        ("6.13.0-rc6-pp01-DMA-fix-v7+", [9]),
        ("6.13.0-rc6-pp01-DMA-fix-v7-p1-5+", [6]),
    ]
    assert [figures(build) for build in results.builds] == [X86_BEFORE, X86_V7, X86_P15]
    kernel = results.builds[0].kernel
    assert kernel is not None and kernel.startswith("6.13.0-rc6baseline+ #3 SMP")


def test_bar_prefix_without_tails() -> None:
    results = load("bar-prefix.txt")
    assert shape(results) == [("before", [10]), ("after", [10])]
    assert figures(results.builds[0]).endswith("19/9.531 45/22.594 123/61.969")
    assert figures(results.builds[1]).endswith("18/9.024 43/22.028 121/60.736")
    assert results.builds[0].records[3].name == "this_cpu_inc"
    assert results.builds[0].records[0].time_interval_ns is None


def test_a_quote_between_records_is_somebody_elses() -> None:
    results = load("interleaved-quote.txt")
    by_label = {build.label: figures(build) for build in results.builds}
    assert by_label == {
        "quoted1": "11/4.368 527/195.187 549/203.466",
        "interleaved-quote": "22/6.128 60/16.853 265/73.674",
    }
    own = results.builds[1]
    assert [r.invoke_count for r in own.records] == [10_000_000] * 3


def test_script_summary() -> None:
    results = load("script-summary.txt")
    assert shape(results) == [("Before", [3]), ("After", [3])]
    assert figures(results.builds[0]) == "11/4.337 529/196.073 554/205.195"
    assert figures(results.builds[1]) == "11/4.401 530/196.443 551/204.287"


def test_cross_cpu_comes_back_to_the_same_heading() -> None:
    results = load("control-and-test.txt")
    assert shape(results) == [("Control", [9, 4]), ("Test", [9, 4])]
    assert figures(results.builds[0], 1) == "1795/782.567 1921/837.435 960/418.758 1558/None"
    # The second average lacks `Sum`.
    average = results.builds[1].records[-1]
    assert (average.kind, average.printed_cycles, average.cpus, average.step) == ("sum", 2037, 3, 2)


def test_three_runs_and_nameless_figures() -> None:
    results = load("three-runs-taskset.txt")
    assert shape(results) == [("three-runs-taskset", [9, 9, 9])]
    fast = [run.records[6] for run in results.builds[0].runs]
    assert [str(record.ns_printed) for record in fast] == ["31.172", "31.171", "27.496"]


def test_lines_broken_by_hand_and_names_with_blanks() -> None:
    assert figures(load("broken-by-hand.txt").builds[0]) == "223/62.096"
    records = [record for build in load("no-step.txt").builds for record in build.records]
    assert [record.step for record in records] == [None, None, 0, 0, None, None, 0]
    assert records[0].name == "kmem fastpath reuse"
    assert records[0].key == records[2].key
    assert all(record.oddities == () for record in records)


def test_aligned_columns() -> None:
    assert figures(load("aligned-columns.txt").builds[0]) == "14/4.041 49/13.622 162/45.198"


@pytest.mark.parametrize("path", sorted(DATA.glob("*.txt")), ids=lambda path: path.stem)
def test_the_filter_for_long_logs_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def everything() -> ResultSet | str:
        try:
            return read(str(path))
        except ResultsError as error:
            return str(error)

    filtered = everything()
    monkeypatch.setattr(text_module, "_may_matter", lambda data: True)
    assert everything() == filtered
