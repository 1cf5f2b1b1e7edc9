/* SPDX-License-Identifier: BSD-2-Clause */
/* fork: the child leaves the parent's objects alone and makes its own, whatever the parent's
 * threads were doing at that moment. */
#include <sched.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/magazine.h"
#include "test.h"

/* In a child: a failed check ends the process with 1. */
static void *use_everything(void *arg)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct pp_napi *napi;
	struct page_pool *pool;
	static struct pp_page *p[1024];

	CHECK_OK(pp_napi_create(&napi));
	pool = make_pool(arena, 16, napi);
	CHECK_OK(pp_napi_enter(napi));
	alloc_n(pool, 1024, p); /* all of it, then back through magazines */
	put_n(pool, 1024, p, false);
	CHECK_OK(pp_napi_exit(napi));
	alloc_n(pool, 300, p);
	put_n(pool, 299, p, false);
	page_pool_destroy(pool); /* needs a janitor of the child's own */
	page_pool_put_full_page(pool, p[299], false);
	CHECK_EQ(refs_of(arena), 1);
	CHECK_EQ(pages_out(arena), 0);
	CHECK_ARENA(arena);
	pp_provider_put(arena);
	CHECK_OK(pp_napi_destroy(napi));
	return arg;
}

static sem_t heard;

static void hear(void *ctx, const char *text)
{
	(void)ctx;
	if (strstr(text, "1 inflight"))
		sem_post(&heard);
}

static void stall_and_hear(void)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct page_pool *pool;
	struct pp_page *page;

	sem_init(&heard, 0, 0);
	page_pool_set_log(hear, NULL);
	params.retry_ms = params.warn_ms = 1;
	CHECK_OK(page_pool_create(&params, &pool));
	page = page_pool_alloc_pages(pool);
	page_pool_destroy(pool);
	sem_wait(&heard);
	page_pool_put_full_page(pool, page, false);
	page_pool_set_log(NULL, NULL);
}

static void in_child(void)
{
	/* Before a thread is made: only this one survived the fork. */
	use_everything(NULL);
	on_thread(use_everything, NULL);
	stall_and_hear();
}

static int forked(void)
{
	int status;
	pid_t pid;

#ifdef PP_TEST_ASAN
	/* A janitor that begins or ends at this moment may have one of AddressSanitizer's locks,
	 * which do not survive it. */
	nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
#endif
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		jmp_buf parents;

		memcpy(&parents, &test_end, sizeof(parents));
		if (setjmp(test_end))
			_exit(1);
		alarm(20); /* a child that blocks is the failure looked for */
		in_child();
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	return status;
}

TEST(child_makes_its_own)
{
	CHECK_EQ(forked(), 0);
	use_everything(NULL);
	CHECK_EQ(forked(), 0);
	use_everything(NULL); /* the parent goes on */
}

/* With magazines, a janitor and a stalled pool that are the parent's. */
TEST(child_of_a_parent_with_a_stalled_pool)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *page = page_pool_alloc_pages(pool);

	page_pool_destroy(pool);
	CHECK_EQ(forked(), 0);
	CHECK_EQ(refs_of(arena), 2);
	page_pool_put_full_page(pool, page, false);
	CHECK_EQ(refs_of(arena), 1);
	pp_provider_put(arena);
}

/* A thread that is stuck with the magazines' lock at the moment of the fork. */
static void *drain(void *arg)
{
	CHECK(pp_magazines_drain(arg, false));
	return NULL;
}

TEST(child_while_the_magazines_are_locked)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct pp_magazine *m;
	struct pp_page *page;
	pthread_t thread;
	int status;

	/* Something to be had: an empty one is not locked. */
	CHECK_EQ(arena->ops->alloc(arena, 0, 0, 1, &page), 1);
	pp_page_put(page);
	m = pp_magazine_enter((struct pp_arena *)arena);
	if (!m) {
		printf("# skipped: no membarrier(2), no magazines\n");
		pp_provider_put(arena);
		return;
	}
	/* This thread is inside: the other waits for it to leave, under the lock. */
	CHECK_EQ(pthread_create(&thread, NULL, drain, arena), 0);
	while (!pp_load_relaxed(&m->lock.wanted))
		sched_yield();
	status = forked();
	pp_biased_leave(&m->lock);
	pthread_join(thread, NULL);
	CHECK_EQ(status, 0);
	pp_provider_put(arena);
}

/* Threads that are in the library at every moment, with its locks held. */
static uint32_t stop;

static void *be_busy(void *arg)
{
	struct pp_provider *arena = arg;
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;

	params.provider = arena;
	while (!pp_load_relaxed(&stop)) {
		struct page_pool *pool;
		struct pp_page *page;

		CHECK_OK(page_pool_create(&params, &pool));
		page = page_pool_alloc_pages(pool);
		page_pool_destroy(pool);
		page_pool_put_full_page(pool, page, false);
		info_of(arena);
	}
	return NULL;
}

TEST(child_of_busy_threads)
{
	struct pp_provider *arena;
	pthread_t thread[2];

#ifdef PP_TEST_ASAN
	/* AddressSanitizer's own locks do not survive a fork amid busy threads. */
	printf("# skipped: built with AddressSanitizer\n");
	return;
#endif
	arena = make_arena(4 * MIB);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, be_busy, arena), 0);
	for (int i = 0; i < 20; i++)
		CHECK_EQ(forked(), 0);
	pp_store_relaxed(&stop, 1u);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	CHECK_EQ(refs_of(arena), 1);
	pp_provider_put(arena);
}
