/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The design "list": pages linked through their metadata, under the producers' lock, where the ring
 * design has an array; and the cache as such a list. As the second half of a patch series to the
 * kernel has it, each of its three steps by itself: see PP_DESIGN_LIST.
 */
#ifndef PP_CORE_LIST_H
#define PP_CORE_LIST_H

#include "types.h"

static inline uint32_t pp_link_to(const struct page_pool *pool, const struct pp_page *page)
{
	return (uint32_t)(page - pool->all) + 1;
}

static inline struct pp_page *pp_linked(const struct page_pool *pool, uint32_t link)
{
	return &pool->all[link - 1];
}

/* Under the ring's lock. As many of the n pages as there is room for; how many. */
static inline size_t pp_list_produce(struct page_pool *pool, struct pp_page **pages, size_t n)
{
	struct pp_ring *r = &pool->ring;
	size_t in;

	for (in = 0; in < n && r->listed + in < r->size; in++) {
		uint32_t link = pp_link_to(pool, pages[in]);

		pages[in]->link = 0;
		if (r->last)
			pp_linked(pool, r->last)->link = link;
		else
			r->first = link;
		r->last = link;
	}
	/* relaxed: read outside of the lock only to see whether there is anything. */
	pp_store_relaxed(&r->listed, r->listed + (uint32_t)in);
	return in;
}

/* Under the ring's lock: the oldest page; NULL: none. */
static inline struct pp_page *pp_list_pop(struct page_pool *pool)
{
	struct pp_ring *r = &pool->ring;
	struct pp_page *page;

	if (!r->first)
		return NULL;
	page = pp_linked(pool, r->first);
	r->first = page->link;
	if (!r->first)
		r->last = 0;
	/* relaxed: as above. */
	pp_store_relaxed(&r->listed, r->listed - 1);
	return page;
}

/* Consumer: up to n pages into pages[]; how many. *wrong: one of another node, which ends it; it
 * comes on top. */
static inline size_t pp_list_consume(struct page_pool *pool, size_t n, struct pp_page **pages,
				     struct pp_page **wrong)
{
	struct pp_ring *r = &pool->ring;
	bool batch = pool->design & PP_LIST_BATCH;
	int nid = pool->nid;
	size_t got = 0;

	/* relaxed: a page that comes this very moment may as well come later. */
	while (got < n && pp_load_relaxed(&r->listed)) {
		struct pp_page *page;

		pp_spin_lock(&r->lock);
		do {
			page = pp_list_pop(pool);
			if (!page)
				break;
			if (unlikely(nid != PP_NUMA_NO_NODE && page->nid != nid)) {
				*wrong = page;
				break;
			}
			pages[got++] = page;
		} while (batch && got < n);
		pp_spin_unlock(&r->lock);
		if (batch || *wrong || !page)
			break;
	}
	return got;
}

#endif
