/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Workloads: what packets do to a pool, poll after poll, and what its statistics say about that.
 *
 * Each makes its pools through the public pagepool.h, runs a schedule that depends on its settings
 * alone (no clock, no chance but a seeded generator), and gives the statistics of the pools from
 * their creation to the end of the last poll. So these are the same in every run; only the time
 * is not. Afterwards all pages are returned, and a workload whose statistics do not add up, or
 * whose pages do not come back, is an error and no result.
 */
#ifndef PP_BENCH_WORKLOAD_H
#define PP_BENCH_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pagepool.h"

#define WORKLOAD_MAX_POOLS 8
#define WORKLOAD_MAX_PAGES 64 /* of a packet */

/* What can be set: X(id, name, least, most, what it is). A switch goes from 0 to 1. */
#define WORKLOAD_KNOBS(X)                                                                       \
	X(POLLS, "polls", 1, 10000000, "how often the poller is called")                        \
	X(PACKETS, "packets", 1, 64, "packets of a poll")                                       \
	X(PAGES_FROM, "pages-from", 1, WORKLOAD_MAX_PAGES, "pages of a packet, at least")       \
	X(PAGES_TO, "pages-to", 1, WORKLOAD_MAX_PAGES, "pages of a packet, at most")            \
	X(POOL_SIZE, "pool-size", 1, PP_MAX_POOL_SIZE, "slots of a pool's ring")                \
	X(NAPI_DIRECT, "napi-direct", 0, 1, "deferred frees are direct: the pool has the napi") \
	X(DEFER_MAX, "defer-max", 0, UINT32_MAX,                                                \
	  "packets whose free is deferred to the poller; the reader frees the others itself")   \
	X(READER_HICCUP, "reader-hiccup", 0, 4096,                                              \
	  "polls in a row in which the reader frees nothing; then it frees all")                \
	X(POLLER_HICCUP, "poller-hiccup", 0, 4096,                                              \
	  "polls in a row that come late, and then all at once")                                \
	X(HICCUP_EVERY, "hiccup-every", 1, 10000000, "polls from one hiccup to the next")       \
	X(THREADS, "threads", 1, 2, "2: the reader is a thread on another CPU")                 \
	X(RX_RING, "rx-ring", 1, 4096, "buffers that the NIC has")                              \
	X(READ_DATA, "read-data", 0, 1, "the first 64 bytes of each packet are read")           \
	X(TX_LAG, "tx-lag", 1, 64, "polls until a sent packet is completed")                    \
	X(BULK, "bulk", 1, 64, "pages that are returned at once")                               \
	X(DRIVER_BUG, "driver-bug", 0, 1, "the pages that are cut off are forgotten")           \
	X(MEMORY, "memory", 1, 65536, "pages that there are in all")                            \
	X(RESERVE, "reserve", 0, 65536, "how many of these are the emergency reserve")          \
	X(POOLS, "pools", 1, WORKLOAD_MAX_POOLS, "pools that one reader returns to")

enum workload_knob {
#define WORKLOAD_KNOB_ID(id, name, least, most, what) WORKLOAD_##id,
	WORKLOAD_KNOBS(WORKLOAD_KNOB_ID)
#undef WORKLOAD_KNOB_ID
	WORKLOAD_NR_KNOBS,
};

struct workload_knob_info {
	const char *name;
	uint64_t least;
	uint64_t most;
	const char *what;
};
extern const struct workload_knob_info workload_knobs[WORKLOAD_NR_KNOBS];

struct work;

struct workload {
	const char *name;
	const char *what; /* one line */
	uint32_t uses;    /* 1 << enum workload_knob: those that mean something to it */
	uint64_t standard[WORKLOAD_NR_KNOBS];
	/* All return 0 or a negative errno. Makes the pools. */
	int (*prepare)(struct work *w);
	/* One poll, in the poller's context. */
	int (*poll)(struct work *w);
	/* The reader's turn after a poll, outside of that; NULL: there is none. */
	void (*reader)(struct work *w);
	/* When all is over: looks for what is missing. NULL: nothing should be. */
	int (*inspect)(struct work *w);
};
extern const struct workload workloads[];
extern const size_t nr_workloads;
/* NULL: no workload is called so. */
const struct workload *workload_find(const char *name);

struct workload_params {
	unsigned design; /* as in struct page_pool_params */
	uint64_t seed;   /* of all that is chance */
	int reader_cpu;  /* where the reader's thread runs; -1: wherever the system likes */
	uint64_t knobs[WORKLOAD_NR_KNOBS];
};

struct workload_pool_result {
	struct page_pool_stats stats;
	int32_t inflight;
};

#define WORKLOAD_MAX_TAGS (WORKLOAD_MAX_PAGES + 1)
struct workload_result {
	/* X-macro, so that the binding need not know the names */
#define WORKLOAD_COUNTS(X)                                                           \
	X(polls)     /* done */                                                      \
	X(packets)   /* that got all their pages */                                  \
	X(dropped)   /* that did not: no page was to be had, or the reserve's */     \
	X(allocated) /* pages */                                                     \
	X(put)       /* pages, by whomever */                                        \
	X(left)      /* of these: neither cache nor ring had room, they left */      \
	X(emergency) /* pages that were marked pfmemalloc */                         \
	X(failed)    /* allocations that gave no page */                             \
	X(deferred)  /* pages that the poller freed for the reader */                \
	X(most_out)  /* pages that users had at once, at most, seen between polls */ \
	X(frames_dropped)                                                            \
	X(frames_passed)                                                             \
	X(frames_cut)                                                                \
	X(pages_cut) /* off these */                                                 \
	X(leaked)    /* pages that were out when nobody had them any more */
#define WORKLOAD_COUNT_FIELD(name) uint64_t name;
	WORKLOAD_COUNTS(WORKLOAD_COUNT_FIELD)
#undef WORKLOAD_COUNT_FIELD

	uint64_t time_interval_ns; /* of all polls and of the reader's turns between them */
	uint64_t tsc_interval;     /* 0 if there is no counter */

	bool checked; /* the pools were: the time is not the pool's */
	size_t nr_pools;
	struct workload_pool_result pools[WORKLOAD_MAX_POOLS];

	/* Who allocated what leaked: tags of page_pool_set_tag(), and where */
	size_t nr_tags;
	struct {
		const char *tag;
		uint64_t pages;
	} tags[WORKLOAD_MAX_TAGS];

	char error[256];
};

/*
 * Runs one. Errors are those of the pool's calls, and
 *   -EINVAL  a knob is out of its range, or two contradict each other
 *   -ERANGE  no figure: no time passed
 *   -EPROTO  the statistics do not add up, or pages did not come back
 * with ret->error set.
 */
int workload_run(const struct workload *workload, const struct workload_params *params,
		 struct workload_result *ret);

/* Only whether the knobs can be so, and whether there is such a pool. */
int workload_check(const struct workload *workload, const struct workload_params *params,
		   struct workload_result *ret);

#endif
