/* SPDX-License-Identifier: BSD-2-Clause */
/* Magazines: the slow side of magazine.h. */
#include "magazine.h"

#include <stdlib.h>
#include <string.h>

_Thread_local struct pp_thread_magazines pp_my_magazines;

static pthread_mutex_t magazines_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t thread_exit_key;
static bool have_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Whoever has the magazine to itself, from within the lock or with the owner gone: its n oldest
 * pages go back to the arena. */
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
	struct pp_thread_magazines *t = arg;

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
	t->last_arena = NULL;
	t->last = NULL;
	t->over = true;
}

/* In the child the parent's arenas may be locked for ever: forget them. */
static void after_fork(void)
{
	pthread_mutex_init(&magazines_lock, NULL);
	memset(&pp_my_magazines, 0, sizeof(pp_my_magazines));
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
	if (pp_my_magazines.over || !have_key ||
	    pthread_setspecific(thread_exit_key, &pp_my_magazines)) {
		pp_my_magazines.over = true;
		return NULL;
	}
	pthread_mutex_lock(&magazines_lock);
	/* One whose arena is gone will do. relaxed: written under the same lock. */
	for (m = pp_my_magazines.all; m && pp_load_relaxed(&m->arena); m = m->next_of_thread)
		;
	/* A closing arena gets no more. Under magazines_lock: if its drain has been, this sees that
	 * it is closing; if the drain has yet to come, it empties what is made here.
	 * relaxed: ordered by that lock. */
	if (pp_load_relaxed(&arena->life) != PP_ARENA_OPEN) {
		m = NULL;
	} else {
		if (!m) {
			m = pp_sys_aligned_zalloc(PP_CACHELINE, sizeof(*m));
			if (m) {
				m->next_of_thread = pp_my_magazines.all;
				pp_my_magazines.all = m;
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

struct pp_magazine *pp_magazine_find(struct pp_arena *arena)
{
	struct pp_magazine *m;

	if (pp_my_magazines.over)
		return NULL;
	/* relaxed: see pp_magazine_enter(). */
	for (m = pp_my_magazines.all; m && pp_load_relaxed(&m->arena) != arena;
	     m = m->next_of_thread)
		;
	if (!m)
		m = create(arena);
	if (m) {
		pp_my_magazines.last_arena = arena;
		pp_my_magazines.last = m;
	}
	return m;
}

size_t pp_magazine_take(struct pp_arena *arena, size_t n, struct pp_page **pages)
{
	struct pp_magazine *m = pp_magazine_enter(arena);
	size_t left;

	if (!m)
		return 0;
	if (n > m->count)
		n = m->count;
	left = m->count - n;
	for (size_t i = 0; i < n; i++) {
		pages[i] = m->pages[left + i];
		/* relaxed: see take() in arena.c. */
		pp_store_relaxed(&pages[i]->ref, PP_REF_ONE);
	}
	pp_store_relaxed(&m->count, (uint32_t)left);
	pp_biased_leave(&m->lock);
	return n;
}

void pp_magazine_flush(struct pp_arena *arena, struct pp_magazine *m)
{
	flush(arena, m, PP_MAGAZINE_FLUSH);
}

bool pp_magazines_drain(struct pp_arena *arena, bool detach)
{
	bool all = true;

	pthread_mutex_lock(&magazines_lock);
	for (struct pp_magazine **link = &arena->magazines; *link;) {
		struct pp_magazine *m = *link;

		/* relaxed: a page that comes the next moment is missed, as if it came after. */
		if (!detach && !pp_load_relaxed(&m->count)) {
			link = &m->next_of_arena;
			continue;
		}
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
