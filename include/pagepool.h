/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pagepool: the Linux kernel's page_pool in user space.
 *
 * A page_pool keeps pages in circulation: a page that comes back is handed out again, and only the
 * overflow reaches the page allocator (here: a provider). One pool serves one consumer.
 *
 * Contexts
 *   consumer   the one thread that allocates. With a napi: the thread that has entered it. Without:
 *              whoever the caller makes sure is alone.
 *   anyone     any thread, at any time until it has given up its page.
 * Every function says which of the two may call it. The library trusts that, as the kernel does.
 *
 * Errors: functions that can fail return 0 or a negative errno; page_pool_last_error() has the
 * reason in one line. Outputs come last and are untouched on failure.
 *
 * Memory: a page's memory stays mapped until the last reference to the page is gone, even if its
 * pool and its provider were destroyed long before.
 *
 * fork: the child must not use a pool, page, napi or provider of its parent. It can make its own.
 */
#ifndef PAGEPOOL_H
#define PAGEPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PAGEPOOL_VERSION_MAJOR 0
#define PAGEPOOL_VERSION_MINOR 1
#define PAGEPOOL_VERSION_PATCH 0

#if defined(__GNUC__)
#define PAGEPOOL_API __attribute__((visibility("default")))
#else
#define PAGEPOOL_API
#endif

/* A page is 4096 bytes on every machine: the frame of XDP and the kernel's page on x86-64. */
#define PP_PAGE_SHIFT 12
#define PP_PAGE_SIZE ((size_t)1 << PP_PAGE_SHIFT)
/* Largest order of a page: 4 MiB (MAX_PAGE_ORDER). */
#define PP_MAX_PAGE_ORDER 10
/* The cache holds a poll's worth of direct returns (64) on top of a refill (64). */
#define PP_ALLOC_CACHE_SIZE 128
#define PP_ALLOC_CACHE_REFILL 64
#define PP_DEFAULT_POOL_SIZE 1024
/* A larger pool_size is clamped to this, as in Linux 6.17. */
#define PP_MAX_POOL_SIZE 16384
/* No node asked for: whatever the provider hands out is right. */
#define PP_NUMA_NO_NODE (-1)
#define PP_MAX_NUMA_NODES 1024

struct page_pool;
struct pp_page;     /* the metadata of one page (of 1 << order pages of PP_PAGE_SIZE) */
struct pp_napi;     /* the context of a consumer */
struct pp_provider; /* where pages come from and go to: the page allocator */

/* ---- library ------------------------------------------------------------------------------ */

/* "0.1.0": of the library that was loaded, to hold against PAGEPOOL_VERSION_*. */
PAGEPOOL_API const char *page_pool_version(void);

/*
 * Why the calling thread's last failed call failed: one line, never NULL, valid until its next
 * failed call.
 */
PAGEPOOL_API const char *page_pool_last_error(void);

/*
 * Messages (the stalled pool): fn(ctx, text), text without a newline. Called from a thread of the
 * library's own, without any of its locks. NULL: standard error, the default. When the call
 * returns, the old fn is not running and will not be called again; so it must not be called from
 * within fn.
 */
typedef void (*page_pool_log_fn)(void *ctx, const char *text);
PAGEPOOL_API void page_pool_set_log(page_pool_log_fn fn, void *ctx);

/* ---- providers ---------------------------------------------------------------------------- */

enum pp_hugepages {
	PP_HUGE_NONE = 0, /* PP_PAGE_SIZE pages of the system's */
	PP_HUGE_THP,      /* transparent: madvise(MADV_HUGEPAGE), the system may or may not */
	PP_HUGE_HUGETLB,  /* from the system's reserved huge pages, or creation and growth fail */
};

struct pp_arena_params {
	size_t size;    /* sizeof(struct pp_arena_params), set by PP_ARENA_PARAMS_INIT */
	size_t limit;   /* bytes, rounded up to 4 MiB; 0: the machine's memory, 64 GiB at most */
	size_t reserve; /* bytes below the limit that are handed out marked pfmemalloc */
	int nid;        /* the node that all its pages are on; PP_NUMA_NO_NODE: a page is on
			   the node of the pool that asked for it */
	unsigned huge;  /* enum pp_hugepages */
};
#define PP_ARENA_PARAMS_INIT                                                   \
	{                                                                      \
		.size = sizeof(struct pp_arena_params), .nid = PP_NUMA_NO_NODE \
	}

/*
 * An arena of anonymous memory. Grows by 4 MiB; address space for the whole limit is reserved at
 * once, memory is not. Safe from any thread. Fails with -EINVAL, -ENOMEM.
 * The caller has one reference; every pool takes its own.
 */
PAGEPOOL_API int pp_arena_create(const struct pp_arena_params *params, struct pp_provider **ret);

struct pp_region_params {
	size_t size;    /* sizeof(struct pp_region_params), set by PP_REGION_PARAMS_INIT */
	void *memory;   /* the caller's, readable and writable, aligned to PP_PAGE_SIZE */
	size_t length;  /* bytes; what is left over after whole pages is not used */
	size_t reserve; /* as in pp_arena_params */
	int nid;        /* likewise */
	/* Called once, when the last reference and the last page are gone: the memory is the
	 * caller's again. From whatever thread that happens in, and it must not call the library.
	 * NULL: nobody needs to know. */
	void (*release)(void *ctx, void *memory, size_t length);
	void *ctx;
};
#define PP_REGION_PARAMS_INIT                                                   \
	{                                                                       \
		.size = sizeof(struct pp_region_params), .nid = PP_NUMA_NO_NODE \
	}

/*
 * Pages out of memory that the caller has: shared memory, a file mapping, a UMEM. A page of a
 * higher order is aligned to its size from the start of the memory. Safe from any thread. -EINVAL,
 * -ENOMEM.
 */
PAGEPOOL_API int pp_region_create(const struct pp_region_params *params, struct pp_provider **ret);
PAGEPOOL_API void pp_provider_get(struct pp_provider *provider);
/* The memory goes when the last reference and the last page are gone. */
PAGEPOOL_API void pp_provider_put(struct pp_provider *provider);

struct pp_provider_info {
	size_t size;     /* sizeof(struct pp_provider_info) of the caller */
	uint64_t limit;  /* bytes */
	uint64_t mapped; /* bytes that it got from the system so far */
	uint64_t out;    /* bytes handed out and not yet back */
	uint64_t failed; /* requests that ended with no page at all */
	int nid;
	unsigned huge; /* enum pp_hugepages */
};
PAGEPOOL_API int pp_provider_get_info(struct pp_provider *provider, struct pp_provider_info *ret);
/* The page that holds this address; NULL: none of this provider's that is handed out. */
PAGEPOOL_API struct pp_page *pp_provider_page(struct pp_provider *provider, const void *address);

/* ---- napi: the consumer's context ---------------------------------------------------------- */

PAGEPOOL_API int pp_napi_create(struct pp_napi **ret);
/* Pools that were bound to it keep what they need of it. Fails with -EBUSY while entered. */
PAGEPOOL_API int pp_napi_destroy(struct pp_napi *napi);
/* From here on the calling thread is the consumer. May be nested. -EBUSY: another thread is. */
PAGEPOOL_API int pp_napi_enter(struct pp_napi *napi);
/* -EPERM: the calling thread is not in it. */
PAGEPOOL_API int pp_napi_exit(struct pp_napi *napi);
/* Is the calling thread in it? */
PAGEPOOL_API bool pp_napi_entered(const struct pp_napi *napi);

/* ---- pools -------------------------------------------------------------------------------- */

/* Flags keep the kernel's numbers; 0x1 to 0x8 are taken by its DMA and system-pool flags. */
#define PP_FLAG_NO_STATS 0x10000u /* no statistics: page_pool_get_stats gives -EOPNOTSUPP */
#define PP_FLAG_ALL (PP_FLAG_NO_STATS)

struct page_pool_params {
	size_t size;          /* sizeof(struct page_pool_params), set by PAGE_POOL_PARAMS_INIT */
	unsigned flags;       /* PP_FLAG_*; unknown ones are refused */
	unsigned order;       /* a page of this pool is PP_PAGE_SIZE << order bytes */
	unsigned pool_size;   /* slots of the ring, pages; 0: 1024; over 16384: clamped */
	int nid;              /* NUMA node that pages should be on, or PP_NUMA_NO_NODE */
	struct pp_napi *napi; /* the consumer's context, or NULL */
	struct pp_provider *provider; /* NULL: an arena of its own */
	/* How often a destroyed pool with pages out looks again, and how often it says that it is
	 * stalled, in milliseconds. 0: 1000 and 60000, the kernel's. */
	unsigned retry_ms;
	unsigned warn_ms;
};
#define PAGE_POOL_PARAMS_INIT                                                   \
	{                                                                       \
		.size = sizeof(struct page_pool_params), .nid = PP_NUMA_NO_NODE \
	}

/* -EINVAL: a bad parameter; -ENOMEM: no memory for the pool itself. Pages come later. */
PAGEPOOL_API int page_pool_create(const struct page_pool_params *params, struct page_pool **ret);
/*
 * Consumer, who is not in the pool's napi any more in any thread, and allocates never again.
 * Empties cache and ring. The pool is freed at once if no page is out, else by the last page to
 * come back.
 */
PAGEPOOL_API void page_pool_destroy(struct page_pool *pool);

/*
 * Keeps the struct, not the pages: whoever has a reference may ask for inflight and statistics
 * after the pool was destroyed. Anyone, while the pool lives.
 */
PAGEPOOL_API void page_pool_ref(struct page_pool *pool);
PAGEPOOL_API void page_pool_unref(struct page_pool *pool);

/* Consumer. NULL: no page to be had. The page's memory is not cleared. */
PAGEPOOL_API struct pp_page *page_pool_alloc_pages(struct page_pool *pool);
/* Consumer. Up to n pages into pages[]; how many. Stops early when there is no page to be had. */
PAGEPOOL_API size_t page_pool_alloc_pages_bulk(struct page_pool *pool, size_t n,
					       struct pp_page **pages);

/*
 * Consumer. A piece of a page for a small buffer: size bytes, rounded up to 64, at *offset of the
 * page that is returned. Pieces of one page are handed out one after the other until the next does
 * not fit; each is put by itself, with any of the put calls, and the last one gives the page back.
 * NULL: no page to be had, or size is 0 or larger than a page of this pool (see
 * page_pool_last_error).
 */
PAGEPOOL_API struct pp_page *page_pool_alloc_frag(struct page_pool *pool, size_t *offset,
						  size_t size);

/*
 * Anyone who holds the page, or a piece of it. allow_direct is the promise that the caller runs
 * where the consumer runs; it becomes true by itself inside the pool's napi. The first
 * min(dma_sync_size, max_len) bytes are what the device may have to see (no device yet: ignored).
 * A page that somebody else holds too (pp_page_get), or from emergency reserves, leaves the pool.
 */
PAGEPOOL_API void page_pool_put_page(struct page_pool *pool, struct pp_page *page,
				     unsigned dma_sync_size, bool allow_direct);
PAGEPOOL_API void page_pool_put_full_page(struct page_pool *pool, struct pp_page *page,
					  bool allow_direct);
/* Consumer: put_full with allow_direct. */
PAGEPOOL_API void page_pool_recycle_direct(struct page_pool *pool, struct pp_page *page);
/*
 * Anyone. n pages, possibly of several pools; each ring's lock is taken once for up to 64 pages.
 * Direct for the pools whose napi the caller is in. pages[] is scratch space afterwards.
 */
PAGEPOOL_API void page_pool_put_page_bulk(struct pp_page **pages, size_t n);

/* Consumer. From now on pages should be on this node: the cache goes back to the provider. */
PAGEPOOL_API int page_pool_update_nid(struct page_pool *pool, int nid);
/* Consumer, or nobody yet. -EBUSY: bound to another napi. */
PAGEPOOL_API int page_pool_enable_direct_recycling(struct page_pool *pool, struct pp_napi *napi);
/* With the napi not entered by any thread (-EBUSY), or nothing bound. */
PAGEPOOL_API int page_pool_disable_direct_recycling(struct page_pool *pool);

/*
 * Anyone, while the pool lives. Pages handed out or in cache or ring, that is held - released in
 * 32-bit serial arithmetic; negative: more came back than went out, a bug.
 */
PAGEPOOL_API int32_t page_pool_inflight(const struct page_pool *pool);
/* Anyone, while the pool lives: number from 1, unique in the process; and as it was created. */
PAGEPOOL_API uint32_t page_pool_id(const struct page_pool *pool);
PAGEPOOL_API unsigned page_pool_order(const struct page_pool *pool);
PAGEPOOL_API unsigned page_pool_size(const struct page_pool *pool);
PAGEPOOL_API int page_pool_nid(const struct page_pool *pool);
/* Anyone, while the pool lives: a reference-free look at its provider. */
PAGEPOOL_API struct pp_provider *page_pool_provider(const struct page_pool *pool);

/*
 * The kernel's statistics, X(group, name). Every allocation is one of fast, slow, slow_high_order,
 * refill; every page put that nobody else holds is one of cached, ring, ring_full.
 */
#define PAGE_POOL_STATS(X)                                                                       \
	X(alloc, fast)              /* popped from the cache */                                  \
	X(alloc, slow)              /* order 0 from the provider: calls, not pages */            \
	X(alloc, slow_high_order)   /* higher order from the provider */                         \
	X(alloc, empty)             /* the ring was empty: on to the provider */                 \
	X(alloc, refill)            /* popped after the cache was refilled from the ring */      \
	X(alloc, waive)             /* taken from the ring, on the wrong node, given back */     \
	X(recycle, cached)          /* put into the cache */                                     \
	X(recycle, cache_full)      /* did not fit into the cache: on to the ring */             \
	X(recycle, ring)            /* put into the ring */                                      \
	X(recycle, ring_full)       /* did not fit into the ring: left the pool (bulk: calls) */ \
	X(recycle, released_refcnt) /* held by somebody else, or pfmemalloc: left the pool */

struct page_pool_stats {
	size_t size; /* sizeof(struct page_pool_stats) of the caller */
#define PP_STATS_FIELD(group, name) uint64_t group##_##name;
	PAGE_POOL_STATS(PP_STATS_FIELD)
#undef PP_STATS_FIELD
};
/* Anyone, while the pool lives. Never stops the pool. -EOPNOTSUPP: made without statistics. */
PAGEPOOL_API int page_pool_get_stats(const struct page_pool *pool, struct page_pool_stats *ret);

/* ---- pages: for whoever holds one ----------------------------------------------------------- */

/* The pool that the page belongs to; NULL: it has left its pool. */
PAGEPOOL_API struct page_pool *page_pool_get_pp(const struct pp_page *page);
PAGEPOOL_API void *pp_page_address(const struct pp_page *page);
PAGEPOOL_API size_t pp_page_size(const struct pp_page *page);
PAGEPOOL_API unsigned pp_page_order(const struct pp_page *page);
PAGEPOOL_API int pp_page_nid(const struct pp_page *page);
/* From emergency reserves: use it to free memory, then give it back. */
PAGEPOOL_API bool pp_page_is_pfmemalloc(const struct pp_page *page);
PAGEPOOL_API int pp_page_ref_count(const struct pp_page *page);
/* Pieces of it that are out, and those the pool may still hand out; 1: it is not in pieces. */
PAGEPOOL_API long pp_page_users(const struct pp_page *page);
/* A word for whoever holds the page, as page_private() in the kernel; NULL when it enters a pool.
 */
PAGEPOOL_API void *pp_page_private(const struct pp_page *page);
PAGEPOOL_API void pp_page_set_private(struct pp_page *page, void *private_);
/* get_page: one more holder. The caller holds the page already. */
PAGEPOOL_API void pp_page_get(struct pp_page *page);
/* put_page: gives up what pp_page_get took. The last one gives the page to its provider. */
PAGEPOOL_API void pp_page_put(struct pp_page *page);

#ifdef __cplusplus
}
#endif
#endif /* PAGEPOOL_H */
