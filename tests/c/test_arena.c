/* SPDX-License-Identifier: BSD-2-Clause */
/* The arena: limit, growth, merging, who has the memory, magazines of threads. */
#include <linux/mempolicy.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/magazine.h"
#include "test.h"

static struct page_pool *pool_of_order(struct pp_provider *arena, unsigned order)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	struct page_pool *pool;

	params.provider = arena;
	params.order = order;
	params.pool_size = 1;
	CHECK_OK(page_pool_create(&params, &pool));
	return pool;
}

TEST(limit_and_growth)
{
	struct pp_provider *arena = make_arena(9 * MIB); /* 12 */
	struct page_pool *pool = make_pool(arena, 0, NULL);
	static struct pp_page *p[3072];
	struct pp_provider_info info = info_of(arena);

	CHECK_EQ(info.limit, 12 * MIB);
	CHECK_EQ(info.mapped, 0);
	CHECK_EQ(info.out, 0);
	CHECK_EQ(info.failed, 0);
	CHECK_EQ(info.nid, PP_NUMA_NO_NODE);
	CHECK_EQ(info.huge, PP_HUGE_NONE);
	alloc_n(pool, 1, p);
	CHECK_EQ(info_of(arena).mapped, 4 * MIB);
	alloc_n(pool, 1023, p + 1);
	CHECK_EQ(info_of(arena).mapped, 4 * MIB);
	CHECK_EQ(info_of(arena).out, 4 * MIB);
	alloc_n(pool, 1, p + 1024);
	CHECK_EQ(info_of(arena).mapped, 8 * MIB);
	alloc_n(pool, 2047, p + 1025);
	CHECK_EQ(info_of(arena).mapped, 12 * MIB);
	CHECK_EQ(info_of(arena).out, 12 * MIB);
	CHECK_PTR(page_pool_alloc_pages(pool), NULL);
	CHECK_EQ(info_of(arena).failed, 1);
	CHECK_ARENA(arena);
	/* Every byte is there, and everybody's own. */
	for (int i = 0; i < 3072; i++)
		memset(pp_page_address(p[i]), i, PP_PAGE_SIZE);
	for (int i = 0; i < 3072; i++) {
		const char *bytes = pp_page_address(p[i]);

		CHECK_EQ(bytes[0], (char)i);
		CHECK(!memcmp(bytes, bytes + 1, PP_PAGE_SIZE - 1));
	}
	put_n(pool, 3072, p, false);
	CHECK_EQ(info_of(arena).out, (uint64_t)1024 * PP_PAGE_SIZE); /* those in the ring */
	end(pool, arena);
}

TEST(merges_to_order_10_after_a_mess)
{
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct pp_provider *arena = make_arena(16 * MIB);
		uint64_t s = seed * 0x9e3779b97f4a7c15ull;
		struct page_pool *pool[11];
		struct pp_page *p[4096], *big[4];
		size_t n = 0;

		for (unsigned o = 0; o <= 10; o++)
			pool[o] = pool_of_order(arena, o);
		for (int step = 0; step < 4000; step++) {
			if (n && rnd(&s) & 4096) {
				size_t k = rnd_below(&s, n);
				struct page_pool *owner = page_pool_get_pp(p[k]);

				/* Let it leave: held by somebody else. */
				pp_page_get(p[k]);
				page_pool_put_full_page(owner, p[k], false);
				pp_page_put(p[k]);
				p[k] = p[--n];
			} else {
				unsigned order = (unsigned)rnd_below(&s, 11);
				struct pp_page *page = page_pool_alloc_pages(pool[order]);

				if (!page)
					continue;
				CHECK_EQ((uintptr_t)pp_page_address(page) % pp_page_size(page), 0);
				p[n++] = page;
			}
		}
		CHECK_ARENA(arena);
		while (n--) {
			pp_page_get(p[n]);
			page_pool_put_full_page(page_pool_get_pp(p[n]), p[n], false);
			pp_page_put(p[n]);
		}
		CHECK_OK(page_pool_update_nid(pool[0], PP_NUMA_NO_NODE));
		CHECK_EQ(pages_out(arena), 0);
		CHECK_ARENA(arena);
		/* All of it in the largest pages: nothing is left in splinters, nor in this
		 * thread's magazine. */
		alloc_n(pool[10], 4, big);
		CHECK_EQ(info_of(arena).out, 16 * MIB);
		CHECK_PTR(page_pool_alloc_pages(pool[10]), NULL);
		put_n(pool[10], 4, big, true);
		for (unsigned o = 0; o <= 10; o++)
			end_pool(pool[o], arena);
		CHECK_EQ(pages_out(arena), 0);
		pp_provider_put(arena);
	}
}

TEST(reserve_is_marked)
{
	struct pp_arena_params params = PP_ARENA_PARAMS_INIT;
	struct pp_provider *arena;
	struct page_pool *pool;
	static struct pp_page *p[1024];
	unsigned marked = 0;

	params.limit = 4 * MIB;
	params.reserve = 10 * PP_PAGE_SIZE - 1; /* rounded up */
	CHECK_OK(pp_arena_create(&params, &arena));
	pool = make_pool(arena, 0, NULL);
	alloc_n(pool, 1024, p);
	for (int i = 0; i < 1024; i++)
		marked += pp_page_is_pfmemalloc(p[i]);
	CHECK_EQ(marked, 10);
	CHECK_PTR(page_pool_alloc_pages(pool), NULL);
	put_n(pool, 1024, p, false);
	CHECK_EQ(stats_of(pool).recycle_released_refcnt, 10);
	/* The mark was of the moment, not of the page. */
	CHECK_EQ(page_pool_inflight(pool), 1014);
	page_pool_destroy(pool);
	pool = make_pool(arena, 0, NULL);
	alloc_n(pool, 512, p);
	for (int i = 0; i < 512; i++)
		CHECK(!pp_page_is_pfmemalloc(p[i]));
	put_n(pool, 512, p, true);
	end(pool, arena);
}

TEST(page_of_every_address)
{
	for (unsigned order = 0; order <= 10; order++) {
		struct pp_provider *arena = make_arena(12 * MIB);
		struct page_pool *pool = pool_of_order(arena, order);
		struct pp_page *a = page_pool_alloc_pages(pool), *b = page_pool_alloc_pages(pool);
		char *addr = pp_page_address(a);
		const char *memory = ((struct pp_arena *)arena)->memory;

		CHECK(a && b);
		for (size_t i = 0; i < pp_page_size(a); i += PP_PAGE_SIZE / 2)
			CHECK_PTR(pp_provider_page(arena, addr + i), a);
		CHECK_PTR(pp_provider_page(arena, addr + pp_page_size(a) - 1), a);
		/* Exactly the pages that are out have one. */
		if (order) {
			size_t found = 0;

			for (size_t i = 0; i < 12 * MIB; i += PP_PAGE_SIZE) {
				struct pp_page *page = pp_provider_page(arena, memory + i);

				CHECK(!page || page == a || page == b);
				found += page != NULL;
			}
			CHECK_EQ(found, (size_t)2 << order);
		}
		CHECK_PTR(pp_provider_page(arena, memory - 1), NULL);
		CHECK_PTR(pp_provider_page(arena, memory + 12 * MIB), NULL);
		CHECK_PTR(pp_provider_page(arena, &arena), NULL);
		CHECK_PTR(pp_provider_page(arena, NULL), NULL);
		page_pool_put_full_page(pool, b, true); /* in the cache: not free */
		CHECK_PTR(pp_provider_page(arena, pp_page_address(b)), b);
		pp_page_get(a);
		page_pool_put_full_page(pool, a, true); /* left the pool, held: neither */
		CHECK_PTR(pp_provider_page(arena, addr + pp_page_size(a) - 1), a);
		pp_page_put(a);
		for (size_t i = 0; i < PP_PAGE_SIZE << order; i += PP_PAGE_SIZE)
			CHECK_PTR(pp_provider_page(arena, addr + i), NULL);
		end(pool, arena);
	}
}

TEST(memory_outlives_pool_and_provider)
{
	for (unsigned order = 0; order <= 10; order += 2) {
		struct pp_provider *arena = make_arena(8 * MIB);
		struct page_pool *pool = pool_of_order(arena, order);
		struct pp_page *page = page_pool_alloc_pages(pool);
		char *bytes = pp_page_address(page);

		CHECK(page);
		memset(bytes, 0x77, pp_page_size(page));
		pp_page_get(page);
		page_pool_put_full_page(pool, page, true);
		page_pool_destroy(pool);
		CHECK_EQ(refs_of(arena), 1);
		pp_provider_put(arena);
		/* The arena is retired, and whole but for the page. */
		CHECK_ARENA(arena);
		CHECK_EQ(((struct pp_arena *)arena)->taken, 1u << order);
		CHECK_EQ(bytes[0], 0x77);
		CHECK(!memcmp(bytes, bytes + 1, pp_page_size(page) - 1));
		pp_page_put(page); /* and now the arena is gone: sanitizers would see it leak */
	}
}

TEST(reference_keeps_the_provider)
{
	struct pp_provider *arena = make_arena(4 * MIB);
	struct page_pool *pool;

	pp_provider_get(arena);
	pp_provider_put(arena);
	pool = make_pool(arena, 0, NULL);
	CHECK_EQ(refs_of(arena), 2);
	pp_provider_put(arena); /* the pool's own is left */
	CHECK_PTR(page_pool_provider(pool), arena);
	pp_provider_get(arena);
	end(pool, arena);
}

/* Where there is no membarrier(2) there are no magazines. */
static bool no_magazines(void)
{
	if (pp_biased_lock_available())
		return false;
	printf("# skipped: no membarrier(2), no magazines\n");
	return true;
}

/* ---- magazines --------------------------------------------------------------------------------
 */

struct visitor {
	struct pp_page **pages;
	size_t n;
	sem_t done, go;
};

static void *frees_and_waits(void *arg)
{
	struct visitor *v = arg;

	for (size_t i = 0; i < v->n; i++)
		pp_page_put(v->pages[i]);
	sem_post(&v->done);
	sem_wait(&v->go);
	return NULL;
}

/* Pages that a thread has freed lie in its magazine: not out, but not in the buddy either. */
static size_t idle(struct pp_provider *arena)
{
	return pp_magazines_count((struct pp_arena *)arena);
}

static struct page_pool *all_pages_held(struct pp_provider *arena, struct pp_page **p, size_t n)
{
	struct page_pool *pool = make_pool(arena, 1, NULL);

	alloc_n(pool, n, p);
	for (size_t i = 0; i < n; i++) {
		pp_page_get(p[i]);
		page_pool_put_full_page(pool, p[i], true);
	}
	CHECK_OK(page_pool_update_nid(pool, PP_NUMA_NO_NODE));
	return pool;
}

TEST(thread_exit_gives_back)
{
	if (no_magazines())
		return;

	struct pp_provider *arena = make_arena(4 * MIB);
	struct pp_page *p[100];
	struct page_pool *pool = all_pages_held(arena, p, 100);
	size_t before = idle(arena);
	struct visitor v = {.pages = p, .n = 100};
	pthread_t thread;

	sem_init(&v.done, 0, 0);
	sem_init(&v.go, 0, 0);
	CHECK_EQ(pages_out(arena), 100);
	CHECK_EQ(pthread_create(&thread, NULL, frees_and_waits, &v), 0);
	sem_wait(&v.done);
	CHECK_EQ(pages_out(arena), 0);
	CHECK_EQ(idle(arena), before + 100);
	CHECK_EQ(((struct pp_arena *)arena)->taken, before + 100);
	sem_post(&v.go);
	pthread_join(thread, NULL);
	CHECK_EQ(idle(arena), before);
	CHECK_EQ(((struct pp_arena *)arena)->taken, before);
	end(pool, arena);
}

TEST(full_magazine_goes_back_by_half)
{
	if (no_magazines())
		return;

	struct pp_provider *arena = make_arena(4 * MIB);
	struct pp_page *p[512];
	struct page_pool *pool = all_pages_held(arena, p, 512);
	struct visitor v = {.pages = p, .n = PP_MAGAZINE_SIZE + 1};
	size_t before = idle(arena);
	pthread_t thread;

	sem_init(&v.done, 0, 0);
	sem_init(&v.go, 0, 0);
	CHECK_EQ(pthread_create(&thread, NULL, frees_and_waits, &v), 0);
	sem_wait(&v.done);
	CHECK_EQ(idle(arena), before + PP_MAGAZINE_SIZE + 1 - PP_MAGAZINE_FLUSH);
	CHECK_EQ(pages_out(arena), 512 - PP_MAGAZINE_SIZE - 1);
	CHECK_ARENA(arena);
	sem_post(&v.go);
	pthread_join(thread, NULL);
	for (size_t i = v.n; i < 512; i++)
		pp_page_put(p[i]);
	end(pool, arena);
}

TEST(out_of_pages_takes_the_idle_ones_of_other_threads)
{
	if (no_magazines())
		return;

	struct pp_provider *arena = make_arena(4 * MIB);
	static struct pp_page *p[1024];
	struct page_pool *pool = all_pages_held(arena, p, 1024), *big = pool_of_order(arena, 6);
	struct visitor v = {.pages = p, .n = 100};
	struct pp_page *page;
	pthread_t thread;

	sem_init(&v.done, 0, 0);
	sem_init(&v.go, 0, 0);
	CHECK_PTR(page_pool_alloc_pages(pool), NULL);
	CHECK_EQ(pthread_create(&thread, NULL, frees_and_waits, &v), 0);
	sem_wait(&v.done);
	CHECK_EQ(idle(arena), 100);
	page = page_pool_alloc_pages(pool); /* the thread is still there, and asleep */
	CHECK(page);
	CHECK_EQ(idle(arena), 0);
	CHECK_EQ(info_of(arena).failed, 1);
	page_pool_put_full_page(pool, page, true);
	CHECK_ARENA(arena);
	sem_post(&v.go);
	pthread_join(thread, NULL);
	/* A higher order takes this thread's own as well, and merges them. */
	CHECK_PTR(page_pool_alloc_pages(big), NULL);
	for (size_t i = 100; i < 1024; i++)
		pp_page_put(p[i]);
	CHECK_OK(page_pool_update_nid(pool, PP_NUMA_NO_NODE));
	for (int i = 0; i < 16; i++) {
		p[i] = page_pool_alloc_pages(big);
		CHECK(p[i]);
	}
	CHECK_EQ(pages_out(arena), 1024);
	put_n(big, 16, p, true);
	end_pool(big, arena);
	end(pool, arena);
}

/* A thread's magazine survives its arena, and serves the next one. */
TEST(thread_outlives_many_arenas)
{
	if (no_magazines())
		return;

	unsigned magazines = 0;

	for (int i = 0; i < 40; i++) {
		struct pp_provider *arena[3];
		struct page_pool *pool[3];
		struct pp_page *page;

		for (int k = 0; k < 3; k++) {
			arena[k] = make_arena(4 * MIB);
			pool[k] = make_pool(arena[k], 0, NULL);
			page = page_pool_alloc_pages(pool[k]);
			page_pool_put_full_page(pool[k], page, true);
			CHECK_OK(page_pool_update_nid(pool[k], 0));
			CHECK_EQ(idle(arena[k]), 64);
		}
		for (int k = 0; k < 3; k++)
			end(pool[k], arena[k]);
	}
	for (struct pp_magazine *m = pp_my_magazines.all; m; m = m->next_of_thread) {
		CHECK_EQ(m->count, 0);
		magazines++;
	}
	CHECK(magazines <= 4); /* other tests' included */
}

/*
 * The last page comes back while the arena is being retired: after the holder's magazine was taken
 * from it, and before that of another thread was, who stays inside until the page is back.
 */
struct retiring {
	struct pp_provider *arena;
	struct pp_page *page;
	sem_t ready, back;
};

static void *stays_inside(void *arg)
{
	struct retiring *r = arg;
	struct pp_magazine *m = pp_magazine_enter((struct pp_arena *)r->arena);

	CHECK(m);
	sem_post(&r->ready);
	sem_wait(&r->back);
	pp_biased_leave(&m->lock);
	return NULL;
}

static void *holds_the_last(void *arg)
{
	struct retiring *r = arg;
	struct pp_magazine *m = pp_magazine_enter((struct pp_arena *)r->arena);

	CHECK(m);
	pp_biased_leave(&m->lock);
	sem_post(&r->ready);
	while (pp_load_relaxed(&m->arena)) /* until it is taken away */
		sched_yield();
	pp_page_put(r->page);
	sem_post(&r->back);
	return NULL;
}

TEST(last_page_comes_back_while_the_arena_retires)
{
	if (no_magazines())
		return;

	struct retiring r = {.arena = make_arena(4 * MIB)};
	struct page_pool *pool = pool_of_order(r.arena, 1);
	pthread_t inside, holder;

	r.page = page_pool_alloc_pages(pool);
	pp_page_get(r.page);
	page_pool_put_full_page(pool, r.page, true);
	page_pool_destroy(pool);
	sem_init(&r.ready, 0, 0);
	sem_init(&r.back, 0, 0);
	/* Magazines are emptied in the order of the newest first. */
	CHECK_EQ(pthread_create(&inside, NULL, stays_inside, &r), 0);
	sem_wait(&r.ready);
	CHECK_EQ(pthread_create(&holder, NULL, holds_the_last, &r), 0);
	sem_wait(&r.ready);
	CHECK_EQ(refs_of(r.arena), 1);
	pp_provider_put(r.arena);
	pthread_join(inside, NULL);
	pthread_join(holder, NULL);
}

/* One thread frees to many arenas in turn: each has its magazine, and never another's pages. */
TEST(many_arenas_at_once)
{
	if (no_magazines())
		return;

	struct pp_provider *arena[17];
	struct page_pool *pool[PP_ARRAY_SIZE(arena)];
	struct pp_page *page;

	for (size_t k = 0; k < PP_ARRAY_SIZE(arena); k++) {
		arena[k] = make_arena(4 * MIB);
		pool[k] = make_pool(arena[k], 0, NULL);
	}
	for (int round = 0; round < 3; round++)
		for (size_t k = 0; k < PP_ARRAY_SIZE(arena); k++) {
			page = page_pool_alloc_pages(pool[k]);
			CHECK_PTR(page->provider, arena[k]);
			page_pool_put_full_page(pool[k], page, true);
			CHECK_OK(page_pool_update_nid(pool[k], 0));
			CHECK_EQ(idle(arena[k]), 64);
			CHECK_ARENA(arena[k]);
		}
	for (size_t k = 0; k < PP_ARRAY_SIZE(arena); k++)
		end(pool[k], arena[k]);
}

/* ---- little address space (ulimit -v) ----------------------------------------------------------
 */

#if !defined(PP_TSAN) && !defined(PP_TEST_ASAN) /* they need terabytes of it */
static size_t address_space(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	size_t pages = 0;

	CHECK(f);
	CHECK_EQ(fscanf(f, "%zu", &pages), 1);
	fclose(f);
	return pages * (size_t)sysconf(_SC_PAGE_SIZE);
}

/* In a child, whose limit it is. 77: limits do not count here (an emulator). */
static int with_little_address_space(void)
{
	const size_t space = 512 * MIB, used = address_space();
	struct pp_arena_params params = PP_ARENA_PARAMS_INIT;
	struct page_pool_params pool_params = PAGE_POOL_PARAMS_INIT;
	struct pp_provider *arena;
	struct page_pool *pool;
	struct pp_page *page;

	CHECK_EQ(setrlimit(RLIMIT_AS, &(struct rlimit){used + space, used + space}), 0);
	if (mmap(NULL, 2 * space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) !=
	    MAP_FAILED)
		return 77;
	/* A default is content with less... */
	CHECK_OK(pp_arena_create(&params, &arena));
	CHECK(info_of(arena).limit >= 64 * MIB && info_of(arena).limit <= space);
	pool = make_pool(arena, 0, NULL);
	page = page_pool_alloc_pages(pool);
	CHECK(page);
	page_pool_put_full_page(pool, page, true);
	end(pool, arena);
	/* ...what was asked for is not. */
	params.limit = space;
	CHECK_FAILS(pp_arena_create(&params, &arena), ENOMEM,
		    "no address space for an arena of 536870912 bytes: set a smaller limit, or "
		    "raise ulimit -v");
	CHECK_EQ(setrlimit(RLIMIT_AS, &(struct rlimit){used + 48 * MIB, used + 48 * MIB}), 0);
	CHECK_FAILS(page_pool_create(&pool_params, &pool), ENOMEM, "no address space for an arena");
	return 0;
}

TEST(little_address_space)
{
	in_a_child(with_little_address_space);
}
#endif

/* ---- NUMA -------------------------------------------------------------------------------------
 */

/* The kernel's own word, not the library's: can memory be bound to node 0 here? */
static bool can_bind(void)
{
	unsigned long nodes = 1;
	void *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool can;

	CHECK(memory != MAP_FAILED);
	can = !syscall(SYS_mbind, memory, MIB, MPOL_PREFERRED, &nodes, 8 * sizeof(nodes), 0);
	munmap(memory, MIB);
	if (!can)
		printf("# no mbind(2) here\n");
	return can;
}

/* The node that the memory at this address prefers; -1: none. */
static int node_of_policy(const void *address)
{
	unsigned long nodes[PP_MAX_NUMA_NODES / 8 / sizeof(unsigned long)] = {0};
	const int word = 8 * sizeof(nodes[0]);
	int mode;

	CHECK_EQ(syscall(SYS_get_mempolicy, &mode, nodes, (unsigned long)PP_MAX_NUMA_NODES, address,
			 MPOL_F_ADDR),
		 0);
	if (mode != MPOL_PREFERRED)
		return -1;
	for (int nid = 0; nid < PP_MAX_NUMA_NODES; nid++)
		if (nodes[nid / word] >> (nid % word) & 1)
			return nid;
	return -1;
}

/* Where the page of this address is; a negative errno: none is. */
static int node_of_page(void *address)
{
	int status = -EIO;

	CHECK_EQ(syscall(SYS_move_pages, 0, 1ul, &address, NULL, &status, 0), 0);
	return status;
}

static struct pp_provider *arena_on(int nid, unsigned huge)
{
	struct pp_arena_params params = PP_ARENA_PARAMS_INIT;
	struct pp_provider *arena;

	params.limit = 12 * MIB;
	params.nid = nid;
	params.huge = huge;
	CHECK_OK(pp_arena_create(&params, &arena));
	return arena;
}

/* All its pages, of several chunks; the memory of each is touched. */
static struct page_pool *all_pages(struct pp_provider *arena, struct pp_page **p)
{
	struct page_pool *pool = make_pool(arena, 0, NULL);

	alloc_n(pool, 3072, p);
	CHECK_PTR(page_pool_alloc_pages(pool), NULL);
	for (int i = 0; i < 3072; i++)
		memset(pp_page_address(p[i]), i, PP_PAGE_SIZE);
	return pool;
}

TEST(bound_to_its_node)
{
	static const unsigned kinds[] = {PP_HUGE_NONE, PP_HUGE_THP};
	static struct pp_page *p[3072];
	bool can = can_bind();

	for (size_t k = 0; k < PP_ARRAY_SIZE(kinds); k++) {
		struct pp_provider *arena;
		struct page_pool *pool;

		if (kinds[k] == PP_HUGE_THP &&
		    access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK))
			continue;
		arena = arena_on(0, kinds[k]);
		/* It says so before the first page. */
		CHECK_EQ(info_of(arena).lacks & PP_LACKS_NODE, can ? 0 : PP_LACKS_NODE);
		CHECK_EQ(info_of(arena).nid, 0);
		pool = all_pages(arena, p);
		for (int i = 0; i < 3072; i++)
			CHECK_EQ(pp_page_nid(p[i]), 0);
		for (int i = 0; can && i < 3072; i += 256) {
			CHECK_EQ(node_of_policy(pp_page_address(p[i])), 0);
			CHECK_EQ(node_of_page(pp_page_address(p[i])), 0);
			CHECK_EQ(node_of_policy(p[i]), 0);
			CHECK_EQ(node_of_policy(arena->held + (p[i] - arena->pages)), 0);
		}
		put_n(pool, 3072, p, false);
		end(pool, arena);
	}
}

TEST(bound_to_nothing_without_a_node)
{
	static struct pp_page *p[3072];
	struct pp_provider *arena = arena_on(PP_NUMA_NO_NODE, PP_HUGE_NONE);
	struct page_pool *pool = all_pages(arena, p);

	CHECK_EQ(info_of(arena).lacks, 0);
	for (int i = 0; can_bind() && i < 3072; i += 1024) {
		CHECK_EQ(node_of_policy(pp_page_address(p[i])), -1);
		CHECK_EQ(node_of_policy(p[i]), -1);
	}
	put_n(pool, 3072, p, false);
	end(pool, arena);
}

/* The arena works, and says that the node is a label. */
TEST(node_that_is_not_there)
{
	static struct pp_page *p[3072];
	char path[64];
	int nid = 0;

	do
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", ++nid);
	while (!access(path, F_OK));
	for (int k = 0; k < 2; k++, nid = PP_MAX_NUMA_NODES - 1) {
		struct pp_provider *arena = arena_on(nid, PP_HUGE_NONE);
		struct page_pool *pool = all_pages(arena, p);

		CHECK_EQ(info_of(arena).lacks, PP_LACKS_NODE);
		CHECK_EQ(info_of(arena).nid, nid);
		CHECK_EQ(pp_page_nid(p[0]), nid);
		CHECK_EQ(pp_page_nid(p[3071]), nid);
		put_n(pool, 3072, p, false);
		end(pool, arena);
	}
}

/* Memory that somebody has is where it is. */
TEST(region_is_not_bound)
{
	struct pp_region_params params = PP_REGION_PARAMS_INIT;
	struct pp_provider *region;

	params.length = MIB;
	params.memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(params.memory != MAP_FAILED);
	for (params.nid = 0; params.nid < PP_MAX_NUMA_NODES; params.nid += PP_MAX_NUMA_NODES - 1) {
		CHECK_OK(pp_region_create(&params, &region));
		CHECK_EQ(info_of(region).lacks, 0);
		CHECK_EQ(info_of(region).nid, params.nid);
		if (can_bind())
			CHECK_EQ(node_of_policy(params.memory), -1);
		pp_provider_put(region);
	}
	munmap(params.memory, MIB);
}

/* ---- huge pages -------------------------------------------------------------------------------
 */

TEST(transparent_huge_pages)
{
	struct pp_arena_params params = PP_ARENA_PARAMS_INIT;
	struct pp_provider *arena;
	struct page_pool *pool;
	struct pp_page *page;
	int err;

	params.limit = 8 * MIB;
	params.huge = PP_HUGE_THP;
	err = pp_arena_create(&params, &arena);
	if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK)) {
		/* A system without them (or an emulator): refused, or taken as advice. */
		CHECK(!err || strstr(page_pool_last_error(), "no transparent huge pages"));
		if (err)
			return;
	}
	CHECK_OK(err);
	CHECK_EQ(info_of(arena).huge, PP_HUGE_THP);
	CHECK_EQ(info_of(arena).mapped, 4 * MIB); /* tried out at once */
	pool = pool_of_order(arena, 9);
	page = page_pool_alloc_pages(pool);
	memset(pp_page_address(page), 1, pp_page_size(page));
	page_pool_put_full_page(pool, page, true);
	end(pool, arena);
}

#ifndef PP_TSAN /* which takes the fork handlers of a process with threads for a race */
#define THP "/sys/kernel/mm/transparent_hugepage/"

/* This mount namespace's file says that. */
static bool let_say(const char *path, const char *text)
{
	char own[] = "/tmp/pagepool-test-XXXXXX";
	int fd = mkstemp(own), err;

	CHECK(fd >= 0);
	CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	(void)umount2(path, MNT_DETACH); /* what it was made to say before */
	err = mount(own, path, NULL, MS_BIND, NULL);
	unlink(own);
	return !err;
}

static unsigned lacks_thp(unsigned huge)
{
	struct pp_provider *arena = arena_on(PP_NUMA_NO_NODE, huge);
	struct page_pool *pool = make_pool(arena, 0, NULL);
	struct pp_page *page = page_pool_alloc_pages(pool);
	unsigned lacks = info_of(arena).lacks;

	CHECK(page);
	memset(pp_page_address(page), 1, PP_PAGE_SIZE);
	page_pool_put_full_page(pool, page, true);
	end(pool, arena);
	return lacks;
}

/* 77: the system does not let us. */
static int with_thp_settings(void)
{
	static const struct {
		const char *all, *of_2m; /* of_2m NULL: leave it */
		unsigned lacks;
	} settings[] = {
		{"always madvise [never]\n", NULL, PP_LACKS_THP},
		{"always [madvise] never\n", NULL, 0},
		{"[always] madvise never\n", NULL, 0},
		{"", NULL, 0}, /* it does not say */
		{"always madvise [never]\n", "always inherit [madvise] never\n", 0},
		{"[always] madvise never\n", "always inherit madvise [never]\n", PP_LACKS_THP},
		{"[always] madvise never\n", "always [inherit] madvise never\n", 0},
		{"always madvise [never]\n", "always [inherit] madvise never\n", PP_LACKS_THP},
	};

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return 77;
	/* Whatever this machine says of that size. */
	if (!access(THP "hugepages-2048kB/enabled", F_OK) &&
	    !let_say(THP "hugepages-2048kB/enabled", "always [inherit] madvise never\n"))
		return 77;
	for (size_t i = 0; i < PP_ARRAY_SIZE(settings); i++) {
		if (settings[i].of_2m && access(THP "hugepages-2048kB/enabled", F_OK))
			break; /* before Linux 6.8 */
		if (!let_say(THP "enabled", settings[i].all) ||
		    (settings[i].of_2m &&
		     !let_say(THP "hugepages-2048kB/enabled", settings[i].of_2m)))
			return 77;
		printf("# setting %zu\n", i);
		CHECK_EQ(lacks_thp(PP_HUGE_THP), settings[i].lacks);
		CHECK_EQ(lacks_thp(PP_HUGE_NONE), 0); /* it was not asked for */
	}
	return 0;
}

/* The process has them switched off for itself. */
static int without_thp(void)
{
	if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
		return 77;
	CHECK_EQ(lacks_thp(PP_HUGE_THP), PP_LACKS_THP);
	CHECK_EQ(lacks_thp(PP_HUGE_NONE), 0);
	return 0;
}

TEST(transparent_huge_pages_switched_off)
{
	if (access(THP "enabled", R_OK)) {
		printf("# skipped: a system without\n");
		return;
	}
	in_a_child(with_thp_settings);
	in_a_child(without_thp);
}
#endif

static long free_huge_pages(void)
{
	FILE *f = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
	long n = 0;

	if (f) {
		if (fscanf(f, "%ld", &n) != 1)
			n = 0;
		fclose(f);
	}
	return n;
}

TEST(reserved_huge_pages_or_a_clear_word)
{
	struct pp_arena_params params = PP_ARENA_PARAMS_INIT;
	struct pp_provider *arena = NULL;
	int err;

	params.limit = 4 * MIB;
	params.huge = PP_HUGE_HUGETLB;
	err = pp_arena_create(&params, &arena);
	if (err) {
		CHECK(free_huge_pages() < 2);
		CHECK_FAILS(err, err == -ENOMEM ? ENOMEM : EINVAL,
			    "no reserved huge pages to be had: see /proc/sys/vm/nr_hugepages");
		CHECK_PTR(arena, NULL);
	} else {
		struct page_pool *pool = make_pool(arena, 0, NULL);
		struct pp_page *page = page_pool_alloc_pages(pool);

		CHECK_EQ(info_of(arena).huge, PP_HUGE_HUGETLB);
		memset(pp_page_address(page), 1, pp_page_size(page));
		page_pool_put_full_page(pool, page, true);
		end(pool, arena);
	}
}
