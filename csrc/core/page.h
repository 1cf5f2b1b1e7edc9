/* SPDX-License-Identifier: BSD-2-Clause */
/* A page's references, and its way back to the provider. */
#ifndef PP_CORE_PAGE_H
#define PP_CORE_PAGE_H

#include "magazine.h"

static inline void pp_page_set_state(struct pp_page *page, enum pp_page_state state)
{
	/* relaxed: only pp_provider_page() reads another's, to tell free from handed out. */
	pp_store_relaxed(&page->state, (uint8_t)state);
}

/*
 * Nobody else holds it and it may be recycled.
 * acquire: pairs with the release of a holder that has let go, so that its writes to the page come
 * before the next user's.
 */
static inline bool pp_page_can_recycle(const struct pp_page *page)
{
	return likely(pp_load_acquire(&page->ref) == PP_REF_ONE);
}

static inline void pp_arena_free(struct pp_arena *arena, struct pp_page *page)
{
	pp_page_set_state(page, PP_PAGE_IDLE);
	if (likely(page->order == 0) && likely(pp_magazine_give(arena, page)))
		return;
	pp_arena_free_locked(arena, page);
}

/* The holder lets go. */
static inline void pp_page_drop(struct pp_page *page)
{
	struct pp_provider *provider = page->provider;
	uint64_t ref = pp_load_acquire(&page->ref) & PP_REF_COUNT_MASK;

	/*
	 * acquire above: pairs with the release half of the others' fetch_sub, so that their writes
	 * to the page come before its next use. If this holder is the only one left, nobody can
	 * change the count any more, and the locked operation is spared.
	 */
	if (ref != PP_REF_ONE)
		/* acq_rel: release for what this holder wrote; acquire if it turns out the last. */
		ref = pp_fetch_sub_acq_rel(&page->ref, PP_REF_ONE) & PP_REF_COUNT_MASK;
	if (ref != PP_REF_ONE)
		return;
	if (likely(provider->ops == &pp_arena_ops)) /* a direct call instead of an indirect one */
		pp_arena_free((struct pp_arena *)provider, page);
	else
		provider->ops->free(provider, page);
}

#endif
