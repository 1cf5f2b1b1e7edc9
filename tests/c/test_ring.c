/* SPDX-License-Identifier: BSD-2-Clause */
/* The ring by itself, and what of it shows from outside of a pool. */
#include "core/types.h"

/* Every release store of the ring's is noted: the order in which slots are cleared is part of what
 * it promises to producers. */
#include "base/atomic.h"
static void *stored[64];
static unsigned nr_stored;
#undef pp_store_release
#define pp_store_release(p, v)                                \
	do {                                                  \
		stored[nr_stored++ % 64] = (void *)(p);       \
		__atomic_store_n((p), (v), __ATOMIC_RELEASE); \
	} while (0)
#include "core/ring.h"

#include "test.h"

static struct pp_page dummy[256];

static bool produce(struct pp_ring *r, struct pp_page *page)
{
	return pp_ring_produce(r, &page, 1) == 1;
}

static struct pp_page *peek(const struct pp_ring *r)
{
	return pp_ring_peek(r, r->consumer_head);
}

static void discard(struct pp_ring *r)
{
	r->consumer_head = pp_ring_discard(r, r->consumer_head);
}

static void make_ring(struct pp_ring *r, uint32_t size)
{
	memset(r, 0, sizeof(*r));
	r->size = size;
	r->batch = pp_ring_batch(size);
	r->queue = calloc(size, sizeof(r->queue[0]));
	CHECK(r->queue);
}

TEST(batch_is_16_and_1_in_small_rings)
{
	CHECK_EQ(pp_ring_batch(1), 1);
	CHECK_EQ(pp_ring_batch(31), 1);
	CHECK_EQ(pp_ring_batch(32), 16);
	CHECK_EQ(pp_ring_batch(1024), 16);
	CHECK_EQ(pp_ring_batch(16384), 16);
}

TEST(slots_are_cleared_the_last_first)
{
	struct pp_ring r;

	make_ring(&r, 40);
	for (int i = 0; i < 40; i++)
		CHECK(produce(&r, &dummy[i]));
	CHECK(!produce(&r, &dummy[40]));
	nr_stored = 0;
	for (int i = 0; i < 15; i++) {
		CHECK_PTR(peek(&r), &dummy[i]);
		discard(&r);
	}
	CHECK_EQ(nr_stored, 0);
	CHECK(!produce(&r, &dummy[40]));
	discard(&r);
	CHECK_EQ(nr_stored, 16);
	for (int i = 0; i < 16; i++)
		CHECK_PTR(stored[i], &r.queue[15 - i]);
	/* At the wrap all that is left, be it less than a batch. */
	nr_stored = 0;
	for (int i = 16; i < 40; i++)
		discard(&r);
	CHECK_EQ(nr_stored, 24);
	for (int i = 0; i < 8; i++)
		CHECK_PTR(stored[16 + i], &r.queue[39 - i]);
	CHECK(!peek(&r));
	free(r.queue);
}

/* Any sequence of produce and consume, in rings of all small sizes, against a plain model: a slot
 * is free when its batch was consumed. */
TEST(random_against_model)
{
	for (uint64_t seed = 1; seed <= 400; seed++) {
		uint64_t s = seed * 0x9e3779b97f4a7c15ull, in = 0, out = 0, cleared = 0;
		uint32_t size = 1 + (uint32_t)rnd_below(&s, 80);
		uint32_t batch = size < 32 ? 1 : 16;
		struct pp_ring r;

		make_ring(&r, size);
		for (int step = 0; step < 2000; step++) {
			unsigned n = (unsigned)rnd_below(&s, 20);

			if (rnd(&s) & 1024) {
				for (; n; n--) {
					bool room = in - cleared < size;

					CHECK_EQ(produce(&r, &dummy[in % 251]), room);
					in += room;
				}
				continue;
			}
			for (; n; n--) {
				struct pp_page *page = peek(&r);

				if (in == out) {
					CHECK_PTR(page, NULL);
					break;
				}
				CHECK_PTR(page, &dummy[out % 251]);
				discard(&r);
				out++;
				if (out - cleared == batch || out % size == 0)
					cleared = out;
			}
		}
		free(r.queue);
	}
}

/* ---- as a driver sees it --------------------------------------------------------------------- */

/*
 * Consume `consumed` pages of a ring of that size that only ever had these, then put as many more
 * as it takes: how many did it find room for?
 */
static unsigned room_after(unsigned size, unsigned consumed)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct pp_page *pages[256], *more[64];
	struct page_pool *pool;
	unsigned room;

	params.provider = arena;
	params.pool_size = size;
	params.design = PP_DESIGN_RING;
	CHECK_OK(page_pool_create(&params, &pool));

	alloc_n(pool, 192, pages); /* three refills: the cache is empty */
	put_n(pool, consumed, pages, false);
	CHECK_EQ(stats_of(pool).recycle_ring, consumed);
	/* One refill empties the ring; then empty the cache. */
	alloc_n(pool, consumed, more);
	CHECK_EQ(stats_of(pool).alloc_refill, 1);
	CHECK_POOL(pool);
	for (unsigned i = consumed; i < 192; i++)
		page_pool_put_full_page(pool, pages[i], false);
	room = (unsigned)stats_of(pool).recycle_ring - consumed;
	CHECK_EQ(stats_of(pool).recycle_ring_full, 192 - consumed - room);
	put_n(pool, consumed, more, true);
	end(pool, arena);
	return room;
}

TEST(full_while_15_were_consumed)
{
	CHECK_EQ(room_after(40, 15), 25);
	CHECK_EQ(room_after(40, 16), 40);
	CHECK_EQ(room_after(40, 31), 25);
	CHECK_EQ(room_after(40, 32), 40);
	CHECK_EQ(room_after(40, 39), 33);
	CHECK_EQ(room_after(40, 40), 40); /* the wrap */
	CHECK_EQ(room_after(32, 15), 17);
	CHECK_EQ(room_after(64, 63), 49);
}

TEST(small_ring_has_no_such_thing)
{
	for (unsigned size = 1; size < 32; size++)
		for (unsigned consumed = 1; consumed <= size; consumed += 5)
			CHECK_EQ(room_after(size, consumed), size);
}
