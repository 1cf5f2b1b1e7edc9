/* SPDX-License-Identifier: BSD-2-Clause */
/* Pieces of pages: one after the other, back in any order, mixed with whole pages. */
#include "test.h"

#include "core/page.h"

static struct pp_page *frag(struct page_pool *pool, size_t size, size_t expect)
{
	size_t offset = SIZE_MAX;
	struct pp_page *page = page_pool_alloc_frag(pool, &offset, size);

	CHECK(page);
	CHECK_EQ(offset, expect);
	return page;
}

TEST(one_after_the_other)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *a = frag(pool, 1000, 0), *b;
	struct page_pool_stats s;

	CHECK_PTR(frag(pool, 64, 1024), a); /* 1000 rounded up to cache lines */
	CHECK_PTR(frag(pool, 1, 1088), a);
	CHECK_PTR(frag(pool, 2944, 1152), a); /* to the very end */
	CHECK_EQ(pp_page_users(a), PP_FRAG_BIAS);
	s = stats_of(pool);
	/* One page was allocated, pieces of it are not counted. */
	CHECK_EQ(s.alloc_fast + s.alloc_slow, 1);

	b = frag(pool, 64, 0); /* the page is used up: the next */
	CHECK(b != a);
	CHECK_EQ(pp_page_users(a), 4);
	put_n(pool, 1, &a, true);
	put_n(pool, 1, &a, false);
	put_n(pool, 1, &a, true);
	CHECK_EQ(pp_page_users(a), 1);
	s = stats_of(pool);
	CHECK_EQ(s.recycle_cached + s.recycle_ring, 0);
	put_n(pool, 1, &a, true); /* the last piece is the page */
	CHECK_EQ(stats_of(pool).recycle_cached, 1);
	CHECK_PTR(page_pool_alloc_pages(pool), a);
	put_n(pool, 1, &a, false);
	put_n(pool, 1, &b, false);
	CHECK_POOL(pool);
	end(pool, arena);
}

TEST(used_again_in_place)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *a = frag(pool, 2048, 0);
	struct page_pool_stats s, t;

	CHECK_PTR(frag(pool, 2048, 2048), a);
	put_n(pool, 1, &a, false);
	put_n(pool, 1, &a, false);
	s = stats_of(pool);
	for (int i = 0; i < 10; i++) {
		/* All pieces are back: the same page, and both statistics. */
		CHECK_PTR(frag(pool, 4096, 0), a);
		put_n(pool, 1, &a, false);
	}
	t = stats_of(pool);
	CHECK_EQ(t.alloc_fast - s.alloc_fast, 10);
	CHECK_EQ(t.recycle_cached - s.recycle_cached, 10);
	CHECK_EQ(t.recycle_ring, s.recycle_ring);
	CHECK_EQ(t.alloc_slow, 1);
	CHECK_POOL(pool);
	end(pool, arena);
}

TEST(refusals)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	size_t offset = 77;

	CHECK_PTR(page_pool_alloc_frag(pool, &offset, 4097), NULL);
	CHECK(strstr(page_pool_last_error(), "a piece of 4097 bytes"));
	CHECK_PTR(page_pool_alloc_frag(pool, &offset, 0), NULL);
	CHECK_PTR(page_pool_alloc_frag(pool, &offset, SIZE_MAX), NULL);
	CHECK_EQ(offset, 77);
	CHECK_EQ(page_pool_inflight(pool), 0);
	end(pool, arena);
}

TEST(out_of_pages)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *p[1024], *last;
	size_t offset;

	alloc_n(pool, 1023, p);
	last = frag(pool, 3000, 0);
	CHECK_PTR(page_pool_alloc_frag(pool, &offset, 3000), NULL);
	CHECK(strstr(page_pool_last_error(), "has no page for a piece"));
	put_n(pool, 1, &last, true);
	CHECK_PTR(frag(pool, 3000, 0), last);
	put_n(pool, 1, &last, true);
	put_n(pool, 1023, p, false);
	CHECK_POOL(pool);
	end(pool, arena);
}

TEST(somebody_holds_the_page)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *a = frag(pool, 4096, 0), *b;

	/* The last piece finds a holder. */
	b = frag(pool, 4096, 0);
	pp_page_get(a);
	put_n(pool, 1, &a, true);
	CHECK_EQ(stats_of(pool).recycle_released_refcnt, 1);
	CHECK_PTR(page_pool_get_pp(a), NULL);
	pp_page_put(a);
	/* The pool itself is the last user and finds one. */
	pp_page_get(b);
	put_n(pool, 1, &b, true);
	a = frag(pool, 4096, 0);
	CHECK(a != b);
	CHECK_PTR(page_pool_get_pp(b), NULL);
	CHECK_EQ(page_pool_inflight(pool), 62);
	pp_page_put(b);
	put_n(pool, 1, &a, true);
	CHECK_POOL(pool);
	end(pool, arena);
}

TEST(emergency_reserves)
{
	struct pp_arena_params params = PP_ARENA_PARAMS_INIT;
	struct page_pool *pool;
	struct pp_provider *arena;
	struct pp_page *a, *b;

	params.limit = 4 * MIB;
	params.reserve = 4 * MIB - 4096;
	CHECK_OK(pp_arena_create(&params, &arena));
	pool = make_pool(arena, 0, NULL);
	/* All but the first page of the arena, which is the last to leave the cache. */
	a = frag(pool, 4096, 0);
	CHECK(pp_page_is_pfmemalloc(a));
	put_n(pool, 1, &a, true);
	b = frag(pool, 4096, 0); /* not used again in place: it left */
	CHECK(a != b);
	CHECK_EQ(page_pool_inflight(pool), 63);
	CHECK_EQ(stats_of(pool).recycle_cached, 0);
	a = frag(pool, 4096, 0);
	put_n(pool, 1, &b, true); /* the last piece */
	CHECK_EQ(stats_of(pool).recycle_released_refcnt, 1);
	CHECK_EQ(page_pool_inflight(pool), 62);
	put_n(pool, 1, &a, true);
	CHECK_POOL(pool);
	end(pool, arena);
}

TEST(destroyed_with_pieces_out)
{
	for (int kept = 0; kept < 3; kept++) {
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool = make_pool(arena, 0, NULL);
		struct pp_page *a = frag(pool, 1024, 0);

		frag(pool, 1024, 1024);
		put_n(pool, 2 - (size_t)kept, (struct pp_page *[]){a, a}, false);
		page_pool_ref(pool);
		page_pool_destroy(pool);
		CHECK_EQ(page_pool_inflight(pool), kept ? 1 : 0);
		CHECK_EQ(pages_out(arena), kept ? 1 : 0);
		put_n(pool, (size_t)kept, (struct pp_page *[]){a, a}, true);
		CHECK_EQ(page_pool_inflight(pool), 0);
		page_pool_unref(pool);
		CHECK_EQ(refs_of(arena), 1);
		pp_provider_put(arena);
	}
}

TEST(orders_and_bulk)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct pp_provider *arena = make_arena(64 * MIB);
	struct page_pool *pool, *whole = make_pool(arena, 0, NULL);
	struct pp_page *p[300];

	params.provider = arena;
	params.order = 3;
	CHECK_OK(page_pool_create(&params, &pool));
	for (int i = 0; i < 300; i++)
		p[i] = i % 3 ? frag(pool, 1500, (size_t)(i - i / 3 - 1) % 21 * 1536)
			     : page_pool_alloc_pages(whole);
	page_pool_put_page_bulk(p, 300);
	CHECK_EQ(page_pool_inflight(whole), 128);
	CHECK_EQ(stats_of(whole).recycle_ring, 100);
	/* 200 pieces, 21 a page: nine used up, and one being cut. */
	CHECK_EQ(stats_of(pool).recycle_ring, 9);
	CHECK_EQ(page_pool_inflight(pool), 10);
	CHECK_POOL(pool);
	page_pool_destroy(whole);
	end(pool, arena);
}

/* Random pieces and whole pages, back in random order, each stamped all over: nobody else gets the
 * memory of a piece that is out, and in the end everything is back. */
TEST(random)
{
	for (uint64_t seed = 1; seed <= 60; seed++) {
		uint64_t s = seed * 0x9e3779b97f4a7c15ull;
		unsigned order = (unsigned)rnd_below(&s, 3);
		struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
		struct pp_provider *arena = make_arena(16 * MIB);
		struct page_pool *pool;
		struct piece {
			struct pp_page *page;
			unsigned char *at, stamp;
			size_t size;
		} out[500];
		size_t n = 0;

		params.provider = arena;
		params.order = order;
		params.pool_size = 32;
		CHECK_OK(page_pool_create(&params, &pool));
		for (unsigned step = 0; step < 3000; step++) {
			if (n < 500 && rnd_below(&s, 100) < 52) {
				struct piece *x = &out[n++];
				size_t offset = 0;

				if (rnd_below(&s, 5)) {
					x->size = 1 + (size_t)rnd_below(&s, PP_PAGE_SIZE << order);
					x->page = page_pool_alloc_frag(pool, &offset, x->size);
				} else {
					x->size = PP_PAGE_SIZE << order;
					x->page = page_pool_alloc_pages(pool);
				}
				CHECK(x->page);
				CHECK_EQ(offset % 64, 0);
				x->at = (unsigned char *)pp_page_address(x->page) + offset;
				x->stamp = (unsigned char)step;
				memset(x->at, x->stamp, x->size);
			} else if (n) {
				size_t i = (size_t)rnd_below(&s, n);
				struct piece x = out[i];

				out[i] = out[--n];
				CHECK_EQ(x.at[0], x.stamp);
				CHECK_EQ(x.at[x.size / 2], x.stamp);
				CHECK_EQ(x.at[x.size - 1], x.stamp);
				page_pool_put_full_page(pool, x.page, rnd_below(&s, 2));
			}
			if (step % 500 == 0)
				CHECK_POOL(pool);
		}
		while (n)
			page_pool_put_full_page(pool, out[--n].page, rnd_below(&s, 2));
		CHECK_POOL(pool);
		end(pool, arena);
	}
}

/* Two threads drop the last two users at the same moment, over and over: exactly one of them gets
 * the page each time. Where they meet is a matter of nanoseconds, so it takes many rounds. */
static uint32_t rounds = 20000; /* PP_TEST_ROUNDS */

struct race {
	struct page_pool *pool;
	struct pp_page *page;
	uint32_t round[2]; /* that each of the two has come to */
};

/* Until the other is there, too. */
static void meet(struct race *r, int me, uint32_t round)
{
	/* release and acquire: the page of the round is handed over with it. */
	pp_store_release(&r->round[me], round);
	for (int spins = 0; pp_load_acquire(&r->round[!me]) < round; spins++)
		if (spins > 1000)
			sched_yield(); /* the other has no CPU now */
}

static void *other_piece(void *arg)
{
	struct race *r = arg;

	for (uint32_t i = 0; i < rounds; i++) {
		meet(r, 1, 2 * i + 1);
		page_pool_put_full_page(r->pool, r->page, false);
		meet(r, 1, 2 * i + 2);
	}
	return NULL;
}

TEST(two_last_pieces_at_once)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct race r = {.pool = make_pool(arena, 0, NULL)};
	const char *n = getenv("PP_TEST_ROUNDS");
	pthread_t thread;

	if (n)
		rounds = (uint32_t)strtoul(n, NULL, 10);
	CHECK_EQ(pthread_create(&thread, NULL, other_piece, &r), 0);
	for (uint32_t i = 0; i < rounds; i++) {
		struct pp_page *next;

		r.page = frag(r.pool, 2048, 0);
		frag(r.pool, 2048, 2048);
		next = frag(r.pool, 4096, 0); /* used up: its two pieces are all it has */
		CHECK_EQ(pp_page_users(r.page), 2);
		meet(&r, 0, 2 * i + 1);
		page_pool_put_full_page(r.pool, r.page, false);
		meet(&r, 0, 2 * i + 2);
		CHECK_EQ(stats_of(r.pool).recycle_ring, i + 1);
		CHECK_EQ(pp_page_users(r.page), 1);
		put_n(r.pool, 1, &next, true);
	}
	pthread_join(thread, NULL);
	CHECK_POOL(r.pool);
	end(r.pool, arena);
}

struct writer {
	struct page_pool *pool;
	struct pp_page *page;
};

/* What was written to the pieces comes before the page's next use: for ThreadSanitizer. The arena
 * has no other page left, so the next allocation is this page, as soon as it is in the ring. */
static void write_lines(struct pp_page *page, size_t from, size_t to, char what)
{
	/* Not memset: the compiler may expand that in place, where ThreadSanitizer does not see it.
	 */
	for (size_t k = from; k < to; k += 64)
		((volatile char *)pp_page_address(page))[k] = what;
}

static void *write_and_put(void *arg)
{
	struct writer *r = arg;

	write_lines(r->page, 0, 2048, 1);
	page_pool_put_full_page(r->pool, r->page, false);
	return NULL;
}

TEST(writes_come_before_the_next_use)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *p[1022];

	alloc_n(pool, 1022, p);
	for (int i = 0; i < 300; i++) {
		struct writer r = {.pool = pool, .page = frag(pool, 2048, 0)};
		struct pp_page *next, *again;
		pthread_t thread;

		frag(pool, 2048, 2048);
		next = frag(pool, 4096, 0);
		CHECK_EQ(pthread_create(&thread, NULL, write_and_put, &r), 0);
		write_lines(r.page, 2048, 4096, 2);
		/* Every other time the other is sure to have gone first, and tells it without
		 * order. */
		while (i % 2 && pp_page_users(r.page) != 1)
			sched_yield();
		page_pool_put_full_page(pool, r.page, false);
		/* It tells without order, too. */
		while (stats_of(pool).recycle_ring != (uint64_t)i + 1)
			sched_yield();
		again = page_pool_alloc_pages(pool);
		CHECK_PTR(again, r.page);
		write_lines(again, 0, 4096, 3);
		pthread_join(thread, NULL);
		put_n(pool, 1, &again, true);
		put_n(pool, 1, &next, true);
	}
	put_n(pool, 1022, p, false);
	CHECK_POOL(pool);
	end(pool, arena);
}
