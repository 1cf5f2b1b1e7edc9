# SPDX-License-Identifier: BSD-2-Clause
# cython: language_level=3
"""The timed loops, in C. Nothing but this module touches C on behalf of the benchmarks."""

from libc.errno cimport EINVAL
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t

from typing import NamedTuple
import os

cdef extern from *:
    """
    #if defined(__clang__)
    #define PP_BENCH_COMPILER "clang " __clang_version__
    #elif defined(__GNUC__)
    #define PP_BENCH_COMPILER "gcc " __VERSION__
    #else
    #define PP_BENCH_COMPILER "unknown"
    #endif
    """
    const char *PP_BENCH_COMPILER

cdef extern from "pagepool.h":
    const char *page_pool_version() nogil
    const char *page_pool_last_error() nogil

cdef extern from "bench/time_bench.h" nogil:
    uint32_t TIME_BENCH_MIN_LOOPS
    uint32_t TIME_BENCH_MAX_LOOPS
    enum:
        TIME_BENCH_LINE_MAX

    struct time_bench_record:
        char *name
        uint32_t step
        uint64_t loops
        uint64_t invoke_count
        uint64_t time_interval_ns
        uint64_t tsc_interval
        bint has_pmu
        uint64_t instructions
        uint64_t pmu_cycles
        char *error

    struct time_bench_clock:
        pass

    const char *time_bench_counter_name()
    int time_bench_counter_khz(const time_bench_clock *clock, uint64_t ns, uint64_t *ret)
    int time_bench_pmu_probe()
    int time_bench_format(const time_bench_record *rec, char *buf, size_t size)
    int time_bench_format_pmu(const time_bench_record *rec, char *buf, size_t size)
    int time_bench_format_warning(const time_bench_record *rec, char *buf, size_t size)

cdef extern from "bench/bench_simple.h" nogil:
    enum bench_simple_context:
        BENCH_NO_POOL
        BENCH_NO_SOFTIRQ
        BENCH_TASKLET

    struct bench_simple_test:
        const char *name
        const char *what
        uint32_t times
        bench_simple_context context
        const char *notice

    enum bench_simple_dma:
        BENCH_DMA_OFF

    struct bench_simple_params:
        uint64_t loops
        bint no_stats
        bench_simple_dma dma
        bint no_tracking
        bint checked
        bint pmu

    const char *bench_simple_dma_names[3]
    const char *bench_simple_dma_text(const bench_simple_params *params)
    const char *bench_simple_checked_text(const bench_simple_params *params)

    const bench_simple_test *bench_simple_tests
    size_t bench_simple_nr_tests
    const char *BENCH_SIMPLE_PREFIX
    const char *BENCH_SIMPLE_LOADED
    const char *BENCH_SIMPLE_HANDLER
    uint32_t BENCH_SIMPLE_DEFAULT_LOOPS
    int BENCH_SIMPLE_POOL_SIZE
    int BENCH_SIMPLE_PREFILL

    int bench_simple_run(const char *name, const bench_simple_params *params,
                         time_bench_record *rec)


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

    def __init__(self, errno, text):
        super().__init__(text)
        self.errno = errno


PREFIX = BENCH_SIMPLE_PREFIX.decode()
LOADED = BENCH_SIMPLE_LOADED.decode()
HANDLER = BENCH_SIMPLE_HANDLER.decode()
DEFAULT_LOOPS = BENCH_SIMPLE_DEFAULT_LOOPS
MIN_LOOPS = TIME_BENCH_MIN_LOOPS
MAX_LOOPS = TIME_BENCH_MAX_LOOPS
POOL_SIZE = BENCH_SIMPLE_POOL_SIZE
PREFILL = BENCH_SIMPLE_PREFILL
DMA = tuple(name.decode() for name in bench_simple_dma_names)


def tests():
    """Every test, in the order in which they run."""
    cdef const bench_simple_test *test
    cdef size_t i
    result = []
    for i in range(bench_simple_nr_tests):
        test = &bench_simple_tests[i]
        result.append(
            Test(
                test.name.decode(),
                test.what.decode(),
                test.times,
                test.context != BENCH_NO_POOL,
                test.context == BENCH_TASKLET,
                None if test.notice is NULL else test.notice.decode(),
            )
        )
    return result


cdef bench_simple_params _pools(str dma, bint tracking, bint checked):
    """What the pools under test are like."""
    return bench_simple_params(
        dma=<bench_simple_dma><int>DMA.index(dma), no_tracking=not tracking, checked=checked
    )


def dma_text(str dma="off", bint tracking=True):
    """How pages are mapped, in words; ``dma`` is one of `DMA`. Raises ``ValueError``."""
    cdef bench_simple_params params = _pools(dma, tracking, False)
    return bench_simple_dma_text(&params).decode()


def checked_text(bint checked=False):
    """``off``, or that pools are checked ones, which the environment can ask for, too.

    Raises ``OSError`` when there is no pool to be had.
    """
    cdef bench_simple_params params = _pools("off", True, checked)
    cdef const char *text = bench_simple_checked_text(&params)
    if text is NULL:
        raise OSError(page_pool_last_error().decode("utf-8", "replace"))
    return text.decode()


def run(
    str name,
    loops,
    bint stats=True,
    bint pmu=True,
    *,
    str dma="off",
    bint tracking=True,
    bint checked=False,
):
    """Run one test on the calling thread, without the GIL. Raises `TestError`, ``ValueError``.

    ``loops`` is the number asked for, 1000 to 2**32 - 1; baselines do ten times as many.
    ``dma`` is one of `DMA`. Cannot be interrupted.
    """
    cdef bench_simple_params params
    cdef time_bench_record record
    cdef char text[TIME_BENCH_LINE_MAX]
    cdef bytes encoded = name.encode()
    cdef const char *c_name = encoded
    cdef int error

    # 0 is C's word for the default; here every number is meant.
    if not MIN_LOOPS <= loops <= MAX_LOOPS:
        raise TestError(EINVAL, f"{name}: {loops} loops; {MIN_LOOPS} to {MAX_LOOPS} can be timed")
    params = _pools(dma, tracking, checked)
    params.loops, params.no_stats, params.pmu = loops, not stats, pmu
    with nogil:
        error = bench_simple_run(c_name, &params, &record)
    if error:
        raise TestError(-error, record.error.decode("utf-8", "replace"))
    lines = []
    time_bench_format(&record, text, sizeof(text))
    lines.append(text.decode())
    time_bench_format_pmu(&record, text, sizeof(text))
    lines.append(text.decode())
    time_bench_format_warning(&record, text, sizeof(text))
    lines.append(text.decode())
    return Timing(
        record.name.decode(),
        record.step,
        record.loops,
        record.invoke_count,
        record.time_interval_ns,
        record.tsc_interval,
        record.instructions if record.has_pmu else None,
        record.pmu_cycles if record.has_pmu else None,
        *lines,
    )


def counter_name():
    """``rdtsc``, ``cntvct`` or ``none``."""
    return time_bench_counter_name().decode()


def counter_khz(int milliseconds=20):
    """Speed of the counter in kHz, measured; 0 where there is none. Raises ``OSError``."""
    cdef uint64_t ns, result = 0
    cdef int error

    if milliseconds < 1:
        raise ValueError("milliseconds must be 1 or more")
    ns = <uint64_t>milliseconds * 1000000
    with nogil:
        error = time_bench_counter_khz(NULL, ns, &result)
    if error:
        raise OSError(-error, os.strerror(-error))
    return result


def pmu_error():
    """0 where instructions can be counted, otherwise the positive errno of perf_event_open."""
    return -time_bench_pmu_probe()


def compiler():
    """The C compiler that built the loops, name and version."""
    return PP_BENCH_COMPILER.decode()


def core_version():
    """The version of the C library that is measured."""
    return page_pool_version().decode()
