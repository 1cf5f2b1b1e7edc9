/* SPDX-License-Identifier: BSD-2-Clause */
/* Destroying pools: at once, with pages out, with references; what is said about stalled ones. */
#include <semaphore.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

TEST(at_once)
{
	struct pp_provider *arena = make_arena(8 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *p[700];

	page_pool_destroy(pool); /* never used */
	CHECK_EQ(refs_of(arena), 1);
	pool = make_pool(arena, 0, NULL);
	alloc_n(pool, 700, p);
	put_n(pool, 300, p, true);
	put_n(pool, 400, p + 300, false);
	end(pool, arena); /* cache and ring were full of pages */
}

TEST(by_the_last_page)
{
	struct pp_provider *arena = make_arena(8 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *p[100];

	alloc_n(pool, 100, p);
	put_n(pool, 50, p, false);
	page_pool_destroy(pool);
	CHECK_EQ(refs_of(arena), 2);
	CHECK_EQ(pages_out(arena), 50); /* cache and ring went at once */
	for (int i = 50; i < 100; i++) {
		CHECK_EQ(refs_of(arena), 2);
		CHECK_PTR(page_pool_get_pp(p[i]), pool);
		/* Whichever way it comes back; a promise is out of date, and harmless. */
		switch (i % 4) {
		case 0:
			page_pool_put_full_page(pool, p[i], false);
			break;
		case 1:
			page_pool_recycle_direct(pool, p[i]);
			break;
		case 2:
			page_pool_put_page_bulk(&p[i], 1);
			break;
		default:
			pp_page_get(p[i]);
			page_pool_put_full_page(pool, p[i], true);
			pp_page_put(p[i]);
		}
		CHECK_EQ(pages_out(arena), 99 - i);
	}
	CHECK_EQ(refs_of(arena), 1);
	CHECK_ARENA(arena);
	pp_provider_put(arena);
}

/* With a napi: whoever is in it is not the consumer any more. */
TEST(napi_means_nothing_after_destroy)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct pp_napi *napi;
	struct page_pool *pool;
	struct pp_page *p[3];

	CHECK_OK(pp_napi_create(&napi));
	pool = make_pool(arena, 0, napi);
	alloc_n(pool, 3, p);
	page_pool_ref(pool);
	page_pool_destroy(pool);
	CHECK_OK(pp_napi_enter(napi));
	page_pool_put_full_page(pool, p[0], false);
	page_pool_put_page_bulk(&p[1], 1);
	CHECK_EQ(stats_of(pool).recycle_cached, 0);
	CHECK_EQ(stats_of(pool).recycle_cache_full, 0);
	CHECK_EQ(stats_of(pool).recycle_ring, 2); /* as the kernel counts them */
	CHECK_EQ(page_pool_inflight(pool), 1);
	CHECK_EQ(pages_out(arena), 1);
	CHECK_OK(pp_napi_exit(napi));
	CHECK_OK(pp_napi_destroy(napi));
	page_pool_put_full_page(pool, p[2], false);
	CHECK_EQ(page_pool_inflight(pool), 0);
	CHECK_EQ(refs_of(arena), 2);
	page_pool_unref(pool);
	CHECK_EQ(refs_of(arena), 1);
	pp_provider_put(arena);
}

TEST(reference_keeps_the_figures)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *p[10];
	uint32_t id = page_pool_id(pool);
	struct page_pool_stats s;

	alloc_n(pool, 10, p);
	for (int i = 0; i < 1000; i++)
		page_pool_ref(pool);
	CHECK_EQ(page_pool_inflight(pool), 64);
	put_n(pool, 8, p, true);
	page_pool_destroy(pool);
	CHECK_EQ(page_pool_inflight(pool), 2);
	CHECK_EQ(page_pool_id(pool), id);
	s = stats_of(pool);
	CHECK_EQ(s.recycle_cached, 8);
	CHECK_EQ(s.alloc_fast, 9); /* the drained ones were not allocated */
	pp_page_get(p[8]);
	page_pool_put_full_page(pool, p[8], true);
	CHECK_EQ(stats_of(pool).recycle_released_refcnt, 1);
	CHECK_EQ(page_pool_inflight(pool), 1);
	pp_page_put(p[8]);
	for (int i = 0; i < 999; i++)
		page_pool_unref(pool);
	page_pool_put_full_page(pool, p[9], false);
	CHECK_EQ(page_pool_inflight(pool), 0);
	page_pool_unref(pool);
	CHECK_EQ(refs_of(arena), 1);
	pp_provider_put(arena);
	/* Nothing out, but a reference. */
	arena = make_arena(4 * MIB);
	pool = make_pool(arena, 0, NULL);
	page_pool_ref(pool);
	page_pool_destroy(pool);
	CHECK_EQ(page_pool_inflight(pool), 0);
	CHECK_EQ(refs_of(arena), 2);
	page_pool_unref(pool);
	CHECK_EQ(refs_of(arena), 1);
	pp_provider_put(arena);
}

/* ---- stragglers on other threads ---------------------------------------------------------------
 */

struct straggler {
	struct page_pool *pool;
	struct pp_page *pages[16];
	pthread_barrier_t *start;
	int how;
};

static void *straggle(void *arg)
{
	struct straggler *s = arg;

	pthread_barrier_wait(s->start);
	switch (s->how) {
	case 0:
		page_pool_put_page_bulk(s->pages, 16);
		break;
	case 1:
		put_n(s->pool, 16, s->pages, false);
		break;
	default:
		for (int i = 0; i < 16; i++)
			pp_page_get(s->pages[i]);
		put_n(s->pool, 16, s->pages, false);
		for (int i = 0; i < 16; i++)
			pp_page_put(s->pages[i]);
	}
	return NULL;
}

/* Held pages are counted by what pending loses, and all others elsewhere: before destroy, at it and
 * after it the two do not mix. */
TEST(held_pages_are_told_from_stragglers)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 4, NULL);
	struct pp_page *p[40];
	struct page_pool_stats s;

	page_pool_ref(pool);
	alloc_n(pool, 40, p);
	for (int i = 0; i < 20; i++)
		pp_page_get(p[i]);
	put_n(pool, 10, p, false);     /* held, outside of the consumer's context */
	put_n(pool, 5, p + 10, true);  /* held, in it */
	put_n(pool, 8, p + 20, false); /* 4 fit into the ring, 4 do not */
	s = stats_of(pool);
	CHECK_EQ(s.recycle_released_refcnt, 15);
	CHECK_EQ(s.recycle_ring, 4);
	CHECK_EQ(s.recycle_ring_full, 4);
	CHECK_EQ(page_pool_inflight(pool), 64 - 15 - 4);

	page_pool_destroy(pool);
	s = stats_of(pool);
	CHECK_EQ(s.recycle_released_refcnt, 15);
	CHECK_EQ(page_pool_inflight(pool), 17);

	put_n(pool, 5, p + 15, false); /* held */
	put_n(pool, 12, p + 28, true); /* stragglers */
	s = stats_of(pool);
	CHECK_EQ(s.recycle_released_refcnt, 20);
	CHECK_EQ(s.recycle_ring, 16);
	CHECK_EQ(s.recycle_ring_full, 4);
	CHECK_EQ(page_pool_inflight(pool), 0);
	page_pool_unref(pool);
	for (int i = 0; i < 20; i++)
		pp_page_put(p[i]);
	CHECK_EQ(pages_out(arena), 0);
	pp_provider_put(arena);
}

/* All at the same moment: the destroy, and the last pages of three threads. */
TEST(while_pages_come_back)
{
	for (int round = 0; round < 300; round++) {
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool = make_pool(arena, round % 2 ? 8 : 0, NULL);
		struct straggler s[3];
		pthread_barrier_t start;
		pthread_t thread[3];

		pthread_barrier_init(&start, NULL, 4);
		for (int i = 0; i < 3; i++) {
			s[i].pool = pool;
			s[i].start = &start;
			s[i].how = (i + round) % 3;
			alloc_n(pool, 16, s[i].pages);
			CHECK_EQ(pthread_create(&thread[i], NULL, straggle, &s[i]), 0);
		}
		pthread_barrier_wait(&start);
		page_pool_destroy(pool);
		if (round % 3 == 0)
			pp_provider_put(arena); /* and so does the arena's last reference */
		for (int i = 0; i < 3; i++)
			pthread_join(thread[i], NULL);
		pthread_barrier_destroy(&start);
		if (round % 3 == 0)
			continue;
		CHECK_EQ(refs_of(arena), 1);
		CHECK_EQ(pages_out(arena), 0);
		CHECK_ARENA(arena);
		pp_provider_put(arena);
	}
}

/* ---- what is said ------------------------------------------------------------------------------
 */

struct heard {
	pthread_mutex_t lock;
	sem_t one;
	char text[256];
	unsigned n, wanted;
	uint32_t only; /* about this pool */
};

static struct heard heard = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void hear(void *ctx, const char *text)
{
	struct heard *h = ctx;
	char id[32];

	snprintf(id, sizeof(id), ": id %u,", h->only);
	if (!strstr(text, id))
		return;
	pthread_mutex_lock(&h->lock);
	snprintf(h->text, sizeof(h->text), "%s", text);
	if (++h->n <= h->wanted)
		sem_post(&h->one);
	pthread_mutex_unlock(&h->lock);
}

static struct page_pool *stalling_pool(struct pp_provider *arena, unsigned retry, unsigned warn)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct page_pool *pool;

	params.provider = arena;
	params.retry_ms = retry;
	params.warn_ms = warn;
	CHECK_OK(page_pool_create(&params, &pool));
	heard.n = 0;
	heard.wanted = 3;
	heard.only = page_pool_id(pool);
	sem_init(&heard.one, 0, 0);
	page_pool_set_log(hear, &heard);
	return pool;
}

TEST(stalled_pool_says_so)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = stalling_pool(arena, 1, 1);
	struct pp_page *p[2];
	char want[256];

	alloc_n(pool, 2, p);
	page_pool_destroy(pool);
	for (int i = 0; i < 3; i++)
		sem_wait(&heard.one);
	page_pool_set_log(NULL, NULL); /* from here on nobody writes to heard */
	/* "0 sec" unless this machine is very slow: the number is the only part left open. */
	snprintf(want, sizeof(want),
		 "page_pool_release_retry() stalled pool shutdown: id %u, 2 inflight ", heard.only);
	CHECK(!strncmp(heard.text, want, strlen(want)));
	CHECK_EQ(strspn(heard.text + strlen(want), "0123456789"),
		 strlen(heard.text) - strlen(want) - strlen(" sec"));
	CHECK(!strcmp(heard.text + strlen(heard.text) - 4, " sec"));
	put_n(pool, 2, p, false);
	CHECK_EQ(refs_of(arena), 1);
	pp_provider_put(arena);
}

/*
 * The seconds are those since destroy. The clock is turned in the user's function: it runs on the
 * janitor's thread, the only one that looks at the start.
 */
struct clock {
	struct page_pool *pool;
	int64_t turned_ns;
	unsigned n;
	char text[256];
	int64_t heard_ns;
	sem_t second;
};

static void turn_the_clock(void *ctx, const char *text)
{
	struct clock *c = ctx;
	char id[32];

	snprintf(id, sizeof(id), ": id %u,", page_pool_id(c->pool));
	if (c->n == 2 || !strstr(text, id))
		return;
	if (++c->n == 1) {
		c->turned_ns = pp_sys_now_ns();
		c->pool->destroyed_ns = c->turned_ns - (int64_t)60 * 1000000000;
		return;
	}
	c->heard_ns = pp_sys_now_ns();
	snprintf(c->text, sizeof(c->text), "%s", text);
	sem_post(&c->second);
}

TEST(stalled_for_sixty_seconds)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = stalling_pool(arena, 1, 1);
	struct clock c = {.pool = pool};
	struct pp_page *page = page_pool_alloc_pages(pool);
	char want[256];
	long seconds;

	sem_init(&c.second, 0, 0);
	page_pool_set_log(turn_the_clock, &c);
	page_pool_destroy(pool);
	sem_wait(&c.second);
	page_pool_set_log(NULL, NULL);
	/* 60, unless this machine was stopped meanwhile. */
	seconds = strtol(strstr(c.text, "inflight ") + strlen("inflight "), NULL, 10);
	CHECK(seconds >= 60 && seconds <= 60 + (c.heard_ns - c.turned_ns) / 1000000000);
	snprintf(want, sizeof(want),
		 "page_pool_release_retry() stalled pool shutdown: id %u, 1 inflight %ld sec",
		 page_pool_id(pool), seconds);
	CHECK(!strcmp(c.text, want));
	page_pool_put_full_page(pool, page, false);
	CHECK_EQ(refs_of(arena), 1);
	pp_provider_put(arena);
}

/* A pool kept by references alone has nothing to say. Another one in the same list has, so by the
 * time that was heard a few times the quiet one was looked at as often. */
struct two {
	char quiet_id[32], loud_id[32];
	unsigned quiet, loud;
	sem_t enough;
};

static void hear_two(void *ctx, const char *text)
{
	struct two *t = ctx;

	t->quiet += strstr(text, t->quiet_id) != NULL;
	t->loud += strstr(text, t->loud_id) != NULL;
	if (t->loud == 5)
		sem_post(&t->enough);
}

TEST(reference_is_not_a_stall)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *quiet = stalling_pool(arena, 1, 1), *loud = stalling_pool(arena, 1, 1);
	struct pp_page *p[2] = {page_pool_alloc_pages(quiet), page_pool_alloc_pages(loud)};
	struct two t = {.quiet = 0};

	sem_init(&t.enough, 0, 0);
	snprintf(t.quiet_id, sizeof(t.quiet_id), ": id %u, 0 inflight", page_pool_id(quiet));
	snprintf(t.loud_id, sizeof(t.loud_id), ": id %u, 1 inflight", page_pool_id(loud));
	page_pool_set_log(hear_two, &t);
	page_pool_ref(quiet);
	page_pool_destroy(quiet);
	page_pool_put_full_page(quiet, p[0], false); /* in the list, with nothing out */
	page_pool_destroy(loud);
	sem_wait(&t.enough);
	page_pool_set_log(NULL, NULL);
	CHECK_EQ(t.quiet, 0);
	page_pool_put_full_page(loud, p[1], false);
	page_pool_unref(quiet);
	CHECK_EQ(refs_of(arena), 1);
	pp_provider_put(arena);
}

/* The user's function may give back the last page: the pool goes while the janitor speaks of it. */
struct giver {
	struct page_pool *pool;
	struct pp_page *page;
	sem_t done;
};

static void give_back(void *ctx, const char *text)
{
	struct giver *g = ctx;

	(void)text;
	if (!g->page)
		return;
	page_pool_put_full_page(g->pool, g->page, false);
	g->page = NULL;
	sem_post(&g->done);
}

TEST(page_given_back_while_the_stall_is_told)
{
	for (int i = 0; i < 5; i++) {
		struct pp_provider *arena = make_arena(4 * MIB);
		struct page_pool *pool = stalling_pool(arena, 1, 1);
		struct giver g = {.pool = pool, .page = page_pool_alloc_pages(pool)};

		sem_init(&g.done, 0, 0);
		page_pool_set_log(give_back, &g);
		page_pool_destroy(pool);
		sem_wait(&g.done);
		page_pool_set_log(NULL, NULL);
		CHECK_EQ(refs_of(arena), 1);
		pp_provider_put(arena);
	}
}

/* When page_pool_set_log() returns, the old function is not running. */
struct slow {
	uint32_t inside;
	sem_t entered;
};

static void slow_log(void *ctx, const char *text)
{
	struct slow *s = ctx;

	(void)text;
	pp_store_release(&s->inside, 1u);
	sem_post(&s->entered);
	nanosleep(&(struct timespec){.tv_nsec = 20 * 1000000}, NULL);
	pp_store_release(&s->inside, 0u);
}

static void *log_once(void *arg)
{
	pp_log("%s", "a word");
	return arg;
}

TEST(set_log_waits_for_the_old_one)
{
	struct slow s = {0};
	pthread_t thread;

	sem_init(&s.entered, 0, 0);
	page_pool_set_log(slow_log, &s);
	CHECK_EQ(pthread_create(&thread, NULL, log_once, NULL), 0);
	sem_wait(&s.entered);
	page_pool_set_log(NULL, NULL);
	CHECK_EQ(pp_load_acquire(&s.inside), 0);
	pthread_join(thread, NULL);
}

/* Without a function: one line on standard error. */
TEST(log_goes_to_standard_error)
{
	int out[2], saved = dup(2);
	char buf[300] = "";
	ssize_t n;

	CHECK_EQ(pipe(out), 0);
	dup2(out[1], 2);
	pp_log("pool %d, %s", 7, "says");
	dup2(saved, 2);
	close(saved);
	close(out[1]);
	n = read(out[0], buf, sizeof(buf) - 1);
	close(out[0]);
	CHECK_EQ(n, 13);
	CHECK(!strcmp(buf, "pool 7, says\n"));
}

/* Many stalled at once, ending in any order: the janitor's list. */
TEST(many_destroyed_pools)
{
	struct pp_provider *arena = make_arena(64 * MIB);
	struct page_pool *pool[100];
	struct pp_page *page[100];

	for (int i = 0; i < 100; i++) {
		pool[i] = make_pool(arena, 1, NULL);
		page[i] = page_pool_alloc_pages(pool[i]);
		CHECK(page[i]);
		page_pool_destroy(pool[i]);
	}
	CHECK_EQ(refs_of(arena), 101);
	CHECK_EQ(pages_out(arena), 100);
	for (int i = 0; i < 100; i++) {
		int k = i * 37 % 100;

		page_pool_put_full_page(pool[k], page[k], i % 2);
		CHECK_EQ(refs_of(arena), 100 - i);
	}
	CHECK_ARENA(arena);
	pp_provider_put(arena);
}
