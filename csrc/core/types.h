/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The design of the pool, as data. Who touches a field decides on which cache line it lives:
 *
 *   consumer    one thread, plain loads and stores (relaxed atomics where others may read)
 *   producers   any thread that puts a page, under the ring's lock
 *   anyone      atomic read-modify-write
 *   constant    written before the pool is visible, never again
 *
 * Invariants, checked by page_pool_is_valid():
 *
 *   cached pages            = pushed - popped, from 0 to capacity
 *   alloc_fast              = popped - refill - slow - drained + reused
 *   recycle_cached          = pushed - filled + reused
 *   in flight               = held - released_here - ring.released - released elsewhere (pending)
 *   cached pages + pages in the ring <= in flight
 *   every page in cache or ring: ref == PP_REF_ONE, pp == the pool
 */
#ifndef PP_CORE_TYPES_H
#define PP_CORE_TYPES_H

#include <pthread.h>

#include "../base/atomic.h"
#include "../base/compiler.h"
#include "../base/spinlock.h"
#include "pagepool.h"

/* ---- page ----------------------------------------------------------------------------------- */

/*
 * pp_page.ref: holders in the low 32 bits; above them what forbids recycling: one bit for emergency
 * reserves, and the users (pieces, see frag.c) less one. So one load and one compare with
 * PP_REF_ONE answer "nobody else has any part in it and it may be recycled".
 */
#define PP_REF_ONE 1ull
#define PP_REF_COUNT_MASK 0xffffffffull
#define PP_REF_PFMEMALLOC (1ull << 32)
#define PP_REF_USER_SHIFT 33
#define PP_REF_USER (1ull << PP_REF_USER_SHIFT)
/* Users of a page that is being cut up: more than it can have pieces (65536). */
#define PP_FRAG_BIAS (1u << 24)

enum pp_page_state {
	PP_PAGE_TAIL = 0, /* not the first of a block, or not mapped yet */
	PP_PAGE_FREE,     /* first of a free block of its order, in the buddy lists */
	PP_PAGE_IDLE,     /* free, in a thread's magazine */
	PP_PAGE_OUT,      /* handed out */
};

/* The metadata of one PP_PAGE_SIZE page, beside the page and never in it: 64 bytes, one line. */
struct pp_page {
	uint64_t ref;                 /* see PP_REF_*; anyone who holds the page, atomic */
	struct page_pool *pp;         /* its pool; NULL once it has left; holder, atomic. With
				       * PP_POOL_SPECIAL added if that pool is */
	void *addr;                   /* constant; a user's provider: while it is handed out */
	struct pp_provider *provider; /* constant */
	void *private_;               /* whoever holds the page */
	union {
		struct {
			uint32_t
				next; /* free: buddy list, index + 1, 0: end; the provider's lock */
			uint32_t prev; /* likewise; 0: first */
		};
		uint64_t dma; /* in a pool that maps: by which address its device knows it */
	};
	/* In a pool that maps and tracks: that pool while it is mapped, PP_MAPPED_BUSY added while
	 * somebody syncs or unmaps it, NULL else; see dma.c. Atomic. */
	uintptr_t mapped;
	int16_t nid;   /* NUMA node; written while the provider owns the page */
	uint8_t order; /* of the block that starts here; likewise, atomic */
	uint8_t state; /* enum pp_page_state; owner of the moment, atomic */
} PP_ALIGNED(PP_CACHELINE);

_Static_assert(sizeof(struct pp_page) == PP_CACHELINE, "a page's metadata is one cache line");

/* ---- provider ---------------------------------------------------------------------------------
 */

struct pp_provider_ops {
	/*
	 * Up to n pages of that order, preferably on node nid, into pages[]; how many. Each has
	 * ref, nid, order and state set, pp == NULL. Any thread.
	 */
	size_t (*alloc)(struct pp_provider *p, unsigned order, int nid, size_t n,
			struct pp_page **pages);
	/* The last holder has let go. Any thread. May free the provider. */
	void (*free)(struct pp_provider *p, struct pp_page *page);
	/* The last reference is gone; pages may still be out. */
	void (*retire)(struct pp_provider *p);
	void (*info)(struct pp_provider *p, struct pp_provider_info *info);
	struct pp_page *(*page)(struct pp_provider *p, const void *address);
};

/* Metadata is committed, and looked through, in chunks of so many pages (4 MiB of order 0). */
#define PP_CHUNK_ORDER PP_MAX_PAGE_ORDER
#define PP_CHUNK_PAGES (1u << PP_CHUNK_ORDER)

struct pp_provider {
	const struct pp_provider_ops *ops; /* constant */
	int64_t refs;                      /* creator and pools; anyone, atomic */
	/* constant: address space for the metadata of nr pages, a chunk in use is committed whole
	 */
	struct pp_page *pages;
	uint32_t nr;
	/*
	 * One byte a page, as many as pages: its user has it, and may put it (see pp_held()).
	 * Beside the metadata, not in it: it is written at each allocation and each put, and 64
	 * pages that travel together then share one line instead of moving 64 between two CPUs.
	 */
	uint8_t *held;
};

/* ---- device ------------------------------------------------------------------------------------
 */

#define PP_MAPPED_BUSY ((uintptr_t)1)

struct pp_device_ops {
	/* 0 or a negative errno. Any thread, as all of them. */
	int (*map)(struct pp_device *d, void *memory, size_t length, enum pp_dma_direction dir,
		   uint64_t *dma);
	void (*unmap)(struct pp_device *d, uint64_t dma, size_t length, enum pp_dma_direction dir);
	void (*sync)(struct pp_device *d, uint64_t dma, size_t offset, size_t length,
		     enum pp_dma_direction dir, bool for_cpu);
	int (*write)(struct pp_device *d, uint64_t dma, const void *data, size_t length);
	int (*read)(struct pp_device *d, uint64_t dma, void *data, size_t length);
	/* NULL: it has no driver that could go */
	int64_t (*unbind)(struct pp_device *d);
	size_t (*mappings)(struct pp_device *d, uint64_t dma, size_t n,
			   struct pp_iommu_mapping *ret); /* NULL: none to be listed */
	/* The last reference is gone. NULL: it is there for ever. */
	void (*retire)(struct pp_device *d);
};

/* What a kind of device has first; all constant but refs. */
struct pp_device {
	const struct pp_device_ops *ops;
	int64_t refs;      /* creator and pools; anyone, atomic */
	bool syncs_device; /* it has to be told what the CPU wrote */
	bool syncs_cpu;    /* and the CPU what it wrote */
	char name[32];
};

/* ---- napi -------------------------------------------------------------------------------------
 */

/* Threads that ever entered a napi have a number from 1 up; 0 is a thread that never did. */
#define PP_NO_THREAD (~0ull)

struct pp_napi {
	uint64_t owner; /* thread inside, or PP_NO_THREAD; written by the owner, atomic */
	uint64_t depth; /* nested entries; owner */
	int64_t refs;   /* creator and pools; anyone, atomic */
};

/* Keeps every napi that a pool was ever bound to, since a producer may still be looking at it. */
struct pp_napi_ref {
	struct pp_napi_ref *next;
	struct pp_napi *napi;
};

/* ---- ring -------------------------------------------------------------------------------------
 */

/*
 * FIFO of pointers; an empty slot is NULL. Producers never read the consumer's indices, nor it
 * theirs: both look at the slots. The consumer clears the slots it has emptied in batches, so a
 * producer can find the ring full while up to batch - 1 slots have been consumed, as in the kernel.
 */
struct pp_ring {
	/* producers */
	struct pp_spinlock lock PP_ALIGNED(PP_CACHELINE);
	uint32_t producer; /* next slot to fill */
	bool dying;        /* the pool was destroyed: nothing enters the ring any more */
	uint64_t ring;     /* statistics, written under the lock, read by anyone, atomic */
	uint64_t ring_full;
	uint64_t released;       /* pages that did not fit and left the pool; likewise */
	uint64_t released_dying; /* pages that came after the pool was destroyed; likewise */
	/* constant */
	struct pp_page **queue PP_ALIGNED(PP_CACHELINE);
	uint32_t size;
	uint32_t batch; /* slots cleared at once */
	/* consumer */
	uint32_t consumer_head PP_ALIGNED(PP_CACHELINE); /* next slot to empty */
	uint32_t consumer_tail;                          /* first slot emptied and not cleared */
};

/* ---- pool -------------------------------------------------------------------------------------
 */

/*
 * LIFO of pages. Two counters that only grow instead of one that goes up and down: an allocation
 * writes one and a put the other, so the two do not wait for each other's store, and the
 * statistics alloc_fast and recycle_cached fall out of them for nothing.
 */
struct pp_cache {
	uint64_t popped;   /* pages taken out; consumer, read by anyone, atomic */
	uint64_t pushed;   /* pages put in; likewise */
	uint64_t capacity; /* PP_ALLOC_CACHE_SIZE; 0 once destroyed; consumer, atomic */
};

/* Consumer's counters of the slower paths, changed within a stats_begin/stats_end pair. */
struct pp_consumer_stats {
	uint64_t filled;  /* pages moved into the cache from ring or provider */
	uint64_t reused;  /* pages of pieces that were all back when the next did not fit */
	uint64_t drained; /* pages taken out of the cache to leave the pool */
	uint64_t slow;
	uint64_t slow_high_order;
	uint64_t empty;
	uint64_t refill;
	uint64_t waive;
	uint64_t cache_full;
	uint64_t released_refcnt;
};

/*
 * page_pool.pending while the pool lives: PP_PENDING_LIVE - pages released elsewhere, which are
 * those that somebody else held; so it never gets near 0. Destroying it takes PP_PENDING_LIVE away
 * and adds what was held, which leaves the pages that are still out. Who brings it to 0 frees the
 * pool. page_pool_ref() adds PP_PENDING_REF;
 * a thousand references and 10^15 pages released elsewhere keep out of each other's way.
 */
#define PP_PENDING_LIVE (1ull << 62)
#define PP_PENDING_REF (1ull << 50)

struct page_pool {
	/* consumer, every allocation and direct put */
	struct pp_cache cache PP_ALIGNED(PP_CACHELINE);
	struct pp_napi *napi; /* never NULL; consumer writes, anyone reads, atomic */
	struct pp_page *pages[PP_ALLOC_CACHE_SIZE]; /* the cache: pages[0 .. cached - 1] */

	/* consumer, refill and slow path; read by anyone, atomic */
	uint64_t held PP_ALIGNED(PP_CACHELINE); /* pages that ever came in */
	uint64_t released_here;                 /* pages released in the consumer's context */
	uint32_t stats_seq;                     /* odd while stats change */
	int32_t nid;                            /* PP_NUMA_NO_NODE or the node asked for */
	struct pp_consumer_stats stats;

	/* consumer, pieces: see frag.c */
	struct pp_page *frag_page; /* being cut up, or NULL */
	size_t frag_offset;        /* where the next piece starts */
	uint32_t frag_users;       /* pieces handed out */

	/* anyone */
	uint64_t pending PP_ALIGNED(PP_CACHELINE);

	struct pp_ring ring;

	/* constant */
	struct pp_provider *provider PP_ALIGNED(PP_CACHELINE);
	uint32_t id;
	uint8_t order;
	bool has_stats;
	unsigned retry_ms;
	unsigned warn_ms;

	/* tear-down; under its lock */
	struct pp_napi_ref *napi_refs;      /* consumer */
	struct page_pool *next, **link;     /* list of destroyed pools with pages out */
	bool watched;                       /* it is in the list; constant once destroyed */
	int64_t destroyed_ns, next_warn_ns; /* CLOCK_MONOTONIC */
	int64_t next_retry_ns;
};

#endif
