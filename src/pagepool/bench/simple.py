# SPDX-License-Identifier: BSD-2-Clause
"""bench_page_pool_simple: what one allocation and one return cost on one CPU."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Sequence
from fnmatch import fnmatchcase

from pagepool.bench import _loops, machine
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
from pagepool.bench.protocol import Done, Failed, Job, Pools, Ready, Setup
from pagepool.results.model import Machine, Record

DEFAULT_LOOPS = _loops.DEFAULT_LOOPS
MIN_LOOPS = _loops.MIN_LOOPS
MAX_LOOPS = _loops.MAX_LOOPS

#: How ``dma`` can be: not at all, for a device without an IOMMU, behind a software IOMMU.
DMA = _loops.DMA

#: Three runs show whether figures repeat; one does not, and a median needs three.
DEFAULT_RUNS = 3
MAX_RUNS = 1000

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
    stats: bool = True,
    dma: str = "off",
    tracking: bool = True,
    checked: bool = False,
    cpu: int | None = None,
) -> Generator[Event, None, None]:
    """Run the benchmark and yield what happens: `pagepool.bench.events`, `Started` first.

    ``loops`` are the rounds of one test, 1000 to 2**32 - 1 (``for_loop`` and ``atomic_inc`` do
    ten times as many); ``tests`` are shell patterns of names, none for all; ``stats`` off makes
    pools without statistics; ``dma`` is one of `DMA`, and ``tracking`` off makes pools that do not
    know which pages they have mapped; ``checked`` makes checked pools, whose figures are not the
    pool's; ``cpu`` is the CPU to run on, chosen if not given. Settings are checked at once: raises
    `SettingsError`. While it runs it raises `WorkerDied` and `BenchError`. Closing the generator
    ends the worker process.
    """
    if not MIN_LOOPS <= loops <= MAX_LOOPS:
        raise SettingsError(f"{loops} loops: can be {MIN_LOOPS} to {MAX_LOOPS}")
    if not 1 <= runs <= MAX_RUNS:
        raise SettingsError(f"{runs} runs: can be 1 to {MAX_RUNS}")
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
    return _run(loops, runs, chosen, Pools(stats, dma, tracking, checked), cpu)


def _run(
    loops: int, runs: int, tests: list[Test], pools: Pools, cpu: int
) -> Generator[Event, None, None]:
    for run in range(1, runs + 1):
        with Worker() as worker:
            ready = worker.ask(Setup(cpu, pools), "while it started")
            if not isinstance(ready, Ready):
                raise WorkerDied(f"the worker did not start: {ready}")
            if run == 1:
                facts = _facts(ready, pools)
                settings = {"suite": "simple", "loops": str(loops)}
                yield Started(facts, settings, tuple(test.name for test in tests), runs)
                if ready.pin_error:
                    yield Warned(f"cannot pin the worker to CPU {cpu}: {ready.pin_error}")
                if ready.checked != "off" and not pools.checked:
                    yield Warned("PAGEPOOL_CHECKED is set: these are not the pool's figures")
            yield RunStarted(run)
            yield Notice(run, _loops.PREFIX + _loops.LOADED)
            yield from _one_run(worker, run, loops, tests)
            for line in worker.complaints():
                yield Warned(f"the worker said: {line}")


def _one_run(
    worker: Worker, run: int, loops: int, tests: list[Test]
) -> Generator[Event, None, None]:
    announced = False
    for test in tests:
        yield TestStarted(run, test.name)
        if test.in_context and not announced:
            announced = True
            yield Notice(run, _loops.PREFIX + _loops.HANDLER)
        if test.notice is not None:
            yield Notice(run, _loops.PREFIX + test.notice)
        answer = worker.ask(Job(test.name, loops), f"in {test.name}, run {run}")
        if isinstance(answer, Failed):
            yield TestFailed(run, test.name, answer.text)
            continue
        if not isinstance(answer, Done):
            raise WorkerDied(f"the worker answered nonsense in {test.name}: {answer}")
        if answer.warning:
            yield Warned(answer.warning)
        yield Recorded(run, _record(answer), answer.pmu_line, answer.cpu_share)


def _record(done: Done) -> Record:
    return Record(
        name=done.name,
        step=done.step,
        time_interval_ns=done.time_interval_ns,
        invoke_count=done.invoke_count,
        tsc_interval=done.tsc_interval,
        instructions=done.instructions,
    )


def _facts(ready: Ready, pools: Pools) -> Machine:
    facts = machine.describe(ready.cpu)
    counter = ready.counter
    if ready.counter_khz:
        counter += f" at {ready.counter_khz / 1e6:.2f} GHz, measured"
    instructions = "counted, user space only"
    if ready.pmu_error:
        name = errno.errorcode.get(ready.pmu_error, str(ready.pmu_error))
        instructions = f"not available: perf_event_open gives {name}"
    facts |= {
        "pagepool": ready.version,
        "compiler": machine.one_line(ready.compiler),
        "counter": counter,
        "instructions": instructions,
        "pool": f"ring of {_loops.POOL_SIZE}, {_loops.PREFILL} pages in circulation",
        "statistics": "on" if pools.stats else "off",
        "dma": ready.dma,
        "checked mode": ready.checked,
        "rcu": "not measured, the pool has no read-side sections",
    }
    return facts
