# SPDX-License-Identifier: BSD-2-Clause
"""bench_page_pool_simple: what one allocation and one return cost on one CPU."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from fnmatch import fnmatchcase

from pagepool.bench import _loops, machine, suite
from pagepool.bench._loops import Test
from pagepool.bench.errors import SettingsError, WorkerDied
from pagepool.bench.events import (
    Event,
    Notice,
    Recorded,
    RunStarted,
    Started,
    TestFailed,
    TestStarted,
    Warned,
)
from pagepool.bench.process import Worker
from pagepool.bench.protocol import Done, Failed, Job, Pools, Ready
from pagepool.bench.suite import DEFAULT_RUNS
from pagepool.results.model import Machine, Record

DEFAULT_LOOPS = _loops.DEFAULT_LOOPS

#: How ``dma`` can be: not at all, for a device without an IOMMU, behind a software IOMMU.
DMA = _loops.DMA

#: A test that had less than this part of its CPU is doubted. The kernel's own housekeeping
#: takes less than one in a hundred.
MIN_CPU_SHARE = 0.98


def list_tests() -> list[Test]:
    """Every test, in the order in which they run."""
    return _loops.tests()


def select_tests(globs: Sequence[str]) -> list[Test]:
    """The tests that match any of the shell patterns, in their order; no pattern: all.

    Raises `SettingsError` for a pattern that matches nothing.
    """
    tests = list_tests()
    if not globs:
        return tests
    for glob in globs:
        if not any(fnmatchcase(test.name, glob) for test in tests):
            raise SettingsError(f"no test matches {glob!r}; --list shows all {len(tests)}")
    return [test for test in tests if any(fnmatchcase(test.name, glob) for glob in globs)]


def run_simple(
    *,
    loops: int = DEFAULT_LOOPS,
    runs: int = DEFAULT_RUNS,
    tests: Sequence[str] = (),
    designs: Sequence[str] = ("ring",),
    stats: bool = True,
    dma: str = "off",
    tracking: bool = True,
    checked: bool = False,
    cpu: int | None = None,
    python: str | None = None,
) -> Generator[Event, None, None]:
    """Run the benchmark and yield what happens: `pagepool.bench.events`, `Started` first.

    ``loops`` are the rounds of one test, 1000 to 2**32 - 1 (``for_loop`` and ``atomic_inc`` do
    ten times as many); ``tests`` are shell patterns of names, none for all; ``designs`` are those
    of the pools, all of them in each run; ``stats`` off makes pools without statistics; ``dma`` is
    one of `DMA`, and ``tracking`` off makes pools that do not know which pages they have mapped;
    ``checked`` makes checked pools, whose figures are not the pool's; ``cpu`` is the CPU to run on,
    chosen if not given; ``python`` is the interpreter whose pagepool is measured, this one if not
    given. Settings are checked at once: raises `SettingsError`. While it runs it raises
    `WorkerDied` and `BenchError`. Closing the generator ends the worker process.
    """
    suite.check_counts(loops, runs)
    several = suite.check_designs(designs)
    if dma not in DMA:
        raise SettingsError(f"dma {dma!r}: can be {', '.join(DMA)}")
    if not tracking and dma == "off":
        raise SettingsError("no tracking has no meaning without dma none or iommu")
    chosen = select_tests([tests] if isinstance(tests, str) else tests)
    allowed = os.sched_getaffinity(0)
    if cpu is None:
        cpu = machine.choose_cpu(allowed)
    elif cpu not in allowed:
        raise SettingsError(
            f"CPU {cpu} is not one that this process may use: {machine.format_cpu_list(allowed)}"
        )
    return _run(loops, runs, chosen, several, Pools(stats, dma, tracking, checked), cpu, python)


def _run(
    loops: int,
    runs: int,
    tests: list[Test],
    designs: tuple[str, ...],
    pools: Pools,
    cpu: int,
    python: str | None,
) -> Generator[Event, None, None]:
    for run in range(1, runs + 1):
        with Worker(python=python) as worker:
            ready = suite.start(worker, cpu, pools)
            if run == 1:
                settings = {"suite": "simple", "loops": str(loops)}
                names = tuple(test.name for test in tests)
                yield Started(_facts(ready, designs, pools, python), settings, names, runs, designs)
                yield from suite.doubts(ready, cpu, pools)
            yield RunStarted(run)
            for design in suite.rotated(designs, run):
                loaded = _loops.PREFIX + _loops.LOADED
                yield from suite.begin_design(run, design, designs, loaded)
                yield from _one_run(worker, run, loops, tests, design)
            for line in worker.complaints():
                yield Warned(f"the worker said: {line}")


def _one_run(
    worker: Worker, run: int, loops: int, tests: list[Test], design: str
) -> Generator[Event, None, None]:
    announced = False
    for test in tests:
        yield TestStarted(run, test.name)
        if test.in_context and not announced:
            announced = True
            yield Notice(run, _loops.PREFIX + _loops.HANDLER)
        if test.notice is not None:
            yield Notice(run, _loops.PREFIX + test.notice)
        answer = worker.ask(Job(test.name, loops, design), f"in {test.name}, run {run}")
        if isinstance(answer, Failed):
            yield TestFailed(run, test.name, answer.text)
            continue
        if not isinstance(answer, Done):
            raise WorkerDied(f"the worker answered nonsense in {test.name}: {answer}")
        if answer.warning:
            yield Warned(answer.warning)
        yield Recorded(run, _record(answer), answer.pmu_line, answer.cpu_share, design)


def _record(done: Done) -> Record:
    return Record(
        name=done.name,
        step=done.step,
        time_interval_ns=done.time_interval_ns,
        invoke_count=done.invoke_count,
        tsc_interval=done.tsc_interval,
        instructions=done.instructions,
    )


def _facts(ready: Ready, designs: tuple[str, ...], pools: Pools, python: str | None) -> Machine:
    pool = f"pool_size {_loops.POOL_SIZE}, {_loops.PREFILL} pages in circulation"
    facts = suite.facts(ready, designs, pool, pools, python)
    facts["rcu"] = "not measured, the pool has no read-side sections"
    return facts
