# SPDX-License-Identifier: BSD-2-Clause
"""The suites on several CPUs: order, text, tables, marks; with figures that are made up."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

import pytest

from pagepool.bench import (
    Collector,
    DesignStarted,
    Event,
    Notice,
    Recorded,
    SettingsError,
    Started,
    TestFailed,
    Warned,
    run_cross_cpu,
    run_simple,
    run_storm,
    summarize_cross_cpu,
    summarize_storm,
)
from pagepool.bench.protocol import CrossCpuJob, Setup, StormJob
from pagepool.bench.suite import rotated
from pagepool.cli._session import Session
from pagepool.cli.bench import _print_cross_cpu, _print_storm, _print_table
from pagepool.results import jsonio
from pagepool.results.model import Record
from pagepool.results.reader import read_stream

from .fakes import FakeWorker, fake, golden, shown

__all__ = ["fake"]

Fake = type[FakeWorker]


def collected(events: Iterable[Event]) -> Collector:
    collector = Collector()
    for event in events:
        collector.add(event)
    return collector


def session(events: Iterable[Event], label: str | None = None) -> int:
    return Session(None, label, _print_table).run(iter(events))


# The text


def test_text_of_cross_cpu(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    events = run_cross_cpu(returning=2, loops=10**6, runs=2, designs=["ring", "ours"])
    assert session(events) == 0
    golden("cross-cpu.txt", capsys.readouterr().out)


def test_text_of_storm(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert session(run_storm(loops=10**6, runs=1, designs=["ring", "ours"]), "v2") == 0
    golden("storm.txt", capsys.readouterr().out)


def test_one_design_needs_no_sections(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert session(run_cross_cpu(loops=10**6, runs=2, designs=["ring"])) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("# design: ring") == 1
    assert not [line for line in lines if line.startswith("# label")]
    assert lines.count("bench_page_pool_cross_cpu: Loaded") == 2
    # Another design than the kernel's is called by its name.
    assert session(run_cross_cpu(loops=10**6, runs=2, designs=["ours"])) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("# label: ours") == lines.count("# design: ours") == 1


@pytest.mark.parametrize("suite", ["cross-cpu", "storm"])
@pytest.mark.parametrize("label", [None, "v2"])
def test_text_and_json_are_the_same_builds(
    fake: Fake, suite: str, label: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    def events() -> Iterable[Event]:
        designs = ["list", "ring", "ours"]
        if suite == "storm":
            return run_storm(loops=10**6, runs=3, designs=designs)
        return run_cross_cpu(loops=10**6, runs=3, designs=designs)

    assert session(events(), label) == 0
    from_text = read_stream(io.BytesIO(capsys.readouterr().out.encode()), "x")
    assert not from_text.oddities
    fake.asked.clear()
    from_json = collected(events()).results("x", label)
    prefix = "" if label is None else "v2-"
    for results in (from_text, from_json, jsonio.loads(jsonio.dumps(from_json))):
        assert [b.label for b in results.builds] == [
            f"{prefix}{d}" for d in ("list", "ring", "ours")
        ]
    for one, other in zip(from_text.builds, from_json.builds, strict=True):
        assert one.machine == other.machine
        assert len(one.runs) == len(other.runs) == 3
        for first, second in zip(one.runs, other.runs, strict=True):
            assert first.settings == second.settings
            assert [r.key for r in first.records] == [r.key for r in second.records]
            assert [r.ns for r in first.records] == [r.ns for r in second.records]
            assert [r.cycles for r in first.records] == [r.cycles for r in second.records]


def test_counts_are_in_the_json(fake: Fake) -> None:
    results = collected(run_cross_cpu(loops=10**6, runs=1)).results("x")
    again = jsonio.loads(jsonio.dumps(results))
    assert again == results
    handover, _, _, cpu, consumer, total = again.builds[0].records
    assert handover.name == "page_pool_cross_cpu_handover" and handover.kind == "cpu"
    assert cpu.counts == {"queue empty": 7, "pages": 4096, "median ns": 40 * 4096}
    assert consumer.counts == {"queue full": 1234}
    assert total.kind == "sum" and total.counts["ring full"] == 5
    # As the kernel: of whole cycles, over all CPUs, cut.
    assert total.cycles_printed == (129 + 120) // 2 and total.cpus == 2


# Order


def test_the_order_of_designs_rotates(fake: Fake) -> None:
    events = run_cross_cpu(loops=1000, runs=4, designs=["ring", "list", "ours"])
    order = [(e.run, e.design) for e in events if isinstance(e, DesignStarted)]
    assert order == [
        *((1, "ring"), (1, "list"), (1, "ours")),
        *((2, "list"), (2, "ours"), (2, "ring")),
        *((3, "ours"), (3, "ring"), (3, "list")),
        *((4, "ring"), (4, "list"), (4, "ours")),
    ]
    assert rotated("ab", 2) == ["b", "a"]
    # Each with its own hand-over just before it; a fresh worker a run.
    jobs = [job for job in fake.asked if isinstance(job, CrossCpuJob)]
    assert [job.handover for job in jobs] == [True, False] * 12
    assert [job.design for job in jobs[:6]] == ["ring", "ring", "list", "list", "ours", "ours"]
    assert sum(isinstance(job, Setup) for job in fake.asked) == 4


def test_cpus_are_chosen(fake: Fake) -> None:
    list(run_cross_cpu(returning=2, loops=1000, runs=1))
    setup, job, _ = fake.asked
    assert isinstance(setup, Setup) and isinstance(job, CrossCpuJob)
    # The best one allocates.
    assert setup.cpu == 3 and job.cpus == (1, 2, 3)
    fake.asked.clear()
    list(run_storm(producers=[4, 1], loops=1000, runs=1, bulk=16, spread="round-robin"))
    setup, four, one = fake.asked
    assert isinstance(four, StormJob) and isinstance(one, StormJob)
    assert four.cpus == (3, 2, 1, 0) and one.cpus == (3,)
    assert four.pages == one.pages == 4096
    assert four.bulk == 16 and four.round_robin


def test_a_design_that_fails_does_not_stop_the_others(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fake, "fails", "list")
    events = list(run_storm(loops=10**6, runs=2, designs=["list", "ring"]))
    assert next(e for e in events if isinstance(e, TestFailed)) == TestFailed(
        1, "page_pool_storm, 1 producer", "list, 1 producers: no pool: there is none such"
    )
    collector = collected(events)
    assert {summary.design for summary in summarize_storm(collector)} == {"ring"}
    (build,) = collector.results("x").builds
    assert build.label == "ring" and len(build.runs) == 2
    assert session(events) == 1
    text = shown(capsys, _print_storm, collector)
    assert "list" not in text
    collector = collected(run_cross_cpu(loops=10**6, runs=1, designs=["list", "ring"]))
    assert [one.design for one in summarize_cross_cpu(collector)] == ["ring"] and collector.failed


# Tables


def test_table_of_cross_cpu(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    collector = collected(
        run_cross_cpu(returning=1, loops=10**6, runs=3, designs=["ring", "list", "ours"])
    )
    golden("cross-cpu-table.txt", shown(capsys, _print_cross_cpu, collector))


def test_table_of_storm(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    collector = collected(run_storm(loops=10**6, runs=3, designs=["ring", "list", "ours"]))
    golden("storm-table.txt", shown(capsys, _print_storm, collector))


def cross_cpu_record(name: str, ns: int, **counts: int) -> Record:
    return Record(
        name=name,
        kind="cpu",
        step=1,
        cpu=1 if "queue full" in counts else 0,
        time_interval_ns=ns * 10**6,
        invoke_count=10**6,
        tsc_interval=ns * 10**6,
        counts=counts,
    )


def test_net_is_of_each_run() -> None:
    """Runs of 30, 50 and 44 ns over hand-overs of 10, 45 and 20: 20, 5 and 24 net."""
    settings = {"suite": "cross-cpu", "loops": "1000000", "returning_cpus": "1"}
    stream: list[Event] = [Started({}, settings, (), 3, ("ours",))]
    for run, (pool, handover) in enumerate([(30, 10), (50, 45), (44, 20)], 1):
        for name, ns in (("page_pool_cross_cpu_handover", handover), ("page_pool_cross_cpu", pool)):
            medians = {"queue empty": run, "pages": 4096, "median ns": ns * 4096}
            returning = cross_cpu_record(name, ns + 7, **medians)
            # The consumer's price is not part of it.
            consumer = cross_cpu_record(name, 1000, **{"queue full": 10 * run})
            stream += [
                Recorded(run, returning, design="ours"),
                Recorded(run, consumer, design="ours"),
            ]
    (one,) = summarize_cross_cpu(collected(stream))
    assert (one.ns, one.ns_min, one.ns_max) == (44, 30, 50)
    assert one.mean == 51
    assert (one.handover, one.net, one.net_min, one.net_max) == (20, 20, 5, 24)
    assert (one.queue_empty, one.queue_full, one.fell_out) == (6, 60, None)


def test_ratios_of_a_storm(fake: Fake) -> None:
    rows = summarize_storm(collected(run_storm(loops=10**6, runs=1, designs=["ours", "ring"])))
    found = {(row.producers, row.design): row for row in rows}
    assert list(found) == [(1, "ours"), (1, "ring"), (2, "ours"), (2, "ring")]
    two = found[2, "ours"]
    # Producers of 21 and 22 ns, and of 100 and 101.
    assert two.ns == 21.5 and two.mean == pytest.approx(24, abs=1e-4)
    assert two.to_ring == 21.5 / 100.5 and two.to_one == 21.5 / 20
    assert found[1, "ring"].to_ring == found[1, "ours"].to_one == 1
    # What was not measured gives no ratio.
    (row,) = summarize_storm(collected(run_storm(producers=[2], loops=10**6, designs=["ours"])))
    assert row.to_ring is None and row.to_one is None


def test_designs_beside_each_other_on_one_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    def lock(ns: int, design: str) -> Recorded:
        return Recorded(
            1,
            Record(name="lock", step=0, time_interval_ns=ns * 10**7, invoke_count=10**7,
                   tsc_interval=ns),
            design=design,
        )  # fmt: skip

    stream: list[Event] = [
        Started({}, {"suite": "simple", "loops": "10000000"}, ("lock",), 1, ("ring", "ours")),
        lock(10, "ring"),
        lock(4, "ours"),
    ]
    text = shown(capsys, _print_table, collected(stream))
    assert "bench_page_pool_simple, design ring, 1 run" in text
    assert "bench_page_pool_simple, design ours, 1 run" in text
    last = text[text.index("designs beside each other") :]
    (row,) = [line.split() for line in last.splitlines() if line.strip().startswith("lock")]
    assert row == ["lock", "10.000", "4.000", "0.40"]


# More threads than CPUs


def test_too_few_cpus_are_refused(fake: Fake) -> None:
    hint = r"; --oversubscribe runs them all the same, and marks the result$"
    what = (
        r"^4 returning CPUs and the consumer need 5 CPUs, and this process may use 4 CPUs \(0-3\)"
    )
    with pytest.raises(SettingsError, match=what + hint):
        run_cross_cpu(returning=4)
    with pytest.raises(SettingsError, match=r"^5 producers need 5 CPUs, .*" + hint):
        run_storm(producers=[1, 5])
    assert not fake.asked


def test_oversubscribed_is_marked_everywhere(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    why = "2 returning CPUs and the consumer on 2 CPUs, so no figure of contention"
    events = list(run_cross_cpu(returning=2, loops=10**6, runs=1, oversubscribe=True))
    jobs = [job for job in fake.asked if isinstance(job, CrossCpuJob)]
    assert all(job.cpus is None for job in jobs)
    assert Warned(f"oversubscribed: {why}") in events
    assert Notice(1, f"bench_page_pool_cross_cpu: oversubscribed: {why}") in events
    collector = collected(events)
    (build,) = collector.results("x").builds
    assert build.machine["oversubscribed"] == f"yes: {why}"
    assert session(events) == 0
    out = capsys.readouterr().out
    assert f"# oversubscribed: yes: {why}" in out.splitlines()
    assert ", OVERSUBSCRIBED" in shown(capsys, _print_cross_cpu, collector).splitlines()[0]

    why = "5 producers on 2 CPUs, so no figure of contention"
    events = list(run_storm(producers=[1, 5], loops=10**6, runs=1, oversubscribe=True))
    one, five = (job for job in fake.asked if isinstance(job, StormJob))
    assert one.cpus == (1,) and five.cpus is None
    assert Warned(f"oversubscribed: {why}") in events
    # In front of those that it is true of.
    lines = [
        e.text if isinstance(e, Notice) else f"step {e.record.step}"
        for e in events
        if isinstance(e, (Notice, Recorded))
    ]
    mark = lines.index(f"bench_page_pool_storm: oversubscribed: {why}")
    assert lines.index("step 1") < mark < lines.index("step 5")
    assert ", OVERSUBSCRIBED" in shown(capsys, _print_storm, collected(events)).splitlines()[0]


def test_enough_cpus_are_not_marked(fake: Fake) -> None:
    events = list(run_cross_cpu(returning=3, loops=1000, runs=1, oversubscribe=True))
    assert not [event for event in events if isinstance(event, Warned)]
    assert collected(events).machine["oversubscribed"] == "no"
    jobs = [job for job in fake.asked if isinstance(job, CrossCpuJob)]
    assert all(job.cpus == (0, 1, 2, 3) for job in jobs)


@pytest.mark.parametrize(
    ("suite", "settings", "text"),
    [
        (run_cross_cpu, {"returning": 0}, "0 returning CPUs: can be 1 to 255"),
        (run_cross_cpu, {"loops": 999}, "999 loops: can be 1000 to 4294967295"),
        (run_cross_cpu, {"runs": 0}, "0 runs: can be 1 to 1000"),
        (run_cross_cpu, {"designs": ["ring", "ring"]}, "design 'ring' is given twice"),
        (run_cross_cpu, {"designs": []}, "no design: give one or more of ring, list, ours"),
        (run_storm, {"designs": ["rink"]}, "design 'rink': must be ring, list, ours, .*"),
        (run_simple, {"designs": ["rink"]}, "design 'rink': must be ring, list, ours, .*"),
        (run_storm, {"producers": []}, "no number of producers"),
        (run_storm, {"producers": [0]}, "0 producers: can be 1 to 256"),
        (run_storm, {"producers": [1, 1]}, "1 producers are given twice"),
        (run_storm, {"spread": "far"}, "spread 'far': can be block or round-robin"),
        (run_storm, {"bulk": 1}, "bulk of 1: can be 2 to 64"),
        (run_storm, {"pages": 100}, "100 pages a round: can be a multiple of 64 up to 8192 .*"),
        (run_storm, {"pages": 8256}, "8256 pages a round: .* up to 8192 with 2 producers"),
    ],
)
def test_wrong_settings(fake: Fake, suite: object, settings: dict[str, object], text: str) -> None:
    with pytest.raises(SettingsError) as error:
        suite(**settings)  # type: ignore[operator]
    assert re.fullmatch(text, str(error.value))
    assert not fake.asked
