# SPDX-License-Identifier: BSD-2-Clause
"""What the worker process and its parent say to each other: one JSON object a line.

The parent sends a `Setup` and is answered by a `Ready`; then, as often as it likes, a `Job`,
answered by a `Done` or a `Failed`. At the end of its input the worker exits, at once.

The worker may be that of another pagepool, which runs under an interpreter of its own. So what is
said has a version, `PROTOCOL`: it goes up whenever a message changes so that an older side would
misread it. A pagepool whose `Ready` does not name any speaks the first.
"""

from __future__ import annotations

import msgspec

from pagepool.bench._workloads import Outcome

#: The version of all that is below.
PROTOCOL = 1


class Pools(msgspec.Struct, frozen=True):
    """What the pools under test are like.

    ``stats``: with statistics; ``dma``: ``off``, ``none`` or ``iommu``; ``tracking``: they know
    which pages they have mapped; ``checked``: checked pools, which the environment can add.
    """

    stats: bool = True
    dma: str = "off"
    tracking: bool = True
    checked: bool = False


class Setup(msgspec.Struct, tag=True):
    """How to be: pinned to ``cpu``, or wherever the scheduler likes. ``pools``: of all jobs."""

    cpu: int | None = None
    pools: Pools = Pools()


class Job(msgspec.Struct, tag=True):
    """Run one test once. ``loops``: 1000 to 2**32 - 1; ``design``: of its pool."""

    test: str
    loops: int
    design: str = "ring"


class CrossCpuJob(msgspec.Struct, tag=True):
    """Run bench_page_pool_cross_cpu once, or with ``handover`` its loop without the pool.

    ``cpus``: the returning ones, then the consumer's; ``None`` pins nobody.
    """

    loops: int
    returning: int
    cpus: tuple[int, ...] | None
    design: str = "ring"
    handover: bool = False


class StormJob(msgspec.Struct, tag=True):
    """Run the return storm once. ``cpus``: the producers'; ``None`` pins nobody."""

    loops: int
    producers: int
    cpus: tuple[int, ...] | None
    design: str = "ring"
    pages: int = 0
    round_robin: bool = False
    bulk: int = 0


class Play(msgspec.Struct, tag=True):
    """Run a workload once; as `pagepool.bench._workloads.run`."""

    workload: str
    knobs: dict[str, int]
    design: str
    seed: int
    reader_cpu: int


class Ready(msgspec.Struct, tag=True):
    """What the worker knows of itself.

    ``cpu`` is where it is pinned, ``None`` for ``pin_error``'s reason. ``counter_khz`` is
    measured, 0 without a counter. ``build`` is how the core was built. ``pmu_error`` is an errno,
    0 where instructions can be counted. ``dma`` and ``checked`` are what the pools turn out to be,
    in words. ``protocol``: `PROTOCOL` of the worker.
    """

    cpu: int | None
    pin_error: str
    counter: str
    counter_khz: int
    compiler: str
    version: str
    pmu_error: int
    dma: str
    checked: str
    protocol: int = 1
    build: str = "not known"


class Greeting(msgspec.Struct):
    """What can be read of a `Ready` of any version."""

    protocol: int = 1
    version: str = "?"


class Done(msgspec.Struct, tag=True):
    """What a job measured; fields as in `pagepool.bench._loops.Timing`.

    ``cpu_share`` is CPU time of the thread over wall-clock time, for the whole test.
    """

    name: str
    step: int
    loops: int
    invoke_count: int
    time_interval_ns: int
    tsc_interval: int
    instructions: int | None
    pmu_line: str
    warning: str
    cpu_share: float


class CpuDone(msgspec.Struct):
    """What one CPU measured in a job on several; fields as in `Done`.

    ``counts``: what else it counted.
    """

    cpu: int
    name: str
    step: int
    invoke_count: int
    time_interval_ns: int
    tsc_interval: int
    instructions: int | None
    pmu_line: str
    cpu_share: float
    counts: dict[str, int]


class CpusDone(msgspec.Struct, tag=True):
    """What a job on several CPUs measured; ``counts``: for all of them together."""

    cpus: tuple[CpuDone, ...]
    counts: dict[str, int]


class Played(msgspec.Struct, tag=True):
    """What a workload did; ``cpu_share`` as in `Done`."""

    outcome: Outcome
    cpu_share: float


class Failed(msgspec.Struct, tag=True):
    """A job that gave no figure: the reason in one line, and its positive errno."""

    text: str
    errno: int


Request = Setup | Job | CrossCpuJob | StormJob | Play
Answer = Ready | Done | CpusDone | Played | Failed
