// SPDX-License-Identifier: BSD-2-Clause
/*
 * Does bench_simple notice when it measured another road than it says? Every loop is run in every
 * kind of pool, under every promise; only the true ones may give a figure. For that the test has
 * to reach what bench_simple.c keeps to itself, so it includes it.
 */
#include "bench/bench_simple.c"

#include <stdio.h>

static int failures;

static void fail(const char *what, const struct pool_test *t, int err, const char *error)
{
	fprintf(stderr, "%s: road %d, in napi %d, bound %d: %d %s\n", what, t->road, t->in_napi,
		t->bound, err, error);
	failures++;
}

static enum road true_road(const struct pool_test *t)
{
	if (t->loop == time_put_referenced)
		return ROAD_SLOW;
	if (t->loop == time_recycle_direct)
		return ROAD_DIRECT;
	return t->in_napi && t->bound ? ROAD_DIRECT : ROAD_RING;
}

/* An odd number of loops: in a pool that does not track what it maps. */
static int run(const struct pool_test *t, enum bench_simple_dma dma, uint64_t loops, bool no_stats,
	       struct time_bench_record *rec)
{
	struct bench_simple_params params = {
		.no_stats = no_stats,
		.dma = dma,
		.no_tracking = loops & 1,
	};
	struct pool_run pool_run = {.test = t, .params = &params};
	struct time_bench_request request = {
		.name = "road", .loops = loops, .fn = time_page_pool, .data = &pool_run};

	return time_bench_run(&request, rec);
}

static void test_roads(enum bench_simple_dma dma)
{
	void (*const loops[])(struct time_bench_record *, struct page_pool *) = {
		time_recycle_direct, time_put, time_put_referenced};

	for (size_t i = 0; i < PP_ARRAY_SIZE(loops); i++) {
		for (int bits = 0; bits < 12; bits++) {
			struct pool_test t = {loops[i], (enum road)(bits >> 2), bits & 1, bits & 2};
			struct time_bench_record rec;
			int err;

			if (t.bound && !t.in_napi)
				continue; /* there is no napi to bind it to */
			err = run(&t, dma, 1000 + (bits & 1), false, &rec);
			if (t.road == true_road(&t) && err)
				fail("refused the true road", &t, err, rec.error);
			if (t.road != true_road(&t) && err != -EPROTO)
				fail("took another road for the named one", &t, err, rec.error);
			if (err == -EPROTO && !strstr(rec.error, "measured something else"))
				fail("does not say what is wrong", &t, err, rec.error);
			/* Without statistics nobody can tell. */
			err = run(&t, dma, 1000, true, &rec);
			if (err)
				fail("failed without statistics", &t, err, rec.error);
		}
	}
}

/* A provider that has run dry: the loop ends, and what is left is no figure. */
static int time_dry(struct time_bench_record *rec, void *data)
{
	struct page_pool *pool = data;

	time_put(rec, pool);
	return 0;
}

static void test_out_of_pages(void)
{
	struct pp_arena_params arena = PP_ARENA_PARAMS_INIT;
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	/* 4 MiB is the least that an arena has. */
	static struct pp_page *pages[2048];
	struct pp_provider *provider;
	struct page_pool *pool;
	struct time_bench_record rec;
	struct time_bench_request request = {.name = "dry", .loops = 1000, .fn = time_dry};
	size_t n = 0;
	int err;

	arena.limit = (size_t)4 << 20;
	if (pp_arena_create(&arena, &provider)) {
		fprintf(stderr, "no arena: %s\n", page_pool_last_error());
		failures++;
		return;
	}
	params.provider = provider;
	if (page_pool_create(&params, &pool)) {
		fprintf(stderr, "no pool: %s\n", page_pool_last_error());
		failures++;
		pp_provider_put(provider);
		return;
	}
	while (n < PP_ARRAY_SIZE(pages) && (pages[n] = page_pool_alloc_pages(pool)))
		n++;
	if (n == 0 || n == PP_ARRAY_SIZE(pages)) {
		fprintf(stderr, "the arena of 4 MiB gave %zu pages\n", n);
		failures++;
	}
	request.data = pool;
	err = time_bench_run(&request, &rec);
	if (err != -ENODATA || strcmp(rec.error, "dry: no round of 1000 was done")) {
		fprintf(stderr, "out of pages: %d %s\n", err, rec.error);
		failures++;
	}
	while (n)
		page_pool_put_full_page(pool, pages[--n], false);
	page_pool_destroy(pool);
	pp_provider_put(provider);
}

int main(void)
{
	test_roads(BENCH_DMA_OFF);
	test_roads(BENCH_DMA_NONE);
	test_roads(BENCH_DMA_IOMMU);
	test_out_of_pages();
	if (failures)
		fprintf(stderr, "%d checks failed\n", failures);
	return failures ? 1 : 0;
}
