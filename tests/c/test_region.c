/* SPDX-License-Identifier: BSD-2-Clause */
/* Pages out of memory that the caller has: an array, a memfd that two processes map. */
#include "test.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
	int calls;
	void *ctx, *memory;
	size_t length;
} released;

static void on_release(void *ctx, void *memory, size_t length)
{
	released.calls++;
	released.ctx = ctx;
	released.memory = memory;
	released.length = length;
}

static struct pp_provider *make_region(void *memory, size_t length)
{
	struct pp_region_params params = PP_REGION_PARAMS_INIT;
	struct pp_provider *region;

	params.memory = memory;
	params.length = length;
	params.release = on_release;
	params.ctx = &released;
	memset(&released, 0, sizeof(released));
	CHECK_OK(pp_region_create(&params, &region));
	return region;
}

static void *map(size_t length)
{
	void *memory =
		mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}

/* All of it is handed out, each page once, nothing beside it; then it is refused; then it is back.
 */
TEST(every_size)
{
	static const size_t sizes[] = {1, 2, 3, 63, 64, 65, 1000, 1023, 1024, 1025, 1536, 3000};

	for (size_t k = 0; k < PP_ARRAY_SIZE(sizes); k++) {
		size_t n = sizes[k], length = (n << 12) + 100 * (k % 2);
		char *memory = map(length);
		struct pp_provider *region = make_region(memory, length);
		struct page_pool *pool = make_pool(region, 0, NULL);
		struct pp_page **p = calloc(n + 1, sizeof(p[0]));
		unsigned char *seen = calloc(n, 1);

		CHECK_EQ(page_pool_alloc_pages_bulk(pool, n + 1, p), n);
		for (size_t i = 0; i < n; i++) {
			size_t at = (size_t)((char *)pp_page_address(p[i]) - memory);

			CHECK_EQ(at % 4096, 0);
			CHECK(at >> 12 < n);
			CHECK_EQ(seen[at >> 12]++, 0);
			CHECK_PTR(pp_provider_page(region, memory + at + 4095), p[i]);
		}
		CHECK_PTR(page_pool_alloc_pages(pool), NULL);
		CHECK_ARENA(region);
		CHECK_EQ(info_of(region).limit, n << 12);
		CHECK_EQ(info_of(region).mapped, n << 12);
		put_n(pool, n, p, false);
		page_pool_destroy(pool);
		CHECK_EQ(pages_out(region), 0);
		CHECK_ARENA(region);
		CHECK_EQ(released.calls, 0);
		pp_provider_put(region);
		CHECK_EQ(released.calls, 1);
		CHECK_PTR(released.ctx, &released);
		CHECK_PTR(released.memory, memory);
		CHECK_EQ(released.length, length);
		munmap(memory, length);
		free(seen);
		free(p);
	}
}

TEST(higher_orders)
{
	char *memory = map(7 * MIB);
	struct pp_provider *region = make_region(memory, 7 * MIB);
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct page_pool *pool;
	struct pp_page *p[4];

	params.provider = region;
	params.order = 8; /* 1 MiB */
	CHECK_OK(page_pool_create(&params, &pool));
	for (int i = 0; i < 4; i++) {
		p[i] = page_pool_alloc_pages(pool);
		CHECK(p[i]);
		CHECK_EQ(((char *)pp_page_address(p[i]) - memory) % MIB, 0);
		memset(pp_page_address(p[i]), i, MIB);
	}
	for (int i = 0; i < 4; i++)
		CHECK_EQ(((char *)pp_page_address(p[i]))[MIB - 1], i);
	put_n(pool, 4, p, true);
	page_pool_destroy(pool);
	CHECK_ARENA(region);
	pp_provider_put(region);
	munmap(memory, 7 * MIB);
}

TEST(the_last_page_gives_the_memory_back)
{
	char *memory = map(1 * MIB);
	struct pp_provider *region = make_region(memory, 1 * MIB);
	struct page_pool *pool = make_pool(region, 0, NULL);
	struct pp_page *held = page_pool_alloc_pages(pool),
		       *straggler = page_pool_alloc_pages(pool);

	pp_page_get(held);
	put_n(pool, 1, &held, true);
	page_pool_destroy(pool);
	pp_provider_put(region);
	CHECK_EQ(released.calls, 0);
	put_n(pool, 1, &straggler, false);
	CHECK_EQ(released.calls, 0);
	memset(pp_page_address(held), 7, 4096);
	pp_page_put(held);
	CHECK_EQ(released.calls, 1);
	munmap(memory, 1 * MIB);
}

TEST(refusals)
{
	char *memory = map(8192);
	struct pp_provider *region;
	struct {
		void *memory;
		size_t length, reserve;
		int nid;
		const char *why;
	} bad[] = {
		{NULL, 8192, 0, 0, "must be aligned to 4096 bytes"},
		{memory + 8, 8192, 0, 0, "must be aligned to 4096 bytes"},
		{memory, 4095, 0, 0, "a region of 4095 bytes: must be from 4096"},
		{memory, SIZE_MAX, 0, 0, "must be from 4096 to"},
		{memory, 8192, 8192, 0, "a region's reserve of 8192 bytes leaves nothing of 8192"},
		{memory, 8192, 0, -2, "NUMA node -2"},
	};

	for (size_t i = 0; i < PP_ARRAY_SIZE(bad); i++) {
		struct pp_region_params params = PP_REGION_PARAMS_INIT;

		params.memory = bad[i].memory;
		params.length = bad[i].length;
		params.reserve = bad[i].reserve;
		params.nid = bad[i].nid;
		CHECK_FAILS(pp_region_create(&params, &region), EINVAL, bad[i].why);
	}
	munmap(memory, 8192);
}

#ifndef PP_TSAN /* which takes the fork handlers of a process with threads for a race */
/* What one process writes into a page, another reads in its own mapping of the same memfd. */
TEST(shared_with_another_process)
{
	int fd = memfd_create("pagepool-test", MFD_CLOEXEC), status;
	struct pp_provider *region;
	struct page_pool *pool;
	struct pp_page *page;
	size_t offset;
	char *memory;
	pid_t child;

	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, 1 * MIB), 0);
	memory = mmap(NULL, 1 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(memory != MAP_FAILED);
	region = make_region(memory, 1 * MIB);
	pool = make_pool(region, 0, NULL);
	page = page_pool_alloc_pages(pool);
	offset = (size_t)((char *)pp_page_address(page) - memory);
	strcpy(pp_page_address(page), "ping");
	child = fork();
	if (child == 0) {
		char *mine = mmap(NULL, 1 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		if (mine == MAP_FAILED || strcmp(mine + offset, "ping"))
			_exit(1);
		strcpy(mine + offset, "pong");
		_exit(0);
	}
	CHECK(child > 0);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	CHECK_EQ(strcmp(pp_page_address(page), "pong"), 0);
	put_n(pool, 1, &page, true);
	page_pool_destroy(pool);
	pp_provider_put(region);
	CHECK_EQ(released.calls, 1);
	munmap(memory, 1 * MIB);
	close(fd);
}
#endif
