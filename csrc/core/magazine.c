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
#include "arena.h"

#include <stdlib.h>
#include <string.h>

#include "../base/biased_lock.h"

#define MAGAZINE_SIZE 128
#define MAGAZINE_FLUSH 64

struct pp_magazine {
	struct pp_biased_lock lock;
	uint32_t count;         /* pages in it; inside the lock, read by anyone, atomic */
	struct pp_arena *arena; /* NULL: the arena is gone; remote side writes, atomic */
	struct pp_magazine *next_of_arena;
	struct pp_magazine *next_of_thread;
	struct pp_page *pages[MAGAZINE_SIZE];
};

#define SLOTS 8

/* The calling thread's magazines. */
struct thread_magazines {
	struct pp_magazine *slot[SLOTS]; /* the last used, by arena id */
	struct pp_magazine *all;
	bool over; /* the thread is exiting, or this machine cannot: no magazines */
};

static _Thread_local struct thread_magazines mine __attribute__((tls_model("initial-exec")));
static pthread_mutex_t magazines_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t thread_exit_key;
static bool have_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Both locks held, or the arena cannot be reached by others. */
static void flush(struct pp_arena *arena, struct pp_magazine *m, uint32_t n)
{
	pthread_mutex_lock(&arena->lock);
	for (uint32_t i = 0; i < n; i++)
		pp_arena_give(arena, m->pages[i]);
	pthread_mutex_unlock(&arena->lock);
	memmove(m->pages, m->pages + n, (m->count - n) * sizeof(m->pages[0]));
	pp_store_relaxed(&m->count, m->count - n);
}

static void unlink_from_arena(struct pp_arena *arena, struct pp_magazine *m)
{
	struct pp_magazine **link = &arena->magazines;

	while (*link != m)
		link = &(*link)->next_of_arena;
	*link = m->next_of_arena;
}

/* The thread exits: no owner is inside, and magazines_lock keeps remote sides away. */
static void thread_exits(void *arg)
{
	struct thread_magazines *t = arg;

	pthread_mutex_lock(&magazines_lock);
	while (t->all) {
		struct pp_magazine *m = t->all;

		t->all = m->next_of_thread;
		if (m->arena) {
			flush(m->arena, m, m->count);
			unlink_from_arena(m->arena, m);
		}
		free(m);
	}
	pthread_mutex_unlock(&magazines_lock);
	memset(t->slot, 0, sizeof(t->slot));
	t->over = true;
}

/* In the child the parent's arenas may be locked for ever: forget them. */
static void after_fork(void)
{
	pthread_mutex_init(&magazines_lock, NULL);
	memset(&mine, 0, sizeof(mine));
}

static void init(void)
{
	have_key = pp_biased_lock_available() && pthread_atfork(NULL, NULL, after_fork) == 0 &&
		   pthread_key_create(&thread_exit_key, thread_exits) == 0;
}

/* This thread has none for the arena yet: make one. NULL: none to be had. */
static PP_COLD struct pp_magazine *create(struct pp_arena *arena)
{
	struct pp_magazine *m;

	pthread_once(&once, init);
	if (mine.over || !have_key || pthread_setspecific(thread_exit_key, &mine)) {
		mine.over = true;
		return NULL;
	}
	pthread_mutex_lock(&magazines_lock);
	/* One whose arena is gone will do. relaxed: written under the same lock. */
	for (m = mine.all; m && pp_load_relaxed(&m->arena); m = m->next_of_thread)
		;
	/* A closing arena gets no more; under magazines_lock, so its drain has yet to come or has
	 * been, and both find closing set. */
	if (pp_load_relaxed(&arena->closing)) {
		m = NULL;
	} else {
		if (!m) {
			m = pp_sys_aligned_zalloc(PP_CACHELINE, sizeof(*m));
			if (m) {
				m->next_of_thread = mine.all;
				mine.all = m;
			}
		}
		if (m) {
			m->next_of_arena = arena->magazines;
			arena->magazines = m;
			pp_store_relaxed(&m->arena, arena);
		}
	}
	pthread_mutex_unlock(&magazines_lock);
	return m;
}

static PP_NOINLINE struct pp_magazine *find_slow(struct pp_arena *arena)
{
	struct pp_magazine *m;

	if (mine.over)
		return NULL;
	/* relaxed: see find(). */
	for (m = mine.all; m && pp_load_relaxed(&m->arena) != arena; m = m->next_of_thread)
		;
	if (!m)
		m = create(arena);
	if (m)
		mine.slot[arena->id % SLOTS] = m;
	return m;
}

/* The calling thread's magazine for the arena, entered; NULL: not to be had now. */
static inline struct pp_magazine *enter(struct pp_arena *arena)
{
	struct pp_magazine *m = mine.slot[arena->id % SLOTS];

	/* relaxed: the caller holds the arena (by a page or a reference), so if it says arena it is
	 * this very one; whether it still is, is asked again inside. */
	if (unlikely(!m || pp_load_relaxed(&m->arena) != arena)) {
		m = find_slow(arena);
		if (!m)
			return NULL;
	}
	if (unlikely(!pp_biased_enter(&m->lock)))
		return NULL;
	if (likely(pp_load_relaxed(&m->arena) == arena))
		return m;
	pp_biased_leave(&m->lock);
	return NULL;
}

size_t pp_magazine_take(struct pp_arena *arena, size_t n, struct pp_page **pages)
{
	struct pp_magazine *m = enter(arena);
	size_t left;

	if (!m)
		return 0;
	if (n > m->count)
		n = m->count;
	left = m->count - n;
	for (size_t i = 0; i < n; i++) {
		pages[i] = m->pages[left + i];
		pages[i]->ref = PP_REF_ONE;
	}
	pp_store_relaxed(&m->count, (uint32_t)left);
	pp_biased_leave(&m->lock);
	return n;
}

bool pp_magazine_give(struct pp_arena *arena, struct pp_page *page)
{
	struct pp_magazine *m = enter(arena);

	if (unlikely(!m))
		return false;
	if (unlikely(m->count == MAGAZINE_SIZE))
		flush(arena, m, MAGAZINE_FLUSH);
	m->pages[m->count] = page;
	/* relaxed: others only estimate with it. */
	pp_store_relaxed(&m->count, m->count + 1);
	pp_biased_leave(&m->lock);
	return true;
}

bool pp_magazines_drain(struct pp_arena *arena, bool detach)
{
	bool all = true;

	pthread_mutex_lock(&magazines_lock);
	for (struct pp_magazine **link = &arena->magazines; *link;) {
		struct pp_magazine *m = *link;

		if (!pp_biased_lock_remote(&m->lock)) {
			all = false;
			link = &m->next_of_arena;
			continue;
		}
		flush(arena, m, m->count);
		if (detach) {
			*link = m->next_of_arena;
			pp_store_relaxed(&m->arena, NULL);
		} else {
			link = &m->next_of_arena;
		}
		pp_biased_unlock_remote(&m->lock);
	}
	pthread_mutex_unlock(&magazines_lock);
	return all;
}

uint64_t pp_magazines_count(struct pp_arena *arena)
{
	uint64_t count = 0;

	pthread_mutex_lock(&magazines_lock);
	for (struct pp_magazine *m = arena->magazines; m; m = m->next_of_arena)
		count += pp_load_relaxed(&m->count);
	pthread_mutex_unlock(&magazines_lock);
	return count;
}
