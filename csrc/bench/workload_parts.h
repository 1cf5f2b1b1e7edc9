/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What workloads are made of: chance, a queue of packets, and the reader, who has its turn between
 * the polls, on the poller's thread outside of its context or on a thread of its own.
 */
#ifndef PP_BENCH_WORKLOAD_PARTS_H
#define PP_BENCH_WORKLOAD_PARTS_H

#include <pthread.h>

#include "workload.h"

/* Packets with their pages, in order of arrival. */
struct work_queue {
	struct pp_page **pages;
	size_t nr, room;
	uint16_t *lengths; /* pages of each packet */
	size_t packets, packets_room;
};

/* 0 or -ENOMEM, and then the packet is not in it. */
int work_queue_add(struct work_queue *q, struct pp_page **pages, size_t n);
/* The first packets, and their pages, are no more in it. */
void work_queue_drop(struct work_queue *q, size_t packets, size_t pages);

struct work_reader {
	void (*turn)(struct work *w);
	pthread_t thread;
	bool threaded;
	bool quit;      /* set before asked */
	uint32_t asked; /* turns; the poller writes */
	/* The two are waited for by different threads. */
	uint32_t done __attribute__((aligned(64))); /* the thread writes */
};

/* One run of a workload. */
struct work {
	const struct workload *workload;
	const struct workload_params *params;
	const uint64_t *knobs;
	struct workload_result *r;
	uint64_t chance; /* state of the generator */
	struct pp_napi *napi;
	struct page_pool *pools[WORKLOAD_MAX_POOLS];
	struct pp_provider *provider; /* NULL: each pool has its own */
	bool bulk;                    /* pages are put in bulk: ring_full counts calls */
	/* Belong to whoever has its turn. */
	struct work_queue queue;    /* delivered, not read */
	struct work_queue deferred; /* read, to be freed by the poller */
	struct pp_page **nic;       /* rx ring, oldest at nic_next; NULL: none */
	size_t nic_next, nic_size;
	struct pp_page **tx; /* sent, not completed, oldest at tx_next; NULL: none */
	size_t tx_next, tx_size;
	int err; /* of a turn; the first one stays */
	uint64_t start_ns, start_tsc;
	struct work_reader reader;
};

int work_fail(struct work *w, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* 0 to n - 1, the same for the same seed on every machine. */
uint64_t work_chance(struct work *w, uint64_t n);
/* Pages of the next packet. */
size_t work_pages(struct work *w);

/* Memory for all pools to come: so many pages, and no more. */
int work_make_region(struct work *w);
/* A pool; bound: to the poller's napi. flags: PP_FLAG_*. */
int work_add_pool(struct work *w, bool bound, unsigned flags);

/*
 * Poller: the pages of a packet; how many. Fewer than n: no page was to be had (counted), and those
 * that there were went back.
 */
size_t work_alloc(struct work *w, struct page_pool *pool, size_t n, struct pp_page **pages);
/* And gives the packet to the reader; pages[] has room for n. A packet that cannot be had is
 * counted as dropped, and no error. */
int work_deliver(struct work *w, struct page_pool *pool, size_t n, struct pp_page **pages);
/* Without a promise: direct if the pool is bound and the caller is the poller. */
static inline void work_put(struct work *w, struct page_pool *pool, struct pp_page *page)
{
	page_pool_put_full_page(pool, page, false);
	w->r->put++;
}
/* All of a queue, page by page, or in bulks. */
void work_put_queue(struct work *w, struct work_queue *q);
void work_put_queue_bulk(struct work *w, struct work_queue *q, size_t bulk);

/* Readers that free what was delivered, page by page or in bulks. */
void work_read_all(struct work *w);
void work_read_all_bulk(struct work *w);

/* workload_*.c */
int work_tcp_prepare(struct work *w);
int work_tcp_poll(struct work *w);
void work_tcp_read(struct work *w);
int work_xdp_prepare(struct work *w);
int work_xdp_tx_prepare(struct work *w);
int work_xdp_redirect_prepare(struct work *w);
int work_xdp_drop_poll(struct work *w);
int work_xdp_tx_poll(struct work *w);
int work_xdp_redirect_poll(struct work *w);
int work_frames_prepare(struct work *w);
int work_frames_poll(struct work *w);
int work_frames_inspect(struct work *w);
int work_pressure_prepare(struct work *w);
int work_pressure_poll(struct work *w);
int work_mixed_prepare(struct work *w);
int work_mixed_poll(struct work *w);

#endif
