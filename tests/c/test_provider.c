/* SPDX-License-Identifier: BSD-2-Clause */
/* A provider of the caller's own: its memory, its limit, what it does wrongly, and its end. */
#include "core/magazine.h"
#include "test.h"

#include <sched.h>
#include <semaphore.h>
#include <unistd.h>

#define CHECK_PROVIDER(p)                                                  \
	do {                                                               \
		const char *why_;                                          \
		if (!pp_user_provider_is_valid((p), &why_)) {              \
			printf("# %s:%d: %s\n", __FILE__, __LINE__, why_); \
			test_failed();                                     \
		}                                                          \
	} while (0)

/* ---- a source of memory, that keeps books -----------------------------------------------------
 */

struct source {
	pthread_mutex_t lock;
	size_t out, most; /* bytes: given and not back; the most that ever were */
	unsigned allocs, gives, frees, released;
	unsigned order;
	int nid;
	size_t asked; /* of the last call */
	/* What is to be done to the memory of a call before it is handed over, and with the number
	 * that is returned. NULL: nothing. */
	size_t (*spoil)(struct source *s, unsigned order, size_t n, void **memory);
	void *stray; /* given though it is no block */
	unsigned strays;
};

static void *source_give(struct source *s, unsigned order)
{
	size_t length = PP_PAGE_SIZE << order;
	void *memory = aligned_alloc(PP_PAGE_SIZE, length);

	CHECK(memory);
	s->gives++;
	s->out += length;
	if (s->out > s->most)
		s->most = s->out;
	return memory;
}

static size_t source_alloc(void *ctx, unsigned order, int nid, size_t n, void **memory)
{
	struct source *s = ctx;

	pthread_mutex_lock(&s->lock);
	s->allocs++;
	s->order = order;
	s->nid = nid;
	s->asked = n;
	if (!s->spoil)
		for (size_t i = 0; i < n; i++)
			memory[i] = source_give(s, order);
	else
		n = s->spoil(s, order, n, memory);
	pthread_mutex_unlock(&s->lock);
	return n;
}

static void source_free(void *ctx, void *memory, unsigned order)
{
	struct source *s = ctx;

	pthread_mutex_lock(&s->lock);
	if (memory == s->stray) {
		s->strays++;
	} else {
		s->frees++;
		s->out -= PP_PAGE_SIZE << order;
		/* It is all the source's again. */
		memset(memory, 0, PP_PAGE_SIZE << order);
		free(memory);
	}
	pthread_mutex_unlock(&s->lock);
}

static void source_release(void *ctx)
{
	struct source *s = ctx;

	/* The last call: everything was back before it. */
	CHECK_EQ(s->gives, s->frees);
	CHECK_EQ(s->out, 0);
	s->released++;
}

static struct pp_provider *make_provider(struct source *s, size_t max_bytes, int nid)
{
	struct pp_provider_params params = PP_PROVIDER_PARAMS_INIT;
	struct pp_provider *provider;

	memset(s, 0, sizeof(*s));
	pthread_mutex_init(&s->lock, NULL);
	params.max_bytes = max_bytes;
	params.nid = nid;
	params.ctx = s;
	params.alloc = source_alloc;
	params.free = source_free;
	params.release = source_release;
	CHECK_OK(pp_provider_create(&params, &provider));
	return provider;
}

static struct page_pool *pool_of(struct pp_provider *provider, unsigned order, unsigned pool_size)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct page_pool *pool;

	params.provider = provider;
	params.order = order;
	params.pool_size = pool_size;
	CHECK_OK(page_pool_create(&params, &pool));
	return pool;
}

/* The page leaves its pool: somebody else holds it too. */
static void leave_pool(struct pp_page *page)
{
	pp_page_get(page);
	page_pool_put_full_page(page_pool_get_pp(page), page, false);
}

static void end_provider(struct source *s, struct pp_provider *provider)
{
	CHECK_PROVIDER(provider);
	CHECK_EQ(refs_of(provider), 1);
	CHECK_EQ(info_of(provider).out, 0);
	CHECK_EQ(s->released, 0);
	pp_provider_put(provider);
	CHECK_EQ(s->released, 1);
}

/* ---- as it should be --------------------------------------------------------------------------
 */

TEST(all_orders)
{
	struct source s;

	for (unsigned order = 0; order <= PP_MAX_PAGE_ORDER; order++) {
		struct pp_provider *provider = make_provider(&s, 64 * MIB, PP_NUMA_NO_NODE);
		struct page_pool *pool = pool_of(provider, order, 1);
		struct pp_page *p[5];

		alloc_n(pool, 5, p);
		CHECK_EQ(s.order, order);
		CHECK_EQ(s.gives, order ? 5 : 64);
		CHECK_EQ(info_of(provider).out, s.out);
		CHECK_EQ(info_of(provider).mapped, s.out);
		for (int i = 0; i < 5; i++) {
			CHECK_EQ(pp_page_order(p[i]), order);
			CHECK_EQ(pp_page_ref_count(p[i]), 1);
			CHECK(!pp_page_is_pfmemalloc(p[i]));
			CHECK_EQ((uintptr_t)pp_page_address(p[i]) % PP_PAGE_SIZE, 0);
			memset(pp_page_address(p[i]), i, pp_page_size(p[i]));
		}
		for (int i = 0; i < 5; i++) {
			char *bytes = pp_page_address(p[i]);
			size_t last = pp_page_size(p[i]) - 1;

			CHECK_EQ(bytes[0], i);
			CHECK(!memcmp(bytes, bytes + 1, last));
			for (size_t at = 0; at < last; at += PP_PAGE_SIZE / 2)
				CHECK_PTR(pp_provider_page(provider, bytes + at), p[i]);
			CHECK_PTR(pp_provider_page(provider, bytes + last), p[i]);
			CHECK(pp_provider_page(provider, bytes + last + 1) != p[i]);
			CHECK(pp_provider_page(provider, bytes - 1) != p[i]);
		}
		CHECK_PTR(pp_provider_page(provider, NULL), NULL);
		CHECK_PTR(pp_provider_page(provider, &s), NULL);
		CHECK_PROVIDER(provider);
		/* Held, it is out; and then it is not. */
		leave_pool(p[0]);
		CHECK_PTR(pp_provider_page(provider, pp_page_address(p[0])), p[0]);
		CHECK_EQ(s.frees, 0);
		pp_page_put(p[0]);
		CHECK_EQ(s.frees, 1);
		for (size_t i = 1; i < 5; i++)
			CHECK(pp_provider_page(provider, pp_page_address(p[i])));
		put_n(pool, 4, p + 1, false);
		CHECK_POOL(pool);
		page_pool_destroy(pool);
		end_provider(&s, provider);
	}
}

/* Never more than max_bytes, whatever the mixture, and all of it if it is asked for. */
TEST(several_pools_and_the_limit)
{
	struct source s;
	struct pp_provider *provider = make_provider(&s, 1 * MIB + 100, PP_NUMA_NO_NODE);
	struct page_pool *pool[4];
	static const unsigned order[4] = {0, 1, 4, 7};
	struct pp_page *p[300];
	uint64_t seed = 12345;
	size_t n = 0;

	CHECK_EQ(info_of(provider).limit, 1 * MIB);
	for (int i = 0; i < 4; i++)
		pool[i] = pool_of(provider, order[i], 1);
	for (int step = 0; step < 20000; step++) {
		if (n && rnd_below(&seed, 2)) {
			size_t k = rnd_below(&seed, n);

			leave_pool(p[k]);
			pp_page_put(p[k]);
			p[k] = p[--n];
		} else {
			struct page_pool *from = pool[rnd_below(&seed, 4)];
			struct pp_page *page = page_pool_alloc_pages(from);

			if (!page)
				continue;
			CHECK_PTR(page_pool_get_pp(page), from);
			CHECK_PTR(pp_provider_page(provider, pp_page_address(page)), page);
			memset(pp_page_address(page), (int)step, pp_page_size(page));
			p[n++] = page;
		}
		CHECK_EQ(info_of(provider).out, s.out);
	}
	CHECK_PROVIDER(provider);
	CHECK_EQ(s.most, 1 * MIB);
	CHECK(info_of(provider).failed > 0);
	while (n--) {
		leave_pool(p[n]);
		pp_page_put(p[n]);
	}
	CHECK_OK(page_pool_update_nid(pool[0], PP_NUMA_NO_NODE));
	CHECK_EQ(s.out, 0);
	/* To the last page. */
	alloc_n(pool[3], 1, p);
	alloc_n(pool[0], 128, p + 1);
	CHECK_EQ(s.out, 1 * MIB);
	CHECK_EQ(s.asked, 64);
	CHECK_PTR(page_pool_alloc_pages(pool[0]), NULL);
	CHECK_PTR(page_pool_alloc_pages(pool[1]), NULL);
	CHECK_EQ(s.asked, 64); /* it was not asked at all */
	leave_pool(p[1]);
	pp_page_put(p[1]);
	CHECK_PTR(page_pool_alloc_pages(pool[1]), NULL);
	alloc_n(pool[0], 1, p + 1);
	CHECK_EQ(s.asked, 1);
	page_pool_put_full_page(pool[3], p[0], true);
	put_n(pool[0], 128, p + 1, true);
	for (int i = 0; i < 4; i++) {
		CHECK_POOL(pool[i]);
		page_pool_destroy(pool[i]);
	}
	end_provider(&s, provider);
}

/* More blocks than one chunk of metadata, and the same again without any more. */
TEST(metadata_is_used_again)
{
	struct source s;
	struct pp_provider *provider = make_provider(&s, 12 * MIB, PP_NUMA_NO_NODE);
	static struct pp_page *p[3072];
	struct pp_page *lowest = NULL, *highest = NULL;

	for (int round = 0; round < 3; round++) {
		struct page_pool *pool = pool_of(provider, 0, 1);

		alloc_n(pool, 3072, p);
		CHECK_PTR(page_pool_alloc_pages(pool), NULL);
		for (int i = 0; i < 3072; i++) {
			if (!lowest || p[i] < lowest)
				lowest = p[i];
			if (!highest || p[i] > highest)
				highest = p[i];
		}
		CHECK_PROVIDER(provider);
		put_n(pool, 3072, p, false);
		CHECK_POOL(pool);
		page_pool_destroy(pool);
		CHECK_EQ(s.out, 0);
		CHECK_PROVIDER(provider);
	}
	CHECK_EQ(highest - lowest, 3071);
	end_provider(&s, provider);
}

TEST(node)
{
	struct source s;
	struct pp_page *page;

	for (int nid = PP_NUMA_NO_NODE; nid < 3; nid++)
		for (int wanted = PP_NUMA_NO_NODE; wanted < 3; wanted++) {
			struct pp_provider *provider = make_provider(&s, 1 * MIB, nid);
			struct page_pool *pool = pool_of(provider, 0, 1);
			int right = nid == PP_NUMA_NO_NODE ? wanted : nid;

			CHECK_OK(page_pool_update_nid(pool, wanted));
			page = page_pool_alloc_pages(pool);
			CHECK(page);
			CHECK_EQ(s.nid, right);
			CHECK_EQ(pp_page_nid(page), right == PP_NUMA_NO_NODE ? 0 : right);
			CHECK_EQ(info_of(provider).nid, nid);
			/* Where the callbacks have it from is not ours to say. */
			CHECK_EQ(info_of(provider).lacks, 0);
			CHECK_EQ(info_of(provider).huge, PP_HUGE_NONE);
			page_pool_put_full_page(pool, page, true);
			page_pool_destroy(pool);
			end_provider(&s, provider);
		}
}

TEST(pieces)
{
	struct source s;
	struct pp_provider *provider = make_provider(&s, 1 * MIB, PP_NUMA_NO_NODE);
	struct page_pool *pool = pool_of(provider, 2, 1);
	struct pp_page *p[20];
	size_t offset;

	for (int i = 0; i < 20; i++) {
		p[i] = page_pool_alloc_frag(pool, &offset, 2048);
		CHECK(p[i]);
		memset((char *)pp_page_address(p[i]) + offset, i, 2048);
	}
	CHECK_EQ(s.gives, 3);
	put_n(pool, 20, p, false);
	CHECK_POOL(pool);
	page_pool_destroy(pool);
	end_provider(&s, provider);
}

/* Mapped, checked and unreadable while they are in the pool; none of that when they leave it. */
TEST(mapped_and_checked)
{
	static const unsigned flags[] = {PP_FLAG_DMA_MAP, PP_FLAG_CHECKED,
					 PP_FLAG_DMA_MAP | PP_FLAG_CHECKED | PP_FLAG_CHECKED_FULL};

	for (size_t k = 0; k < PP_ARRAY_SIZE(flags); k++) {
		struct source s;
		struct pp_provider *provider = make_provider(&s, 12 * MIB, PP_NUMA_NO_NODE);
		struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
		struct page_pool *pool;
		struct pp_page *p[1500];

		params.provider = provider;
		params.flags = flags[k];
		params.pool_size = 64;
		for (params.order = 0; params.order < 2; params.order++) {
			CHECK_OK(page_pool_create(&params, &pool));
			for (int round = 0; round < 3; round++) {
				alloc_n(pool, 1500, p);
				for (int i = 0; i < 1500; i++) {
					memset(pp_page_address(p[i]), i, pp_page_size(p[i]));
					if (flags[k] & PP_FLAG_DMA_MAP)
						CHECK_EQ(page_pool_get_dma_addr(p[i]),
							 (uintptr_t)pp_page_address(p[i]));
				}
				put_n(pool, 100, p, true);
				put_n(pool, 1300, p + 100, false);
				for (int i = 1400; i < 1500; i++) {
					leave_pool(p[i]);
					pp_page_put(p[i]);
				}
				CHECK_POOL(pool);
				CHECK_PROVIDER(provider);
			}
			CHECK_EQ(page_pool_refused_puts(pool), 0);
			/* With one out. */
			alloc_n(pool, 1, p);
			page_pool_destroy(pool);
			memset(pp_page_address(p[0]), 1, pp_page_size(p[0]));
			page_pool_put_full_page(pool, p[0], false);
			CHECK_EQ(s.out, 0);
		}
		end_provider(&s, provider);
	}
}

/* ---- what it does wrongly ---------------------------------------------------------------------
 */

static size_t give_n(struct source *s, unsigned order, size_t n, void **memory)
{
	for (size_t i = 0; i < n; i++)
		memory[i] = source_give(s, order);
	return n;
}

static size_t give_nothing(struct source *s, unsigned order, size_t n, void **memory)
{
	return 0;
}

static size_t give_three(struct source *s, unsigned order, size_t n, void **memory)
{
	return give_n(s, order, n < 3 ? n : 3, memory);
}

static size_t give_null(struct source *s, unsigned order, size_t n, void **memory)
{
	if (n < 2)
		return give_n(s, order, n, memory);
	memory[0] = source_give(s, order);
	memory[1] = NULL;
	return 2 + give_n(s, order, n - 2, memory + 2);
}

static size_t only_say_so(struct source *s, unsigned order, size_t n, void **memory)
{
	give_n(s, order, 1, memory);
	return n;
}

static size_t give_misaligned(struct source *s, unsigned order, size_t n, void **memory)
{
	give_n(s, order, n - 1, memory);
	s->stray = (char *)s + (-(uintptr_t)s % 16) + 8;
	memory[n - 1] = s->stray;
	return n;
}

static size_t give_the_end_of_memory(struct source *s, unsigned order, size_t n, void **memory)
{
	give_n(s, order, n - 1, memory);
	s->stray = (void *)(UINTPTR_MAX & ~(PP_PAGE_SIZE - 1));
	memory[n - 1] = s->stray;
	return n;
}

static size_t give_one_more(struct source *s, unsigned order, size_t n, void **memory)
{
	return give_n(s, order, n + 1, memory);
}

static size_t give_sixteen_more(struct source *s, unsigned order, size_t n, void **memory)
{
	return give_n(s, order, n + 16, memory);
}

static size_t give_seventeen_more(struct source *s, unsigned order, size_t n, void **memory)
{
	return n + 17;
}

static size_t give_errno(struct source *s, unsigned order, size_t n, void **memory)
{
	return (size_t)-ENOMEM;
}

static char heard[1024];
static int lines;

static void hear(void *ctx, const char *text)
{
	strncpy(heard, text, sizeof(heard) - 1);
	lines++;
}

TEST(wrong_answers)
{
	static const struct {
		size_t (*spoil)(struct source *, unsigned, size_t, void **);
		int of_64, of_1;       /* pages that come of it */
		unsigned back, strays; /* blocks that go back at once; what were none */
		const char *said;
	} wrong[] = {
		{give_nothing, 0, 0, 0, 0, NULL},
		{give_three, 3, 1, 0, 0, NULL},
		{give_null, 63, 1, 0, 0, ", which is NULL: refused"},
		{only_say_so, 1, 1, 0, 0, ", which is NULL: refused"},
		{give_misaligned, 63, 0, 0, 1, ", which is not aligned to 4096 bytes: refused"},
		{give_the_end_of_memory, 63, 0, 0, 1,
		 ", which does not fit into the address space"},
		{give_one_more, 64, 1, 1, 0, ", which is one more than was asked for: refused"},
		{give_sixteen_more, 64, 1, 16, 0,
		 ", which is one more than was asked for: refused"},
		{give_seventeen_more, 0, 0, 0, 0,
		 "says that it gave 81 blocks of 64: none is used"},
		{give_errno, 0, 0, 0, 0, "blocks of 64: none is used"},
	};

	page_pool_set_log(hear, NULL);
	for (size_t k = 0; k < PP_ARRAY_SIZE(wrong); k++) {
		struct source s;
		struct pp_provider *provider = make_provider(&s, 64 * MIB, PP_NUMA_NO_NODE);
		struct page_pool *pool = pool_of(provider, 0, 1), *big = pool_of(provider, 3, 1);
		struct pp_page *p[64], *b;
		int n = wrong[k].of_64, failed = 0;

		printf("# %zu\n", k);
		heard[0] = '\0';
		lines = 0;
		s.spoil = wrong[k].spoil;
		if (n)
			alloc_n(pool, 1, p);
		else
			CHECK_PTR(page_pool_alloc_pages(pool), NULL);
		CHECK_EQ(s.allocs, 1);
		CHECK_EQ(info_of(provider).out, (uint64_t)n * PP_PAGE_SIZE);
		failed += !n;
		CHECK_EQ(page_pool_inflight(pool), n);
		if (wrong[k].said) {
			printf("# \"%s\"\n", heard);
			CHECK(strstr(heard, wrong[k].said));
			CHECK_EQ(lines, 1); /* a second, not a block */
		} else {
			CHECK_EQ(lines, 0);
		}
		CHECK_EQ(s.frees, wrong[k].back);
		CHECK_EQ(s.strays, wrong[k].strays);
		b = page_pool_alloc_pages(big);
		CHECK_EQ(b != NULL, wrong[k].of_1);
		failed += !b;
		CHECK_EQ(info_of(provider).failed, failed);
		CHECK_EQ(info_of(provider).out, s.out);
		CHECK_PROVIDER(provider);
		/* And it is none the worse for it. */
		s.spoil = NULL;
		alloc_n(pool, 63, p + 1);
		if (!n)
			alloc_n(pool, 1, p);
		CHECK_EQ(info_of(provider).out, s.out);
		for (int i = 0; i < 64; i++)
			memset(pp_page_address(p[i]), i, PP_PAGE_SIZE);
		put_n(pool, 64, p, false);
		if (b)
			page_pool_put_full_page(big, b, true);
		page_pool_destroy(pool);
		page_pool_destroy(big);
		end_provider(&s, provider);
	}
	page_pool_set_log(NULL, NULL);
}

TEST(refusals)
{
	struct pp_provider_params params = PP_PROVIDER_PARAMS_INIT;
	struct pp_provider *provider = NULL;
	struct {
		struct pp_provider_params p;
		char more[8];
	} longer;

	params.max_bytes = 1 * MIB;
	params.alloc = source_alloc;
	CHECK_FAILS(pp_provider_create(&params, &provider), EINVAL, "needs alloc and free");
	params.alloc = NULL;
	params.free = source_free;
	CHECK_FAILS(pp_provider_create(&params, &provider), EINVAL, "needs alloc and free");
	params.alloc = source_alloc;
	for (size_t i = 0; i < 2; i++) {
		params.max_bytes = i ? SIZE_MAX : 0;
		CHECK_FAILS(pp_provider_create(&params, &provider), EINVAL, "must be from 4096 to");
	}
	params.max_bytes = PP_PAGE_SIZE - 1;
	CHECK_FAILS(pp_provider_create(&params, &provider), EINVAL,
		    "a provider's max_bytes of 4095: must be from 4096 to");
	params.max_bytes = PP_PAGE_SIZE;
	params.nid = -2;
	CHECK_FAILS(pp_provider_create(&params, &provider), EINVAL, "NUMA node -2");
	params.nid = PP_MAX_NUMA_NODES;
	CHECK_FAILS(pp_provider_create(&params, &provider), EINVAL, "NUMA node 1024");
	params.nid = 0;
	params.size = 16;
	CHECK_FAILS(pp_provider_create(&params, &provider), EINVAL,
		    "struct pp_provider_params.size is 16");
	memset(&longer, 0, sizeof(longer));
	longer.p = params;
	longer.p.size = sizeof(longer);
	longer.more[7] = 1;
	CHECK(pp_provider_create(&longer.p, &provider) == -EINVAL);
	CHECK_PTR(provider, NULL);
	/* And without a release; of just one page. */
	params.size = sizeof(params);
	params.ctx = &(struct source){.lock = PTHREAD_MUTEX_INITIALIZER};
	CHECK_OK(pp_provider_create(&params, &provider));
	CHECK_EQ(info_of(provider).limit, PP_PAGE_SIZE);
	pp_provider_put(provider);
}

/* ---- the end ----------------------------------------------------------------------------------
 */

static void *lets_go(void *arg)
{
	pp_page_put(arg);
	return NULL;
}

TEST(release_once_and_last)
{
	struct source s;
	struct pp_provider *provider = make_provider(&s, 1 * MIB, PP_NUMA_NO_NODE);
	struct page_pool *pool = pool_of(provider, 1, 1);
	struct pp_page *held = page_pool_alloc_pages(pool),
		       *straggler = page_pool_alloc_pages(pool);

	pp_provider_get(provider);
	pp_provider_put(provider);
	leave_pool(held);
	page_pool_destroy(pool);
	pp_provider_put(provider);
	CHECK_EQ(s.released, 0);
	CHECK_EQ(s.frees, 0);
	page_pool_put_full_page(pool, straggler, false);
	CHECK_EQ(s.frees, 1);
	CHECK_EQ(s.released, 0);
	memset(pp_page_address(held), 7, pp_page_size(held));
	on_thread(lets_go, held);
	CHECK_EQ(s.frees, 2);
	CHECK_EQ(s.released, 1);
}

/* A callback that has taken the memory back and does not return yet. */
struct slow {
	sem_t inside, go;
	void *memory;
	unsigned frees, released;
};

static size_t slow_alloc(void *ctx, unsigned order, int nid, size_t n, void **memory)
{
	struct slow *s = ctx;

	memory[0] = s->memory;
	return 1;
}

static void slow_free(void *ctx, void *memory, unsigned order)
{
	struct slow *s = ctx;

	if (s->frees++)
		return;
	sem_post(&s->inside);
	sem_wait(&s->go);
}

static void slow_release(void *ctx)
{
	((struct slow *)ctx)->released++;
}

static void slow_begin(struct slow *s, size_t max_bytes, struct pp_provider **provider,
		       struct page_pool **pool, struct pp_page **page)
{
	struct pp_provider_params params = PP_PROVIDER_PARAMS_INIT;

	memset(s, 0, sizeof(*s));
	sem_init(&s->inside, 0, 0);
	sem_init(&s->go, 0, 0);
	s->memory = aligned_alloc(PP_PAGE_SIZE, PP_PAGE_SIZE);
	params.max_bytes = max_bytes;
	params.ctx = s;
	params.alloc = slow_alloc;
	params.free = slow_free;
	params.release = slow_release;
	CHECK_OK(pp_provider_create(&params, provider));
	*pool = pool_of(*provider, 0, 1);
	*page = page_pool_alloc_pages(*pool);
	CHECK(*page);
	leave_pool(*page);
}

/* Whoever gets the memory next has it, and an address has one page. */
TEST(memory_is_given_again_before_free_returns)
{
	struct slow s;
	struct pp_provider *provider;
	struct page_pool *pool;
	struct pp_page *old, *page;
	pthread_t thread;

	slow_begin(&s, 2 * PP_PAGE_SIZE, &provider, &pool, &old);
	CHECK_EQ(pthread_create(&thread, NULL, lets_go, old), 0);
	sem_wait(&s.inside);
	CHECK_PTR(pp_provider_page(provider, s.memory), NULL);
	page = page_pool_alloc_pages(pool);
	CHECK(page && page != old);
	CHECK_PTR(pp_page_address(page), s.memory);
	CHECK_PTR(pp_provider_page(provider, s.memory), page);
	CHECK_EQ(info_of(provider).out, 2 * PP_PAGE_SIZE);
	CHECK_PROVIDER(provider);
	sem_post(&s.go);
	pthread_join(thread, NULL);
	CHECK_PTR(pp_provider_page(provider, s.memory), page);
	CHECK_EQ(info_of(provider).out, PP_PAGE_SIZE);
	page_pool_put_full_page(pool, page, true);
	page_pool_destroy(pool);
	CHECK_EQ(s.released, 0);
	pp_provider_put(provider);
	CHECK_EQ(s.released, 1);
	free(s.memory);
}

/* Until free returns the block counts as out, and the provider is there. */
TEST(out_until_free_returns)
{
	struct slow s;
	struct pp_provider *provider;
	struct page_pool *pool;
	struct pp_page *page;
	pthread_t thread;

	slow_begin(&s, PP_PAGE_SIZE, &provider, &pool, &page);
	CHECK_EQ(pthread_create(&thread, NULL, lets_go, page), 0);
	sem_wait(&s.inside);
	CHECK_PTR(page_pool_alloc_pages(pool), NULL);
	CHECK_EQ(info_of(provider).out, PP_PAGE_SIZE);
	page_pool_destroy(pool);
	pp_provider_put(provider);
	CHECK_EQ(s.released, 0);
	sem_post(&s.go);
	pthread_join(thread, NULL);
	CHECK_EQ(s.released, 1);
	free(s.memory);
}

/* ---- threads ----------------------------------------------------------------------------------
 */

#define TRAFFIC 4000
#define THREADS 4

struct traffic {
	struct pp_provider *provider;
	uint64_t seed;
	uint64_t pages;
};

/* A pool of its own, whose pages mostly go back to the provider. */
static void *goes_round(void *arg)
{
	struct traffic *t = arg;
	struct page_pool *pool = pool_of(t->provider, (unsigned)rnd_below(&t->seed, 3), 2);
	struct pp_page *p[8];

	for (int i = 0; i < TRAFFIC; i++) {
		size_t n = page_pool_alloc_pages_bulk(pool, 1 + rnd_below(&t->seed, 8), p);

		t->pages += n;
		for (size_t k = 0; k < n; k++)
			memset(pp_page_address(p[k]), (int)k, 64);
		for (size_t k = 0; k < n; k++)
			CHECK_EQ(((char *)pp_page_address(p[k]))[63], k);
		for (size_t k = 0; k < n; k++) {
			if (rnd_below(&t->seed, 2)) {
				leave_pool(p[k]);
				pp_page_put(p[k]);
			} else {
				page_pool_put_full_page(pool, p[k], false);
			}
		}
	}
	page_pool_destroy(pool);
	return NULL;
}

TEST(from_many_threads)
{
	struct source s;
	/* Less than all of them want. */
	struct pp_provider *provider = make_provider(&s, 80 * PP_PAGE_SIZE, PP_NUMA_NO_NODE);
	struct traffic t[THREADS];
	pthread_t thread[THREADS];
	uint64_t pages = 0;

	for (unsigned i = 0; i < THREADS; i++) {
		t[i] = (struct traffic){.provider = provider, .seed = 77 + i};
		CHECK_EQ(pthread_create(&thread[i], NULL, goes_round, &t[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		pages += t[i].pages;
	}
	CHECK(pages >= TRAFFIC);
	CHECK(s.most <= 80 * PP_PAGE_SIZE);
	CHECK(s.gives > 64);
	end_provider(&s, provider);
}

static struct page_pool *other;
static struct pp_page *others;

/* While one pool is being given memory, the other one asks. */
static size_t another_asks(struct source *s, unsigned order, size_t n, void **memory)
{
	s->spoil = NULL;
	pthread_mutex_unlock(&s->lock);
	others = page_pool_alloc_pages(other);
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < n; i++)
		memory[i] = source_give(s, order);
	return n;
}

TEST(what_is_asked_for_counts)
{
	struct source s;
	struct pp_provider *provider = make_provider(&s, 80 * PP_PAGE_SIZE, PP_NUMA_NO_NODE);
	struct page_pool *pool = pool_of(provider, 0, 1);
	struct pp_page *page;

	other = pool_of(provider, 0, 1);
	s.spoil = another_asks;
	page = page_pool_alloc_pages(pool);
	CHECK(page && others);
	CHECK_EQ(s.asked, 80 - 64);
	CHECK_EQ(s.most, 80 * PP_PAGE_SIZE);
	page_pool_put_full_page(pool, page, true);
	page_pool_put_full_page(other, others, true);
	page_pool_destroy(pool);
	page_pool_destroy(other);
	end_provider(&s, provider);
}

/* The last page and the last reference go at the same moment. */
TEST(the_end_from_two_sides)
{
	for (int round = 0; round < 300; round++) {
		struct source s;
		struct pp_provider *provider = make_provider(&s, PP_PAGE_SIZE, PP_NUMA_NO_NODE);
		struct page_pool *pool = pool_of(provider, 0, 1);
		struct pp_page *page = page_pool_alloc_pages(pool);
		pthread_t thread;

		leave_pool(page);
		page_pool_destroy(pool);
		CHECK_EQ(pthread_create(&thread, NULL, lets_go, page), 0);
		if (round % 2)
			sched_yield();
		pp_provider_put(provider);
		pthread_join(thread, NULL);
		CHECK_EQ(s.frees, 1);
		CHECK_EQ(s.released, 1);
	}
}

static void *holds_and_drops(void *arg)
{
	struct pp_provider *provider = arg;

	for (int i = 0; i < 1000; i++) {
		pp_provider_get(provider);
		pp_provider_put(provider);
	}
	pp_provider_put(provider);
	return NULL;
}

TEST(references_from_many_threads)
{
	struct source s;
	struct pp_provider *provider = make_provider(&s, 1 * MIB, PP_NUMA_NO_NODE);
	pthread_t thread[THREADS];

	for (int i = 0; i < THREADS; i++) {
		pp_provider_get(provider);
		CHECK_EQ(pthread_create(&thread[i], NULL, holds_and_drops, provider), 0);
	}
	pp_provider_put(provider);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	CHECK_EQ(s.released, 1);
}

/* ---- no arena ---------------------------------------------------------------------------------
 */

/* A thread's guess may be the address of an arena that is gone, where now this provider is. */
TEST(where_an_arena_was)
{
	struct source s;
	struct pp_provider *arena = make_arena(4 * MIB);
	struct pp_provider *provider = make_provider(&s, 1 * MIB, PP_NUMA_NO_NODE);
	struct page_pool *pool = make_pool(arena, 1, NULL), *mine = pool_of(provider, 0, 1);
	struct pp_page *page = page_pool_alloc_pages(pool), *p[3];
	struct pp_magazine *m;
	uint32_t count;

	alloc_n(mine, 3, p);
	for (int i = 0; i < 3; i++)
		leave_pool(p[i]);
	/* A magazine of an arena that is there... */
	leave_pool(page);
	pp_page_put(page);
	m = pp_my_magazines.last;
	if (!m) {
		printf("# skipped: no membarrier(2), no magazines\n");
		return;
	}
	CHECK_PTR(m->arena, (struct pp_arena *)arena);
	count = m->count;
	pp_my_magazines.last_arena = (struct pp_arena *)provider;
	pp_page_put(p[0]);
	CHECK_EQ(s.frees, 1);
	CHECK_EQ(m->count, count);
	/* ...and one of an arena that was, which is what is left of it. */
	pp_my_magazines.last_arena = (struct pp_arena *)arena;
	page_pool_destroy(pool);
	pp_provider_put(arena);
	CHECK_PTR(m->arena, NULL);
	pp_my_magazines.last_arena = (struct pp_arena *)provider;
	pp_page_put(p[1]);
	CHECK_EQ(s.frees, 2);
	CHECK_EQ(m->count, 0);
	/* It may serve the next arena, and this provider still none. */
	arena = make_arena(4 * MIB);
	pool = make_pool(arena, 1, NULL);
	page = page_pool_alloc_pages(pool);
	leave_pool(page);
	pp_page_put(page);
	CHECK_EQ(pp_my_magazines.last->count, 1);
	pp_my_magazines.last_arena = (struct pp_arena *)provider;
	pp_page_put(p[2]);
	CHECK_EQ(s.frees, 3);
	CHECK_EQ(pp_my_magazines.last->count, 1);
	end(pool, arena);
	page_pool_destroy(mine);
	end_provider(&s, provider);
}
