/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checked mode: every misuse is refused and reported, on every road, with who did it; the pool
 * is as valid afterwards as before, and counts as if nothing had been. And what is not misuse is
 * not reported, and not counted in another way than in a plain pool.
 */
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/check.h"
#include "test.h"

/* Each test says itself whether its pools are checked. */
__attribute__((constructor)) static void without_environment(void)
{
	unsetenv("PAGEPOOL_CHECKED");
}

#define FULL (PP_FLAG_CHECKED | PP_FLAG_CHECKED_FULL)
static const unsigned both[] = {PP_FLAG_CHECKED, FULL};
#define EACH_MODE(flags) for (unsigned m_ = 0, flags; m_ < 2 && (flags = both[m_], true); m_++)

/* ---- reports ------------------------------------------------------------------------------------
 */

#define MAX_REPORTS 8

static struct {
	pthread_mutex_t lock;
	unsigned n;
	struct pp_report reports[MAX_REPORTS];
	char texts[MAX_REPORTS][600];
	char tags[MAX_REPORTS][3][64];
	void *ctx;
} heard = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *keep_tag(char *to, const char *tag)
{
	if (!tag)
		return NULL;
	snprintf(to, 64, "%s", tag);
	return to;
}

static void hear(void *ctx, const struct pp_report *report)
{
	pthread_mutex_lock(&heard.lock);
	if (heard.n < MAX_REPORTS) {
		struct pp_report *r = &heard.reports[heard.n];

		*r = *report;
		snprintf(heard.texts[heard.n], sizeof(heard.texts[0]), "%s", report->text);
		r->text = heard.texts[heard.n];
		r->now.tag = keep_tag(heard.tags[heard.n][0], report->now.tag);
		r->allocated.tag = keep_tag(heard.tags[heard.n][1], report->allocated.tag);
		r->put.tag = keep_tag(heard.tags[heard.n][2], report->put.tag);
		heard.ctx = ctx;
	}
	heard.n++;
	pthread_mutex_unlock(&heard.lock);
}

static void listen(void)
{
	heard.n = 0;
	page_pool_set_report(hear, &heard);
	page_pool_set_tag(NULL);
}

static unsigned reports(void)
{
	unsigned n;

	pthread_mutex_lock(&heard.lock);
	n = heard.n;
	pthread_mutex_unlock(&heard.lock);
	return n;
}

/* The only report since the last one that was asked for. */
static const struct pp_report *reported(enum pp_report_kind kind, const struct page_pool *pool,
					const struct pp_page *page, const char *what)
{
	const struct pp_report *r = &heard.reports[0];
	char start[200];

	if (reports() != 1)
		printf("# %u reports, the first of them: %s\n", reports(), r->text);
	CHECK_EQ(reports(), 1);
	heard.n = 0;
	CHECK_PTR(heard.ctx, &heard);
	CHECK_EQ(r->kind, kind);
	CHECK_EQ(r->pool, page_pool_id(pool));
	CHECK_PTR(r->page, page);
	snprintf(start, sizeof(start), "page_pool: pool %u: %s", page_pool_id(pool), what);
	if (strncmp(r->text, start, strlen(start)))
		printf("# \"%s\"\n# not \"%s\"\n", r->text, start);
	CHECK(!strncmp(r->text, start, strlen(start)));
	CHECK(r->now.caller && r->now.ns && r->now.thread);
	return r;
}

#define CHECK_QUIET() CHECK_EQ(reports(), 0)

/* ---- pools --------------------------------------------------------------------------------------
 */

static struct page_pool *checked_pool(struct pp_provider *arena, unsigned pool_size,
				      struct pp_napi *napi, unsigned flags)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct page_pool *pool;

	params.provider = arena;
	params.pool_size = pool_size;
	params.napi = napi;
	params.flags = flags;
	CHECK_OK(page_pool_create(&params, &pool));
	return pool;
}

static bool same_stats(const struct page_pool_stats *a, const struct page_pool_stats *b)
{
	return !memcmp(a, b, sizeof(*a));
}

/* A misuse has changed nothing: around it. */
struct before {
	struct page_pool_stats stats;
	int32_t inflight;
	uint64_t refused;
};

static struct before before(const struct page_pool *pool)
{
	return (struct before){stats_of(pool), page_pool_inflight(pool),
			       page_pool_refused_puts(pool)};
}

#define CHECK_REFUSED(pool, was, times)                                                    \
	do {                                                                               \
		struct page_pool_stats now_ = stats_of(pool);                              \
		CHECK(same_stats(&now_, &(was).stats));                                    \
		CHECK_EQ(page_pool_inflight(pool), (was).inflight);                        \
		CHECK_EQ(page_pool_refused_puts(pool), (was).refused + (uint64_t)(times)); \
		CHECK_POOL(pool);                                                          \
	} while (0)

enum how {
	DIRECT,
	RING,
	BULK,
	HOWS
};

static void put(enum how how, struct page_pool *pool, struct pp_page *page)
{
	switch (how) {
	case DIRECT:
		page_pool_recycle_direct(pool, page);
		break;
	case RING:
		page_pool_put_full_page(pool, page, false);
		break;
	default:
		page_pool_put_page_bulk(&page, 1);
	}
	/* Not a tail call: the caller on record is here. */
	__asm__ volatile("");
}

/* Three places that a report can tell apart. */
static PP_NOINLINE struct pp_page *alloc_here(struct page_pool *pool)
{
	struct pp_page *page = page_pool_alloc_pages(pool);

	__asm__ volatile("");
	return page;
}

static PP_NOINLINE void put_here(struct page_pool *pool, struct pp_page *page)
{
	page_pool_put_page(pool, page, 0, false);
	__asm__ volatile("");
}

static PP_NOINLINE void put_there(struct page_pool *pool, struct pp_page *page)
{
	page_pool_put_page(pool, page, 0, false);
	__asm__ volatile("" ::"r"(page)); /* other code than put_here(), which is not merged */
}

static bool is_in(const void *caller, uintptr_t function)
{
	const uintptr_t functions[] = {(uintptr_t)alloc_here, (uintptr_t)put_here,
				       (uintptr_t)put_there};
	uintptr_t at = (uintptr_t)caller, nearest = 0;

	for (size_t i = 0; i < PP_ARRAY_SIZE(functions); i++)
		if (functions[i] < at && functions[i] > nearest)
			nearest = functions[i];
	return nearest == function && at - nearest < 1024;
}

static uint32_t this_thread(void)
{
	return (uint32_t)syscall(SYS_gettid);
}

/* Can it be read? As the system sees it. */
static bool readable(const void *address)
{
	int ends[2];
	long n;

	CHECK_EQ(pipe(ends), 0);
	n = syscall(SYS_write, ends[1], address, (size_t)1);
	CHECK(n == 1 || errno == EFAULT);
	close(ends[0]);
	close(ends[1]);
	return n == 1;
}

static bool all_readable(const struct pp_page *page)
{
	const char *start = pp_page_address(page);
	size_t size = pp_page_size(page);

	for (size_t at = 0; at < size; at += PP_PAGE_SIZE)
		if (!readable(start + at))
			return false;
	return readable(start + size - 1);
}

/* Makes a page of a full pool writable, as a user's own mapping of the same memory would. */
static void open_up(struct pp_page *page)
{
	CHECK_EQ(mprotect(pp_page_address(page), pp_page_size(page), PROT_READ | PROT_WRITE), 0);
}

static void ignore(void *ctx, const char *text)
{
	(void)ctx;
	(void)text;
}

/* ---- a second put -------------------------------------------------------------------------------
 */

static void *alloc_as_rx(void *pool)
{
	struct pp_page *page;

	page_pool_set_tag("rx");
	page = alloc_here(pool);
	CHECK(page);
	return page;
}

struct put_as_tx {
	struct page_pool *pool;
	struct pp_page *page;
	uint32_t thread;
};

static void *put_as_tx(void *arg)
{
	struct put_as_tx *tx = arg;

	page_pool_set_tag("tx");
	tx->thread = this_thread();
	put_here(tx->pool, tx->page);
	return NULL;
}

TEST(report_says_who_and_where)
{
	EACH_MODE(flags)
	{
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool = checked_pool(arena, 0, NULL, flags);
		const struct pp_report *r;
		struct put_as_tx tx = {pool, NULL, 0};
		struct timespec ts;
		char part[100];
		int64_t now;

		listen();
		tx.page = alloc_as_rx(pool);
		on_thread(put_as_tx, &tx);
		CHECK_QUIET();
		page_pool_set_tag("late");
		put_there(pool, tx.page);
		page_pool_set_tag(NULL);
		snprintf(part, sizeof(part),
			 "a second put of the page at %p, found by thread %u at ",
			 pp_page_address(tx.page), this_thread());
		r = reported(PP_REPORT_DOUBLE_PUT, pool, tx.page, part);
		CHECK_PTR(r->address, pp_page_address(tx.page));

		CHECK(is_in(r->now.caller, (uintptr_t)put_there));
		CHECK(!strcmp(r->now.tag, "late"));
		CHECK_EQ(r->now.thread, this_thread());
		clock_gettime(CLOCK_MONOTONIC, &ts);
		now = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
		CHECK(r->now.ns <= now && now - r->now.ns < (int64_t)60 * 1000000000);

		CHECK(is_in(r->allocated.caller, (uintptr_t)alloc_here));
		CHECK(!strcmp(r->allocated.tag, "rx"));
		CHECK_EQ(r->allocated.thread, this_thread());
		CHECK(r->allocated.ns && r->allocated.ns <= r->now.ns);

		CHECK(is_in(r->put.caller, (uintptr_t)put_here));
		CHECK(!strcmp(r->put.tag, "tx"));
		CHECK_EQ(r->put.thread, tx.thread);
		CHECK(tx.thread != this_thread());

		snprintf(part, sizeof(part), " [late]; allocated by thread %u at ", this_thread());
		CHECK(strstr(r->text, part));
		snprintf(part, sizeof(part), " [rx]; put by thread %u at ", tx.thread);
		CHECK(strstr(r->text, part));
		CHECK(!strcmp(r->text + strlen(r->text) - 5, " [tx]"));
		end(pool, arena);
	}
}

/* Wherever the page is by then, and by whichever call it comes. */
TEST(second_put)
{
	EACH_MODE(flags)
	{
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool = checked_pool(arena, 0, NULL, flags);

		listen();
		for (enum how first = 0; first < HOWS; first++) {
			for (enum how second = 0; second < HOWS; second++) {
				struct pp_page *page = alloc_here(pool);
				struct before was;

				put(first, pool, page);
				CHECK_QUIET();
				was = before(pool);
				put(second, pool, page);
				reported(PP_REPORT_DOUBLE_PUT, pool, page,
					 "a second put of the page at ");
				CHECK_REFUSED(pool, was, 1);
			}
		}
		end(pool, arena);
	}
}

TEST(twice_in_one_bulk)
{
	EACH_MODE(flags)
	{
		struct pp_provider *arena = make_arena(4 * MIB);
		struct pp_napi *napi;
		struct page_pool *pool;
		struct pp_page *p[8];

		CHECK_OK(pp_napi_create(&napi));
		pool = checked_pool(arena, 0, napi, flags);
		listen();
		for (int in_napi = 0; in_napi < 2; in_napi++) {
			struct page_pool_stats s0, s;
			struct pp_page *twice;

			if (in_napi)
				CHECK_OK(pp_napi_enter(napi));
			alloc_n(pool, 6, p);
			twice = p[6] = p[2];
			p[7] = p[2];
			s0 = stats_of(pool);
			page_pool_put_page_bulk(p, 8);
			CHECK_EQ(reports(), 2);
			heard.n = 1;
			reported(PP_REPORT_DOUBLE_PUT, pool, twice, "a second put of the page at ");
			s = stats_of(pool);
			CHECK_EQ(s.recycle_cached - s0.recycle_cached, in_napi ? 6 : 0);
			CHECK_EQ(s.recycle_ring - s0.recycle_ring, in_napi ? 0 : 6);
			CHECK_EQ(page_pool_refused_puts(pool), in_napi ? 4 : 2);
			CHECK_POOL(pool);
			if (in_napi)
				CHECK_OK(pp_napi_exit(napi));
		}
		CHECK_OK(pp_napi_destroy(napi));
		end(pool, arena);
	}
}

/* The first put made it leave the pool: its ring was full; somebody held it; the pool was destroyed
 * and is kept by another page. */
TEST(second_put_of_a_page_that_has_left)
{
	EACH_MODE(flags)
	{
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool = checked_pool(arena, 1, NULL, flags);
		static const char left[] = "a second put (it has left the pool) of the page at ";
		struct pp_page *p[5];
		struct before was;

		listen();
		alloc_n(pool, 5, p);
		put(RING, pool, p[0]);
		put_here(pool, p[1]); /* no room */
		CHECK_EQ(stats_of(pool).recycle_ring_full, 1);
		was = before(pool);
		for (enum how how = DIRECT; how <= RING; how++) {
			const struct pp_report *r;

			put(how, pool, p[1]);
			r = reported(PP_REPORT_DOUBLE_PUT, pool, p[1], left);
			CHECK(is_in(r->put.caller, (uintptr_t)put_here));
		}
		CHECK_REFUSED(pool, was, 2);
		/* In bulk nobody knows whose it was: that is logged, and nothing else happens. */
		page_pool_set_log(ignore, NULL);
		put(BULK, pool, p[1]);
		page_pool_set_log(NULL, NULL);
		CHECK_QUIET();
		CHECK_REFUSED(pool, was, 2);

		pp_page_get(p[2]);
		put(DIRECT, pool, p[2]);
		CHECK_EQ(stats_of(pool).recycle_released_refcnt, 1);
		was = before(pool);
		put(RING, pool, p[2]);
		reported(PP_REPORT_DOUBLE_PUT, pool, p[2], left);
		CHECK_EQ(pp_page_ref_count(p[2]), 1);
		CHECK_REFUSED(pool, was, 1);
		pp_page_put(p[2]);

		page_pool_destroy(pool);
		put(BULK, pool, p[3]);
		CHECK_QUIET();
		was = before(pool);
		CHECK_EQ(was.inflight, 1);
		put(RING, pool, p[3]);
		reported(PP_REPORT_DOUBLE_PUT, pool, p[3], left);
		CHECK_REFUSED(pool, was, 1);
		put(RING, pool, p[4]);
		CHECK_QUIET();
		CHECK_EQ(refs_of(arena), 1);
		CHECK_EQ(pages_out(arena), 0);
		pp_provider_put(arena);
	}
}

/* ---- foreign pages ------------------------------------------------------------------------------
 */

TEST(put_into_the_wrong_pool)
{
	EACH_MODE(flags)
	{
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool = checked_pool(arena, 0, NULL, flags);
		struct page_pool *other = checked_pool(arena, 0, NULL, flags);
		struct page_pool *plain = make_pool(arena, 0, NULL);
		struct pp_page *mine = alloc_here(pool), *his = alloc_here(other);
		struct pp_page *plains = page_pool_alloc_pages(plain), *nobodys;
		struct before was = before(pool), his_was = before(other);

		listen();
		CHECK_EQ(arena->ops->alloc(arena, 0, PP_NUMA_NO_NODE, 1, &nobodys), 1);
		for (enum how how = DIRECT; how <= RING; how++) {
			const struct pp_report *r;

			put(how, pool, his);
			r = reported(PP_REPORT_FOREIGN_PAGE, pool, his,
				     "a put into the wrong pool of the page at ");
			CHECK(is_in(r->allocated.caller, (uintptr_t)alloc_here));
			put(how, pool, plains);
			reported(PP_REPORT_FOREIGN_PAGE, pool, plains,
				 "a put into the wrong pool of the page at ");
			put(how, pool, nobodys);
			r = reported(PP_REPORT_FOREIGN_PAGE, pool, nobodys,
				     "a put (no pool has handed it out) of the page at ");
			CHECK_PTR(r->allocated.caller, NULL);
			CHECK(!strstr(r->text, "allocated"));
		}
		CHECK_REFUSED(pool, was, 6);
		CHECK_REFUSED(other, his_was, 0);
		/* A plain pool refuses as well, and says nothing here. */
		page_pool_put_full_page(plain, mine, true);
		CHECK_QUIET();
		CHECK_EQ(page_pool_refused_puts(plain), 1);
		/* All of them are as good as before. */
		put(DIRECT, pool, mine);
		put(RING, other, his);
		put(DIRECT, plain, plains);
		pp_page_put(nobodys);
		CHECK_QUIET();
		end_pool(plain, arena);
		end_pool(other, arena);
		end(pool, arena);
	}
}

/* Nothing is read of it but the pool that it claims to have. */
TEST(put_of_what_this_pool_never_had)
{
	EACH_MODE(flags)
	{
		static struct pp_page wild; /* all zero */
		struct pp_provider *arena = make_arena(16 * MIB), *arena2 = make_arena(4 * MIB);
		struct page_pool *pool = checked_pool(arena, 0, NULL, flags);
		struct page_pool *other = checked_pool(arena, 0, NULL, flags);
		struct page_pool *elsewhere = checked_pool(arena2, 0, NULL, flags);
		static struct pp_page *p[1100];
		struct pp_page *far = NULL, *foreign = alloc_here(elsewhere);
		struct pp_page *never[] = {&wild, foreign, NULL};
		struct before was;

		listen();
		put(DIRECT, pool, alloc_here(pool));
		alloc_n(other, 1100, p);
		/* Of the same provider, but from a part of it where the pool has nothing. */
		for (int i = 0; i < 1100 && !far; i++)
			if (((uintptr_t)pp_page_address(p[i]) ^
			     (uintptr_t)pp_page_address(cached_page(pool, 0))) >= 4 * MIB)
				far = p[i];
		CHECK(far);
		never[2] = far;
		was = before(pool);
		for (int i = 0; i < 3; i++) {
			struct pp_page *page = never[i];

			for (enum how how = DIRECT; how <= RING; how++) {
				char what[100];

				snprintf(what, sizeof(what),
					 "a put (this pool never had it) of page %p, found by ",
					 (void *)page);
				put(how, pool, page);
				CHECK_PTR(
					reported(PP_REPORT_FOREIGN_PAGE, pool, page, what)->address,
					NULL);
			}
		}
		CHECK_REFUSED(pool, was, 6);
		put_n(other, 1100, p, false);
		put(RING, elsewhere, foreign);
		CHECK_QUIET();
		end(elsewhere, arena2);
		end_pool(other, arena);
		end(pool, arena);
	}
}

/* ---- dead pools ---------------------------------------------------------------------------------
 */

static void consumers_calls_are_refused(struct page_pool *pool, enum pp_report_kind kind,
					const char *what)
{
	struct pp_page *pages[3];
	size_t offset = 77;

	CHECK_PTR(alloc_here(pool), NULL);
	CHECK(is_in(reported(kind, pool, NULL, what)->now.caller, (uintptr_t)alloc_here));
	CHECK_EQ(page_pool_alloc_pages_bulk(pool, 3, pages), 0);
	reported(kind, pool, NULL, what);
	CHECK_PTR(page_pool_alloc_frag(pool, &offset, 100), NULL);
	reported(kind, pool, NULL, what);
	CHECK_EQ(offset, 77);
	CHECK(strstr(page_pool_last_error(), "the caller is not the consumer of pool "));
	CHECK_FAILS(page_pool_update_nid(pool, 1), EPERM,
		    "the caller is not the consumer of pool ");
	reported(kind, pool, NULL, what);
	CHECK_EQ(page_pool_nid(pool), PP_NUMA_NO_NODE);
}

TEST(consumers_call_after_destroy)
{
	EACH_MODE(flags)
	{
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool = checked_pool(arena, 0, NULL, flags);
		struct pp_page *page = alloc_here(pool);
		struct before was;

		listen();
		page_pool_destroy(pool);
		was = before(pool);
		consumers_calls_are_refused(pool, PP_REPORT_DEAD_POOL,
					    "a consumer's call into a pool that was destroyed");
		CHECK_REFUSED(pool, was, 0);
		/* A promise that is out of date is harmless. */
		put(DIRECT, pool, page);
		CHECK_QUIET();
		CHECK_EQ(refs_of(arena), 1);
		CHECK_EQ(pages_out(arena), 0);
		pp_provider_put(arena);
	}
}

/* Freed, and remembered all the same. */
TEST(pool_that_is_gone)
{
	EACH_MODE(flags)
	{
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool = checked_pool(arena, 0, NULL, flags);
		struct page_pool *own = checked_pool(NULL, 0, NULL, flags);
		struct pp_page *page = alloc_here(pool), *owns = alloc_here(own);

		listen();
		put(DIRECT, pool, page);
		put(RING, own, owns);
		page_pool_destroy(pool);
		page_pool_destroy(own);
		CHECK_EQ(refs_of(arena), 1);
		CHECK_QUIET();
		for (enum how how = DIRECT; how <= RING; how++) {
			put(how, pool, page);
			reported(PP_REPORT_DEAD_POOL, pool, page,
				 "a put into a pool that is gone of page ");
			put(how, own, owns); /* the arena went with it, but for this */
			reported(PP_REPORT_DEAD_POOL, own, owns,
				 "a put into a pool that is gone of page ");
		}
		consumers_calls_are_refused(pool, PP_REPORT_DEAD_POOL,
					    "a consumer's call into a pool that was destroyed");
		CHECK_EQ(pages_out(arena), 0);
		CHECK_ARENA(arena);
		pp_provider_put(arena);
	}
}

/* As many as 64 are remembered; the oldest is forgotten, with the arena that was its own. */
TEST(dead_pools_are_not_kept_for_ever)
{
	struct page_pool *pool = checked_pool(NULL, 0, NULL, PP_FLAG_CHECKED);
	struct pp_provider *own = page_pool_provider(pool), *arena = make_arena(4 * MIB);

	listen();
	pp_provider_get(own);
	CHECK_EQ(refs_of(own), 2);
	page_pool_destroy(pool);
	page_pool_set_log(ignore, NULL);
	page_pool_destroy(pool); /* twice: logged, and that is all */
	page_pool_set_log(NULL, NULL);
	for (int i = 0; i < 64; i++) {
		CHECK_EQ(refs_of(own), 2);
		page_pool_destroy(checked_pool(arena, 0, NULL, PP_FLAG_CHECKED));
	}
	CHECK_EQ(refs_of(own), 1);
	pp_provider_put(own);
	CHECK_EQ(refs_of(arena), 1);
	pp_provider_put(arena);
	CHECK_QUIET();
}

/* A provider's last reference takes the records with it. */
TEST(records_are_not_kept_for_ever)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = checked_pool(arena, 0, NULL, PP_FLAG_CHECKED);
	void *records = arena->records;

	CHECK_EQ(msync(records, 65536, MS_ASYNC), 0);
	end(pool, arena);
	CHECK_EQ(msync(records, 65536, MS_ASYNC), -1); /* there is no such memory */
}

/* ---- use after put ------------------------------------------------------------------------------
 */

/* The cache is empty, and p[0] comes with the next allocation. */
static struct page_pool *pool_of_one(struct pp_provider *arena, const struct page_pool_params *like,
				     struct pp_page **p)
{
	struct page_pool_params params = *like;
	struct page_pool *pool;

	params.provider = arena;
	CHECK_OK(page_pool_create(&params, &pool));
	alloc_n(pool, params.order ? 1 : 64, p);
	return pool;
}

static void end_pool_of_one(struct page_pool *pool, struct pp_provider *arena, struct pp_page **p)
{
	put_n(pool, pool->order ? 1 : 64, p, false);
	CHECK_QUIET();
	end(pool, arena);
}

/*
 * One byte of it is written to while it is in the cache or the ring: found, or not, when it is
 * handed out the next time, which it is all the same.
 */
static void write_after_put(struct page_pool *pool, struct pp_page *page, enum how how, size_t byte,
			    bool found)
{
	uint8_t *memory = pp_page_address(page);
	struct page_pool_stats s0 = stats_of(pool), s;
	const struct pp_report *r;
	char what[64];

	put(how, pool, page);
	CHECK_QUIET();
	if (!readable(memory))
		open_up(page);
	memory[byte] ^= 0x80;
	CHECK_PTR(alloc_here(pool), page);
	if (found) {
		snprintf(what, sizeof(what), "use after put (byte %zu was written) of the page at ",
			 byte);
		r = reported(PP_REPORT_USE_AFTER_PUT, pool, page, what);
		CHECK_EQ(r->offset, byte);
		CHECK_PTR(r->address, memory);
		CHECK(is_in(r->now.caller, (uintptr_t)alloc_here));
		CHECK(r->put.caller);
		CHECK_EQ(r->put.thread, this_thread());
	}
	CHECK_QUIET();
	s = stats_of(pool);
	CHECK_EQ(s.alloc_fast - s0.alloc_fast, how == DIRECT);
	CHECK_EQ(s.alloc_refill - s0.alloc_refill, how != DIRECT);
	CHECK_EQ(s.recycle_cached - s0.recycle_cached, how == DIRECT);
	CHECK_EQ(s.recycle_ring - s0.recycle_ring, how != DIRECT);
	CHECK_EQ(page_pool_refused_puts(pool), 0);
}

/* Quickly: 64 bytes, where the device's part of a page starts. */
TEST(write_after_put_quick)
{
	static const struct {
		unsigned offset;
		size_t first;
	} parts[] = {{0, 0}, {100, 96}, {256, 256}, {4080, 4032}};

	listen();
	for (size_t k = 0; k < PP_ARRAY_SIZE(parts); k++) {
		struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
		struct pp_provider *arena = make_arena(4 * MIB);
		size_t first = parts[k].first, end = first + PP_POISON_QUICK;
		struct page_pool *pool;
		struct pp_page *p[64];

		params.flags = PP_FLAG_CHECKED | PP_FLAG_DMA_MAP;
		params.offset = parts[k].offset;
		pool = pool_of_one(arena, &params, p);
		for (enum how how = DIRECT; how < HOWS; how++) {
			for (size_t byte = first; byte < end; byte++)
				write_after_put(pool, p[0], how, byte, true);
			if (first)
				write_after_put(pool, p[0], how, first - 1, false);
			if (end < PP_PAGE_SIZE)
				write_after_put(pool, p[0], how, end, false);
			CHECK_POOL(pool);
		}
		end_pool_of_one(pool, arena, p);
	}
}

/* All of it. */
TEST(write_after_put_full)
{
	for (unsigned order = 0; order <= 2; order += 2) {
		struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool;
		struct pp_page *p[64];

		listen();
		params.flags = FULL;
		params.order = order;
		pool = pool_of_one(arena, &params, p);
		for (enum how how = DIRECT; how < HOWS; how++)
			for (size_t byte = 0; byte < PP_PAGE_SIZE << order;
			     byte += how == DIRECT && !order ? 1 : 509)
				write_after_put(pool, p[0], how, byte, true);
		write_after_put(pool, p[0], RING, (PP_PAGE_SIZE << order) - 1, true);
		CHECK_POOL(pool);
		end_pool_of_one(pool, arena, p);
	}
}

/* The first of several bytes; and when a piece of the page is handed out, but not by every piece.
 */
TEST(write_after_put_found_by_a_piece)
{
	EACH_MODE(flags)
	{
		struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool;
		struct pp_page *p[64];
		size_t offset;

		listen();
		params.flags = flags;
		pool = pool_of_one(arena, &params, p);
		put(DIRECT, pool, p[0]);
		if (flags == FULL)
			open_up(p[0]);
		memset((char *)pp_page_address(p[0]) + 17, 0, 20);
		CHECK_PTR(page_pool_alloc_frag(pool, &offset, 64), p[0]);
		CHECK_EQ(reported(PP_REPORT_USE_AFTER_PUT, pool, p[0],
				  "use after put (byte 17 was written)")
				 ->offset,
			 17);
		memset((char *)pp_page_address(p[0]) + offset, 1, 64);
		CHECK_PTR(page_pool_alloc_frag(pool, &offset, 64), p[0]);
		memset((char *)pp_page_address(p[0]) + offset, 1, 64);
		put(RING, pool, p[0]);
		put(RING, pool, p[0]);
		put_n(pool, 63, p + 1, false);
		CHECK_QUIET();
		end(pool, arena);
	}
}

/* ---- unreadable pages ---------------------------------------------------------------------------
 */

TEST(page_in_the_pool_is_unreadable)
{
	for (unsigned order = 0; order <= 3; order += 3) {
		struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool;
		struct pp_page *p[64];

		listen();
		params.flags = PP_FLAG_CHECKED_FULL; /* which is more than PP_FLAG_CHECKED */
		params.order = order;
		pool = pool_of_one(arena, &params, p);
		CHECK(page_pool_flags(pool) & PP_FLAG_CHECKED);
		for (enum how how = DIRECT; how < HOWS; how++) {
			char *memory = pp_page_address(p[0]);

			memset(memory, 1, pp_page_size(p[0]));
			put(how, pool, p[0]);
			for (size_t at = 0; at < pp_page_size(p[0]); at += PP_PAGE_SIZE)
				CHECK(!readable(memory + at));
			CHECK_PTR(alloc_here(pool), p[0]);
			CHECK(all_readable(p[0]));
		}
		end_pool_of_one(pool, arena, p);
	}
}

/* Not so quickly. */
TEST(page_in_the_pool_stays_readable)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = checked_pool(arena, 0, NULL, PP_FLAG_CHECKED);
	struct pp_page *p[2];

	listen();
	alloc_n(pool, 2, p);
	put(DIRECT, pool, p[0]);
	put(RING, pool, p[1]);
	CHECK(all_readable(p[0]));
	CHECK(all_readable(p[1]));
	end(pool, arena);
}

/* ThreadSanitizer's own handler of the signal blocks in the child of a process with threads. */
#ifndef PP_TSAN
TEST(use_after_put_is_a_fault)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = checked_pool(arena, 0, NULL, FULL);
	struct pp_page *page = alloc_here(pool);
	volatile char *memory = pp_page_address(page);

	put(RING, pool, page);
	for (int write = 0; write < 2; write++) {
		pid_t pid = fork();
		int status;

		CHECK(pid >= 0);
		if (!pid) {
			signal(SIGSEGV, SIG_DFL);
			if (write)
				memory[4095] = 1;
			else
				(void)memory[0];
			_exit(0);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFSIGNALED(status));
		CHECK_EQ(WTERMSIG(status), SIGSEGV);
	}
	end(pool, arena);
}
#endif

/* Whichever way it leaves, it is memory as any other. */
TEST(page_that_has_left_is_readable)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = checked_pool(arena, 3, NULL, FULL);
	struct pp_page *p[64];
	uint64_t out;

	listen();
	alloc_n(pool, 64, p);
	put(RING, pool, p[0]);
	put(RING, pool, p[1]);
	put(RING, pool, p[2]);
	put(RING, pool, p[3]); /* no room in the ring */
	CHECK(!readable(pp_page_address(p[2])));
	CHECK(all_readable(p[3]));
	put(BULK, pool, p[4]);
	CHECK(all_readable(p[4]));
	pp_page_get(p[5]);
	memset(pp_page_address(p[5]), 7, PP_PAGE_SIZE);
	put(DIRECT, pool, p[5]); /* somebody holds it: it is his, and not poisoned */
	CHECK(all_readable(p[5]));
	for (size_t i = 0; i < PP_PAGE_SIZE; i++)
		CHECK_EQ(((char *)pp_page_address(p[5]))[i], 7);
	pp_page_put(p[5]);

	put(DIRECT, pool, p[6]);
	put(DIRECT, pool, p[7]);
	CHECK(!readable(pp_page_address(p[6])));
	out = pages_out(arena);
	CHECK_OK(page_pool_update_nid(pool, 5)); /* the cache goes back */
	CHECK_EQ(pages_out(arena), out - 2);
	CHECK(all_readable(p[6]));
	CHECK(all_readable(p[7]));
	CHECK(!readable(pp_page_address(p[0])));

	put(DIRECT, pool, p[8]);
	page_pool_destroy(pool);
	for (int i = 0; i < 9; i++) /* ring and cache */
		CHECK(all_readable(p[i]));
	for (int i = 9; i < 64; i++) { /* stragglers */
		put(i % HOWS, pool, p[i]);
		CHECK(all_readable(p[i]));
	}
	CHECK_QUIET();
	CHECK_EQ(refs_of(arena), 1);
	CHECK_EQ(pages_out(arena), 0);
	CHECK_ARENA(arena);
	pp_provider_put(arena);
}

/* On the wrong node: out of the ring, and away. */
TEST(page_that_was_waived_is_readable)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = checked_pool(arena, 0, NULL, FULL);
	struct pp_page *p[65];

	listen();
	CHECK_OK(page_pool_update_nid(pool, 1));
	alloc_n(pool, 64, p);
	CHECK_EQ(pp_page_nid(p[0]), 1);
	put(RING, pool, p[0]);
	CHECK_OK(page_pool_update_nid(pool, 2));
	CHECK(!readable(pp_page_address(p[0])));
	p[64] = alloc_here(pool);
	CHECK_EQ(stats_of(pool).alloc_waive, 1);
	if (p[64] != p[0]) /* it may be the first of the new ones */
		CHECK(all_readable(p[0]));
	put_n(pool, 64, p + 1, false);
	CHECK_QUIET();
	end(pool, arena);
}

static size_t unreadable(struct page_pool *pool, size_t n, struct pp_page **pages)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++) {
		bool says = pp_record_of(pool, pages[i])->unreadable;

		found += says;
		if (i % 997 == 0)
			CHECK_EQ(readable(pp_page_address(pages[i])), !says);
	}
	return found;
}

/* A process has only so many mappings, and the way back may cost some: so there is a bound, and
 * what is beyond it is poisoned. */
TEST(not_all_pages_of_a_machine_are_unreadable)
{
	enum {
		N = 141 * PP_ALLOC_CACHE_REFILL /* none are left in the cache */
	};
	struct pp_provider *arena = make_arena(96 * MIB);
	struct page_pool *pool = checked_pool(arena, N, NULL, FULL);
	struct page_pool *other = checked_pool(arena, N, NULL, FULL);
	static struct pp_page *p[N], *q[N];

	listen();
	for (int round = 0; round < 2; round++) {
		CHECK_EQ(page_pool_alloc_pages_bulk(pool, N, p), N);
		CHECK_EQ(page_pool_alloc_pages_bulk(other, N, q), N);
		CHECK_EQ(unreadable(pool, N, p) + unreadable(other, N, q), 0);
		put_n(pool, N, p, false);
		put_n(other, N, q, false);
		CHECK_EQ(unreadable(pool, N, p), N);
		CHECK_EQ(unreadable(other, N, q), PP_SEALED_MAX - N);
	}
	/* All of those are found by their poison. */
	*(char *)pp_page_address(q[N - 1]) = 1;
	CHECK_EQ(page_pool_alloc_pages_bulk(other, N, p), N);
	reported(PP_REPORT_USE_AFTER_PUT, other, q[N - 1], "use after put (byte 0 was written)");
	put_n(other, N, p, false);
	end_pool(other, arena);
	end(pool, arena);
}

/* ---- devices ------------------------------------------------------------------------------------
 */

/* A device that looks at the memory it is told of, and can be stopped while it maps. */
struct device {
	struct pp_device *device;
	uint64_t maps, unmaps, syncs, last; /* atomic */
	uint64_t seen;                      /* of the last sync: the first and the last byte */
	bool stop;
	sem_t stopped, go;
	void (*on_map)(struct device *device);
	struct page_pool *pool;
	struct pp_page *page;
};

static int map(void *ctx, void *memory, size_t length, enum pp_dma_direction dir, uint64_t *dma)
{
	struct device *d = ctx;

	(void)memory;
	(void)length;
	(void)dir;
	pp_fetch_add_relaxed(&d->maps, 1);
	if (pp_load_relaxed(&d->stop)) {
		pp_store_relaxed(&d->stop, false);
		sem_post(&d->stopped);
		sem_wait(&d->go);
	}
	if (d->on_map)
		d->on_map(d);
	*dma = (uint64_t)(uintptr_t)memory;
	return 0;
}

static void unmap(void *ctx, uint64_t dma, size_t length, enum pp_dma_direction dir)
{
	struct device *d = ctx;
	volatile uint8_t *memory = (volatile uint8_t *)(uintptr_t)dma;

	(void)dir;
	/* Copies what the device has written, as a bounce buffer. */
	memory[0] = memory[length - 1];
	pp_fetch_add_relaxed(&d->unmaps, 1);
}

static void sync_for_device(void *ctx, uint64_t dma, size_t offset, size_t length,
			    enum pp_dma_direction dir)
{
	struct device *d = ctx;
	volatile uint8_t *memory = (volatile uint8_t *)(uintptr_t)dma + offset;

	(void)dir;
	pp_store_relaxed(&d->seen, (uint64_t)memory[0] << 8 | memory[length - 1]);
	pp_fetch_add_relaxed(&d->syncs, 1);
}

static void make_device(struct device *d)
{
	struct pp_device_params params = PP_DEVICE_PARAMS_INIT;

	memset(d, 0, sizeof(*d));
	sem_init(&d->stopped, 0, 0);
	sem_init(&d->go, 0, 0);
	params.ctx = d;
	params.map = map;
	params.unmap = unmap;
	params.sync_for_device = sync_for_device;
	CHECK_OK(pp_device_create(&params, &d->device));
}

static struct page_pool *pool_of_device(struct pp_provider *arena, struct device *d,
					unsigned pool_size, struct pp_napi *napi, unsigned flags)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct page_pool *pool;

	params.provider = arena;
	params.pool_size = pool_size;
	params.napi = napi;
	params.device = d->device;
	params.flags = flags | PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV;
	params.dma_dir = PP_DMA_BIDIRECTIONAL;
	params.max_len = PP_PAGE_SIZE;
	CHECK_OK(page_pool_create(&params, &pool));
	return pool;
}

/* The device's callbacks may look at a page, whatever becomes of it then. */
TEST(device_that_copies)
{
	static const unsigned tracking[] = {0, PP_FLAG_NO_TRACKING};

	EACH_MODE(flags)
	{
		for (int k = 0; k < 2; k++) {
			struct pp_provider *arena = make_arena(4 * MIB);
			struct page_pool *pool;
			struct pp_page *p[64];
			struct device d;

			make_device(&d);
			pool = pool_of_device(arena, &d, 4, NULL, flags | tracking[k]);
			listen();
			alloc_n(pool, 64, p);
			for (enum how how = DIRECT; how < HOWS; how++) {
				struct pp_page *page = alloc_here(pool);
				uint64_t syncs = d.syncs;

				memset(pp_page_address(page), how, PP_PAGE_SIZE);
				put(how, pool, page);
				CHECK_EQ(d.syncs, syncs + 1);
				/* What is in the page from then on: its device agrees. */
				CHECK_EQ(d.seen >> 8, PP_POISON);
				CHECK_EQ(d.seen & 255, flags == FULL ? PP_POISON : how);
			}
			for (int i = 0; i < 40; i++) /* the ring is full soon */
				put(i % HOWS, pool, p[i]);
			CHECK_POOL(pool);
			page_pool_destroy(pool);
			put_n(pool, 24, p + 40, false);
			CHECK_QUIET();
			CHECK_EQ(d.maps, d.unmaps);
			CHECK_EQ(pages_out(arena), 0);
			pp_device_put(d.device);
			pp_provider_put(arena);
		}
	}
}

/* ---- contexts -----------------------------------------------------------------------------------
 */

struct other {
	struct page_pool *pool;
	struct pp_page *page;
	struct device *device;
	uint32_t thread;
};

static void *not_the_consumer(void *arg)
{
	struct other *o = arg;

	consumers_calls_are_refused(
		o->pool, PP_REPORT_WRONG_CONTEXT,
		"a consumer's call while another thread is in the pool's napi, found by thread ");
	return NULL;
}

static void *breaks_his_promise(void *arg)
{
	struct other *o = arg;
	const struct pp_report *r;

	put(DIRECT, o->pool, o->page);
	r = reported(
		PP_REPORT_WRONG_CONTEXT, o->pool, o->page,
		"direct recycling, while another thread is in the pool's napi, of the page at ");
	CHECK_PTR(r->address, pp_page_address(o->page));
	CHECK(is_in(r->allocated.caller, (uintptr_t)alloc_here));
	return NULL;
}

static void *is_the_consumer(void *arg)
{
	struct other *o = arg;
	struct pp_page *page = alloc_here(o->pool);
	size_t offset;

	CHECK(page);
	put(DIRECT, o->pool, page);
	page = page_pool_alloc_frag(o->pool, &offset, 1);
	CHECK(page);
	put(DIRECT, o->pool, page);
	CHECK_EQ(page_pool_alloc_pages_bulk(o->pool, 1, &page), 1);
	put(BULK, o->pool, page);
	CHECK_OK(page_pool_update_nid(o->pool, PP_NUMA_NO_NODE));
	return NULL;
}

TEST(not_in_the_napi)
{
	EACH_MODE(flags)
	{
		struct pp_provider *arena = make_arena(4 * MIB);
		struct pp_napi *napi;
		struct other o = {0};
		struct before was;
		uint64_t cached;

		CHECK_OK(pp_napi_create(&napi));
		o.pool = checked_pool(arena, 0, napi, flags);
		listen();
		/* Nobody is in it: the consumer may be anywhere, a driver fills its rings first. */
		is_the_consumer(&o);
		on_thread(is_the_consumer, &o);
		CHECK_QUIET();

		CHECK_OK(pp_napi_enter(napi));
		is_the_consumer(&o);
		o.page = alloc_here(o.pool);
		CHECK_QUIET();
		was = before(o.pool);
		on_thread(not_the_consumer, &o);
		CHECK_REFUSED(o.pool, was, 0);
		/* Not refused: it goes where it is safe. */
		cached = o.pool->cache.pushed;
		on_thread(breaks_his_promise, &o);
		CHECK_EQ(o.pool->cache.pushed, cached);
		CHECK_EQ(stats_of(o.pool).recycle_ring, was.stats.recycle_ring + 1);
		CHECK_EQ(page_pool_refused_puts(o.pool), was.refused);
		CHECK_POOL(o.pool);
		CHECK_OK(pp_napi_exit(napi));

		on_thread(is_the_consumer, &o);
		CHECK_QUIET();
		CHECK_OK(pp_napi_destroy(napi));
		end(o.pool, arena);
	}
}

static void *allocs_slowly(void *arg)
{
	struct other *o = arg;

	o->thread = this_thread();
	o->page = page_pool_alloc_pages(o->pool);
	return NULL;
}

/* Two threads at once, without a napi that could tell whose pool it is. */
TEST(two_consumers)
{
	EACH_MODE(flags)
	{
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool;
		struct pp_page *p[64];
		struct page_pool_stats s;
		struct device d;
		struct other o;
		pthread_t thread;
		char what[100];

		make_device(&d);
		pool = pool_of_device(arena, &d, 0, NULL, flags);
		listen();
		alloc_n(pool, 64, p);
		o = (struct other){.pool = pool, .device = &d};
		pp_store_relaxed(&d.stop, true);
		CHECK_EQ(pthread_create(&thread, NULL, allocs_slowly, &o), 0);
		sem_wait(&d.stopped); /* it is inside, in the midst of things */
		snprintf(what, sizeof(what),
			 "a consumer's call while thread %u is in another, found", o.thread);
		s = stats_of(pool);
		consumers_calls_are_refused(pool, PP_REPORT_WRONG_CONTEXT, what);
		put(DIRECT, pool, p[0]);
		snprintf(what, sizeof(what),
			 "direct recycling, while thread %u is in a consumer's call, of the page "
			 "at ",
			 o.thread);
		reported(PP_REPORT_WRONG_CONTEXT, pool, p[0], what);
		put(RING, pool, p[1]); /* that is what it is for */
		put(BULK, pool, p[2]);
		CHECK_QUIET();
		CHECK_EQ(stats_of(pool).recycle_ring, s.recycle_ring + 3);
		CHECK_EQ(stats_of(pool).recycle_cached, 0);
		sem_post(&d.go);
		pthread_join(thread, NULL);
		CHECK(o.page);
		/* It has left: the next may come. */
		put(DIRECT, pool, o.page);
		CHECK_PTR(alloc_here(pool), o.page);
		put(DIRECT, pool, o.page);
		put_n(pool, 61, p + 3, true);
		CHECK_QUIET();
		CHECK_EQ(page_pool_refused_puts(pool), 0);
		end(pool, arena);
		pp_device_put(d.device);
	}
}

/* The same thread may be in a consumer's call twice: a device's callback comes back. */
static void come_back(struct device *d)
{
	struct pp_page *page = d->page;

	if (!page)
		return;
	d->page = NULL;
	put(DIRECT, d->pool, page);
	CHECK_PTR(alloc_here(d->pool), page);
	put(DIRECT, d->pool, page);
}

TEST(one_consumer_within_himself)
{
	EACH_MODE(flags)
	{
		struct pp_provider *arena = make_arena(4 * MIB);
		struct pp_page *p[65];
		struct page_pool *pool;
		struct device d;

		make_device(&d);
		pool = pool_of_device(arena, &d, 0, NULL, flags);
		listen();
		alloc_n(pool, 64, p);
		d.on_map = come_back;
		d.pool = pool;
		d.page = p[63];
		alloc_n(pool, 2, p + 63); /* maps; p[63] has been put meanwhile */
		CHECK_PTR(d.page, NULL);
		CHECK_QUIET();
		CHECK_EQ(pool->inside, 0);
		CHECK_POOL(pool);
		put_n(pool, 65, p, true);
		CHECK_QUIET();
		end(pool, arena);
		pp_device_put(d.device);
	}
}

/* ---- counts -------------------------------------------------------------------------------------
 */

TEST(more_pages_came_back_than_went_out)
{
	EACH_MODE(flags)
	{
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool = checked_pool(arena, 0, NULL, flags);
		struct pp_page *p[3];
		const struct pp_report *r;

		listen();
		alloc_n(pool, 3, p);
		for (int i = 0; i < 3; i++)
			pp_page_get(p[i]);
		put(RING, pool, p[0]);
		CHECK_QUIET();
		pool->released_here += 62; /* one is left, which is this one */
		put(RING, pool, p[1]);
		CHECK_QUIET();
		put_here(pool, p[2]); /* and of this there is none */
		r = reported(PP_REPORT_NEGATIVE_INFLIGHT, pool, p[2],
			     "more pages came back than went out: the return of the page at ");
		CHECK(is_in(r->now.caller, (uintptr_t)put_here));
		CHECK_EQ(page_pool_inflight(pool), -1);
		pool->released_here -= 62;
		for (int i = 0; i < 3; i++)
			pp_page_put(p[i]);
		CHECK_QUIET();
		end(pool, arena);
	}
}

TEST(piece_put_too_often)
{
	EACH_MODE(flags)
	{
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool = checked_pool(arena, 0, NULL, flags);
		static const char what[] =
			"a put of one piece more than were handed out of the page at ";
		struct pp_page *page, *next;
		struct before was;
		size_t offset;

		/* While the pool is still cutting it up. */
		listen();
		page = page_pool_alloc_frag(pool, &offset, 1000);
		CHECK_PTR(page_pool_alloc_frag(pool, &offset, 1000), page);
		put(RING, pool, page);
		put(DIRECT, pool, page);
		CHECK_QUIET();
		was = before(pool);
		for (enum how how = DIRECT; how < HOWS; how++) {
			put(how, pool, page);
			CHECK(reported(PP_REPORT_PIECES, pool, page, what)->allocated.caller);
		}
		CHECK_REFUSED(pool, was, 3);
		CHECK_PTR(page_pool_alloc_frag(pool, &offset, 1000), page);
		CHECK_EQ(offset, 2048);
		put(BULK, pool, page);
		put(RING, pool, page);
		reported(PP_REPORT_PIECES, pool, page, what);
		/* The page is used up, and all its pieces are back: it is used again. */
		CHECK_PTR(page_pool_alloc_frag(pool, &offset, 2048), page);
		CHECK_EQ(offset, 0);
		CHECK_EQ(stats_of(pool).recycle_cached, 1);
		CHECK_PTR(page_pool_alloc_frag(pool, &offset, 2048), page);
		CHECK_QUIET();

		/* Used up with two pieces out: the last of them is the page. */
		next = page_pool_alloc_frag(pool, &offset, 2048);
		CHECK(next != page);
		put(RING, pool, page);
		CHECK_EQ(stats_of(pool).recycle_ring, 0);
		put(RING, pool, page);
		CHECK_EQ(stats_of(pool).recycle_ring, 1);
		CHECK_QUIET();
		was = before(pool);
		put(RING, pool, page);
		reported(PP_REPORT_DOUBLE_PUT, pool, page, "a second put of the page at ");
		CHECK_REFUSED(pool, was, 1);
		put(DIRECT, pool, next);
		CHECK_QUIET();
		end(pool, arena);
	}
}

/* The count does not stay with a page: in pieces, whole, in pieces of another pool. */
TEST(pieces_of_another_life)
{
	EACH_MODE(flags)
	{
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool = checked_pool(arena, 0, NULL, flags);
		struct pp_page *page;
		size_t offset;

		listen();
		for (int i = 0; i < 300; i++) {
			bool whole = i % 3 == 0;

			page = whole ? alloc_here(pool)
				     : page_pool_alloc_frag(pool, &offset, i % 3 * 1300);
			put(i % HOWS, pool, page);
		}
		CHECK_QUIET();
		page = alloc_here(pool);
		CHECK_EQ(pp_page_users(page), 1);
		put(DIRECT, pool, page);
		put(DIRECT, pool, page);
		reported(PP_REPORT_DOUBLE_PUT, pool, page, "a second put of the page at ");
		end(pool, arena);
	}
}

/* ---- tags and texts -----------------------------------------------------------------------------
 */

static void *has_no_tag(void *unused)
{
	CHECK_PTR(page_pool_set_tag("other"), NULL);
	return unused;
}

TEST(tags_nest)
{
	static const char outer[] = "outer", inner[] = "inner";
	const char *before;

	CHECK_PTR(page_pool_set_tag(NULL), NULL);
	CHECK_PTR(page_pool_set_tag(outer), NULL);
	before = page_pool_set_tag(inner);
	CHECK_PTR(before, outer);
	on_thread(has_no_tag, NULL);
	CHECK_PTR(page_pool_set_tag(before), inner);
	CHECK_PTR(page_pool_set_tag(NULL), outer);
}

/* What does not fit into the line is cut off. */
TEST(tags_of_any_length)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = checked_pool(arena, 0, NULL, PP_FLAG_CHECKED);
	static char tag[700];
	struct pp_page *page;

	listen();
	for (size_t length = 0; length < sizeof(tag); length++) {
		memset(tag, 't', length);
		page_pool_set_tag(tag);
		page = alloc_here(pool);
		put(DIRECT, pool, page);
		put(DIRECT, pool, page);
		page_pool_set_tag(NULL);
		reported(PP_REPORT_DOUBLE_PUT, pool, page, "a second put of the page at ");
		CHECK(strlen(heard.texts[0]) <= 511);
		if (length > 520)
			CHECK_EQ(strlen(heard.texts[0]), 511);
	}
	end(pool, arena);
}

static char logged[600];

static void keep_log(void *ctx, const char *text)
{
	(void)ctx;
	snprintf(logged, sizeof(logged), "%s", text);
}

TEST(without_a_function_the_text_is_logged)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = checked_pool(arena, 0, NULL, PP_FLAG_CHECKED);
	struct pp_page *page = alloc_here(pool);
	char what[100];

	listen();
	page_pool_set_log(keep_log, NULL);
	put(DIRECT, pool, page);
	put(DIRECT, pool, page);
	CHECK_EQ(reports(), 1);
	CHECK_EQ(logged[0], '\0');
	page_pool_set_report(NULL, NULL);
	put(RING, pool, page);
	page_pool_set_log(NULL, NULL);
	CHECK_EQ(reports(), 1);
	snprintf(what, sizeof(what),
		 "page_pool: pool %u: a second put of the page at %p, found by thread %u at ",
		 page_pool_id(pool), pp_page_address(page), this_thread());
	CHECK(!strncmp(logged, what, strlen(what)));
	CHECK(strstr(logged, "; allocated by thread "));
	CHECK(strstr(logged, "; put by thread "));
	end(pool, arena);
}

/* ---- who has what -------------------------------------------------------------------------------
 */

static size_t find_holder(const struct pp_holder *h, size_t n, const struct pp_page *page)
{
	size_t times = 0;

	for (size_t i = 0; i < n; i++)
		times += h[i].page == page;
	return times;
}

TEST(holders)
{
	enum {
		N = 2500
	}; /* of three chunks of metadata */
	EACH_MODE(flags)
	{
		struct pp_provider *arena = make_arena(16 * MIB);
		struct page_pool *pool = checked_pool(arena, 0, NULL, flags);
		struct page_pool *other = checked_pool(arena, 0, NULL, flags);
		static struct pp_holder h[N + 10];
		static struct pp_page *p[N];
		struct pp_page *his, *page, *const nobody = (struct pp_page *)&h;
		size_t offset;

		listen();
		CHECK_EQ(page_pool_holders(pool, 0, NULL), 0);
		his = alloc_here(other);
		put(RING, pool, alloc_here(pool));
		CHECK_EQ(page_pool_holders(pool, 10, h), 0); /* in cache and ring: nobody */

		alloc_n(pool, N - 1, p);
		p[N - 1] = alloc_as_rx(pool);
		page_pool_set_tag(NULL);
		for (int i = 0; i < N + 10; i++)
			h[i].page = nobody;
		CHECK_EQ(page_pool_holders(pool, N + 10, h), N);
		CHECK_PTR(h[N].page, nobody); /* no more than there are */
		for (int i = 0; i < N; i++) {
			CHECK_PTR(h[i].address, pp_page_address(h[i].page));
			CHECK(h[i].allocated.caller && h[i].allocated.ns);
			CHECK_EQ(h[i].allocated.thread, this_thread());
			if (h[i].page != p[N - 1]) {
				CHECK_PTR(h[i].allocated.tag, NULL);
				continue;
			}
			CHECK(!strcmp(h[i].allocated.tag, "rx"));
			CHECK(is_in(h[i].allocated.caller, (uintptr_t)alloc_here));
		}
		for (int i = 0; i < N; i += 50)
			CHECK_EQ(find_holder(h, N, p[i]), 1);
		CHECK_EQ(find_holder(h, N, his), 0);
		/* Room for a few: those, and how many there are. */
		h[3].page = nobody;
		CHECK_EQ(page_pool_holders(pool, 3, h), N);
		CHECK(h[2].page != nobody);
		CHECK_PTR(h[3].page, nobody);
		CHECK_EQ(page_pool_holders(other, 3, h), 1);
		CHECK_PTR(h[0].page, his);

		/* Put, on every road, or given to somebody else. */
		put(DIRECT, pool, p[0]);
		put(RING, pool, p[1]);
		put(BULK, pool, p[2]);
		pp_page_get(p[3]);
		put(RING, pool, p[3]);
		CHECK_EQ(page_pool_holders(pool, N, h), N - 4);
		for (int i = 0; i < 4; i++)
			CHECK_EQ(find_holder(h, N - 4, p[i]), 0);
		pp_page_put(p[3]);

		/* A page in pieces, while any of them is out. */
		page = page_pool_alloc_frag(pool, &offset, 2048);
		CHECK_EQ(page_pool_holders(pool, N, h), N - 3);
		CHECK_EQ(find_holder(h, N - 3, page), 1);
		put(DIRECT, pool, page);
		CHECK_EQ(page_pool_holders(pool, N, h), N - 4);
		CHECK_PTR(page_pool_alloc_frag(pool, &offset, 2048), page);
		CHECK_EQ(page_pool_holders(pool, N, h), N - 3);

		/* Stragglers. */
		page_pool_ref(pool);
		page_pool_destroy(pool);
		CHECK_EQ(page_pool_holders(pool, N, h), N - 3);
		put(RING, pool, page);
		put_n(pool, N - 5, p + 4, false);
		CHECK_EQ(page_pool_holders(pool, N, h), 1);
		CHECK_PTR(h[0].page, p[N - 1]);
		put(RING, pool, p[N - 1]);
		CHECK_EQ(page_pool_holders(pool, N, h), 0);
		page_pool_unref(pool);
		put(RING, other, his);
		CHECK_QUIET();
		end(other, arena);
	}
}

TEST(holders_of_a_plain_pool)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	char what[100];

	snprintf(what, sizeof(what), "pool %u is not a checked pool", page_pool_id(pool));
	CHECK_FAILS((int)page_pool_holders(pool, 0, NULL), EOPNOTSUPP, what);
	end(pool, arena);
}

/* A provider whose pages are now here, now there. */
static size_t give_memory(void *ctx, unsigned order, int nid, size_t n, void **memory)
{
	(void)ctx;
	(void)nid;
	for (size_t i = 0; i < n; i++) {
		memory[i] = aligned_alloc(PP_PAGE_SIZE, PP_PAGE_SIZE << order);
		CHECK(memory[i]);
	}
	return n;
}

static void take_memory(void *ctx, void *memory, unsigned order)
{
	(void)ctx;
	(void)order;
	free(memory);
}

static struct pp_provider *make_provider(void)
{
	struct pp_provider_params params = PP_PROVIDER_PARAMS_INIT;
	struct pp_provider *provider;

	params.max_bytes = 8 * MIB;
	params.alloc = give_memory;
	params.free = take_memory;
	CHECK_OK(pp_provider_create(&params, &provider));
	return provider;
}

struct reader {
	struct page_pool *pool;
	uint32_t stop; /* atomic, as seen */
	uint64_t seen;
};

static void *read_holders(void *arg)
{
	struct reader *r = arg;
	struct pp_holder h[64];

	while (!pp_load_relaxed(&r->stop)) {
		int64_t n = page_pool_holders(r->pool, 64, h);

		CHECK(n >= 0 && n <= 200);
		for (int64_t i = 0; i < n && i < 64; i++)
			CHECK(h[i].address && (uintptr_t)h[i].address % PP_PAGE_SIZE == 0);
		if (n > 0)
			pp_fetch_add_relaxed(&r->seen, 1);
	}
	return NULL;
}

TEST(holders_of_a_pool_that_runs)
{
	listen();
	for (int k = 0; k < 2; k++) {
		struct pp_provider *provider = k ? make_provider() : make_arena(8 * MIB);
		struct page_pool *pool = checked_pool(provider, 16, NULL, PP_FLAG_CHECKED);
		struct reader r = {.pool = pool};
		struct pp_page *p[100];
		pthread_t thread;
		size_t offset;

		CHECK_EQ(pthread_create(&thread, NULL, read_holders, &r), 0);
		for (int i = 0; i < 1000 || !pp_load_relaxed(&r.seen); i++) {
			alloc_n(pool, 99, p);
			p[99] = page_pool_alloc_frag(pool, &offset, 1500);
			for (int n = 0; n < 100; n++)
				put((i + n) % HOWS, pool, p[n]);
		}
		pp_store_relaxed(&r.stop, 1u);
		pthread_join(thread, NULL);
		CHECK_POOL(pool);
		page_pool_destroy(pool);
		CHECK_EQ(refs_of(provider), 1);
		CHECK_EQ(pages_out(provider), 0);
		pp_provider_put(provider);
	}
	CHECK_QUIET();
}

/* Memory of a user's own becomes unreadable as well, and is readable again when he gets it back. */
TEST(pages_of_a_users_own_provider)
{
	EACH_MODE(flags)
	{
		struct pp_provider *provider = make_provider();
		struct page_pool *pool = checked_pool(provider, 8, NULL, flags);
		struct pp_page *p[64];

		listen();
		alloc_n(pool, 64, p);
		for (int i = 0; i < 20; i++) /* more than the ring holds */
			put(i % 2 ? DIRECT : RING, pool, p[i]);
		CHECK_EQ(readable(pp_page_address(p[0])), flags != FULL);
		put(RING, pool, p[0]);
		reported(PP_REPORT_DOUBLE_PUT, pool, p[0], "a second put of the page at ");
		CHECK_EQ(page_pool_holders(pool, 0, NULL), 44);
		CHECK_POOL(pool);
		page_pool_destroy(pool);
		put_n(pool, 44, p + 20, true);
		CHECK_QUIET();
		CHECK_EQ(pages_out(provider), 0);
		pp_provider_put(provider);
	}
}

/* ---- the environment ----------------------------------------------------------------------------
 */

TEST(environment)
{
	static const struct {
		const char *value;
		unsigned flags;
	} values[] = {
		{NULL, 0},     {"", 0}, {"0", 0}, {"1", PP_FLAG_CHECKED}, {"yes", PP_FLAG_CHECKED},
		{"full", FULL}};

	for (size_t i = 0; i < PP_ARRAY_SIZE(values); i++) {
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool;
		struct pp_page *page;

		if (values[i].value)
			setenv("PAGEPOOL_CHECKED", values[i].value, 1);
		pool = make_pool(arena, 0, NULL);
		CHECK_EQ(page_pool_flags(pool), values[i].flags);
		end_pool(pool, arena);
		/* It adds. */
		pool = checked_pool(arena, 0, NULL, PP_FLAG_CHECKED | PP_FLAG_NO_STATS);
		CHECK_EQ(page_pool_flags(pool),
			 values[i].flags | PP_FLAG_CHECKED | PP_FLAG_NO_STATS);
		unsetenv("PAGEPOOL_CHECKED");
		listen();
		page = alloc_here(pool);
		put(RING, pool, page);
		CHECK_EQ(readable(pp_page_address(page)), values[i].flags != FULL);
		put(RING, pool, page);
		reported(PP_REPORT_DOUBLE_PUT, pool, page, "a second put of the page at ");
		end(pool, arena);
	}
}

#ifndef PP_TSAN /* see test_region.c */
static uint32_t stop;

/* Has the lock of the reports most of the time. */
static void *be_busy(void *pool)
{
	while (!pp_load_relaxed(&stop))
		for (int i = 0; i < 100; i++)
			page_pool_set_report(hear, &heard);
	return pool;
}

static void in_child(void)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = checked_pool(arena, 0, NULL, PP_FLAG_CHECKED);
	struct pp_page *page = alloc_here(pool);

	put(RING, pool, page);
	heard.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	heard.n = 0;
	page_pool_set_report(hear, &heard);
	put(RING, pool, page);
	CHECK_EQ(reported(PP_REPORT_DOUBLE_PUT, pool, page, "a second put")->now.thread,
		 this_thread());
	end(pool, arena);
}

/* A fork of an emulated process takes seconds. */
#ifdef __x86_64__
#define FORKS 30
#else
#define FORKS 3
#endif

TEST(child_of_a_fork)
{
	struct other o = {0};
	pthread_t thread;

#ifdef PP_TEST_ASAN
	/* AddressSanitizer's own locks do not survive a fork amid busy threads. */
	printf("# skipped: built with AddressSanitizer\n");
	return;
#endif
	listen();
	o.pool = checked_pool(NULL, 0, NULL, PP_FLAG_CHECKED);
	is_the_consumer(&o);
	page_pool_destroy(o.pool);
	CHECK_EQ(pthread_create(&thread, NULL, be_busy, NULL), 0);
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();
		int status;

		CHECK(pid >= 0);
		if (!pid) {
			jmp_buf parents;

			memcpy(&parents, &test_end, sizeof(parents));
			if (setjmp(test_end))
				_exit(1);
			alarm(20); /* a child that blocks is the failure looked for */
			in_child();
			_exit(0);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK_EQ(status, 0);
	}
	pp_store_relaxed(&stop, 1u);
	pthread_join(thread, NULL);
}
#endif

/* ---- what is right is counted as in a plain pool ------------------------------------------------
 */

struct counted {
	struct page_pool_stats s;
	struct page_pool_dma_stats dma;
	uint64_t maps, unmaps, syncs;
	int32_t inflight;
};

/* The same sequence of calls, none of them wrong. */
static void run(unsigned flags, unsigned seed, struct counted *ret)
{
	struct pp_provider *arena = make_arena(8 * MIB);
	uint64_t rng = seed * 0x9e3779b97f4a7c15ull + 1;
	struct pp_page *p[300];
	struct page_pool *pool;
	struct pp_napi *napi;
	struct device d;
	size_t n = 0;

	make_device(&d);
	CHECK_OK(pp_napi_create(&napi));
	pool = pool_of_device(arena, &d, 8 << seed % 6, napi, flags);
	for (int step = 0; step < 3000; step++) {
		size_t k = n ? rnd_below(&rng, n) : 0, offset;
		struct pp_page *page;

		switch (rnd_below(&rng, 12)) {
		case 0:
		case 1:
		case 2:
			if (n < 200)
				n += page_pool_alloc_pages_bulk(pool, 1 + rnd_below(&rng, 99),
								p + n);
			break;
		case 3:
			if (n < 300) {
				p[n] = page_pool_alloc_frag(pool, &offset,
							    1 + rnd_below(&rng, 4096));
				n += p[n] != NULL;
			}
			break;
		case 4:
			if (pp_napi_entered(napi))
				CHECK_OK(pp_napi_exit(napi));
			else
				CHECK_OK(pp_napi_enter(napi));
			break;
		case 5:
			if (rnd_below(&rng, 20) == 0)
				CHECK_OK(page_pool_update_nid(pool, (int)rnd_below(&rng, 2)));
			break;
		case 6:
			if (n) {
				page = p[k];
				pp_page_get(page);
				p[k] = p[--n];
				put((enum how)rnd_below(&rng, HOWS), pool, page);
				pp_page_put(page);
			}
			break;
		case 7:
			k = n < 20 ? n : 20;
			page_pool_put_page_bulk(p + n - k, k);
			n -= k;
			break;
		default:
			for (int i = 0; i < 10 && n; i++) {
				k = rnd_below(&rng, n);
				page = p[k];
				p[k] = p[--n];
				put((enum how)rnd_below(&rng, HOWS), pool, page);
			}
		}
	}
	CHECK_POOL(pool);
	if (pp_napi_entered(napi))
		CHECK_OK(pp_napi_exit(napi));
	page_pool_ref(pool);
	page_pool_destroy(pool);
	put_n(pool, n, p, false);
	memset(ret, 0, sizeof(*ret));
	ret->s = stats_of(pool);
	ret->dma.size = sizeof(ret->dma);
	CHECK_OK(page_pool_get_dma_stats(pool, &ret->dma));
	ret->maps = d.maps;
	ret->unmaps = d.unmaps;
	ret->syncs = d.syncs;
	ret->inflight = page_pool_inflight(pool);
	CHECK_EQ(page_pool_refused_puts(pool), 0);
	page_pool_unref(pool);
	CHECK_EQ(pages_out(arena), 0);
	CHECK_EQ(refs_of(arena), 1);
	CHECK_OK(pp_napi_destroy(napi));
	pp_device_put(d.device);
	pp_provider_put(arena);
}

/* No threads here: what ThreadSanitizer or an emulator makes slow is told by fewer. */
#if defined(PP_TSAN) || !defined(__x86_64__)
#define SEEDS 2
#else
#define SEEDS 8
#endif

TEST(counts_as_a_plain_pool)
{
	listen();
	for (unsigned seed = 1; seed <= SEEDS; seed++) {
		unsigned tracking = seed % 2 ? 0 : PP_FLAG_NO_TRACKING;
		struct counted plain;

		run(tracking, seed, &plain);
		CHECK(plain.s.recycle_ring && plain.s.recycle_cached && plain.s.alloc_refill);
		CHECK_EQ(plain.inflight, 0);
		CHECK_EQ(plain.maps, plain.unmaps);
		EACH_MODE(flags)
		{
			struct counted checked;

			run(tracking | flags, seed, &checked);
			CHECK_QUIET();
			CHECK(!memcmp(&checked, &plain, sizeof(plain)));
		}
	}
}
