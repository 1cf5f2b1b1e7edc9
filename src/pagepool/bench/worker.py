# SPDX-License-Identifier: BSD-2-Clause
"""The process that measures: ``python -m pagepool.bench.worker``.

A process of its own, because what the parent did before (threads, memory, a warm progress bar)
must not be part of a figure; one per run, because where the loader puts things is chance, and a
spread that leaves chance out is too small. See `pagepool.bench.protocol` for what it speaks.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time

import msgspec

from pagepool.bench import _loops, _workloads
from pagepool.bench.protocol import (
    PROTOCOL,
    Answer,
    CpuDone,
    CpusDone,
    CrossCpuJob,
    Done,
    Failed,
    Job,
    Play,
    Played,
    Pools,
    Ready,
    Request,
    Setup,
    StormJob,
)


def main() -> int:
    """Serve requests from standard input until it ends. Returns the exit status."""
    # Answers go to a copy of standard output. Whatever else prints there, a library say, ends
    # up on standard error, and cannot be taken for an answer.
    answers = os.dup(1)
    os.dup2(2, 1)
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    # A loop runs for minutes and cannot be interrupted; the parent may be gone long before. So
    # a second thread listens, and ends the process when nobody is there any more. It sleeps
    # while the loop runs, and starts before this thread is pinned: it is not on that CPU.
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    pools = Pools()
    while True:
        request = requests.get()
        if isinstance(request, Setup):
            pools = request.pools
            _send(answers, _set_up(request))
        elif isinstance(request, Play):
            _send(answers, _play(request))
        elif isinstance(request, Job):
            _send(answers, _measure(request, pools))
        else:
            _send(answers, _measure_cpus(request, pools))


def _listen(requests: queue.SimpleQueue[Request]) -> None:
    decoder = msgspec.json.Decoder(Request)
    try:
        for line in sys.stdin.buffer:
            requests.put(decoder.decode(line))
    except Exception as error:  # whatever it is, the main thread cannot go on without requests
        print(f"pagepool.bench.worker: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def _send(descriptor: int, answer: Answer) -> None:
    data = msgspec.json.encode(answer) + b"\n"
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BrokenPipeError:
            os._exit(0)


def _first_pool() -> None:
    """The first pool of a process sleeps some ms: the system registers it for membarrier(2).

    That is nobody else's use of the CPU, and would count as such in the first test with a pool.
    """
    name = next(test.name for test in _loops.tests() if "page_pool" in test.name)
    with contextlib.suppress(_loops.TestError):  # the tests will say so
        _loops.run(name, _loops.MIN_LOOPS, pmu=False)


def _set_up(setup: Setup) -> Ready:
    cpu, pin_error = setup.cpu, ""
    if cpu is not None:
        try:
            os.sched_setaffinity(0, {cpu})
        except OSError as error:
            cpu, pin_error = None, error.strerror or str(error)
    _first_pool()
    try:
        khz = _loops.counter_khz()
    except OSError:
        khz = 0  # the tests will say what is wrong with the clock
    return Ready(
        cpu=cpu,
        pin_error=pin_error,
        counter=_loops.counter_name(),
        counter_khz=khz,
        compiler=_loops.compiler(),
        build=_loops.core_build(),
        version=_loops.core_version(),
        pmu_error=_loops.pmu_error(),
        dma=_loops.dma_text(setup.pools.dma, setup.pools.tracking),
        checked=_loops.checked_text(setup.pools.checked),
        protocol=PROTOCOL,
    )


def _measure(job: Job, pools: Pools) -> Done | Failed:
    wall, busy = time.monotonic_ns(), time.thread_time_ns()
    try:
        timing = _loops.run(
            job.test,
            job.loops,
            pools.stats,
            design=job.design,
            dma=pools.dma,
            tracking=pools.tracking,
            checked=pools.checked,
        )
    except _loops.TestError as error:
        return Failed(str(error), error.errno)
    wall, busy = time.monotonic_ns() - wall, time.thread_time_ns() - busy
    return Done(
        name=timing.name,
        step=timing.step,
        loops=timing.loops,
        invoke_count=timing.invoke_count,
        time_interval_ns=timing.time_interval_ns,
        tsc_interval=timing.tsc_interval,
        instructions=timing.instructions,
        pmu_line=timing.pmu_line,
        warning=timing.warning,
        cpu_share=min(busy / wall, 1.0) if wall > 0 else 1.0,
    )


def _measure_cpus(job: CrossCpuJob | StormJob, pools: Pools) -> CpusDone | Failed:
    try:
        if isinstance(job, CrossCpuJob):
            timings = _loops.cross_cpu(
                job.loops,
                job.returning,
                job.cpus,
                design=job.design,
                handover=job.handover,
                stats=pools.stats,
                checked=pools.checked,
            )
        else:
            timings = _loops.storm(
                job.loops,
                job.producers,
                job.cpus,
                design=job.design,
                pages=job.pages,
                round_robin=job.round_robin,
                bulk=job.bulk,
                stats=pools.stats,
                checked=pools.checked,
            )
    except _loops.TestError as error:
        return Failed(str(error), error.errno)
    return CpusDone(tuple(map(_cpu_done, timings.cpus)), timings.counts)


def _cpu_done(one: _loops.CpuTiming) -> CpuDone:
    timing = one.timing
    share = 1.0 if one.busy_ns is None else one.busy_ns / timing.time_interval_ns
    return CpuDone(
        cpu=one.cpu,
        name=timing.name,
        step=timing.step,
        invoke_count=timing.invoke_count,
        time_interval_ns=timing.time_interval_ns,
        tsc_interval=timing.tsc_interval,
        instructions=timing.instructions,
        pmu_line=timing.pmu_line,
        cpu_share=min(share, 1.0),
        counts=one.counts,
    )


def _play(play: Play) -> Played | Failed:
    wall, busy = time.monotonic_ns(), time.thread_time_ns()
    try:
        outcome = _workloads.run(
            play.workload,
            play.knobs,
            design=play.design,
            seed=play.seed,
            reader_cpu=play.reader_cpu,
        )
    except _workloads.WorkloadError as error:
        return Failed(str(error), error.errno)
    wall, busy = time.monotonic_ns() - wall, time.thread_time_ns() - busy
    return Played(outcome, min(busy / wall, 1.0) if wall > 0 else 1.0)


if __name__ == "__main__":
    sys.exit(main())
