# SPDX-License-Identifier: BSD-2-Clause
# cython: language_level=3
"""The timed loops, in C. Nothing but this module touches C on behalf of the benchmarks."""

from libc.errno cimport EINVAL, ENOMEM
from libc.stdlib cimport calloc, free
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
    const char *PP_CORE_BUILD

cdef extern from "pagepool.h":
    const char *page_pool_version() nogil
    const char *page_pool_last_error() nogil
    const char *pp_design_name(unsigned design) nogil
    int pp_design_parse(const char *name, unsigned *ret) nogil
    int PP_MAX_POOL_SIZE

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

    struct time_bench_lap:
        uint64_t ns
        uint64_t ticks

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
        unsigned design
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

cdef extern from "bench/queue.h" nogil:
    int BENCH_QUEUE_SIZE
    int BENCH_QUEUE_BATCH

cdef extern from "bench/bench_cross_cpu.h" nogil:
    const char *BENCH_CROSS_CPU_NAME
    const char *BENCH_CROSS_CPU_HANDOVER_NAME
    const char *BENCH_CROSS_CPU_PREFIX
    uint32_t BENCH_CROSS_CPU_DEFAULT_LOOPS
    int BENCH_CROSS_CPU_POOL_SIZE
    int BENCH_CROSS_CPU_MAX_RETURNING

    struct bench_cross_cpu_params:
        uint64_t loops
        unsigned returning
        const int *cpus
        bint handover
        unsigned design
        bint no_stats
        bint checked
        bint pmu

    struct bench_cross_cpu_cpu:
        time_bench_record rec
        int cpu
        uint64_t waits
        uint64_t median_ns
        uint64_t stretch
        uint64_t busy_ns

    struct bench_cross_cpu_result:
        bench_cross_cpu_cpu *cpus
        unsigned pool_size
        unsigned pages
        uint64_t ring_full
        uint64_t slow
        char *error

    int bench_cross_cpu_run(const bench_cross_cpu_params *params, bench_cross_cpu_result *result)

cdef extern from "bench/bench_storm.h" nogil:
    const char *BENCH_STORM_NAME
    const char *BENCH_STORM_BULK_NAME
    const char *BENCH_STORM_PREFIX
    uint32_t BENCH_STORM_DEFAULT_LOOPS
    int BENCH_STORM_POOL_SIZE
    int BENCH_STORM_PAGES_STEP
    int BENCH_STORM_BLOCK
    int BENCH_STORM_MAX_PRODUCERS

    struct bench_storm_params:
        uint64_t loops
        unsigned producers
        const int *cpus
        unsigned pages
        bint round_robin
        unsigned bulk
        unsigned design
        bint no_stats
        bint checked

    struct bench_storm_cpu:
        time_bench_record rec
        int cpu
        time_bench_lap median
        time_bench_lap low
        time_bench_lap high

    struct bench_storm_result:
        bench_storm_cpu *cpus
        uint64_t rounds
        unsigned pages
        char *error

    unsigned bench_storm_pages(unsigned producers)
    int bench_storm_run(const bench_storm_params *params, bench_storm_result *result)


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
MAX_POOL_SIZE = PP_MAX_POOL_SIZE
QUEUE_SIZE = BENCH_QUEUE_SIZE
QUEUE_BATCH = BENCH_QUEUE_BATCH
CROSS_CPU_NAME = BENCH_CROSS_CPU_NAME.decode()
CROSS_CPU_HANDOVER_NAME = BENCH_CROSS_CPU_HANDOVER_NAME.decode()
CROSS_CPU_PREFIX = BENCH_CROSS_CPU_PREFIX.decode()
CROSS_CPU_DEFAULT_LOOPS = BENCH_CROSS_CPU_DEFAULT_LOOPS
CROSS_CPU_POOL_SIZE = BENCH_CROSS_CPU_POOL_SIZE
CROSS_CPU_MAX_RETURNING = BENCH_CROSS_CPU_MAX_RETURNING
STORM_NAME = BENCH_STORM_NAME.decode()
STORM_BULK_NAME = BENCH_STORM_BULK_NAME.decode()
STORM_PREFIX = BENCH_STORM_PREFIX.decode()
STORM_DEFAULT_LOOPS = BENCH_STORM_DEFAULT_LOOPS
STORM_POOL_SIZE = BENCH_STORM_POOL_SIZE
STORM_PAGES_STEP = BENCH_STORM_PAGES_STEP
STORM_BLOCK = BENCH_STORM_BLOCK
STORM_MAX_PRODUCERS = BENCH_STORM_MAX_PRODUCERS


cdef unsigned _design(str name) except? 0xFFFFFFFF:
    cdef bytes encoded = name.encode("utf-8", "replace")
    cdef unsigned result = 0
    if pp_design_parse(encoded, &result):
        raise ValueError(page_pool_last_error().decode("utf-8", "replace"))
    return result


def check_design(str name):
    """Raises ``ValueError``, which names them, when there is no design of this name."""
    _design(name)


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


cdef object _timing(const time_bench_record *record):
    cdef char text[TIME_BENCH_LINE_MAX]
    lines = []
    time_bench_format(record, text, sizeof(text))
    lines.append(text.decode())
    time_bench_format_pmu(record, text, sizeof(text))
    lines.append(text.decode())
    time_bench_format_warning(record, text, sizeof(text))
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


def run(
    str name,
    loops,
    bint stats=True,
    bint pmu=True,
    *,
    str design="ring",
    str dma="off",
    bint tracking=True,
    bint checked=False,
):
    """Run one test on the calling thread, without the GIL. Raises `TestError`, ``ValueError``.

    ``loops`` is the number asked for, 1000 to 2**32 - 1; baselines do ten times as many.
    ``design`` is the name of one; ``dma`` is one of `DMA`. Cannot be interrupted.
    """
    cdef bench_simple_params params
    cdef time_bench_record record
    cdef bytes encoded = name.encode()
    cdef const char *c_name = encoded
    cdef int error

    # 0 is C's word for the default; here every number is meant.
    if not MIN_LOOPS <= loops <= MAX_LOOPS:
        raise TestError(EINVAL, f"{name}: {loops} loops; {MIN_LOOPS} to {MAX_LOOPS} can be timed")
    params = _pools(dma, tracking, checked)
    params.loops, params.no_stats, params.pmu = loops, not stats, pmu
    params.design = _design(design)
    with nogil:
        error = bench_simple_run(c_name, &params, &record)
    if error:
        raise TestError(-error, record.error.decode("utf-8", "replace"))
    return _timing(&record)


cdef int *_cpus(cpus, unsigned n) except? NULL:
    """The numbers for C, to be freed; NULL for ``None``: nobody is pinned."""
    cdef int *result
    cdef unsigned i
    if cpus is None:
        return NULL
    if len(cpus) != n:
        raise ValueError(f"{len(cpus)} CPUs for {n} threads")
    result = <int *>calloc(n + 1, sizeof(int))
    if result is NULL:
        raise MemoryError
    for i in range(n):
        result[i] = cpus[i]
    return result


def cross_cpu(
    loops,
    unsigned returning,
    cpus=None,
    *,
    str design="ring",
    bint handover=False,
    bint stats=True,
    bint checked=False,
    bint pmu=True,
):
    """Return pages from ``returning`` other threads; the calling one is the consumer.

    ``cpus`` are those of the returning threads, then the consumer's; ``None`` pins nobody.
    ``handover``: the same loop without the pool. Raises `TestError`, ``ValueError``.
    """
    cdef bench_cross_cpu_params params
    cdef bench_cross_cpu_result result
    cdef int *c_cpus = NULL
    cdef unsigned i
    cdef int error

    if not MIN_LOOPS <= loops <= MAX_LOOPS or not 1 <= returning <= CROSS_CPU_MAX_RETURNING:
        raise TestError(EINVAL, f"{loops} loops on {returning} returning CPUs cannot be timed")
    params = bench_cross_cpu_params(
        loops=loops,
        returning=returning,
        cpus=NULL,
        handover=handover,
        design=_design(design),
        no_stats=not stats,
        checked=checked,
        pmu=pmu,
    )
    result.cpus = <bench_cross_cpu_cpu *>calloc(returning + 1, sizeof(bench_cross_cpu_cpu))
    try:
        c_cpus = _cpus(cpus, returning + 1)
        params.cpus = c_cpus
        if result.cpus is NULL:
            raise TestError(ENOMEM, f"no memory for {returning} returning CPUs")
        with nogil:
            error = bench_cross_cpu_run(&params, &result)
        if error:
            raise TestError(-error, result.error.decode("utf-8", "replace"))
        timings = [
            CpuTiming(
                result.cpus[i].cpu,
                _timing(&result.cpus[i].rec),
                {"queue full": result.cpus[i].waits}
                if i == returning
                else {
                    "queue empty": result.cpus[i].waits,
                    "pages": result.cpus[i].stretch,
                    "median ns": result.cpus[i].median_ns,
                },
                result.cpus[i].busy_ns,
            )
            for i in range(returning + 1)
        ]
        counts = {"pool size": result.pool_size, "pages": result.pages}
        if stats:
            counts |= {"ring full": result.ring_full, "slow": result.slow}
        return Timings(timings, {} if handover else counts)
    finally:
        free(c_cpus)
        free(result.cpus)


def storm_pages(unsigned producers):
    """How many pages a producer returns in a round, if it is not said."""
    if not 1 <= producers <= STORM_MAX_PRODUCERS:
        raise ValueError(f"{producers} producers: can be 1 to {STORM_MAX_PRODUCERS}")
    return bench_storm_pages(producers)


def storm(
    loops,
    unsigned producers,
    cpus=None,
    *,
    str design="ring",
    unsigned pages=0,
    bint round_robin=False,
    unsigned bulk=0,
    bint stats=True,
    bint checked=False,
):
    """Return pages from ``producers`` threads at once; the calling one allocates in between.

    ``cpus`` are the producers'; ``None`` pins nobody. ``pages``: of each in a round, 0 for
    `storm_pages`. Raises `TestError`, ``ValueError``.
    """
    cdef bench_storm_params params
    cdef bench_storm_result result
    cdef int *c_cpus = NULL
    cdef unsigned i
    cdef int error

    if not MIN_LOOPS <= loops <= MAX_LOOPS or not 1 <= producers <= STORM_MAX_PRODUCERS:
        raise TestError(EINVAL, f"{loops} loops of {producers} producers cannot be timed")
    params = bench_storm_params(
        loops=loops,
        producers=producers,
        cpus=NULL,
        pages=pages,
        round_robin=round_robin,
        bulk=bulk,
        design=_design(design),
        no_stats=not stats,
        checked=checked,
    )
    result.cpus = <bench_storm_cpu *>calloc(producers, sizeof(bench_storm_cpu))
    try:
        c_cpus = _cpus(cpus, producers)
        params.cpus = c_cpus
        if result.cpus is NULL:
            raise TestError(ENOMEM, f"no memory for {producers} producers")
        with nogil:
            error = bench_storm_run(&params, &result)
        if error:
            raise TestError(-error, result.error.decode("utf-8", "replace"))
        timings = [
            CpuTiming(
                result.cpus[i].cpu,
                _timing(&result.cpus[i].rec),
                {
                    "rounds": result.rounds,
                    "pages": result.pages,
                    "median ns": result.cpus[i].median.ns,
                    "median tsc": result.cpus[i].median.ticks,
                    "low ns": result.cpus[i].low.ns,
                    "high ns": result.cpus[i].high.ns,
                },
                None,
            )
            for i in range(producers)
        ]
        return Timings(timings, {})
    finally:
        free(c_cpus)
        free(result.cpus)


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


def core_build():
    """How the C library was built: meson's buildtype, and what else was asked for."""
    return PP_CORE_BUILD.decode()


def core_version():
    """The version of the C library that is measured."""
    return page_pool_version().decode()
