# SPDX-License-Identifier: BSD-2-Clause
"""The timed loops, in C. Nothing but this module touches C on behalf of the benchmarks."""

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
    dma: str = "off",
    tracking: bool = True,
    checked: bool = False,
) -> Timing:
    """Run one test on the calling thread, without the GIL. Raises `TestError`, ``ValueError``.

    ``loops`` is the number asked for, 1000 to 2**32 - 1; baselines do ten times as many.
    ``dma`` is one of `DMA`. Cannot be interrupted.
    """

def counter_name() -> str:
    """``rdtsc``, ``cntvct`` or ``none``."""

def counter_khz(milliseconds: int = 20) -> int:
    """Speed of the counter in kHz, measured; 0 where there is none. Raises ``OSError``."""

def pmu_error() -> int:
    """0 where instructions can be counted, otherwise the positive errno of perf_event_open."""

def compiler() -> str:
    """The C compiler that built the loops, name and version."""

def core_version() -> str:
    """The version of the C library that is measured."""
