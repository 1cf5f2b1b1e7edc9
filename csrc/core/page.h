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

/* ---- held: see struct pp_provider. For pages of the pool only (owner), or it is not its provider.
 * ---- */

static inline uint16_t *pp_held(const struct page_pool *pool, const struct pp_page *page)
{
	_Static_assert(sizeof(struct pp_page) == 64 && sizeof(*pool->provider->held) == 2,
		       "a shift by 6 numbers the pages, by 5 their words");
	return (uint16_t *)(pool->held_base + ((uintptr_t)page >> 5));
}

/*
 * Consumer, when it hands the page out. stamp: another one than the last time, for as long as may
 * be. relaxed, as below: it goes to whoever puts the page together with the page.
 */
static inline void pp_held_set(const struct page_pool *pool, const struct pp_page *page,
			       uint64_t stamp)
{
	pp_store_relaxed(pp_held(pool, page), (uint16_t)(stamp << PP_HELD_STAMP_SHIFT | PP_HELD));
}

static inline bool pp_is_held(const struct page_pool *pool, const struct pp_page *page)
{
	return pp_load_relaxed(pp_held(pool, page));
}

/* It is not on its way either. */
static inline bool pp_is_users(const struct page_pool *pool, const struct pp_page *page)
{
	return pp_load_relaxed(pp_held(pool, page)) & PP_HELD;
}

static inline void pp_held_clear(const struct page_pool *pool, const struct pp_page *page)
{
	pp_store_relaxed(pp_held(pool, page), (uint16_t)PP_NOT_HELD);
}

/* The user gives the page back. False: he had done so before. */
static inline bool pp_take_back(const struct page_pool *pool, const struct pp_page *page)
{
	if (unlikely(!pp_is_held(pool, page)))
		return false;
	pp_held_clear(pool, page);
	return true;
}

/*
 * The same, of an allocation of which only the word is known, and by who is not the consumer and
 * has no lock that the others would have to take.
 */
static inline bool pp_take_back_of(const struct page_pool *pool, const struct pp_page *page,
				   uint16_t held)
{
	/* acq_rel: no weaker form; of all who try one gets it. */
	return pp_cas_acq_rel(pp_held(pool, page), &held, (uint16_t)PP_NOT_HELD);
}

/*
 * The same in two steps, for pages that have a way to go before cache or ring have them: one that
 * was found to be held is so by nobody who may put it from here on. False: somebody was faster.
 * here: in the consumer's context.
 */
static inline bool pp_start_back(const struct page_pool *pool, const struct pp_page *page,
				 bool here)
{
	/* relaxed: as above. */
	uint16_t held = pp_load_relaxed(pp_held(pool, page));
	uint16_t going = (uint16_t)(held ^ (PP_HELD | PP_HELD_GOING));

	if (here) {
		/* As in pp_take_back(): no other thread is to put it at this moment. */
		pp_store_relaxed(pp_held(pool, page), going);
		return true;
	}
	/* acq_rel: no weaker form; of two threads one gets it. A plain store of the slower one
	 * might come after the ring has taken the page back, and make it held again. */
	return held & PP_HELD && pp_cas_acq_rel(pp_held(pool, page), &held, going);
}

/* ---- users and holders ---- */

static inline uint64_t pp_page_users_of(uint64_t ref)
{
	return (ref >> PP_REF_USER_SHIFT) + 1;
}

/*
 * n users let go. True: they were the last, the page has one user again, and the caller is the only
 * one with a claim to it but for its holders.
 */
static inline bool pp_page_drop_users(struct pp_page *page, uint64_t n)
{
	/* acquire: pairs with the release of the others below, whose writes to their pieces come
	 * before the page's next use. */
	uint64_t ref = pp_load_acquire(&page->ref);

	if (pp_page_users_of(ref) == n) {
		/* Nobody else is left to change the users; the holders may still change theirs.
		 * relaxed: nothing is handed over. */
		if (n != 1)
			pp_fetch_add_relaxed(&page->ref, -(n - 1) * PP_REF_USER);
		return true;
	}
	/* acq_rel: release for what this user wrote; acquire if it turns out the last. */
	ref = pp_fetch_sub_acq_rel(&page->ref, n * PP_REF_USER);
	if (pp_page_users_of(ref) != n)
		return false;
	/* The last after all: from none to one. relaxed: as above. */
	pp_fetch_add_relaxed(&page->ref, PP_REF_USER);
	return true;
}

/* Everything else than the next function; may look again at what that has found. */
void pp_page_free_slow(struct pp_page *page);

/* The hot case is whole and ends here, the rest is one tail call: so no register is saved. */
static inline void pp_page_free(struct pp_page *page)
{
	struct pp_arena *arena = (struct pp_arena *)page->provider;
	struct pp_magazine *m = pp_my_magazines.last;

	if (likely(pp_my_magazines.last_arena == arena && page->order == 0) &&
	    likely(pp_biased_enter(&m->lock))) {
		uint32_t n = m->count;

		if (likely(pp_load_relaxed(&m->arena) == arena && n < PP_MAGAZINE_SIZE)) {
			pp_page_set_state(page, PP_PAGE_IDLE);
			m->pages[n] = page;
			pp_store_relaxed(&m->count, n + 1);
			pp_biased_leave(&m->lock);
			return;
		}
		pp_biased_leave(&m->lock);
	}
	pp_page_free_slow(page);
}

/* The holder lets go. */
static inline void pp_page_drop(struct pp_page *page)
{
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
	pp_page_free(page);
}

/* The page is counted out of its pool: give the pool's reference back. */
static inline void pp_page_leave(struct pp_page *page)
{
	/* relaxed: the page is this caller's alone as far as its pool goes; other holders have no
	 * claim to the pool. */
	pp_store_relaxed(&page->owner, 0);
	pp_page_drop(page);
}

#endif
