/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_page_pool_simple: what one allocation and one return cost when both happen on one CPU.
 *
 * Written against the public pagepool.h. Each test makes its own pool, and after the loop holds
 * the pool's statistics against what the test's name promises: a figure of another path than the
 * named one is an error, not a figure.
 */
#ifndef PP_BENCH_BENCH_SIMPLE_H
#define PP_BENCH_BENCH_SIMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "time_bench.h"

#define BENCH_SIMPLE_PREFIX "bench_page_pool_simple: "
#define BENCH_SIMPLE_DEFAULT_LOOPS 10000000u

/* The pool of every test: slots of its ring, and the pages that circulate. */
#define BENCH_SIMPLE_POOL_SIZE 1024
#define BENCH_SIMPLE_PREFILL 64

enum bench_simple_context {
	BENCH_NO_POOL,    /* a baseline: does not touch a pool */
	BENCH_NO_SOFTIRQ, /* no napi; the loop is the pool's only user */
	BENCH_TASKLET,    /* the loop runs inside a napi */
};

struct bench_simple_test {
	const char *name;
	const char *what; /* one line */
	uint32_t times;   /* loops are multiplied by this */
	enum bench_simple_context context;
	/* What the kernel says before this test, after BENCH_SIMPLE_PREFIX; NULL: nothing. */
	const char *notice;
};

/* In the order in which they run. */
extern const struct bench_simple_test bench_simple_tests[];
extern const size_t bench_simple_nr_tests;

/* The kernel's lines around the tests, after BENCH_SIMPLE_PREFIX. */
#define BENCH_SIMPLE_LOADED "Loaded"
/* Once, before the first BENCH_TASKLET test of a run. */
#define BENCH_SIMPLE_HANDLER "pp_tasklet_handler(): in_serving_softirq fast-path"

enum bench_simple_dma {
	BENCH_DMA_OFF = 0, /* pages are not mapped */
	BENCH_DMA_NONE,    /* mapped for the device without an IOMMU */
	BENCH_DMA_IOMMU,   /* for one behind a software IOMMU */
};

struct bench_simple_params {
	uint64_t loops;  /* TIME_BENCH_MIN_LOOPS to TIME_BENCH_MAX_LOOPS; 0: the default */
	unsigned design; /* of the pools under test */
	bool no_stats;   /* pools without statistics: nothing is verified either */
	enum bench_simple_dma dma; /* of the pools under test; without a sync for the device */
	bool no_tracking;          /* these do not know which pages they have mapped */
	bool checked;              /* and are checked pools; the environment can add that */
	bool pmu;                  /* count instructions where that can be had */
	const struct time_bench_clock *clock; /* NULL: the machine's */
};

/* "off", "none" and "iommu" by enum bench_simple_dma, and how the "# dma" line says it. */
extern const char *const bench_simple_dma_names[3];
const char *bench_simple_dma_text(const struct bench_simple_params *params);
/*
 * And the "# checked mode" line: of a pool that is made for it, since the environment has a say.
 * NULL: there is no pool to be had, see page_pool_last_error().
 */
const char *bench_simple_checked_text(const struct bench_simple_params *params);

/*
 * Runs one test. Errors are those of time_bench_run(), of the pool's calls, and
 *   -ENOENT  no test of this name
 *   -EPROTO  the statistics say that another path was measured
 * with rec->error set.
 */
int bench_simple_run(const char *name, const struct bench_simple_params *params,
		     struct time_bench_record *rec);

#endif
