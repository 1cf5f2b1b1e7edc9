# SPDX-License-Identifier: BSD-2-Clause
"""What the suites share: settings that are checked alike, the order of designs, facts."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from typing import TypeVar

from pagepool.bench import _loops, machine
from pagepool.bench.errors import SettingsError, WorkerDied
from pagepool.bench.events import DesignStarted, Event, Notice, Recorded, Warned
from pagepool.bench.process import Worker
from pagepool.bench.protocol import CpuDone, CpusDone, Pools, Ready, Setup
from pagepool.results.model import Machine, Record

MIN_LOOPS = _loops.MIN_LOOPS
MAX_LOOPS = _loops.MAX_LOOPS

#: Three runs show whether figures repeat; one does not, and a median needs three.
DEFAULT_RUNS = 3
MAX_RUNS = 1000

_T = TypeVar("_T")


def check_counts(loops: int, runs: int) -> None:
    """Raises `SettingsError`."""
    if not MIN_LOOPS <= loops <= MAX_LOOPS:
        raise SettingsError(f"{loops} loops: can be {MIN_LOOPS} to {MAX_LOOPS}")
    if not 1 <= runs <= MAX_RUNS:
        raise SettingsError(f"{runs} runs: can be 1 to {MAX_RUNS}")


def check_designs(names: Sequence[str]) -> tuple[str, ...]:
    """The designs as a tuple. Raises `SettingsError`: unknown, twice, or none."""
    designs = (names,) if isinstance(names, str) else tuple(names)
    if not designs:
        raise SettingsError("no design: give one or more of ring, list, ours")
    for index, name in enumerate(designs):
        try:
            _loops.check_design(name)
        except ValueError as error:
            raise SettingsError(str(error)) from None
        if name in designs[:index]:
            raise SettingsError(f"design {name!r} is given twice")
    return designs


def rotated(items: Sequence[_T], run: int) -> list[_T]:
    """The order of a run, numbered from 1: each run begins with the next one.

    What comes first in a process, or last on a machine that grows warm, is not always the same.
    """
    first = (run - 1) % len(items)
    return [*items[first:], *items[:first]]


def choose_cpus(need: int, what: str, oversubscribe: bool) -> list[int] | None:
    """That many CPUs, the best first; ``None``: there are not so many, and that is accepted.

    Raises `SettingsError` where it is not.
    """
    allowed = os.sched_getaffinity(0)
    if need <= len(allowed):
        return machine.order_cpus(allowed)[:need]
    if oversubscribe:
        return None
    have = f"{len(allowed)} CPU{'s' if len(allowed) != 1 else ''}"
    raise SettingsError(
        f"{what} need {need} CPUs, and this process may use {have} "
        f"({machine.format_cpu_list(allowed)}); "
        "--oversubscribe runs them all the same, and marks the result"
    )


def start(worker: Worker, cpu: int | None, pools: Pools) -> Ready:
    """Set a worker up. Raises `WorkerDied`."""
    ready = worker.ask(Setup(cpu, pools), "while it started")
    if not isinstance(ready, Ready):
        raise WorkerDied(f"the worker did not start: {ready}")
    return ready


def greet(python: str | None) -> Ready:
    """What the pagepool of an interpreter (``None``: this one) says of itself.

    Raises `BenchError`.
    """
    with Worker(python=python) as worker:
        return start(worker, None, Pools())


def doubts(ready: Ready, cpu: int | None, pools: Pools) -> Iterator[Warned]:
    """What is doubtful from the start."""
    if ready.pin_error:
        yield Warned(f"cannot pin the worker to CPU {cpu}: {ready.pin_error}")
    if ready.checked != "off" and not pools.checked:
        yield Warned("PAGEPOOL_CHECKED is set: these are not the pool's figures")


def facts(
    ready: Ready, designs: tuple[str, ...], pool: str, pools: Pools, python: str | None
) -> Machine:
    """The machine, and what is measured on it; with the design, if there is one only.

    ``python``: the interpreter of the worker, if it is not this one.
    """
    result = machine.describe(ready.cpu)
    if python is not None:
        result.pop("python", None)  # which is ours
        result["interpreter"] = machine.one_line(python)
    counter = ready.counter
    if ready.counter_khz:
        counter += f" at {ready.counter_khz / 1e6:.2f} GHz, measured"
    instructions = "counted, user space only"
    if ready.pmu_error:
        name = errno.errorcode.get(ready.pmu_error, str(ready.pmu_error))
        instructions = f"not available: perf_event_open gives {name}"
    result |= {
        "pagepool": ready.version,
        "compiler": machine.one_line(ready.compiler),
        "core build": ready.build,
        "counter": counter,
        "instructions": instructions,
    }
    if len(designs) == 1:
        result["design"] = designs[0]
    result |= {
        "pool": pool,
        "statistics": "on" if pools.stats else "off",
        "dma": ready.dma,
        "checked mode": ready.checked,
    }
    return result


def begin_design(
    run: int, design: str, designs: tuple[str, ...], loaded: str
) -> Iterator[DesignStarted | Notice]:
    """One design of a run begins; to a reader of the text that is a run of its own."""
    if len(designs) > 1:
        yield DesignStarted(run, design, {"design": design})
    yield Notice(run, loaded)


def cpu_records(run: int, design: str, done: CpusDone) -> Iterator[Event]:
    """A record for each CPU, and the kernel's line of their average."""
    for cpu in done.cpus:
        yield Recorded(run, cpu_record(cpu), cpu.pmu_line, cpu.cpu_share, design)
    yield Recorded(run, sum_record(done), design=design)


def cpu_record(done: CpuDone) -> Record:
    """What one CPU measured, as a record."""
    return Record(
        name=done.name,
        kind="cpu",
        step=done.step,
        cpu=done.cpu,
        time_interval_ns=done.time_interval_ns,
        invoke_count=done.invoke_count,
        tsc_interval=done.tsc_interval,
        instructions=done.instructions,
        counts=done.counts,
    )


def sum_record(done: CpusDone) -> Record:
    """The average over all CPUs: of whole cycles, and cut to whole cycles, as the kernel does."""
    cycles = [cpu.tsc_interval // cpu.invoke_count for cpu in done.cpus]
    first = done.cpus[0]
    return Record(
        name=first.name,
        kind="sum",
        step=first.step,
        cpus=len(cycles),
        printed_cycles=sum(cycles) // len(cycles),
        counts=done.counts,
    )


def oversubscribed(what: str) -> str:
    """The mark of a result that had fewer CPUs than it says."""
    have = len(os.sched_getaffinity(0))
    return f"yes: {what} on {have} CPU{'s' if have != 1 else ''}, so no figure of contention"
