/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tests' harness. A test file is a program: it runs all its tests or those named as arguments,
 * and speaks TAP. A check that fails ends its test, and the program goes on with the next; on a
 * thread that is not the main one it ends the program. PP_TEST_STOP: so does any.
 */
#ifndef PP_TEST_H
#define PP_TEST_H

#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/internal.h"

#if defined(__SANITIZE_ADDRESS__)
#define PP_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PP_TEST_ASAN 1
#endif
#endif

/* PP_TEST_DESIGN: of every pool that does not ask for one. */
static inline unsigned test_design(void)
{
	const char *name = getenv("PP_TEST_DESIGN");
	unsigned design = PP_DESIGN_RING;

	if (name && pp_design_parse(name, &design)) {
		fprintf(stderr, "%s\n", page_pool_last_error());
		exit(2);
	}
	return design;
}
#undef PAGE_POOL_PARAMS_INIT
#define PAGE_POOL_PARAMS_INIT                                                     \
	{                                                                         \
		.size = sizeof(struct page_pool_params), .design = test_design(), \
		.nid = PP_NUMA_NO_NODE                                            \
	}

struct test {
	const char *name;
	void (*fn)(void);
	struct test *next;
};

static struct test *test_first, **test_last = &test_first;
static jmp_buf test_end;
static pthread_t test_main_thread;

#define TEST(n)                                                   \
	static void test_##n(void);                               \
	static struct test entry_##n = {#n, test_##n, NULL};      \
	__attribute__((constructor)) static void enlist_##n(void) \
	{                                                         \
		*test_last = &entry_##n;                          \
		test_last = &entry_##n.next;                      \
	}                                                         \
	static void test_##n(void)

__attribute__((noreturn)) static inline void test_failed(void)
{
	fflush(stdout);
	if (!pthread_equal(pthread_self(), test_main_thread))
		_Exit(1);
	longjmp(test_end, 1);
}

#define CHECK(e)                                                              \
	do {                                                                  \
		if (!(e)) {                                                   \
			printf("# %s:%d: not: %s\n", __FILE__, __LINE__, #e); \
			test_failed();                                        \
		}                                                             \
	} while (0)

#define CHECK_EQ(a, b)                                                                            \
	do {                                                                                      \
		long long a_ = (long long)(a), b_ = (long long)(b);                               \
		if (a_ != b_) {                                                                   \
			printf("# %s:%d: %s is %lld, not %s: %lld\n", __FILE__, __LINE__, #a, a_, \
			       #b, b_);                                                           \
			test_failed();                                                            \
		}                                                                                 \
	} while (0)

#define CHECK_PTR(a, b)                                                                           \
	do {                                                                                      \
		const void *a_ = (a), *b_ = (b);                                                  \
		if (a_ != b_) {                                                                   \
			printf("# %s:%d: %s is %p, not %s: %p\n", __FILE__, __LINE__, #a, a_, #b, \
			       b_);                                                               \
			test_failed();                                                            \
		}                                                                                 \
	} while (0)

/* The call fails with this errno, and its message is, or holds, this. */
#define CHECK_FAILS(call, err, text)                                                            \
	do {                                                                                    \
		int err_ = (call);                                                              \
		if (err_ != -(err) || !strstr(page_pool_last_error(), (text))) {                \
			printf("# %s:%d: %s is %d \"%s\", not %d \"%s\"\n", __FILE__, __LINE__, \
			       #call, err_, page_pool_last_error(), -(err), (text));            \
			test_failed();                                                          \
		}                                                                               \
	} while (0)

#define CHECK_OK(call)                                                                     \
	do {                                                                               \
		int err_ = (call);                                                         \
		if (err_) {                                                                \
			printf("# %s:%d: %s is %d: %s\n", __FILE__, __LINE__, #call, err_, \
			       page_pool_last_error());                                    \
			test_failed();                                                     \
		}                                                                          \
	} while (0)

/* The full tier: the consumer asks, and nobody else is at work. */
#define CHECK_POOL(pool)                                                   \
	do {                                                               \
		const char *why_;                                          \
		if (!page_pool_is_valid((pool), PP_TIER_FULL, &why_)) {    \
			printf("# %s:%d: %s\n", __FILE__, __LINE__, why_); \
			test_failed();                                     \
		}                                                          \
	} while (0)

#define CHECK_ARENA(arena)                                                 \
	do {                                                               \
		const char *why_;                                          \
		if (!pp_arena_is_valid((arena), &why_)) {                  \
			printf("# %s:%d: %s\n", __FILE__, __LINE__, why_); \
			test_failed();                                     \
		}                                                          \
	} while (0)

static inline bool test_run(const struct test *test)
{
	if (setjmp(test_end))
		return false;
	test->fn();
	return true;
}

static inline bool test_wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(name, argv[i]))
			return true;
	return argc < 2;
}

int main(int argc, char **argv)
{
	unsigned n = 0, failed = 0;

	test_main_thread = pthread_self();
	setvbuf(stdout, NULL, _IOLBF, 0); /* a crash loses no line */
	printf("TAP version 13\n");
	for (struct test *test = test_first; test; test = test->next) {
		bool ok;

		if (!test_wanted(test->name, argc, argv))
			continue;
		ok = test_run(test);
		failed += !ok;
		printf("%s %u - %s\n", ok ? "ok" : "not ok", ++n, test->name);
		if (!ok && getenv("PP_TEST_STOP"))
			break;
	}
	printf("1..%u\n", n);
	if (!n)
		fprintf(stderr, "no such test\n");
	return failed || !n;
}

/* ---- what many tests need -------------------------------------------------------------------- */

#define MIB ((size_t)1 << 20)

/* xorshift64*: the same sequence on every machine. */
static inline uint64_t rnd(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dull;
}

static inline uint64_t rnd_below(uint64_t *state, uint64_t n)
{
	return (rnd(state) >> 16) % n;
}

/* What fn returns has to be 0; 77: what it tries is not to be had here. Not with ThreadSanitizer,
 * which takes the fork handlers of a process with threads for a race. */
static inline void in_a_child(int (*fn)(void))
{
	pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (!pid) {
		if (setjmp(test_end))
			_exit(1);
		_exit(fn());
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		printf("# skipped: the system does not do that\n");
	else
		CHECK_EQ(WEXITSTATUS(status), 0);
}

static inline struct pp_provider *make_arena(size_t limit)
{
	struct pp_arena_params params = PP_ARENA_PARAMS_INIT;
	struct pp_provider *arena;

	params.limit = limit;
	CHECK_OK(pp_arena_create(&params, &arena));
	return arena;
}

static inline struct page_pool *make_pool(struct pp_provider *arena, unsigned pool_size,
					  struct pp_napi *napi)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct page_pool *pool;

	params.provider = arena;
	params.pool_size = pool_size;
	params.napi = napi;
	CHECK_OK(page_pool_create(&params, &pool));
	return pool;
}

static inline struct page_pool_stats stats_of(const struct page_pool *pool)
{
	struct page_pool_stats stats = {.size = sizeof(stats)};

	CHECK_OK(page_pool_get_stats(pool, &stats));
	return stats;
}

static inline struct pp_provider_info info_of(struct pp_provider *arena)
{
	struct pp_provider_info info = {.size = sizeof(info)};

	CHECK_OK(pp_provider_get_info(arena, &info));
	return info;
}

static inline size_t pages_out(struct pp_provider *arena)
{
	return info_of(arena).out >> PP_PAGE_SHIFT;
}

/* References to a provider: 1 + the pools that are not freed yet. */
static inline int64_t refs_of(struct pp_provider *provider)
{
	return pp_load_acquire(&provider->refs);
}

static inline void alloc_n(struct page_pool *pool, size_t n, struct pp_page **pages)
{
	for (size_t i = 0; i < n; i++) {
		pages[i] = page_pool_alloc_pages(pool);
		CHECK(pages[i]);
	}
}

static inline void put_n(struct page_pool *pool, size_t n, struct pp_page **pages, bool direct)
{
	for (size_t i = 0; i < n; i++)
		page_pool_put_full_page(pool, pages[i], direct);
}

/* Runs fn(arg) on a thread of its own, and waits. */
static inline void on_thread(void *(*fn)(void *), void *arg)
{
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, fn, arg), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* The end of most tests: all is back, the pool is freed at once, the arena is whole. */
static inline void end_pool(struct page_pool *pool, struct pp_provider *arena)
{
	int64_t refs = refs_of(arena);

	CHECK_POOL(pool);
	page_pool_destroy(pool);
	CHECK_EQ(refs_of(arena), refs - 1);
	CHECK_ARENA(arena);
}

/* The i-th page from the bottom of the cache. */
static inline struct pp_page *cached_page(const struct page_pool *pool, size_t i)
{
	uint32_t link = pool->cache_top;

	if (!pool->list_cache)
		return pool->pages[i];
	for (uint64_t n = pool->cache.pushed - pool->cache.popped; n > i + 1; n--)
		link = pool->all[link - 1].link;
	return &pool->all[link - 1];
}

static inline void end(struct page_pool *pool, struct pp_provider *arena)
{
	end_pool(pool, arena);
	CHECK_EQ(pages_out(arena), 0);
	pp_provider_put(arena);
}

#endif
