# SPDX-License-Identifier: BSD-2-Clause
# cython: language_level=3
"""The workloads, in C: their table, and how to run one."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from typing import NamedTuple

cdef extern from "pagepool.h" nogil:
    struct page_pool_stats:
        pass

    int pp_design_parse(const char *name, unsigned *ret)

cdef extern from *:
    """
    #include "pagepool.h"
    /* The statistics in the order of the list, and their names. */
    static const char *const stat_names[] = {
    #define STAT_NAME(group, name) #group "_" #name,
        PAGE_POOL_STATS(STAT_NAME)
    };
    enum { NR_STATS = sizeof(stat_names) / sizeof(stat_names[0]) };

    static void stat_values(const struct page_pool_stats *s, uint64_t *ret)
    {
    #define STAT_VALUE(group, name) *ret++ = s->group##_##name;
        PAGE_POOL_STATS(STAT_VALUE)
    }

    #include "bench/workload.h"
    static const char *const count_names[] = {
    #define COUNT_NAME(name) #name,
        WORKLOAD_COUNTS(COUNT_NAME)
    };
    enum { NR_COUNTS = sizeof(count_names) / sizeof(count_names[0]) };

    static void count_values(const struct workload_result *r, uint64_t *ret)
    {
    #define COUNT_VALUE(name) *ret++ = r->name;
        WORKLOAD_COUNTS(COUNT_VALUE)
    }
    """
    const char **stat_names
    const char **count_names
    enum:
        NR_STATS
        NR_COUNTS

    void stat_values(const page_pool_stats *s, uint64_t *ret) nogil
    void count_values(const workload_result *r, uint64_t *ret) nogil

cdef extern from "bench/workload.h" nogil:
    enum:
        WORKLOAD_NR_KNOBS
        WORKLOAD_MAX_POOLS
        WORKLOAD_MAX_TAGS

    struct workload_knob_info:
        const char *name
        uint64_t least
        uint64_t most
        const char *what

    const workload_knob_info *workload_knobs

    struct workload_t "workload":
        const char *name
        const char *what
        uint32_t uses
        uint64_t *standard

    const workload_t *workloads
    size_t nr_workloads
    const workload_t *workload_find(const char *name)

    struct workload_params:
        unsigned design
        uint64_t seed
        int reader_cpu
        uint64_t *knobs

    struct workload_pool_result:
        page_pool_stats stats
        int32_t inflight

    struct tag_pages:
        const char *tag
        uint64_t pages

    struct workload_result:
        uint64_t time_interval_ns
        uint64_t tsc_interval
        bint checked
        size_t nr_pools
        workload_pool_result *pools
        size_t nr_tags
        tag_pages *tags
        char *error

    int workload_run(const workload_t *workload, const workload_params *params,
                     workload_result *ret)
    int workload_check(const workload_t *workload, const workload_params *params,
                       workload_result *ret)


class Knob(NamedTuple):
    """What can be set in a workload, and from where to where; a switch goes from 0 to 1."""

    name: str
    least: int
    most: int
    what: str


class Workload(NamedTuple):
    """A workload; ``knobs``: those that mean something to it, with what they are if not set."""

    name: str
    what: str
    knobs: dict[str, int]


class Outcome(NamedTuple):
    """What a workload did: counts, statistics of each pool, and the time of all of it."""

    counts: dict[str, int]
    stats: list[dict[str, int]]
    inflight: list[int]
    leaks: list[tuple[str, int]]
    checked: bool
    time_interval_ns: int
    tsc_interval: int


STATISTICS = tuple(stat_names[i].decode() for i in range(NR_STATS))


class WorkloadError(Exception):
    """A workload gave no result; ``errno`` is the positive error number."""

    def __init__(self, errno, text):
        super().__init__(text)
        self.errno = errno


KNOBS = {
    workload_knobs[i].name.decode(): Knob(
        workload_knobs[i].name.decode(),
        workload_knobs[i].least,
        workload_knobs[i].most,
        workload_knobs[i].what.decode(),
    )
    for i in range(WORKLOAD_NR_KNOBS)
}


cdef _workload(const workload_t *workload):
    knobs = {
        name: workload.standard[i] for i, name in enumerate(KNOBS) if workload.uses >> i & 1
    }
    return Workload(workload.name.decode(), workload.what.decode(), knobs)


WORKLOADS = {w.name: w for w in [_workload(&workloads[i]) for i in range(nr_workloads)]}


cdef const workload_t *_parameters(
    str name, knobs, str design, uint64_t seed, int reader_cpu, workload_params *params
) except NULL:
    cdef bytes c_name = name.encode("utf-8", "replace")
    cdef bytes c_design = design.encode("utf-8", "replace")
    cdef const workload_t *workload = workload_find(c_name)
    cdef size_t i

    if workload is NULL:
        raise ValueError(f"no workload is called {name!r}")
    memset(params, 0, sizeof(params[0]))
    if pp_design_parse(c_design, &params.design):
        raise ValueError(f"no design is called {design!r}")
    params.seed = seed
    params.reader_cpu = reader_cpu
    for i in range(WORKLOAD_NR_KNOBS):
        params.knobs[i] = workload.standard[i]
    names = list(KNOBS)
    for knob, value in knobs.items():
        if knob not in KNOBS:
            raise ValueError(f"no knob is called {knob!r}")
        params.knobs[names.index(knob)] = value
    return workload


def check(str name, knobs, *, str design="ring"):
    """Whether the workload can be run so. Raises `WorkloadError`, ``ValueError``."""
    cdef workload_params params
    cdef workload_result result
    cdef int error = workload_check(_parameters(name, knobs, design, 0, -1, &params), &params,
                                    &result)
    if error:
        raise WorkloadError(-error, result.error.decode("utf-8", "replace"))


def run(str name, knobs, *, str design="ring", uint64_t seed=1, int reader_cpu=-1):
    """Run a workload once, on the calling thread, without the GIL. Cannot be interrupted.

    ``knobs``: values by name, others as in `Workload`. ``reader_cpu``: where the reader's thread
    runs, -1 for anywhere. Raises `WorkloadError`, ``ValueError`` for names that are none.
    """
    cdef const workload_t *workload
    cdef workload_params params
    cdef workload_result result
    cdef uint64_t values[NR_STATS + NR_COUNTS]
    cdef int error
    cdef size_t i

    workload = _parameters(name, knobs, design, seed, reader_cpu, &params)
    with nogil:
        error = workload_run(workload, &params, &result)
    if error:
        raise WorkloadError(-error, result.error.decode("utf-8", "replace"))
    count_values(&result, values)
    counts = {count_names[i].decode(): values[i] for i in range(NR_COUNTS)}
    stats = []
    for i in range(result.nr_pools):
        stat_values(&result.pools[i].stats, values)
        stats.append({stat_names[k].decode(): values[k] for k in range(NR_STATS)})
    return Outcome(
        counts,
        stats,
        [result.pools[i].inflight for i in range(result.nr_pools)],
        [(result.tags[i].tag.decode(), result.tags[i].pages) for i in range(result.nr_tags)],
        result.checked,
        result.time_interval_ns,
        result.tsc_interval,
    )
