// SPDX-License-Identifier: BSD-2-Clause
/*
 * Contexts. The kernel's module runs its tests twice: from module init (process context, where it
 * may not touch the cache) and from a tasklet. Here
 *
 *   no-softirq  the pool has no napi. The loop is its only user, so its promise of direct
 *               recycling (allow_direct) holds, and 01 measures that promise being trusted.
 *   tasklet     the loop runs inside a napi. 01 and 03 put into a pool that is bound to it,
 *               without a promise: the pool finds out by itself that it may recycle directly,
 *               so the context check is part of the figure. 02 has to miss the cache, and a
 *               bound pool would not: its pool is not bound, as the kernel's is not.
 *
 * Prefill. 64 pages are allocated and put back before the loop. So 64 pages circulate: 01 takes
 * the newest and gives it back, 02 takes 64 from the cache while these go through the ring, and
 * then one refill moves 64 at once. 1/64 of a refill per round is therefore part of 02's figure,
 * as 1/64 of a bulk allocation is of 03's.
 */
#include "bench_simple.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/spinlock.h"
#include "pagepool.h"

/* Where a loop begins must not depend on what was compiled in front of it. */
#define TIMED PP_NOINLINE PP_ALIGNED(64)

/* The optimizer must not fold the rounds into one, nor keep memory in registers across them. */
#define barrier() __asm__ __volatile__("" : : : "memory")

/* ---- baselines ---------------------------------------------------------------------------- */

static TIMED int time_for_loop(struct time_bench_record *rec, void *data)
{
	uint64_t i, loops = rec->loops;

	(void)data;
	time_bench_start(rec);
	for (i = 0; i < loops; i++)
		barrier();
	time_bench_stop(rec, i);
	return 0;
}

static TIMED int time_atomic_inc(struct time_bench_record *rec, void *data)
{
	uint64_t i, loops = rec->loops;
	uint32_t counter = 0;

	(void)data;
	time_bench_start(rec);
	for (i = 0; i < loops; i++) {
		/* relaxed: nobody else looks; what is measured is the atomic addition itself. */
		pp_fetch_add_relaxed(&counter, 1u);
		barrier();
	}
	time_bench_stop(rec, i);
	if (counter != (uint32_t)loops)
		return time_bench_fail(rec, -EPROTO,
				       "%s: %" PRIu64 " additions made %" PRIu32 ", not %" PRIu32,
				       rec->name, loops, counter, (uint32_t)loops);
	return 0;
}

static TIMED int time_lock(struct time_bench_record *rec, void *data)
{
	uint64_t i, loops = rec->loops;
	struct pp_spinlock lock;

	(void)data;
	pp_spinlock_init(&lock);
	time_bench_start(rec);
	for (i = 0; i < loops; i++) {
		pp_spin_lock(&lock);
		barrier();
		pp_spin_unlock(&lock);
	}
	time_bench_stop(rec, i);
	return 0;
}

/* ---- the three ways back ------------------------------------------------------------------- */

/*
 * The loops. put is a statement over pool and page. A page that cannot be had ends the loop; the
 * record then says how many rounds there were.
 */
#define TIME_ALLOC_AND(put)                                 \
	do {                                                \
		uint64_t i_, loops_ = rec->loops;           \
                                                            \
		time_bench_start(rec);                      \
		for (i_ = 0; i_ < loops_; i_++) {           \
			struct pp_page *page;               \
                                                            \
			page = page_pool_alloc_pages(pool); \
			if (unlikely(!page))                \
				break;                      \
			put;                                \
		}                                           \
		time_bench_stop(rec, i_);                   \
	} while (0)

static TIMED void time_recycle_direct(struct time_bench_record *rec, struct page_pool *pool)
{
	TIME_ALLOC_AND(page_pool_recycle_direct(pool, page));
}

/* In a bound pool's napi this is direct all the same; otherwise it goes through the ring. */
static TIMED void time_put(struct time_bench_record *rec, struct page_pool *pool)
{
	TIME_ALLOC_AND(page_pool_put_full_page(pool, page, false));
}

/* Somebody else holds the page: the put takes it out of the pool, the second holder frees it. */
static TIMED void time_put_referenced(struct time_bench_record *rec, struct page_pool *pool)
{
	TIME_ALLOC_AND(pp_page_get(page); page_pool_put_full_page(pool, page, false);
		       pp_page_put(page));
}

/* ---- did it measure what its name says? ---------------------------------------------------- */

enum road {
	ROAD_DIRECT,
	ROAD_RING,
	ROAD_SLOW
};

static int expect(struct time_bench_record *rec, const char *what, uint64_t is, uint64_t low,
		  uint64_t high)
{
	if (is >= low && is <= high)
		return 0;
	return time_bench_fail(rec, -EPROTO,
			       "%s: measured something else: %s is %" PRIu64 " after %" PRIu64
			       " rounds, expected %" PRIu64 " to %" PRIu64,
			       rec->name, what, is, rec->invoke_count, low, high);
}

static int verify(struct time_bench_record *rec, enum road road, const struct page_pool_stats *a,
		  const struct page_pool_stats *b)
{
	const uint64_t n = rec->invoke_count;
	/* The loop starts with 64 pages in the cache or in the ring; after that a refill, or a
	 * bulk allocation, serves up to 64 rounds. */
	const uint64_t batches = n / BENCH_SIMPLE_PREFILL;
	const uint64_t few = batches ? batches - 1 : 0;
	const uint64_t slow = b->alloc_slow - a->alloc_slow;
	const uint64_t refill = b->alloc_refill - a->alloc_refill;
	const uint64_t allocated = b->alloc_fast - a->alloc_fast + refill + slow;
	const uint64_t cached = b->recycle_cached - a->recycle_cached;
	const uint64_t ring = b->recycle_ring - a->recycle_ring;
	const uint64_t full = b->recycle_ring_full - a->recycle_ring_full;
	const uint64_t released = b->recycle_released_refcnt - a->recycle_released_refcnt;
	int err = expect(rec, "alloc fast + refill + slow", allocated, n, n);

	if (!err)
		err = expect(rec, "recycle cached", cached, road == ROAD_DIRECT ? n : 0,
			     road == ROAD_DIRECT ? n : 0);
	if (!err)
		err = expect(rec, "recycle ring", ring, road == ROAD_RING ? n : 0,
			     road == ROAD_RING ? n : 0);
	if (!err)
		err = expect(rec, "recycle released_refcnt", released, road == ROAD_SLOW ? n : 0,
			     road == ROAD_SLOW ? n : 0);
	if (!err)
		err = expect(rec, "recycle ring_full", full, 0, 0);
	if (!err)
		err = expect(rec, "alloc slow", slow, road == ROAD_SLOW ? few : 0,
			     road == ROAD_SLOW ? n : 0);
	if (!err)
		err = expect(rec, "alloc refill", refill, road == ROAD_RING ? few : 0,
			     road == ROAD_RING ? n : 1);
	return err;
}

/* ---- a pool around a loop ------------------------------------------------------------------ */

struct pool_test {
	void (*loop)(struct time_bench_record *rec, struct page_pool *pool);
	enum road road;
	bool in_napi;
	bool bound;
};

struct pool_run {
	const struct pool_test *test;
	const struct bench_simple_params *params;
};

/* The parameters of a test's pool, but for napi and device. */
static struct page_pool_params pool_params(const struct bench_simple_params *p)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;

	params.pool_size = BENCH_SIMPLE_POOL_SIZE;
	params.design = p->design;
	params.flags = (p->no_stats ? PP_FLAG_NO_STATS : 0) | (p->checked ? PP_FLAG_CHECKED : 0);
	if (p->dma != BENCH_DMA_OFF)
		params.flags |= PP_FLAG_DMA_MAP | (p->no_tracking ? PP_FLAG_NO_TRACKING : 0);
	return params;
}

const char *const bench_simple_dma_names[3] = {"off", "none", "iommu"};

const char *bench_simple_dma_text(const struct bench_simple_params *params)
{
	switch (params->dma) {
	case BENCH_DMA_NONE:
		return params->no_tracking ? "mapped without an IOMMU, not tracked"
					   : "mapped without an IOMMU, tracked";
	case BENCH_DMA_IOMMU:
		return params->no_tracking ? "mapped by a software IOMMU, not tracked"
					   : "mapped by a software IOMMU, tracked";
	case BENCH_DMA_OFF:
		break;
	}
	return "off";
}

const char *bench_simple_checked_text(const struct bench_simple_params *params)
{
	struct page_pool_params p = pool_params(params);
	struct page_pool *pool;
	unsigned flags;

	if (page_pool_create(&p, &pool))
		return NULL;
	flags = page_pool_flags(pool);
	page_pool_destroy(pool);
	if (flags & PP_FLAG_CHECKED_FULL)
		return "full: these are not the pool's figures";
	return flags & PP_FLAG_CHECKED ? "on: these are not the pool's figures" : "off";
}

static int prefill(struct time_bench_record *rec, struct page_pool *pool)
{
	struct pp_page *pages[BENCH_SIMPLE_PREFILL];
	size_t n = 0;

	while (n < BENCH_SIMPLE_PREFILL) {
		pages[n] = page_pool_alloc_pages(pool);
		if (!pages[n])
			break;
		n++;
	}
	for (size_t i = 0; i < n; i++)
		page_pool_put_full_page(pool, pages[i], false);
	if (n < BENCH_SIMPLE_PREFILL)
		return time_bench_fail(rec, -ENOMEM, "%s: only %zu of %d pages to be had",
				       rec->name, n, BENCH_SIMPLE_PREFILL);
	return 0;
}

/* A page that is mapped is unmapped when it leaves the pool, and only then. */
static int verify_dma(struct time_bench_record *rec, enum road road,
		      const struct page_pool_dma_stats *a, const struct page_pool_dma_stats *b)
{
	const uint64_t n = road == ROAD_SLOW ? rec->invoke_count : 0;

	return expect(rec, "unmaps", b->unmaps - a->unmaps, n, n);
}

static int no_statistics(struct time_bench_record *rec, int err)
{
	return time_bench_fail(rec, err, "%s: no statistics: %s", rec->name,
			       page_pool_last_error());
}

static int time_in_pool(struct time_bench_record *rec, const struct pool_run *run,
			struct page_pool *pool)
{
	struct page_pool_stats before = {.size = sizeof(before)};
	struct page_pool_stats after = {.size = sizeof(after)};
	struct page_pool_dma_stats dma_before = {.size = sizeof(dma_before)};
	struct page_pool_dma_stats dma_after = {.size = sizeof(dma_after)};
	bool mapped = run->params->dma != BENCH_DMA_OFF;
	int err = prefill(rec, pool);

	if (err)
		return err;
	if (run->params->no_stats) {
		run->test->loop(rec, pool);
		return 0;
	}
	err = page_pool_get_stats(pool, &before);
	if (!err && mapped)
		err = page_pool_get_dma_stats(pool, &dma_before);
	if (err)
		return no_statistics(rec, err);
	run->test->loop(rec, pool);
	err = page_pool_get_stats(pool, &after);
	if (!err && mapped)
		err = page_pool_get_dma_stats(pool, &dma_after);
	if (err)
		return no_statistics(rec, err);
	/* Out of pages in the very first round: time_bench_run() says so. */
	if (!rec->invoke_count)
		return 0;
	err = verify(rec, run->test->road, &before, &after);
	return err || !mapped ? err : verify_dma(rec, run->test->road, &dma_before, &dma_after);
}

/* In a napi, if the test is. */
static int time_in_napi(struct time_bench_record *rec, const struct pool_run *run,
			struct pp_napi *napi, struct page_pool *pool)
{
	int err, late;

	if (!napi)
		return time_in_pool(rec, run, pool);
	err = pp_napi_enter(napi);
	if (err)
		return time_bench_fail(rec, err, "%s: cannot enter the napi: %s", rec->name,
				       page_pool_last_error());
	err = time_in_pool(rec, run, pool);
	late = pp_napi_exit(napi);
	if (late && !err)
		err = time_bench_fail(rec, late, "%s: cannot leave the napi: %s", rec->name,
				      page_pool_last_error());
	return err;
}

static int time_with_device(struct time_bench_record *rec, const struct pool_run *run,
			    struct pp_device *device)
{
	struct page_pool_params params = pool_params(run->params);
	struct page_pool *pool = NULL;
	struct pp_napi *napi = NULL;
	int err, late;

	if (run->test->in_napi) {
		err = pp_napi_create(&napi);
		if (err)
			return time_bench_fail(rec, err, "%s: no napi: %s", rec->name,
					       page_pool_last_error());
	}
	params.napi = run->test->bound ? napi : NULL;
	params.device = device;
	err = page_pool_create(&params, &pool);
	if (err) {
		time_bench_fail(rec, err, "%s: no pool: %s", rec->name, page_pool_last_error());
	} else {
		err = time_in_napi(rec, run, napi, pool);
		page_pool_destroy(pool);
	}
	if (napi) {
		late = pp_napi_destroy(napi);
		if (late && !err)
			err = time_bench_fail(rec, late, "%s: cannot destroy the napi: %s",
					      rec->name, page_pool_last_error());
	}
	return err;
}

static int time_page_pool(struct time_bench_record *rec, void *data)
{
	struct pp_iommu_params params = PP_IOMMU_PARAMS_INIT;
	const struct pool_run *run = data;
	struct pp_device *device = NULL;
	struct pp_iommu *iommu;
	int err;

	if (run->params->dma != BENCH_DMA_IOMMU)
		return time_with_device(rec, run, NULL);
	err = pp_iommu_create(&params, &iommu);
	if (err)
		return time_bench_fail(rec, err, "%s: no IOMMU: %s", rec->name,
				       page_pool_last_error());
	err = pp_iommu_attach(iommu, "bench", &device);
	if (err) {
		time_bench_fail(rec, err, "%s: no device: %s", rec->name, page_pool_last_error());
	} else {
		err = time_with_device(rec, run, device);
		pp_device_put(device);
	}
	if (!err)
		err = expect(rec, "faults of the IOMMU", pp_iommu_faults(iommu), 0, 0);
	pp_iommu_put(iommu);
	return err;
}

/* ---- the table ----------------------------------------------------------------------------- */

#define OUTSIDE(function) function "(): Cannot use page_pool fast-path"
#define INSIDE(function) function "(): in_serving_softirq fast-path"
#define FN_01 "time_bench_page_pool01_fast_path"
#define FN_02 "time_bench_page_pool02_ptr_ring"
#define FN_03 "time_bench_page_pool03_slow"

const struct bench_simple_test bench_simple_tests[] = {
	{"for_loop", "an empty counted loop: what the harness costs", 10, BENCH_NO_POOL, NULL},
	{"atomic_inc", "one atomic addition", 10, BENCH_NO_POOL, NULL},
	{"lock", "take and drop a spin lock that nobody else wants", 1, BENCH_NO_POOL, NULL},
	{"no-softirq-page_pool01", "outside of a napi, direct on the caller's promise", 1,
	 BENCH_NO_SOFTIRQ, OUTSIDE(FN_01)},
	{"no-softirq-page_pool02", "outside of a napi, through the ring", 1, BENCH_NO_SOFTIRQ,
	 OUTSIDE(FN_02)},
	{"no-softirq-page_pool03", "outside of a napi, back to the page allocator", 1,
	 BENCH_NO_SOFTIRQ, OUTSIDE(FN_03)},
	{"tasklet_page_pool01_fast_path", "in the pool's napi, direct: XDP_DROP", 1, BENCH_TASKLET,
	 INSIDE(FN_01)},
	{"tasklet_page_pool02_ptr_ring", "in a napi, through the ring", 1, BENCH_TASKLET,
	 INSIDE(FN_02)},
	{"tasklet_page_pool03_slow", "in the pool's napi, back to the page allocator", 1,
	 BENCH_TASKLET, INSIDE(FN_03)},
};
const size_t bench_simple_nr_tests = PP_ARRAY_SIZE(bench_simple_tests);

/* What runs, row by row of the table above: a baseline, or a loop in a pool. */
static const struct {
	time_bench_fn baseline;
	struct pool_test pool;
} bodies[] = {
	{.baseline = time_for_loop},
	{.baseline = time_atomic_inc},
	{.baseline = time_lock},
	{.pool = {time_recycle_direct, ROAD_DIRECT, false, false}},
	{.pool = {time_put, ROAD_RING, false, false}},
	{.pool = {time_put_referenced, ROAD_SLOW, false, false}},
	{.pool = {time_put, ROAD_DIRECT, true, true}},
	{.pool = {time_put, ROAD_RING, true, false}},
	{.pool = {time_put_referenced, ROAD_SLOW, true, true}},
};
_Static_assert(PP_ARRAY_SIZE(bodies) == PP_ARRAY_SIZE(bench_simple_tests), "one body a test");

int bench_simple_run(const char *name, const struct bench_simple_params *params,
		     struct time_bench_record *rec)
{
	struct time_bench_request request = {
		.name = name,
		.loops = params->loops ? params->loops : BENCH_SIMPLE_DEFAULT_LOOPS,
		.pmu = params->pmu,
		.clock = params->clock,
	};
	struct pool_run run = {.params = params};

	for (size_t i = 0; i < bench_simple_nr_tests; i++) {
		if (strcmp(bench_simple_tests[i].name, name))
			continue;
		request.times = bench_simple_tests[i].times;
		request.fn = bodies[i].baseline;
		if (!request.fn) {
			run.test = &bodies[i].pool;
			request.fn = time_page_pool;
			request.data = &run;
		}
		return time_bench_run(&request, rec);
	}
	memset(rec, 0, sizeof(*rec));
	return time_bench_fail(rec, -ENOENT, "no test is called %.80s", name);
}
