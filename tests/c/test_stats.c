/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All eleven statistics, in flight and the identity of pages against a tally kept independently:
 * random sequences of everything the API has, over pools of all kinds. The model below is written
 * from the specification, in the plainest way, not from the core.
 */
#include "test.h"

#define MAX_RING 64
#define MAX_OUT 400

struct entry {
	struct pp_page *page; /* NULL: came with a bulk and was not seen yet */
	int nid;
};

struct model {
	unsigned order, ring_size;
	int nid;
	bool entered;
	size_t total; /* pages that the arena has, of the pool's order */
	/* the cache: a stack; the ring: a queue of slots that are freed in batches */
	struct entry cache[PP_ALLOC_CACHE_SIZE], ring[MAX_RING];
	size_t cached, in_ring, not_cleared, slots_consumed;
	uint64_t consumed;
	/* out: put will end them; held: they left the pool, somebody else has them */
	struct pp_page *out[MAX_OUT], *held[MAX_OUT];
	size_t nr_out, nr_held, on_the_way;
	struct page_pool_stats stats;
	uint64_t allocated, put_alone, failed, bulk_overflow;
};

static size_t in_pool(const struct model *m)
{
	return m->cached + m->in_ring + m->nr_out + m->on_the_way;
}

/* Where do an allocation's pages come from, and which is it? */
static bool model_alloc(struct model *m, struct entry *ret)
{
	size_t room;

	if (m->cached) {
		*ret = m->cache[--m->cached];
		m->stats.alloc_fast++;
		m->allocated++;
		return true;
	}
	if (!m->in_ring) {
		m->stats.alloc_empty++;
	} else {
		while (m->in_ring && m->cached < 64) {
			struct entry e = m->ring[0];

			memmove(m->ring, m->ring + 1, --m->in_ring * sizeof(e));
			m->consumed++;
			m->not_cleared++;
			if (m->not_cleared == (m->ring_size < 32 ? 1 : 16) ||
			    m->consumed % m->ring_size == 0)
				m->not_cleared = 0;
			if (m->nid != PP_NUMA_NO_NODE && e.nid != m->nid) {
				m->stats.alloc_waive++;
				break;
			}
			m->cache[m->cached++] = e;
		}
		if (m->cached) {
			*ret = m->cache[--m->cached];
			m->stats.alloc_refill++;
			m->allocated++;
			return true;
		}
	}
	room = m->total - in_pool(m) - m->nr_held;
	if (!room) {
		m->failed++;
		return false;
	}
	if (m->order) {
		m->stats.alloc_slow_high_order++;
		room = 1;
	} else {
		m->stats.alloc_slow++;
		if (room > 64)
			room = 64;
	}
	for (size_t i = 0; i < room; i++)
		m->cache[m->cached++] =
			(struct entry){NULL, m->nid == PP_NUMA_NO_NODE ? 0 : m->nid};
	*ret = m->cache[--m->cached];
	m->allocated++;
	return true;
}

static bool model_put_cache(struct model *m, struct pp_page *page)
{
	if (m->cached == PP_ALLOC_CACHE_SIZE) {
		m->stats.recycle_cache_full++;
		return false;
	}
	m->cache[m->cached++] = (struct entry){page, pp_page_nid(page)};
	m->stats.recycle_cached++;
	return true;
}

static void model_put_ring(struct model *m, struct pp_page **pages, size_t n)
{
	size_t i = 0;

	for (; i < n && m->in_ring + m->not_cleared < m->ring_size; i++)
		m->ring[m->in_ring++] = (struct entry){pages[i], pp_page_nid(pages[i])};
	m->stats.recycle_ring += i;
	if (i < n) {
		m->stats.recycle_ring_full++;
		m->bulk_overflow += n - i - 1;
	}
}

/* ---- both at once ------------------------------------------------------------------------------
 */

struct run {
	struct model m;
	struct page_pool *pool;
	struct pp_provider *arena;
	struct pp_napi *napi;
	uint64_t seed;
};

static void compare(struct run *r)
{
	const struct model *m = &r->m;
	struct page_pool_stats s = stats_of(r->pool);
	uint64_t puts;

#define SAME(group, name) CHECK_EQ(s.group##_##name, m->stats.group##_##name);
	PAGE_POOL_STATS(SAME)
#undef SAME
	CHECK_EQ(page_pool_inflight(r->pool), in_pool(m));
	CHECK_EQ(info_of(r->arena).out, (uint64_t)(in_pool(m) + m->nr_held)
						<< (PP_PAGE_SHIFT + m->order));
	CHECK_EQ(info_of(r->arena).failed, m->failed);
	/* The sums that the specification promises. */
	CHECK_EQ(s.alloc_fast + s.alloc_refill + s.alloc_slow + s.alloc_slow_high_order,
		 m->allocated);
	puts = s.recycle_cached + s.recycle_ring + s.recycle_ring_full + m->bulk_overflow;
	CHECK_EQ(puts, m->put_alone);
	CHECK(s.alloc_slow <= s.alloc_empty + s.alloc_waive);
	if (!m->failed && !m->order)
		CHECK(s.alloc_slow <= s.alloc_empty + s.alloc_waive &&
		      s.alloc_slow >= s.alloc_empty);
	CHECK_POOL(r->pool);
}

static void alloc_one(struct run *r, struct pp_page *page, const struct entry *e, bool expected)
{
	struct model *m = &r->m;

	CHECK_EQ(page != NULL, expected);
	if (!page)
		return;
	if (e->page)
		CHECK_PTR(page, e->page);
	CHECK_EQ(pp_page_nid(page), e->nid);
	CHECK_PTR(page_pool_get_pp(page), r->pool);
	CHECK_EQ(pp_page_ref_count(page), 1);
	CHECK_EQ(pp_page_order(page), m->order);
	CHECK_PTR(pp_provider_page(r->arena, pp_page_address(page)), page);
	for (size_t i = 0; i < m->nr_out; i++)
		CHECK(m->out[i] != page); /* never handed out twice */
	for (size_t i = 0; i < m->nr_held; i++)
		CHECK(m->held[i] != page);
	m->out[m->nr_out++] = page;
}

static struct pp_page *take_out(struct run *r)
{
	struct model *m = &r->m;
	size_t k = rnd_below(&r->seed, m->nr_out);
	struct pp_page *page = m->out[k];

	m->out[k] = m->out[--m->nr_out];
	return page;
}

static void step_alloc(struct run *r)
{
	struct model *m = &r->m;
	size_t n = 1 + rnd_below(&r->seed, 90);
	struct entry e = {NULL, 0};

	for (; n && m->nr_out < MAX_OUT; n--) {
		bool expected = model_alloc(m, &e);

		alloc_one(r, page_pool_alloc_pages(r->pool), &e, expected);
		if (!expected)
			break;
	}
}

static void step_alloc_bulk(struct run *r)
{
	struct model *m = &r->m;
	size_t n = rnd_below(&r->seed, 100), got, k = 0;
	struct pp_page *pages[100];
	struct entry e[100];

	if (n > MAX_OUT - m->nr_out)
		n = MAX_OUT - m->nr_out;
	got = page_pool_alloc_pages_bulk(r->pool, n, pages);
	while (k < n && model_alloc(m, &e[k])) {
		m->on_the_way++;
		k++;
	}
	m->on_the_way = 0;
	CHECK_EQ(got, k);
	for (size_t i = 0; i < got; i++)
		alloc_one(r, pages[i], &e[i], true);
}

static void step_put(struct run *r)
{
	struct model *m = &r->m;
	size_t n = 1 + rnd_below(&r->seed, 70);

	for (; n && m->nr_out; n--) {
		struct pp_page *page = take_out(r);
		bool direct = rnd(&r->seed) & 8192;
		bool hold = rnd_below(&r->seed, 16) == 0 && m->nr_held < MAX_OUT;

		if (hold) {
			pp_page_get(page);
			m->held[m->nr_held++] = page;
			m->stats.recycle_released_refcnt++;
		} else {
			m->put_alone++;
			if (!((direct || m->entered) && model_put_cache(m, page)))
				model_put_ring(m, &page, 1);
		}
		page_pool_put_page(r->pool, page, (unsigned)rnd(&r->seed), direct);
		if (hold)
			CHECK_PTR(page_pool_get_pp(page), NULL);
	}
}

static void step_put_bulk(struct run *r)
{
	struct model *m = &r->m;
	size_t n = rnd_below(&r->seed, 160), nr = 0, in = 0;
	struct pp_page *pages[160], *ring[64];

	for (; n && m->nr_out; n--) {
		struct pp_page *page = pages[nr++] = take_out(r);

		if (rnd_below(&r->seed, 16) == 0 && m->nr_held < MAX_OUT) {
			pp_page_get(page);
			m->held[m->nr_held++] = page;
			m->stats.recycle_released_refcnt++;
			continue;
		}
		m->put_alone++;
		if (m->entered && model_put_cache(m, page))
			continue;
		ring[in++] = page;
		if (in == 64) {
			model_put_ring(m, ring, in);
			in = 0;
		}
	}
	if (in)
		model_put_ring(m, ring, in);
	page_pool_put_page_bulk(pages, nr);
}

static void step(struct run *r)
{
	struct model *m = &r->m;

	switch (rnd_below(&r->seed, 16)) {
	case 0 ... 3:
		step_alloc(r);
		break;
	case 4 ... 5:
		step_alloc_bulk(r);
		break;
	case 6 ... 9:
		step_put(r);
		break;
	case 10 ... 11:
		step_put_bulk(r);
		break;
	case 12: /* the others let go of some */
		for (size_t n = rnd_below(&r->seed, 9); n && m->nr_held; n--)
			pp_page_put(m->held[--m->nr_held]);
		break;
	case 13:
		if (m->entered)
			CHECK_OK(pp_napi_exit(r->napi));
		else
			CHECK_OK(pp_napi_enter(r->napi));
		m->entered = !m->entered;
		break;
	case 14:
		if (rnd_below(&r->seed, 4))
			break;
		m->nid = (int)rnd_below(&r->seed, 3) - 1;
		m->cached = 0;
		CHECK_OK(page_pool_update_nid(r->pool, m->nid));
		break;
	default: /* a reader */
		compare(r);
	}
}

static void run(uint64_t seed)
{
	static const unsigned sizes[] = {1, 2, 7, 16, 31, 32, 33, 40, 64};
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct run *r = calloc(1, sizeof(*r));
	struct model *m = &r->m;

	r->seed = seed * 0x9e3779b97f4a7c15ull | 1;
	m->order = rnd_below(&r->seed, 3) ? 0 : 1 + (unsigned)rnd_below(&r->seed, 6);
	m->ring_size = sizes[rnd_below(&r->seed, PP_ARRAY_SIZE(sizes))];
	m->nid = PP_NUMA_NO_NODE;
	/* Every other run has few enough pages to run out of them. */
	m->total = ((size_t)1024 >> m->order) * (1 + (seed & 1));
	r->arena = make_arena((m->total << m->order) * PP_PAGE_SIZE);
	CHECK_OK(pp_napi_create(&r->napi));
	params.design = PP_DESIGN_RING; /* of which the tally is; others: tests/oracle */
	params.order = m->order;
	params.pool_size = m->ring_size;
	params.provider = r->arena;
	params.napi = r->napi;
	CHECK_OK(page_pool_create(&params, &r->pool));
	for (int i = 0; i < 300; i++)
		step(r);
	compare(r);
	CHECK_ARENA(r->arena);

	if (m->entered)
		CHECK_OK(pp_napi_exit(r->napi));
	while (m->nr_held)
		pp_page_put(m->held[--m->nr_held]);
	if (seed & 2) { /* all pages back first, or the pool destroyed first */
		page_pool_ref(r->pool);
		page_pool_destroy(r->pool);
		CHECK_EQ(page_pool_inflight(r->pool), m->nr_out);
		CHECK_EQ(info_of(r->arena).out, (uint64_t)m->nr_out << (PP_PAGE_SHIFT + m->order));
	}
	while (m->nr_out)
		page_pool_put_full_page(r->pool, take_out(r), false);
	if (seed & 2) {
		CHECK_EQ(page_pool_inflight(r->pool), 0);
		page_pool_unref(r->pool);
		CHECK_EQ(refs_of(r->arena), 1);
		CHECK_EQ(pages_out(r->arena), 0);
		CHECK_ARENA(r->arena);
		pp_provider_put(r->arena);
	} else {
		end(r->pool, r->arena);
	}
	CHECK_OK(pp_napi_destroy(r->napi));
	free(r);
}

#ifdef PP_TSAN
#define SEEDS 40 /* one thread: it finds nothing here, and is slow */
#else
#define SEEDS 300
#endif

TEST(random_sequences_against_a_tally)
{
	const char *only = getenv("PP_TEST_SEED");

	if (only) {
		run(strtoull(only, NULL, 0));
		return;
	}
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		printf("# seed %" PRIu64 "\n", seed);
		run(seed);
	}
}

/* slow == empty + waive as long as no refill ends by a waive with pages in hand, and none fails. */
TEST(slow_is_empty_plus_waive)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *p[200];
	struct page_pool_stats s;

	for (int round = 0; round < 2; round++) {
		CHECK_OK(page_pool_update_nid(pool, round));
		alloc_n(pool, 200, p);
		put_n(pool, 200, p, false);
	}
	s = stats_of(pool);
	CHECK_EQ(s.alloc_waive, 4);
	CHECK_EQ(s.alloc_slow, s.alloc_empty + s.alloc_waive);
	end(pool, arena);
}

/* Pages come in and leave all the time, and there is never more than one: a reader that is not
 * careful with the order sees a page leave that it did not see come. */
struct traffic {
	struct page_pool *pool;
	uint32_t done;
	uint64_t reads;
	bool elsewhere; /* they leave on another count than the consumer's */
};

static void *come_and_go(void *arg)
{
	struct traffic *t = arg;

	/* At least as long as it takes the reader to come to it. */
	for (int i = 0; i < 100000 || pp_load_relaxed(&t->reads) < 1000; i++) {
		struct pp_page *page = page_pool_alloc_pages(t->pool);

		pp_page_get(page);
		page_pool_put_full_page(t->pool, page, !t->elsewhere);
		pp_page_put(page);
	}
	pp_store_release(&t->done, 1u);
	return NULL;
}

TEST(in_flight_is_never_negative)
{
	for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
		struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
		struct pp_provider *arena = make_arena(4 * MIB);
		struct traffic t = {.elsewhere = elsewhere};
		pthread_t thread;

		params.provider = arena;
		params.order = 1;
		CHECK_OK(page_pool_create(&params, &t.pool));
		CHECK_EQ(pthread_create(&thread, NULL, come_and_go, &t), 0);
		for (; !pp_load_acquire(&t.done); pp_inc_single_writer(&t.reads))
			CHECK(page_pool_inflight(t.pool) >= 0);
		pthread_join(thread, NULL);
		CHECK_EQ(page_pool_inflight(t.pool), 0);
		end(t.pool, arena);
	}
}

/* A reader while a consumer was stopped in the middle of a change gets an answer in the end. */
TEST(reader_gives_up_on_a_stopped_consumer)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *p[2];

	alloc_n(pool, 2, p);
	pp_stats_begin(pool);
	CHECK_EQ(stats_of(pool).alloc_fast, 1);
	pp_stats_end(pool);
	put_n(pool, 2, p, true);
	end(pool, arena);
}
