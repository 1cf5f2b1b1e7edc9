/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The page from the C library: aligned_alloc(4096, 4096) and free. Built once, without built-ins,
 * so that the compiler knows nothing of either and both stay calls; which allocator answers is
 * LD_PRELOAD's choice. "detail" is the file that it came from: the driver checks it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "peer.h"

#define PAGE ((size_t)4096)
#define BATCH 32
/* As many pages as the pool of the other loops has in its cache. */
#define RESIDENT 64

static int open_nothing(struct peer_test *test)
{
	(void)test;
	return 0;
}

static uint64_t run_pair(void *ctx, uint64_t turns)
{
	(void)ctx;
	for (uint64_t i = 0; i < turns; i++) {
		void *page = aligned_alloc(PAGE, PAGE);

		if (peer_unlikely(!page))
			return i;
		PEER_USE(page);
		free(page);
	}
	return turns;
}

static uint64_t run_batch(void *ctx, uint64_t turns)
{
	void *pages[BATCH];

	(void)ctx;
	for (uint64_t i = 0; i < turns; i++) {
		for (unsigned k = 0; k < BATCH; k++) {
			pages[k] = aligned_alloc(PAGE, PAGE);
			if (peer_unlikely(!pages[k])) {
				while (k)
					free(pages[--k]);
				return i;
			}
			PEER_USE(pages[k]);
		}
		for (unsigned k = 0; k < BATCH; k++)
			free(pages[k]);
	}
	return turns;
}

/* First in, first out: what comes back is not what goes out next, as with the ring. */
static int open_fifo(struct peer_test *test)
{
	void **pages = calloc(RESIDENT, sizeof(*pages));

	if (!pages)
		return -ENOMEM;
	for (unsigned k = 0; k < RESIDENT; k++)
		pages[k] = aligned_alloc(PAGE, PAGE);
	test->ctx = pages;
	return 0;
}

static uint64_t run_fifo(void *ctx, uint64_t turns)
{
	void **pages = ctx;

	for (uint64_t i = 0; i < turns; i++) {
		void *page = aligned_alloc(PAGE, PAGE);

		if (peer_unlikely(!page))
			return i;
		PEER_USE(page);
		free(pages[i % RESIDENT]);
		pages[i % RESIDENT] = page;
	}
	return turns;
}

static struct peer_test tests[] = {
	{.name = "pair", .batch = 1, .open = open_nothing, .run = run_pair},
	{.name = "bulk32", .batch = BATCH, .open = open_nothing, .run = run_batch},
	{.name = "fifo", .batch = 1, .open = open_fifo, .run = run_fifo},
};

int main(int argc, char **argv)
{
	struct peer peer = {
		.name = "malloc",
		.version = "",
		.detail = "?",
		.tests = tests,
		.count = sizeof(tests) / sizeof(tests[0]),
	};
	Dl_info info;
	void *function;

	peer_start(argc, argv);
	function = dlsym(RTLD_DEFAULT, "aligned_alloc");
	if (function && dladdr(function, &info) && info.dli_fname)
		peer.detail = info.dli_fname;
	return peer_serve(&peer);
}
