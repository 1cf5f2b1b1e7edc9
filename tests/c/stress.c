/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Everything at once, for the sanitizers and for luck:
 *
 *     PP_TEST_SEED=7 PP_TEST_ROUNDS=100000 stress
 *
 * Two threads take turns as the consumer of a few pools, by entering their napis; 1 to 8 producers
 * give the pages back, one by one or in bulk, or hold them for a while; threads come and go, so
 * their magazines do; pools (and arenas) are destroyed and made anew while their pages are out; a
 * reader looks at statistics and in flight all the while. Each page carries a tag of its
 * allocation, which everybody who gets it checks: a page handed out twice at a time shows. Most
 * pools map their pages for a device of their own, whose driver is gone when the pool is destroyed:
 * it keeps a strict book, see book.h.
 */
#include <sched.h>

#include "book.h"

#define SLOTS 4
#ifdef PP_TSAN
#define ROUNDS 6000
#else
#define ROUNDS 20000
#endif
#define MAX_PRODUCERS 8
#define MAILBOX 256

static struct pp_provider *shared;
static unsigned nr_producers;
static uint64_t rounds, seed0;

/* ---- pools --------------------------------------------------------------------------------------
 */

/* What is in a slot is the consumer's, that is of whoever is in its napi. */
struct slot {
	struct pp_napi *napi;
	struct page_pool *pool; /* NULL: being replaced */
	struct book *book;      /* its device; goes with the pool */
	uint64_t allocated;     /* from this pool, to hold against its statistics */
	/* under readers_lock */
	struct page_pool *seen; /* with a reference */
};

static struct slot slots[SLOTS];
static pthread_mutex_t readers_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t pools_made, out_of_pages, taken_by_producers, held_by_producers;
static uint64_t unmapped_by_destroy, unmapped_on_leaving;

static struct page_pool *new_pool(struct slot *slot, uint64_t *s)
{
	static const unsigned sizes[] = {1, 8, 31, 64, 256, 1024};
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct page_pool *pool;
	bool own = rnd_below(s, 3) == 0;

	slot->book = NULL;
	params.napi = slot->napi;
	params.pool_size = sizes[rnd_below(s, PP_ARRAY_SIZE(sizes))];
	params.order = rnd_below(s, 4) ? 0 : (unsigned)rnd_below(s, 4);
	params.provider = own ? make_arena(4 * MIB) : shared;
	params.retry_ms = 1; /* the janitor looks as often as it can */
	if (rnd_below(s, 4)) {
		slot->book = book_create(true);
		slot->book->ends_itself = true;
		slot->book->fail = (int64_t)rnd_below(s, 500); /* one mapping may fail */
		params.device = slot->book->device;
		params.flags = PP_FLAG_DMA_MAP | (rnd_below(s, 2) ? PP_FLAG_DMA_SYNC_DEV : 0);
		params.max_len = 1500;
	}
	CHECK_OK(page_pool_create(&params, &pool));
	if (slot->book)
		pp_device_put(slot->book->device); /* likewise */
	if (own)
		pp_provider_put(params.provider); /* goes with the pool, or with its last page */
	return pool;
}

static void show_to_reader(struct slot *slot, struct page_pool *pool)
{
	struct page_pool *old;

	if (pool)
		page_pool_ref(pool);
	pthread_mutex_lock(&readers_lock);
	old = slot->seen;
	slot->seen = pool;
	pthread_mutex_unlock(&readers_lock);
	if (old)
		page_pool_unref(old);
}

/* Not in the napi, slot->pool is NULL: nobody else takes himself for its consumer. */
static void end_slot_pool(struct page_pool *pool, struct book *book, uint64_t allocated)
{
	struct page_pool_stats s;

	page_pool_ref(pool);
	page_pool_destroy(pool);
	if (book) {
		struct page_pool_dma_stats d;

		book->gone = true;
		/* Each by one side, and none is under way. */
		d = dma_of(pool);
		CHECK_EQ(d.maps, d.unmaps + d.unmaps_destroy);
		CHECK_EQ(book_mapped(book), 0);
		pp_fetch_add_relaxed(&unmapped_by_destroy, d.unmaps_destroy);
		pp_fetch_add_relaxed(&unmapped_on_leaving, d.unmaps);
	}
	s = stats_of(pool);
	CHECK_EQ(s.alloc_fast + s.alloc_refill + s.alloc_slow + s.alloc_slow_high_order, allocated);
	CHECK(s.alloc_slow <= s.alloc_empty + s.alloc_waive);
	CHECK(page_pool_inflight(pool) >= 0);
	page_pool_unref(pool);
}

/* ---- mail ---------------------------------------------------------------------------------------
 */

enum role {
	PUT,  /* put it to its pool */
	HOLD, /* one of several holders: only look at it, then let go */
};

struct message {
	struct pp_page *page;
	struct page_pool *pool; /* for PUT */
	uint64_t tag;
	enum role role;
};

struct mailbox {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct message messages[MAILBOX];
	size_t n;
	bool closed;
} PP_ALIGNED(PP_CACHELINE);

static struct mailbox mail[MAX_PRODUCERS];

static bool send_mail(struct mailbox *box, const struct message *m)
{
	bool room;

	pthread_mutex_lock(&box->lock);
	room = box->n < MAILBOX;
	if (room) {
		box->messages[box->n++] = *m;
		pthread_cond_signal(&box->changed);
	}
	pthread_mutex_unlock(&box->lock);
	return room;
}

/* Some of what is there; 0: closed and empty. */
static size_t get_mail(struct mailbox *box, struct message *messages, size_t n)
{
	pthread_mutex_lock(&box->lock);
	while (!box->n && !box->closed)
		pthread_cond_wait(&box->changed, &box->lock);
	if (n > box->n)
		n = box->n;
	memcpy(messages, box->messages, n * sizeof(*messages));
	box->n -= n;
	memmove(box->messages, box->messages + n, box->n * sizeof(*messages));
	pthread_mutex_unlock(&box->lock);
	return n;
}

/* First and last word: high orders are whole. */
static void write_tag(struct pp_page *page, uint64_t tag)
{
	uint64_t *words = pp_page_address(page);

	words[0] = words[pp_page_size(page) / sizeof(*words) - 1] = tag;
}

static void check_tag(struct pp_page *page, uint64_t tag)
{
	const uint64_t *words = pp_page_address(page);

	CHECK_EQ(words[0], tag);
	CHECK_EQ(words[pp_page_size(page) / sizeof(*words) - 1], tag);
}

/* ---- producers ----------------------------------------------------------------------------------
 */

struct producer {
	struct mailbox *box;
	uint64_t seed;
	pthread_t thread;
	bool over; /* the box is closed and empty */
};

static void *produce(void *arg)
{
	struct producer *p = arg;
	struct message m[64];
	struct pp_page *bulk[64];

	/* A short life, so that magazines come and go. */
	for (uint64_t turns = 1 + rnd_below(&p->seed, 50); turns; turns--) {
		size_t n = get_mail(p->box, m, 1 + rnd_below(&p->seed, 64)), nr = 0;
		bool in_bulk = rnd(&p->seed) & 4096;

		if (!n) {
			p->over = true;
			break;
		}
		for (size_t i = 0; i < n; i++) {
			check_tag(m[i].page, m[i].tag);
			if (m[i].role == HOLD) {
				CHECK(pp_page_ref_count(m[i].page) >= 1);
				pp_page_put(m[i].page);
				pp_fetch_add_relaxed(&held_by_producers, 1u);
				continue;
			}
			/* Alive, since this page of its is out. */
			CHECK_PTR(page_pool_get_pp(m[i].page), m[i].pool);
			if (rnd(&p->seed) & 4096)
				page_pool_dma_sync_for_cpu(m[i].pool, m[i].page, 0, 64);
			if (in_bulk)
				bulk[nr++] = m[i].page;
			else if (rnd_below(&p->seed, 8) == 0) { /* hold it beyond the put */
				pp_page_get(m[i].page);
				page_pool_put_full_page(m[i].pool, m[i].page, false);
				check_tag(m[i].page, m[i].tag);
				pp_page_put(m[i].page);
			} else {
				page_pool_put_page(m[i].pool, m[i].page,
						   (unsigned)rnd_below(&p->seed, 2000), false);
			}
		}
		pp_fetch_add_relaxed(&taken_by_producers, n);
		page_pool_put_page_bulk(bulk, nr);
	}
	return NULL;
}

/* ---- consumers ----------------------------------------------------------------------------------
 */

static void dispose(struct slot *slot, struct pp_page *page, uint64_t *s)
{
	static uint64_t last_tag;
	struct message m = {.page = page, .pool = slot->pool, .role = PUT};

	m.tag = pp_fetch_add_relaxed(&last_tag, 1u) + 1;
	write_tag(page, m.tag);
	switch (rnd_below(s, 8)) {
	case 0:
		page_pool_recycle_direct(slot->pool, page);
		return;
	case 1:
		page_pool_put_full_page(slot->pool, page, false); /* direct by the napi */
		return;
	case 2: { /* two who have it, at different places */
		struct message hold = m;

		hold.role = HOLD;
		pp_page_get(page);
		if (!send_mail(&mail[rnd_below(s, nr_producers)], &hold))
			pp_page_put(page);
		break;
	}
	case 3: /* put here, held there */
		m.role = HOLD;
		pp_page_get(page);
		if (!send_mail(&mail[rnd_below(s, nr_producers)], &m))
			pp_page_put(page);
		page_pool_put_full_page(slot->pool, page, rnd(s) & 4096);
		return;
	}
	if (!send_mail(&mail[rnd_below(s, nr_producers)], &m))
		page_pool_put_page_bulk(&page, 1);
}

static void poll(struct slot *slot, uint64_t *s)
{
	struct pp_page *pages[100];
	size_t n = 1 + rnd_below(s, 100), got;

	got = page_pool_alloc_pages_bulk(slot->pool, n, pages);
	while (got < n && (pages[got] = page_pool_alloc_pages(slot->pool)))
		got++;
	if (got < n)
		pp_fetch_add_relaxed(&out_of_pages, 1u);
	slot->allocated += got;
	for (size_t i = 0; i < got; i++)
		dispose(slot, pages[i], s);
	if (rnd_below(s, 32) == 0)
		CHECK_OK(page_pool_update_nid(slot->pool, (int)rnd_below(s, 3) - 1));
}

static void replace(struct slot *slot, uint64_t *s)
{
	struct page_pool *pool = slot->pool;
	struct book *book = slot->book;
	uint64_t allocated = slot->allocated;

	slot->pool = NULL;
	show_to_reader(slot, NULL);
	CHECK_OK(pp_napi_exit(slot->napi));
	end_slot_pool(pool, book, allocated);
	while (pp_napi_enter(slot->napi)) /* the other consumer looks whether there is a pool */
		sched_yield();
	CHECK_PTR(slot->pool, NULL);
	slot->pool = new_pool(slot, s);
	slot->allocated = 0;
	pp_fetch_add_relaxed(&pools_made, 1u);
	show_to_reader(slot, slot->pool);
}

static void *consume(void *arg)
{
	uint64_t s = *(uint64_t *)arg;

	for (uint64_t i = 0; i < rounds; i++) {
		struct slot *slot = &slots[rnd_below(&s, SLOTS)];

		if (pp_napi_enter(slot->napi)) {
			CHECK(strstr(page_pool_last_error(), "another thread"));
			sched_yield();
			continue;
		}
		if (slot->pool) {
			poll(slot, &s);
			if (rnd_below(&s, 64) == 0)
				replace(slot, &s);
		}
		CHECK_OK(pp_napi_exit(slot->napi));
	}
	return NULL;
}

/* ---- reader -------------------------------------------------------------------------------------
 */

static uint32_t stop_reading;
static uint64_t reads;

static void *read_all(void *unused)
{
	struct page_pool_stats last[SLOTS];
	struct page_pool_dma_stats last_dma[SLOTS];
	uint32_t id[SLOTS] = {0};

	(void)unused;
	while (!pp_load_relaxed(&stop_reading)) {
		for (int k = 0; k < SLOTS; k++) {
			struct page_pool_dma_stats d = {0};
			struct page_pool_stats s;
			struct page_pool *pool;

			pthread_mutex_lock(&readers_lock);
			pool = slots[k].seen;
			if (pool)
				page_pool_ref(pool);
			pthread_mutex_unlock(&readers_lock);
			if (!pool)
				continue;
			CHECK(page_pool_inflight(pool) >= 0);
			s = stats_of(pool);
			if (page_pool_device(pool))
				d = dma_of(pool);
			if (page_pool_id(pool) == id[k]) {
				/* Destroyed meanwhile: what stragglers do to this one is only
				 * right when they are through. acquire: after the statistics. */
				if (pp_load_acquire(&pool->pending) < PP_PENDING_LIVE / 2)
					s.recycle_released_refcnt = UINT64_MAX;
#define FORWARD(group, name) CHECK(s.group##_##name >= last[k].group##_##name);
				PAGE_POOL_STATS(FORWARD)
#undef FORWARD
#define FORWARD(name) CHECK(d.name >= last_dma[k].name);
				PAGE_POOL_DMA_STATS(FORWARD)
#undef FORWARD
			}
			CHECK(page_pool_inflight(pool) >= 0);
			id[k] = page_pool_id(pool);
			last[k] = s;
			last_dma[k] = d;
			page_pool_unref(pool); /* may be the end of it */
			pp_fetch_add_relaxed(&reads, 1u);
		}
		info_of(shared);
		sched_yield();
	}
	return NULL;
}

/* ---- all of it ----------------------------------------------------------------------------------
 */

static void start_producer(struct producer *p)
{
	CHECK_EQ(pthread_create(&p->thread, NULL, produce, p), 0);
}

/* Watches over the producers: one that has ended is followed by another. */
static void *foreman(void *arg)
{
	struct producer *p = arg;

	for (;;) {
		pthread_join(p->thread, NULL);
		if (p->over)
			return NULL;
		start_producer(p);
	}
}

static void stress(void)
{
	static struct producer producers[MAX_PRODUCERS];
	pthread_t consumer[2], reader, foremen[MAX_PRODUCERS];
	uint64_t s = seed0 * 0x9e3779b97f4a7c15ull | 1, consumer_seed[2];

	shared = make_arena(8 * MIB);
	nr_producers = 1 + (unsigned)(seed0 - 1) % MAX_PRODUCERS;
	for (int k = 0; k < SLOTS; k++) {
		CHECK_OK(pp_napi_create(&slots[k].napi));
		slots[k].pool = new_pool(&slots[k], &s);
		show_to_reader(&slots[k], slots[k].pool);
	}
	CHECK_EQ(pthread_create(&reader, NULL, read_all, NULL), 0);
	for (unsigned i = 0; i < nr_producers; i++) {
		pthread_mutex_init(&mail[i].lock, NULL);
		pthread_cond_init(&mail[i].changed, NULL);
		producers[i].box = &mail[i];
		producers[i].seed = rnd(&s);
		start_producer(&producers[i]);
		CHECK_EQ(pthread_create(&foremen[i], NULL, foreman, &producers[i]), 0);
	}
	for (int i = 0; i < 2; i++) {
		consumer_seed[i] = rnd(&s);
		CHECK_EQ(pthread_create(&consumer[i], NULL, consume, &consumer_seed[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(consumer[i], NULL);

	/* Destroyed while the producers still have pages of theirs. */
	for (int k = 0; k < SLOTS; k++) {
		show_to_reader(&slots[k], NULL);
		end_slot_pool(slots[k].pool, slots[k].book, slots[k].allocated);
		CHECK_OK(pp_napi_destroy(slots[k].napi));
	}
	for (unsigned i = 0; i < nr_producers; i++) {
		pthread_mutex_lock(&mail[i].lock);
		mail[i].closed = true;
		pthread_cond_broadcast(&mail[i].changed);
		pthread_mutex_unlock(&mail[i].lock);
	}
	for (unsigned i = 0; i < nr_producers; i++)
		pthread_join(foremen[i], NULL);
	pp_store_relaxed(&stop_reading, 1u);
	pthread_join(reader, NULL);

	printf("# seed %" PRIu64 ": %u producers, %" PRIu64 " pools, %" PRIu64 " messages, %" PRIu64
	       " of them held, %" PRIu64 " times out of pages, %" PRIu64 " reads, %" PRIu64
	       " pages unmapped, %" PRIu64 " of them by destroy\n",
	       seed0, nr_producers, pools_made, taken_by_producers, held_by_producers, out_of_pages,
	       reads, unmapped_on_leaving + unmapped_by_destroy, unmapped_by_destroy);
	/* Nobody is left, and nothing is. */
	CHECK_EQ(refs_of(shared), 1);
	CHECK_EQ(pages_out(shared), 0);
	CHECK_ARENA(shared);
	pp_provider_put(shared);
	CHECK(pools_made && held_by_producers && unmapped_on_leaving && unmapped_by_destroy);
}

TEST(stress)
{
	const char *seed = getenv("PP_TEST_SEED"), *n = getenv("PP_TEST_ROUNDS");

	seed0 = seed ? strtoull(seed, NULL, 0) : 1;
	rounds = n ? strtoull(n, NULL, 0) : ROUNDS;
	CHECK(seed0 > 0 && rounds > 0);
	stress();
}
