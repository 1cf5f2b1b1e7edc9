/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The design "ours": each thread that returns pages to a pool has a lane of its own to its
 * consumer.
 *
 * Putting a page writes two lines that nobody else writes: that of the entries, which the consumer
 * reads later, and that of the lane's tail, which nobody reads in the common case. No lock, no
 * locked operation. What was put is published once for PP_LANE_BATCH pages, so a consumer that
 * waits does not take the line away at each of them. It finds what is held back all the same:
 * before it asks the provider, it looks at the tails. So pages of a thread that went idle do not
 * get lost, and nobody needs a timer.
 *
 * A second put. Whoever puts a page only reads its held word, since 32 pages share that line, and
 * those may come back through as many lanes. The consumer compares it with the entry's copy when it
 * takes the page out: it is the same until the page was taken back by any road, and another one
 * after it was handed out again. So of two entries of one allocation one is taken, and the other
 * refused.
 *
 * The end. Destroy sets dying and has every thread pass a barrier; a producer looks at dying after
 * its store to tail. So either it sees dying, and takes out again what is still in its lane; or
 * destroy sees the entry. What is in the lane is under its lock from then on.
 */
#ifndef PP_CORE_LANES_H
#define PP_CORE_LANES_H

#include "page.h"

#define PP_LANE_BATCH 32
#define PP_LANE_LINE (PP_CACHELINE / sizeof(uint64_t)) /* entries */

/* A thread's lanes. */
struct pp_my_lanes {
	struct pp_lane *recent[8]; /* by the pool's id */
	struct pp_lane *all;
	bool over; /* the thread is exiting, or this machine cannot */
};

/* initial-exec: one load relative to the thread pointer, also in a shared library. */
extern _Thread_local struct pp_my_lanes pp_my_lanes __attribute__((tls_model("initial-exec")));

/* The calling thread's lane to a pool, made if need be; NULL: none to be had. */
PP_COLD struct pp_lane *pp_lane_find(struct page_pool *pool);
/* The lane was found full: what does not fit still leaves the pool. */
PP_COLD void pp_lane_overflow(struct page_pool *pool, struct pp_lane *lane, struct pp_page **pages,
			      size_t n);
/* A page that pp_lane_put_one() has no place for as it is. */
PP_COLD void pp_lane_put_otherwise(struct page_pool *pool, struct pp_page *page);
/* The pool was destroyed meanwhile, and may be gone: what is left in the lane leaves it. */
PP_COLD void pp_lane_retract(struct page_pool *pool, struct pp_lane *lane);
/* Consumer: up to n pages into pages[]; how many. *wrong: one of another node, which ends it; it
 * comes on top. */
size_t pp_lanes_consume(struct page_pool *pool, size_t n, struct pp_page **pages,
			struct pp_page **wrong);

/* Destroy: nothing enters a lane any more, and what is in them leaves the pool. */
void pp_lanes_close(struct page_pool *pool);
/* The pool is freed. */
void pp_lanes_fini(struct page_pool *pool);

/* Over all lanes; a snapshot. */
struct pp_lanes_sum {
	uint64_t ring, ring_full, released, released_dying, syncs, sync_bytes, inside, held_back;
};

struct pp_lanes_sum pp_lanes_sum(const struct page_pool *pool);

/* The calling thread's lane to a pool, if it is one of those that it used last. */
static inline struct pp_lane *pp_lane_recent(const struct page_pool *pool)
{
	struct pp_lane *lane = pp_my_lanes.recent[pool->id % 8];

	return likely(lane && lane->pool == pool->id) ? lane : NULL;
}

static inline struct pp_lane *pp_lane_mine(struct page_pool *pool)
{
	struct pp_lane *lane = pp_lane_recent(pool);

	return likely(lane) ? lane : pp_lane_find(pool);
}

static inline uint64_t pp_lane_entry(const struct page_pool *pool, const struct pp_page *page,
				     uint16_t held)
{
	return (uint64_t)(uint16_t)page->nid << 48 | (uint64_t)held << 32 |
	       (uint32_t)(page - pool->all);
}

/* Thread: what is in the lane up to tail can be had; what makes a batch is said to be. */
static inline void pp_lane_advance(struct pp_lane *lane, uint64_t before, uint64_t tail)
{
	/* release, both: who takes the pages out sees the entries, and all that was written to the
	 * pages. */
	pp_store_release(&lane->tail, tail);
	if (unlikely((before ^ tail) & ~(uint64_t)(PP_LANE_BATCH - 1)))
		pp_store_release(&lane->published, tail & ~(uint64_t)(PP_LANE_BATCH - 1));
}

/* Thread, after it has put something in: whether the pool was destroyed meanwhile. It may be gone.
 */
static inline void pp_lane_look_back(struct page_pool *pool, struct pp_lane *lane)
{
	/* Not before the store to tail; of the processor destroy's barrier sees to that. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	/* relaxed: what it decides is settled under the lane's lock, and pp_lane_retract() looks
	 * again. */
	if (unlikely(pp_load_relaxed(&lane->dying)))
		pp_lane_retract(pool, lane);
}

/* Anyone who has a lane: n pages that nobody else has any part in. The pool may be gone afterwards.
 */
static inline void pp_lane_put(struct page_pool *pool, struct pp_lane *lane, struct pp_page **pages,
			       size_t n)
{
	uint64_t before = lane->tail, tail = before, size = lane->size, mask = lane->mask;
	size_t i;

	for (i = 0; i < n; i++) {
		struct pp_page *page = pages[i];
		/* relaxed: written by the consumer before it handed the page out. */
		uint16_t held = pp_load_relaxed(pp_held(pool, page));

		if (unlikely(!held)) {
			pp_pool_refuse(pool, page);
			continue;
		}
		if (unlikely(tail - lane->head_seen >= size)) {
			/* acquire: the consumer has read the entry before it is overwritten. */
			lane->head_seen = pp_load_acquire(&lane->head);
			if (tail - lane->head_seen >= size)
				break;
		}
		/* relaxed: published by tail. */
		pp_store_relaxed(&lane->entries[tail & mask], pp_lane_entry(pool, page, held));
		tail++;
	}
	pp_lane_advance(lane, before, tail);
	if (unlikely(i < n))
		pp_lane_overflow(pool, lane, pages + i, n - i);
	pp_lane_look_back(pool, lane);
}

/*
 * The same with one page, and in the common case only: it is what most puts are, so each of its
 * ends is a tail call, and no register is saved.
 */
static inline void pp_lane_put_one(struct page_pool *pool, struct pp_page *page)
{
	struct pp_lane *lane = pp_lane_recent(pool);
	uint16_t held;
	uint64_t tail;

	if (unlikely(!lane)) {
		pp_lane_put_otherwise(pool, page);
		return;
	}
	tail = lane->tail;
	/* relaxed, both: as in pp_lane_put(). */
	held = pp_load_relaxed(pp_held(pool, page));
	if (unlikely(!held || tail - lane->head_seen >= lane->size)) {
		pp_lane_put_otherwise(pool, page);
		return;
	}
	pp_store_relaxed(&lane->entries[tail & lane->mask], pp_lane_entry(pool, page, held));
	pp_lane_advance(lane, tail, tail + 1);
	pp_lane_look_back(pool, lane);
}

#endif
