/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pieces of pages. A page that is to be cut up gets more users than it can ever have pieces (the
 * bias), so handing out a piece touches nothing that others write. When the next piece does not
 * fit, the users that were never handed out are dropped in one step. Were all pieces back by then,
 * the page is used again at once; else the last piece to come back is the page.
 */
#include "check.h"

/* Pieces start on cache lines: two of them never share one. */
static size_t align(size_t size)
{
	return (size + PP_CACHELINE - 1) & ~(size_t)(PP_CACHELINE - 1);
}

/* The page is used up. True: all its pieces are back, and it is the consumer's alone. */
static bool drop_rest(struct page_pool *pool, struct pp_page *page)
{
	uint32_t rest = PP_FRAG_BIAS - pool->frag_users;
	/* relaxed: fewer than these are only left if pieces were put twice. */
	uint64_t users = pp_page_users_of(pp_load_relaxed(&page->ref));

	if (unlikely(users < rest)) {
		/* Then all are back, and more. relaxed: a counter. */
		pp_fetch_add_relaxed(&pool->refused, rest - users);
		pp_refused(pool->id, page->addr, rest - users);
		rest = (uint32_t)users;
	}
	if (!pp_page_drop_users(page, rest))
		return false; /* the pieces that are out will bring it back */
	if (pp_page_can_recycle(page))
		return true;
	/* Somebody holds it still, or it is from emergency reserves. */
	pp_pool_release(pool, page, true);
	return false;
}

static struct pp_page *cut_first(struct page_pool *pool, struct pp_page *page, size_t size)
{
	/* A device's callback may have begun another one since this call looked. */
	while (unlikely(pool->frag_page))
		pp_frag_drain(pool);
	pool->frag_page = page;
	pool->frag_offset = size;
	pool->frag_users = 1;
	/* relaxed: the page is the consumer's alone until it hands out the piece; but a holder of
	 * an earlier life could not be there, or it would not have been recycled. */
	pp_store_relaxed(&page->ref,
			 pp_load_relaxed(&page->ref) + (PP_FRAG_BIAS - 1) * PP_REF_USER);
	return page;
}

static inline struct pp_page *alloc_frag(struct page_pool *pool, size_t *offset, size_t size)
{
	size_t room = PP_PAGE_SIZE << pool->order;
	struct pp_page *page = pool->frag_page;
	uint64_t map_errors;

	if (unlikely(!size || size > room)) {
		pp_fail(-EINVAL, "a piece of %zu bytes: a page of pool %u has %zu", size, pool->id,
			room);
		return NULL;
	}
	size = align(size);
	if (likely(page && pool->frag_offset + size <= room)) {
		*offset = pool->frag_offset;
		pool->frag_offset += size;
		pool->frag_users++;
		return page;
	}
	if (page) {
		pool->frag_page = NULL;
		if (drop_rest(pool, page)) {
			/* As if it had been put into the cache and taken out. */
			pp_stats_begin(pool);
			pp_stats_add(&pool->stats.reused, 1);
			pp_stats_end(pool);
			pp_dma_sync_here(pool, page, UINT32_MAX);
			*offset = 0;
			return cut_first(pool, page, size);
		}
	}
	map_errors = pool->dma.map_errors;
	page = pp_pool_alloc(pool);
	if (!page) {
		/* The device has said why none could be mapped. */
		if (pool->dma.map_errors == map_errors)
			pp_fail(-ENOMEM, "pool %u has no page for a piece", pool->id);
		return NULL;
	}
	*offset = 0;
	return cut_first(pool, page, size);
}

static PP_NOINLINE struct pp_page *alloc_frag_checked(struct page_pool *pool, size_t *offset,
						      size_t size, const void *caller)
{
	struct pp_page *page;
	uint64_t before;

	if (!pp_check_enter(pool, caller, &before)) {
		pp_fail(-EPERM, "the caller is not the consumer of pool %u", pool->id);
		return NULL;
	}
	page = alloc_frag(pool, offset, size);
	if (page)
		pp_check_alloc(pool, page, caller, true);
	pp_check_leave(pool, before);
	return page;
}

struct pp_page *page_pool_alloc_frag(struct page_pool *pool, size_t *offset, size_t size)
{
	if (unlikely(pool->checked))
		return alloc_frag_checked(pool, offset, size, __builtin_return_address(0));
	return alloc_frag(pool, offset, size);
}

void pp_frag_drain(struct page_pool *pool)
{
	struct pp_page *page = pool->frag_page;

	pool->frag_page = NULL;
	if (page && drop_rest(pool, page))
		pp_pool_release(pool, page, true);
}
