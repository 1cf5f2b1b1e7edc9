/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The queue that hands pages from the consumer to one returning CPU: bounded, one thread on each
 * side. It is in the figure of every page, so it has to be cheap: each side looks at the other's
 * line, and shows its own, once in BENCH_QUEUE_BATCH pages.
 */
#ifndef PP_BENCH_QUEUE_H
#define PP_BENCH_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"

#define BENCH_QUEUE_SIZE 1024u
#define BENCH_QUEUE_BATCH 32u

/* Two lines: the CPU's prefetcher fetches them in pairs. */
#define BENCH_APART PP_ALIGNED(128)

/* head and tail count up and never wrap in a lifetime; a slot is their remainder. */
struct bench_queue {
	/* The pushing side's own. */
	BENCH_APART uint64_t tail;
	uint64_t head_seen; /* of head_shown */
	/* And what it shows. */
	BENCH_APART uint64_t tail_shown;

	/* The popping side's own. */
	BENCH_APART uint64_t head;
	uint64_t tail_seen;
	BENCH_APART uint64_t head_shown;

	BENCH_APART void *slots[BENCH_QUEUE_SIZE];
};

/* What was pushed so far can be popped. */
static inline void bench_queue_flush(struct bench_queue *q)
{
	/* release: the slots, and what the items point to, before the tail that covers them. */
	pp_store_release(&q->tail_shown, q->tail);
}

/*
 * False: it is full. Then all of it is shown, because the size is a multiple of the batch and the
 * other side shows its head by batches: so nobody waits for what the other one holds back.
 */
static inline bool bench_queue_push(struct bench_queue *q, void *item)
{
	if (unlikely(q->tail - q->head_seen == BENCH_QUEUE_SIZE)) {
		/* acquire: the slots were read before they are written again. */
		q->head_seen = pp_load_acquire(&q->head_shown);
		if (q->tail - q->head_seen == BENCH_QUEUE_SIZE)
			return false;
	}
	q->slots[q->tail++ % BENCH_QUEUE_SIZE] = item;
	if (q->tail % BENCH_QUEUE_BATCH == 0)
		bench_queue_flush(q);
	return true;
}

/* NULL: nothing is shown. */
static inline void *bench_queue_pop(struct bench_queue *q)
{
	void *item;

	if (unlikely(q->head == q->tail_seen)) {
		/* acquire: pairs with bench_queue_flush(). */
		q->tail_seen = pp_load_acquire(&q->tail_shown);
		if (q->head == q->tail_seen)
			return NULL;
	}
	item = q->slots[q->head++ % BENCH_QUEUE_SIZE];
	if (q->head % BENCH_QUEUE_BATCH == 0)
		/* release: the slots were read. */
		pp_store_release(&q->head_shown, q->head);
	return item;
}

#endif
