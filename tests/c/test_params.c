/* SPDX-License-Identifier: BSD-2-Clause */
/* Parameters: what is refused, and with which words; structs of other versions. */
#include "test.h"

TEST(pool_size_is_clamped)
{
	static const unsigned sizes[][2] = {{0, 1024},      {1, 1},         {1000, 1000},
					    {16384, 16384}, {16385, 16384}, {~0u, 16384}};
	struct pp_provider *arena = make_arena(4 * MIB);

	for (size_t i = 0; i < PP_ARRAY_SIZE(sizes); i++) {
		struct page_pool *pool = make_pool(arena, sizes[i][0], NULL);

		CHECK_EQ(page_pool_size(pool), sizes[i][1]);
		end_pool(pool, arena);
	}
	pp_provider_put(arena);
}

TEST(pool_refuses)
{
	struct page_pool_params good = PAGE_POOL_PARAMS_INIT, p;
	struct page_pool *pool = (struct page_pool *)&good;

	good.provider = make_arena(4 * MIB);
#define REFUSED(field, value, text)                                     \
	do {                                                            \
		p = good;                                               \
		p.field = (value);                                      \
		CHECK_FAILS(page_pool_create(&p, &pool), EINVAL, text); \
		CHECK_PTR(pool, &good);                                 \
	} while (0)
	REFUSED(order, 11, "order 11: a page is at most of order 10 (4194304 bytes)");
	REFUSED(order, ~0u, "order 4294967295: a page is at most of order 10");
	REFUSED(flags, 4, "unknown pool flags 0x4");
	REFUSED(flags, PP_FLAG_NO_STATS | 0x80000000u, "unknown pool flags 0x80000000");
	REFUSED(nid, -2, "NUMA node -2: must be from 0 to 1023, or -1 for none");
	REFUSED(nid, 1024, "NUMA node 1024: must be");
	REFUSED(size, 0, "struct page_pool_params.size is 0, less than the");
	REFUSED(size, sizeof(p) - 1, "it must be: set it to sizeof");
	REFUSED(size, 4097, "struct page_pool_params.size is 4097, which no version has");
#undef REFUSED
	CHECK_EQ(refs_of(good.provider), 1); /* nothing kept */
	p = good;
	p.nid = 1023;
	p.order = 10;
	p.flags = PP_FLAG_NO_STATS;
	CHECK_OK(page_pool_create(&p, &pool));
	CHECK_EQ(page_pool_nid(pool), 1023);
	end(pool, good.provider);
}

TEST(pool_params_of_a_later_version)
{
	struct {
		struct page_pool_params p;
		unsigned char more[16];
	} later;
	struct page_pool *pool;
	char at[64];

	memset(&later, 0, sizeof(later));
	later.p = (struct page_pool_params)PAGE_POOL_PARAMS_INIT;
	later.p.size = sizeof(later);
	later.p.provider = make_arena(4 * MIB);
	CHECK_OK(page_pool_create(&later.p, &pool));
	end_pool(pool, later.p.provider);
	later.more[15] = 1;
	snprintf(at, sizeof(at), "has a field at byte %zu that this version", sizeof(later) - 1);
	CHECK_FAILS(page_pool_create(&later.p, &pool), EINVAL, at);
	later.more[0] = 1;
	snprintf(at, sizeof(at), "has a field at byte %zu that this version", sizeof(later.p));
	CHECK_FAILS(page_pool_create(&later.p, &pool), EINVAL, at);
	later.p.size = sizeof(later.p); /* then it is not looked at */
	CHECK_OK(page_pool_create(&later.p, &pool));
	end(pool, later.p.provider);
}

TEST(arena_refuses)
{
	struct pp_arena_params good = PP_ARENA_PARAMS_INIT, p;
	struct pp_provider *arena = (struct pp_provider *)&good;

#define REFUSED(field, value, text)                                     \
	do {                                                            \
		p = good;                                               \
		p.limit = 8 * MIB;                                      \
		p.field = (value);                                      \
		CHECK_FAILS(pp_arena_create(&p, &arena), EINVAL, text); \
		CHECK_PTR(arena, &good);                                \
	} while (0)
	REFUSED(limit, SIZE_MAX, "more than the largest, ");
	REFUSED(limit, (size_t)1 << 44, "an arena's limit of 17592186044416 bytes is more than");
	REFUSED(reserve, 8 * MIB, "reserve of 8388608 bytes leaves nothing of 8388608");
	REFUSED(nid, -2, "NUMA node -2: must be from 0 to 1023, or -1 for none");
	REFUSED(nid, 1024, "NUMA node 1024");
	REFUSED(huge, 3, "huge page kind 3 is unknown");
	REFUSED(size, 4, "struct pp_arena_params.size is 4, less than the");
	REFUSED(size, 5000, "struct pp_arena_params.size is 5000, which no version has");
#undef REFUSED
	p = good; /* without a limit, it is the machine's that the reserve is held against */
	p.reserve = SIZE_MAX;
	CHECK_FAILS(pp_arena_create(&p, &arena), EINVAL, "reserve of ");
	p.reserve = 0;
	CHECK_OK(pp_arena_create(&p, &arena));
	CHECK(info_of(arena).limit >= 4 * MIB);
	CHECK(info_of(arena).limit <= (uint64_t)64 << 30);
	pp_provider_put(arena);
}

TEST(arena_params_of_a_later_version)
{
	struct {
		struct pp_arena_params p;
		unsigned char more[16];
	} later;
	struct pp_provider *arena;

	memset(&later, 0, sizeof(later));
	later.p = (struct pp_arena_params)PP_ARENA_PARAMS_INIT;
	later.p.size = sizeof(later);
	later.p.limit = 4 * MIB;
	CHECK_OK(pp_arena_create(&later.p, &arena));
	pp_provider_put(arena);
	later.more[3] = 1;
	CHECK_FAILS(pp_arena_create(&later.p, &arena), EINVAL,
		    "struct pp_arena_params has a field at byte");
}

/* What the library fills in: no more than the caller has, zero what it does not know. */
TEST(stats_of_other_versions)
{
	struct {
		struct page_pool_stats s;
		unsigned char more[16];
	} buf;
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *p[3];

	alloc_n(pool, 3, p);
	memset(&buf, 0xff, sizeof(buf));
	buf.s.size = offsetof(struct page_pool_stats, alloc_slow_high_order);
	CHECK_OK(page_pool_get_stats(pool, &buf.s));
	CHECK_EQ(buf.s.size, offsetof(struct page_pool_stats, alloc_slow_high_order));
	CHECK_EQ(buf.s.alloc_fast, 2);
	CHECK_EQ(buf.s.alloc_slow, 1);
	CHECK_EQ(buf.s.alloc_slow_high_order, UINT64_MAX); /* untouched */

	memset(&buf, 0xff, sizeof(buf));
	buf.s.size = sizeof(buf);
	CHECK_OK(page_pool_get_stats(pool, &buf.s));
	CHECK_EQ(buf.s.size, sizeof(buf));
	CHECK_EQ(buf.s.alloc_empty, 1);
	CHECK_EQ(buf.s.recycle_released_refcnt, 0);
	for (int i = 0; i < 16; i++)
		CHECK_EQ(buf.more[i], 0);

	buf.s.size = 7;
	CHECK_FAILS(page_pool_get_stats(pool, &buf.s), EINVAL,
		    "struct page_pool_stats.size is 7, less than the 8");
	buf.s.size = 1 << 20;
	CHECK_FAILS(page_pool_get_stats(pool, &buf.s), EINVAL, "which no version has");
	put_n(pool, 3, p, true);
	end(pool, arena);
}

TEST(info_of_other_versions)
{
	struct {
		struct pp_provider_info i;
		unsigned char more[16];
	} buf;
	struct pp_provider *arena = make_arena(5 * MIB);

	memset(&buf, 0xff, sizeof(buf));
	buf.i.size = offsetof(struct pp_provider_info, out);
	CHECK_OK(pp_provider_get_info(arena, &buf.i));
	CHECK_EQ(buf.i.limit, 8 * MIB);
	CHECK_EQ(buf.i.mapped, 0);
	CHECK_EQ(buf.i.out, UINT64_MAX);
	memset(&buf, 0xff, sizeof(buf));
	buf.i.size = sizeof(buf);
	CHECK_OK(pp_provider_get_info(arena, &buf.i));
	CHECK_EQ(buf.i.out, 0);
	for (int i = 0; i < 16; i++)
		CHECK_EQ(buf.more[i], 0);
	buf.i.size = 0;
	CHECK_FAILS(pp_provider_get_info(arena, &buf.i), EINVAL,
		    "struct pp_provider_info.size is 0, less than the 8");
	pp_provider_put(arena);
}

TEST(version)
{
	char text[32];

	snprintf(text, sizeof(text), "%d.%d.%d", PAGEPOOL_VERSION_MAJOR, PAGEPOOL_VERSION_MINOR,
		 PAGEPOOL_VERSION_PATCH);
	CHECK(!strcmp(text, page_pool_version()));
}

static void *other_thread_has_no_error(void *arg)
{
	CHECK(!strcmp(page_pool_last_error(), ""));
	CHECK(pp_fail(-EINVAL, "%0300d", 7) == -EINVAL); /* longer than the buffer: cut */
	CHECK_EQ(strlen(page_pool_last_error()), 255);
	return arg;
}

TEST(last_error_is_the_threads)
{
	struct page_pool_params p = PAGE_POOL_PARAMS_INIT;
	struct page_pool *pool;

	p.order = 12;
	CHECK_FAILS(page_pool_create(&p, &pool), EINVAL, "order 12");
	on_thread(other_thread_has_no_error, NULL);
	CHECK(strstr(page_pool_last_error(), "order 12"));
}

TEST(pool_with_an_arena_of_its_own)
{
	struct page_pool_params p = PAGE_POOL_PARAMS_INIT;
	struct pp_provider *arena;
	struct page_pool *pool;
	struct pp_page *page;

	CHECK_OK(page_pool_create(&p, &pool));
	arena = page_pool_provider(pool);
	CHECK_EQ(refs_of(arena), 1);
	pp_provider_get(arena);
	page = page_pool_alloc_pages(pool);
	CHECK(page);
	page_pool_put_full_page(pool, page, true);
	if (!(page_pool_flags(pool) & PP_FLAG_CHECKED)) {
		end(pool, arena);
		return;
	}
	/* Kept for a while, for who puts a page into a dead pool: see test_check.c. */
	CHECK_POOL(pool);
	page_pool_destroy(pool);
	CHECK_EQ(refs_of(arena), 2);
	CHECK_EQ(pages_out(arena), 0);
	CHECK_ARENA(arena);
	pp_provider_put(arena);
}
