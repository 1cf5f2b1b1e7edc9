/* SPDX-License-Identifier: BSD-2-Clause */
/* page_pool_put_page_bulk(). */
#include "test.h"

TEST(nothing)
{
	page_pool_put_page_bulk(NULL, 0);
	CHECK(true);
}

TEST(several_pools_in_order)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool[3];
	struct pp_page *p[3][40], *all[120];

	for (int k = 0; k < 3; k++) {
		pool[k] = make_pool(arena, 0, NULL);
		alloc_n(pool[k], 40, p[k]);
		CHECK_OK(page_pool_update_nid(pool[k], PP_NUMA_NO_NODE)); /* empties the cache */
	}
	for (int i = 0; i < 40; i++)
		for (int k = 0; k < 3; k++)
			all[i * 3 + k] = p[k][i];
	page_pool_put_page_bulk(all, 120);
	for (int k = 0; k < 3; k++) {
		CHECK_POOL(pool[k]);
		CHECK_EQ(stats_of(pool[k]).recycle_ring, 40);
		CHECK_EQ(page_pool_inflight(pool[k]), 40);
		page_pool_flush(pool[k]);
		for (int i = 39; i >= 0; i--)
			CHECK_PTR(page_pool_alloc_pages(pool[k]), p[k][i]);
		page_pool_put_page_bulk(p[k], 40);
		end_pool(pool[k], arena);
	}
	CHECK_EQ(pages_out(arena), 0);
	pp_provider_put(arena);
}

TEST(more_than_64_go_by_64)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 300, NULL);
	struct pp_page *p[192], *q[192];

	alloc_n(pool, 192, p);
	memcpy(q, p, sizeof(p));
	page_pool_put_page_bulk(q, 192);
	CHECK_EQ(stats_of(pool).recycle_ring, 192);
	CHECK_EQ(stats_of(pool).recycle_ring_full, 0);
	for (int k = 0; k < 3; k++)
		for (int i = 63; i >= 0; i--)
			CHECK_PTR(page_pool_alloc_pages(pool), p[k * 64 + i]);
	put_n(pool, 192, p, false);
	end(pool, arena);
}

TEST(ring_full_counts_once_a_call)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 10, NULL);
	struct pp_page *p[192];
	struct page_pool_stats s;

	alloc_n(pool, 192, p);
	page_pool_put_page_bulk(p, 16);
	s = stats_of(pool);
	CHECK_EQ(s.recycle_ring, 10);
	CHECK_EQ(s.recycle_ring_full, 1);
	CHECK_EQ(page_pool_inflight(pool), 186);
	page_pool_put_page_bulk(p + 16, 16);
	CHECK_EQ(stats_of(pool).recycle_ring_full, 2);
	/* One call, three times the lock: three calls of the kernel's. */
	page_pool_put_page_bulk(p + 32, 160);
	CHECK_EQ(stats_of(pool).recycle_ring_full, 5);
	CHECK_EQ(stats_of(pool).recycle_ring, 10);
	CHECK_EQ(page_pool_inflight(pool), 10);
	CHECK_EQ(pages_out(arena), 10);
	end(pool, arena);
}

TEST(direct_in_the_napi)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct pp_napi *napi;
	struct page_pool *ours, *other;
	struct pp_page *p[192], *all[200];
	struct page_pool_stats s;

	CHECK_OK(pp_napi_create(&napi));
	ours = make_pool(arena, 30, napi);
	other = make_pool(arena, 0, NULL);
	alloc_n(ours, 192, p);
	alloc_n(other, 8, all);
	memcpy(all + 8, p, sizeof(p));
	CHECK_OK(pp_napi_enter(napi));
	page_pool_put_page_bulk(all, 200);
	CHECK_OK(pp_napi_exit(napi));
	s = stats_of(ours);
	CHECK_EQ(s.recycle_cached, 128);
	CHECK_EQ(s.recycle_cache_full, 64);
	CHECK_EQ(s.recycle_ring, 30);
	CHECK_EQ(s.recycle_ring_full, 1);
	CHECK_EQ(stats_of(other).recycle_ring, 8);
	CHECK_EQ(stats_of(other).recycle_cached, 0);
	CHECK_POOL(ours);
	CHECK_PTR(page_pool_alloc_pages(ours), p[127]);
	page_pool_put_full_page(ours, p[127], true);
	end_pool(ours, arena);
	end(other, arena);
	CHECK_OK(pp_napi_destroy(napi));
}

TEST(held_ones_leave)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *p[64], *q[64];

	alloc_n(pool, 64, p);
	for (int i = 0; i < 64; i += 3)
		pp_page_get(p[i]);
	memcpy(q, p, sizeof(p));
	page_pool_put_page_bulk(q, 64);
	CHECK_EQ(stats_of(pool).recycle_released_refcnt, 22);
	CHECK_EQ(stats_of(pool).recycle_ring, 42);
	CHECK_EQ(page_pool_inflight(pool), 42);
	CHECK_EQ(pages_out(arena), 64);
	for (int i = 0; i < 64; i += 3) {
		CHECK_PTR(page_pool_get_pp(p[i]), NULL);
		pp_page_put(p[i]);
	}
	CHECK_EQ(pages_out(arena), 42);
	end(pool, arena);
}

/* The last pages of destroyed pools: each is freed within the call. */
TEST(of_destroyed_pools)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct pp_page *all[300];
	size_t n = 0;

	for (int k = 0; k < 3; k++) {
		struct page_pool *pool = make_pool(arena, 0, NULL);

		alloc_n(pool, 100, all + n);
		n += 100;
		page_pool_destroy(pool);
	}
	CHECK_EQ(refs_of(arena), 4);
	CHECK_EQ(pages_out(arena), 300);
	/* Interleave. */
	for (uint64_t s = 9, i = 299; i; i--) {
		uint64_t k = rnd_below(&s, i + 1);
		struct pp_page *t = all[i];

		all[i] = all[k];
		all[k] = t;
	}
	page_pool_put_page_bulk(all, 300);
	CHECK_EQ(refs_of(arena), 1);
	CHECK_EQ(pages_out(arena), 0);
	CHECK_ARENA(arena);
	pp_provider_put(arena);
}
