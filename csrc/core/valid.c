/* SPDX-License-Identifier: BSD-2-Clause */
/* The invariants of types.h, checked. Consumer only, with no producer at work for the full tier. */
#include "page.h"

bool page_pool_is_valid(const struct page_pool *pool, enum pp_tier tier, const char **why)
{
	const struct pp_cache *cache = &pool->cache;
	const struct pp_ring *ring = &pool->ring;
	uint64_t cached = cache->pushed - cache->popped;
	uint64_t in_ring = 0;

	*why = NULL;
	if (cached > PP_ALLOC_CACHE_SIZE)
		*why = "more pages cached than the cache holds";
	else if (!cache->capacity && cached)
		*why = "pages cached after destroy";
	else if (pool->stats_seq & 1)
		*why = "statistics left in the middle of a change";
	else if (cache->pushed < pool->stats.filled)
		*why = "recycle_cached is negative";
	else if (cache->popped < pool->stats.refill + pool->stats.slow + pool->stats.drained)
		*why = "alloc_fast is negative";
	else if (pool->frag_page && (pool->frag_page->owner != pool->owner || !pool->frag_users ||
				     pool->frag_offset > PP_PAGE_SIZE << pool->order))
		*why = "the page that is being cut up is not this pool's, or over-used";
	else if (ring->producer >= ring->size || ring->consumer_head >= ring->size ||
		 ring->consumer_tail > ring->consumer_head)
		*why = "a ring index is out of range";
	else if (ring->consumer_head - ring->consumer_tail >= ring->batch)
		*why = "more consumed slots are not cleared than a batch";
	if (*why || tier == PP_TIER_QUICK)
		return !*why;

	for (uint64_t i = 0; i < cached; i++) {
		const struct pp_page *page = pool->pages[i];

		if (page->owner != pool->owner)
			*why = "a cached page is not this pool's";
		else if ((page->ref & ~PP_REF_PFMEMALLOC) != PP_REF_ONE) /* may be, until used */
			*why = "a cached page is held by somebody, or in pieces";
		else if (page->state != PP_PAGE_OUT)
			*why = "a cached page is free in its provider";
		else if (pp_is_held(pool, page))
			*why = "a cached page is held by its user";
		for (uint64_t k = 0; k < i; k++)
			if (pool->pages[k] == page)
				*why = "a page is twice in the cache";
	}
	for (uint32_t i = 0; i < ring->size; i++) {
		const struct pp_page *page = ring->queue[i];

		/* Consumed and not cleared: somebody else's by now. */
		if (!page || (i >= ring->consumer_tail && i < ring->consumer_head))
			continue;
		in_ring++;
		if (page->owner != pool->owner)
			*why = "a page in the ring is not this pool's";
		else if (page->ref != PP_REF_ONE)
			*why = "a page in the ring is held by somebody";
		else if (page->state != PP_PAGE_OUT)
			*why = "a page in the ring is free in its provider";
		else if (pp_is_held(pool, page))
			*why = "a page in the ring is held by its user";
	}
	if ((int64_t)(cached + in_ring) > (int64_t)page_pool_inflight(pool))
		*why = "more pages in cache and ring than in flight";
	return !*why;
}
