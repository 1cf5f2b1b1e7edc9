/* SPDX-License-Identifier: BSD-2-Clause */
/* Checked mode, as far as every allocation and put goes through it: see check.c. */
#ifndef PP_CORE_CHECK_H
#define PP_CORE_CHECK_H

#include <string.h>
#include <time.h>

#include "page.h"

#define PP_POISON 0x5a
#define PP_POISON_QUICK 64 /* bytes, at the pool's offset; a page's offset leaves room for them */

struct pp_check_thread {
	const char *tag;
	uint32_t number; /* the system's; 0: not asked yet */
};
extern _Thread_local struct pp_check_thread pp_check_thread
	__attribute__((tls_model("initial-exec")));

PP_COLD uint32_t pp_check_ask_number(void);

static inline uint32_t pp_check_number(void)
{
	uint32_t number = pp_check_thread.number;

	return likely(number) ? number : pp_check_ask_number();
}

static inline struct pp_record *pp_record_of(const struct page_pool *pool,
					     const struct pp_page *page)
{
	return (struct pp_record *)((uintptr_t)page + pool->to_record);
}

static inline int64_t pp_check_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts); /* cannot fail with these arguments */
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* ---- contexts ---- */

/* With nobody in its napi, the consumer may be anywhere: a driver fills its rings before it polls.
 */
static inline bool pp_check_napi_elsewhere(const struct page_pool *pool)
{
	/* relaxed: see pp_napi_local(). */
	const struct pp_napi *napi = pp_load_relaxed(&pool->napi);
	uint64_t owner = pp_load_relaxed(&napi->owner);

	return owner != PP_NO_THREAD && owner != pp_thread_id;
}

PP_COLD void pp_check_not_consumer(struct page_pool *pool, const void *caller);

/*
 * Around a call that only the consumer may make. False: the caller is not, and was reported.
 * *before: for the leave.
 */
static inline bool pp_check_enter(struct page_pool *pool, const void *caller, uint64_t *before)
{
	uint32_t self = pp_check_number();

	/* relaxed: two threads that come in the same instant may miss each other; they will not
	 * for long. */
	*before = pp_load_relaxed(&pool->inside);
	if (unlikely(!pp_load_relaxed(&pool->cache.capacity) || pp_check_napi_elsewhere(pool) ||
		     (*before && *before != self))) {
		pp_check_not_consumer(pool, caller);
		return false;
	}
	pp_store_relaxed(&pool->inside, (uint64_t)self);
	return true;
}

static inline void pp_check_leave(struct page_pool *pool, uint64_t before)
{
	pp_store_relaxed(&pool->inside, before);
}

/* ---- poison ---- */

typedef uint64_t pp_poison_t __attribute__((vector_size(16), aligned(8), may_alias));

static inline bool pp_check_is_poison(const uint8_t *at)
{
	const pp_poison_t *p = (const pp_poison_t *)at;
	const uint64_t word = PP_POISON * 0x0101010101010101ull;
	const pp_poison_t want = {word, word};
	pp_poison_t diff = (p[0] ^ want) | (p[1] ^ want) | (p[2] ^ want) | (p[3] ^ want);

	return !(diff[0] | diff[1]);
}

static inline uint8_t *pp_check_poison_at(const struct page_pool *pool, const struct pp_page *page)
{
	return (uint8_t *)page->addr + pool->poison_offset;
}

/* Pages that are unreadable at a time, of all pools: one may cost two of the 65530 mappings that a
 * process has, and making one readable again may not fail for want of them. */
#define PP_SEALED_MAX 16384

/* The page is unreadable from now on, if it can be. */
void pp_check_seal(struct page_pool *pool, struct pp_page *page);
/* It can be read and written again; writes to it meanwhile are reported. caller: NULL: not looked
 * for. */
void pp_check_unseal(struct page_pool *pool, struct pp_page *page, struct pp_record *record,
		     const void *caller);
PP_COLD void pp_check_used(struct page_pool *pool, struct pp_page *page, const void *caller,
			   const uint8_t *start, size_t length);

/* ---- allocate and put ---- */

/* Consumer: the page is about to be handed out; piece: one of it is. */
static inline void pp_check_alloc(struct page_pool *pool, struct pp_page *page, const void *caller,
				  bool piece)
{
	struct pp_record *record = pp_record_of(pool, page);

	if (pp_load_relaxed(&record->poisoned)) {
		if (unlikely(pool->checked_full))
			pp_check_unseal(pool, page, record, caller);
		else if (unlikely(!pp_check_is_poison(pp_check_poison_at(pool, page))))
			pp_check_used(pool, page, caller, pp_check_poison_at(pool, page),
				      PP_POISON_QUICK);
		pp_store_relaxed(&record->poisoned, false);
	}
	/* relaxed, all: who reads the record of a page that is not his own takes what there is. */
	pp_store_relaxed(&record->alloc_caller, caller);
	pp_store_relaxed(&record->alloc_tag, pp_check_thread.tag);
	pp_store_relaxed(&record->alloc_ns, pp_check_ns());
	pp_store_relaxed(&record->alloc_thread, pp_check_number());
	pp_store_relaxed(&record->put_caller, NULL);
	pp_store_relaxed(&record->cut, piece);
	if (piece)
		/* A count; others take away from it. */
		pp_fetch_add_relaxed(&record->pieces, 1);
	else
		pp_store_relaxed(&record->pieces, 0u);
	/* release: page_pool_holders() that finds the page finds what is known of it. */
	pp_store_release(&record->pool, pool->id);
}

PP_COLD void pp_check_bad_put(struct page_pool *pool, struct pp_page *page, const void *caller);
PP_COLD void pp_check_bad_promise(struct page_pool *pool, struct pp_page *page, const void *caller);
/* False: more of them are put than were handed out. */
bool pp_check_put_piece(struct page_pool *pool, struct pp_page *page, const void *caller);

/* No piece of it is out. relaxed: as below. */
static inline bool pp_check_plain(const struct page_pool *pool, const struct pp_page *page)
{
	return !pp_load_relaxed(&pp_record_of(pool, page)->pieces);
}

/* May the promise of direct recycling be true, as far as one can tell? */
static inline bool pp_check_promise(const struct page_pool *pool)
{
	/* relaxed: as in pp_check_enter(). */
	uint64_t inside = pp_load_relaxed(&pool->inside);

	return !pp_check_napi_elsewhere(pool) && (!inside || inside == pp_check_number());
}

/*
 * Is this put right? Else it was reported. *here: it may be direct; made false if that promise is
 * broken, and that is reported.
 */
static inline bool pp_check_put(struct page_pool *pool, struct pp_page *page, const void *caller,
				bool promised, bool *here)
{
	/* relaxed: see page_pool_get_pp(). A dead pool's pages have no owner. */
	if (unlikely(pp_load_relaxed(&page->owner) != pool->owner || !pp_is_users(pool, page))) {
		pp_check_bad_put(pool, page, caller);
		return false;
	}
	/* relaxed: a piece's own put is ordered with its allocation by who hands it over. */
	if (unlikely(pp_load_relaxed(&page->ref) >> PP_REF_USER_SHIFT ||
		     !pp_check_plain(pool, page)) &&
	    !pp_check_put_piece(pool, page, caller))
		return false;
	if (promised && unlikely(!pp_check_promise(pool))) {
		pp_check_bad_promise(pool, page, caller);
		*here = false;
	}
	return true;
}

/* The last user has put the page. recycled: it goes into the cache or the ring. */
static inline void pp_check_was_put(struct page_pool *pool, struct pp_page *page,
				    const void *caller, bool recycled)
{
	struct pp_record *record = pp_record_of(pool, page);

	/* relaxed, all: as in pp_check_alloc(). */
	pp_store_relaxed(&record->put_tag, pp_check_thread.tag);
	pp_store_relaxed(&record->put_thread, pp_check_number());
	pp_store_relaxed(&record->put_caller, caller);
	if (!recycled)
		return;
	if (unlikely(pool->checked_full))
		memset(page->addr, PP_POISON, PP_PAGE_SIZE << pool->order);
	else
		memset(pp_check_poison_at(pool, page), PP_POISON, PP_POISON_QUICK);
	pp_store_relaxed(&record->poisoned, true);
}

/* It has been synced for the device, whose callback may have read it, and nobody needs it now. */
static inline void pp_check_close(struct page_pool *pool, struct pp_page *page)
{
	if (unlikely(pool->checked_full))
		pp_check_seal(pool, page);
}

/* The page leaves the pool, and is memory as any other. */
void pp_check_leaves(struct page_pool *pool, struct pp_page *page);

#endif
