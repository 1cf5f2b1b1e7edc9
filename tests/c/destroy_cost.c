/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What it costs to destroy a pool while very many of its pages are out, and to give them back
 * afterwards: seconds of CPU for a person, and for destroy_cost.sh two functions to count the
 * instructions of, timed_destroy() and timed_give_back().
 *
 *     destroy_cost                  a table
 *     destroy_cost PAGES DEVICE     one line; DEVICE: off, untracked, tracked, iommu
 *
 * Nobody writes to the pages, so a million of them is 4 GiB of address space and no memory.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/compiler.h"
#include "pagepool.h"

#define MAX_PAGES 1000000

static const struct device {
	const char *name;
	unsigned flags;
	bool iommu;
} devices[] = {
	{"off", 0, false},
	{"untracked", PP_FLAG_DMA_MAP | PP_FLAG_NO_TRACKING, false},
	{"tracked", PP_FLAG_DMA_MAP, false},
	{"iommu", PP_FLAG_DMA_MAP, true},
};

#define OR_DIE(call)                                                                              \
	do {                                                                                      \
		if (call) {                                                                       \
			fprintf(stderr, "destroy_cost: %s: %s\n", #call, page_pool_last_error()); \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

static PP_COLD void wrong(const char *what, int64_t is, int64_t should)
{
	fprintf(stderr, "destroy_cost: %s: %" PRId64 ", not %" PRId64 "\n", what, is, should);
	exit(1);
}

static void expect(const char *what, int64_t is, int64_t should)
{
	if (is != should)
		wrong(what, is, should);
}

static double cpu_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static PP_NOINLINE void timed_destroy(struct page_pool *pool)
{
	page_pool_destroy(pool);
}

static PP_NOINLINE void timed_give_back(struct page_pool *pool, struct pp_page **pages, size_t n)
{
	for (size_t i = 0; i < n; i++)
		page_pool_put_full_page(pool, pages[i], false);
}

static void measure(size_t n, const struct device *kind)
{
	static struct pp_page *pages[MAX_PAGES];
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct page_pool_dma_stats dma = {.size = sizeof(dma)};
	struct pp_arena_params a = PP_ARENA_PARAMS_INIT;
	struct pp_provider_info info = {.size = sizeof(info)};
	struct pp_iommu_params i = PP_IOMMU_PARAMS_INIT;
	struct pp_device *device = NULL;
	struct pp_iommu *iommu = NULL;
	struct page_pool *pool;
	double start, destroyed, back;

	/* One more refill than is needed, and what a thread keeps. */
	a.limit = (n + 1024) * PP_PAGE_SIZE;
	OR_DIE(pp_arena_create(&a, &params.provider));
	if (kind->iommu) {
		OR_DIE(pp_iommu_create(&i, &iommu));
		OR_DIE(pp_iommu_attach(iommu, "nic", &device));
	}
	params.flags = kind->flags;
	params.device = device;
	OR_DIE(page_pool_create(&params, &pool));
	expect("pages", (int64_t)page_pool_alloc_pages_bulk(pool, n, pages), (int64_t)n);
	page_pool_ref(pool);

	start = cpu_seconds();
	timed_destroy(pool);
	destroyed = cpu_seconds();
	expect("in flight after destroy", page_pool_inflight(pool), (int64_t)n);
	if (kind->iommu)
		expect("mappings left behind", pp_device_unbind(device), 0);
	back = cpu_seconds();
	timed_give_back(pool, pages, n);
	back = cpu_seconds() - back;

	expect("in flight at the end", page_pool_inflight(pool), 0);
	expect("refused puts", (int64_t)page_pool_refused_puts(pool), 0);
	if (kind->flags) {
		bool tracked = !(kind->flags & PP_FLAG_NO_TRACKING);

		OR_DIE(page_pool_get_dma_stats(pool, &dma));
		expect("unmapped by destroy", (int64_t)dma.unmaps_destroy,
		       tracked ? (int64_t)n : 0);
		expect("skipped later", (int64_t)dma.unmaps_skipped, tracked ? (int64_t)n : 0);
	}
	page_pool_unref(pool);
	OR_DIE(pp_provider_get_info(params.provider, &info));
	expect("bytes out at the end", (int64_t)info.out, 0);
	pp_provider_put(params.provider);
	if (kind->iommu) {
		expect("faults", (int64_t)pp_iommu_faults(iommu), 0);
		pp_device_put(device);
		pp_iommu_put(iommu);
	}
	printf("%-10s %8zu  %9.6f %6.1f  %9.6f %6.1f\n", kind->name, n, destroyed - start,
	       (destroyed - start) * 1e9 / (double)n, back, back * 1e9 / (double)n);
}

int main(int argc, char **argv)
{
	static const size_t counts[] = {100000, 200000, 1000000};
	const struct device *one = NULL;
	unsigned long n;
	char *end;

	if (argc == 1) {
		puts("                       destroy            give back");
		puts("device        pages     CPU s   ns a page   CPU s   ns a page");
		for (size_t k = 0; k < PP_ARRAY_SIZE(devices); k++)
			for (size_t i = 0; i < PP_ARRAY_SIZE(counts); i++)
				measure(counts[i], &devices[k]);
		return fflush(stdout) ? 1 : 0;
	}
	for (size_t k = 0; argc == 3 && k < PP_ARRAY_SIZE(devices); k++)
		if (!strcmp(argv[2], devices[k].name))
			one = &devices[k];
	n = one ? strtoul(argv[1], &end, 10) : 0;
	if (!one || *end || n < 1 || n > MAX_PAGES) {
		fputs("Usage: destroy_cost [PAGES off|untracked|tracked|iommu]\n", stderr);
		return 2;
	}
	measure(n, one);
	return fflush(stdout) ? 1 : 0;
}
