/* SPDX-License-Identifier: BSD-2-Clause */
/* The design "ours": lanes, whose threads come and go, and what they hold back. */
#include <time.h>

#include "core/lanes.h"
#include "test.h"

static struct page_pool *make_ours(struct pp_provider *arena, unsigned pool_size)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct page_pool *pool;

	params.provider = arena;
	params.pool_size = pool_size;
	params.design = PP_DESIGN_OURS;
	CHECK_OK(page_pool_create(&params, &pool));
	CHECK_EQ(page_pool_design(pool), PP_DESIGN_OURS);
	return pool;
}

static unsigned lanes_of(const struct page_pool *pool)
{
	const struct pp_lane *lane;
	unsigned n = 0;

	for (lane = pp_load_acquire(&pool->lanes.first); lane; lane = pp_load_acquire(&lane->next))
		n++;
	return n;
}

/* Another thread puts n pages and, if asked, flushes; then it ends. */
struct putter {
	struct page_pool *pool;
	struct pp_page **pages;
	size_t n;
	bool bulk;
	bool flush;
	bool stays; /* until it is told to end */
	uint32_t done, end;
};

static void *put_some(void *arg)
{
	struct putter *p = arg;

	if (p->bulk)
		page_pool_put_page_bulk(p->pages, p->n);
	else
		for (size_t i = 0; i < p->n; i++)
			page_pool_put_full_page(p->pool, p->pages[i], false);
	if (p->flush)
		page_pool_flush(p->pool);
	pp_store_release(&p->done, 1u);
	while (p->stays && !pp_load_acquire(&p->end))
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	return NULL;
}

static pthread_t start(struct putter *p)
{
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, put_some, p), 0);
	while (!pp_load_acquire(&p->done))
		sched_yield();
	return thread;
}

static void finish(struct putter *p, pthread_t thread)
{
	pp_store_release(&p->end, 1u);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

TEST(published_by_batches_and_found_all_the_same)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_ours(arena, 0);
	struct pp_page *p[64], *page;
	struct putter t = {.pool = pool, .pages = p, .n = 40, .stays = true};
	pthread_t thread;

	alloc_n(pool, 64, p);
	thread = start(&t);
	CHECK_EQ(lanes_of(pool), 1);
	CHECK_EQ(stats_of(pool).recycle_ring, 40);
	CHECK_EQ(page_pool_held_back(pool), 8);
	CHECK_EQ(page_pool_inflight(pool), 64);
	CHECK_POOL(pool);
	/* What is published comes first, the last put on top. */
	CHECK_PTR(page_pool_alloc_pages(pool), p[31]);
	CHECK_EQ(pool->cache.pushed - pool->cache.popped, 31);
	for (int i = 30; i >= 0; i--)
		CHECK_PTR(page_pool_alloc_pages(pool), p[i]);
	CHECK_EQ(stats_of(pool).alloc_refill, 1);
	/* Then what the thread holds back, which is asleep. */
	for (int i = 39; i >= 32; i--)
		CHECK_PTR(page_pool_alloc_pages(pool), p[i]);
	CHECK_EQ(stats_of(pool).alloc_refill, 2);
	CHECK_EQ(page_pool_held_back(pool), 0);
	CHECK_EQ(stats_of(pool).alloc_empty, 1); /* the first of all */
	page = page_pool_alloc_pages(pool);
	CHECK_EQ(stats_of(pool).alloc_empty, 2);
	CHECK_POOL(pool);
	finish(&t, thread);
	put_n(pool, 64, p, false);
	put_n(pool, 1, &page, true);
	end(pool, arena);
}

TEST(flush)
{
	for (int bulk = 0; bulk < 2; bulk++) {
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool = make_ours(arena, 0), *other = make_ours(arena, 0);
		struct pp_page *p[64], *q[64];
		struct putter t = {.pool = pool,
				   .pages = q,
				   .n = 63,
				   .bulk = bulk,
				   .flush = true,
				   .stays = true};
		pthread_t thread;

		page_pool_flush(pool); /* has no lane: nothing to do */
		CHECK_EQ(lanes_of(pool), 0);
		alloc_n(pool, 64, p);
		memcpy(q, p, sizeof(q));
		thread = start(&t);
		CHECK_EQ(page_pool_held_back(pool), 0);
		page_pool_flush(other);
		/* One refill has them all. */
		CHECK_PTR(page_pool_alloc_pages(pool), p[62]);
		CHECK_EQ(pool->cache.pushed - pool->cache.popped, 62);
		finish(&t, thread);
		put_n(pool, 1, &p[62], true);
		put_n(pool, 1, &p[63], true);
		page_pool_destroy(other);
		end(pool, arena);
	}
}

TEST(thread_that_ends_publishes_and_leaves_its_lane)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_ours(arena, 0);
	struct pp_page *p[320];

	for (int i = 0; i < 320; i++)
		p[i] = page_pool_alloc_pages(pool);
	for (int i = 0; i < 32; i++) {
		struct putter t = {.pool = pool, .pages = p + i * 10, .n = 10, .stays = true};
		pthread_t thread = start(&t);

		CHECK_EQ(page_pool_held_back(pool),
			 (i * 10 + 10) % 32 < 10 ? (i * 10 + 10) % 32 : 10);
		finish(&t, thread);
		CHECK_EQ(page_pool_held_back(pool), 0);
		CHECK_EQ(lanes_of(pool), 1);
		CHECK_EQ(pool->lanes.first->taken, 0);
		CHECK_EQ(pool->lanes.first->refs, 1);
	}
	CHECK_EQ(stats_of(pool).recycle_ring, 320);
	CHECK_POOL(pool);
	end(pool, arena);
}

TEST(lanes_in_turn)
{
	enum {
		THREADS = 3,
		EACH = 160
	};
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_ours(arena, 0);
	struct pp_page *p[THREADS][EACH];
	struct putter t[THREADS];
	pthread_t thread[THREADS];

	for (int k = 0; k < THREADS; k++)
		alloc_n(pool, EACH, p[k]);
	CHECK_OK(page_pool_update_nid(pool, PP_NUMA_NO_NODE)); /* empties the cache */
	for (int k = 0; k < THREADS; k++) {
		t[k] = (struct putter){.pool = pool, .pages = p[k], .n = EACH, .stays = true};
		thread[k] = start(&t[k]);
	}
	CHECK_EQ(lanes_of(pool), THREADS);
	/* So far no refill came when there was a lane: the cursor is at the ring, which is empty.
	 */
	for (int i = 63; i >= 0; i--)
		CHECK_PTR(page_pool_alloc_pages(pool), p[0][i]);
	/* It has moved on to the first lane, then the second, the third, and the ring again. */
	for (int i = 127; i >= 64; i--)
		CHECK_PTR(page_pool_alloc_pages(pool), p[0][i]);
	for (int i = 63; i >= 0; i--)
		CHECK_PTR(page_pool_alloc_pages(pool), p[1][i]);
	for (int i = 63; i >= 0; i--)
		CHECK_PTR(page_pool_alloc_pages(pool), p[2][i]);
	/* 32 are left in the first, and 32 of the next make it up. */
	for (int i = 95; i >= 64; i--)
		CHECK_PTR(page_pool_alloc_pages(pool), p[1][i]);
	for (int i = 159; i >= 128; i--)
		CHECK_PTR(page_pool_alloc_pages(pool), p[0][i]);
	for (int i = 159; i >= 96; i--)
		CHECK_PTR(page_pool_alloc_pages(pool), p[1][i]);
	for (int i = 127; i >= 64; i--)
		CHECK_PTR(page_pool_alloc_pages(pool), p[2][i]);
	for (int i = 159; i >= 128; i--)
		CHECK_PTR(page_pool_alloc_pages(pool), p[2][i]);
	CHECK_EQ(stats_of(pool).alloc_empty, 8); /* of the first 480 */
	for (int k = 0; k < THREADS; k++) {
		finish(&t[k], thread[k]);
		put_n(pool, EACH, p[k], false);
	}
	end(pool, arena);
}

TEST(full)
{
	for (int bulk = 0; bulk < 2; bulk++) {
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool = make_ours(arena, 40);
		struct pp_page *p[64], *q[64];

		alloc_n(pool, 64, p);
		memcpy(q, p, sizeof(q));
		if (bulk)
			page_pool_put_page_bulk(q, 64);
		else
			put_n(pool, 64, q, false);
		CHECK_EQ(stats_of(pool).recycle_ring, 40);
		CHECK_EQ(stats_of(pool).recycle_ring_full, bulk ? 1 : 24);
		CHECK_EQ(page_pool_inflight(pool), 40);
		CHECK_EQ(pages_out(arena), 40);
		CHECK_POOL(pool);
		/* As many as are taken out find room again. */
		for (int i = 31; i >= 0; i--)
			CHECK_PTR(page_pool_alloc_pages(pool), p[i]);
		put_n(pool, 32, p, false);
		CHECK_EQ(stats_of(pool).recycle_ring, 72);
		CHECK_POOL(pool);
		end(pool, arena);
	}
}

/* An entry of an earlier allocation: the page was put twice, taken out, and handed out again. */
TEST(entry_of_an_earlier_allocation)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	/* A checked pool finds out earlier. */
	struct page_pool *pool = (unsetenv("PAGEPOOL_CHECKED"), make_ours(arena, 0));
	struct pp_page *page = page_pool_alloc_pages(pool), *again, *p[64];
	struct putter t = {.pool = pool, .pages = &page, .n = 1, .stays = true};
	pthread_t thread;

	CHECK_OK(page_pool_update_nid(pool, PP_NUMA_NO_NODE));
	page_pool_put_full_page(pool, page, false);
	thread = start(&t); /* and once more */
	CHECK_EQ(page_pool_refused_puts(pool), 0);
	page_pool_flush(pool);
	again = page_pool_alloc_pages(pool);
	CHECK_PTR(again, page);
	/* It is its user's: the second entry is not it. */
	alloc_n(pool, 64, p);
	for (int i = 0; i < 64; i++)
		CHECK(p[i] != page);
	CHECK_EQ(page_pool_refused_puts(pool), 1);
	CHECK_EQ(stats_of(pool).recycle_ring, 1);
	CHECK_EQ(page_pool_inflight(pool), 65);
	CHECK_POOL(pool);
	finish(&t, thread);
	put_n(pool, 64, p, true);
	put_n(pool, 1, &again, true);
	end(pool, arena);
}

/* Threads outlive pools, and pools threads: lanes are given back. */
TEST(many_pools_one_thread)
{
	struct pp_provider *arena = make_arena(64 * MIB);
	struct page_pool *pool[50];

	for (int round = 0; round < 20; round++) {
		for (int k = 0; k < 50; k++) {
			struct pp_page *page;

			pool[k] = make_ours(arena, 64);
			page = page_pool_alloc_pages(pool[k]);
			page_pool_put_full_page(pool[k], page, false);
		}
		for (int k = 49; k >= 0; k--) {
			struct pp_page *page = page_pool_alloc_pages(pool[k]);

			page_pool_put_full_page(pool[k], page, false);
			CHECK_POOL(pool[k]);
			page_pool_destroy(pool[k]);
		}
	}
	CHECK_EQ(pages_out(arena), 0);
	pp_provider_put(arena);
	/* Of those that are gone a thread has no more than of one round. */
	struct pp_lane *lane = pp_my_lanes.all;
	unsigned n = 0;

	for (; lane; lane = lane->next_mine)
		n++;
	CHECK(n <= 51);
}

/* What a thread writes to a page before it puts it is seen by the next user. */
struct traffic {
	struct page_pool *pool;
	struct pp_page *page; /* handed over, atomic */
};

static void *write_and_put(void *arg)
{
	struct traffic *t = arg;

	for (uint32_t i = 0;; i++) {
		struct pp_page *page;

		while (!(page = pp_exchange_acquire(&t->page, NULL)))
			sched_yield();
		if (page == (void *)t)
			return NULL;
		*(uint32_t *)pp_page_address(page) = i;
		page_pool_put_full_page(t->pool, page, false);
	}
}

TEST(what_was_written_is_seen)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_ours(arena, 0);
	struct traffic t = {.pool = pool};
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, write_and_put, &t), 0);
	for (int i = 0; i < 2000; i++) {
		struct pp_page *page = page_pool_alloc_pages(pool);

		*(uint32_t *)pp_page_address(page) = 1;
		pp_store_release(&t.page, page);
		while (pp_load_relaxed(&t.page))
			sched_yield();
	}
	pp_store_release(&t.page, (struct pp_page *)&t);
	pthread_join(thread, NULL);
	end(pool, arena);
}

/* Destroyed right after the consumer took something out, while others put: they go on in their
 * lanes from where it was. */
enum {
	LOSERS = 3,
	ROUNDS = 600,
	EACH_PUTS = 100
};

struct loser {
	struct page_pool *pool;
	struct pp_page *pages[EACH_PUTS];
	uint32_t go, put; /* round; pages of it */
};

static void *put_in_rounds(void *arg)
{
	struct loser *l = arg;

	for (uint32_t round = 1; round <= ROUNDS; round++) {
		while (pp_load_acquire(&l->go) != round)
			sched_yield();
		for (uint32_t i = 0; i < EACH_PUTS; i++) {
			page_pool_put_full_page(l->pool, l->pages[i], false);
			/* release: the page has left. */
			pp_store_release(&l->put, i + 1);
			/* So that some are left when the consumer has come to its end. */
			if (i % 4 == 3)
				sched_yield();
		}
	}
	return NULL;
}

TEST(destroyed_while_others_put)
{
	static struct loser losers[LOSERS];
	struct pp_provider *arena = make_arena(16 * MIB);
	pthread_t threads[LOSERS];

	for (int k = 0; k < LOSERS; k++)
		CHECK_EQ(pthread_create(&threads[k], NULL, put_in_rounds, &losers[k]), 0);
	for (uint32_t round = 1; round <= ROUNDS; round++) {
		struct page_pool *pool = make_ours(arena, 128);
		struct pp_page *mine[64];

		for (int k = 0; k < LOSERS; k++) {
			losers[k].pool = pool;
			losers[k].put = 0;
			alloc_n(pool, EACH_PUTS, losers[k].pages);
		}
		CHECK_OK(page_pool_update_nid(pool, PP_NUMA_NO_NODE)); /* empties the cache */
		for (int k = 0; k < LOSERS; k++)
			pp_store_release(&losers[k].go, round);
		while (pp_load_relaxed(&losers[round % LOSERS].put) < 1 + round % EACH_PUTS / 2)
			sched_yield();
		alloc_n(pool, 64, mine);
		put_n(pool, 64, mine, true);
		page_pool_destroy(pool);
		for (int k = 0; k < LOSERS; k++)
			while (pp_load_acquire(&losers[k].put) < EACH_PUTS)
				sched_yield();
	}
	for (int k = 0; k < LOSERS; k++)
		CHECK_EQ(pthread_join(threads[k], NULL), 0);
	CHECK_EQ(pages_out(arena), 0);
	pp_provider_put(arena);
}
