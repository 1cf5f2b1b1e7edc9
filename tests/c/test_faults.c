/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The same sequence over the whole API, again and again, each time with another call of the system
 * failing: the first, the second, ... until it runs through. Whatever fails, the error is the
 * documented one with words to it, nothing leaks and nothing is counted twice.
 *
 * Built from the core's sources with PP_FAULT_INJECTION.
 */
#include <dirent.h>
#include <semaphore.h>
#include <time.h>

#include "book.h"
#include "core/check.h"
#include "core/iommu.h"
#include "core/magazine.h"

/* Each test says itself whether its pools are checked: they fail in other places. */
__attribute__((constructor)) static void without_environment(void)
{
	unsetenv("PAGEPOOL_CHECKED");
}

/* What failed, in the order it was met. */
static char met[4096];

/* 0, or the call failed as documented and is retried without a fault. True: done. */
static bool survived(int err, const char *call, const char *word)
{
	if (!err)
		return true;
	strncat(met, call, sizeof(met) - strlen(met) - 1);
	strncat(met, " ", sizeof(met) - strlen(met) - 1);
	CHECK_EQ(err, -ENOMEM);
	if (!strstr(page_pool_last_error(), word)) {
		printf("# %s: \"%s\"\n", call, page_pool_last_error());
		test_failed();
	}
	return false;
}

#define MUST(ret, call, word)                                          \
	do {                                                           \
		void *untouched = &met;                                \
		int failed_;                                           \
		ret = untouched;                                       \
		failed_ = call;                                        \
		if (!survived(failed_, #call, word)) {                 \
			CHECK_PTR(ret, untouched); /* as documented */ \
			CHECK_OK(call);                                \
		}                                                      \
	} while (0)

static sem_t said;

static void hear(void *ctx, const char *text)
{
	(void)ctx;
	if (strstr(text, "stalled pool shutdown"))
		sem_post(&said);
	else if (strstr(text, "no thread to watch pool") && strstr(text, "1 inflight: errno 11"))
		strcat(met, "thread ");
}

/* A thread frees a page: its magazine may fail to come about. */
static void *lets_go(void *arg)
{
	pp_page_put(arg);
	return NULL;
}

static size_t alloc_some(struct page_pool *pool, size_t n, struct pp_page **pages)
{
	size_t got = page_pool_alloc_pages_bulk(pool, n, pages);

	CHECK_POOL(pool);
	if (got < n) {
		/* The arena could not grow; it can now. */
		strncat(met, "page ", sizeof(met) - strlen(met) - 1);
		got += page_pool_alloc_pages_bulk(pool, n - got, pages + got);
	}
	CHECK_EQ(got, n);
	return got;
}

/* What the message about a pool that could not be made is about: checked pools need more. */
static const char *of_pool(void)
{
	return strstr(page_pool_last_error(), "no address space for the records")
		       ? "of a checked pool"
		       : "no memory ";
}

static void sequence(unsigned huge, unsigned flags)
{
	struct pp_arena_params ap = PP_ARENA_PARAMS_INIT;
	struct page_pool_params pp = PAGE_POOL_PARAMS_INIT;
	struct pp_provider *arena;
	struct pp_napi *napi, *napi2;
	struct page_pool *pool, *big, *own;
	struct pp_page *p[1200], *b[3], *o;
	struct page_pool_stats s;
	int32_t inflight;

	ap.limit = 24 * MIB;
	ap.huge = huge;
	MUST(arena, pp_arena_create(&ap, &arena),
	     huge && strstr(page_pool_last_error(), "huge")
		     ? "no transparent huge pages to be had: no memory"
		     : "for an arena");
	MUST(napi, pp_napi_create(&napi), "no memory for a napi");
	MUST(napi2, pp_napi_create(&napi2), "no memory for a napi");
	pp.flags = flags;
	pp.provider = arena;
	pp.napi = napi;
	pp.pool_size = 64;
	pp.retry_ms = pp.warn_ms = 1;
	MUST(pool, page_pool_create(&pp, &pool), of_pool());
	CHECK_EQ(refs_of(arena), 2);
	CHECK_EQ(napi->refs, 2);
	pp.order = 8;
	MUST(big, page_pool_create(&pp, &big), of_pool());
	CHECK_EQ(refs_of(arena), 3);
	CHECK_EQ(napi->refs, 3);
	pp.provider = NULL;
	pp.order = 0;
	MUST(own, page_pool_create(&pp, &own), of_pool());

	CHECK_OK(pp_napi_enter(napi));
	alloc_some(pool, 1200, p); /* the arena grows twice on the way */
	alloc_some(big, 3, b);
	alloc_some(own, 1, &o);
	s = stats_of(pool);
	CHECK_EQ(s.alloc_fast + s.alloc_slow + s.alloc_refill, 1200);
	inflight = page_pool_inflight(pool);
	if (flags && inflight == 1215) {
		/* There was no memory for the records of a page's chunk: it went back. */
		strcat(met, "record ");
		inflight++;
	}
	CHECK_EQ(inflight, 1216);
	put_n(pool, 600, p, false);
	CHECK_OK(pp_napi_exit(napi));
	for (int i = 600; i < 610; i++)
		pp_page_get(p[i]);
	page_pool_put_page_bulk(p + 600, 600);
	memcpy(p, p + 600, sizeof(p[0])); /* scratch: bulk has moved nothing, all of one pool */
	for (int i = 600; i < 610; i++)
		on_thread(lets_go, p[i]);
	put_n(big, 3, b, false);
	s = stats_of(pool);
	CHECK_EQ(s.recycle_released_refcnt, 10);
	CHECK_POOL(pool);
	CHECK_EQ(page_pool_inflight(pool) + (page_pool_inflight(big) << 8), pages_out(arena));

	CHECK_OK(page_pool_disable_direct_recycling(pool));
	if (!survived(page_pool_enable_direct_recycling(pool, napi2), "bind",
		      "no memory to bind")) {
		CHECK_EQ(napi2->refs, 1);
		CHECK_OK(page_pool_enable_direct_recycling(pool, napi2));
	}
	CHECK_OK(page_pool_update_nid(pool, 1));
	alloc_some(pool, 100, p);
	put_n(pool, 99, p, false);
	CHECK_POOL(pool);

	/* Destroyed with a page out: a janitor is needed, and may not be had. */
	page_pool_destroy(pool);
	CHECK_EQ(refs_of(arena), 3);
	if (!strstr(met, "thread "))
		sem_wait(&said);
	page_pool_put_full_page(pool, p[99], false);
	CHECK_EQ(refs_of(arena), 2);
	end_pool(big, arena);
	page_pool_put_full_page(own, o, true);
	page_pool_destroy(own);
	CHECK_EQ(napi->refs, 1);
	CHECK_EQ(napi2->refs, 1);
	CHECK_OK(pp_napi_destroy(napi));
	CHECK_OK(pp_napi_destroy(napi2));
	CHECK_EQ(pages_out(arena), 0);
	CHECK_ARENA(arena);
	CHECK_EQ(refs_of(arena), 1);
	pp_provider_put(arena);
}

struct how {
	unsigned huge, flags;
};

/* In a thread of its own, so that it starts without magazines. */
static void *sequence_on_thread(void *arg)
{
	const struct how *how = arg;

	sequence(how->huge, how->flags);
	return NULL;
}

static void misused(void *ctx, const struct pp_report *report)
{
	(void)ctx;
	printf("# %s\n", report->text);
	strcat(met, "misused ");
}

/* Of this process; an emulator's and a sanitizer's are among them. */
static unsigned threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned n = 0;

	if (!dir)
		return 0;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void *nothing(void *unused)
{
	return unused;
}

/* While the last sequence's janitor is still about to leave, the next one needs no other. */
static void wait_for_janitor(void)
{
	static unsigned before;

	if (!before) {
		/* A sanitizer's is there once there was one of ours, which is gone a bit later. */
		on_thread(nothing, NULL);
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		before = threads();
	}
	for (int i = 0; i < 5000 && threads() > before; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	/* One that has come to stay is a sanitizer's. */
	before = threads();
}

static void all_faults(unsigned huge, unsigned flags)
{
	struct how how = {huge, flags};
	static const char *const must_meet[] = {
		"arena_create",
		"napi_create(&napi)",
		"napi_create(&napi2)",
		"&big",
		"&own",
		"bind",
		"thread ",
		"record ",
	};
	static char all[1 << 16];
	int64_t n = 0, left;

	all[0] = '\0';
	sem_init(&said, 0, 0);
	page_pool_set_log(hear, NULL);
	page_pool_set_report(misused, NULL);
	do {
		met[0] = '\0';
		wait_for_janitor();
		while (!sem_trywait(&said))
			;
		pp_sys_fail_nth(++n);
		on_thread(sequence_on_thread, &how);
		left = pp_sys_fail_nth(0);
		printf("# %" PRId64 ": %s\n", n, met[0] ? met : left > 0 ? "none" : "unnoticed");
		strcat(all, met);
	} while (left <= 0); /* it was used up: there may be one more */
	page_pool_set_log(NULL, NULL);
	page_pool_set_report(NULL, NULL);
	CHECK(n > 25);
	CHECK(!strstr(all, "misused"));
	for (size_t i = 0; i < PP_ARRAY_SIZE(must_meet) - !flags; i++)
		if (!strstr(all, must_meet[i])) {
			printf("# no fault met %s\n", must_meet[i]);
			test_failed();
		}
}

TEST(every_fault)
{
	all_faults(PP_HUGE_NONE, 0);
}

TEST(every_fault_of_checked_pools)
{
	all_faults(PP_HUGE_NONE, PP_FLAG_CHECKED);
}

TEST(every_fault_with_huge_pages)
{
	struct pp_arena_params params = PP_ARENA_PARAMS_INIT;
	struct pp_provider *arena;

	params.limit = 4 * MIB;
	params.huge = PP_HUGE_THP;
	if (pp_arena_create(&params, &arena)) {
		printf("# skipped: %s\n", page_pool_last_error());
		return;
	}
	pp_provider_put(arena);
	all_faults(PP_HUGE_THP, 0);
	all_faults(PP_HUGE_THP, PP_FLAG_CHECKED);
}

/* What the system does not make unreadable is poisoned; what it does not make readable again at
 * once is asked for until it does. */
static void unreadable_or_not(void)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool;
	struct pp_page *p[70];

	params.provider = arena;
	params.pool_size = 8;
	params.flags = PP_FLAG_CHECKED_FULL;
	MUST(pool, page_pool_create(&params, &pool), of_pool());
	alloc_some(pool, 70, p);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 20; i++) /* the cache, the ring, and beyond it */
			page_pool_put_full_page(pool, p[i], i < 5);
		for (int i = 0; i < 5; i++) {
			if (pp_record_of(pool, p[i])->unreadable)
				continue;
			CHECK(pp_record_of(pool, p[i])->poisoned);
			strcat(met, "readable ");
			((char *)pp_page_address(p[i]))[4000] = 1;
		}
		alloc_some(pool, 20, p);
		for (int i = 0; i < 70; i++)
			memset(pp_page_address(p[i]), i, PP_PAGE_SIZE);
		CHECK_POOL(pool);
	}
	put_n(pool, 70, p, false);
	page_pool_destroy(pool);
	CHECK_EQ(pages_out(arena), 0);
	CHECK_ARENA(arena);
	pp_provider_put(arena);
}

static void *unreadable_on_thread(void *unused)
{
	unreadable_or_not();
	return unused;
}

TEST(every_fault_of_unreadable_pages)
{
	uint64_t faults, readable = 0;
	int64_t left;

	page_pool_set_report(misused, NULL);
	for (faults = 1;; faults++) {
		met[0] = '\0';
		pp_sys_fail_nth((int64_t)faults + 4); /* after those of the arena */
		on_thread(unreadable_on_thread, NULL);
		left = pp_sys_fail_nth(0);
		/* Written to all the same: found. */
		CHECK_EQ(!!strstr(met, "readable"), !!strstr(met, "misused"));
		readable += !!strstr(met, "readable");
		if (left > 0)
			break;
	}
	page_pool_set_report(NULL, NULL);
	CHECK(faults > 80);
	CHECK_EQ(readable, 10); /* each of five pages, twice */
}

/* One failure to grow is made up for by the last resort; if it lasts, there are no pages. */
TEST(arena_cannot_grow)
{
	struct pp_provider *arena = make_arena(12 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	static struct pp_page *p[3072];
	size_t got;

	pp_sys_fail_nth(PP_FAIL_ALL);
	CHECK_PTR(page_pool_alloc_pages(pool), NULL);
	CHECK_EQ(page_pool_inflight(pool), 0);
	CHECK_EQ(info_of(arena).mapped, 0);
	CHECK_EQ(info_of(arena).failed, 1);
	pp_sys_fail_nth(1);
	alloc_n(pool, 1, p);
	CHECK_EQ(page_pool_alloc_pages_bulk(pool, 999, p + 1), 999);
	pp_sys_fail_nth(PP_FAIL_ALL);
	got = 1000 + page_pool_alloc_pages_bulk(pool, 2072, p + 1000);
	CHECK_EQ(got, 1024); /* all that was there */
	CHECK_EQ(page_pool_inflight(pool), 1024);
	CHECK_ARENA(arena);
	pp_sys_fail_nth(2); /* the metadata is there, the memory is not */
	got += page_pool_alloc_pages_bulk(pool, 2048, p + 1024);
	CHECK_EQ(got, 3072);
	CHECK_EQ(page_pool_inflight(pool), 3072);
	CHECK_POOL(pool);
	CHECK_ARENA(arena);
	put_n(pool, 3072, p, false);
	pp_sys_fail_nth(0);
	end(pool, arena);
}

/* A pool makes do without magazines. */
static void *without_magazines(void *arg)
{
	struct page_pool *pool = arg;
	struct pp_page *p[200];

	pp_sys_fail_nth(PP_FAIL_ALL); /* the arena is mapped: only magazines are asked for */
	for (int i = 0; i < 5; i++) {
		alloc_n(pool, 200, p);
		put_n(pool, 200, p, false);
		CHECK_POOL(pool);
		CHECK_ARENA(page_pool_provider(pool));
	}
	CHECK_PTR(pp_my_magazines.all, NULL);
	CHECK_EQ(page_pool_inflight(pool), pages_out(page_pool_provider(pool)));
	page_pool_destroy(pool);
	pp_sys_fail_nth(0);
	return NULL;
}

TEST(no_memory_for_magazines)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *page = page_pool_alloc_pages(pool);

	page_pool_put_full_page(pool, page, true);
	end_pool(pool, arena);
	on_thread(without_magazines, make_pool(arena, 1, NULL));
	CHECK_EQ(pages_out(arena), 0);
	CHECK_EQ(refs_of(arena), 1);
	pp_provider_put(arena);
}

/* A device behind an IOMMU, from nothing to its first two mappings. Every allocation fails in turn:
 * what was not made is not there in part. */
TEST(iommu_of_nothing)
{
	static char memory[4 << 20];
	struct pp_iommu_params params = PP_IOMMU_PARAMS_INIT;
	const char *why;
	int met_create = 0, met_attach = 0, met_map = 0;

	for (int nth = 1;; nth++) {
		struct pp_iommu *iommu = NULL;
		struct pp_device *d = NULL;
		uint64_t dma[2] = {1, 1};
		int64_t left;
		int err;

		pp_sys_fail_nth(nth);
		err = pp_iommu_create(&params, &iommu);
		if (err) {
			CHECK_EQ(err, -ENOMEM);
			CHECK(strstr(page_pool_last_error(), "no memory for an IOMMU"));
			CHECK_PTR(iommu, NULL);
			CHECK_OK(pp_iommu_create(&params, &iommu));
			met_create++;
		}
		err = pp_iommu_attach(iommu, "eth0", &d);
		if (err) {
			CHECK_EQ(err, -ENOMEM);
			CHECK(strstr(page_pool_last_error(), "no memory for a device behind"));
			CHECK_PTR(d, NULL);
			CHECK_EQ(iommu->refs, 1);
			CHECK_OK(pp_iommu_attach(iommu, "eth0", &d));
			met_attach++;
		}
		pp_iommu_put(iommu);
		/* A page needs a path of tables and a leaf; 4 MiB share the path, and need two
		 * leaves, of which the second may be what fails. */
		for (int i = 0; i < 2; i++) {
			struct pp_iommu_device before = *(struct pp_iommu_device *)d, *after;
			size_t length = i ? sizeof(memory) : 4096;

			after = (struct pp_iommu_device *)d;
			err = d->ops->map(d, memory, length, PP_DMA_FROM_DEVICE, &dma[i]);
			CHECK(pp_iommu_is_valid(d, &why));
			if (!err)
				continue;
			met_map++;
			CHECK_EQ(err, -ENOMEM);
			CHECK(strstr(page_pool_last_error(), "no memory for the page table"));
			CHECK_EQ(dma[i], 1);
			CHECK_EQ(after->nr_node, before.nr_node);
			CHECK_EQ(after->cursor, before.cursor);
			CHECK_EQ(after->mapped, before.mapped);
			CHECK_OK(d->ops->map(d, memory, length, PP_DMA_FROM_DEVICE, &dma[i]));
		}
		left = pp_sys_fail_nth(0);
		CHECK_EQ(dma[0], 4096);
		CHECK_EQ(dma[1], sizeof(memory));
		CHECK(pp_iommu_is_valid(d, &why));
		CHECK_EQ(pp_iommu_faults(iommu),
			 0); /* the device keeps it; a lack of memory is not a refusal */
		d->ops->unmap(d, dma[1], sizeof(memory), PP_DMA_FROM_DEVICE);
		CHECK_EQ(pp_device_unbind(d), 1);
		pp_device_put(d);
		if (left > 0)
			break;
	}
	CHECK_EQ(met_create, 1);
	CHECK_EQ(met_attach, 1);
	CHECK_EQ(met_map, 5); /* two tables and a leaf, then two leaves */
}

/* In the middle of a table that is in use, with mappings and what is remembered of others. */
TEST(no_memory_for_a_larger_mapping)
{
	static char memory[8 << 20];
	struct pp_iommu_params params = PP_IOMMU_PARAMS_INIT;
	struct pp_iommu *iommu;
	struct pp_device *d;
	struct pp_iommu_device *inside;
	uint64_t dma, kept;
	const char *why;

	params.bits = 56;
	CHECK_OK(pp_iommu_create(&params, &iommu));
	CHECK_OK(pp_iommu_attach(iommu, "eth0", &d));
	inside = (struct pp_iommu_device *)d;
	CHECK_OK(d->ops->map(d, memory, 4 << 20, PP_DMA_FROM_DEVICE, &dma));
	d->ops->unmap(d, dma, 4 << 20, PP_DMA_FROM_DEVICE);
	CHECK_OK(d->ops->map(d, memory, 4096, PP_DMA_FROM_DEVICE, &kept));
	/* Far away, where it needs a path of its own but for the uppermost tables. */
	inside->cursor = 1ull << 39;
	for (int fails = 0;; fails++) {
		uint64_t nodes = inside->nr_node;
		int err;

		dma = 1;
		pp_sys_fail_nth(fails + 1);
		err = d->ops->map(d, memory, 8 << 20, PP_DMA_FROM_DEVICE, &dma);
		CHECK(pp_iommu_is_valid(d, &why));
		if (!err) {
			CHECK_EQ(fails, 6); /* two tables, four leaves */
			break;
		}
		CHECK_EQ(err, -ENOMEM);
		CHECK_EQ(dma, 1);
		CHECK_EQ(inside->nr_node, nodes);
		CHECK_EQ(inside->cursor, 1ull << 39);
		CHECK_OK(pp_device_write(d, kept, "kept", 5));
	}
	pp_sys_fail_nth(0);
	CHECK_EQ(dma, 1ull << 39);
	CHECK_OK(pp_device_write(d, dma + (8 << 20) - 5, "last", 5));
	CHECK_EQ(strcmp(memory + (8 << 20) - 5, "last"), 0);
	pp_iommu_put(iommu);
	pp_device_put(d);
}

TEST(nic_of_nothing)
{
	struct pp_nic_params params = PP_NIC_PARAMS_INIT;
	struct pp_iommu_params ip = PP_IOMMU_PARAMS_INIT;
	struct pp_iommu *iommu;
	struct pp_nic *nic = NULL;
	int fails = 0;

	CHECK_OK(pp_iommu_create(&ip, &iommu));
	CHECK_OK(pp_iommu_attach(iommu, "eth0", &params.device));
	for (;; fails++) {
		int err;

		pp_sys_fail_nth(fails + 1);
		err = pp_nic_create(&params, &nic);
		if (!err)
			break;
		CHECK_EQ(err, -ENOMEM);
		CHECK(strstr(page_pool_last_error(), "of a NIC") ||
		      strstr(page_pool_last_error(), "for a NIC"));
		CHECK_PTR(nic, NULL);
		CHECK_EQ(params.device->refs, 1);
	}
	CHECK_EQ(fails, 2); /* itself, its ring */
	pp_sys_fail_nth(0);
	CHECK_EQ(params.device->refs, 2);
	pp_nic_destroy(nic);
	CHECK_EQ(params.device->refs, 1);
	pp_device_put(params.device);
	pp_iommu_put(iommu);
}

static int no_map(void *ctx, void *memory, size_t length, enum pp_dma_direction dir, uint64_t *dma)
{
	return -EIO;
}

static void no_unmap(void *ctx, uint64_t dma, size_t length, enum pp_dma_direction dir)
{
}

TEST(device_of_nothing)
{
	struct pp_device_params params = PP_DEVICE_PARAMS_INIT;
	struct pp_device *d = NULL;

	params.map = no_map;
	params.unmap = no_unmap;
	pp_sys_fail_nth(1);
	CHECK_FAILS(pp_device_create(&params, &d), ENOMEM, "no memory for a device");
	CHECK_PTR(d, NULL);
	CHECK_OK(pp_device_create(&params, &d));
	CHECK(pp_sys_fail_nth(0) <= 0);
	pp_device_put(d);
}

static char region_memory[3 * 4096] __attribute__((aligned(4096)));
static int region_released;

static void release_region(void *ctx, void *memory, size_t length)
{
	region_released++;
}

TEST(region_of_nothing)
{
	struct pp_region_params params = PP_REGION_PARAMS_INIT;
	struct pp_provider *region = NULL;
	int fails = 0;

	params.memory = region_memory;
	params.length = sizeof(region_memory);
	params.release = release_region;
	for (;; fails++) {
		int err;

		pp_sys_fail_nth(fails + 1);
		err = pp_region_create(&params, &region);
		if (!err)
			break;
		CHECK_EQ(err, -ENOMEM);
		CHECK(strstr(page_pool_last_error(), "region"));
		CHECK_PTR(region, NULL);
	}
	pp_sys_fail_nth(0);
	/* Itself; address space, and memory, for the pages' metadata and for who holds them. */
	CHECK_EQ(fails, 5);
	CHECK_EQ(region_released, 0);
	CHECK_ARENA(region);
	pp_provider_put(region);
	CHECK_EQ(region_released, 1);
}

/* ---- DMA
 * ------------------------------------------------------------------------------------------
 */

/*
 * A sequence with mapped pages, tracked and not, in which an allocation or a mapping may fail: it
 * makes do with what it is given, which is what is documented (NULL, or fewer pages), and checks
 * after each step that pool, provider and device agree.
 */
struct dma_run {
	struct book *book;
	struct pp_provider *arena;
	struct page_pool *pools[3];
	uint64_t maps, map_errors; /* of pools that are gone */
	uint64_t missed;           /* pages that were asked for and not to be had */
};

static void agree(struct dma_run *r)
{
	uint64_t pages = 0, out = 0, maps = r->maps, errors = r->map_errors;

	for (size_t i = 0; i < PP_ARRAY_SIZE(r->pools); i++) {
		struct page_pool *pool = r->pools[i];
		struct page_pool_dma_stats d;
		struct page_pool_stats s;

		if (!pool)
			continue;
		CHECK_POOL(pool);
		d = dma_of(pool);
		s = stats_of(pool);
		CHECK(s.alloc_slow <= s.alloc_empty + s.alloc_waive);
		CHECK(page_pool_inflight(pool) >= 0);
		CHECK_EQ(d.maps - d.unmaps - d.unmaps_destroy, page_pool_inflight(pool));
		pages += (uint64_t)page_pool_inflight(pool);
		out += (uint64_t)page_pool_inflight(pool) << page_pool_order(pool);
		maps += d.maps;
		errors += d.map_errors;
	}
	CHECK_EQ(book_mapped(r->book), pages);
	CHECK_EQ(pages_out(r->arena), out);
	CHECK_EQ(r->book->maps, maps);
	CHECK_EQ(r->book->map_fails, errors);
	CHECK_ARENA(r->arena);
}

static struct pp_page *may_alloc(struct dma_run *r, struct page_pool *pool)
{
	struct page_pool_stats s = stats_of(pool), t;
	struct pp_page *page = page_pool_alloc_pages(pool);

	t = stats_of(pool);
	CHECK_EQ(t.alloc_fast + t.alloc_refill + t.alloc_slow + t.alloc_slow_high_order -
			 (s.alloc_fast + s.alloc_refill + s.alloc_slow + s.alloc_slow_high_order),
		 page != NULL);
	if (page)
		CHECK(book_of(r->book, page));
	else
		r->missed++;
	agree(r);
	return page;
}

/* Destroyed, with a page out: it is unmapped by then, or if untracked when it comes back. */
static void end_one(struct dma_run *r, int which, struct pp_page *page)
{
	struct page_pool *pool = r->pools[which];
	struct page_pool_dma_stats d;

	page_pool_ref(pool);
	page_pool_destroy(pool);
	d = dma_of(pool);
	CHECK_EQ(page_pool_inflight(pool), page != NULL);
	if (page)
		page_pool_put_full_page(pool, page, true);
	CHECK_EQ(page_pool_inflight(pool), 0);
	d = dma_of(pool);
	CHECK_EQ(d.maps, d.unmaps + d.unmaps_destroy);
	CHECK_EQ(d.unmaps_skipped, d.unmaps_destroy);
	r->maps += d.maps;
	r->map_errors += d.map_errors;
	r->pools[which] = NULL;
	page_pool_unref(pool);
	agree(r);
}

static void use_pools(struct dma_run *r)
{
	struct page_pool *pool = r->pools[0], *big = r->pools[1], *old = r->pools[2];
	struct pp_page *p[200], *b[3], *late, *piece[5];
	size_t got, nr = 0, offset;

	/* One by one, in bulk, of a higher order. */
	p[0] = may_alloc(r, pool);
	got = page_pool_alloc_pages_bulk(pool, 150, p + 1);
	r->missed += 150 - got;
	for (size_t i = 1; i <= got; i++)
		CHECK(book_of(r->book, p[i]));
	agree(r);
	for (int i = 0; i < 3; i++)
		b[i] = may_alloc(r, big);
	/* Back: one by one, held, in bulk, so that some do not fit. */
	if (p[0])
		page_pool_put_full_page(pool, p[0], true);
	for (size_t i = 1; i <= 3 && i <= got; i++) {
		pp_page_get(p[i]);
		page_pool_put_full_page(pool, p[i], i % 2);
		pp_page_put(p[i]);
	}
	if (got > 3)
		page_pool_put_page_bulk(p + 4, got - 3);
	agree(r);
	for (int i = 0; i < 3; i++)
		if (b[i])
			page_pool_put_full_page(big, b[i], i == 1);
	agree(r);
	/* In pieces. */
	for (int i = 0; i < 5; i++) {
		piece[nr] = page_pool_alloc_frag(pool, &offset, 1500);
		if (piece[nr])
			nr++;
		else
			r->missed++;
		agree(r);
	}
	put_n(pool, nr, piece, true);
	agree(r);
	/* To another node, and on. */
	CHECK_OK(page_pool_update_nid(pool, 1));
	agree(r);
	for (int i = 0; i < 10; i++)
		p[i] = may_alloc(r, pool); /* waives */
	for (int i = 0; i < 10; i++)
		if (p[i])
			page_pool_put_full_page(pool, p[i], false);
	agree(r);
	late = may_alloc(r, old);
	end_one(r, 2, late);
	late = may_alloc(r, big);
	end_one(r, 1, late);
	late = may_alloc(r, pool);
	end_one(r, 0, late);
}

static struct page_pool_params dma_params(struct dma_run *r, int which)
{
	static const unsigned flags[] = {PP_FLAG_DMA_SYNC_DEV, 0, PP_FLAG_NO_TRACKING};
	struct page_pool_params params = book_params(r->book, r->arena, 16, flags[which]);

	params.order = which == 1 ? 3 : 0;
	return params;
}

static void end_run(struct dma_run *r)
{
	CHECK_EQ(refs_of(r->arena), 1);
	CHECK_EQ(pages_out(r->arena), 0);
	pp_provider_put(r->arena);
	book_end(r->book);
}

/* Every mapping in turn, until it runs through; and then from every mapping on, all of them. */
TEST(every_mapping)
{
	uint64_t missed = 0, mappings = 0;

	for (int64_t nth = 1;; nth++) {
		struct dma_run r = {.arena = make_arena(8 * MIB), .book = book_create(true)};
		bool failed;

		for (int i = 0; i < 3; i++) {
			struct page_pool_params params = dma_params(&r, i);

			CHECK_OK(page_pool_create(&params, &r.pools[i]));
		}
		r.book->fail = nth;
		use_pools(&r);
		failed = r.book->fail <= 0;
		CHECK_EQ(r.map_errors, failed ? 1 : 0);
		/* 64 are asked for where one is needed: it takes a higher order to be missed. */
		CHECK(r.missed <= 1 && (failed || !r.missed));
		missed += r.missed;
		mappings = r.maps;
		end_run(&r);
		if (!failed)
			break;
	}
	printf("# %" PRIu64 " mappings, %" PRIu64 " pages missed\n", mappings, missed);
	CHECK(mappings > 200);
	CHECK_EQ(missed, 3); /* those of the higher order */
}

static void fail_from_now_on(struct book *book, void *memory)
{
	int64_t *left = book->ctx;

	if (--*left == 0)
		book->fail = FAIL_ALL;
}

TEST(no_mapping_from_then_on)
{
	uint64_t missed = 0;

	for (int64_t n = 1;; n++) {
		struct dma_run r = {.arena = make_arena(8 * MIB), .book = book_create(true)};
		int64_t left = n;

		for (int i = 0; i < 3; i++) {
			struct page_pool_params params = dma_params(&r, i);

			CHECK_OK(page_pool_create(&params, &r.pools[i]));
		}
		r.book->ctx = &left;
		r.book->on_map = fail_from_now_on;
		use_pools(&r);
		missed += r.missed;
		end_run(&r);
		if (left > 0)
			break;
	}
	CHECK(missed > 100);
}

/* A device that could not be made is not there; a pool that could not be made has let go of it. */
static void dma_faults(int64_t nth)
{
	struct pp_device_params dp = PP_DEVICE_PARAMS_INIT;
	struct dma_run r = {.maps = 0};
	struct pp_device *device;
	struct pp_napi *napi;

	CHECK_OK(pp_napi_create(&napi));
	r.book = book_create(true);
	r.arena = make_arena(8 * MIB);
	pp_sys_fail_nth(nth);
	dp.map = book_map;
	dp.unmap = book_unmap;
	MUST(device, pp_device_create(&dp, &device), "no memory for a device");
	for (int i = 0; i < 3; i++) {
		struct page_pool_params params = dma_params(&r, i);

		params.napi = napi;
		MUST(r.pools[i], page_pool_create(&params, &r.pools[i]), "no memory ");
		CHECK_EQ(r.book->device->refs, 2 + i);
		CHECK_EQ(refs_of(r.arena), 2 + i);
		CHECK_EQ(napi->refs, 2 + i);
	}
	use_pools(&r);
	if (r.missed)
		strcat(met, "page ");
	CHECK_EQ(napi->refs, 1);
	CHECK_OK(pp_napi_destroy(napi));
	pp_device_put(device);
	end_run(&r);
}

static void *dma_faults_on_thread(void *arg)
{
	dma_faults(*(int64_t *)arg);
	return NULL;
}

TEST(every_fault_with_a_device)
{
	static char all[1 << 14];
	int64_t n = 0, left;

	all[0] = '\0';
	page_pool_set_log(hear, NULL);
	do {
		met[0] = '\0';
		n++;
		on_thread(dma_faults_on_thread, &n);
		left = pp_sys_fail_nth(0);
		printf("# %" PRId64 ": %s\n", n, met[0] ? met : left > 0 ? "none" : "unnoticed");
		strcat(all, met);
	} while (left <= 0);
	page_pool_set_log(NULL, NULL);
	CHECK(strstr(all, "device_create"));
	CHECK(strstr(all, "pools[i]"));
	/* A pool: itself, its ring, what it tracks with, its napi; one does not track. */
	CHECK(n > 1 + 3 * 3 + 2); /* and the device */
}

/* Memory that cannot be bound is memory all the same: said, and not a failure. */
TEST(arena_that_cannot_be_bound)
{
	struct pp_arena_params params = PP_ARENA_PARAMS_INIT;
	struct pp_provider *arena;
	unsigned lacks = 0, failed = 0;
	int64_t n = 0, left;

	params.limit = 4 * MIB;
	params.nid = 0;
	CHECK_OK(pp_arena_create(&params, &arena));
	left = info_of(arena).lacks;
	pp_provider_put(arena);
	if (left) {
		printf("# skipped: no mbind(2) here\n");
		return;
	}
	do {
		struct page_pool *pool;
		struct pp_page *page;
		int err;

		pp_sys_fail_nth(++n);
		err = pp_arena_create(&params, &arena);
		left = pp_sys_fail_nth(0);
		if (err) {
			CHECK_EQ(err, -ENOMEM);
			failed++;
			continue;
		}
		CHECK_EQ(info_of(arena).lacks, left <= 0 ? PP_LACKS_NODE : 0);
		lacks += left <= 0;
		pool = make_pool(arena, 0, NULL);
		alloc_n(pool, 1, &page);
		CHECK_EQ(pp_page_nid(page), 0);
		page_pool_put_full_page(pool, page, true);
		end(pool, arena);
	} while (left <= 0);
	CHECK_EQ(failed, 4); /* itself, memory, and metadata of two kinds */
	CHECK_EQ(lacks, 3);  /* memory, and metadata of two kinds */
}

/* ---- a provider of the caller's own
 * ------------------------------------------------------------
 */

struct blocks {
	unsigned out, released;
};

static size_t give_blocks(void *ctx, unsigned order, int nid, size_t n, void **memory)
{
	struct blocks *blocks = ctx;

	for (size_t i = 0; i < n; i++) {
		memory[i] = aligned_alloc(PP_PAGE_SIZE, PP_PAGE_SIZE << order);
		CHECK(memory[i]);
	}
	blocks->out += (unsigned)n;
	return n;
}

static void take_block(void *ctx, void *memory, unsigned order)
{
	struct blocks *blocks = ctx;

	blocks->out--;
	free(memory);
}

static void release_blocks(void *ctx)
{
	struct blocks *blocks = ctx;

	CHECK_EQ(blocks->out, 0);
	blocks->released++;
}

TEST(provider_of_nothing)
{
	struct pp_provider_params params = PP_PROVIDER_PARAMS_INIT;
	struct blocks blocks = {0};
	unsigned failed = 0, dry = 0;
	int64_t n = 0, left;

	params.max_bytes = 12 * MIB;
	params.nid = 0;
	params.ctx = &blocks;
	params.alloc = give_blocks;
	params.free = take_block;
	params.release = release_blocks;
	do {
		static struct pp_page *p[3072];
		struct pp_provider *provider = NULL;
		struct page_pool *pool;
		const char *why;
		size_t got;
		int err;

		pp_sys_fail_nth(++n);
		err = pp_provider_create(&params, &provider);
		left = pp_sys_fail_nth(0);
		if (err) {
			CHECK_EQ(err, -ENOMEM);
			CHECK(strstr(page_pool_last_error(), "provider"));
			CHECK_PTR(provider, NULL);
			failed++;
			continue;
		}
		pool = make_pool(provider, 1, NULL);
		if (left > 0) {
			/* Not used up: more metadata may not be had. */
			pp_sys_fail_nth(left);
			got = page_pool_alloc_pages_bulk(pool, 3072, p);
			left = pp_sys_fail_nth(0);
		} else {
			got = page_pool_alloc_pages_bulk(pool, 3072, p);
		}
		CHECK_POOL(pool);
		CHECK(pp_user_provider_is_valid(provider, &why));
		if (got < 3072) {
			CHECK_EQ(got % PP_CHUNK_PAGES, 0);
			CHECK_EQ(info_of(provider).failed, 1);
			dry++;
		}
		CHECK_EQ(blocks.out, got);
		alloc_n(pool, 3072 - got, p + got);
		CHECK_PTR(page_pool_alloc_pages(pool), NULL);
		put_n(pool, 3072, p, false);
		page_pool_destroy(pool);
		CHECK_EQ(blocks.out, 0);
		CHECK(pp_user_provider_is_valid(provider, &why));
		CHECK_EQ(blocks.released, 0);
		pp_provider_put(provider);
		CHECK_EQ(blocks.released, 1);
		blocks.released = 0;
	} while (left <= 0);
	CHECK_EQ(failed, 3); /* itself, and address space for metadata of two kinds */
	CHECK_EQ(dry, 6);    /* three chunks of metadata of two kinds */
}
