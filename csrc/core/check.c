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
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

_Thread_local struct pp_check_thread pp_check_thread;

/* Pools that are gone; see pp_check_bury(). */
#define GRAVES 64

static pthread_mutex_t records_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t report_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t graves_lock = PTHREAD_MUTEX_INITIALIZER;
static struct page_pool *graves[GRAVES];

/* In the child of a fork only the forking thread is left, with another number; whoever held a lock
 * is not. The parent's dead pools are not the child's to free. */
static void after_fork(void)
{
	pthread_mutex_init(&records_lock, NULL);
	pthread_mutex_init(&report_lock, NULL);
	pthread_mutex_init(&graves_lock, NULL);
	memset(graves, 0, sizeof(graves));
	pp_check_thread.number = 0;
}

static void __attribute__((constructor)) at_load(void)
{
	/* Without memory for the handler, a checked pool of a child may block; there is no other
	 * failure. */
	(void)pthread_atfork(NULL, NULL, after_fork);
}

unsigned pp_check_flags(void)
{
	const char *value = secure_getenv("PAGEPOOL_CHECKED");

	if (!value || !*value || !strcmp(value, "0"))
		return 0;
	return PP_FLAG_CHECKED | (strcmp(value, "full") ? 0 : PP_FLAG_CHECKED_FULL);
}

/* ---- records ----------------------------------------------------------------------------------
 */

int pp_check_init(struct page_pool *pool)
{
	int err;

	pthread_mutex_lock(&records_lock);
	err = pp_provider_reserve_records(pool->provider);
	pthread_mutex_unlock(&records_lock);
	if (err)
		return pp_fail(err, "no address space for the records of a checked pool");
	pool->to_record = (uintptr_t)pool->provider->records - (uintptr_t)pool->provider->pages;
	return 0;
}

/* ---- sites ------------------------------------------------------------------------------------
 */

const char *page_pool_set_tag(const char *tag)
{
	const char *before = pp_check_thread.tag;

	pp_check_thread.tag = tag;
	return before;
}

uint32_t pp_check_ask_number(void)
{
	return pp_check_thread.number = (uint32_t)syscall(SYS_gettid);
}

static struct pp_site site_here(const void *caller)
{
	return (struct pp_site){caller, pp_check_thread.tag, pp_check_ns(), pp_check_number()};
}

/* relaxed, both: who reads a record of a page that is not his own takes what there is. */
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

static page_pool_report_fn report_fn;
static void *report_ctx;

void page_pool_set_report(page_pool_report_fn fn, void *ctx)
{
	pthread_mutex_lock(&report_lock);
	report_fn = fn;
	report_ctx = ctx;
	pthread_mutex_unlock(&report_lock);
}

/* A report's text grows: what does not fit is cut off. */
struct line {
	char text[512];
	size_t used;
};

static PP_PRINTF(2, 3) void say(struct line *line, const char *fmt, ...)
{
	size_t left = sizeof(line->text) - line->used;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line->text + line->used, left, fmt, ap);
	va_end(ap);
	if (n > 0)
		line->used += (size_t)n < left ? (size_t)n : left - 1;
}

/* ", found by thread 12 at receive+0x40 [refill]" */
static void say_site(struct line *line, const char *what, const struct pp_site *site)
{
	Dl_info info;

	if (!site->caller)
		return;
	say(line, "%s by thread %u at ", what, site->thread);
	/* No symbol: where in which file, as addr2line takes it. */
	if (!dladdr(site->caller, &info) || !info.dli_fname)
		say(line, "%p", site->caller);
	else if (info.dli_sname)
		say(line, "%s+0x%zx", info.dli_sname,
		    (size_t)((const char *)site->caller - (const char *)info.dli_saddr));
	else
		say(line, "%s+0x%zx", info.dli_fname,
		    (size_t)((const char *)site->caller - (const char *)info.dli_fbase));
	if (site->tag)
		say(line, " [%s]", site->tag);
}

static PP_COLD void report(struct page_pool *pool, struct pp_report *r, const char *what)
{
	struct line line = {.used = 0};
	page_pool_report_fn fn;
	void *ctx;

	r->pool = pool->id;
	say(&line, "page_pool: pool %u: %s", pool->id, what);
	if (r->address)
		say(&line, " of the page at %p", r->address);
	else if (r->page)
		say(&line, " of page %p", (const void *)r->page);
	say_site(&line, ", found", &r->now);
	say_site(&line, "; allocated", &r->allocated);
	say_site(&line, "; put", &r->put);
	r->text = line.text;

	pthread_mutex_lock(&report_lock);
	fn = report_fn;
	ctx = report_ctx;
	pthread_mutex_unlock(&report_lock);
	if (fn)
		fn(ctx, r);
	else
		pp_log("%s", line.text);
}

/* About a page that is known to the pool's provider. */
static PP_COLD void report_page(struct page_pool *pool, const struct pp_page *page,
				const void *caller, enum pp_report_kind kind, size_t offset,
				const char *what)
{
	const struct pp_record *record = pp_record_of(pool, page);
	struct pp_report r = {
		.kind = kind,
		.page = page,
		/* relaxed: it need not be the caller's. */
		.address = pp_load_relaxed(&page->addr),
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

void pp_check_not_consumer(struct page_pool *pool, const void *caller)
{
	char what[128];

	if (!pp_load_relaxed(&pool->cache.capacity)) {
		report_call(pool, caller, PP_REPORT_DEAD_POOL,
			    "a consumer's call into a pool that was destroyed");
	} else if (pp_check_napi_elsewhere(pool)) {
		report_call(pool, caller, PP_REPORT_WRONG_CONTEXT,
			    "a consumer's call while another thread is in the pool's napi");
	} else {
		snprintf(what, sizeof(what), "a consumer's call while thread %u is in another",
			 (uint32_t)pp_load_relaxed(&pool->inside));
		report_call(pool, caller, PP_REPORT_WRONG_CONTEXT, what);
	}
}

/* ---- poison -----------------------------------------------------------------------------------
 */

static size_t room(const struct page_pool *pool)
{
	return PP_PAGE_SIZE << pool->order;
}

static int64_t sealed; /* pages that are unreadable, of all pools; anyone, atomic */

void pp_check_seal(struct page_pool *pool, struct pp_page *page)
{
	struct pp_record *record = pp_record_of(pool, page);

	/* relaxed: a bound, and one page more or less is no harm. */
	if (pp_fetch_add_relaxed(&sealed, 1) >= PP_SEALED_MAX ||
	    pp_sys_unreadable(page->addr, room(pool), true))
		/* Where it cannot be (too many; huge pages), the poison does. */
		pp_fetch_add_relaxed(&sealed, -1);
	else
		pp_store_relaxed(&record->unreadable, true);
}

void pp_check_unseal(struct page_pool *pool, struct pp_page *page, struct pp_record *record,
		     const void *caller)
{
	const uint8_t *start = page->addr;
	size_t length = room(pool);

	if (pp_load_relaxed(&record->unreadable)) {
		/* The system may need memory to split its own notes: there is no way on without.
		 * That it has no mappings left is ruled out by PP_SEALED_MAX. */
		while (pp_sys_unreadable(page->addr, length, false))
			sched_yield();
		pp_fetch_add_relaxed(&sealed, -1); /* relaxed: as above */
		pp_store_relaxed(&record->unreadable, false);
	}
	if (!caller)
		return;
	for (size_t i = 0; i < length; i += PP_POISON_QUICK) {
		if (unlikely(!pp_check_is_poison(start + i))) {
			pp_check_used(pool, page, caller, start + i, PP_POISON_QUICK);
			return;
		}
	}
}

void pp_check_used(struct page_pool *pool, struct pp_page *page, const void *caller,
		   const uint8_t *start, size_t length)
{
	char what[96];
	size_t byte;

	while (length-- && *start == PP_POISON)
		start++;
	byte = (size_t)(start - (const uint8_t *)page->addr);
	snprintf(what, sizeof(what), "use after put (byte %zu was written)", byte);
	report_page(pool, page, caller, PP_REPORT_USE_AFTER_PUT, byte, what);
}

/* ---- puts -------------------------------------------------------------------------------------
 */

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

void pp_check_bad_put(struct page_pool *pool, struct pp_page *page, const void *caller)
{
	struct pp_report r = {.page = page, .now = site_here(caller)};
	struct pp_record *record;
	uintptr_t owner;

	if (pp_load_relaxed(&pool->dead)) {
		r.kind = PP_REPORT_DEAD_POOL;
		report(pool, &r, "a put into a pool that is gone");
		return;
	}
	if (!known(pool, page)) {
		r.kind = PP_REPORT_FOREIGN_PAGE;
		report(pool, &r, "a put (this pool never had it)");
		return;
	}
	record = pp_record_of(pool, page);
	/* relaxed: see page_pool_get_pp(). */
	owner = pp_load_relaxed(&page->owner);
	if (owner == pool->owner)
		report_page(pool, page, caller, PP_REPORT_DOUBLE_PUT, 0, "a second put");
	else if (owner)
		report_page(pool, page, caller, PP_REPORT_FOREIGN_PAGE, 0,
			    "a put into the wrong pool");
	else if (pp_load_relaxed(&record->pool) == pool->id && pp_load_relaxed(&record->put_caller))
		report_page(pool, page, caller, PP_REPORT_DOUBLE_PUT, 0,
			    "a second put (it has left the pool)");
	else
		report_page(pool, page, caller, PP_REPORT_FOREIGN_PAGE, 0,
			    "a put (no pool has handed it out)");
}

void pp_check_bad_promise(struct page_pool *pool, struct pp_page *page, const void *caller)
{
	uint64_t inside = pp_load_relaxed(&pool->inside);
	char what[128];

	if (pp_check_napi_elsewhere(pool))
		snprintf(what, sizeof(what),
			 "direct recycling, while another thread is in the pool's napi,");
	else
		snprintf(what, sizeof(what),
			 "direct recycling, while thread %u is in a consumer's call,",
			 (uint32_t)inside);
	report_page(pool, page, caller, PP_REPORT_WRONG_CONTEXT, 0, what);
}

bool pp_check_put_piece(struct page_pool *pool, struct pp_page *page, const void *caller)
{
	struct pp_record *record = pp_record_of(pool, page);
	uint32_t pieces = pp_load_relaxed(&record->pieces);

	/* acq_rel: no weaker form; it is a count. */
	while (pieces && !pp_cas_acq_rel(&record->pieces, &pieces, pieces - 1))
		;
	if (!pieces)
		report_page(pool, page, caller, PP_REPORT_PIECES, 0,
			    "a put of one piece more than were handed out");
	return pieces;
}

void pp_check_leaves(struct page_pool *pool, struct pp_page *page)
{
	struct pp_record *record = pp_record_of(pool, page);

	if (pp_load_relaxed(&record->poisoned)) {
		pp_check_unseal(pool, page, record, NULL);
		pp_store_relaxed(&record->poisoned, false);
	}
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
		struct pp_record *record;

		/* relaxed, all: a snapshot. */
		if (pp_load_relaxed(&page->owner) != pool->owner || !pp_is_users(pool, page))
			continue;
		record = pp_record_of(pool, page);
		/* acquire: the page, which the provider may just have made, and its record. */
		if (pp_load_acquire(&record->pool) != pool->id)
			continue;
		/* Being cut up, with all pieces back: it is the pool's. */
		if (pp_load_relaxed(&record->cut) && !pp_load_relaxed(&record->pieces))
			continue;
		if (h->n < h->room)
			h->ret[h->n] = (struct pp_holder){
				.page = page,
				/* It may be back, and another's, and elsewhere by now. */
				.address = pp_load_relaxed(&page->addr),
				.allocated = allocated(record),
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
void pp_check_bury(struct page_pool *pool)
{
	static unsigned next;
	struct page_pool *oldest;

	/* relaxed: nobody has a right to look; who does all the same mostly sees it. */
	pp_store_relaxed(&pool->dead, true);
	pthread_mutex_lock(&graves_lock);
	oldest = graves[next % GRAVES];
	graves[next++ % GRAVES] = pool;
	pthread_mutex_unlock(&graves_lock);
	if (oldest && oldest->own_provider)
		pp_provider_put(oldest->provider);
	free(oldest);
}
