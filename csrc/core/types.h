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
 *   in flight               = held - released_here - released by producers for lack of room
 *                             (ring.released, lane.released) - released elsewhere (pending)
 *   cached pages + pages in ring, list and lanes <= in flight
 *   every page in cache, ring or list: ref == PP_REF_ONE, owner == the pool's, not held
 *   every page in a lane: likewise, but held with the word that its entry has; with another one it
 *                         was put twice
 *   every page that the pool has handed out: owner == the pool's, held
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
	uint64_t ref;    /* see PP_REF_*; anyone who holds the page, atomic */
	uintptr_t owner; /* its pool, see pool.owner; 0 once it has left; holder, atomic */
	void *addr;      /* constant; a user's provider: while it is handed out, atomic */
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
	/* In a pool that maps and tracks: its id while it is mapped, PP_MAPPED_BUSY added while
	 * somebody syncs or unmaps it, 0 else; see dma.c. Atomic. */
	uint32_t mapped;
	/* In a list, or a cache that is one: the page behind it, index + 1, 0: none. Whoever has
	 * the list. */
	uint32_t link;
	int16_t nid;   /* NUMA node; written while the provider owns the page */
	uint8_t order; /* of the block that starts here; likewise, atomic */
	uint8_t state; /* enum pp_page_state; owner of the moment, atomic */
	/* While it is PP_MAPPED_BUSY: which thread is at it, PP_CLAIM_UNMAPS added if it unmaps;
	 * see dma.c. Claimant, atomic. */
	uint32_t claimant;
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

/*
 * Checked mode: what is known of a page. In step with its metadata, so of the same size. Whoever
 * allocates or puts the page writes it, anyone may read it, atomic.
 */
struct pp_record {
	const void *alloc_caller; /* NULL: not by a checked pool yet */
	const char *alloc_tag;
	int64_t alloc_ns;
	const void *put_caller; /* NULL: not put since */
	const char *put_tag;
	uint32_t alloc_thread;
	uint32_t put_thread;
	uint32_t pool;   /* id */
	uint32_t pieces; /* handed out and not back */
	bool cut;        /* into pieces: without any it is the pool's */
	bool poisoned;
	bool unreadable;
} PP_ALIGNED(PP_CACHELINE);

_Static_assert(sizeof(struct pp_record) == sizeof(struct pp_page), "records and pages in step");

/*
 * pp_provider.held[]: 0: no pool has the page, or its cache or ring. Else its user has it and may
 * put it (PP_HELD), or has and it is on its way (PP_HELD_GOING; mapped and checked pools only);
 * above these two bits a stamp of this allocation, so that a lane's entry of an earlier one is
 * recognised.
 */
#define PP_NOT_HELD 0u
#define PP_HELD 1u
#define PP_HELD_GOING 2u
#define PP_HELD_STAMP_SHIFT 2

struct pp_provider {
	const struct pp_provider_ops *ops; /* constant */
	int64_t refs;                      /* creator and pools; anyone, atomic */
	/* constant: address space for the metadata of nr pages, a chunk in use is committed whole
	 */
	struct pp_page *pages;
	uint32_t nr;
	/*
	 * One word a page, as many as pages: its user has it, and may put it (see pp_held()).
	 * Beside the metadata, not in it: it is written at each allocation and each put, and 32
	 * pages that travel together then share one line instead of moving 32 between two CPUs.
	 */
	uint16_t *held;
	/* As many records as pages, once a checked pool uses it; written under a lock of check.c,
	 * read by who has a checked pool. */
	struct pp_record *records;
};

/* ---- device ------------------------------------------------------------------------------------
 */

#define PP_MAPPED_BUSY (1u << 31)  /* ids have 31 bits */
#define PP_CLAIM_UNMAPS (1u << 31) /* threads have 22 bits */

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
	uint64_t released;       /* pages that did not fit and are counted out by this; likewise */
	uint64_t released_dying; /* pages that came after the pool was destroyed; likewise */
	uint64_t syncs;          /* pages synced for the device by producers, and bytes; likewise */
	uint64_t sync_bytes;
	/* The list design has a list instead of the queue: index + 1, under the lock. */
	uint32_t first PP_ALIGNED(PP_CACHELINE), last;
	uint32_t listed; /* pages in it; read by the consumer, atomic */
	/* constant */
	struct pp_page **queue PP_ALIGNED(PP_CACHELINE);
	uint32_t size;
	uint32_t batch; /* slots cleared at once */
	/* consumer */
	uint32_t consumer_head PP_ALIGNED(PP_CACHELINE); /* next slot to empty */
	uint32_t consumer_tail;                          /* first slot emptied and not cleared */
};

/* ---- lanes ------------------------------------------------------------------------------------
 */

/*
 * A lane: one thread's way to return pages to one pool. A circle of entries, each with the number
 * of a page, its held word and its node: so the consumer takes a page back without a look at its
 * metadata, which is in the cache of whoever put it. See lanes.h.
 */
struct pp_lane {
	/* constant, but for dying: what both sides read for every page, so it is on no line that
	 * either of them writes */
	uint64_t *entries PP_APART;
	uint32_t size; /* how many may be in it */
	uint32_t mask; /* places for entries, less 1 */
	uint32_t pool; /* id */
	bool dying;    /* the pool was destroyed; consumer writes it once, atomic */
	/* its thread; read by anyone, atomic */
	uint64_t tail PP_APART; /* entries ever put in */
	uint64_t head_seen;     /* head, when it was last looked at */
	uint64_t ring_full;     /* calls that found no room */
	uint64_t syncs;         /* pages synced for the device, and bytes */
	uint64_t sync_bytes;
	/* its thread, once for PP_LANE_BATCH entries */
	uint64_t published PP_APART;
	/* consumer; read by anyone, atomic */
	uint64_t head PP_APART; /* entries ever taken out */
	uint64_t seen;          /* published, when it was last looked at */
	uint64_t refused;       /* entries of pages that were put twice */
	/* under the lock, which is for when it is full, and for the end */
	struct pp_spinlock lock PP_APART;
	uint64_t released;       /* pages that did not fit; read by anyone, atomic */
	uint64_t released_dying; /* pages that came after the pool was destroyed; likewise */
	/* */
	struct pp_lane *next;      /* of the pool's lanes; atomic */
	struct pp_lane *next_mine; /* of the thread's */
	uint32_t taken;            /* a thread has it; atomic */
	uint32_t refs;             /* pool and thread; atomic */
};

struct pp_lanes {
	struct pp_spinlock lock; /* for who makes one, and for destroy */
	bool closed;
	struct pp_lane *first; /* in the order in which they were made; atomic */
	struct pp_lane *last;
};

/* ---- DMA --------------------------------------------------------------------------------------
 */

/* What a pool and its device have to do with each other: see dma.c. */
struct pp_dma {
	/* constant */
	struct pp_device *device; /* NULL: pages are not mapped */
	bool tracked;             /* destroy unmaps what is out */
	uint32_t offset;
	uint32_t max_len;
	enum pp_dma_direction dir;
	bool sync; /* pages are synced for the device */
	/* consumer, read by anyone, atomic */
	uint64_t maps PP_ALIGNED(PP_CACHELINE);
	uint64_t map_errors;
	uint64_t unmaps_here;
	uint64_t unmaps_destroy;
	uint64_t syncs_here;
	uint64_t sync_bytes_here;
	/* anyone, atomic */
	uint64_t unmaps_elsewhere PP_ALIGNED(PP_CACHELINE);
	uint64_t unmaps_skipped;
	uint64_t syncs_skipped;
	/* Pages that somebody else held, outside of the consumer's context. Pools without a device
	 * have no such counter, see released_elsewhere() in stats.c: here it is counted next to the
	 * unmap, which costs more. */
	uint64_t released_refcnt;
};

/* ---- pool -------------------------------------------------------------------------------------
 */

/*
 * In a page's owner: this is no plain pool, so that the one comparison of a put finds out and all
 * that is special costs the plain ones nothing.
 */
#define PP_OWNER_SPECIAL ((uintptr_t)1)

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
	/* What every put reads, on whatever CPU, so nothing that changes at each allocation is
	 * here. Constant, but for napi. */
	uintptr_t owner PP_ALIGNED(PP_CACHELINE); /* in its pages: the pool, see PP_OWNER_SPECIAL */
	uintptr_t held_base;                      /* see pp_held() */
	struct pp_napi *napi; /* never NULL; consumer writes, anyone reads, atomic */
	struct pp_page *all;  /* the provider's metadata */
	uintptr_t to_record;  /* checked: from a page's metadata to its record */
	uint32_t id;
	bool checked;
	bool formalities; /* mapped or checked: pages do not just come and go */
	bool lanes_on;    /* PP_DESIGN_OURS */
	bool no_ring;     /* pages come back by lanes, or by a list */
	bool list_cache;  /* PP_LIST_CACHE */
	bool detour;      /* checked, or the cache is a list: not the common allocation */
	bool has_stats;

	/* consumer, every allocation and direct put */
	struct pp_cache cache PP_ALIGNED(PP_CACHELINE);
	uint32_t cache_top;                         /* the cache is a list: index + 1 */
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

	struct pp_lane *lane_cursor; /* where the next refill begins; NULL: the ring */

	/* anyone */
	uint64_t pending PP_ALIGNED(PP_CACHELINE);
	uint64_t refused; /* puts that did nothing */
	uint64_t inside;  /* checked: the thread in a consumer's call, 0: none; atomic */

	struct pp_ring ring;
	struct pp_lanes lanes;
	struct pp_dma dma;

	/* constant */
	struct pp_provider *provider PP_ALIGNED(PP_CACHELINE);
	unsigned flags;  /* PP_FLAG_* */
	unsigned design; /* PP_DESIGN_* */
	uint8_t order;
	bool checked_full;
	uint32_t poison_offset; /* checked, not fully: where in a page, bytes */
	bool own_provider;      /* made with the pool */
	/* A bit for each chunk of the provider's metadata that a page ever came from, so that they
	 * can be found; NULL: neither tracked nor checked. The bits: consumer, atomic. */
	uint64_t *chunks;
	unsigned retry_ms;
	unsigned warn_ms;

	/* tear-down; under its lock */
	struct pp_napi_ref *napi_refs;  /* consumer */
	struct page_pool *next, **link; /* list of destroyed pools with pages out */
	bool dead;    /* checked: freed, and kept for a while to tell who still uses it; atomic */
	bool watched; /* it is in the list; constant once destroyed */
	bool settled; /* destroyed, and the consumer's own account is looked at no more; atomic */
	int64_t destroyed_ns, next_warn_ns; /* CLOCK_MONOTONIC */
	int64_t next_retry_ns;
};

#endif
