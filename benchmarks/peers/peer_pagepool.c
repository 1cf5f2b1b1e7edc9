/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ours, over the public API. Every call is a call into the static library.
 *
 * PATH[-VARIANT]@SIZE: a pool of SIZE slots, and
 *   fast        in the pool's napi, put without a promise: the context check lets it in directly
 *   direct      no napi, page_pool_recycle_direct: the caller's promise
 *   ring        no napi, no promise: through the ring, 64 pages going round
 *   ring-full   the same with SIZE - 16 pages going round; 16 is what the ring may hold back
 *   slow        in the napi; somebody else holds the page: back to the provider
 *   slow-outside the same without a napi
 *   bulk32      in the napi, 32 at a time
 *   bulk32-ring no napi, 32 at a time
 *   cross-bulk32 the same, and another thread puts them (see cross.h)
 *   handover    what lies between the two threads of cross-bulk32, without a pool
 *
 * VARIANT
 *   nostats        without statistics
 *   dma            pages are mapped (by a device without an IOMMU), and the pool knows which
 *   dma-untracked  mapped, by the rule that does not
 *   checked        in checked mode
 *   list, ours     of another design; also -nostats
 *
 * With statistics, each run checks that it took the path that it says.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pagepool.h>

#include "cross.h"
#include "peer.h"

#define BATCH 32
#define HELD_BACK 16
#define FEW 64

struct path {
	const char *name;
	unsigned batch;
	bool napi;
	bool all; /* as many pages as the ring takes, not FEW */
	uint64_t (*run)(void *ctx, uint64_t turns);
	const char *(*check)(const struct page_pool_stats *delta, uint64_t elements);
};

static struct pp_napi *napi;
static struct page_pool_stats before;

static uint64_t run_fast(void *ctx, uint64_t turns)
{
	struct page_pool *pool = ctx;

	for (uint64_t i = 0; i < turns; i++) {
		struct pp_page *page = page_pool_alloc_pages(pool);

		if (peer_unlikely(!page))
			return i;
		PEER_USE(page);
		page_pool_put_full_page(pool, page, false);
	}
	return turns;
}

static uint64_t run_direct(void *ctx, uint64_t turns)
{
	struct page_pool *pool = ctx;

	for (uint64_t i = 0; i < turns; i++) {
		struct pp_page *page = page_pool_alloc_pages(pool);

		if (peer_unlikely(!page))
			return i;
		PEER_USE(page);
		page_pool_recycle_direct(pool, page);
	}
	return turns;
}

static uint64_t run_slow(void *ctx, uint64_t turns)
{
	struct page_pool *pool = ctx;

	for (uint64_t i = 0; i < turns; i++) {
		struct pp_page *page = page_pool_alloc_pages(pool);

		if (peer_unlikely(!page))
			return i;
		pp_page_get(page);
		PEER_USE(page);
		page_pool_put_full_page(pool, page, false);
		pp_page_put(page);
	}
	return turns;
}

static uint64_t run_bulk(void *ctx, uint64_t turns)
{
	struct page_pool *pool = ctx;
	struct pp_page *pages[BATCH];

	for (uint64_t i = 0; i < turns; i++) {
		struct pp_page **all = pages;
		size_t got = page_pool_alloc_pages_bulk(pool, BATCH, pages);

		if (peer_unlikely(got < BATCH)) {
			page_pool_put_page_bulk(pages, got);
			return i;
		}
		PEER_USE(all);
		page_pool_put_page_bulk(all, BATCH);
	}
	return turns;
}

static inline int cross_alloc_bulk(void *pool, void **objects)
{
	struct pp_page **pages = (struct pp_page **)objects;
	size_t got = page_pool_alloc_pages_bulk(pool, CROSS_BATCH, pages);

	if (peer_unlikely(got < CROSS_BATCH)) {
		page_pool_put_page_bulk(pages, got);
		return -1;
	}
	return 0;
}

static inline void cross_put_bulk(void *pool, void **objects)
{
	(void)pool;
	page_pool_put_page_bulk((struct pp_page **)objects, CROSS_BATCH);
}

static uint64_t run_cross(void *ctx, uint64_t turns)
{
	return cross_run(ctx, turns, cross_alloc_bulk);
}

static void *put_cross(void *cross)
{
	return cross_back(cross, cross_put_bulk);
}

static inline int cross_nothing(void *pool, void **objects)
{
	for (unsigned i = 0; i < CROSS_BATCH; i++)
		objects[i] = pool;
	return 0;
}

static inline void cross_look(void *pool, void **objects)
{
	(void)pool;
	PEER_USE(objects);
}

static uint64_t run_handover(void *ctx, uint64_t turns)
{
	return cross_run(ctx, turns, cross_nothing);
}

static void *look_cross(void *cross)
{
	return cross_back(cross, cross_look);
}

static int open_handover(struct peer_test *test)
{
	return cross_open(test, NULL, look_cross, NULL);
}

static const char *check_direct(const struct page_pool_stats *delta, uint64_t elements)
{
	if (delta->alloc_fast != elements)
		return "not every page came from the cache";
	if (delta->recycle_cached != elements)
		return "not every page went into the cache";
	return NULL;
}

static const char *check_ring(const struct page_pool_stats *delta, uint64_t elements)
{
	if (delta->alloc_fast + delta->alloc_refill != elements || !delta->alloc_refill)
		return "not every page came from the ring";
	if (delta->recycle_ring != elements)
		return "not every page went into the ring";
	return NULL;
}

/* What was under way when the run began has come back before. */
static const char *check_cross(const struct page_pool_stats *delta, uint64_t elements)
{
	if (delta->recycle_ring != elements)
		return "not every page came back through the ring or a lane";
	if (delta->alloc_slow > elements / 1000)
		return "pages came from the provider";
	return NULL;
}

static const char *check_slow(const struct page_pool_stats *delta, uint64_t elements)
{
	/* At least one call of the provider for each 64 pages, give or take the first cache. */
	if (delta->alloc_slow + 2 < elements / PP_ALLOC_CACHE_REFILL)
		return "not every page came from the provider";
	if (delta->recycle_released_refcnt != elements)
		return "not every page left the pool";
	return NULL;
}

static const struct path paths[] = {
	{"fast", 1, true, false, run_fast, check_direct},
	{"direct", 1, false, false, run_direct, check_direct},
	{"ring", 1, false, false, run_fast, check_ring},
	{"ring-full", 1, false, true, run_fast, check_ring},
	{"slow", 1, true, false, run_slow, check_slow},
	{"slow-outside", 1, false, false, run_slow, check_slow},
	{"bulk32", BATCH, true, false, run_bulk, check_direct},
	{"bulk32-ring", BATCH, false, false, run_bulk, check_ring},
	{"cross-bulk32", CROSS_BATCH, false, false, run_cross, check_cross},
};
static const unsigned sizes[] = {64, 1024, 16384};
static const struct {
	const char *suffix;
	unsigned flags;
	unsigned design;
} variants[] = {
	{"", 0, PP_DESIGN_RING},
	{"-nostats", PP_FLAG_NO_STATS, PP_DESIGN_RING},
	{"-dma", PP_FLAG_DMA_MAP, PP_DESIGN_RING},
	{"-dma-untracked", PP_FLAG_DMA_MAP | PP_FLAG_NO_TRACKING, PP_DESIGN_RING},
	{"-checked", PP_FLAG_CHECKED, PP_DESIGN_RING},
	{"-list", 0, PP_DESIGN_LIST},
	{"-list-nostats", PP_FLAG_NO_STATS, PP_DESIGN_LIST},
	{"-ours", 0, PP_DESIGN_OURS},
	{"-ours-nostats", PP_FLAG_NO_STATS, PP_DESIGN_OURS},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* So many pages, and no other, are the pool's afterwards. */
static int prime(struct page_pool *pool, const struct path *path, unsigned pages)
{
	unsigned all =
		(pages + PP_ALLOC_CACHE_REFILL - 1) / PP_ALLOC_CACHE_REFILL * PP_ALLOC_CACHE_REFILL;
	struct pp_page **held = calloc(all, sizeof(*held));
	unsigned got = 0;

	if (!held)
		return -ENOMEM;
	while (got < all && (held[got] = page_pool_alloc_pages(pool)))
		got++;
	for (unsigned i = 0; i < got; i++) {
		bool surplus = i >= pages;

		if (surplus)
			pp_page_get(held[i]);
		page_pool_put_full_page(pool, held[i], path->check == check_direct);
		if (surplus)
			pp_page_put(held[i]);
	}
	free(held);
	return got < all ? -ENOMEM : 0;
}

static int open_pool(struct peer_test *test)
{
	const struct path *path = test->spec;
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct page_pool *pool;
	unsigned few = test->size - HELD_BACK < FEW ? test->size - HELD_BACK : FEW;
	int error;

	params.pool_size = test->size;
	params.flags = test->flags;
	params.design = test->design;
	params.napi = path->napi ? napi : NULL;
	if (test->flags & PP_FLAG_DMA_MAP)
		params.dma_dir = PP_DMA_FROM_DEVICE;
	error = page_pool_create(&params, &pool);
	if (!error)
		error = prime(pool, path,
			      path->all                   ? test->size - HELD_BACK
			      : path->check == check_ring ? few
							  : FEW);
	if (error)
		return error;
	if (path->run == run_cross)
		return cross_open(test, pool, put_cross, NULL);
	test->ctx = pool;
	return 0;
}

static struct page_pool *pool_of(struct peer_test *test)
{
	const struct path *path = test->spec;

	return path->run == run_cross ? ((struct cross *)test->ctx)->pool : test->ctx;
}

static void take_stats(struct peer_test *test)
{
	memset(&before, 0, sizeof(before));
	before.size = sizeof(before);
	page_pool_get_stats(pool_of(test), &before);
}

static const char *check_stats(struct peer_test *test, uint64_t turns)
{
	const struct path *path = test->spec;
	struct page_pool_stats now = {.size = sizeof(now)};

	if (page_pool_get_stats(pool_of(test), &now))
		return "no statistics";
#define SUBTRACT(group, name) now.group##_##name -= before.group##_##name;
	PAGE_POOL_STATS(SUBTRACT)
#undef SUBTRACT
	return path->check(&now, turns * path->batch);
}

int main(int argc, char **argv)
{
	static struct peer_test tests[COUNT(paths) * COUNT(sizes) * COUNT(variants) + 1];
	struct peer peer = {
		.name = "pagepool",
		.version = page_pool_version(),
		.detail = "",
		.tests = tests,
	};

	peer_start(argc, argv);
	if (pp_napi_create(&napi) || pp_napi_enter(napi)) {
		fprintf(stderr, "%s: %s\n", argv[0], page_pool_last_error());
		return 1;
	}
	for (size_t p = 0; p < COUNT(paths); p++) {
		for (size_t s = 0; s < COUNT(sizes); s++) {
			for (size_t v = 0; v < COUNT(variants); v++) {
				struct peer_test *test = &tests[peer.count++];
				bool off = variants[v].flags & PP_FLAG_NO_STATS;

				snprintf(test->name, sizeof(test->name), "%s%s@%u", paths[p].name,
					 variants[v].suffix, sizes[s]);
				test->batch = paths[p].batch;
				test->size = sizes[s];
				test->flags = variants[v].flags;
				test->design = variants[v].design;
				test->spec = &paths[p];
				test->open = open_pool;
				test->run = paths[p].run;
				test->before = off ? NULL : take_stats;
				test->after = off ? NULL : check_stats;
			}
		}
	}
	tests[peer.count++] = (struct peer_test){
		.name = "handover",
		.batch = CROSS_BATCH,
		.open = open_handover,
		.run = run_handover,
	};
	return peer_serve(&peer);
}
