/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * DPDK's pools: rte_mempool with and without its per-core cache, and rte_mbuf over it. The
 * functions are inline in DPDK's headers and are compiled into these loops, as into any DPDK
 * program; "call" is the same through a real call for each half.
 *
 * No huge pages, no devices, no files left behind: what a mempool costs does not depend on them as
 * long as nobody touches the objects, and nobody does.
 *
 * cross-bulk32: a second thread gives them back, each with a cache of its own (see cross.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_version.h>

#include "cross.h"
#include "peer.h"

#define OBJECT 4096
#define BATCH 32

enum {
	CACHED = 1,
	MBUF = 2,
	MPSC = 4,
	CROSS = 8
};

static uint64_t run_one(void *ctx, uint64_t turns)
{
	struct rte_mempool *pool = ctx;

	for (uint64_t i = 0; i < turns; i++) {
		void *object;

		if (peer_unlikely(rte_mempool_get(pool, &object)))
			return i;
		PEER_USE(object);
		rte_mempool_put(pool, object);
	}
	return turns;
}

static __attribute__((noinline)) int call_get(struct rte_mempool *pool, void **object)
{
	return rte_mempool_get(pool, object);
}

static __attribute__((noinline)) void call_put(struct rte_mempool *pool, void *object)
{
	rte_mempool_put(pool, object);
}

static uint64_t run_call(void *ctx, uint64_t turns)
{
	struct rte_mempool *pool = ctx;

	for (uint64_t i = 0; i < turns; i++) {
		void *object;

		if (peer_unlikely(call_get(pool, &object)))
			return i;
		PEER_USE(object);
		call_put(pool, object);
	}
	return turns;
}

static uint64_t run_bulk(void *ctx, uint64_t turns)
{
	struct rte_mempool *pool = ctx;
	void *objects[BATCH];

	for (uint64_t i = 0; i < turns; i++) {
		void **all = objects;

		if (peer_unlikely(rte_mempool_get_bulk(pool, objects, BATCH)))
			return i;
		PEER_USE(all);
		rte_mempool_put_bulk(pool, all, BATCH);
	}
	return turns;
}

static uint64_t run_mbuf(void *ctx, uint64_t turns)
{
	struct rte_mempool *pool = ctx;

	for (uint64_t i = 0; i < turns; i++) {
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

		if (peer_unlikely(!mbuf))
			return i;
		PEER_USE(mbuf);
		rte_pktmbuf_free(mbuf);
	}
	return turns;
}

static uint64_t run_mbuf_bulk(void *ctx, uint64_t turns)
{
	struct rte_mempool *pool = ctx;
	struct rte_mbuf *mbufs[BATCH];

	for (uint64_t i = 0; i < turns; i++) {
		struct rte_mbuf **all = mbufs;

		if (peer_unlikely(rte_pktmbuf_alloc_bulk(pool, mbufs, BATCH)))
			return i;
		PEER_USE(all);
		rte_pktmbuf_free_bulk(all, BATCH);
	}
	return turns;
}

static inline int cross_get_bulk(void *pool, void **objects)
{
	return rte_mempool_get_bulk(pool, objects, CROSS_BATCH);
}

static inline void cross_put_bulk(void *pool, void **objects)
{
	rte_mempool_put_bulk(pool, objects, CROSS_BATCH);
}

static uint64_t run_cross(void *ctx, uint64_t turns)
{
	return cross_run(ctx, turns, cross_get_bulk);
}

static void *give_back(void *cross)
{
	return cross_back(cross, cross_put_bulk);
}

/* Only a thread that DPDK knows has a cache. */
static int enter_dpdk(void)
{
	return rte_thread_register() ? -rte_errno : 0;
}

static int open_pool(struct peer_test *test)
{
	/* The largest cache that a mempool of this size may have. */
	unsigned cache = test->size * 2 / 3 < RTE_MEMPOOL_CACHE_MAX_SIZE
				 ? test->size * 2 / 3
				 : RTE_MEMPOOL_CACHE_MAX_SIZE;
	struct rte_mempool *pool;

	if (!(test->flags & CACHED))
		cache = 0;
	if (test->flags & MBUF)
		pool = rte_pktmbuf_pool_create(test->name, test->size, cache, 0,
					       RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	else
		pool = rte_mempool_create(test->name, test->size, OBJECT, cache, 0, NULL, NULL,
					  NULL, NULL, SOCKET_ID_ANY,
					  test->flags & MPSC ? RTE_MEMPOOL_F_SC_GET : 0);
	if (!pool)
		return -(rte_errno ? rte_errno : ENOMEM);
	if (test->flags & CROSS)
		return cross_open(test, pool, give_back, enter_dpdk);
	test->ctx = pool;
	return 0;
}

/* n - 1 objects: a ring of n slots then holds them, and goes round through all of its memory. */
#define TEST(name_, run_, batch_, size_, flags_)                                    \
	{                                                                           \
		.name = name_, .batch = batch_, .size = (size_)-1, .flags = flags_, \
		.open = open_pool, .run = run_                                      \
	}

static struct peer_test tests[] = {
	TEST("cached@1024", run_one, 1, 1024, CACHED),
	TEST("cached-call@1024", run_call, 1, 1024, CACHED),
	TEST("cached-bulk32@1024", run_bulk, BATCH, 1024, CACHED),
	TEST("uncached@64", run_one, 1, 64, 0),
	TEST("uncached@1024", run_one, 1, 1024, 0),
	TEST("uncached@16384", run_one, 1, 16384, 0),
	TEST("uncached-call@1024", run_call, 1, 1024, 0),
	TEST("uncached-mpsc@1024", run_one, 1, 1024, MPSC),
	TEST("uncached-bulk32@1024", run_bulk, BATCH, 1024, 0),
	TEST("cross-bulk32@1024", run_cross, CROSS_BATCH, 1024, CACHED | CROSS),
	TEST("mbuf@1024", run_mbuf, 1, 1024, CACHED | MBUF),
	TEST("mbuf-bulk32@1024", run_mbuf_bulk, BATCH, 1024, CACHED | MBUF),
};

int main(int argc, char **argv)
{
	char lcores[32];
	char *eal[] = {
		argv[0],       "--no-huge", "--no-pci", "--no-telemetry", "--lcores",      lcores,
		"--no-shconf", "-m",        "256",      "--iova-mode=va", "--log-level=4", NULL,
	};
	struct peer peer = {
		.name = "dpdk",
		.version = rte_version(),
		.detail = "",
		.tests = tests,
		.count = sizeof(tests) / sizeof(tests[0]),
	};

	/* The thread that EAL starts from becomes its core 0; only such a thread has a cache. */
	snprintf(lcores, sizeof(lcores), "0@%d", peer_start(argc, argv));
	if (rte_eal_init((int)(sizeof(eal) / sizeof(eal[0])) - 1, eal) < 0) {
		fprintf(stderr, "%s: DPDK does not start: %s\n", argv[0], rte_strerror(rte_errno));
		return 1;
	}
	return peer_serve(&peer);
}
