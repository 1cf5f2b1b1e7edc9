/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checked mode: each page's last allocation and put are on record, and misuse is found, refused and
 * reported with both. It costs a few nanoseconds a page, all of them in pools that were asked to.
 *
 * A page in the pool is poisoned, and looked at when it is handed out again. That finds a write;
 * PP_FLAG_CHECKED_FULL finds a read too, since the page cannot be.
 *
 * The pool's memory outlives it for a while (the burial ground), so that a put into a dead pool
 * finds that written there.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "page.h"

#define POISON 0x5a
#define POISON_QUICK 64 /* bytes, at the pool's offset */

unsigned pp_check_flags(void)
{
	const char *value = secure_getenv("PAGEPOOL_CHECKED");

	if (!value || !*value || !strcmp(value, "0"))
		return 0;
	return PP_FLAG_CHECKED | (strcmp(value, "full") ? 0 : PP_FLAG_CHECKED_FULL);
}

/* ---- records ----------------------------------------------------------------------------------
 */

static struct pp_record *record_of(const struct page_pool *pool, const struct pp_page *page)
{
	const struct pp_provider *provider = pool->provider;

	return (struct pp_record *)((uintptr_t)provider->records +
				    ((uintptr_t)page - (uintptr_t)provider->pages));
}

int pp_check_init(struct page_pool *pool)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int err;

	/* A fork in the middle of this leaves it locked in the child, whose own pools have
	 * providers of its own; none of the parent's may be used there. */
	pthread_mutex_lock(&lock);
	err = pp_provider_reserve_records(pool->provider);
	pthread_mutex_unlock(&lock);
	return err ? pp_fail(err, "no address space for the records of a checked pool") : 0;
}

/* ---- sites ------------------------------------------------------------------------------------
 */

static _Thread_local const char *thread_tag;
static _Thread_local uint32_t thread_number;

const char *page_pool_set_tag(const char *tag)
{
	const char *before = thread_tag;

	thread_tag = tag;
	return before;
}

static PP_COLD uint32_t ask_thread_number(void)
{
	return thread_number = (uint32_t)syscall(SYS_gettid);
}

static inline uint32_t this_thread(void)
{
	return likely(thread_number) ? thread_number : ask_thread_number();
}

static int64_t coarse_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts); /* cannot fail with these arguments */
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static struct pp_site site_here(const void *caller)
{
	return (struct pp_site){caller, thread_tag, coarse_ns(), this_thread()};
}

/* relaxed, all four: who reads a record of a page that is not his own takes what there is. */
static void note_alloc(struct pp_record *r, const void *caller)
{
	pp_store_relaxed(&r->alloc_caller, caller);
	pp_store_relaxed(&r->alloc_tag, thread_tag);
	pp_store_relaxed(&r->alloc_ns, coarse_ns());
	pp_store_relaxed(&r->alloc_thread, this_thread());
	pp_store_relaxed(&r->put_caller, NULL);
}

static void note_put(struct pp_record *r, const void *caller)
{
	pp_store_relaxed(&r->put_tag, thread_tag);
	pp_store_relaxed(&r->put_thread, this_thread());
	pp_store_relaxed(&r->put_caller, caller);
}

static struct pp_site allocated(const struct pp_record *r)
{
	return (struct pp_site){pp_load_relaxed(&r->alloc_caller), pp_load_relaxed(&r->alloc_tag),
				pp_load_relaxed(&r->alloc_ns), pp_load_relaxed(&r->alloc_thread)};
}

static struct pp_site put(const struct pp_record *r)
{
	return (struct pp_site){pp_load_relaxed(&r->put_caller), pp_load_relaxed(&r->put_tag), 0,
				pp_load_relaxed(&r->put_thread)};
}

/* ---- reports ----------------------------------------------------------------------------------
 */

static pthread_mutex_t report_lock = PTHREAD_MUTEX_INITIALIZER;
static page_pool_report_fn report_fn;
static void *report_ctx;

void page_pool_set_report(page_pool_report_fn fn, void *ctx)
{
	pthread_mutex_lock(&report_lock);
	report_fn = fn;
	report_ctx = ctx;
	pthread_mutex_unlock(&report_lock);
}

/* " by thread 12 at receive+0x40 (rx) [refill]" */
static size_t add_site(char *text, size_t size, const char *what, const struct pp_site *site)
{
	Dl_info info;
	int n;

	if (!site->caller)
		return 0;
	n = snprintf(text, size, "%s by thread %u at ", what, site->thread);
	if (n > 0 && (size_t)n < size) {
		text += n;
		size -= (size_t)n;
	}
	/* No symbol: where in which file, as addr2line takes it. */
	if (!dladdr(site->caller, &info) || !info.dli_fname)
		snprintf(text, size, "%p", site->caller);
	else if (info.dli_sname)
		snprintf(text, size, "%s+0x%zx", info.dli_sname,
			 (size_t)((const char *)site->caller - (const char *)info.dli_saddr));
	else
		snprintf(text, size, "%s+0x%zx", info.dli_fname,
			 (size_t)((const char *)site->caller - (const char *)info.dli_fbase));
	n += (int)strlen(text);
	if (site->tag) {
		size_t used = strlen(text);

		snprintf(text + used, size - used, " [%s]", site->tag);
		n += (int)strlen(text + used);
	}
	return (size_t)n;
}

static PP_COLD void report(struct page_pool *pool, struct pp_report *r, const char *what)
{
	char text[512], page[64] = "";
	page_pool_report_fn fn;
	size_t used;
	void *ctx;

	r->pool = pool->id;
	if (r->page)
		snprintf(page, sizeof(page), r->address ? " of the page at %p" : " of page %p",
			 r->address ? r->address : (const void *)r->page);
	used = (size_t)snprintf(text, sizeof(text), "page_pool: pool %u: %s%s", pool->id, what,
				page);
	used += add_site(text + used, sizeof(text) - used, ", found", &r->now);
	used += add_site(text + used, sizeof(text) - used, "; allocated", &r->allocated);
	add_site(text + used, sizeof(text) - used, "; put", &r->put);
	r->text = text;

	pthread_mutex_lock(&report_lock);
	fn = report_fn;
	ctx = report_ctx;
	pthread_mutex_unlock(&report_lock);
	if (fn)
		fn(ctx, r);
	else
		pp_log("%s", text);
}

/* About a page that is known to the pool's provider. */
static PP_COLD void report_page(struct page_pool *pool, const struct pp_page *page,
				const void *caller, enum pp_report_kind kind, size_t offset,
				const char *what)
{
	const struct pp_record *record = record_of(pool, page);
	struct pp_report r = {
		.kind = kind,
		.page = page,
		.address = page->addr,
		.offset = offset,
		.now = site_here(caller),
		.allocated = allocated(record),
		.put = put(record),
	};

	report(pool, &r, what);
}

static PP_COLD void report_call(struct page_pool *pool, const void *caller,
				enum pp_report_kind kind, const char *what)
{
	struct pp_report r = {.kind = kind, .now = site_here(caller)};

	report(pool, &r, what);
}

/* ---- contexts ---------------------------------------------------------------------------------
 */

/* With nobody in its napi, the consumer may be anywhere: a driver fills its rings before it polls.
 */
static bool napi_elsewhere(const struct page_pool *pool)
{
	/* relaxed: see pp_napi_local(). */
	const struct pp_napi *napi = pp_load_relaxed(&pool->napi);
	uint64_t owner = pp_load_relaxed(&napi->owner);

	return owner != PP_NO_THREAD && owner != pp_thread_id;
}

bool pp_check_enter(struct page_pool *pool, const void *caller, uint64_t *before)
{
	uint32_t self = this_thread();
	char what[128];

	if (pp_load_relaxed(&pool->dead) || !pp_load_relaxed(&pool->cache.capacity)) {
		report_call(pool, caller, PP_REPORT_DEAD_POOL,
			    "a consumer's call into a pool that was destroyed");
		return false;
	}
	if (unlikely(napi_elsewhere(pool))) {
		report_call(pool, caller, PP_REPORT_WRONG_CONTEXT,
			    "a consumer's call while another thread is in the pool's napi");
		return false;
	}
	/* relaxed: two threads that come in the same instant may miss each other; they will not
	 * for long. */
	*before = pp_load_relaxed(&pool->inside);
	if (unlikely(*before && *before != self)) {
		snprintf(what, sizeof(what), "a consumer's call while thread %u is in another",
			 (uint32_t)*before);
		report_call(pool, caller, PP_REPORT_WRONG_CONTEXT, what);
		return false;
	}
	pp_store_relaxed(&pool->inside, (uint64_t)self);
	return true;
}

void pp_check_leave(struct page_pool *pool, uint64_t before)
{
	pp_store_relaxed(&pool->inside, before);
}

/* ---- poison -----------------------------------------------------------------------------------
 */

static void range(const struct page_pool *pool, const struct pp_page *page, uint8_t **start,
		  size_t *length)
{
	size_t room = PP_PAGE_SIZE << pool->order;

	*start = page->addr;
	*length = room;
	if (!pool->checked_full) {
		*start += pool->dma.offset;
		*length = room - pool->dma.offset < POISON_QUICK ? room - pool->dma.offset
								 : POISON_QUICK;
	}
}

static void poison(struct page_pool *pool, struct pp_page *page, struct pp_record *record)
{
	uint8_t *start;
	size_t length;

	range(pool, page, &start, &length);
	memset(start, POISON, length);
	pp_store_relaxed(&record->poisoned, true);
	/* Where it cannot be (huge pages; too many mappings of the process), the poison does. */
	if (pool->checked_full && !pp_sys_unreadable(page->addr, PP_PAGE_SIZE << pool->order, true))
		pp_store_relaxed(&record->unreadable, true);
}

/* It can be read and written again. */
static void unseal(struct page_pool *pool, struct pp_page *page, struct pp_record *record)
{
	if (likely(!pp_load_relaxed(&record->unreadable)))
		return;
	/* The system may need memory to split its own notes: there is no way on without. */
	while (pp_sys_unreadable(page->addr, PP_PAGE_SIZE << pool->order, false))
		sched_yield();
	pp_store_relaxed(&record->unreadable, false);
}

static void check_poison(struct page_pool *pool, struct pp_page *page, struct pp_record *record,
			 const void *caller)
{
	uint64_t want, got;
	size_t length, i;
	uint8_t *start;

	if (!pp_load_relaxed(&record->poisoned))
		return;
	pp_store_relaxed(&record->poisoned, false);
	range(pool, page, &start, &length);
	memset(&want, POISON, sizeof(want));
	for (i = 0; i < length; i += sizeof(got)) {
		memcpy(&got, start + i, sizeof(got));
		if (unlikely(got != want))
			break;
	}
	if (likely(i >= length))
		return;
	while (start[i] == POISON)
		i++;
	i += (size_t)(start - (uint8_t *)page->addr);
	char what[96];
	snprintf(what, sizeof(what), "use after put (byte %zu was written)", i);
	report_page(pool, page, caller, PP_REPORT_USE_AFTER_PUT, i, what);
}

/* ---- allocate and put -------------------------------------------------------------------------
 */

void pp_check_alloc(struct page_pool *pool, struct pp_page *page, const void *caller, bool piece)
{
	struct pp_record *record = record_of(pool, page);

	unseal(pool, page, record);
	check_poison(pool, page, record, caller);
	note_alloc(record, caller);
	pp_store_relaxed(&record->pool, pool->id);
	if (piece)
		/* relaxed: a count; others take away from it. */
		pp_fetch_add_relaxed(&record->pieces, 1);
	else
		pp_store_relaxed(&record->pieces, 0);
}

/* A page that the pool's provider has metadata of? Nothing is read that may not be there. */
static bool known(const struct page_pool *pool, const struct pp_page *page)
{
	uintptr_t at = (uintptr_t)page - (uintptr_t)pool->provider->pages;
	size_t i = at / sizeof(*page);

	/* relaxed: a page of a chunk that comes this moment has not been handed out yet. */
	return at % sizeof(*page) == 0 && i < pool->provider->nr &&
	       (pp_load_relaxed(&pool->chunks[i / PP_CHUNK_PAGES / 64]) >>
			(i / PP_CHUNK_PAGES % 64) &
		1);
}

bool pp_check_put(struct page_pool *pool, struct pp_page *page, const void *caller, bool promised,
		  bool *here)
{
	struct pp_record *record;
	uintptr_t owner;

	if (unlikely(pp_load_relaxed(&pool->dead))) {
		struct pp_report r = {
			.kind = PP_REPORT_DEAD_POOL, .page = page, .now = site_here(caller)};

		report(pool, &r, "a put into a pool that is gone");
		return false;
	}
	if (unlikely(!known(pool, page))) {
		struct pp_report r = {
			.kind = PP_REPORT_FOREIGN_PAGE, .page = page, .now = site_here(caller)};

		report(pool, &r, "a put (not of this pool's provider)");
		return false;
	}
	record = record_of(pool, page);
	/* relaxed: see page_pool_get_pp(). */
	owner = pp_load_relaxed(&page->owner);
	if (unlikely(owner != pool->owner)) {
		if (!owner && pp_load_relaxed(&record->pool) == pool->id &&
		    pp_load_relaxed(&record->put_caller))
			report_page(pool, page, caller, PP_REPORT_DOUBLE_PUT, 0,
				    "a second put (it has left the pool)");
		else
			report_page(pool, page, caller, PP_REPORT_FOREIGN_PAGE, 0,
				    owner ? "a put into the wrong pool"
					  : "a put (no pool has handed it out)");
		return false;
	}
	if (unlikely(!pp_is_held(pool, page))) {
		report_page(pool, page, caller, PP_REPORT_DOUBLE_PUT, 0, "a second put");
		return false;
	}
	if (pp_page_users(page) > 1 || pp_load_relaxed(&record->pieces)) {
		uint32_t pieces = pp_load_relaxed(&record->pieces);

		/* acq_rel: no weaker form; it is a count. */
		while (pieces && !pp_cas_acq_rel(&record->pieces, &pieces, pieces - 1))
			;
		if (!pieces) {
			report_page(pool, page, caller, PP_REPORT_PIECES, 0,
				    "a put of one piece more than were handed out");
			return false;
		}
	}
	if (promised) {
		/* relaxed: as in pp_check_enter(). */
		uint64_t inside = pp_load_relaxed(&pool->inside);

		*here = false;
		if (napi_elsewhere(pool))
			report_page(pool, page, caller, PP_REPORT_WRONG_CONTEXT, 0,
				    "direct recycling while another thread is in the pool's napi");
		else if (inside && inside != this_thread())
			report_page(
				pool, page, caller, PP_REPORT_WRONG_CONTEXT, 0,
				"direct recycling while another thread is in a consumer's call");
		else
			*here = true;
	}
	return true;
}

void pp_check_was_put(struct page_pool *pool, struct pp_page *page, const void *caller,
		      bool recycled)
{
	struct pp_record *record = record_of(pool, page);

	note_put(record, caller);
	if (recycled)
		poison(pool, page, record);
}

void pp_check_leaves(struct page_pool *pool, struct pp_page *page)
{
	struct pp_record *record = record_of(pool, page);

	unseal(pool, page, record);
	pp_store_relaxed(&record->poisoned, false);
	/* It is still counted in. */
	if (unlikely(page_pool_inflight(pool) <= 0))
		report_page(pool, page, pp_load_relaxed(&record->put_caller),
			    PP_REPORT_NEGATIVE_INFLIGHT, 0,
			    "more pages came back than went out: the return");
}

/* ---- who has what -----------------------------------------------------------------------------
 */

struct holders {
	struct pp_holder *ret;
	size_t room, n;
};

static void list_chunk(struct page_pool *pool, struct pp_page *pages, void *arg)
{
	struct holders *h = arg;

	for (size_t i = 0; i < PP_CHUNK_PAGES; i++) {
		struct pp_page *page = &pages[i];

		/* relaxed: a snapshot. */
		if (pp_load_relaxed(&page->owner) != pool->owner || !pp_is_held(pool, page))
			continue;
		if (h->n < h->room)
			h->ret[h->n] = (struct pp_holder){
				.page = page,
				.address = page->addr,
				.allocated = allocated(record_of(pool, page)),
			};
		h->n++;
	}
}

int64_t page_pool_holders(const struct page_pool *pool, size_t n, struct pp_holder *ret)
{
	struct holders h = {.ret = ret, .room = n};

	if (!pool->checked)
		return pp_fail(-EOPNOTSUPP, "pool %u is not a checked pool", pool->id);
	pp_pool_each_chunk((struct page_pool *)pool, list_chunk, &h);
	return (int64_t)h.n;
}

/* ---- the burial ground ------------------------------------------------------------------------
 */

/* With the pool an arena of its own is kept, since the first thing that a put reads is the page. */
#define GRAVES 64

void pp_check_bury(struct page_pool *pool)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct page_pool *graves[GRAVES];
	static unsigned next;
	struct page_pool *oldest;

	/* relaxed: nobody has a right to look; who does all the same mostly sees it. */
	pp_store_relaxed(&pool->dead, true);
	pthread_mutex_lock(&lock);
	oldest = graves[next % GRAVES];
	graves[next++ % GRAVES] = pool;
	pthread_mutex_unlock(&lock);
	if (oldest && oldest->own_provider)
		pp_provider_put(oldest->provider);
	free(oldest);
}
