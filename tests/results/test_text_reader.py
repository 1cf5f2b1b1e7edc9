# SPDX-License-Identifier: BSD-2-Clause
"""Where runs and builds begin, copies, and text that is no record."""

from __future__ import annotations

import io

import pytest

from pagepool.results import assembly
from pagepool.results import text as text_module
from pagepool.results.errors import ResultsError
from pagepool.results.lines import read_lines
from pagepool.results.model import ResultSet
from pagepool.results.text import TextReader


def line(name: str = "lock", interval: int = 1_000_000_000, stamp: float | None = None) -> str:
    head = "" if stamp is None else f"[{stamp:12.6f}] "
    return (
        f"{head}time_bench: Type:{name} Per elem: {interval * 3 // 10**8} cycles(tsc) "
        f"{interval // 10**8}.{interval // 10**5 % 1000:03} ns (step:0) - (measurement period "
        f"time:{interval // 10**9}.{interval % 10**9:09} sec time_interval:{interval}) - "
        f"(invoke count:100000000 tsc_interval:{interval * 3})\n"
    )


def read(text: str, name: str = "log.txt") -> ResultSet:
    return TextReader(name).read(read_lines(io.BytesIO(text.encode())))


def runs(text: str) -> list[list[int]]:
    return [[len(run.records) for run in build.runs] for build in read(text).builds]


@pytest.mark.parametrize(
    "start",
    [
        "[   1.0] bench_page_pool_simple: Loaded\n",
        "root@(none)$ insmod bench_page_pool_simple.ko loops=1\n",
        "# sudo modprobe bench_page_pool_simple\n",
        "# run 2\n",
    ],
)
def test_a_run_begins(start: str) -> None:
    assert runs(line("a", 1001) + start + line("b", 1002)) == [[1, 1]]


@pytest.mark.parametrize(
    "other",
    [
        "[   57.833978] time_bench: Loaded\n",
        "# perf record -g modprobe bench_page_pool_simple run_flags=$((2#100))\n",
        "bench_page_pool_simple: f(): Cannot use page_pool fast-path\n",
        "some text, and modprobe nothing\n",
    ],
)
def test_no_run_begins(other: str) -> None:
    assert runs(line("a", 10**9) + other + line("b", 10**9 + 1)) == [[2]]


def test_time_going_backwards_or_a_test_again_is_a_new_run() -> None:
    assert runs(line("a", 10**9, 50.0) + line("b", 10**9, 20.0)) == [[1, 1]]
    assert runs(line("a", 10**9, 50.0) + line("b", 10**9, 60.0)) == [[2]]
    assert runs(line("a", 10**9) + line("a", 10**9 + 1)) == [[1, 1]]


def test_the_same_copy_is_counted_once_and_said() -> None:
    own = line("a", 10**9) + line("b", 2 * 10**9)
    results = read(own + "\n" + "".join(f"> {part}\n" for part in own.splitlines()))
    assert [len(build.records) for build in results.builds] == [2]
    (oddity,) = results.oddities
    assert (oddity.code, oddity.line) == ("copy", 4)
    assert "2 records are copies" in oddity.text


def test_the_summary_of_a_script_is_a_copy_of_its_log() -> None:
    text = line("no-softirq-page_pool01", 10**9)
    summary = "Fast path results:\nno-softirq-page_pool01 Per elem: 30 cycles(tsc) 10.000 ns\n"
    results = read(text + summary)
    assert [len(build.records) for build in results.builds] == [1]
    assert results.oddities[0].code == "copy"
    other = summary.replace("10.000", "11.000")
    assert runs(text + other) == [[1, 1]]


@pytest.mark.parametrize(
    ("heading", "label"),
    [
        ("Before this patchset:", "Before this patchset"),
        ("after:", "after"),
        ("Control:", "Control"),
        ("BASELINE", "BASELINE"),
        ("# with patches", "with patches"),
        ("With patch 1-4:", "With patch 1-4"),
        ("For this module with loops=600000000 I ended up with, before:", "before"),
        ("07ea810753bd Revert something", "07ea810753bd"),
        ("c8cd65aea46f (HEAD -> branch) Revert something", "c8cd65aea46f"),
        ("d8de0484ad23------page_pool: fix something", "d8de0484ad23"),
        ("# build: v7 with lists", "v7 with lists"),
        ("Output (from me):", "Output (from me)"),
        ("Results kernel 4.6.0-rc1 :", "Results kernel 4.6.0-rc1"),
        ("Raw data:", "log"),
        ("Results below suggest that:", "log"),
        ("The results are not stable, as after a while I get this result:", "log"),
        ("Commands for disabling of Ethernet flow-control:", "log"),
        ("Test system:", "log"),
        ("1234567890 bytes", "log"),
        ("1234567890", "log"),
    ],
)
def test_headings(heading: str, label: str) -> None:
    results = read(f"{heading}\n\n{line()}")
    assert [build.label for build in results.builds] == [label]


def test_a_heading_far_away_is_none_of_ours() -> None:
    assert read("Before:\n" + "text\n" * 100 + line()).builds[0].label == "log"


def test_two_kernels_without_headings_are_two_builds() -> None:
    banner = "[    0.000000] Linux version {} (gcc) #1 SMP\n"
    text = banner.format("6.1.0") + line("a", 1001) + banner.format("6.2.0") + line("a", 1002)
    assert [build.label for build in read(text).builds] == ["6.1.0", "6.2.0"]


def test_the_same_heading_on_another_machine_is_another_build() -> None:
    other = line("a", 1_000_000_002).replace(":3000000006)", ":100000000)")
    results = read("Before:\n" + line("a", 10**9) + "After:\n" + line("a") + "Before:\n" + other)
    assert [build.label for build in results.builds] == ["Before", "Before#2"]
    # The middle one was a copy; without headings it is the same.
    assert len(read(line("a", 10**9) + other).builds) == 2
    # A single strange record in a run does not tear the run apart.
    strange = line("b", 10**9).replace(":3000000000)", ":100000000)")
    assert runs(line("a") + strange + line("c")) == [[3]]


def test_a_short_record_says_nothing_about_the_machine() -> None:
    # 40 us in which the process lost its CPU between the two clocks.
    torn = line("a", 40_000).replace(":120000)", ":200000)")
    assert runs(line("a", 10**9) + line("b", 40_000) + torn + line("b", 50_000)) == [[2, 2]]


def test_a_version_typed_after_the_runs_is_theirs() -> None:
    results = read(line("a", 1001) + "Linux version 6.1.0 (gcc) #1 SMP\n" + line("b", 1002))
    (build,) = results.builds
    assert build.kernel == "Linux version 6.1.0 (gcc) #1 SMP"
    assert len(build.records) == 2


def test_a_host_name_is_not_kept() -> None:
    text = "Linux secret-host 6.1.0-rc1 #3 SMP PREEMPT_DYNAMIC Mon Jan 13 x86_64 GNU/Linux\n"
    kernel = read(text + line()).builds[0].kernel
    assert kernel == "6.1.0-rc1 #3 SMP PREEMPT_DYNAMIC Mon Jan 13 x86_64 GNU/Linux"


def test_a_kernel_that_contradicts_its_heading_is_said() -> None:
    text = "07ea810753bd Revert\n" + line() + "Linux version 6.13.0-g1111111111 (gcc)\n"
    (oddity,) = read(text).oddities
    assert oddity.code == "other-commit"


def test_a_kernel_below_which_nothing_comes_is_said() -> None:
    text = "Linux version 6.1.0 (gcc)\n" + line() + "Linux version 6.2.0 (gcc)\n"
    assert [oddity.code for oddity in read(text).oddities] == ["no-records"]


def test_own_output() -> None:
    text = (
        "# pagepool: 0.1\n# cpu: Some CPU\n# kernel: 6.13.0\n# loops: 100\n# run 1\n"
        + line("lock", 1001)
        + "# run 2\n# load: 0.3\n"
        + line("lock", 1002)
    )
    (build,) = read(text).builds
    assert build.machine["cpu"] == "Some CPU"
    assert [len(run.records) for run in build.runs] == [1, 1]
    assert build.kernel == "6.13.0"
    assert [run.settings for run in build.runs] == [{"loops": "100"}] * 2
    # Another machine is another build, another load is not.
    (first, second) = read(text + "# cpu: Other CPU\n# load: 0.4\n" + line("lock", 1003)).builds
    assert (first.machine["cpu"], second.machine["cpu"]) == ("Some CPU", "Other CPU")


@pytest.mark.parametrize(
    "prose",
    [
        "Fast-path on your CPU is faster (22 cycles(tsc) 6.128 ns) than my CPU.",
        "page_pool_recycle_direct() cost 4.041 ns (or 14 cycles(tsc)).",
        "I saw Type:lock Per elem: 5 cycles(tsc) 2.000 ns somewhere",
        "Content-Type: text/plain",
        "3 cycles(tsc) 31.171 ns",
        "Type: lock Per elem: 5 cycles(tsc) 2.000 ns",
        "tracepoint:xdp:mem_connect: type:PAGE_POOL mem.id:31",
    ],
)
def test_figures_in_prose_are_no_records(prose: str) -> None:
    with pytest.raises(ResultsError, match="no results"):
        read(prose)


def test_a_terminals_colours_go_and_bytes_that_are_no_utf8_stay_harmless() -> None:
    coloured = line().replace("time_bench:", "\x1b[33mtime_bench:\x1b[0m")
    assert read(coloured).builds[0].records[0].name == "lock"
    data = b"\xff\xfe \xe9\n" + line().encode() + b"\xc3\x28\n"
    results = TextReader("x").read(read_lines(io.BytesIO(data)))
    assert len(results.builds[0].records) == 1


def test_a_record_without_its_nanoseconds_is_dropped_and_said() -> None:
    results = read(line() + "time_bench: Type:rcu Per elem: 5 cycles(tsc)\n\ntext\n")
    assert len(results.builds[0].records) == 1
    assert [(o.line, o.severity) for o in results.oddities] == [(2, "error")]


def test_what_memory_is_spent_on_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "MAX_RECORDS", 5)
    results = read("".join(line("lock", 10**9 + n) for n in range(100)))
    assert len(results.builds[0].records) <= 6
    assert results.oddities[-1].code == "too-many"
    monkeypatch.undo()
    monkeypatch.setattr(assembly, "MAX_ODDITIES", 5)
    wrong = line().replace("count:100000000", "count:0")
    results = read(wrong * 20)
    assert len(results.oddities) == 6
    assert "more oddities" in results.oddities[-1].text


def test_a_very_long_line_is_not_held_and_the_next_one_is_read() -> None:
    text = "x" * 300_000 + "\n" + line()
    assert len(read(text).builds[0].records) == 1
    results = read(line("a") + line("b", 7 * 10**8).rstrip() + " y" * 50_000 + "\n")
    assert [record.name for record in results.builds[0].records] == ["a", "b"]
    assert [oddity.code for oddity in results.oddities] == ["long-line"]
