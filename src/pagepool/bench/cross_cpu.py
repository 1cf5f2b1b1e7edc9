# SPDX-License-Identifier: BSD-2-Clause
"""bench_page_pool_cross_cpu: what a page costs that is returned by another CPU."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from statistics import fmean, median_low
from typing import NamedTuple

from pagepool.bench import _loops, suite
from pagepool.bench.collect import Collector, median_ns
from pagepool.bench.errors import SettingsError, WorkerDied
from pagepool.bench.events import (
    Event,
    Notice,
    RunStarted,
    Started,
    TestFailed,
    TestStarted,
    Warned,
)
from pagepool.bench.process import Worker
from pagepool.bench.protocol import CpusDone, CrossCpuJob, Failed, Pools, Ready
from pagepool.results.model import Machine, Record

DEFAULT_LOOPS = _loops.CROSS_CPU_DEFAULT_LOOPS
MAX_RETURNING = _loops.CROSS_CPU_MAX_RETURNING
NAME = _loops.CROSS_CPU_NAME
HANDOVER_NAME = _loops.CROSS_CPU_HANDOVER_NAME
_PREFIX = _loops.CROSS_CPU_PREFIX


def run_cross_cpu(
    *,
    returning: int = 1,
    loops: int = DEFAULT_LOOPS,
    runs: int = suite.DEFAULT_RUNS,
    designs: Sequence[str] = ("ring",),
    stats: bool = True,
    checked: bool = False,
    oversubscribe: bool = False,
    python: str | None = None,
) -> Generator[Event, None, None]:
    """Run the benchmark and yield what happens: `pagepool.bench.events`, `Started` first.

    ``loops`` are the pages of each of the ``returning`` CPUs; each run has all ``designs``, and
    of each the hand-over alone just before it. Settings are checked at once: raises
    `SettingsError`, also when there are fewer CPUs than returning ones and a consumer, unless
    ``oversubscribe``. ``python`` as in `run_simple`. While it runs it raises `WorkerDied` and
    `BenchError`. Closing the generator ends the worker process.
    """
    suite.check_counts(loops, runs)
    several = suite.check_designs(designs)
    if not 1 <= returning <= MAX_RETURNING:
        raise SettingsError(f"{returning} returning CPUs: can be 1 to {MAX_RETURNING}")
    what = f"{returning} returning CPU{'s' if returning != 1 else ''} and the consumer"
    chosen = suite.choose_cpus(returning + 1, what, oversubscribe)
    # The best CPU is the consumer's, the last in the list.
    cpus = None if chosen is None else (*sorted(chosen[1:]), chosen[0])
    pools = Pools(stats=stats, checked=checked)
    return _run(returning, loops, runs, several, pools, cpus, what, python)


def _run(
    returning: int,
    loops: int,
    runs: int,
    designs: tuple[str, ...],
    pools: Pools,
    cpus: tuple[int, ...] | None,
    what: str,
    python: str | None,
) -> Generator[Event, None, None]:
    consumer = None if cpus is None else cpus[-1]
    mark = suite.oversubscribed(what) if cpus is None else ""
    for run in range(1, runs + 1):
        with Worker(python=python) as worker:
            ready = suite.start(worker, consumer, pools)
            if run == 1:
                settings = {
                    "suite": "cross-cpu",
                    "loops": str(loops),
                    "returning_cpus": str(returning),
                }
                machine = _facts(ready, designs, pools, python, cpus, mark)
                yield Started(machine, settings, (HANDOVER_NAME, NAME), runs, designs)
                yield from suite.doubts(ready, consumer, pools)
                if mark:
                    yield Warned(f"oversubscribed: {mark.removeprefix('yes: ')}")
            yield RunStarted(run)
            for design in suite.rotated(designs, run):
                yield from suite.begin_design(run, design, designs, f"{_PREFIX}Loaded")
                if mark:
                    yield Notice(run, f"{_PREFIX}oversubscribed: {mark.removeprefix('yes: ')}")
                yield from _one_design(worker, run, CrossCpuJob(loops, returning, cpus, design))
            for line in worker.complaints():
                yield Warned(f"the worker said: {line}")


def _one_design(worker: Worker, run: int, job: CrossCpuJob) -> Generator[Event, None, None]:
    measured: list[CpusDone] = []
    for name, handover in ((HANDOVER_NAME, True), (NAME, False)):
        yield TestStarted(run, name)
        request = CrossCpuJob(job.loops, job.returning, job.cpus, job.design, handover)
        answer = worker.ask(request, f"in {name}, {job.design}, run {run}")
        if isinstance(answer, Failed):
            yield TestFailed(run, name, f"{job.design}: {answer.text}")
            continue
        if not isinstance(answer, CpusDone):
            raise WorkerDied(f"the worker answered nonsense in {name}: {answer}")
        measured.append(answer)
        yield from suite.cpu_records(run, job.design, answer)
        for text in _count_lines(name, answer):
            yield Notice(run, _PREFIX + text)
    if len(measured) == 2:
        handed, pool = (
            fmean(cpu.counts["median ns"] / cpu.counts["pages"] for cpu in done.cpus[:-1])
            for done in measured
        )
        yield Notice(
            run,
            f"{_PREFIX}median {pool:.3f} ns a page, {handed:.3f} of it the hand-over: "
            f"net {pool - handed:.3f} ns",
        )


def _count_lines(name: str, done: CpusDone) -> list[str]:
    lines = []
    for cpu in done.cpus[:-1]:
        empty = cpu.counts["queue empty"]
        lines.append(f"{name} CPU({cpu.cpu}): returned {cpu.invoke_count}, queue empty {empty}")
    last = done.cpus[-1]
    full = last.counts["queue full"]
    lines.append(f"{name} CPU({last.cpu}): handed out {last.invoke_count}, queue full {full}")
    if "ring full" in done.counts:
        counts = done.counts
        lines.append(
            f"{name}: {counts['ring full']} pages fell out of the pool of {counts['pool size']}, "
            f"the provider was asked {counts['slow']} times"
        )
    return lines


def _facts(
    ready: Ready,
    designs: tuple[str, ...],
    pools: Pools,
    python: str | None,
    cpus: tuple[int, ...] | None,
    mark: str,
) -> Machine:
    pool = f"pool_size {_loops.CROSS_CPU_POOL_SIZE}, of which the pool makes {_loops.MAX_POOL_SIZE}"
    facts = suite.facts(ready, designs, pool, pools, python)
    if cpus is not None:
        returning = ",".join(map(str, cpus[:-1]))
        facts["pinned cpu"] = f"{cpus[-1]} allocates, {returning} return"
    facts["queues"] = f"of {_loops.QUEUE_SIZE}, handed over {_loops.QUEUE_BATCH} at a time"
    facts["oversubscribed"] = mark or "no"
    return facts


# What was measured


class CrossCpuSummary(NamedTuple):
    """One design over all runs; ns per page, mean of the returning CPUs, median of the runs.

    ``ns`` is the mean of each CPU's median stretch, ``mean`` that of the whole loops. ``handover``
    is the same loop without the pool, ``net`` the difference in each run; ``None`` where a run had
    only one of them. The counts are sums over all runs; ``fell_out``: ``None`` without statistics.
    """

    design: str
    runs: int
    ns: float
    ns_min: float
    ns_max: float
    mean: float
    handover: float | None
    net: float | None
    net_min: float | None
    net_max: float | None
    queue_empty: int
    queue_full: int
    fell_out: int | None
    #: ``ns`` and ``net``, a value a run.
    values: tuple[float, ...] = ()
    nets: tuple[float, ...] = ()


def summarize_cross_cpu(collector: Collector) -> list[CrossCpuSummary]:
    """A summary a design; one that gave no figure is left out."""
    summaries = (_summary(design, collector.of(design)) for design in collector.designs)
    return [summary for summary in summaries if summary is not None]


def _summary(design: str, runs: list[list[Record]]) -> CrossCpuSummary | None:
    pool: list[float] = []
    means: list[float] = []
    handover: list[float] = []
    net: list[float] = []
    empty = full = 0
    fell_out: int | None = None
    for records in runs:
        returned, handed = _returning(records, NAME), _returning(records, HANDOVER_NAME)
        if returned:
            pool.append(fmean(map(median_ns, returned)))
            means.append(fmean(record.ns or 0.0 for record in returned))
        if handed:
            handover.append(fmean(map(median_ns, handed)))
        if returned and handed:
            net.append(pool[-1] - handover[-1])
        for record in records:
            if record.name == NAME:
                empty += record.counts.get("queue empty", 0)
                full += record.counts.get("queue full", 0)
                if "ring full" in record.counts:
                    fell_out = (fell_out or 0) + record.counts["ring full"]
    if not pool:
        return None
    return CrossCpuSummary(
        design=design,
        runs=len(pool),
        ns=median_low(pool),
        ns_min=min(pool),
        ns_max=max(pool),
        mean=median_low(means),
        handover=median_low(handover) if handover else None,
        net=median_low(net) if net else None,
        net_min=min(net) if net else None,
        net_max=max(net) if net else None,
        queue_empty=empty,
        queue_full=full,
        fell_out=fell_out,
        values=tuple(pool),
        nets=tuple(net),
    )


def _returning(records: list[Record], name: str) -> list[Record]:
    """Those of the CPUs that return; the consumer has no median, and counts full queues."""
    return [r for r in records if r.name == name and r.ns is not None and "median ns" in r.counts]
