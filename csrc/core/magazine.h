/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Magazines: a thread's own stack of free pages of an arena, as the kernel's page allocator has one
 * per CPU. Taking and giving cost no locked operation; a full one goes back by half, an empty one
 * is filled by what the thread itself frees.
 *
 * Who owns what: a magazine belongs to its thread until that exits. Its content is the thread's
 * inside the biased lock; whoever wants to empty it from outside (the arena is closing or out of
 * pages) takes the remote side. The lists are under magazines_lock, which comes before the arena's.
 */
#ifndef PP_CORE_MAGAZINE_H
#define PP_CORE_MAGAZINE_H

#include "../base/biased_lock.h"
#include "arena.h"

#define PP_MAGAZINE_SIZE 128
#define PP_MAGAZINE_FLUSH 64

struct pp_magazine {
	struct pp_biased_lock lock;
	uint32_t count;         /* pages in it; inside the lock, read by anyone, atomic */
	struct pp_arena *arena; /* NULL: the arena is gone; remote side writes, atomic */
	struct pp_magazine *next_of_arena;
	struct pp_magazine *next_of_thread;
	struct pp_page *pages[PP_MAGAZINE_SIZE];
};

/* The calling thread's magazines. */
struct pp_thread_magazines {
	struct pp_arena *last_arena; /* a guess, so that nothing waits for a load of the arena */
	struct pp_magazine *last;
	struct pp_magazine *all;
	bool over; /* the thread is exiting, or this machine cannot: no magazines */
};

extern _Thread_local struct pp_thread_magazines pp_my_magazines
	__attribute__((tls_model("initial-exec")));

/* The calling thread's magazine for the arena, made if need be; NULL: none to be had. */
PP_COLD struct pp_magazine *pp_magazine_find(struct pp_arena *arena);
/* Inside: half of it goes back to the arena. */
PP_COLD void pp_magazine_flush(struct pp_arena *arena, struct pp_magazine *m);

/* The calling thread's: up to n pages out of it; how many. */
size_t pp_magazine_take(struct pp_arena *arena, size_t n, struct pp_page **pages);
/* All threads' magazines go back to the arena; detach: and are no more its own. False: not all. */
bool pp_magazines_drain(struct pp_arena *arena, bool detach);
/* Pages in all magazines, roughly. */
uint64_t pp_magazines_count(struct pp_arena *arena);

/* The calling thread's magazine for the arena, entered; NULL: not to be had now. */
static inline struct pp_magazine *pp_magazine_enter(struct pp_arena *arena)
{
	struct pp_magazine *m;

	/* relaxed: the caller holds the arena (by a page or a reference), so if the magazine says
	 * arena it is this very one. Only inside is that sure to last. */
	if (likely(pp_my_magazines.last_arena == arena)) {
		m = pp_my_magazines.last;
		if (unlikely(!pp_biased_enter(&m->lock)))
			return NULL;
		if (likely(pp_load_relaxed(&m->arena) == arena))
			return m;
		pp_biased_leave(&m->lock);
	}
	m = pp_magazine_find(arena);
	if (!m || !pp_biased_enter(&m->lock))
		return NULL;
	if (likely(pp_load_relaxed(&m->arena) == arena))
		return m;
	pp_biased_leave(&m->lock);
	return NULL;
}

/* False: there is no magazine to be had, the page is still the caller's. */
static inline bool pp_magazine_give(struct pp_arena *arena, struct pp_page *page)
{
	struct pp_magazine *m = pp_magazine_enter(arena);
	uint32_t n;

	if (unlikely(!m))
		return false;
	if (unlikely(m->count == PP_MAGAZINE_SIZE))
		pp_magazine_flush(arena, m);
	n = m->count;
	m->pages[n] = page;
	/* relaxed: others only estimate with it. */
	pp_store_relaxed(&m->count, n + 1);
	pp_biased_leave(&m->lock);
	return true;
}

#endif
