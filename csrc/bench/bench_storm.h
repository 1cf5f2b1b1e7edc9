/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A return storm: several CPUs return pages that were handed out before, all at once. Nothing is
 * allocated in the timed part, so it is the price of contention among the returning CPUs alone, and
 * can be had with as many of them as there are CPUs.
 *
 * In a round each producer returns the same pages in the same order as in the round before,
 * whatever the design does to the order in which they come back: so designs are asked the same.
 * Written against the public pagepool.h; statistics are held against what was done.
 */
#ifndef PP_BENCH_BENCH_STORM_H
#define PP_BENCH_BENCH_STORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gang.h"
#include "time_bench.h"

#define BENCH_STORM_NAME "page_pool_storm"
#define BENCH_STORM_BULK_NAME "page_pool_storm_bulk"
#define BENCH_STORM_PREFIX "bench_page_pool_storm: "
#define BENCH_STORM_DEFAULT_LOOPS 10000000u
/* All pages of a round fit into it. */
#define BENCH_STORM_POOL_SIZE PP_MAX_POOL_SIZE
/* Pages of a producer in a round are a multiple of this: then refills leave none in the cache. */
#define BENCH_STORM_PAGES_STEP 64u
#define BENCH_STORM_MAX_PAGES 4096u /* if there are few producers; not given: as many as fit */
#define BENCH_STORM_BLOCK 32u
#define BENCH_STORM_MAX_PRODUCERS (BENCH_STORM_POOL_SIZE / BENCH_STORM_PAGES_STEP)
_Static_assert(BENCH_STORM_MAX_PRODUCERS <= BENCH_MAX_THREADS, "a thread a producer");

struct bench_storm_params {
	uint64_t loops;     /* pages of each producer, rounded up to whole rounds; time_bench's
			       limits; 0: the default */
	unsigned producers; /* 1 to BENCH_STORM_MAX_PRODUCERS */
	/* Theirs; the calling thread, which allocates between the rounds, sleeps during one. NULL:
	 * nobody is pinned, and threads that wait make room for others. */
	const int *cpus;
	unsigned pages;   /* of each producer in a round; 0: bench_storm_pages() */
	bool round_robin; /* neighbours in memory go to different producers, not by BLOCK */
	unsigned bulk;    /* 2 to 64: puts of so many at once; 0: one by one */
	unsigned design;
	bool no_stats; /* then only the pages are verified */
	bool checked;
	const struct time_bench_clock *clock; /* NULL: the machine's. Asked by all threads */
};

/* What one producer did. */
struct bench_storm_cpu {
	struct time_bench_record rec; /* the sum of all rounds; step: producers */
	int cpu;                      /* its number; if it is not pinned, the producer's */
	/* Of its rounds by time: the lower median (which was measured), the first and last tenth */
	struct time_bench_lap median, low, high;
};

struct bench_storm_result {
	struct bench_storm_cpu *cpus; /* params->producers of them, which the caller provides */
	uint64_t rounds;
	unsigned pages; /* of each producer in a round */
	char error[256];
};

/* How many pages a producer returns in a round, if it is not said. */
unsigned bench_storm_pages(unsigned producers);

/*
 * 0, or a negative errno with result->error set: those of time_bench_run(), of the pool's calls and
 * of threads, and
 *   -EINVAL  parameters that cannot be
 *   -EPROTO  other pages came back than were returned, or by another road
 */
int bench_storm_run(const struct bench_storm_params *params, struct bench_storm_result *result);

#endif
