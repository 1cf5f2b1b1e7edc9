# SPDX-License-Identifier: BSD-2-Clause
"""The benchmarks: choose, run in a worker process, record.

>>> from pagepool.bench import Recorded, run_simple
>>> for event in run_simple(loops=1_000_000, runs=1, tests=["tasklet*"]):
...     if isinstance(event, Recorded):
...         print(f"{event.record.name} {event.record.ns:.3f} ns")  # doctest: +SKIP
"""

from pagepool.bench.collect import Collector, Summary
from pagepool.bench.errors import BenchError, SettingsError, WorkerDied
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
from pagepool.bench.simple import (
    DEFAULT_LOOPS,
    DEFAULT_RUNS,
    DMA,
    MAX_LOOPS,
    MIN_LOOPS,
    list_tests,
    run_simple,
    select_tests,
)
from pagepool.bench.workload import (
    WORKLOADS,
    Ran,
    WorkloadCollector,
    WorkloadEvent,
    run_workload,
)

__all__ = [
    "BenchError",
    "Collector",
    "DEFAULT_LOOPS",
    "DEFAULT_RUNS",
    "DMA",
    "Event",
    "MAX_LOOPS",
    "MIN_LOOPS",
    "Notice",
    "Ran",
    "Recorded",
    "RunStarted",
    "SettingsError",
    "Started",
    "Summary",
    "TestFailed",
    "TestStarted",
    "Warned",
    "WORKLOADS",
    "WorkerDied",
    "WorkloadCollector",
    "WorkloadEvent",
    "list_tests",
    "run_simple",
    "run_workload",
    "select_tests",
]
