/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Destroying a pool while its pages may be anywhere.
 *
 * Whoever brings pending to 0 frees the pool: destroy itself when nothing is out, else the last
 * page to come back, on whatever thread that happens. Nobody else may look at the pool afterwards:
 *   - a producer that has put its page into the ring still has to unlock; destroy takes that lock
 *     once before it empties the ring, and from then on nothing enters the ring;
 *   - the janitor, which looks at destroyed pools every second and says which are stalled, does so
 *     under a lock that the pool's liberator takes to remove it from the list.
 */
#include <stdlib.h>

#include "lanes.h"
#include "list.h"
#include "ring.h"

static pthread_mutex_t janitor_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t janitor_wakes;
static pthread_once_t janitor_once = PTHREAD_ONCE_INIT;
static struct page_pool *destroyed; /* pools with pages out */
static bool janitor_runs;

/* ---- the janitor ------------------------------------------------------------------------------
 */

static void init_cond(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&janitor_wakes, &attr);
	pthread_condattr_destroy(&attr);
}

/* The child has no janitor, and the parent's pools are not its business. */
static void after_fork(void)
{
	pthread_mutex_init(&janitor_lock, NULL);
	init_cond();
	destroyed = NULL;
	janitor_runs = false;
}

static void janitor_init(void)
{
	init_cond();
	/* Without memory for the handler, a child that destroys a pool with pages out may block;
	 * pthread_atfork has no other failure. */
	(void)pthread_atfork(NULL, NULL, after_fork);
}

struct stalled {
	uint32_t id;
	int32_t inflight;
	int64_t seconds;
};

/* Under the lock. Is a message due? Else says when to look again. */
static bool look(struct page_pool *pool, int64_t now, struct stalled *stalled)
{
	if (now < pool->next_retry_ns)
		return false;
	pool->next_retry_ns = now + (int64_t)pool->retry_ms * 1000000;
	if (now < pool->next_warn_ns)
		return false;
	pool->next_warn_ns = now + (int64_t)pool->warn_ms * 1000000;
	stalled->id = pool->id;
	stalled->inflight = page_pool_inflight(pool);
	stalled->seconds = (now - pool->destroyed_ns) / 1000000000;
	return stalled->inflight > 0;
}

static void *janitor(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&janitor_lock);
	while (destroyed) {
		int64_t now = pp_sys_now_ns(), next = INT64_MAX;
		struct stalled stalled;
		struct timespec ts;
		bool say = false;

		for (struct page_pool *pool = destroyed; pool && !say; pool = pool->next) {
			say = look(pool, now, &stalled);
			if (pool->next_retry_ns < next)
				next = pool->next_retry_ns;
		}
		if (say) {
			pthread_mutex_unlock(&janitor_lock);
			pp_log("page_pool_release_retry() stalled pool shutdown: id %u, "
			       "%d inflight %lld sec",
			       stalled.id, stalled.inflight, (long long)stalled.seconds);
			pthread_mutex_lock(&janitor_lock);
			continue; /* the list may be another */
		}
		ts.tv_sec = next / 1000000000;
		ts.tv_nsec = next % 1000000000;
		pthread_cond_timedwait(&janitor_wakes, &janitor_lock, &ts);
	}
	janitor_runs = false;
	pthread_mutex_unlock(&janitor_lock);
	return NULL;
}

static void janitor_add(struct page_pool *pool)
{
	int err = 0;

	pthread_once(&janitor_once, janitor_init);
	pthread_mutex_lock(&janitor_lock);
	pool->destroyed_ns = pp_sys_now_ns();
	pool->next_retry_ns = pool->destroyed_ns + (int64_t)pool->retry_ms * 1000000;
	pool->next_warn_ns = pool->destroyed_ns + (int64_t)pool->warn_ms * 1000000;
	pool->next = destroyed;
	pool->link = &destroyed;
	pool->watched = true;
	if (pool->next)
		pool->next->link = &pool->next;
	destroyed = pool;
	if (!janitor_runs) {
		err = pp_sys_thread(janitor);
		janitor_runs = !err;
	}
	pthread_cond_signal(&janitor_wakes);
	pthread_mutex_unlock(&janitor_lock);
	/* The pool is still freed by its last page; only nobody watches it. */
	if (err)
		pp_log("page_pool: no thread to watch pool %u, %d inflight: errno %d", pool->id,
		       page_pool_inflight(pool), -err);
}

/* ---- the end of a pool ------------------------------------------------------------------------
 */

void pp_pool_free(struct page_pool *pool)
{
	if (pool->watched) {
		pthread_mutex_lock(&janitor_lock);
		*pool->link = pool->next;
		if (pool->next)
			pool->next->link = pool->link;
		pthread_cond_signal(&janitor_wakes);
		pthread_mutex_unlock(&janitor_lock);
	}
	while (pool->napi_refs) {
		struct pp_napi_ref *ref = pool->napi_refs;

		pool->napi_refs = ref->next;
		pp_napi_unref(ref->napi);
		free(ref);
	}
	pp_dma_fini(pool);
	pp_lanes_fini(pool);
	free(pool->chunks);
	free(pool->ring.queue);
	if (pool->checked) {
		if (!pool->own_provider)
			pp_provider_put(pool->provider);
		pp_check_bury(pool);
		return;
	}
	pp_provider_put(pool->provider);
	free(pool);
}

void pp_pool_unpend(struct page_pool *pool, uint64_t n)
{
	/* acq_rel: all that others did to the pool before they counted themselves out comes before
	 * the free; and what this caller did comes before its own count. */
	if (unlikely(pp_fetch_sub_acq_rel(&pool->pending, n) == n))
		pp_pool_free(pool);
}

void page_pool_ref(struct page_pool *pool)
{
	/* relaxed: the caller knows the pool to be alive. */
	pp_fetch_add_relaxed(&pool->pending, PP_PENDING_REF);
}

void page_pool_unref(struct page_pool *pool)
{
	pp_pool_unpend(pool, PP_PENDING_REF);
}

void page_pool_destroy(struct page_pool *pool)
{
	struct pp_ring *ring = &pool->ring;
	struct pp_page *page;

	/* Again: it lives because pages or references are out, and the account is settled once. */
	if (unlikely(!pp_load_relaxed(&pool->cache.capacity))) {
		pp_log("page_pool: pool %u is destroyed twice: nothing done", pool->id);
		return;
	}
	/* Direct recycling is over: nobody is known to be the consumer any more, and a promise
	 * finds the cache full. relaxed: the consumer's context is this very thread. */
	pp_store_relaxed(&pool->napi, &pp_napi_none);
	pp_store_relaxed(&pool->cache.capacity, 0);
	pp_frag_drain(pool);
	pp_pool_drain_cache(pool);

	/* Every producer that is inside has left when the lock is ours; later ones see dying. */
	pp_spin_lock(&ring->lock);
	ring->dying = true;
	pp_spin_unlock(&ring->lock);
	if (pool->design & PP_LIST_RING) {
		/* Nobody else touches it any more. */
		while ((page = pp_list_pop(pool)))
			pp_pool_release(pool, page, true);
	} else {
		while ((page = pp_ring_peek(ring, ring->consumer_head))) {
			ring->consumer_head = pp_ring_discard(ring, ring->consumer_head);
			pp_pool_release(pool, page, true);
		}
	}
	pp_lanes_close(pool);

	/* All that is out will come back unmapped, or was claimed by who brings it back just now.
	 */
	pp_dma_scrub(pool);

	/* From now on a page or reference that goes may be the last. What was released so far is
	 * settled here, and what it held. */
	if (page_pool_inflight(pool) != 0)
		janitor_add(pool);
	/* relaxed: for who is in the consumer's context, which is this one. */
	pp_store_relaxed(&pool->settled, true);
	pp_pool_unpend(pool, PP_PENDING_LIVE - (pool->held - pool->released_here - ring->released -
						pp_lanes_sum(pool).released));
}
