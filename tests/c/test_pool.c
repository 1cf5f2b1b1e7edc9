/* SPDX-License-Identifier: BSD-2-Clause */
/* Allocate and put, one thread: which page, and what is counted. */
#include "test.h"

TEST(cache_is_lifo)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *p[8], *again[8];

	alloc_n(pool, 8, p);
	put_n(pool, 8, p, true);
	CHECK_POOL(pool);
	alloc_n(pool, 8, again);
	for (int i = 0; i < 8; i++)
		CHECK_PTR(again[i], p[7 - i]);
	put_n(pool, 8, p, true);
	CHECK_EQ(stats_of(pool).recycle_cached, 16);
	CHECK_EQ(stats_of(pool).alloc_fast, 15);
	end(pool, arena);
}

TEST(slow_brings_64)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *p[65];
	struct page_pool_stats s;

	CHECK_EQ(page_pool_inflight(pool), 0);
	alloc_n(pool, 1, p);
	CHECK_EQ(page_pool_inflight(pool), 64);
	CHECK_EQ(pages_out(arena), 64);
	alloc_n(pool, 63, p + 1);
	CHECK_EQ(page_pool_inflight(pool), 64);
	alloc_n(pool, 1, p + 64);
	CHECK_EQ(page_pool_inflight(pool), 128);
	s = stats_of(pool);
	CHECK_EQ(s.alloc_slow, 2);
	CHECK_EQ(s.alloc_empty, 2);
	CHECK_EQ(s.alloc_fast, 63);
	CHECK_EQ(s.alloc_slow_high_order, 0);
	put_n(pool, 65, p, true);
	CHECK_POOL(pool);
	end(pool, arena);
}

TEST(ring_is_fifo_and_refills_64)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *p[192];

	alloc_n(pool, 192, p);
	put_n(pool, 150, p, false);
	CHECK_POOL(pool);
	CHECK_EQ(stats_of(pool).recycle_ring, 150);
	/* The oldest 64 go into the cache in their order, so they come out of it in reverse. */
	for (int i = 63; i >= 0; i--)
		CHECK_PTR(page_pool_alloc_pages(pool), p[i]);
	for (int i = 127; i >= 64; i--)
		CHECK_PTR(page_pool_alloc_pages(pool), p[i]);
	for (int i = 149; i >= 128; i--)
		CHECK_PTR(page_pool_alloc_pages(pool), p[i]);
	CHECK_EQ(stats_of(pool).alloc_refill, 3);
	CHECK_EQ(stats_of(pool).alloc_fast, 189 + 147);
	CHECK_EQ(page_pool_inflight(pool), 192);
	put_n(pool, 192, p, false);
	end(pool, arena);
}

TEST(cache_holds_128_then_the_ring)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 40, NULL);
	struct pp_page *p[192], *again;
	struct page_pool_stats s;

	alloc_n(pool, 192, p);
	put_n(pool, 128, p, true);
	CHECK_EQ(stats_of(pool).recycle_cache_full, 0);
	put_n(pool, 64, p + 128, true);
	s = stats_of(pool);
	CHECK_EQ(s.recycle_cached, 128);
	CHECK_EQ(s.recycle_cache_full, 64);
	CHECK_EQ(s.recycle_ring, 40);
	CHECK_EQ(s.recycle_ring_full, 24);
	CHECK_EQ(page_pool_inflight(pool), 168);
	CHECK_EQ(pages_out(arena), 168);
	CHECK_POOL(pool);
	page_pool_flush(pool);
	for (int i = 127; i >= 0; i--)
		CHECK_PTR(page_pool_alloc_pages(pool), p[i]);
	again = page_pool_alloc_pages(pool);
	CHECK_PTR(again, p[128 + 39]);
	put_n(pool, 128, p, true);
	page_pool_recycle_direct(pool, again);
	end(pool, arena);
}

TEST(page_that_leaves_has_no_pool)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *first = page_pool_alloc_pages(pool), *page;

	for (int direct = 0; direct < 2; direct++) {
		page = page_pool_alloc_pages(pool);
		memset(pp_page_address(page), 0x5a, PP_PAGE_SIZE);
		CHECK_PTR(page_pool_get_pp(page), pool);
		CHECK_EQ(pp_page_ref_count(page), 1);
		pp_page_get(page);
		CHECK_EQ(pp_page_ref_count(page), 2);
		page_pool_put_page(pool, page, 100, direct);
		CHECK_PTR(page_pool_get_pp(page), NULL);
		CHECK_EQ(pp_page_ref_count(page), 1);
		CHECK_EQ(stats_of(pool).recycle_released_refcnt, direct + 1);
		CHECK_EQ(page_pool_inflight(pool), 64 - 1 - direct);
		/* It is the holder's: not handed out again, its bytes are left alone. */
		CHECK_EQ(pages_out(arena), 64 - direct);
		for (size_t i = 0; i < PP_PAGE_SIZE; i++)
			CHECK_EQ(((char *)pp_page_address(page))[i], 0x5a);
		pp_page_put(page);
		CHECK_EQ(pages_out(arena), 63 - direct);
	}
	CHECK_POOL(pool);
	CHECK_EQ(stats_of(pool).recycle_ring + stats_of(pool).recycle_cached, 0);
	page_pool_put_full_page(pool, first, true);
	end(pool, arena);
}

TEST(holder_that_let_go_before_does_not_matter)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *page = page_pool_alloc_pages(pool);

	for (int i = 0; i < 3; i++)
		pp_page_get(page);
	CHECK_EQ(pp_page_ref_count(page), 4);
	for (int i = 0; i < 3; i++)
		pp_page_put(page);
	page_pool_put_full_page(pool, page, true);
	CHECK_EQ(stats_of(pool).recycle_released_refcnt, 0);
	CHECK_EQ(stats_of(pool).recycle_cached, 1);
	CHECK_PTR(page_pool_alloc_pages(pool), page);
	page_pool_put_full_page(pool, page, true);
	end(pool, arena);
}

TEST(pfmemalloc_is_never_recycled)
{
	struct pp_arena_params params = PP_ARENA_PARAMS_INIT;
	struct pp_provider *arena;
	struct page_pool *pool;
	struct pp_page *p[1024];

	params.limit = 4 * MIB;
	params.reserve = (1024 - 100) * PP_PAGE_SIZE;
	CHECK_OK(pp_arena_create(&params, &arena));
	pool = make_pool(arena, 0, NULL);
	alloc_n(pool, 128, p);
	/* The second refill's first 36 were still above the reserve. */
	for (int i = 0; i < 128; i++)
		CHECK_EQ(pp_page_is_pfmemalloc(p[i]), i >= 64 && i < 64 + 28);
	for (int i = 64; i < 128; i++)
		page_pool_put_full_page(pool, p[i], i % 2);
	CHECK_EQ(stats_of(pool).recycle_released_refcnt, 28);
	CHECK_EQ(stats_of(pool).recycle_cached + stats_of(pool).recycle_ring, 36);
	CHECK_EQ(page_pool_inflight(pool), 128 - 28);
	CHECK_EQ(pages_out(arena), 128 - 28);
	/* References of others do not hide the mark, nor does it hide them. */
	put_n(pool, 64, p, true);
	CHECK_EQ(stats_of(pool).recycle_released_refcnt, 28);
	CHECK_POOL(pool);
	end(pool, arena);
}

TEST(pfmemalloc_and_held)
{
	struct pp_arena_params params = PP_ARENA_PARAMS_INIT;
	struct pp_provider *arena;
	struct page_pool *pool;
	struct pp_page *page;

	params.limit = 4 * MIB;
	params.reserve = 4 * MIB - 1;
	CHECK_OK(pp_arena_create(&params, &arena));
	pool = make_pool(arena, 0, NULL);
	page = page_pool_alloc_pages(pool);
	CHECK(pp_page_is_pfmemalloc(page));
	CHECK_EQ(pp_page_ref_count(page), 1);
	pp_page_get(page);
	CHECK_EQ(pp_page_ref_count(page), 2);
	page_pool_put_full_page(pool, page, false);
	CHECK(pp_page_is_pfmemalloc(page));
	CHECK_EQ(pages_out(arena), 64);
	pp_page_put(page);
	CHECK_EQ(pages_out(arena), 63);
	page_pool_destroy(pool);
	CHECK_EQ(pages_out(arena), 0);
	CHECK_ARENA(arena);
	pp_provider_put(arena);
}

TEST(every_order)
{
	for (unsigned order = 0; order <= PP_MAX_PAGE_ORDER; order++) {
		struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
		struct pp_provider *arena = make_arena(16 * MIB);
		struct page_pool *pool;
		struct pp_page *p[4];
		struct page_pool_stats s;

		params.order = order;
		params.provider = arena;
		params.pool_size = 2;
		CHECK_OK(page_pool_create(&params, &pool));
		CHECK_EQ(page_pool_order(pool), order);
		for (int i = 0; i < 4; i++) {
			p[i] = page_pool_alloc_pages(pool);
			CHECK(p[i]);
			CHECK_EQ(pp_page_order(p[i]), order);
			CHECK_EQ(pp_page_size(p[i]), PP_PAGE_SIZE << order);
			CHECK_EQ((uintptr_t)pp_page_address(p[i]) % pp_page_size(p[i]), 0);
			memset(pp_page_address(p[i]), i + 1, pp_page_size(p[i]));
			CHECK_EQ(page_pool_inflight(pool), order ? i + 1 : 64);
			CHECK_EQ(pages_out(arena), order ? (size_t)(i + 1) << order : 64);
		}
		for (int i = 0; i < 4; i++) {
			const char *bytes = pp_page_address(p[i]);

			CHECK_EQ(bytes[0], i + 1);
			CHECK(!memcmp(bytes, bytes + 1, pp_page_size(p[i]) - 1));
		}
		s = stats_of(pool);
		CHECK_EQ(s.alloc_slow_high_order, order ? 4 : 0);
		CHECK_EQ(s.alloc_slow, order ? 0 : 1);
		CHECK_EQ(s.alloc_empty, order ? 4 : 1);
		CHECK_EQ(s.alloc_fast, order ? 0 : 3);
		page_pool_put_full_page(pool, p[0], true);
		page_pool_put_full_page(pool, p[1], false);
		page_pool_put_full_page(pool, p[2], false);
		page_pool_put_full_page(pool, p[3], false);
		s = stats_of(pool);
		CHECK_EQ(s.recycle_cached, 1);
		CHECK_EQ(s.recycle_ring, 2);
		CHECK_EQ(s.recycle_ring_full, 1);
		CHECK_EQ(page_pool_inflight(pool), order ? 3 : 63);
		CHECK_PTR(page_pool_alloc_pages(pool), p[0]);
		page_pool_put_full_page(pool, p[0], true);
		end(pool, arena);
	}
}

/* ---- nodes ------------------------------------------------------------------------------------
 */

TEST(update_nid_empties_the_cache)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *page = page_pool_alloc_pages(pool), *other;

	CHECK_EQ(page_pool_nid(pool), PP_NUMA_NO_NODE);
	CHECK_EQ(pp_page_nid(page), 0);
	CHECK_OK(page_pool_update_nid(pool, 3));
	CHECK_EQ(page_pool_nid(pool), 3);
	CHECK_EQ(page_pool_inflight(pool), 1);
	CHECK_EQ(pages_out(arena), 1);
	CHECK_EQ(stats_of(pool).alloc_fast, 0);
	CHECK_POOL(pool);
	/* The cache is not asked which node its pages are on: only the ring is, as in the kernel.
	 */
	page_pool_put_full_page(pool, page, true);
	CHECK_PTR(page_pool_alloc_pages(pool), page);
	other = page_pool_alloc_pages(pool);
	CHECK_EQ(pp_page_nid(other), 3);
	CHECK_FAILS(page_pool_update_nid(pool, -2), EINVAL,
		    "NUMA node -2: must be from 0 to 1023, or -1 for none");
	CHECK_FAILS(page_pool_update_nid(pool, 1024), EINVAL, "NUMA node 1024: must be");
	CHECK_EQ(page_pool_nid(pool), 3);
	CHECK_OK(page_pool_update_nid(pool, 1023));
	CHECK_OK(page_pool_update_nid(pool, PP_NUMA_NO_NODE));
	page_pool_put_full_page(pool, page, false);
	page_pool_put_full_page(pool, other, true);
	end(pool, arena);
}

TEST(waive_gives_one_back_and_stops)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *old[3], *fresh[3], *page;
	struct page_pool_stats s;

	CHECK_OK(page_pool_update_nid(pool, 0));
	alloc_n(pool, 3, old);
	CHECK_OK(page_pool_update_nid(pool, 1));
	alloc_n(pool, 3, fresh);
	CHECK_OK(page_pool_update_nid(pool, 1)); /* once more, to empty the cache */
	CHECK_EQ(page_pool_inflight(pool), 6);
	/* The ring from its end: right, right, wrong, right, wrong, wrong. */
	page_pool_put_full_page(pool, fresh[0], false);
	page_pool_put_full_page(pool, fresh[1], false);
	page_pool_put_full_page(pool, old[0], false);
	page_pool_put_full_page(pool, fresh[2], false);
	page_pool_put_full_page(pool, old[1], false);
	page_pool_put_full_page(pool, old[2], false);

	CHECK_PTR(page_pool_alloc_pages(pool), fresh[1]);
	s = stats_of(pool);
	CHECK_EQ(s.alloc_refill, 1);
	CHECK_EQ(s.alloc_waive, 1);
	CHECK_EQ(page_pool_inflight(pool), 5);
	CHECK_PTR(page_pool_get_pp(old[0]), NULL);
	CHECK_POOL(pool);
	CHECK_PTR(page_pool_alloc_pages(pool), fresh[0]);

	CHECK_PTR(page_pool_alloc_pages(pool), fresh[2]);
	s = stats_of(pool);
	CHECK_EQ(s.alloc_refill, 2);
	CHECK_EQ(s.alloc_waive, 2);

	/* A wrong one first: the refill brings nothing, slow follows. It is not `empty`. */
	page = page_pool_alloc_pages(pool);
	CHECK_EQ(pp_page_nid(page), 1);
	CHECK_EQ(stats_of(pool).alloc_refill, 2);
	CHECK_EQ(stats_of(pool).alloc_waive, 3);
	CHECK_EQ(stats_of(pool).alloc_slow, s.alloc_slow + 1);
	CHECK_EQ(stats_of(pool).alloc_empty, s.alloc_empty);
	put_n(pool, 3, fresh, true);
	page_pool_put_full_page(pool, page, true);
	end(pool, arena);
}

TEST(pool_without_node_waives_nothing)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *p[64];

	CHECK_OK(page_pool_update_nid(pool, 7));
	alloc_n(pool, 64, p);
	CHECK_OK(page_pool_update_nid(pool, PP_NUMA_NO_NODE));
	put_n(pool, 64, p, false);
	alloc_n(pool, 64, p);
	CHECK_EQ(stats_of(pool).alloc_waive, 0);
	CHECK_EQ(stats_of(pool).alloc_refill, 1);
	put_n(pool, 64, p, true);
	end(pool, arena);
}

TEST(arena_of_a_node)
{
	struct pp_arena_params params = PP_ARENA_PARAMS_INIT;
	struct pp_provider *arena;
	struct page_pool *pool;
	struct pp_page *page;

	params.limit = 4 * MIB;
	params.nid = 5;
	CHECK_OK(pp_arena_create(&params, &arena));
	CHECK_EQ(info_of(arena).nid, 5);
	pool = make_pool(arena, 0, NULL);
	CHECK_OK(page_pool_update_nid(pool, 2));
	page = page_pool_alloc_pages(pool);
	CHECK_EQ(pp_page_nid(page), 5); /* all its pages are there, whoever asks */
	page_pool_put_full_page(pool, page, false);
	CHECK_OK(page_pool_update_nid(pool, 2));
	page = page_pool_alloc_pages(pool); /* and so each that comes back is waived */
	CHECK_EQ(stats_of(pool).alloc_waive, 1);
	page_pool_put_full_page(pool, page, true);
	end(pool, arena);
}

/* ---- bulk allocation, out of pages ------------------------------------------------------------
 */

TEST(alloc_bulk)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 2048, NULL);
	static struct pp_page *p[1100], *q[1100];
	struct page_pool_stats s;

	CHECK_EQ(page_pool_alloc_pages_bulk(pool, 0, p), 0);
	CHECK_EQ(page_pool_inflight(pool), 0);
	CHECK_EQ(page_pool_alloc_pages_bulk(pool, 200, p), 200);
	CHECK_EQ(page_pool_inflight(pool), 256);
	s = stats_of(pool);
	CHECK_EQ(s.alloc_slow, 4);
	CHECK_EQ(s.alloc_fast, 196);
	CHECK_POOL(pool);
	/* All there is, and no more. */
	CHECK_EQ(page_pool_alloc_pages_bulk(pool, 1100, p + 200), 824);
	CHECK_EQ(page_pool_inflight(pool), 1024);
	CHECK_EQ(info_of(arena).failed, 1);
	for (int i = 0; i < 1024; i++)
		for (int k = 0; k < i; k++)
			CHECK(p[i] != p[k]);
	CHECK_PTR(page_pool_alloc_pages(pool), NULL);
	CHECK_EQ(info_of(arena).failed, 2);
	s = stats_of(pool);
	CHECK_EQ(s.alloc_slow, 16);
	CHECK_EQ(s.alloc_empty, 18);
	CHECK_EQ(s.alloc_fast + s.alloc_slow + s.alloc_refill, 1024);
	CHECK_POOL(pool);
	/* In the order of single allocations. */
	put_n(pool, 10, p, true);
	CHECK_EQ(page_pool_alloc_pages_bulk(pool, 10, q), 10);
	for (int i = 0; i < 10; i++)
		CHECK_PTR(q[i], p[9 - i]);
	put_n(pool, 1024, p, false);
	CHECK_EQ(page_pool_alloc_pages_bulk(pool, 1100, q), 1024);
	CHECK_PTR(q[0], p[63]);
	CHECK_PTR(q[64], p[127]);
	put_n(pool, 1024, q, false);
	end(pool, arena);
}

TEST(out_of_pages_and_back)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *a = make_pool(arena, 0, NULL), *b = make_pool(arena, 16, NULL);
	static struct pp_page *p[1024];
	struct pp_page *page;

	CHECK_EQ(page_pool_alloc_pages_bulk(a, 1024, p), 1024);
	for (int i = 0; i < 3; i++)
		CHECK_PTR(page_pool_alloc_pages(b), NULL);
	CHECK_EQ(page_pool_inflight(b), 0);
	CHECK_EQ(stats_of(b).alloc_slow, 0);
	CHECK_EQ(stats_of(b).alloc_empty, 3);
	CHECK_EQ(info_of(arena).failed, 3);
	CHECK_POOL(b);
	/* A few are enough to go on with: a refill that gets less than it wants is one. */
	for (int i = 0; i < 5; i++) {
		pp_page_get(p[i]);
		page_pool_put_full_page(a, p[i], true);
		pp_page_put(p[i]);
	}
	page = page_pool_alloc_pages(b);
	CHECK(page);
	CHECK_EQ(page_pool_inflight(b), 5);
	CHECK_EQ(stats_of(b).alloc_slow, 1);
	page_pool_put_full_page(b, page, true);
	put_n(a, 1019, p + 5, true);
	end_pool(a, arena);
	end(b, arena);
}

/* ---- without statistics, counters that wrap ---------------------------------------------------
 */

TEST(without_statistics)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct page_pool_stats stats = {.size = sizeof(stats), .alloc_fast = 77};
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool;
	struct pp_page *p[200];

	params.provider = arena;
	params.flags = PP_FLAG_NO_STATS;
	params.pool_size = 20;
	CHECK_OK(page_pool_create(&params, &pool));
	for (int i = 0; i < 3; i++) {
		alloc_n(pool, 200, p);
		pp_page_get(p[0]);
		pp_page_get(p[199]);
		put_n(pool, 150, p, true);
		put_n(pool, 50, p + 150, false);
		pp_page_put(p[0]);
		pp_page_put(p[199]);
		CHECK_POOL(pool);
	}
	CHECK_FAILS(page_pool_get_stats(pool, &stats), EOPNOTSUPP, "was made without statistics");
	CHECK_EQ(stats.alloc_fast, 77); /* untouched */
	CHECK_EQ(pool->ring.ring | pool->ring.ring_full | pool->stats.empty |
			 pool->stats.cache_full,
		 0);
	CHECK_EQ(page_pool_inflight(pool), pages_out(arena));
	end(pool, arena);
}

/* In flight is 32 bits of serial arithmetic, as the kernel's: set the counters to just before. */
TEST(in_flight_across_the_wrap)
{
	static const uint64_t starts[] = {0xffffffffull - 40, 0x7fffffffull - 40,
					  (1ull << 40) - 40};

	for (size_t k = 0; k < PP_ARRAY_SIZE(starts); k++) {
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool = make_pool(arena, 4, NULL);
		struct pp_page *p[128];

		pool->held = starts[k];
		pool->released_here = starts[k] / 2;
		pool->pending = PP_PENDING_LIVE - (starts[k] - starts[k] / 2);
		CHECK_EQ(page_pool_inflight(pool), 0);
		alloc_n(pool, 128, p);
		CHECK_EQ(page_pool_inflight(pool), 128);
		page_pool_ref(pool);
		page_pool_ref(pool);
		CHECK_EQ(page_pool_inflight(pool), 128);
		put_n(pool, 128, p, false);
		CHECK_EQ(page_pool_inflight(pool), 4);
		alloc_n(pool, 1, p);
		page_pool_unref(pool);
		page_pool_destroy(pool);
		CHECK_EQ(page_pool_inflight(pool), 1);
		page_pool_put_full_page(pool, p[0], false);
		CHECK_EQ(page_pool_inflight(pool), 0);
		CHECK_EQ(refs_of(arena), 2);
		page_pool_unref(pool);
		CHECK_EQ(refs_of(arena), 1);
		pp_provider_put(arena);
	}
}

/* More released than held is a bug of the user's, and shows as a negative number. */
TEST(in_flight_may_be_negative)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 4, NULL);

	pp_pool_unpend(pool, 3);
	CHECK_EQ(page_pool_inflight(pool), -3);
	pool->pending += 3;
	end(pool, arena);
}

TEST(ids_are_unique)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *a = make_pool(arena, 0, NULL), *b = make_pool(arena, 0, NULL);

	CHECK(page_pool_id(a) > 0);
	CHECK_EQ(page_pool_id(b), page_pool_id(a) + 1);
	CHECK_PTR(page_pool_provider(a), arena);
	end_pool(a, arena);
	end(b, arena);
}
