# SPDX-License-Identifier: BSD-2-Clause
"""The timed loops, in C. Nothing but this module touches C on behalf of the benchmarks."""

from collections.abc import Sequence
from typing import NamedTuple

class Test(NamedTuple):
    """One test of bench_page_pool_simple."""

    name: str
    what: str
    times: int
    in_pool: bool
    in_context: bool
    notice: str | None

class Timing(NamedTuple):
    """What one test measured: sums over all rounds. Times are nanoseconds."""

    name: str
    step: int
    loops: int
    invoke_count: int
    time_interval_ns: int
    tsc_interval: int
    instructions: int | None
    pmu_cycles: int | None
    line: str
    pmu_line: str
    warning: str

class CpuTiming(NamedTuple):
    """What one CPU measured in a test on several: its number, its `Timing`, and its counts.

    ``busy_ns``: of the timing's interval, how long the thread was running; ``None``: not known.
    """

    cpu: int
    timing: Timing
    counts: dict[str, int]
    busy_ns: int | None

class Timings(NamedTuple):
    """What a test on several CPUs measured, and what it counted for all of them."""

    cpus: list[CpuTiming]
    counts: dict[str, int]

class TestError(Exception):
    """A test gave no figure: too few loops, no time passed, out of pages, another road taken.

    ``errno`` is the positive error number.
    """

    errno: int
    def __init__(self, errno: int, text: str) -> None: ...

PREFIX: str
LOADED: str
HANDLER: str
DEFAULT_LOOPS: int
MIN_LOOPS: int
MAX_LOOPS: int
POOL_SIZE: int
PREFILL: int
DMA: tuple[str, ...]
MAX_POOL_SIZE: int
QUEUE_SIZE: int
QUEUE_BATCH: int
CROSS_CPU_NAME: str
CROSS_CPU_HANDOVER_NAME: str
CROSS_CPU_PREFIX: str
CROSS_CPU_DEFAULT_LOOPS: int
CROSS_CPU_POOL_SIZE: int
CROSS_CPU_MAX_RETURNING: int
STORM_NAME: str
STORM_BULK_NAME: str
STORM_PREFIX: str
STORM_DEFAULT_LOOPS: int
STORM_POOL_SIZE: int
STORM_PAGES_STEP: int
STORM_BLOCK: int
STORM_MAX_PRODUCERS: int

def check_design(name: str) -> None:
    """Raises ``ValueError``, which names them, when there is no design of this name."""

def tests() -> list[Test]:
    """Every test, in the order in which they run."""

def dma_text(dma: str = "off", tracking: bool = True) -> str:
    """How pages are mapped, in words; ``dma`` is one of `DMA`. Raises ``ValueError``."""

def checked_text(checked: bool = False) -> str:
    """``off``, or that pools are checked ones, which the environment can ask for, too.

    Raises ``OSError`` when there is no pool to be had.
    """

def run(
    name: str,
    loops: int,
    stats: bool = True,
    pmu: bool = True,
    *,
    design: str = "ring",
    dma: str = "off",
    tracking: bool = True,
    checked: bool = False,
) -> Timing:
    """Run one test on the calling thread, without the GIL. Raises `TestError`, ``ValueError``.

    ``loops`` is the number asked for, 1000 to 2**32 - 1; baselines do ten times as many.
    ``design`` is the name of one; ``dma`` is one of `DMA`. Cannot be interrupted.
    """

def cross_cpu(
    loops: int,
    returning: int,
    cpus: Sequence[int] | None = None,
    *,
    design: str = "ring",
    handover: bool = False,
    stats: bool = True,
    checked: bool = False,
    pmu: bool = True,
) -> Timings:
    """Return pages from ``returning`` other threads; the calling one is the consumer.

    ``cpus`` are those of the returning threads, then the consumer's; ``None`` pins nobody.
    ``handover``: the same loop without the pool. Raises `TestError`, ``ValueError``.
    """

def storm_pages(producers: int) -> int:
    """How many pages a producer returns in a round, if it is not said."""

def storm(
    loops: int,
    producers: int,
    cpus: Sequence[int] | None = None,
    *,
    design: str = "ring",
    pages: int = 0,
    round_robin: bool = False,
    bulk: int = 0,
    stats: bool = True,
    checked: bool = False,
) -> Timings:
    """Return pages from ``producers`` threads at once; the calling one allocates in between.

    ``cpus`` are the producers'; ``None`` pins nobody. ``pages``: of each in a round, 0 for
    `storm_pages`. Raises `TestError`, ``ValueError``.
    """

def counter_name() -> str:
    """``rdtsc``, ``cntvct`` or ``none``."""

def counter_khz(milliseconds: int = 20) -> int:
    """Speed of the counter in kHz, measured; 0 where there is none. Raises ``OSError``."""

def pmu_error() -> int:
    """0 where instructions can be counted, otherwise the positive errno of perf_event_open."""

def compiler() -> str:
    """The C compiler that built the loops, name and version."""

def core_build() -> str:
    """How the C library was built: meson's buildtype, and what else was asked for."""

def core_version() -> str:
    """The version of the C library that is measured."""
