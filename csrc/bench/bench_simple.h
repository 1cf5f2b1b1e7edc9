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

struct bench_simple_params {
	uint64_t loops; /* TIME_BENCH_MIN_LOOPS to TIME_BENCH_MAX_LOOPS; 0: the default */
	bool no_stats;  /* pools without statistics: nothing is verified either */
	bool pmu;       /* count instructions where that can be had */
	const struct time_bench_clock *clock; /* NULL: the machine's */
};

/*
 * Runs one test. Errors are those of time_bench_run(), of the pool's calls, and
 *   -ENOENT  no test of this name
 *   -EPROTO  the statistics say that another path was measured
 * with rec->error set.
 */
int bench_simple_run(const char *name, const struct bench_simple_params *params,
		     struct time_bench_record *rec);

#endif
