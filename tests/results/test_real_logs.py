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
    """The sentences repeat the log in part; what they alone say is theirs."""
    results = load("three-runs-taskset.txt")
    # A load that says what the mail says of `before` to the last digit is a load of that.
    assert shape(results) == [
        ("before", [9, 1, 9]),
        ("after", [9, 1, 1]),
        ("a whole page for", [1, 1, 1]),
    ]
    fast = [
        [str(it.ns_printed) for it in build.records if it.name == "tasklet_page_pool01_fast_path"]
        for build in results.builds
    ]
    assert fast == [
        ["31.171", "31.171", "31.172"],
        ["27.496", "27.484", "27.514"],
        ["71.179", "75.987", "75.795"],
    ]
    assert sorted((it.code, it.line) for it in results.oddities) == [
        ("copy", 9), ("named", 30), ("named", 49), ("named", 70)
    ]  # fmt: skip


def test_lines_broken_by_hand_and_names_with_blanks() -> None:
    assert figures(load("broken-by-hand.txt").builds[0]) == "223/None 223/62.096"
    results = load("no-step.txt")
    assert shape(results) == [
        ("baseline: without patch", [4]),
        ("baseline", [1]),
        ("with patch", [2]),
        ("On baseline kernel", [3]),
    ]
    before, slab, after, _ = results.builds
    timed = [record for build in results.builds for record in build.records if record.printed_ns]
    assert [record.step for record in timed] == [None, None, 0, 0, None, None, 0]
    assert timed[0].name == "kmem fastpath reuse"
    assert before.records[0].key == after.records[0].key
    assert all(record.oddities == () for record in timed)
    assert [(r.name, r.pps) for r in before.records[2:]] == [
        ("packets tx", 1_165_928),
        ("packets rx", 3_245_325),
    ]
    assert [(r.name, r.printed_cycles) for r in slab.records] == [("kmalloc(8)/kfree", 68)]


def test_aligned_columns() -> None:
    assert figures(load("aligned-columns.txt").builds[0]) == "14/4.041 49/13.622 162/45.198"


def test_page_bench04_has_its_names_in_headings() -> None:
    results = load("page_bench04.txt")
    assert shape(results) == [("page_bench04", [19]), ("quoted1", [19])]
    own, quoted = (build.records for build in results.builds)
    steps = [1, 2, 3, 4, 8, 16, 32, 64, 128]
    names = ["time_bulk_page_alloc_free_list"] * 9 + ["time_bulk_page_alloc_free_array"] * 9
    for records, first, last in (
        (own, "199/55.472", "110/30.596"),
        (quoted, "207/57.773", "94/26.170"),
    ):
        assert records[0].name == "single_page alloc+put"
        assert [record.name for record in records[1:]] == names
        assert [record.step for record in records[1:]] == steps * 2
        both = [f"{r.printed_cycles}/{r.printed_ns}" for r in records]
        assert (both[0], both[-1]) == (first, last)


def test_packets_per_second_are_the_totals() -> None:
    results = load("xdp-rxq-info.txt")
    rates = [record for build in results.builds for record in build.records]
    assert [(record.kind, record.name, record.pps) for record in rates] == [
        ("rate", "XDP_DROP", 22_188_213),
        ("rate", "XDP_DROP", 22_901_924),
        ("rate", "XDP_DROP", 22_359_831),
    ]
    assert rates[0].ns == pytest.approx(45.0689, abs=1e-4)


def test_a_table_with_tabs_and_a_cell_without_a_value() -> None:
    results = load("stats-on-off.txt")
    assert shape(results) == [("column 1", [6, 6, 10]), ("column 2", [6, 6, 10])]
    on, off = results.builds
    assert figures(on) == "75/32.856 75/32.894 107/46.651 14/6.386 41/17.998 107/47.040"
    assert figures(off) == "74/32.305 74/32.343 107/46.710 13/5.829 39/17.390 107/46.830"
    assert on.runs[0].settings == {"loops": "200000000"}
    averages = [run.records[-1] for build in (on, off) for run in build.runs[1:]]
    assert [(r.kind, r.printed_cycles, r.printed_ns, r.step) for r in averages] == [
        ("sum", 3441, None, 4),
        ("sum", 6741, None, 8),
        ("sum", 3475, None, 4),
        ("sum", 6799, None, 8),
    ]
    cpu = on.runs[2].records[8]
    assert (cpu.kind, cpu.cpu, cpu.step, cpu.printed_ns) == ("cpu", 8, 8, "407.406")


def test_figures_that_are_named_by_the_line_above() -> None:
    results = load("prose-cross-cpu.txt")
    assert shape(results) == [("quoted2", [7]), ("prose-cross-cpu", [3])]
    quoted, own = results.builds
    assert figures(quoted) == (
        "15/4.437 48/13.439 256/71.169 110/30.709 989/274.861 2089/580.530 2339/649.984"
    )
    assert figures(own) == "462/128.502 1992/553.507 2323/645.389"
    assert [record.name for record in quoted.records[:2]] == [
        "Fast_path NAPI recycle (XDP_DROP use-case)",
        "Recycle via ptr_ring",
    ]
    # The rerun is about the same tests.
    assert [r.key for r in own.records] == [r.key for r in quoted.records[4:]]
    assert [record.cpus for record in own.records] == [2, 3, 4]


def test_a_list_of_figures() -> None:
    (build,) = load("prose-memset.txt").builds
    assert figures(build) == "37/10.463 37/10.468 31/8.803 41/11.552 35/9.893"
    assert build.machine == {"cpu": "Intel(R) Xeon(R) CPU E5-1650 v4 @ 3.60GHz"}


def test_a_table_with_a_head_over_two_columns_each() -> None:
    results = load("grouped-table.txt")
    assert shape(results) == [("Baseline", [6]), ("xarray", [6])]
    assert figures(results.builds[0]).startswith("20/5.713 56/15.560 225/62.763 19/5.399")
    assert figures(results.builds[1]) == (
        "19/5.516 57/15.864 222/61.728 19/5.505 54/15.018 239/66.498"
    )


def test_tables_that_were_typed() -> None:
    """An org table whose blanks a mailer ate, in a quote; and runs below each other."""
    results = load("hand-tables.txt")
    assert shape(results) == [
        ("Before", [3]),
        ("After", [3]),
        ("Before this patchset", [3, 3, 3]),
        ("With patch 1-4", [3, 3]),
        ("With patch 1-5", [3, 3]),
        ("With patch 1-8", [3, 3]),
    ]
    assert figures(results.builds[0]) == "19/5.399 54/15.090 238/66.134"
    assert figures(results.builds[1]) == "24/6.928 79/21.976 299/83.298"
    assert figures(results.builds[2], 2) == "None/14.236 None/60.583 None/164.355"
    assert figures(results.builds[5], 1) == "None/16.128 None/55.904 None/202.711"
    assert {record.name for record in results.builds[5].records} == {
        record.name for record in results.builds[0].records
    }


def test_lines_of_other_modules() -> None:
    (build,) = load("page_bench01.txt").builds
    assert shape(load("page_bench01.txt")) == [("Results kernel 4.6.0-rc1", [10, 10])]
    assert [r.printed_cycles for r in build.runs[0].records] == [
        272, 395, 433, 503, 682, 910, 1384, 2335, 4108, 8398,
    ]  # fmt: skip
    assert build.runs[1].records[3].name == "alloc_pages order:3"
    assert build.runs[1].records[3].counts == {"cycles per 4096B": 49}


def test_a_table_that_agrees_with_its_log_is_a_copy_of_it(tmp_path: Path) -> None:
    text = (DATA / "org-document.txt").read_text()
    (copies,) = load("org-document.txt").oddities
    assert copies.code == "copy" and copies.text.startswith("12 records are copies")
    wrong = tmp_path / "wrong.org"
    wrong.write_text(text.replace("|  15.090 | 21.976 |", "|  15.090 | 21.967 |"))
    results = read(str(wrong))
    assert shape(results) == shape(load("org-document.txt"))
    (said,) = [oddity for oddity in results.oddities if oddity.code == "contradiction"]
    assert "the table says 79/21.967, the record of line 83 79/21.976" in said.text


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
