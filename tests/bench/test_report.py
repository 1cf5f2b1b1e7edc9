# SPDX-License-Identifier: BSD-2-Clause
"""What is made of events: summaries, warnings, the table; with figures that are made up."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagepool.bench import (
    Collector,
    Event,
    Recorded,
    RunStarted,
    Started,
    TestFailed,
    Warned,
    WorkerDied,
)
from pagepool.cli._bench import fact_lines
from pagepool.cli._session import Session
from pagepool.cli.bench import _print_table
from pagepool.results import jsonio
from pagepool.results.model import Record, ResultSet
from pagepool.results.reader import read_stream

MACHINE = {"cpu": "Some CPU @ 3.60GHz", "pinned cpu": "3"}
SETTINGS = {"suite": "simple", "loops": "10000000"}


def record(name: str, ns: int, *, count: int = 10**7, instructions: int | None = None) -> Record:
    return Record(
        name=name,
        step=0,
        time_interval_ns=ns,
        invoke_count=count,
        tsc_interval=ns * 3,
        instructions=instructions,
    )


def events() -> list[Event]:
    """Three runs of two tests: 5, 7 and 6 ns; 10, 10 and 40 ns."""
    result: list[Event] = [Started(MACHINE, SETTINGS, ("lock", "ring"), 3)]
    for run, (one, other) in enumerate([(50, 100), (70, 100), (60, 400)], 1):
        result += [
            RunStarted(run),
            Recorded(run, record("lock", one * 10**6, instructions=8 * 10**7)),
            Recorded(run, record("ring", other * 10**6), cpu_share=1.0 - run / 10),
        ]
    return result


def collected(several: list[Event]) -> Collector:
    collector = Collector()
    for event in several:
        collector.add(event)
    return collector


def test_summaries() -> None:
    lock, ring = collected(events()).summaries()
    assert (lock.name, lock.runs) == ("lock", 3)
    assert (lock.ns, lock.ns_min, lock.ns_max) == (6.0, 5.0, 7.0)
    assert (lock.cycles, lock.cycles_min, lock.cycles_max) == (18.0, 15.0, 21.0)
    assert lock.instructions == 8.0
    assert (ring.ns, ring.ns_min, ring.ns_max) == (10.0, 10.0, 40.0)
    assert ring.instructions is None


def test_instructions_of_some_runs_are_not_shown_as_of_all() -> None:
    several = events()
    several[-2] = Recorded(3, record("lock", 60 * 10**6))
    lock, _ = collected(several).summaries()
    assert lock.instructions is None


def test_short_and_disturbed() -> None:
    collector = collected(events())
    assert collector.too_short() == []
    ((name, share),) = collector.disturbed()
    assert name == "ring" and share == pytest.approx(0.7)
    collector.add(Recorded(3, record("short", 9_999_999), cpu_share=0.1))
    collector.add(Recorded(3, record("enough", 10_000_000), cpu_share=0.979))
    ((name, seconds),) = collector.too_short()
    assert name == "short" and seconds == pytest.approx(0.009999999)
    assert [name for name, _ in collector.disturbed()] == ["ring", "enough"]


def test_results_are_whole_at_any_moment() -> None:
    collector = Collector()
    assert collector.results("x") == ResultSet()
    for number, event in enumerate(events()):
        collector.add(event)
        results = collector.results("x")
        assert jsonio.loads(jsonio.dumps(results)) == results
        if number < 2:
            assert results == ResultSet()
    (build,) = results.builds
    assert build.label == "x" and build.machine == MACHINE
    assert [len(run.records) for run in build.runs] == [2, 2, 2]
    assert all(run.settings == SETTINGS for run in build.runs)
    # A run that began and gave nothing is no run.
    collector.add(RunStarted(4))
    assert collector.results("x") == results


def test_table_with_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    _print_table(collected(events()))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0] == "bench_page_pool_simple, 3 runs"
    assert lines[1].split() == ["test", "ns", "min..max", "cycles", "min..max", "instr"]
    assert lines[3].split() == ["lock", "6.000", "5.000..7.000", "18.0", "15.0..21.0", "8.0"]
    assert lines[4].split() == ["ring", "10.000", "10.000..40.000", "30.0", "30.0..120.0"]
    assert lines[5:] == ["cpu: Some CPU @ 3.60GHz", "pinned cpu: 3"]


def test_table_of_one_run_has_no_spread(capsys: pytest.CaptureFixture[str]) -> None:
    _print_table(
        collected([Started(MACHINE, SETTINGS, ("ring",), 1), Recorded(1, record("ring", 10**8))])
    )
    out = capsys.readouterr().out
    assert "bench_page_pool_simple, 1 run\n" in "\n".join(map(str.rstrip, out.splitlines())) + "\n"
    assert "instr" not in out
    (row,) = [line.split() for line in out.splitlines() if line.strip().startswith("ring")]
    assert row == ["ring", "10.000", "30.0"]


def test_text_with_instructions_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    measured = record("lock", 60 * 10**6, instructions=81_234_567)
    pmu = "time_bench: Type:lock PMU inst/clock81234567/220000000 = 0.369 IPC (inst per cycle)"
    stream: list[Event] = [Started(MACHINE, SETTINGS, ("lock",), 1), Recorded(1, measured, pmu)]
    assert Session(None, None, _print_table).run(iter(stream)) == 0
    out = capsys.readouterr().out
    results = read_stream(io.BytesIO(out.encode()), "x")
    assert not results.oddities
    (again,) = results.builds[0].records
    assert again.instructions == 81_234_567
    assert (again.key, again.ns, again.cycles) == (measured.key, measured.ns, measured.cycles)
    assert results.builds[0].machine == MACHINE
    assert results.builds[0].runs[0].settings == SETTINGS


def test_labels_are_read_back() -> None:
    lines = [*fact_lines(MACHINE, "v2, no stats"), "time_bench: Type:x Per elem: 1 cycles(tsc)"]
    lines[-1] += " 1.000 ns (step:0)"
    results = read_stream(io.BytesIO("\n".join(lines).encode()), "x")
    assert results.builds[0].label == "v2, no stats"


def test_warnings_and_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    short = Recorded(1, record("lock", 10**6))
    stream: list[Event] = [
        Started(MACHINE, SETTINGS, ("lock", "ring"), 1),
        Warned("cannot pin"),
        short,
        TestFailed(1, "ring", "ring: measured something else"),
    ]
    assert Session(None, None, _print_table).run(iter(stream)) == 1
    err = capsys.readouterr().err.splitlines()
    assert err == [
        "pagepool bench: warning: cannot pin",
        "pagepool bench: ring: measured something else",
        "pagepool bench: warning: lock ran for less than 0.01 s (0.0010 s): too short to trust; "
        "try --loops 200M",
    ]


def test_a_disturbed_test_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert Session(None, None, _print_table).run(iter(events())) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "warning: ring had to share the CPU (70% of the time was its own)" in line


def test_death_keeps_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def dying() -> Iterator[Event]:
        yield from events()[:3]
        raise WorkerDied("the worker died in ring, run 1: killed by SIGKILL")

    saved = tmp_path / "x.json"
    assert Session(str(saved), None, _print_table).run(dying()) == 1
    assert "the worker died in ring" in capsys.readouterr().err
    (build,) = jsonio.load(saved).builds
    assert [r.name for r in build.records] == ["lock"]
