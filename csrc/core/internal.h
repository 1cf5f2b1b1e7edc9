/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the core say to each other. */
#ifndef PP_CORE_INTERNAL_H
#define PP_CORE_INTERNAL_H

#include <errno.h>

#include "types.h"

/* ---- error.c ---- */
/* Remembers why, for page_pool_last_error(); returns err (a negative errno). */
PP_COLD int pp_fail(int err, const char *fmt, ...) PP_PRINTF(2, 3);
/*
 * Are the bytes of a caller's parameter struct beyond what this library knows all zero, and is it
 * at least min bytes long? what: the struct's name for the message.
 */
int pp_check_size(const char *what, const void *params, size_t size, size_t min, size_t known);

/* Can a NUMA node have this number? PP_NUMA_NO_NODE can. */
int pp_check_nid(int nid);

/* ---- log.c ---- */
PP_COLD void pp_log(const char *fmt, ...) PP_PRINTF(1, 2);

/* ---- sys.c: every call of the system that can fail; tests make them fail ---- */
void *pp_sys_calloc(size_t n, size_t size);
void *pp_sys_aligned_zalloc(size_t alignment, size_t size);
/* Address space without memory, aligned; NULL on failure. */
void *pp_sys_reserve(size_t size, size_t alignment);
void pp_sys_unreserve(void *addr, size_t size);
/* Makes part of it usable; a negative errno. */
int pp_sys_commit(void *addr, size_t size, unsigned huge);
/* What is touched there for the first time from now on comes from this node, as long as that has
 * some left; a negative errno: there is no such node, or no call for it. */
int pp_sys_bind(void *addr, size_t size, int nid);
/* Has the system its transparent huge pages switched off? False if it does not say. */
bool pp_sys_thp_is_off(void);
int pp_sys_thread(void *(*fn)(void *));
/* Memory that cannot, or can again, be read and written; a negative errno. */
int pp_sys_unreadable(void *addr, size_t size, bool on);
int64_t pp_sys_now_ns(void);
#ifdef PP_FAULT_INJECTION
/* The n-th call from now on fails, once; 0: none. Returns what was left of the last countdown. */
#define PP_FAIL_ALL INT64_MIN /* as n: every call fails */
int64_t pp_sys_fail_nth(int64_t n);
#endif

/* ---- napi.c ---- */
/* initial-exec: one load relative to the thread pointer, also in a shared library. 8 bytes of the
 * loader's static reserve. */
extern _Thread_local uint64_t pp_thread_id __attribute__((tls_model("initial-exec")));
extern struct pp_napi pp_napi_none;
void pp_napi_unref(struct pp_napi *napi);

/* Is the caller the consumer of this pool, as far as the pool knows? */
static inline bool pp_napi_local(const struct page_pool *pool)
{
	/* relaxed: only the calling thread itself ever writes its own number there, and it sees its
	 * own writes in order; any other value, however old, is not its number. */
	const struct pp_napi *napi = pp_load_relaxed(&pool->napi);

	return pp_load_relaxed(&napi->owner) == pp_thread_id;
}

/* ---- stats.c ---- */
static inline void pp_stats_begin(struct page_pool *pool)
{
	/* relaxed: the counters below are stored with release, after this. */
	pp_store_relaxed(&pool->stats_seq, pool->stats_seq + 1);
}

static inline void pp_stats_end(struct page_pool *pool)
{
	/* release: a reader that sees the even number sees the counters. */
	pp_store_release(&pool->stats_seq, pool->stats_seq + 1);
}

/* Within begin and end. release: a reader that sees the new value sees the odd number too. */
#define pp_stats_add(p, n) pp_store_release((p), *(p) + (n))

/* ---- provider.c: the metadata of a kind of provider ---- */
#define PP_MAX_PAGES (UINT32_MAX - PP_CHUNK_PAGES)
/* Address space for that of nr pages; 0 or -ENOMEM. */
int pp_provider_reserve_pages(struct pp_provider *provider, uint32_t nr);
/* That of the chunk that starts with page first can be used from now on, and is zero. */
int pp_provider_commit_pages(struct pp_provider *provider, uint32_t first);
/* The same for the records of checked pools; under their lock; again: nothing happens. */
int pp_provider_reserve_records(struct pp_provider *provider);
int pp_provider_commit_records(struct pp_provider *provider, const struct pp_page *page);
/* All of it, committed or not, belongs on this node; see pp_sys_bind(). Before any is committed. */
int pp_provider_bind_pages(struct pp_provider *provider, int nid);
void pp_provider_forget_pages(struct pp_provider *provider);

/* For tests, of a pool that is new: as if n pages had come and gone. */
void pp_pool_count_from(struct page_pool *pool, uint64_t n);

/* ---- pool.c ---- */
/* The page leaves the pool. here: in the consumer's context. May free the pool. */
void pp_pool_release(struct page_pool *pool, struct pp_page *page, bool here);
/* What a mapped or checked page has to go through before it is counted out. */
void pp_pool_leave_formally(struct page_pool *pool, struct pp_page *page, bool here);
/* A put that does nothing. */
PP_COLD void pp_pool_refuse(struct page_pool *pool, const struct pp_page *page);
/* Anyone: n pages that nobody else has any part in, through the locked ring. */
void pp_pool_recycle_in_ring(struct page_pool *pool, struct pp_page **pages, size_t n);
/* Consumer: up to n pages of the ring into pages[]; how many. *wrong: one of another node, which
 * ends it; it comes on top. */
size_t pp_pool_consume_ring(struct page_pool *pool, size_t n, struct pp_page **pages,
			    struct pp_page **wrong);
/* Consumer: page_pool_alloc_pages() without the checks. */
struct pp_page *pp_pool_alloc(struct page_pool *pool);
/* Consumer: all of the cache leaves the pool. */
void pp_pool_drain_cache(struct page_pool *pool);

/* What the pool has ever had pages of: calls fn with each chunk of its provider's metadata. */
void pp_pool_each_chunk(struct page_pool *pool,
			void (*fn)(struct page_pool *pool, struct pp_page *pages, void *arg),
			void *arg);
/*
 * n puts did nothing, the last of them of the page at this address; id: of the pool, 0: none.
 * Nobody's lock is held, and pool and page may be gone.
 */
PP_COLD void pp_refused(uint32_t id, const void *address, uint64_t n);

/* ---- check.c: checked mode; see check.h too ---- */
/* The flags that the environment adds. */
unsigned pp_check_flags(void);
/* The pool's provider can have records from now on. */
int pp_check_init(struct page_pool *pool);
/* Instead of a free(): so that who uses the pool later is found out. */
void pp_check_bury(struct page_pool *pool);

/* ---- dma.c ---- */
int pp_dma_init(struct page_pool *pool, const struct page_pool_params *params);
void pp_dma_fini(struct page_pool *pool);
/* Consumer: n pages that are not in the pool yet; those that cannot be mapped go back to their
 * provider, the others move up; how many. */
size_t pp_dma_map(struct page_pool *pool, struct pp_page **pages, size_t n);
/* The page leaves the pool. here: in the consumer's context. */
void pp_dma_unmap(struct page_pool *pool, struct pp_page *page, bool here);
/* Who has the page for himself: the device is to see up to size bytes; how many these were. */
uint32_t pp_dma_sync(struct page_pool *pool, struct pp_page *page, uint32_t size);
/* All of it, in the consumer's context. */
void pp_dma_sync_here(struct page_pool *pool, struct pp_page *page, uint32_t size);
/* Destroy: unmaps all pages that are still mapped, wherever they are. */
void pp_dma_scrub(struct page_pool *pool);

/* ---- frag.c ---- */
/* Consumer: no more pieces of the page that is being cut up. */
void pp_frag_drain(struct page_pool *pool);

/* ---- teardown.c ---- */
PP_COLD void pp_pool_free(struct page_pool *pool);
/* Drops n of pending; frees the pool if these were the last. */
void pp_pool_unpend(struct page_pool *pool, uint64_t n);

/* ---- valid.c: true, or the first broken invariant in *why ---- */
enum pp_tier {
	PP_TIER_QUICK,
	PP_TIER_FULL
};
bool page_pool_is_valid(const struct page_pool *pool, enum pp_tier tier, const char **why);
/* Entries of lanes that will be refused when they are taken out. No producer is at work. */
uint64_t pp_lanes_twice(const struct page_pool *pool);
bool pp_arena_is_valid(struct pp_provider *provider, const char **why);
/* Of a device behind an IOMMU: its page table. */
bool pp_iommu_is_valid(struct pp_device *device, const char **why);
/* Of one that pp_provider_create() made. */
bool pp_user_provider_is_valid(struct pp_provider *provider, const char **why);

#endif
