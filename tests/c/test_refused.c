/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Puts that do nothing: a page that was put already, or is not the pool's. Nobody has to ask for
 * that check, and whatever is put twice never comes out twice. Each for a plain pool and for one
 * that syncs, whose puts take another road.
 */
#include <sched.h>
#include <time.h>

#include "book.h"
#include "core/page.h"

static struct {
	unsigned lines;
	unsigned long long unsaid; /* of the last line */
	char text[256];
} heard;

static void hear(void *ctx, const char *text)
{
	const char *paren = strrchr(text, '(');

	heard.lines++;
	heard.unsaid = paren ? strtoull(paren + 1, NULL, 10) : 0;
	snprintf(heard.text, sizeof(heard.text), "%s", text);
}

/* Also those that will be when they are taken out of a lane. */
static uint64_t refused(const struct page_pool *pool)
{
	return page_pool_refused_puts(pool) + pp_lanes_twice(pool);
}

/* What the refusal leaves alone. */
struct before {
	struct page_pool_stats stats;
	int32_t inflight;
	uint64_t refused, out;
};

static struct before look(struct page_pool *pool)
{
	struct before b = {stats_of(pool), page_pool_inflight(pool), refused(pool),
			   pages_out(page_pool_provider(pool))};

	b.stats.recycle_ring -= pp_lanes_twice(pool);
	return b;
}

/* So many were refused since then, and nothing else has happened. */
static void check_refused(struct page_pool *pool, struct before b, uint64_t n)
{
	struct before now = look(pool);

	CHECK_EQ(now.refused, b.refused + n);
	CHECK_EQ(now.inflight, b.inflight);
	CHECK_EQ(now.out, b.out);
	if (pool->lanes.first) {
		/* Which of the two is taken may be the other one. */
		CHECK_EQ(now.stats.recycle_cached + now.stats.recycle_ring,
			 b.stats.recycle_cached + b.stats.recycle_ring);
		now.stats.recycle_cached = b.stats.recycle_cached;
		now.stats.recycle_ring = b.stats.recycle_ring;
		now.stats.recycle_cache_full = b.stats.recycle_cache_full;
	}
#define SAME(group, name) CHECK_EQ(now.stats.group##_##name, b.stats.group##_##name);
	PAGE_POOL_STATS(SAME)
#undef SAME
	CHECK_POOL(pool);
}

#define PAGES 1024 /* of the arena */

static int by_address(const void *a, const void *b)
{
	const struct pp_page *const *x = a, *const *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* All that there is: each page once, whatever was put twice. p[]: n that are out already. */
static void check_no_page_twice(struct page_pool *pool, size_t n, struct pp_page **p)
{
	struct pp_page *all[PAGES], *page;

	for (size_t i = 0; i < n; i++)
		all[i] = p[i];
	while ((page = page_pool_alloc_pages(pool))) {
		CHECK(n < PAGES);
		all[n++] = page;
	}
	CHECK_EQ(n, PAGES);
	qsort(all, n, sizeof(all[0]), by_address);
	for (size_t i = 1; i < n; i++)
		CHECK(all[i] != all[i - 1]);
	put_n(pool, n, all, true);
}

/* A pool of its own arena, plain or syncing. */
struct world {
	struct pp_provider *arena;
	struct book *book;
	struct page_pool *pool;
	bool syncs;
};

static struct page_pool *another(struct world *w, unsigned pool_size, struct pp_napi *napi)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct page_pool *pool;

	if (w->syncs)
		params = book_params(w->book, w->arena, pool_size, PP_FLAG_DMA_SYNC_DEV);
	params.provider = w->arena;
	params.pool_size = pool_size;
	params.napi = napi;
	CHECK_OK(page_pool_create(&params, &pool));
	CHECK_EQ(pool->owner != (uintptr_t)pool, w->syncs);
	return pool;
}

static struct world begin(bool syncs, unsigned pool_size, struct pp_napi *napi)
{
	struct world w = {.arena = make_arena(4 * MIB), .book = book_create(true), .syncs = syncs};

	/* What is refused with no check switched on. */
	unsetenv("PAGEPOOL_CHECKED");
	page_pool_set_log(hear, NULL);
	w.pool = another(&w, pool_size, napi);
	return w;
}

static void finish(struct world w)
{
	end(w.pool, w.arena);
	book_end(w.book);
	page_pool_set_log(NULL, NULL);
}

/* ---- one page, two puts
 * --------------------------------------------------------------------------
 */

enum how {
	DIRECT,
	RING,
	BULK,
};

static void put_how(struct page_pool *pool, struct pp_page *page, enum how how)
{
	if (how == BULK)
		page_pool_put_page_bulk(&page, 1);
	else
		page_pool_put_full_page(pool, page, how == DIRECT);
}

static void second_put(bool syncs)
{
	for (int first = DIRECT; first <= BULK; first++) {
		for (int second = DIRECT; second <= BULK; second++) {
			struct world w = begin(syncs, 0, NULL);
			struct pp_page *page = page_pool_alloc_pages(w.pool);
			struct before b;

			put_how(w.pool, page, first);
			b = look(w.pool);
			for (int i = 0; i < 3; i++) {
				put_how(w.pool, page, second);
				check_refused(w.pool, b, i + 1);
			}
			check_no_page_twice(w.pool, 0, NULL);
			finish(w);
		}
	}
}

TEST(second_put)
{
	second_put(false);
}

TEST(second_put_of_a_pool_that_syncs)
{
	second_put(true);
}

/* A page that was never handed out: it is in the cache since the refill. */
TEST(put_of_what_was_not_allocated)
{
	for (int syncs = 0; syncs < 2; syncs++) {
		struct world w = begin(syncs, 0, NULL);
		struct pp_page *page = page_pool_alloc_pages(w.pool);
		struct before b = look(w.pool);

		put_how(w.pool, cached_page(w.pool, 7), DIRECT);
		put_how(w.pool, cached_page(w.pool, 9), RING);
		put_how(w.pool, cached_page(w.pool, 11), BULK);
		check_refused(w.pool, b, 3);
		check_no_page_twice(w.pool, 1, &page);
		finish(w);
	}
}

/* What finds the cache full would go on to the ring, and be counted as that. */
TEST(second_put_with_a_full_cache)
{
	for (int syncs = 0; syncs < 2; syncs++) {
		struct world w = begin(syncs, 0, NULL);
		struct pp_page *p[130];
		struct before b;

		alloc_n(w.pool, 130, p); /* 62 are left in the cache */
		put_n(w.pool, 130, p, true);
		CHECK_EQ(stats_of(w.pool).recycle_cache_full, 64);
		b = look(w.pool);
		put_n(w.pool, 130, p, true);
		check_refused(w.pool, b, 130);
		check_no_page_twice(w.pool, 0, NULL);
		finish(w);
	}
}

/* ---- bulk
 * ----------------------------------------------------------------------------------------
 */

static void twice_in_bulk(bool syncs, bool direct)
{
	struct pp_napi *napi;
	struct world w;
	struct pp_page *p[300], *q[1000];
	struct page_pool_stats s;
	size_t n = 0;

	CHECK_OK(pp_napi_create(&napi));
	w = begin(syncs, 0, napi);
	alloc_n(w.pool, 300, p);
	if (direct)
		CHECK_OK(pp_napi_enter(napi));
	page_pool_put_page_bulk((struct pp_page *[]){p[0], p[0]}, 2);
	CHECK_EQ(refused(w.pool), 1);
	CHECK_POOL(w.pool);
	page_pool_put_page_bulk((struct pp_page *[]){p[1], p[2], p[1]}, 3);
	CHECK_EQ(refused(w.pool), 2);
	page_pool_put_page_bulk((struct pp_page *[]){p[3], p[1], p[4]}, 3); /* from before */
	CHECK_EQ(refused(w.pool), 3);
	s = look(w.pool).stats;
	CHECK_EQ(s.recycle_cached, direct ? 5 : 0);
	CHECK_EQ(s.recycle_ring, direct ? 0 : 5);
	CHECK_EQ(page_pool_inflight(w.pool), 320);
	CHECK_POOL(w.pool);
	/* More than go at once: each three times, next to itself and far from it. */
	for (int i = 5; i < 300; i++) {
		q[n++] = p[i];
		q[n++] = p[i];
	}
	for (int i = 5; i < 300; i++)
		q[n++] = p[i];
	page_pool_put_page_bulk(q, n);
	CHECK_EQ(refused(w.pool), 3 + 2 * 295);
	s = look(w.pool).stats;
	CHECK_EQ(s.recycle_cached + s.recycle_ring, 300);
	CHECK_EQ(s.recycle_ring_full, 0);
	CHECK_EQ(page_pool_inflight(w.pool), 320);
	if (direct)
		CHECK_OK(pp_napi_exit(napi));
	check_no_page_twice(w.pool, 0, NULL);
	finish(w);
	CHECK_OK(pp_napi_destroy(napi));
}

TEST(twice_in_bulk)
{
	twice_in_bulk(false, false);
	twice_in_bulk(true, false);
}

TEST(twice_in_bulk_direct)
{
	twice_in_bulk(false, true);
	twice_in_bulk(true, true);
}

/* Of two pools, each page twice, and some of none: those are told from the rest and from each
 * other. */
TEST(bulk_of_everything)
{
	for (int syncs = 0; syncs < 2; syncs++) {
		struct world w = begin(syncs, 0, NULL);
		struct page_pool *other = another(&w, 0, NULL);
		struct pp_page *p[10], *q[10], *gone[10], *all[60];
		size_t n = 0;

		alloc_n(w.pool, 10, p);
		alloc_n(w.pool, 10, gone);
		alloc_n(other, 10, q);
		for (int i = 0; i < 10; i++) { /* they leave, and live on */
			pp_page_get(gone[i]);
			page_pool_put_full_page(w.pool, gone[i], true);
		}
		for (int i = 0; i < 10; i++) {
			all[n++] = p[i];
			all[n++] = gone[i];
			all[n++] = q[i];
			all[n++] = q[i];
			all[n++] = gone[i];
			all[n++] = p[i];
		}
		page_pool_put_page_bulk(all, n);
		CHECK_EQ(refused(w.pool), 10);
		CHECK_EQ(refused(other), 10);
		CHECK_EQ(look(w.pool).stats.recycle_ring, 10);
		CHECK_EQ(look(other).stats.recycle_ring, 10);
		CHECK_EQ(page_pool_inflight(w.pool), 54);
		CHECK_EQ(page_pool_inflight(other), 64);
		for (int i = 0; i < 10; i++) {
			CHECK_EQ(pp_page_ref_count(gone[i]), 1);
			pp_page_put(gone[i]);
		}
		end_pool(other, w.arena);
		check_no_page_twice(w.pool, 0, NULL);
		finish(w);
	}
}

/* ---- after it has left
 * ---------------------------------------------------------------------------
 */

TEST(put_after_it_left)
{
	for (int syncs = 0; syncs < 2; syncs++) {
		for (int how = DIRECT; how <= BULK; how++) {
			struct world w = begin(syncs, 1, NULL);
			struct pp_page *p[3];
			struct before b;

			alloc_n(w.pool, 3, p);
			put_n(w.pool, 2, p, false); /* p[1] does not fit */
			CHECK_EQ(stats_of(w.pool).recycle_ring_full, 1);
			pp_page_get(p[2]); /* p[2] is held */
			page_pool_put_full_page(w.pool, p[2], how == DIRECT);
			b = look(w.pool);
			put_how(w.pool, p[1], how);
			put_how(w.pool, p[2], how);
			/* In bulk a page says itself whose it is: nobody's, nobody counts. */
			check_refused(w.pool, b, how == BULK ? 0 : 2);
			CHECK_EQ(pp_page_ref_count(p[2]), 1);
			pp_page_put(p[2]);
			put_how(w.pool, p[2], how);
			check_no_page_twice(w.pool, 0, NULL);
			finish(w);
		}
	}
}

TEST(page_of_another_pool)
{
	/* The pool it is put to, the one it is of: plain or syncing each. */
	for (int kinds = 0; kinds < 4; kinds++) {
		struct world w = begin(kinds & 1, 0, NULL), o = w;
		struct pp_provider *far_arena = make_arena(4 * MIB);
		struct pp_page *mine = page_pool_alloc_pages(w.pool), *page, *far_page;
		struct page_pool *far;
		struct before b, c;

		o.syncs = kinds & 2;
		o.pool = another(&o, 0, NULL);
		page = page_pool_alloc_pages(o.pool);
		o.arena = far_arena; /* and of another arena */
		far = another(&o, 0, NULL);
		far_page = page_pool_alloc_pages(far);
		b = look(w.pool);
		c = look(o.pool);
		for (int direct = 0; direct < 2; direct++) {
			page_pool_put_full_page(w.pool, page, direct);
			page_pool_put_full_page(w.pool, far_page, direct);
			pp_page_get(page); /* held, it is the other's all the same */
			page_pool_put_full_page(w.pool, page, direct);
			CHECK_EQ(pp_page_ref_count(page), 2);
			pp_page_put(page);
		}
		check_refused(w.pool, b, 6);
		check_refused(o.pool, c, 0);
		CHECK_PTR(page_pool_get_pp(page), o.pool);
		/* Its own pool still takes it. */
		page_pool_put_full_page(o.pool, page, true);
		page_pool_put_full_page(far, far_page, false);
		CHECK_EQ(stats_of(o.pool).recycle_cached, 1);
		CHECK_EQ(stats_of(far).recycle_ring, 1);
		end_pool(o.pool, w.arena);
		end(far, far_arena);
		check_no_page_twice(w.pool, 1, &mine);
		finish(w);
	}
}

/* Of a pool that is gone, while its arena lives: in bulk, which asks the page, and to another. */
TEST(page_of_a_pool_that_is_gone)
{
	for (int syncs = 0; syncs < 2; syncs++) {
		struct world w = begin(syncs, 0, NULL);
		struct page_pool *gone = another(&w, 0, NULL);
		struct pp_page *p[3];
		struct before b;

		alloc_n(gone, 3, p);
		put_n(gone, 2, p, false);
		page_pool_destroy(gone);
		page_pool_put_full_page(gone, p[2], false); /* the last: it is freed */
		CHECK_EQ(refs_of(w.arena), 2);
		b = look(w.pool);
		for (int i = 0; i < 3; i++) {
			CHECK_PTR(page_pool_get_pp(p[i]), NULL);
			page_pool_put_full_page(w.pool, p[i], i & 1);
		}
		check_refused(w.pool, b, 3);
		page_pool_put_page_bulk(p, 3);
		check_refused(w.pool, b, 3);
		check_no_page_twice(w.pool, 0, NULL);
		finish(w);
	}
}

/* A pool that was destroyed, with pages out. */
TEST(second_put_after_destroy)
{
	for (int syncs = 0; syncs < 2; syncs++) {
		struct world w = begin(syncs, 0, NULL);
		struct pp_page *p[4];
		struct page_pool *pool = w.pool;

		alloc_n(pool, 4, p);
		put_n(pool, 1, p, false);
		page_pool_ref(pool);
		page_pool_destroy(pool);
		put_n(pool, 1, p + 1, false);
		for (int i = 0; i < 2; i++) {
			page_pool_put_full_page(pool, p[i], true);
			page_pool_put_full_page(pool, p[i], false);
		}
		CHECK_EQ(refused(pool), 4);
		CHECK_EQ(page_pool_inflight(pool), 2);
		page_pool_put_page_bulk((struct pp_page *[]){p[2], p[2], p[3]}, 3);
		CHECK_EQ(page_pool_inflight(pool), 0);
		CHECK_EQ(refused(pool), 5);
		CHECK_EQ(stats_of(pool).recycle_released_refcnt, 0);
		page_pool_unref(pool);
		CHECK_EQ(refs_of(w.arena), 1);
		w.pool = another(&w, 0, NULL);
		check_no_page_twice(w.pool, 0, NULL);
		finish(w);
	}
}

/* ---- pieces
 * --------------------------------------------------------------------------------------
 */

static struct pp_page *frag(struct page_pool *pool, size_t size)
{
	size_t offset;
	struct pp_page *page = page_pool_alloc_frag(pool, &offset, size);

	CHECK(page);
	return page;
}

TEST(pieces_put_once_more)
{
	for (int syncs = 0; syncs < 2; syncs++) {
		for (int how = DIRECT; how <= BULK; how++) {
			struct world w = begin(syncs, 0, NULL);
			struct pp_page *a = frag(w.pool, 2000), *b;
			struct before before;

			/* Before the page is used up it cannot be seen: when it is, it shows, and
			 * the page is nobody else's yet. */
			CHECK_PTR(frag(w.pool, 2000), a);
			before = look(w.pool);
			for (int i = 0; i < 5; i++)
				put_how(w.pool, a, how);
			check_refused(w.pool, before, 0);
			b = frag(w.pool, 4096);
			CHECK_PTR(b, a); /* all pieces are back */
			CHECK_EQ(refused(w.pool), 3);
			CHECK_EQ(pp_page_users(b), PP_FRAG_BIAS);

			/* After it was used up: the last piece is the page, then nothing is. */
			a = frag(w.pool, 4096);
			CHECK(a != b);
			CHECK_EQ(pp_page_users(b), 1);
			put_how(w.pool, b, how);
			before = look(w.pool);
			put_how(w.pool, b, how);
			put_how(w.pool, b, how);
			check_refused(w.pool, before, 2);

			/* Too often, and the pool is destroyed with it half cut. */
			put_how(w.pool, a, how);
			put_how(w.pool, a, how);
			page_pool_ref(w.pool);
			page_pool_destroy(w.pool);
			CHECK_EQ(refused(w.pool), 6);
			CHECK_EQ(page_pool_inflight(w.pool), 0);
			page_pool_unref(w.pool);
			CHECK_EQ(refs_of(w.arena), 1);
			w.pool = another(&w, 0, NULL);
			check_no_page_twice(w.pool, 0, NULL);
			finish(w);
		}
	}
}

/* ---- what is said
 * --------------------------------------------------------------------------------
 */

static void sleep_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

TEST(one_line_a_second)
{
	struct world w = begin(false, 0, NULL);
	struct pp_page *page = page_pool_alloc_pages(w.pool);
	int64_t first_ns, ns;
	char want[256];
	unsigned lines, n = 0;

	page_pool_put_full_page(w.pool, page, true);
	/* The tests before this one may have spoken just now. */
	for (heard.lines = 0; !heard.lines; sleep_ms(5))
		page_pool_put_full_page(w.pool, page, true);
	first_ns = pp_sys_now_ns();
	snprintf(want, sizeof(want),
		 "page_pool: pool %u: the page at %p was put already, or is not this pool's: "
		 "nothing done (%llu since the last such message)",
		 page_pool_id(w.pool), pp_page_address(page), heard.unsaid);
	CHECK(!strcmp(heard.text, want));
	CHECK(heard.unsaid >= 1);

	heard.lines = 0;
	for (int i = 0; i < 1000; i++, n++)
		page_pool_put_full_page(w.pool, page, i % 2);
	ns = pp_sys_now_ns() - first_ns;
	lines = heard.lines;
	CHECK(lines <= ns / 1000000000 + 1);
	if (!lines) { /* unless this machine was stopped meanwhile: how many were not told */
		while (!heard.lines) {
			sleep_ms(5);
			page_pool_put_full_page(w.pool, page, true);
			n++;
		}
		CHECK_EQ(heard.unsaid, n);
		CHECK(pp_sys_now_ns() - first_ns >= 900000000);
	}
	/* Of no pool. */
	CHECK_OK(page_pool_update_nid(w.pool, 0));
	CHECK_PTR(page_pool_get_pp(page), NULL);
	sleep_ms(1010);
	page_pool_put_page_bulk(&page, 1);
	CHECK(strstr(heard.text, "page_pool: pool 0: the page at "));
	check_no_page_twice(w.pool, 0, NULL);
	finish(w);
}

/* ---- at the same moment
 * --------------------------------------------------------------------------
 */

#ifdef PP_TSAN
#define ROUNDS 2000
#else
#define ROUNDS 10000
#endif

struct twin {
	pthread_barrier_t *barrier;
	struct page_pool *pool;
	struct pp_page **pages; /* SAME_PAGES a round */
	uint32_t ready;         /* how often one of the two was, for a put */
	bool bulk;
};

#define SAME_PAGES 4

/* Both come out of it within some ten ns of each other, where the system's barrier wakes one long
 * after the other; the n-th put of each starts a bit later than the other's, by turns. */
static void start_together(struct twin *t, unsigned n, bool first)
{
	uint32_t both = 2 * (n + 1);

	pp_fetch_add_relaxed(&t->ready, 1u);
	for (unsigned spins = 0; pp_load_relaxed(&t->ready) < both; spins++) {
		pp_cpu_relax();
		if (spins > 1000)
			sched_yield(); /* there is one CPU for both */
	}
	for (unsigned later = (first ? n : n >> 4) & 15; later; later--)
		pp_load_relaxed(&t->ready);
}

static void put_same(struct twin *t, unsigned round, struct pp_page **p, bool first)
{
	if (t->bulk) {
		start_together(t, round, first);
		page_pool_put_page_bulk(p, SAME_PAGES);
		return;
	}
	for (unsigned k = 0; k < SAME_PAGES; k++) {
		start_together(t, round * SAME_PAGES + k, first);
		page_pool_put_full_page(t->pool, p[k], false);
	}
}

static void *put_too(void *arg)
{
	struct twin *t = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct pp_page *p[SAME_PAGES];

		pthread_barrier_wait(t->barrier);
		memcpy(p, t->pages, sizeof(p));
		put_same(t, i, p, false);
		pthread_barrier_wait(t->barrier);
	}
	return NULL;
}

/* The same pages by two threads into the ring: of each one is taken, and one refused. */
static void two_threads(bool syncs, bool bulk)
{
	struct world w = begin(syncs, 0, NULL);
	struct pp_page *p[SAME_PAGES];
	pthread_barrier_t barrier;
	struct twin t = {&barrier, w.pool, p, 0, bulk};
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	CHECK_EQ(pthread_create(&thread, NULL, put_too, &t), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct pp_page *q[SAME_PAGES];

		alloc_n(w.pool, SAME_PAGES, p);
		memcpy(q, p, sizeof(q));
		pthread_barrier_wait(&barrier);
		put_same(&t, i, q, true);
		pthread_barrier_wait(&barrier);
		CHECK_EQ(refused(w.pool), (i + 1) * SAME_PAGES);
		CHECK_EQ(page_pool_inflight(w.pool), 64);
	}
	pthread_join(thread, NULL);
	CHECK_EQ(look(w.pool).stats.recycle_ring, ROUNDS * SAME_PAGES);
	check_no_page_twice(w.pool, 0, NULL);
	finish(w);
}

/* Not with ThreadSanitizer: the put that is one too many looks at the page while that is made ready
 * for another pool, which is a race, and the caller's. */
#ifndef PP_TSAN
struct late {
	struct page_pool *pool;
	struct pp_page *page;
	uint32_t started;
};

static void *put_late(void *arg)
{
	struct late *late = arg;

	pp_store_release(&late->started, 1u);
	page_pool_put_full_page(late->pool, late->page, false);
	return NULL;
}

/* One of two puts waits for the ring's lock, and when it has it the page is another pool's. */
TEST(page_that_left_before_its_put_had_the_lock)
{
	struct world w = begin(false, 0, NULL);
	struct page_pool *other = another(&w, 0, NULL);
	struct late late = {.pool = w.pool, .page = page_pool_alloc_pages(w.pool)};
	struct pp_page *all[PAGES];
	pthread_t thread;

	pp_spin_lock(&w.pool->ring.lock);
	CHECK_EQ(pthread_create(&thread, NULL, put_late, &late), 0);
	while (!pp_load_acquire(&late.started))
		sleep_ms(1);
	sleep_ms(20); /* it waits by now; if not, it is refused as the others above */
	page_pool_put_full_page(w.pool, late.page, true);
	CHECK_OK(page_pool_update_nid(w.pool, PP_NUMA_NO_NODE));
	alloc_n(other, PAGES, all);
	CHECK_PTR(page_pool_get_pp(late.page), other);
	pp_spin_unlock(&w.pool->ring.lock);
	pthread_join(thread, NULL);
	CHECK_EQ(refused(w.pool), 1);
	CHECK_PTR(page_pool_alloc_pages(w.pool), NULL);
	put_n(other, PAGES, all, true);
	end_pool(other, w.arena);
	check_no_page_twice(w.pool, 0, NULL);
	finish(w);
}
#endif

TEST(two_threads)
{
	two_threads(false, false);
	two_threads(false, true);
}

TEST(two_threads_of_a_pool_that_syncs)
{
	two_threads(true, false);
	two_threads(true, true);
}
