# SPDX-License-Identifier: BSD-2-Clause
"""The benchmarks: choose, run in a worker process, record.

>>> from pagepool.bench import Recorded, run_simple
>>> for event in run_simple(loops=1_000_000, runs=1, tests=["tasklet*"]):
...     if isinstance(event, Recorded):
...         print(f"{event.record.name} {event.record.ns:.3f} ns")  # doctest: +SKIP
"""

from pagepool.bench.collect import Collector, Summary, build_label
from pagepool.bench.cross_cpu import CrossCpuSummary, run_cross_cpu, summarize_cross_cpu
from pagepool.bench.errors import BenchError, SettingsError, WorkerDied
from pagepool.bench.events import (
    DesignStarted,
    Event,
    Notice,
    Recorded,
    RunStarted,
    Started,
    TestFailed,
    TestStarted,
    Warned,
)
from pagepool.bench.rounds import SUITES, Side, Suite, run_rounds
from pagepool.bench.simple import (
    DEFAULT_LOOPS,
    DMA,
    list_tests,
    run_simple,
    select_tests,
)
from pagepool.bench.storm import SPREADS, StormSummary, run_storm, summarize_storm
from pagepool.bench.suite import DEFAULT_RUNS, MAX_LOOPS, MAX_RUNS, MIN_LOOPS, greet
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
    "CrossCpuSummary",
    "DEFAULT_LOOPS",
    "DEFAULT_RUNS",
    "DMA",
    "DesignStarted",
    "Event",
    "MAX_LOOPS",
    "MAX_RUNS",
    "MIN_LOOPS",
    "Notice",
    "Ran",
    "Recorded",
    "RunStarted",
    "SPREADS",
    "SUITES",
    "SettingsError",
    "Side",
    "Started",
    "StormSummary",
    "Suite",
    "Summary",
    "TestFailed",
    "TestStarted",
    "Warned",
    "WORKLOADS",
    "WorkerDied",
    "build_label",
    "WorkloadCollector",
    "WorkloadEvent",
    "greet",
    "list_tests",
    "run_cross_cpu",
    "run_rounds",
    "run_simple",
    "run_storm",
    "run_workload",
    "select_tests",
    "summarize_cross_cpu",
    "summarize_storm",
]
