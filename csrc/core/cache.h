/* SPDX-License-Identifier: BSD-2-Clause */
/* The cache's places: an array, or, with PP_LIST_CACHE, a list of which the top is known. */
#ifndef PP_CORE_CACHE_H
#define PP_CORE_CACHE_H

#include "list.h"

/* Consumer: n pages are cached, and this one comes on top. */
static inline void pp_cache_push(struct page_pool *pool, size_t n, struct pp_page *page)
{
	if (likely(!pool->list_cache)) {
		pool->pages[n] = page;
		return;
	}
	page->link = pool->cache_top;
	pool->cache_top = pp_link_to(pool, page);
}

/* Consumer: n pages are cached; the topmost. */
static inline struct pp_page *pp_cache_pop(struct page_pool *pool, size_t n)
{
	struct pp_page *page;

	if (likely(!pool->list_cache))
		return pool->pages[n - 1];
	page = pp_linked(pool, pool->cache_top);
	pool->cache_top = page->link;
	return page;
}

#endif
