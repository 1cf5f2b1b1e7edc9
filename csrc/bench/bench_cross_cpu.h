/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_page_pool_cross_cpu: what a page costs that is returned by another CPU than the consumer's.
 *
 * The consumer allocates, and hands each page to the next of the returning CPUs in turn, through a
 * queue (queue.h) to each; a returning CPU takes pages from its queue and puts them. The price is
 * a returning CPU's time per page, waiting included: so it is that of whoever is slowest, the
 * consumer or the returning CPU, and the queue is part of it. What the queue alone costs the same
 * loop without a pool tells.
 *
 * When one side loses its CPU for a moment, the other waits, too; so beside the sum of the whole
 * loop there is the median of its stretches of BENCH_CROSS_CPU_STRETCH pages.
 *
 * Written against the public pagepool.h. After the loops the pool's statistics are held against
 * what was done.
 */
#ifndef PP_BENCH_BENCH_CROSS_CPU_H
#define PP_BENCH_BENCH_CROSS_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gang.h"
#include "time_bench.h"

#define BENCH_CROSS_CPU_NAME "page_pool_cross_cpu"
#define BENCH_CROSS_CPU_HANDOVER_NAME "page_pool_cross_cpu_handover"
#define BENCH_CROSS_CPU_PREFIX "bench_page_pool_cross_cpu: "
#define BENCH_CROSS_CPU_DEFAULT_LOOPS 10000000u
/* The kernel module's; the pool makes PP_MAX_POOL_SIZE of it, as the kernel does since 6.17. */
#define BENCH_CROSS_CPU_POOL_SIZE 32000
#define BENCH_CROSS_CPU_STRETCH 4096u
#define BENCH_CROSS_CPU_MAX_RETURNING (BENCH_MAX_THREADS - 1)

struct bench_cross_cpu_params {
	uint64_t loops;     /* pages of each returning CPU; time_bench's limits; 0: the default */
	unsigned returning; /* CPUs: 1 to BENCH_CROSS_CPU_MAX_RETURNING */
	/* Of the returning threads, then the consumer's, which is the calling thread. NULL: nobody
	 * is pinned, and threads that wait make room for others. */
	const int *cpus;
	bool handover; /* the same loop without the pool */
	unsigned design;
	bool no_stats; /* then nothing is verified */
	bool checked;
	bool pmu;
	const struct time_bench_clock *clock; /* NULL: the machine's. Asked by all threads */
};

/* What one CPU did. */
struct bench_cross_cpu_cpu {
	struct time_bench_record rec; /* step: returning CPUs */
	int cpu;                      /* its number; of a thread that is not pinned, the thread's */
	/* How often it had to wait: a returning CPU for an empty queue, the consumer for a full. */
	uint64_t waits;
	/* A returning CPU's: the lower median of its whole stretches, and pages in one; a loop
	 * shorter than a stretch is one. */
	uint64_t median_ns, stretch;
	uint64_t busy_ns; /* of rec.time_interval_ns, how much the thread was running */
};

struct bench_cross_cpu_result {
	/* params->returning + 1 of them, which the caller provides: the consumer is the last. */
	struct bench_cross_cpu_cpu *cpus;
	unsigned pool_size; /* after clamping; 0 without a pool */
	unsigned pages;     /* that circulate from the start */
	uint64_t ring_full; /* pages that fell out of the pool; 0 without statistics */
	uint64_t slow;      /* times that the provider was asked for more; 0 without statistics */
	char error[256];
};

/*
 * 0, or a negative errno with result->error set: those of time_bench_run(), of the pool's calls and
 * of threads, and
 *   -EINVAL  no returning CPU, or too many
 *   -EPROTO  the statistics say that something else was measured
 */
int bench_cross_cpu_run(const struct bench_cross_cpu_params *params,
			struct bench_cross_cpu_result *result);

#endif
