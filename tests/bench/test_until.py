# SPDX-License-Identifier: BSD-2-Clause
"""``--until-decided``, ``--vary`` and ``--against``: what is run, when it ends, what is kept.

The figures are made up: nothing is timed.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
import pytest

from pagepool.bench import (
    SUITES,
    BenchError,
    DesignStarted,
    Event,
    Recorded,
    RunStarted,
    SettingsError,
    Side,
    Started,
    Warned,
    WorkerDied,
    _workloads,
    run_rounds,
)
from pagepool.bench.protocol import (
    Answer,
    CpusDone,
    CrossCpuJob,
    Done,
    Failed,
    Job,
    Play,
    Played,
    Pools,
    Request,
    Setup,
    StormJob,
)
from pagepool.cli import bench
from pagepool.cli._sides import VARIED, parse_vary
from pagepool.compare.looks import SETTING, plan
from pagepool.compare.verdict import Kind
from pagepool.results.reader import read

from .fakes import READY, FakeWorker, cross_cpu, done, fake

__all__ = ["fake"]

LOOPS = 10**6


class Asked(NamedTuple):
    """One test that some worker was asked for."""

    test: str
    design: str
    pools: Pools
    python: str | None


class Made(FakeWorker):
    """A worker whose figures come from a function, whatever the suite."""

    versions: dict[str | None, str]
    started: list[str | None]
    jobs: list[Asked]
    ns: Callable[[Asked, random.Random], float | Failed]
    rng: random.Random
    pools = Pools()

    def __enter__(self) -> Made:
        Made.started.append(self.python)
        return self

    def ask(self, request: Request, doing: str) -> Answer:
        if isinstance(request, Setup):
            self.pools = request.pools
            version = Made.versions.get(self.python, "1.0")
            return msgspec.structs.replace(READY, version=version)
        if isinstance(request, CrossCpuJob):
            FakeWorker.asked.append(request)
            Made.jobs.append(Asked("cross-cpu", request.design, self.pools, self.python))
            return cross_cpu(request)
        assert isinstance(request, (Job, StormJob))
        name = request.test if isinstance(request, Job) else f"storm {request.producers}"
        asked = Asked(name, request.design, self.pools, self.python)
        Made.jobs.append(asked)
        ns = Made.ns(asked, Made.rng)
        if isinstance(ns, Failed):
            return ns
        if isinstance(request, StormJob):
            cpus = request.cpus or ()
            counts = {"pages": 1, "rounds": 1, "median ns": 1, "low ns": 1, "high ns": 1}
            took = [int((ns + k / 100) * LOOPS) for k in range(len(cpus))]
            cpus_done = [
                done(cpu, "page_pool_storm", len(cpus), LOOPS, time, counts)
                for cpu, time in zip(cpus, took, strict=True)
            ]
            return CpusDone(tuple(cpus_done), {})
        interval = int(ns * LOOPS)
        return Done(request.test, 0, LOOPS, LOOPS, interval, 3 * interval, None, "", "", 1.0)


FAST, RING, SLOW = (
    "tasklet_page_pool01_fast_path",
    "tasklet_page_pool02_ptr_ring",
    "tasklet_page_pool03_slow",
)
WIDE = 0.05


def noisy(rng: random.Random, ns: float, share: float = 0.002) -> float:
    return ns * (1 + rng.uniform(-share, share))


def usual(asked: Asked, rng: random.Random) -> float | Failed:
    """01 is slower with ours, 02 is the same, of 03 nothing can be said; a control."""
    if asked.test == "lock":
        return noisy(rng, 15.0, 0.0005)
    if asked.test == FAST:
        return noisy(rng, 24.0 if asked.design == "ours" else 12.0)
    if asked.test == RING:
        return noisy(rng, 30.0)
    return noisy(rng, 60.9 if asked.design == "ours" else 60.0, WIDE)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, fake: type[FakeWorker]) -> type[Made]:
    for module in ("simple", "cross_cpu", "storm", "suite"):
        monkeypatch.setattr(f"pagepool.bench.{module}.Worker", Made)
    Made.versions, Made.started, Made.jobs = {}, [], []
    Made.ns, Made.rng = staticmethod(usual), random.Random(1)
    return Made


class Result(NamedTuple):
    status: int
    out: str
    err: list[str]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """``pagepool bench`` in this process, in which the workers are made up."""

    def call(*args: str) -> Result:
        with pytest.raises(SystemExit) as ended:
            bench.command.main(list(args), prog_name="pagepool bench")
        out, err = capfd.readouterr()
        code = ended.value.code
        return Result(code if isinstance(code, int) else 0, out, err.splitlines())

    return call


Run = Callable[..., Result]
TASKLET = ["simple", "--tests", "tasklet*,lock", "--loops", "1M"]
UNTIL = [*TASKLET, "--design", "ring,ours", "--until-decided"]


def verdicts(out: str) -> dict[str, str]:
    """The last word of each row that has a verdict; its first one is short if all are tasklet's."""
    names = {"fast_path": FAST, "ptr_ring": RING, "slow": SLOW}
    table = out.partition("before:")[0]
    rows = [line.split() for line in table.splitlines() if line]
    return {names.get(row[0], row[0]): row[-1] for row in rows if row[-1] in get_args(Kind)}


def rounds(jobs: list[Asked], test: str, design: str) -> int:
    return sum((job.test, job.design) == (test, design) for job in jobs)


# When it ends, and what is run again


def test_decided_tests_are_not_run_again(made: type[Made], run: Run) -> None:
    result = run(*UNTIL, "--max-runs", "20")
    assert result.status == 0, result.err
    assert verdicts(result.out) == {FAST: "slower", RING: "same", SLOW: "inconclusive"}
    at = plan(3, 20).at
    for design in ("ring", "ours"):
        assert rounds(made.jobs, FAST, design) == rounds(made.jobs, RING, design) == at[0]
        # What is open is run to the end, and the control beside it: it bounds the others.
        assert rounds(made.jobs, SLOW, design) == rounds(made.jobs, "lock", design) == 20
    looks = [line for line in result.err if "look " in line]
    assert looks == [
        f"pagepool bench: round 6 of at most 20, look 1 of 4: 2 more decided, open: {SLOW}",
        f"pagepool bench: round 9 of at most 20, look 2 of 4: 0 more decided, open: {SLOW}",
        f"pagepool bench: round 13 of at most 20, look 3 of 4: 0 more decided, open: {SLOW}",
        f"pagepool bench: round 20 of at most 20, look 4 of 4: 0 more decided, open: {SLOW}",
    ]


def test_it_ends_when_all_is_decided(made: type[Made], run: Run) -> None:
    result = run("simple", "--loops", "1M", "--design", "ring,ours", "--until-decided",
                 "--tests", f"{FAST},{RING}")  # fmt: skip
    assert verdicts(result.out) == {FAST: "slower", RING: "same"}
    assert result.err == [
        "pagepool bench: round 1 of at most 40: 2 rows, looks at 6,9,13,19,27,40 runs a side",
        "pagepool bench: round 6 of at most 40, look 1 of 6: 2 more decided, none is open",
    ]


def test_the_order_of_the_sides_moves_on(made: type[Made], run: Run) -> None:
    run("simple", "--loops", "1M", "--design", "ring,ours,list", "--until-decided",
        "--tests", FAST, "--max-runs", "6")  # fmt: skip
    order = [job.design for job in made.jobs]
    assert order[:9] == ["ring", "ours", "list", "ours", "list", "ring", "list", "ring", "ours"]
    assert len(order) == 18
    assert len(made.started) == 18  # a process each


def test_unstable_is_believed_at_the_second_look(made: type[Made], run: Run) -> None:
    def modes(asked: Asked, rng: random.Random) -> float:
        return noisy(rng, rng.choice([20.0, 30.0]))

    made.ns = staticmethod(modes)
    result = run(*UNTIL)
    assert set(verdicts(result.out).values()) == {"unstable"}
    assert {rounds(made.jobs, test, "ring") for test in (FAST, RING, SLOW)} == {plan(3, 40).at[1]}
    assert "look 1 of 6: 0 more decided" in result.err[1]
    assert "look 2 of 6: 3 more decided, none is open" in result.err[2]


def test_storm_runs_only_the_numbers_that_are_open(made: type[Made], run: Run) -> None:
    def by_producers(asked: Asked, rng: random.Random) -> float:
        wide = asked.test == "storm 2"
        return noisy(rng, 20.3 if wide and asked.design == "ours" else 20.0, WIDE if wide else 1e-4)

    made.ns = staticmethod(by_producers)
    result = run("storm", "--producers", "1,2", "--loops", "1M", "--design", "ring,ours",
                 "--until-decided", "--max-runs", "12")  # fmt: skip
    assert result.status == 0, result.err
    first = plan(5, 12).at[0]  # CPU and average of one producer, two CPUs and average of two
    assert rounds(made.jobs, "storm 1", "ours") == first
    assert rounds(made.jobs, "storm 2", "ours") == 12
    assert result.err[1].endswith("1 more decided, open: page_pool_storm step:2")


def test_cross_cpu_runs_both_loops_again(made: type[Made], run: Run) -> None:
    result = run("cross-cpu", "--loops", "1M", "--design", "ring,ours", "--until-decided")
    assert result.status == 0, result.err
    # 40 and 20 ns: decided at the first look. The hand-over is a control and has no verdict.
    assert len(made.jobs) == 6 * 2 * 2
    (row,) = [line for line in result.out.splitlines() if line.startswith("page_pool_cross_cpu a")]
    assert row.endswith("faster")
    assert "page_pool_cross_cpu_handover average (control)" in result.out


# What is printed and kept


def test_the_json_says_so_and_compares_alike(made: type[Made], run: Run, tmp_path: Path) -> None:
    from pagepool.compare import compare

    saved = tmp_path / "x.json"
    result = run(*UNTIL, "--max-runs", "20", "--json", str(saved))
    results = read(str(saved))
    assert [build.label for build in results.builds] == ["ring", "ours"]
    for build in results.builds:
        assert len(build.runs) == 20
        assert {one.settings[SETTING] for one in build.runs} == {str(plan(3, 20))}
        assert build.machine["design"] == build.label
        assert len(build.records) == 2 * 20 + 2 * 6
    assert str(compare(str(saved))) == result.out
    assert "4 looks of at most 4 (6,9,13,20 runs a side), each judged at 1/4 of the 5 %" in (
        result.out
    )


def test_json_alone_is_nothing_else(made: type[Made], run: Run) -> None:
    result = run(*UNTIL, "--max-runs", "6", "--json", "-")
    assert result.out.startswith('{"schema"') or result.out.startswith("{\n")
    assert "Verdict" not in result.out
    assert "look 1 of 1" in result.err[1]


def test_the_label_stands_before_each_side(made: type[Made], run: Run) -> None:
    assert run(*UNTIL, "--max-runs", "6", "--label", "v2").out.startswith("v2-ring -> v2-ours\n")


def test_fail_on(made: type[Made], run: Run) -> None:
    few = [*UNTIL, "--max-runs", "6"]
    result = run(*few, "--fail-on", "slower")
    assert result.status == 1
    (line,) = [line for line in result.err if "--fail-on" in line]
    assert line.startswith(f"pagepool bench: --fail-on: ring -> ours: {FAST}: slower (+12.0 ns")
    assert run(*few, "--fail-on", "faster,slower:200").status == 0
    assert run(*few, "--fail-on", "inconclusive").status == 1


def test_the_margin_decides(made: type[Made], run: Run) -> None:
    result = run(*UNTIL, "--margin", "30", "--max-runs", "20")
    assert verdicts(result.out) == {FAST: "slower", RING: "same", SLOW: "same"}
    assert "less than 30 % is the same" in result.out


# What goes wrong


def test_a_worker_that_dies_loses_nothing(made: type[Made], run: Run, tmp_path: Path) -> None:
    def dies(asked: Asked, rng: random.Random) -> float | Failed:
        if rounds(made.jobs, SLOW, "ours") == 8:
            raise WorkerDied("the worker died in a test: killed by SIGKILL")
        return usual(asked, rng)

    made.ns = staticmethod(dies)
    saved = tmp_path / "x.json"
    result = run(*UNTIL, "--json", str(saved))
    assert result.status == 1
    assert "pagepool bench: ours, round 8: the worker died in a test: killed by SIGKILL" in (
        result.err
    )
    assert verdicts(result.out) == {FAST: "slower", RING: "same", SLOW: "inconclusive"}
    ring, ours = read(str(saved)).builds
    # Round 8 began with ours.
    assert (len(ring.runs), len(ours.runs)) == (7, 8)
    assert sum(record.name == SLOW for record in ours.records) == 7


def test_a_worker_that_dies_at_once(made: type[Made], run: Run, tmp_path: Path) -> None:
    def dies(asked: Asked, rng: random.Random) -> float | Failed:
        raise WorkerDied("the worker died")

    made.ns = staticmethod(dies)
    saved = tmp_path / "x.json"
    result = run(*UNTIL, "--json", str(saved))
    assert (result.status, result.out) == (1, "")
    assert result.err == ["pagepool bench: ring, round 1: the worker died"]
    assert not saved.exists()


def test_a_test_that_fails_on_one_side(made: type[Made], run: Run) -> None:
    def fails(asked: Asked, rng: random.Random) -> float | Failed:
        if (asked.test, asked.design) == (FAST, "ours"):
            return Failed("no pool", 12)
        return usual(asked, rng)

    made.ns = staticmethod(fails)
    result = run(*UNTIL, "--max-runs", "20")
    assert result.status == 1
    assert verdicts(result.out) == {RING: "same", SLOW: "inconclusive"}
    assert f"only before: {FAST}" in result.out
    # It was tried once, and there is nothing to decide.
    assert rounds(made.jobs, FAST, "ours") == rounds(made.jobs, FAST, "ring") == 1
    assert [line for line in result.err if "no pool" in line] == ["pagepool bench: ours: no pool"]


def test_a_side_without_figures(made: type[Made], run: Run) -> None:
    def fails(asked: Asked, rng: random.Random) -> float | Failed:
        return Failed("no pool", 12) if asked.design == "ours" else usual(asked, rng)

    made.ns = staticmethod(fails)
    result = run(*UNTIL)
    assert (result.status, result.out) == (1, "")
    assert result.err[-1] == "pagepool bench: ours gave no figure: there is nothing to compare"
    assert len(made.started) == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--until-decided"], "--until-decided needs two sides to compare: --design A,B"),
        (["--until-decided", "--design", "ring"], "needs two sides"),
        (["--until-decided", "--design", "ring,ours", "--runs", "9"], "--runs and --until-decided"),
        (["--until-decided", "--max-runs", "5"], "--max-runs 5: can be 6, from where ranks decide"),
        (["--until-decided", "--max-runs", "1001"], "--max-runs 1001: can be 6"),
        (["--until-decided", "--max-runs", "x"], "--max-runs 'x' is no count"),
        (["--max-runs", "9"], "--max-runs has no meaning without --until-decided"),
        (["--margin", "1"], "--margin has no meaning"),
        (["--fail-on", "slower"], "--fail-on has no meaning"),
        (["--until-decided", "--vary", "cpu=1,2"], "simple can vary stats, checked, dma, tracking"),
        (["--vary", "stats"], "give two or more values"),
        (["--vary", "stats=on"], "give two or more values"),
        (["--vary", "stats=on,on"], "give two or more values, each once"),
        (["--vary", "stats=on,maybe"], "--vary stats=on,maybe: can be on or off"),
        (["--vary", "stats=on,off", "--vary", "stats=off,on"], "stats is varied twice"),
        (["--vary", "stats=on,off", "--no-stats"], "--no-stats and --vary stats=...: give one"),
        (["--vary", "dma=off,none", "--dma", "none"], "--dma and --vary dma=...: give one"),
        (["--vary", "dma=off,mars"], "dma 'mars': can be off, none, iommu"),
        (["--vary", "tracking=on,off"], "no tracking has no meaning without dma"),
        (["--against", ""], "--against: give an interpreter"),
        (["--against", "=python"], "the name before '=' must be printable"),
        (["--against", "a=p", "--against", "a=q"], "--against: two builds are called 'a'"),
        (["--until-decided", "--design", "ring,ours", "--label", " "], "--label must be printable"),
    ],
)
def test_what_cannot_be(
    made: type[Made], run: Run, tmp_path: Path, args: list[str], said: str
) -> None:
    saved = tmp_path / "x.json"
    result = run("simple", "--json", str(saved), *args)
    assert (result.status, result.out) == (2, "")
    (line,) = result.err
    assert line.startswith("pagepool bench: ") and said in line
    assert not made.jobs and not saved.exists()


@pytest.mark.parametrize(
    ("args", "rows", "least"),
    [
        # 2 / binomial(2 n, n) is to be a 20th by the number of rows.
        (["simple", "--design", "ring,list,ours", "--vary", "stats=on,off"], 30, 7),
        (["storm", "--producers", "1,2,3,4", "--design", "ring,list,ours"], 28, 7),
        (["cross-cpu", "--returning-cpus", "3", "--design", "ring,list,ours",
          "--vary", "stats=on,off"], 25, 7),
    ],
)  # fmt: skip
def test_runs_that_can_call_nothing_are_refused(
    made: type[Made], run: Run, args: list[str], rows: int, least: int
) -> None:
    assert 2 / math.comb(2 * least, least) <= 0.05 / rows < 2 / math.comb(2 * least - 2, least - 1)
    until = [*args, "--loops", "1M", "--until-decided", "--max-runs"]
    result = run(*until, str(least - 1))
    assert (result.status, result.out) == (2, "")
    assert result.err == [
        f"pagepool bench: --max-runs {least - 1}: cannot call any of {rows} rows slower or faster; "
        f"give {least} at least"
    ]
    assert not made.jobs
    result = run(*until, str(least))
    assert result.status == 0, result.err
    assert any(f": {rows} rows, looks at {least} runs a side" in line for line in result.err)


def test_controls_alone_decide_nothing(made: type[Made], run: Run) -> None:
    result = run("simple", "--tests", "lock", "--design", "ring,ours", "--until-decided")
    assert result.status == 1
    assert "only tests that do not touch the pool: there is nothing to decide" in result.err[0]


# Workloads


class Packets(FakeWorker):
    """A worker whose workloads take as long as a function says."""

    played: list[tuple[str, int]]
    ns: Callable[[str, int, random.Random], float]
    rng: random.Random

    def ask(self, request: Request, doing: str) -> Answer:
        if isinstance(request, Setup):
            return READY
        assert isinstance(request, Play)
        packets = request.knobs["packets"]
        Packets.played.append((request.design, packets))
        outcome = _workloads.run(
            request.workload, {**request.knobs, "polls": 50}, design=request.design, seed=1
        )
        interval = int(Packets.ns(request.design, packets, Packets.rng) * outcome.counts["packets"])
        return Played(outcome._replace(time_interval_ns=interval * 10**3), 1.0)


@pytest.fixture
def packets(monkeypatch: pytest.MonkeyPatch, fake: type[FakeWorker]) -> type[Packets]:
    monkeypatch.setattr("pagepool.bench.workload.Worker", Packets)
    Packets.played, Packets.rng = [], random.Random(1)
    Packets.ns = staticmethod(
        # With 4 packets a poll list is slower, with 8 the same, with 12 nobody knows.
        lambda design, packets, rng: noisy(
            rng,
            70.0 if (design, packets) == ("list", 4) else 50.0,
            WIDE if packets == 12 else 0.002,
        )
    )
    return Packets


XDP = ["workload", "xdp-drop", "--sweep", "packets=4..12:4"]
UNTIL_XDP = [*XDP, "--design", "ring,list", "--until-decided"]


def test_a_workload_until_it_is_decided(packets: type[Packets], run: Run, tmp_path: Path) -> None:
    saved = tmp_path / "x.json"
    result = run(*UNTIL_XDP, "--max-runs", "14", "--json", str(saved), "--fail-on", "slower:5")
    assert result.status == 1
    table = result.out.partition("before:")[0].splitlines()
    rows = {line.split()[1]: line.split()[-1] for line in table if line.startswith("workload_")}
    assert rows == {"packets=4": "slower", "packets=8": "same", "packets=12": "inconclusive"}
    looks = plan(3, 14)
    runs = [packets.played.count((design, n)) for n in (4, 8, 12) for design in ("ring", "list")]
    assert runs == [looks.at[0]] * 4 + [looks.at[-1]] * 2
    assert result.err[0].endswith(f"round 1 of at most 14: 3 rows, {looks} a side")
    assert result.err[1].endswith("2 more decided, open: workload_xdp-drop packets=12")
    assert "--fail-on: ring -> list: workload_xdp-drop packets=4: slower" in result.err[-1]
    # It is judged alike when it is read.
    kept = read(str(saved))
    assert [run.settings[SETTING] for build in kept.builds for run in build.runs[:1]] == [
        str(looks)
    ] * 2
    assert [len(build.runs) for build in kept.builds] == [looks.at[-1]] * 2


def test_a_workload_as_json_alone(packets: type[Packets], run: Run) -> None:
    result = run(*UNTIL_XDP, "--max-runs", "7", "--json", "-")
    document = msgspec.json.decode(result.out)
    assert document["schema"] == "pagepool.workload/1"
    assert [len(it["ns_per_packet"]) for it in document["results"]] == [7] * 6


def test_a_workload_that_gives_no_time_decides_nothing(packets: type[Packets], run: Run) -> None:
    packets.ns = staticmethod(lambda design, packets, rng: 50.0 if design == "ring" else 0.0)
    result = run(*UNTIL_XDP)
    assert (result.status, result.out) == (1, "")
    assert "compare" in result.err[-1]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([*XDP, "--until-decided"], "--until-decided needs two sides to compare: --design A,B"),
        ([*UNTIL_XDP, "--runs", "4"], "--runs and --until-decided"),
        ([*XDP, "--max-runs", "9"], "--max-runs has no meaning without --until-decided"),
        ([*XDP, "--fail-on", "slower"], "--fail-on has no meaning without --until-decided"),
        (["workload", "tcp-stream", "--engine", "model", "--until-decided"], "no time to compare"),
        (
            ["workload", "xdp-drop", "--design", "ring,ours", "--until-decided", "--max-runs", "6",
             "--sweep", "packets=1..64"],
            "--max-runs 6: cannot call any of 64 rows slower or faster; give 7 at least",
        ),
    ],
)  # fmt: skip
def test_a_workload_that_cannot_be_decided(
    packets: type[Packets], run: Run, args: list[str], said: str
) -> None:
    result = run(*args)
    assert (result.status, result.out) == (2, "")
    (line,) = result.err
    assert said in line
    assert not packets.played


# Sides


def test_settings_as_sides(made: type[Made], run: Run, tmp_path: Path) -> None:
    def price(asked: Asked, rng: random.Random) -> float:
        return noisy(rng, 10.0 if asked.pools.stats else 8.0)

    made.ns = staticmethod(price)
    result = run(*TASKLET, "--until-decided", "--vary", "stats=on,off")
    assert result.out.startswith("stats=on -> stats=off\n")
    assert verdicts(result.out)[FAST] == "faster"
    assert {job.design for job in made.jobs} == {"ring"}
    saved = tmp_path / "x.json"
    run(*TASKLET, "--vary", "stats=on,off", "--vary", "dma=off,none", "--design", "ring,ours",
        "--runs", "1", "--json", str(saved))  # fmt: skip
    found = {build.label: build.machine for build in read(str(saved)).builds}
    assert list(found)[:3] == [
        "ring-stats=on-dma=off",
        "ring-stats=on-dma=none",
        "ring-stats=off-dma=off",
    ]
    assert len(found) == 8
    for label, machine in found.items():
        assert machine["design"] == label.split("-")[0]
        assert machine["statistics"] == ("on" if "stats=on" in label else "off")


@pytest.mark.parametrize("suite", list(VARIED))
def test_what_can_be_varied_is_a_setting_of_the_suite(suite: str) -> None:
    import inspect

    assert set(VARIED[suite]) <= set(inspect.signature(SUITES[suite].run).parameters)
    (values,) = parse_vary(suite, ["stats=off,on"])
    assert values == [("stats", "off", False), ("stats", "on", True)]


def test_builds_as_sides(made: type[Made], run: Run, tmp_path: Path) -> None:
    def price(asked: Asked, rng: random.Random) -> float:
        return noisy(rng, 10.0 if asked.python == "old/bin/python" else 8.0)

    made.ns = staticmethod(price)
    made.versions = {"old/bin/python": "0.9"}
    saved = tmp_path / "x.json"
    args = [*TASKLET, "--until-decided", "--against", "old/bin/python", "--json", str(saved)]
    result = run(*args)
    assert result.out.startswith("0.9 -> 1.0\n")
    assert verdicts(result.out)[FAST] == "faster"
    old, new = read(str(saved)).builds
    assert (old.machine["pagepool"], old.machine["interpreter"]) == ("0.9", "old/bin/python")
    assert new.machine["pagepool"] == "1.0" and "interpreter" not in new.machine
    # Each greeted once, then in turns.
    assert made.started[2:6] == ["old/bin/python", None, None, "old/bin/python"]


def test_builds_of_one_version_have_names(made: type[Made], run: Run, tmp_path: Path) -> None:
    inside = tmp_path / "before" / "bin"
    inside.mkdir(parents=True)
    (inside / "python").touch()
    few = [*TASKLET, "--runs", "1", "--json", str(tmp_path / "x.json")]
    run(*few, "--against", str(tmp_path / "before"), "--against", "v1=python3",
        "--against", "python3", "--against", "python3")  # fmt: skip
    assert [build.label for build in read(str(tmp_path / "x.json")).builds] == [
        "1.0-before",
        "v1",
        "1.0-python3",
        "1.0-python3-2",
        "1.0",
    ]
    assert set(made.started) == {None, "python3", str(inside / "python")}


def test_text_of_sides_reads_back(made: type[Made], run: Run, tmp_path: Path) -> None:
    text, saved = tmp_path / "x.txt", tmp_path / "x.json"
    result = run(*TASKLET, "--vary", "stats=on,off", "--runs", "2", "--json", str(saved))
    assert result.status == 0, result.err
    text.write_text(result.out)
    from_text, from_json = read(str(text)), read(str(saved))
    assert not from_text.oddities
    for one, other in zip(from_text.builds, from_json.builds, strict=True):
        assert one.label == other.label
        assert one.machine == other.machine
        assert len(one.runs) == len(other.runs) == 2


# The rounds themselves


def events(more: Callable[[int], dict[str, Any] | None], *sides: Side) -> Iterator[Event]:
    return run_rounds(SUITES["simple"], sides, {"loops": LOOPS, "tests": ["tasklet*"]}, 9, more)


BOTH = Side("a", {"designs": ["ring"]}), Side("b", {"designs": ["ring"], "stats": False})


def test_rounds(made: type[Made]) -> None:
    seen: list[Event] = []
    asked: list[tuple[int, int]] = []

    def more(run: int) -> dict[str, Any] | None:
        asked.append((run, sum(isinstance(event, Recorded) for event in seen)))
        return [{}, {"tests": [FAST]}, None][run - 1]

    for event in events(more, *BOTH):
        seen.append(event)
    # All that was measured before is known when a round is asked for.
    assert asked == [(1, 0), (2, 6), (3, 8)]
    started = seen[0]
    assert isinstance(started, Started)
    assert (started.runs, started.designs) == (9, ("a", "b"))
    assert sum(isinstance(event, Started) for event in seen) == 1
    assert [event.run for event in seen if isinstance(event, RunStarted)] == [1, 2]
    begun = [(e.run, e.design) for e in seen if isinstance(e, DesignStarted)]
    assert begun == [(1, "a"), (1, "b"), (2, "b"), (2, "a")]
    recorded = [(e.run, e.design, e.record.name) for e in seen if isinstance(e, Recorded)]
    assert recorded[-2:] == [(2, "b", FAST), (2, "a", FAST)]


def test_a_warning_is_said_once(made: type[Made], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Made, "complaints", lambda self: ["hm"])
    found = [e for e in events(lambda run: {} if run < 4 else None, *BOTH) if isinstance(e, Warned)]
    assert found == [Warned("the worker said: hm")]


def test_settings_of_all_sides_are_checked_at_once(made: type[Made]) -> None:
    with pytest.raises(SettingsError, match="dma 'mars'"):
        events(lambda run: {}, BOTH[0], Side("b", {"designs": ["ring"], "dma": "mars"}))
    with pytest.raises(SettingsError, match="two sides are called 'a'"):
        events(lambda run: {}, BOTH[0], BOTH[0])


def test_closing_ends_the_worker(made: type[Made], monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []
    monkeypatch.setattr(Made, "__exit__", lambda self, *_: ended.append(True))
    stream = events(lambda run: {}, *BOTH)
    while not isinstance(next(stream), Recorded):
        pass
    stream.close()  # type: ignore[attr-defined]
    assert ended == [True]


def test_errors_say_whose_round_it_was(made: type[Made]) -> None:
    def dies(asked: Asked, rng: random.Random) -> float:
        if len(made.jobs) > 6:
            raise BenchError("gone")
        return 10.0

    made.ns = staticmethod(dies)
    with pytest.raises(BenchError, match=r"^b, round 2: gone$"):
        list(events(lambda run: {}, *BOTH))


def test_the_machine_is_what_all_sides_share(made: type[Made], fake: type[FakeWorker]) -> None:
    from pagepool.bench import Collector

    collector = Collector()
    for event in events(lambda run: {} if run == 1 else None, *BOTH):
        collector.add(event)
    shared = collector.shared_facts()
    assert "statistics" not in shared and shared["design"] == "ring"
    assert [collector.facts(name)["statistics"] for name in "ab"] == ["on", "off"]
    assert os.sched_getaffinity(0) == {0, 1, 2, 3}  # of the machine that is made up
