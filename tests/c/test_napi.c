/* SPDX-License-Identifier: BSD-2-Clause */
/* Who is the consumer: entering, leaving, binding; when a put becomes direct by itself. */
#include "test.h"

static void *enter_is_busy(void *arg)
{
	struct pp_napi *napi = arg;

	CHECK(!pp_napi_entered(napi));
	CHECK_FAILS(pp_napi_enter(napi), EBUSY, "another thread is in this napi");
	CHECK_FAILS(pp_napi_exit(napi), EPERM, "the calling thread is not in this napi");
	return NULL;
}

static void *enter_and_stay_free(void *arg)
{
	struct pp_napi *napi = arg;

	CHECK_OK(pp_napi_enter(napi));
	CHECK(pp_napi_entered(napi));
	CHECK_OK(pp_napi_exit(napi));
	return NULL;
}

TEST(one_thread_at_a_time)
{
	struct pp_napi *napi;

	CHECK_OK(pp_napi_create(&napi));
	CHECK(!pp_napi_entered(napi));
	CHECK_FAILS(pp_napi_exit(napi), EPERM, "the calling thread is not in this napi");
	CHECK_OK(pp_napi_enter(napi));
	CHECK(pp_napi_entered(napi));
	on_thread(enter_is_busy, napi);
	CHECK_OK(pp_napi_enter(napi)); /* nested */
	CHECK_OK(pp_napi_exit(napi));
	CHECK(pp_napi_entered(napi));
	on_thread(enter_is_busy, napi);
	CHECK_FAILS(pp_napi_destroy(napi), EBUSY, "a thread is in this napi: let it leave first");
	CHECK_OK(pp_napi_exit(napi));
	CHECK(!pp_napi_entered(napi));
	CHECK_FAILS(pp_napi_exit(napi), EPERM, "the calling thread is not in this napi");
	on_thread(enter_and_stay_free, napi);
	CHECK_OK(pp_napi_destroy(napi));
}

struct put {
	struct page_pool *pool;
	struct pp_page *page;
	struct pp_napi *enter;
	bool bulk;
};

static void *put_it(void *arg)
{
	struct put *put = arg;

	if (put->enter)
		CHECK_OK(pp_napi_enter(put->enter));
	if (put->bulk)
		page_pool_put_page_bulk(&put->page, 1);
	else
		page_pool_put_full_page(put->pool, put->page, false);
	if (put->enter)
		CHECK_OK(pp_napi_exit(put->enter));
	return NULL;
}

/* Where does a put without a promise end? */
static void expect(struct page_pool *pool, struct pp_napi *enter, bool thread, bool cached)
{
	for (int bulk = 0; bulk < 2; bulk++) {
		struct page_pool_stats was = stats_of(pool), is;
		struct put put = {pool, page_pool_alloc_pages(pool), enter, bulk};

		CHECK(put.page);
		if (thread)
			on_thread(put_it, &put);
		else
			put_it(&put);
		is = stats_of(pool);
		CHECK_EQ(is.recycle_cached - was.recycle_cached, cached);
		CHECK_EQ(is.recycle_ring - was.recycle_ring, !cached);
		CHECK_POOL(pool);
	}
}

TEST(direct_in_the_napi_only)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct pp_napi *napi, *other;
	struct page_pool *pool;

	CHECK_OK(pp_napi_create(&napi));
	CHECK_OK(pp_napi_create(&other));
	pool = make_pool(arena, 0, napi);
	expect(pool, NULL, false, false);
	expect(pool, napi, false, true);
	expect(pool, other, false, false);
	expect(pool, NULL, true, false);
	expect(pool, other, true, false);
	expect(pool, napi, true, true); /* handed to another thread */
	expect(pool, NULL, false, false);
	/* Out of a nested one it is still in the outer one. */
	CHECK_OK(pp_napi_enter(napi));
	expect(pool, napi, false, true);
	expect(pool, NULL, false, true);
	CHECK_OK(pp_napi_exit(napi));
	CHECK_OK(pp_napi_destroy(napi));
	CHECK_OK(pp_napi_destroy(other));
	end(pool, arena);
}

TEST(promise_is_trusted)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *p[3];

	alloc_n(pool, 3, p);
	page_pool_put_full_page(pool, p[0], true);
	page_pool_recycle_direct(pool, p[1]);
	page_pool_put_page(pool, p[2], 0, true);
	CHECK_EQ(stats_of(pool).recycle_cached, 3);
	CHECK_EQ(stats_of(pool).recycle_ring, 0);
	end(pool, arena);
}

TEST(bind_and_unbind)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_napi *napi, *other;

	CHECK_OK(pp_napi_create(&napi));
	CHECK_OK(pp_napi_create(&other));
	expect(pool, napi, false, false);
	CHECK_OK(page_pool_disable_direct_recycling(pool)); /* nothing bound: nothing to do */
	CHECK_FAILS(page_pool_enable_direct_recycling(pool, NULL), EINVAL, "no napi to bind pool");
	CHECK_OK(page_pool_enable_direct_recycling(pool, napi));
	CHECK_OK(page_pool_enable_direct_recycling(pool, napi)); /* it is already */
	expect(pool, napi, false, true);
	CHECK_FAILS(page_pool_enable_direct_recycling(pool, other), EBUSY,
		    "is bound to another napi: disable direct recycling first");
	CHECK_OK(pp_napi_enter(napi));
	CHECK_FAILS(page_pool_disable_direct_recycling(pool), EBUSY,
		    "a thread is in the napi of pool");
	CHECK_OK(pp_napi_exit(napi));
	CHECK_OK(page_pool_disable_direct_recycling(pool));
	expect(pool, napi, false, false);
	CHECK_OK(page_pool_enable_direct_recycling(pool, other));
	expect(pool, other, false, true);
	expect(pool, napi, false, false);
	/* Back and forth binds, but keeps each napi only once. */
	for (int i = 0; i < 10; i++) {
		CHECK_OK(page_pool_disable_direct_recycling(pool));
		CHECK_OK(page_pool_enable_direct_recycling(pool, i % 2 ? other : napi));
	}
	CHECK_EQ(napi->refs, 2);
	CHECK_EQ(other->refs, 2);
	/* The creators may go first. */
	CHECK_OK(pp_napi_destroy(napi));
	CHECK_OK(pp_napi_destroy(other));
	end(pool, arena);
}

/* The pool keeps what a late producer may look at, even once it is bound to another. */
TEST(napi_goes_before_its_pool)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct pp_napi *napi;
	struct page_pool *pool;

	CHECK_OK(pp_napi_create(&napi));
	pool = make_pool(arena, 0, napi);
	CHECK_OK(pp_napi_destroy(napi));
	expect(pool, NULL, false, false);
	expect(pool, NULL, true, false);
	end(pool, arena);
}

TEST(two_pools_of_one_napi)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct pp_napi *napi;
	struct page_pool *a, *b;

	CHECK_OK(pp_napi_create(&napi));
	a = make_pool(arena, 0, napi);
	b = make_pool(arena, 0, napi);
	expect(a, napi, false, true);
	expect(b, napi, false, true);
	end_pool(a, arena);
	expect(b, napi, true, true);
	end(b, arena);
	CHECK_EQ(napi->refs, 1);
	CHECK_OK(pp_napi_destroy(napi));
}
