/* SPDX-License-Identifier: BSD-2-Clause */
/* The pool: create, allocate, put. The rules are those of the kernel; see docs/pool.md. */
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "check.h"
#include "lanes.h"
#include "ring.h"

/* ---- puts that are refused --------------------------------------------------------------------
 */

#define REFUSALS_EVERY_NS 1000000000

void pp_refused(uint32_t id, const void *address, uint64_t n)
{
	static int64_t next;
	static uint64_t unsaid;
	int64_t now = pp_sys_now_ns(), due = pp_load_relaxed(&next);

	/* relaxed: nothing is published through these, and a line more or less is no harm. */
	pp_fetch_add_relaxed(&unsaid, n);
	if (now < due || !pp_cas_acq_rel(&next, &due, now + REFUSALS_EVERY_NS))
		return;
	n = pp_exchange_acquire(&unsaid, 0);
	pp_log("page_pool: pool %u: the page at %p was put already, or is not this pool's: nothing "
	       "done (%llu since the last such message)",
	       id, address, (unsigned long long)n);
}

void pp_pool_refuse(struct page_pool *pool, const struct pp_page *page)
{
	/* relaxed: a counter. */
	pp_fetch_add_relaxed(&pool->refused, 1);
	pp_refused(pool->id, pp_load_relaxed(&page->addr), 1);
}

uint64_t page_pool_refused_puts(const struct page_pool *pool)
{
	/* relaxed: a snapshot. */
	return pp_load_relaxed(&pool->refused);
}

/* ---- leaving the pool -------------------------------------------------------------------------
 */

PP_NOINLINE void pp_pool_leave_formally(struct page_pool *pool, struct pp_page *page, bool here)
{
	if (pool->checked)
		pp_check_leaves(pool, page);
	if (pool->dma.device)
		pp_dma_unmap(pool, page, here);
}

static inline void release(struct page_pool *pool, struct pp_page *page, bool here)
{
	pp_held_clear(pool, page);
	if (unlikely(pool->formalities)) {
		pp_pool_leave_formally(pool, page, here);
		/* A device's callback may have let go of whatever made its caller the consumer (a
		 * lock; an interpreter's), and the pool was destroyed. relaxed: as in destroy. */
		here = here && !pp_load_relaxed(&pool->settled);
	}
	if (here)
		/* release: page_pool_inflight() that sees it sees the page in held as well. */
		pp_add_single_writer_release(&pool->released_here, 1);
	else
		pp_pool_unpend(pool, 1); /* may be the last use of the pool */
	pp_page_leave(page);
}

void pp_pool_release(struct page_pool *pool, struct pp_page *page, bool here)
{
	release(pool, page, here);
}

void pp_pool_drain_cache(struct page_pool *pool)
{
	struct pp_page *pages[PP_ALLOC_CACHE_SIZE];
	struct pp_cache *cache = &pool->cache;
	uint64_t n = cache->pushed - cache->popped;

	/* A device's callback may use the cache. */
	for (uint64_t i = n; i; i--)
		pages[i - 1] = pp_cache_pop(pool, i);
	pp_stats_begin(pool);
	pp_stats_add(&cache->popped, n);
	pp_stats_add(&pool->stats.drained, n);
	pp_stats_end(pool);
	while (n--)
		pp_pool_release(pool, pages[n], true);
}

/* ---- allocate ---------------------------------------------------------------------------------
 */

/* n pages were put into the cache, and the topmost is handed out. */
static struct pp_page *cache_filled(struct page_pool *pool, size_t n, uint64_t *how)
{
	struct pp_cache *cache = &pool->cache;

	pp_stats_begin(pool);
	pp_stats_add(&pool->stats.filled, n);
	pp_stats_add(&cache->pushed, n);
	pp_stats_add(&cache->popped, 1);
	pp_stats_add(how, 1);
	pp_stats_end(pool);
	return pp_cache_pop(pool, cache->pushed - cache->popped + 1);
}

static void count(struct page_pool *pool, uint64_t *counter)
{
	if (!pool->has_stats)
		return;
	pp_stats_begin(pool);
	pp_stats_add(counter, 1);
	pp_stats_end(pool);
}

static inline size_t consume_ring(struct page_pool *pool, size_t n, struct pp_page **pages,
				  struct pp_page **wrong)
{
	struct pp_ring *ring = &pool->ring;
	uint32_t head = ring->consumer_head;
	int nid = pool->nid;
	struct pp_page *page;
	size_t got = 0;

	while (got < n && (page = pp_ring_peek(ring, head))) {
		head = pp_ring_discard(ring, head);
		if (unlikely(nid != PP_NUMA_NO_NODE && page->nid != nid)) {
			*wrong = page;
			break;
		}
		pages[got++] = page;
	}
	ring->consumer_head = head;
	return got;
}

size_t pp_pool_consume_ring(struct page_pool *pool, size_t n, struct pp_page **pages,
			    struct pp_page **wrong)
{
	return consume_ring(pool, n, pages, wrong);
}

/* What came back, where the design has no ring. */
static PP_NOINLINE size_t consume_other(struct page_pool *pool, size_t n, struct pp_page **pages,
					struct pp_page **wrong)
{
	if (pool->lanes_on)
		return pp_lanes_consume(pool, n, pages, wrong);
	return pp_list_consume(pool, n, pages, wrong);
}

/* The cache is empty, and what is in pages[] is to be it; with an array it is already there. */
static inline void fill_cache(struct page_pool *pool, size_t n)
{
	if (unlikely(pool->list_cache)) {
		for (size_t i = 0; i < n; i++)
			pp_cache_push(pool, i, pool->pages[i]);
	}
}

/* The cache is empty: fill it from the ring. */
static struct pp_page *refill(struct page_pool *pool)
{
	struct pp_page *page = NULL, *wrong = NULL;
	size_t n;

	if (unlikely(pool->no_ring))
		n = consume_other(pool, PP_ALLOC_CACHE_REFILL, pool->pages, &wrong);
	else
		n = consume_ring(pool, PP_ALLOC_CACHE_REFILL, pool->pages, &wrong);
	if (likely(n)) {
		fill_cache(pool, n);
		page = cache_filled(pool, n, &pool->stats.refill);
	}
	if (unlikely(wrong)) {
		/* One page is given back, and the rest has to wait for the next refill: the
		 * provider is asked for pages on the right node first. */
		count(pool, &pool->stats.waive);
		pp_pool_release(pool, wrong, true);
	} else if (unlikely(!n)) {
		count(pool, &pool->stats.empty);
	}
	return page;
}

static void enters_pool(struct page_pool *pool, struct pp_page **pages, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		pages[i]->private_ = NULL;
		/* relaxed: published by whatever hands the page to another thread. */
		pp_store_relaxed(&pages[i]->owner, pool->owner);
	}
	pp_add_single_writer(&pool->held, n);
}

/* ---- chunks: where the pool's pages are ---- */

#define BITS 64

static size_t chunk_words(const struct page_pool *pool)
{
	return (pool->provider->nr / PP_CHUNK_PAGES + BITS) / BITS;
}

void pp_pool_each_chunk(struct page_pool *pool,
			void (*fn)(struct page_pool *pool, struct pp_page *pages, void *arg),
			void *arg)
{
	for (size_t word = 0; word < chunk_words(pool); word++) {
		/* relaxed: destroy is the consumer; others take a snapshot. */
		uint64_t bits = pp_load_relaxed(&pool->chunks[word]);

		for (; bits; bits &= bits - 1) {
			size_t chunk = word * BITS + (size_t)__builtin_ctzll(bits);

			fn(pool, &pool->provider->pages[chunk * PP_CHUNK_PAGES], arg);
		}
	}
}

/* Consumer: the chunk with this page is known from now on; false: no memory for its records. */
static bool know_chunk(struct page_pool *pool, const struct pp_page *page)
{
	size_t chunk = (size_t)(page - pool->provider->pages) / PP_CHUNK_PAGES;
	uint64_t *word = &pool->chunks[chunk / BITS], bit = 1ull << (chunk % BITS);

	if (likely(*word & bit))
		return true;
	if (pool->checked && pp_provider_commit_records(pool->provider, page))
		return false;
	/* relaxed: one writer; readers look at metadata that was there before. */
	pp_store_relaxed(word, *word | bit);
	return true;
}

/* Those that the pool cannot keep track of go back, the others move up; how many. */
static size_t know_chunks(struct page_pool *pool, struct pp_page **pages, size_t n)
{
	size_t known = 0;

	for (size_t i = 0; i < n; i++) {
		if (likely(know_chunk(pool, pages[i])))
			pages[known++] = pages[i];
		else
			pp_page_drop(pages[i]);
	}
	return known;
}

/* The provider's pages, in a pool where that is not all. */
static PP_NOINLINE struct pp_page *alloc_formally(struct page_pool *pool)
{
	struct pp_page *pages[PP_ALLOC_CACHE_REFILL], *page = NULL;
	struct pp_provider *provider = pool->provider;
	struct pp_cache *cache = &pool->cache;
	size_t n, fit, cached;

	n = provider->ops->alloc(provider, pool->order, pool->nid,
				 pool->order ? 1 : PP_ALLOC_CACHE_REFILL, pages);
	if (pool->chunks)
		n = know_chunks(pool, pages, n);
	if (pool->dma.device)
		n = pp_dma_map(pool, pages, n);
	if (!n)
		return NULL;
	enters_pool(pool, pages, n);
	if (pool->order) {
		count(pool, &pool->stats.slow_high_order);
		return pages[0];
	}
	/* The cache was empty; but a callback of the device may have come back with pages. relaxed:
	 * see recycle_in_cache(). */
	cached = cache->pushed - cache->popped;
	fit = pp_load_relaxed(&cache->capacity) - cached;
	if (fit > n)
		fit = n;
	for (size_t i = 0; i < fit; i++)
		pp_cache_push(pool, cached + i, pages[i]);
	if (fit)
		page = cache_filled(pool, fit, &pool->stats.slow);
	else if (cached) /* it is full of what came back */
		page = pp_pool_alloc(pool);
	while (n > fit)
		pp_pool_release(pool, pages[--n], true);
	return page;
}

static struct pp_page *alloc_new(struct page_pool *pool)
{
	struct pp_provider *provider = pool->provider;
	struct pp_page *page;
	size_t n;

	if (unlikely(pool->formalities))
		return alloc_formally(pool);
	if (pool->order) {
		if (!provider->ops->alloc(provider, pool->order, pool->nid, 1, &page))
			return NULL;
		enters_pool(pool, &page, 1);
		count(pool, &pool->stats.slow_high_order);
		return page;
	}
	n = provider->ops->alloc(provider, 0, pool->nid, PP_ALLOC_CACHE_REFILL, pool->pages);
	if (!n)
		return NULL;
	enters_pool(pool, pool->pages, n);
	fill_cache(pool, n);
	return cache_filled(pool, n, &pool->stats.slow);
}

static PP_NOINLINE struct pp_page *alloc_slow(struct page_pool *pool)
{
	struct pp_page *page = refill(pool);

	if (!page)
		page = alloc_new(pool);
	if (likely(page))
		/* Of a higher order than 0 none went through the cache. */
		pp_held_set(pool, page,
			    pool->order ? ~(pool->cache.popped + pool->held) : pool->cache.popped);
	return page;
}

static inline struct pp_page *alloc(struct page_pool *pool)
{
	struct pp_cache *cache = &pool->cache;
	uint64_t popped = cache->popped;
	uint64_t n = cache->pushed - popped;
	struct pp_page *page;

	if (unlikely(!n))
		return alloc_slow(pool);
	page = pool->pages[n - 1];
	/* release: for readers of the statistics, see stats.c. No instruction more on x86. */
	pp_store_release(&cache->popped, popped + 1);
	pp_held_set(pool, page, popped + 1);
	return page;
}

/* The same where the cache is a list. */
static struct pp_page *alloc_from_list(struct page_pool *pool)
{
	struct pp_cache *cache = &pool->cache;
	uint64_t popped = cache->popped;
	uint64_t n = cache->pushed - popped;
	struct pp_page *page;

	if (unlikely(!n))
		return alloc_slow(pool);
	page = pp_cache_pop(pool, n);
	/* release: as above. */
	pp_store_release(&cache->popped, popped + 1);
	pp_held_set(pool, page, popped + 1);
	return page;
}

struct pp_page *pp_pool_alloc(struct page_pool *pool)
{
	return unlikely(pool->list_cache) ? alloc_from_list(pool) : alloc(pool);
}

static PP_NOINLINE struct pp_page *alloc_detour(struct page_pool *pool, const void *caller)
{
	struct pp_page *page;
	uint64_t before;

	if (likely(!pool->checked))
		return alloc_from_list(pool);
	if (!pp_check_enter(pool, caller, &before))
		return NULL;
	page = pp_pool_alloc(pool);
	if (page)
		pp_check_alloc(pool, page, caller, false);
	pp_check_leave(pool, before);
	return page;
}

struct pp_page *page_pool_alloc_pages(struct page_pool *pool)
{
	if (unlikely(pool->detour))
		return alloc_detour(pool, __builtin_return_address(0));
	return alloc(pool);
}

size_t page_pool_alloc_pages_bulk(struct page_pool *pool, size_t n, struct pp_page **pages)
{
	struct pp_cache *cache = &pool->cache;
	uint64_t popped;
	size_t got = 0;

	if (unlikely(pool->detour)) {
		while (got < n && (pages[got] = alloc_detour(pool, __builtin_return_address(0))))
			got++;
		return got;
	}
	while (got < n) {
		uint64_t cached = cache->pushed - cache->popped;
		uint64_t some = cached < n - got ? cached : n - got;

		if (!some) {
			pages[got] = alloc_slow(pool);
			if (!pages[got])
				break;
			got++;
			continue;
		}
		popped = cache->popped;
		pp_store_release(&cache->popped, popped + some);
		while (some--) {
			struct pp_page *page = pool->pages[--cached];

			pp_held_set(pool, page, ++popped);
			pages[got++] = page;
		}
	}
	return got;
}

/* ---- put --------------------------------------------------------------------------------------
 */

/* Consumer's context. False: the cache is full. */
static inline bool recycle_in_cache(struct page_pool *pool, struct pp_page *page)
{
	struct pp_cache *cache = &pool->cache;
	uint64_t pushed = cache->pushed;
	uint64_t n = pushed - cache->popped;

	/* relaxed: after destroy the capacity is 0 for ever; a promise of direct recycling that is
	 * broken then goes to the ring. */
	if (likely(n < pp_load_relaxed(&cache->capacity))) {
		if (unlikely(!pp_take_back(pool, page))) {
			pp_pool_refuse(pool, page);
			return true;
		}
		pp_cache_push(pool, n, page);
		/* release: as popped. */
		pp_store_release(&cache->pushed, pushed + 1);
		return true;
	}
	if (pp_load_relaxed(&cache->capacity)) {
		if (unlikely(!pp_is_held(pool, page))) {
			pp_pool_refuse(pool, page);
			return true;
		}
		count(pool, &pool->stats.cache_full);
	}
	return false;
}

/* What was synced for the device on the way to the ring: counted there, under its lock. */
struct synced {
	uint64_t pages;
	uint64_t bytes;
};

static inline void sync_for_ring(struct page_pool *pool, struct pp_page *page, uint32_t size,
				 struct synced *synced)
{
	if (!pool->dma.sync)
		return;
	size = pp_dma_sync(pool, page, size);
	synced->pages += size != 0;
	synced->bytes += size;
}

/* The ring's statistics, under its lock. relaxed: readers take a snapshot. */
static inline void count_ring(struct page_pool *pool, uint64_t *counter, uint64_t n)
{
	if (pool->has_stats)
		pp_add_single_writer(counter, n);
}

/*
 * Under the ring's lock, so that of two threads that put the same page through the ring one is
 * refused: those that their users had are taken back and move to the front; how many. *bad: one
 * that was not. It may have left the pool while this put waited for the lock, so its owner counts
 * too.
 */
static inline size_t take_back_all(struct page_pool *pool, struct pp_page **pages, size_t n,
				   struct pp_page **bad)
{
	size_t good = 0;

	for (size_t i = 0; i < n; i++) {
		struct pp_page *page = pages[i];

		/* relaxed: see page_pool_get_pp(). */
		if (likely(pp_load_relaxed(&page->owner) == pool->owner &&
			   pp_take_back(pool, page)))
			pages[good++] = page;
		else
			*bad = page;
	}
	return good;
}

/*
 * Pages that did not fit into the ring and have to be unmapped first: counted out under the lock as
 * the others, but later. If the pool was destroyed meanwhile, its account is settled.
 */
static PP_NOINLINE void overflow_formally(struct page_pool *pool, struct pp_page **pages, size_t n)
{
	struct pp_ring *ring = &pool->ring;
	bool dying;

	for (size_t i = 0; i < n; i++)
		pp_pool_leave_formally(pool, pages[i], false);
	pp_spin_lock(&ring->lock);
	dying = ring->dying;
	if (likely(!dying))
		/* release: as in recycle_in_ring(). */
		pp_add_single_writer_release(&ring->released, n);
	else
		pp_add_single_writer(&ring->released_dying, n);
	pp_spin_unlock(&ring->lock);
	for (size_t i = 0; i < n; i++) {
		if (unlikely(dying))
			pp_pool_unpend(pool, 1);
		pp_page_leave(pages[i]);
	}
}

/* What is not the usual case of recycle_in_ring(), whose lock is held and left here: in of n pages
 * are in the ring, refused are not the user's to put (the last of them: bad). */
static PP_NOINLINE void not_all_in_ring(struct page_pool *pool, struct pp_page **pages, size_t in,
					size_t n, size_t refused, const struct pp_page *bad,
					const struct synced *synced)
{
	struct pp_ring *ring = &pool->ring;
	bool formalities = pool->formalities;
	bool dying = ring->dying;
	const void *address = bad ? pp_load_relaxed(&bad->addr) : NULL;
	uint32_t id = pool->id;

	if (synced) {
		pp_add_single_writer(&ring->syncs, synced->pages);
		pp_add_single_writer(&ring->sync_bytes, synced->bytes);
	}
	if (refused)
		/* relaxed: a counter. */
		pp_fetch_add_relaxed(&pool->refused, refused);
	if (dying) {
		count_ring(pool, &ring->ring, n);
		pp_add_single_writer(&ring->released_dying, n);
	} else if (in < n) {
		count_ring(pool, &ring->ring_full, 1); /* once a call, as the kernel */
		if (!formalities)
			/* release: page_pool_inflight() that sees it sees the pages in held. */
			pp_add_single_writer_release(&ring->released, n - in);
	}
	pp_spin_unlock(&ring->lock);
	if (in < n && formalities && !dying) {
		overflow_formally(pool, pages + in, n - in);
		in = n;
	}
	for (; in < n; in++) {
		if (dying)
			release(pool, pages[in], false);
		else
			pp_page_leave(pages[in]);
	}
	if (refused)
		pp_refused(id, address, refused);
}

/*
 * Anyone. Under one lock as many of the n pages as fit go into the ring, the rest leaves the pool;
 * these are counted out under the lock, which is cheaper than in pending, and the pool is not
 * looked at afterwards.
 * Once the pool is destroyed nothing would ever take a page out again: they count as ring, as they
 * would in the kernel, which takes them out on its next retry, and leave the pool at once.
 */
static inline void recycle_in_ring(struct page_pool *pool, struct pp_page **pages, size_t n,
				   const struct synced *synced)
{
	struct pp_ring *ring = &pool->ring;
	struct pp_page *bad = NULL;
	size_t good, in = 0;

	pp_spin_lock(&ring->lock);
	good = take_back_all(pool, pages, n, &bad);
	if (likely(!ring->dying)) {
		in = unlikely(pool->no_ring && !pool->lanes_on)
			     ? pp_list_produce(pool, pages, good)
			     : pp_ring_produce(ring, pages, good);
		count_ring(pool, &ring->ring, in);
	}
	if (unlikely(in < n || synced)) {
		not_all_in_ring(pool, pages, in, good, n - good, bad, synced);
		return;
	}
	pp_spin_unlock(&ring->lock);
	/* Whoever takes the last page out of the ring may free the pool now. Destroy takes the lock
	 * before it does, so it has waited for the unlock. */
}

/* By value: so that the page need not live on the caller's stack on the fast path. */
static PP_NOINLINE void recycle_one_in_ring(struct page_pool *pool, struct pp_page *page)
{
	recycle_in_ring(pool, &page, 1, NULL);
}

void pp_pool_recycle_in_ring(struct page_pool *pool, struct pp_page **pages, size_t n)
{
	recycle_in_ring(pool, pages, n, NULL);
}

static PP_NOINLINE void recycle_one_in_lane(struct page_pool *pool, struct pp_page *page)
{
	pp_lane_put_one(pool, page);
}

/* Anyone: n pages go to the consumer as the design has it, or leave the pool. */
static PP_NOINLINE void recycle_elsewhere(struct page_pool *pool, struct pp_page **pages, size_t n,
					  const struct synced *synced)
{
	struct pp_lane *lane;

	if (likely(!pool->lanes_on) || !(lane = pp_lane_mine(pool))) {
		recycle_in_ring(pool, pages, n, synced);
		return;
	}
	if (synced) {
		pp_add_single_writer(&lane->syncs, synced->pages);
		pp_add_single_writer(&lane->sync_bytes, synced->bytes);
	}
	pp_lane_put(pool, lane, pages, n);
}

static void put_held(struct page_pool *pool, struct pp_page *page, bool here)
{
	/* After destroy the consumer's own counters are settled and no more looked at. */
	here = here && pp_load_relaxed(&pool->cache.capacity);
	if (here)
		/* release: for stats.c. One counter by itself needs no stats_begin. Elsewhere the
		 * count is what pending has lost, see stats.c. */
		pp_stats_add(&pool->stats.released_refcnt, 1);
	else if (unlikely(pool->dma.device))
		/* relaxed: a counter. */
		pp_fetch_add_relaxed(&pool->dma.released_refcnt, 1);
	release(pool, page, here);
}

static inline void recycle(struct page_pool *pool, struct pp_page *page, bool here)
{
	if (here && recycle_in_cache(pool, page))
		return;
	if (unlikely(pool->lanes_on))
		recycle_one_in_lane(pool, page);
	else
		recycle_one_in_ring(pool, page);
}

/*
 * A page of the pool that cannot be recycled at first sight. True: it can after all. It may be a
 * piece: then only the last one is the page.
 */
static bool put_again(struct page_pool *pool, struct pp_page *page, bool here)
{
	if (unlikely(!pp_is_held(pool, page))) {
		pp_pool_refuse(pool, page);
		return false;
	}
	if (!pp_page_drop_users(page, 1))
		return false; /* the pool may be gone with another piece from here on */
	if (pp_page_can_recycle(page))
		return true;
	put_held(pool, page, here);
	return false;
}

/*
 * A page that is not a plain pool's. True: it is this pool's all the same, and to be recycled.
 * *here: made false if the promise is found to be broken.
 */
static inline bool put_special(struct page_pool *pool, struct pp_page *page, const void *caller,
			       bool promised, bool *here)
{
	bool recycled = true;

	if (pool->checked) {
		if (!pp_check_put(pool, page, caller, promised, here)) {
			/* relaxed: a counter. */
			pp_fetch_add_relaxed(&pool->refused, 1);
			return false;
		}
	} else if (unlikely(pp_load_relaxed(&page->owner) != pool->owner ||
			    !pp_is_users(pool, page))) {
		/* relaxed: see page_pool_get_pp(). */
		pp_pool_refuse(pool, page);
		return false;
	}
	if (!pp_page_can_recycle(page)) {
		if (!pp_page_drop_users(page, 1))
			return false;
		recycled = pp_page_can_recycle(page);
	}
	/* On its way: a second put finds out, before cache or ring have it. */
	if (recycled && unlikely(!pp_start_back(pool, page, *here))) {
		if (pool->checked) {
			pp_check_bad_put(pool, page, caller);
			/* relaxed: a counter. */
			pp_fetch_add_relaxed(&pool->refused, 1);
		} else {
			pp_pool_refuse(pool, page);
		}
		return false;
	}
	if (pool->checked)
		pp_check_was_put(pool, page, caller, recycled);
	if (!recycled)
		put_held(pool, page, *here);
	return recycled;
}

static PP_NOINLINE void put_one_special(struct page_pool *pool, struct pp_page *page, uint32_t size,
					bool promised, const void *caller)
{
	bool here = promised || pp_napi_local(pool);
	struct synced synced = {0};

	if (!put_special(pool, page, caller, promised, &here))
		return;
	/* relaxed: as in recycle_in_cache(). */
	if (here && pp_load_relaxed(&pool->cache.capacity)) {
		if (pool->dma.sync)
			pp_dma_sync_here(pool, page, size);
		pp_check_close(pool, page);
		if (recycle_in_cache(pool, page))
			return;
	} else {
		sync_for_ring(pool, page, size, &synced);
		pp_check_close(pool, page);
	}
	recycle_elsewhere(pool, &page, 1, synced.pages ? &synced : NULL);
}

/* Anything but a whole page of a plain pool that nobody else holds. */
static PP_NOINLINE void put_slow(struct page_pool *pool, struct pp_page *page, uint32_t size,
				 bool promised, const void *caller)
{
	bool here;

	/* relaxed: see page_pool_get_pp(). */
	if (unlikely(pp_load_relaxed(&page->owner) != (uintptr_t)pool)) {
		put_one_special(pool, page, size, promised, caller);
		return;
	}
	here = promised || pp_napi_local(pool);
	if (put_again(pool, page, here))
		recycle(pool, page, here);
}

static inline void put(struct page_pool *pool, struct pp_page *page, uint32_t size, bool promised,
		       const void *caller)
{
	/* relaxed: see page_pool_get_pp(). */
	if (unlikely(pp_load_relaxed(&page->owner) != (uintptr_t)pool ||
		     !pp_page_can_recycle(page)))
		put_slow(pool, page, size, promised, caller);
	else
		recycle(pool, page, promised || pp_napi_local(pool));
}

void page_pool_put_page(struct page_pool *pool, struct pp_page *page, unsigned dma_sync_size,
			bool allow_direct)
{
	put(pool, page, dma_sync_size, allow_direct, __builtin_return_address(0));
}

void page_pool_put_full_page(struct page_pool *pool, struct pp_page *page, bool allow_direct)
{
	put(pool, page, UINT32_MAX, allow_direct, __builtin_return_address(0));
}

void page_pool_recycle_direct(struct page_pool *pool, struct pp_page *page)
{
	put(pool, page, UINT32_MAX, true, __builtin_return_address(0));
}

/* Pages that go into a ring under one lock. */
#define BULK 64

/* The pages of this pool go to its cache or ring; the others are moved to the front; how many. */
static PP_NOINLINE size_t put_some(struct page_pool *pool, struct pp_page **pages, size_t n,
				   const void *caller)
{
	struct pp_cache *cache = &pool->cache;
	bool here = pp_napi_local(pool);
	/* Once its last page is put the pool may be gone, and what is left is of other pools. */
	const uintptr_t mine = pool->owner;
	struct synced synced = {0};
	struct pp_page *bulk[BULK];
	size_t foreign = 0, len = 0, i = 0;

	if (here) {
		/* All that goes into the cache at once, up to the first page that needs a look. */
		uint64_t pushed = cache->pushed;
		uint64_t cached = pushed - cache->popped;
		uint64_t capacity = pp_load_relaxed(&cache->capacity); /* see recycle_in_cache() */
		const bool list = pool->list_cache;

		for (; i < n && cached + i < capacity; i++) {
			struct pp_page *page = pages[i];

			/* relaxed: see page_pool_get_pp(). */
			if (unlikely(pp_load_relaxed(&page->owner) != (uintptr_t)pool ||
				     !pp_page_can_recycle(page) || !pp_take_back(pool, page)))
				break;
			if (unlikely(list))
				pp_cache_push(pool, cached + i, page);
			else
				pool->pages[cached + i] = page;
		}
		pp_store_release(&cache->pushed, pushed + i);
	} else if (likely(!(mine & PP_OWNER_SPECIAL))) {
		/* As they are, where none needs a look; the pool may be gone with the last one. */
		while (i < n) {
			size_t end = n - i > BULK ? i + BULK : n, plain = i;

			/* relaxed: see page_pool_get_pp(). */
			while (plain < end &&
			       likely(pp_load_relaxed(&pages[plain]->owner) == mine &&
				      pp_page_can_recycle(pages[plain])))
				plain++;
			if (unlikely(plain < end))
				break;
			recycle_elsewhere(pool, pages + i, end - i, NULL);
			i = end;
		}
		if (likely(i == n))
			return 0;
	}
	for (; i < n; i++) {
		struct pp_page *page = pages[i];

		if (unlikely(pp_load_relaxed(&page->owner) != mine)) {
			pages[foreign++] = page;
			continue;
		}
		if (unlikely(mine & PP_OWNER_SPECIAL)) {
			if (!put_special(pool, page, caller, false, &here))
				continue;
			sync_for_ring(pool, page, UINT32_MAX, &synced);
			pp_check_close(pool, page);
		} else if (!pp_page_can_recycle(page) && !put_again(pool, page, here)) {
			continue;
		}
		if (!here || !recycle_in_cache(pool, page)) {
			bulk[len++] = page;
			if (len == BULK) {
				recycle_elsewhere(pool, bulk, len, synced.pages ? &synced : NULL);
				synced = (struct synced){0};
				len = 0;
			}
		}
	}
	if (len || synced.pages)
		recycle_elsewhere(pool, bulk, len, synced.pages ? &synced : NULL);
	return foreign;
}

void page_pool_put_page_bulk(struct pp_page **pages, size_t n)
{
	/* One pool a pass. */
	while (n) {
		struct page_pool *pool = page_pool_get_pp(pages[0]);

		if (likely(pool)) {
			n = put_some(pool, pages, n, __builtin_return_address(0));
		} else {
			pp_refused(0, pp_load_relaxed(&pages[0]->addr), 1);
			pages[0] = pages[--n];
		}
	}
}

/* ---- settings ---------------------------------------------------------------------------------
 */

int page_pool_update_nid(struct page_pool *pool, int nid)
{
	int err = pp_check_nid(nid);
	uint64_t before = 0;

	if (err)
		return err;
	if (pool->checked && !pp_check_enter(pool, __builtin_return_address(0), &before))
		return pp_fail(-EPERM, "the caller is not the consumer of pool %u", pool->id);
	/* relaxed: read by others only to show it. */
	pp_store_relaxed(&pool->nid, nid);
	pp_pool_drain_cache(pool);
	if (pool->checked)
		pp_check_leave(pool, before);
	return 0;
}

int page_pool_enable_direct_recycling(struct page_pool *pool, struct pp_napi *napi)
{
	struct pp_napi_ref *ref;

	if (!napi)
		return pp_fail(-EINVAL, "no napi to bind pool %u to", pool->id);
	if (pool->napi == napi)
		return 0;
	if (pool->napi != &pp_napi_none)
		return pp_fail(-EBUSY,
			       "pool %u is bound to another napi: disable direct recycling first",
			       pool->id);
	for (ref = pool->napi_refs; ref && ref->napi != napi; ref = ref->next)
		;
	if (!ref) {
		ref = pp_sys_calloc(1, sizeof(*ref));
		if (!ref)
			return pp_fail(-ENOMEM, "no memory to bind pool %u to a napi", pool->id);
		ref->napi = napi;
		ref->next = pool->napi_refs;
		pool->napi_refs = ref;
		/* relaxed: the caller has a reference. */
		pp_fetch_add_relaxed(&napi->refs, 1);
	}
	/* release: who sees the napi sees it initialised. */
	pp_store_release(&pool->napi, napi);
	return 0;
}

int page_pool_disable_direct_recycling(struct page_pool *pool)
{
	/* relaxed: finds a mistake; the caller says that nobody is in the napi. */
	if (pp_load_relaxed(&pool->napi->owner) != PP_NO_THREAD)
		return pp_fail(-EBUSY, "a thread is in the napi of pool %u: let it leave first",
			       pool->id);
	pp_store_relaxed(&pool->napi, &pp_napi_none);
	return 0;
}

uint32_t page_pool_id(const struct page_pool *pool)
{
	return pool->id;
}

unsigned page_pool_order(const struct page_pool *pool)
{
	return pool->order;
}

unsigned page_pool_size(const struct page_pool *pool)
{
	return pool->ring.size;
}

int page_pool_nid(const struct page_pool *pool)
{
	/* relaxed: a snapshot. */
	return pp_load_relaxed(&pool->nid);
}

unsigned page_pool_flags(const struct page_pool *pool)
{
	return pool->flags;
}

unsigned page_pool_design(const struct page_pool *pool)
{
	return pool->design;
}

struct pp_provider *page_pool_provider(const struct page_pool *pool)
{
	return pool->provider;
}

/* ---- create -----------------------------------------------------------------------------------
 */

static int check(const struct page_pool_params *p)
{
	int err = pp_check_size("struct page_pool_params", p, p->size, sizeof(*p), sizeof(*p));

	if (err)
		return err;
	if (p->flags & ~PP_FLAG_ALL)
		return pp_fail(-EINVAL, "unknown pool flags 0x%x", p->flags & ~PP_FLAG_ALL);
	if (p->order > PP_MAX_PAGE_ORDER)
		return pp_fail(-EINVAL, "order %u: a page is at most of order %u (%zu bytes)",
			       p->order, PP_MAX_PAGE_ORDER, PP_PAGE_SIZE << PP_MAX_PAGE_ORDER);
	if (!pp_design_name(p->design))
		return pp_fail(-EINVAL, "unknown design 0x%x", p->design);
	return pp_check_nid(p->nid);
}

int page_pool_create(const struct page_pool_params *params, struct page_pool **ret)
{
	static uint32_t last_id;
	struct page_pool *pool;
	unsigned flags;
	int err = check(params);

	if (err)
		return err;
	pool = pp_sys_aligned_zalloc(PP_CACHELINE, sizeof(*pool));
	if (!pool)
		return pp_fail(-ENOMEM, "no memory for a pool");
	flags = params->flags | pp_check_flags();
	if (flags & PP_FLAG_CHECKED_FULL)
		flags |= PP_FLAG_CHECKED;
	pool->cache.capacity = PP_ALLOC_CACHE_SIZE;
	pool->owner = (uintptr_t)pool;
	pool->napi = &pp_napi_none;
	pool->nid = params->nid;
	pool->pending = PP_PENDING_LIVE;
	pool->order = (uint8_t)params->order;
	pool->has_stats = !(params->flags & PP_FLAG_NO_STATS);
	pool->retry_ms = params->retry_ms ? params->retry_ms : 1000;
	pool->warn_ms = params->warn_ms ? params->warn_ms : 60000;

	pp_spinlock_init(&pool->ring.lock);
	pool->ring.size = params->pool_size ? params->pool_size : PP_DEFAULT_POOL_SIZE;
	if (pool->ring.size > PP_MAX_POOL_SIZE)
		pool->ring.size = PP_MAX_POOL_SIZE;
	pool->ring.batch = pp_ring_batch(pool->ring.size);
	pool->design = params->design;
	pool->lanes_on = pool->design == PP_DESIGN_OURS;
	pool->list_cache = pool->design & PP_LIST_CACHE;
	pool->no_ring = pool->lanes_on || pool->design & PP_LIST_RING;
	pp_spinlock_init(&pool->lanes.lock);
	if (!(pool->design & PP_LIST_RING))
		pool->ring.queue = pp_sys_calloc(pool->ring.size, sizeof(pool->ring.queue[0]));
	if (!(pool->design & PP_LIST_RING) && !pool->ring.queue) {
		err = pp_fail(-ENOMEM, "no memory for a ring of %u slots", pool->ring.size);
		goto free_pool;
	}
	if (params->provider) {
		pool->provider = params->provider;
		pp_provider_get(pool->provider);
	} else {
		struct pp_arena_params arena = PP_ARENA_PARAMS_INIT;

		err = pp_arena_create(&arena, &pool->provider);
		if (err)
			goto free_queue;
		pool->own_provider = true;
	}
	pool->held_base = (uintptr_t)pool->provider->held - ((uintptr_t)pool->provider->pages >> 5);
	pool->all = pool->provider->pages;
	pool->flags = flags;
	pool->checked = flags & PP_FLAG_CHECKED;
	pool->checked_full = flags & PP_FLAG_CHECKED_FULL;
	err = pp_dma_init(pool, params);
	if (err)
		goto put_provider;
	pool->poison_offset = pool->dma.offset & ~7u;
	if (pool->poison_offset > (PP_PAGE_SIZE << pool->order) - PP_POISON_QUICK)
		pool->poison_offset = (uint32_t)(PP_PAGE_SIZE << pool->order) - PP_POISON_QUICK;
	pool->formalities = pool->dma.device || pool->checked;
	pool->detour = pool->checked || pool->list_cache;
	if (pool->dma.sync || pool->checked)
		pool->owner |= PP_OWNER_SPECIAL;
	if (pool->dma.tracked || pool->checked) {
		pool->chunks = pp_sys_calloc(chunk_words(pool), sizeof(pool->chunks[0]));
		if (!pool->chunks) {
			err = pp_fail(-ENOMEM, "no memory to keep track of a pool's pages");
			goto fini_dma;
		}
	}
	if (pool->checked) {
		err = pp_check_init(pool);
		if (err)
			goto free_chunks;
	}
	/* relaxed: only uniqueness matters. */
	pool->id = (pp_fetch_add_relaxed(&last_id, 1u) + 1) & ~PP_MAPPED_BUSY;
	if (params->napi) {
		err = page_pool_enable_direct_recycling(pool, params->napi);
		if (err)
			goto free_chunks;
	}
	*ret = pool;
	return 0;

free_chunks:
	free(pool->chunks);
fini_dma:
	pp_dma_fini(pool);
put_provider:
	pp_provider_put(pool->provider);
free_queue:
	free(pool->ring.queue);
free_pool:
	free(pool);
	return err;
}
