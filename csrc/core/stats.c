/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading the statistics, while the pool runs on.
 *
 * The consumer's slower paths change several counters at once and bracket that with stats_seq; the
 * fast path changes one counter and is consistent by itself. The reader loads everything with
 * acquire and tries again when the number has moved. No fence is needed: every counter is stored
 * with release after the odd number, so a reader that saw a new counter sees a moved number too.
 */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "lanes.h"

/*
 * A consumer that was preempted in the middle of a change comes back when it is scheduled: yield to
 * it, then sleep, since a yield does not help against a reader of higher priority. In the end (60
 * ms at least) give up, as a consumer may also be stopped, or be interrupted by this very reader:
 * then a figure or two may be from before a refill and the others from after it.
 */
#define TRIES 1000
#define TRIES_BEFORE_SLEEP 400

struct raw {
	uint64_t popped, pushed;
	struct pp_consumer_stats s;
};

static void load(const struct page_pool *pool, struct raw *raw)
{
	const struct pp_consumer_stats *s = &pool->stats;

	for (int tries = 0; tries < TRIES; tries++) {
		uint32_t seq = pp_load_acquire(&pool->stats_seq);

		raw->s.filled = pp_load_acquire(&s->filled);
		raw->s.reused = pp_load_acquire(&s->reused);
		raw->s.drained = pp_load_acquire(&s->drained);
		raw->s.slow = pp_load_acquire(&s->slow);
		raw->s.slow_high_order = pp_load_acquire(&s->slow_high_order);
		raw->s.empty = pp_load_acquire(&s->empty);
		raw->s.refill = pp_load_acquire(&s->refill);
		raw->s.waive = pp_load_acquire(&s->waive);
		raw->s.cache_full = pp_load_acquire(&s->cache_full);
		raw->s.released_refcnt = pp_load_acquire(&s->released_refcnt);
		raw->popped = pp_load_acquire(&pool->cache.popped);
		raw->pushed = pp_load_acquire(&pool->cache.pushed);
		/* relaxed: not before the loads above, which are acquire. */
		if (!(seq & 1) && pp_load_relaxed(&pool->stats_seq) == seq)
			return;
		if (tries >= TRIES_BEFORE_SLEEP)
			nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
		else if (tries % 16 == 15)
			sched_yield();
	}
}

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* Pages that somebody else held when they were put, outside of the consumer's context. */
static uint64_t released_elsewhere(const struct page_pool *pool, const struct pp_lanes_sum *lanes)
{
	uint64_t pending, gone;

	if (pool->dma.device)
		/* relaxed: a counter. */
		return pp_load_relaxed(&pool->dma.released_refcnt);
	/* acquire: before what follows for a destroyed pool, so that nothing is counted twice. */
	pending = pp_load_acquire(&pool->pending);

	/* That is all that a living pool's pending loses; references are multiples, and fall out.
	 */
	if (pending >= PP_PENDING_LIVE / 2)
		return -pending % PP_PENDING_REF;
	/* relaxed: settled since destroy, but for released_dying. */
	gone = pp_load_relaxed(&pool->held) - pp_load_relaxed(&pool->released_here) -
	       pp_load_relaxed(&pool->ring.released) - lanes->released - pending % PP_PENDING_REF;
	return minus(gone, pp_load_relaxed(&pool->ring.released_dying) + lanes->released_dying);
}

int page_pool_get_stats(const struct page_pool *pool, struct page_pool_stats *ret)
{
	struct page_pool_stats stats = {0};
	struct pp_lanes_sum lanes;
	struct raw raw = {0};
	int err = pp_check_size("struct page_pool_stats", ret, ret->size,
				offsetof(struct page_pool_stats, alloc_fast), ret->size);

	if (err)
		return err;
	if (!pool->has_stats)
		return pp_fail(-EOPNOTSUPP, "pool %u was made without statistics", pool->id);
	load(pool, &raw);
	lanes = pp_lanes_sum(pool);
	stats.alloc_fast =
		minus(raw.popped + raw.s.reused, raw.s.refill + raw.s.slow + raw.s.drained);
	stats.alloc_slow = raw.s.slow;
	stats.alloc_slow_high_order = raw.s.slow_high_order;
	stats.alloc_empty = raw.s.empty;
	stats.alloc_refill = raw.s.refill;
	stats.alloc_waive = raw.s.waive;
	stats.recycle_cached = minus(raw.pushed + raw.s.reused, raw.s.filled);
	stats.recycle_cache_full = raw.s.cache_full;
	/* relaxed: independent counters, each by itself. */
	stats.recycle_ring = pp_load_relaxed(&pool->ring.ring) + lanes.ring;
	stats.recycle_ring_full = pp_load_relaxed(&pool->ring.ring_full) + lanes.ring_full;
	stats.recycle_released_refcnt = raw.s.released_refcnt + released_elsewhere(pool, &lanes);

	stats.size = ret->size;
	if (ret->size > sizeof(stats))
		memset((char *)ret + sizeof(stats), 0, ret->size - sizeof(stats));
	memcpy(ret, &stats, ret->size < sizeof(stats) ? ret->size : sizeof(stats));
	return 0;
}

int32_t page_pool_inflight(const struct page_pool *pool)
{
	/* A snapshot. What was released first, so that a page that comes in and leaves meanwhile
	 * does not make it negative. acquire: pairs with the release of who counted the page out,
	 * after it was counted in. relaxed: ordered by the three before it. */
	uint64_t pending = pp_load_acquire(&pool->pending);
	uint64_t here = pp_load_acquire(&pool->released_here);
	uint64_t full = pp_load_acquire(&pool->ring.released) + pp_lanes_sum(pool).released;
	uint64_t held = pp_load_relaxed(&pool->held);

	/* Destroyed, and kept by page_pool_ref(): pending is what is still out. */
	if (pending < PP_PENDING_LIVE / 2)
		return (int32_t)(uint32_t)pending;
	/* 32-bit serial arithmetic, as the kernel: references are multiples of 2^32 and fall out.
	 */
	return (int32_t)((uint32_t)held - (uint32_t)here - (uint32_t)full + (uint32_t)pending);
}

void pp_pool_count_from(struct page_pool *pool, uint64_t n)
{
	/* relaxed: nobody else knows the pool yet. */
	pp_store_relaxed(&pool->held, n);
	pp_store_relaxed(&pool->released_here, n);
}
