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
 * Messages (the stalled pool, a put that was refused): fn(ctx, text), text without a newline.
 * Called from a thread of the library's own or from the call that it is about, without any of its
 * locks. NULL: standard error, the default. When the call returns, the old fn is not running and
 * will not be called again; so it must not be called from within fn.
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
	int nid;        /* the node that all its pages are on: its memory is taken from there
			   as long as there is some; PP_NUMA_NO_NODE: from anywhere, and a page
			   counts as on the node that its pool asked for */
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
	int nid;        /* the node that its pages count as being on: the memory is where its
			   owner has it, and is not bound to anything */
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

/*
 * A provider of the caller's own. Its callbacks come from whatever thread needs a page or gives the
 * last reference to one up, several at once; they must not call the library.
 * What alloc gives wrongly is refused, logged once a second at most, and goes back by free: a block
 * that is not aligned, up to 16 more than n. NULL among them is passed over; a larger number (such
 * as a negative errno) counts as none. A block that is out already is the caller's mistake.
 */
struct pp_provider_params {
	size_t size;      /* sizeof(struct pp_provider_params), set by PP_PROVIDER_PARAMS_INIT */
	size_t max_bytes; /* that are ever out at once; needed. A block is out until free returns */
	int nid;          /* asked of alloc, and what its pages count as being on; PP_NUMA_NO_NODE:
			     that of the pool */
	void *ctx;
	/* Up to n blocks of PP_PAGE_SIZE << order bytes, aligned to PP_PAGE_SIZE, on that node if
	 * it can be, into memory[]; how many. Needed. */
	size_t (*alloc)(void *ctx, unsigned order, int nid, size_t n, void **memory);
	/* A block comes back. Needed. */
	void (*free)(void *ctx, void *memory, unsigned order);
	/* The last reference and the last page are gone, and free has returned: the last call.
	 * NULL: nobody needs to know. */
	void (*release)(void *ctx);
};
#define PP_PROVIDER_PARAMS_INIT                                                   \
	{                                                                         \
		.size = sizeof(struct pp_provider_params), .nid = PP_NUMA_NO_NODE \
	}
/* -EINVAL, -ENOMEM. pp_provider_page() looks through all its blocks. */
PAGEPOOL_API int pp_provider_create(const struct pp_provider_params *params,
				    struct pp_provider **ret);

PAGEPOOL_API void pp_provider_get(struct pp_provider *provider);
/* The memory goes when the last reference and the last page are gone. */
PAGEPOOL_API void pp_provider_put(struct pp_provider *provider);

struct pp_provider_info {
	size_t size;     /* sizeof(struct pp_provider_info) of the caller */
	uint64_t limit;  /* bytes */
	uint64_t mapped; /* bytes that it got from the system so far; a caller's own: out */
	uint64_t out;    /* bytes handed out and not yet back */
	uint64_t failed; /* requests that ended with no page at all */
	int nid;
	unsigned huge;  /* enum pp_hugepages */
	unsigned lacks; /* enum pp_lacks: what was asked for and is not to be had here */
};
enum pp_lacks {
	/* An arena's memory could not be bound to its NUMA node, which is a label then. */
	PP_LACKS_NODE = 1,
	PP_LACKS_THP = 2, /* the system's transparent huge pages are switched off */
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

/* ---- devices: who else reads and writes the pages ------------------------------------------- */

struct pp_device; /* what pages are mapped for */
struct pp_iommu;  /* a software IOMMU, with devices behind it */

/* The kernel's numbers. */
enum pp_dma_direction {
	PP_DMA_BIDIRECTIONAL = 0,
	PP_DMA_TO_DEVICE = 1,
	PP_DMA_FROM_DEVICE = 2,
};

/*
 * A device of the caller's own. The callbacks come from whatever thread a page enters or leaves
 * its pool in, several at once. They may put and allocate pages, and must not destroy a pool.
 * length is a page's, or a part's.
 */
struct pp_device_params {
	size_t size;      /* sizeof(struct pp_device_params), set by PP_DEVICE_PARAMS_INIT */
	const char *name; /* for messages; copied; NULL: "device" */
	void *ctx;
	/* 0 and the address by which the device knows the memory, or a negative errno. Needed. */
	int (*map)(void *ctx, void *memory, size_t length, enum pp_dma_direction dir,
		   uint64_t *dma);
	/* Needed. */
	void (*unmap)(void *ctx, uint64_t dma, size_t length, enum pp_dma_direction dir);
	/* length bytes at offset of the mapping at dma: what the CPU wrote is the device's to see,
	 * or the other way round. NULL: both see the same memory at any time. */
	void (*sync_for_device)(void *ctx, uint64_t dma, size_t offset, size_t length,
				enum pp_dma_direction dir);
	void (*sync_for_cpu)(void *ctx, uint64_t dma, size_t offset, size_t length,
			     enum pp_dma_direction dir);
	/* The device itself writes and reads memory, as for a NIC model: 0 or a negative errno.
	 * NULL: -EOPNOTSUPP. */
	int (*write)(void *ctx, uint64_t dma, const void *data, size_t length);
	int (*read)(void *ctx, uint64_t dma, void *data, size_t length);
	/* The last reference is gone. NULL: nobody needs to know. */
	void (*release)(void *ctx);
};
#define PP_DEVICE_PARAMS_INIT                           \
	{                                               \
		.size = sizeof(struct pp_device_params) \
	}

/* The caller has one reference; every pool takes its own. -EINVAL, -ENOMEM. */
PAGEPOOL_API int pp_device_create(const struct pp_device_params *params, struct pp_device **ret);
/* The device without an IOMMU: an address is what the CPU has, and nothing needs a sync. Always
 * there; get and put do nothing to it. */
PAGEPOOL_API struct pp_device *pp_device_none(void);
PAGEPOOL_API void pp_device_get(struct pp_device *device);
PAGEPOOL_API void pp_device_put(struct pp_device *device);
PAGEPOOL_API const char *pp_device_name(const struct pp_device *device);
/*
 * What pools do, by hand: for buffers that are no pool's, or to see what becomes of a mistake.
 * Anyone. pp_device_map(): 0 and the address, or what the device says.
 */
PAGEPOOL_API int pp_device_map(struct pp_device *device, void *memory, size_t length,
			       enum pp_dma_direction dir, uint64_t *dma);
PAGEPOOL_API void pp_device_unmap(struct pp_device *device, uint64_t dma, size_t length,
				  enum pp_dma_direction dir);
PAGEPOOL_API void pp_device_sync_for_device(struct pp_device *device, uint64_t dma, size_t offset,
					    size_t length, enum pp_dma_direction dir);
PAGEPOOL_API void pp_device_sync_for_cpu(struct pp_device *device, uint64_t dma, size_t offset,
					 size_t length, enum pp_dma_direction dir);
/*
 * As the device does it, through its mappings. Anyone. -EFAULT: no such mapping, or not all of it,
 * or not in that direction; -ENODEV: its driver is gone; -EOPNOTSUPP.
 */
PAGEPOOL_API int pp_device_write(struct pp_device *device, uint64_t dma, const void *data,
				 size_t length);
PAGEPOOL_API int pp_device_read(struct pp_device *device, uint64_t dma, void *data, size_t length);

/*
 * What a thread does, over and over, while it waits for another one's callback of a device to
 * return. NULL: sched_yield(), the default. A runtime whose callbacks need a lock (Python) lets go
 * of it there.
 */
PAGEPOOL_API void page_pool_set_wait(void (*wait)(void));

/* What the software IOMMU refused. */
enum pp_iommu_op {
	PP_IOMMU_WRITE, /* by the device */
	PP_IOMMU_READ,
	PP_IOMMU_SYNC, /* by the driver, or a pool for it */
	PP_IOMMU_UNMAP,
	PP_IOMMU_MAP,
};
enum pp_iommu_why {
	PP_IOMMU_DEVICE_GONE, /* its driver was unbound */
	PP_IOMMU_UNMAPPED,    /* there was a mapping, it is gone */
	PP_IOMMU_NEVER,       /* nothing known was ever mapped there */
	PP_IOMMU_LENGTH,      /* it goes beyond the mapping; unmap: it is not all of it */
	PP_IOMMU_DIRECTION,   /* the mapping is for the other direction */
};
struct pp_iommu_fault {
	enum pp_iommu_op op;
	enum pp_iommu_why why;
	const char *device; /* name */
	uint64_t dma;
	size_t length;
	void *memory;     /* what is, or was, mapped at dma; NULL: not known */
	const char *text; /* all of that in one line */
};

struct pp_iommu_params {
	size_t size;   /* sizeof(struct pp_iommu_params), set by PP_IOMMU_PARAMS_INIT */
	unsigned bits; /* of an address, 16 to 56; 0: 48 */
	/* Told of each refusal, by whoever was refused, without a lock held; *fault is gone when it
	 * returns. NULL: it is logged, see page_pool_set_log(). */
	void (*fault)(void *ctx, const struct pp_iommu_fault *fault);
	void *ctx;
};
#define PP_IOMMU_PARAMS_INIT                           \
	{                                              \
		.size = sizeof(struct pp_iommu_params) \
	}

/*
 * A software IOMMU: each device behind it has an address space and a page table of its own. It
 * refuses and reports what goes through a mapping, or a device, that is gone. Safe from any thread;
 * once an unmap has returned, no access through the mapping is under way. -EINVAL, -ENOMEM.
 * Addresses are handed out upwards from 4096, each a multiple of its mapping's size (rounded up to
 * a power of two pages); one is used again only when the address space is through.
 */
PAGEPOOL_API int pp_iommu_create(const struct pp_iommu_params *params, struct pp_iommu **ret);
/* Devices keep it alive. */
PAGEPOOL_API void pp_iommu_put(struct pp_iommu *iommu);
/* A device behind it, with one reference. name: for messages, copied. */
PAGEPOOL_API int pp_iommu_attach(struct pp_iommu *iommu, const char *name, struct pp_device **ret);
/*
 * The device's driver is gone: all its mappings with it, and nothing goes through it any more.
 * Returns how many mappings the driver has left behind; -EINVAL: the device is not behind an IOMMU;
 * -ENODEV: it was unbound already.
 */
PAGEPOOL_API int64_t pp_device_unbind(struct pp_device *device);

struct pp_iommu_mapping {
	uint64_t dma;
	void *memory;
	size_t length;
	enum pp_dma_direction dir;
};
/* The page table of a device behind an IOMMU, by address: up to n mappings from the first at or
 * after dma; how many. 0 for other devices. */
PAGEPOOL_API size_t pp_iommu_mappings(struct pp_device *device, uint64_t dma, size_t n,
				      struct pp_iommu_mapping *ret);
/* Refusals so far, of all its devices. */
PAGEPOOL_API uint64_t pp_iommu_faults(const struct pp_iommu *iommu);

/* ---- a NIC, as far as memory goes ----------------------------------------------------------- */

struct pp_nic; /* a ring of receive descriptors over a device */

struct pp_nic_params {
	size_t size;              /* sizeof(struct pp_nic_params), set by PP_NIC_PARAMS_INIT */
	struct pp_device *device; /* what it writes through; NULL: pp_device_none() */
	unsigned slots;           /* descriptors; 0: 256; a power of two, 65536 at most */
};
#define PP_NIC_PARAMS_INIT                           \
	{                                            \
		.size = sizeof(struct pp_nic_params) \
	}

/* One thread is the driver (post, poll, take), one the wire (receive); they may be the same. */
PAGEPOOL_API int pp_nic_create(const struct pp_nic_params *params, struct pp_nic **ret);
/* With neither at work. Descriptors that were not taken are forgotten. */
PAGEPOOL_API void pp_nic_destroy(struct pp_nic *nic);
/* Driver: length bytes at dma may be written to. -ENOSPC: no free descriptor. */
PAGEPOOL_API int pp_nic_post(struct pp_nic *nic, uint64_t dma, size_t length, void *cookie);
/*
 * Wire: a frame arrives and goes into the next posted buffer. -ENOBUFS: there is none, the frame is
 * dropped; -EMSGSIZE: longer than the buffer, dropped, the buffer stays; what pp_device_write()
 * says: dropped, and the descriptor is completed with that.
 */
PAGEPOOL_API int pp_nic_receive(struct pp_nic *nic, const void *frame, size_t length);
/* Driver: the next completed descriptor; *length: bytes of the frame, or a negative errno. False:
 * none. */
PAGEPOOL_API bool pp_nic_poll(struct pp_nic *nic, void **cookie, int64_t *length);
/* Driver, with the wire silent: takes back the next descriptor that was posted and not used. */
PAGEPOOL_API bool pp_nic_take(struct pp_nic *nic, void **cookie);

/* ---- pools -------------------------------------------------------------------------------- */

/* Flags: the first two are the kernel's. */
#define PP_FLAG_DMA_MAP 0x1u      /* each page is mapped for the device while it is in the pool */
#define PP_FLAG_DMA_SYNC_DEV 0x2u /* and synced for it when it enters and when it is recycled */
#define PP_FLAG_NO_STATS 0x10000u /* no statistics: page_pool_get_stats gives -EOPNOTSUPP */
/* The rule up to Linux 6.15: the pool does not know which pages it has mapped; one that comes back
 * after the pool was destroyed is synced and unmapped through a device that may be gone. */
#define PP_FLAG_NO_TRACKING 0x20000u
/*
 * Checked mode: who has which page since when (page_pool_holders()), and misuse is refused and
 * reported (page_pool_set_report()): a second put, a put of a foreign page, into a pool that died,
 * from the wrong context, allocation by two threads, pieces put too often, and writing to a page
 * after it was put: 64 bytes of it, at the pool's offset, are poisoned while it is in the pool.
 * PAGEPOOL_CHECKED=1 in the environment sets this for all pools of a process, PAGEPOOL_CHECKED=full
 * the next one too.
 */
#define PP_FLAG_CHECKED 0x40000u
/* With it: all of the page is poisoned and, where the system lets us, cannot be read or written. */
#define PP_FLAG_CHECKED_FULL 0x80000u
#define PP_FLAG_ALL                                                                        \
	(PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV | PP_FLAG_NO_STATS | PP_FLAG_NO_TRACKING | \
	 PP_FLAG_CHECKED | PP_FLAG_CHECKED_FULL)

/*
 * What sits between those who return pages and the consumer: docs/designs.md. ring is the kernel's.
 * list is a linked list under the producers' lock, as a patch series to the kernel proposes; its
 * three steps, each a patch of that series, can be had one by one. ours: a lane of its own for each
 * returning thread.
 */
#define PP_DESIGN_RING 0x0u
#define PP_DESIGN_OURS 0x1u
#define PP_LIST_RING 0x10u  /* a list under the lock instead of the ring, taken page by page */
#define PP_LIST_BATCH 0x20u /* and by a whole refill under one lock; only with PP_LIST_RING */
#define PP_LIST_CACHE 0x40u /* the cache is a list */
#define PP_DESIGN_LIST (PP_LIST_RING | PP_LIST_BATCH | PP_LIST_CACHE)

struct page_pool_params {
	size_t size;          /* sizeof(struct page_pool_params), set by PAGE_POOL_PARAMS_INIT */
	unsigned flags;       /* PP_FLAG_*; unknown ones are refused */
	unsigned order;       /* a page of this pool is PP_PAGE_SIZE << order bytes */
	unsigned pool_size;   /* slots of the ring, pages; 0: 1024; over 16384: clamped */
	int nid;              /* NUMA node that pages should be on, or PP_NUMA_NO_NODE */
	struct pp_napi *napi; /* the consumer's context, or NULL */
	struct pp_provider *provider; /* NULL: an arena of its own */
	struct pp_device *device;     /* with PP_FLAG_DMA_MAP; NULL: pp_device_none() */
	unsigned dma_dir;             /* enum pp_dma_direction: bidirectional, or from the device */
	unsigned offset;              /* where in a page the device's part starts, bytes */
	unsigned max_len;             /* bytes of that part; with PP_FLAG_DMA_SYNC_DEV not 0 */
	/* How often a destroyed pool with pages out looks again, and how often it says that it is
	 * stalled, in milliseconds. 0: 1000 and 60000, the kernel's. */
	unsigned retry_ms;
	unsigned warn_ms;
	unsigned design; /* PP_DESIGN_*, or steps of the list design */
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
 * min(dma_sync_size, max_len) bytes at offset are what the device may have to see.
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

/*
 * Design ours: what the calling thread has put so far can be had by the consumer at once; else that
 * is so after 32 pages, and for what is held back when the consumer finds nothing else. To be
 * called by a thread that goes to sleep. Other designs: nothing to do.
 */
PAGEPOOL_API void page_pool_flush(struct page_pool *pool);
/* Anyone, while the pool lives: pages that are held back so, of all threads. */
PAGEPOOL_API uint64_t page_pool_held_back(const struct page_pool *pool);

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
/* PP_FLAG_*: as asked for, with what the environment added. */
PAGEPOOL_API unsigned page_pool_flags(const struct page_pool *pool);
/* PP_DESIGN_*, or steps of the list design. */
PAGEPOOL_API unsigned page_pool_design(const struct page_pool *pool);
/*
 * The name of a design: ring, ours, list, and for steps of it list-ring, list-batch, list-cache,
 * list-ring-cache. NULL: there is none such. And back: -EINVAL for a name that is none.
 */
PAGEPOOL_API const char *pp_design_name(unsigned design);
PAGEPOOL_API int pp_design_parse(const char *name, unsigned *ret);
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

/* X(name). What the pool asked of its device. */
#define PAGE_POOL_DMA_STATS(X)                                                            \
	X(maps)           /* pages mapped */                                              \
	X(map_errors)     /* pages that could not be, and went back to the provider */    \
	X(unmaps)         /* pages unmapped when they left the pool */                    \
	X(unmaps_destroy) /* pages unmapped by page_pool_destroy(), wherever they were */ \
	X(unmaps_skipped) /* pages that left later, and needed none any more */           \
	X(syncs)          /* pages synced for the device */                               \
	X(sync_bytes)     /* bytes of these */                                            \
	X(syncs_skipped)  /* pages that came back after destroy had unmapped them */

struct page_pool_dma_stats {
	size_t size; /* sizeof(struct page_pool_dma_stats) of the caller */
#define PP_DMA_STATS_FIELD(name) uint64_t name;
	PAGE_POOL_DMA_STATS(PP_DMA_STATS_FIELD)
#undef PP_DMA_STATS_FIELD
};
/* Anyone, while the pool lives. -EOPNOTSUPP: made without PP_FLAG_DMA_MAP. */
PAGEPOOL_API int page_pool_get_dma_stats(const struct page_pool *pool,
					 struct page_pool_dma_stats *ret);
/* Anyone, while the pool lives: a reference-free look at its device; NULL: pages are not mapped. */
PAGEPOOL_API struct pp_device *page_pool_device(const struct page_pool *pool);
/*
 * Anyone who holds the page: what the device wrote into size bytes, from offset bytes into its
 * part, is the CPU's to see. Once page_pool_destroy() has unmapped the page nothing is synced.
 */
PAGEPOOL_API void page_pool_dma_sync_for_cpu(const struct page_pool *pool, struct pp_page *page,
					     unsigned offset, unsigned size);
/*
 * Anyone, while the pool lives. Puts that were refused and did nothing: the page was put already,
 * or is not the pool's. Each is logged, one line a second at most. What the core cannot see, a put
 * after the page was handed out again, or by two threads at the same moment, is the caller's
 * mistake as ever.
 */
PAGEPOOL_API uint64_t page_pool_refused_puts(const struct page_pool *pool);

/* ---- checked mode -----------------------------------------------------------------------------
 */

/* Who did something to a page, and when. */
struct pp_site {
	const void *caller; /* the instruction after the call; NULL: never done */
	const char *tag;    /* of the thread, see page_pool_set_tag() */
	int64_t ns;         /* CLOCK_MONOTONIC_COARSE; 0: not noted */
	uint32_t thread;    /* the system's number */
};

enum pp_report_kind {
	PP_REPORT_DOUBLE_PUT,        /* the page was put before */
	PP_REPORT_FOREIGN_PAGE,      /* it is not this pool's */
	PP_REPORT_DEAD_POOL,         /* the pool was destroyed */
	PP_REPORT_USE_AFTER_PUT,     /* somebody wrote to it while it was in the pool */
	PP_REPORT_WRONG_CONTEXT,     /* a consumer's call, and the caller is not the consumer */
	PP_REPORT_NEGATIVE_INFLIGHT, /* more pages came back than went out */
	PP_REPORT_PIECES,            /* more pieces of it were put than handed out */
};
struct pp_report {
	enum pp_report_kind kind;
	uint32_t pool;              /* id */
	const struct pp_page *page; /* NULL: it is about no page. May be any address, if foreign */
	const void *address;        /* of its memory; NULL: not known */
	size_t offset;              /* use after put: the first byte that was changed */
	struct pp_site now;         /* the call that found it */
	struct pp_site allocated;   /* the page's last allocation, and put */
	struct pp_site put;
	const char *text; /* all of that in one line */
};
/*
 * Reports of all checked pools: fn(ctx, report), from the call that is refused, without any lock of
 * the library's; *report is gone when it returns. NULL: the text is logged, the default.
 */
typedef void (*page_pool_report_fn)(void *ctx, const struct pp_report *report);
PAGEPOOL_API void page_pool_set_report(page_pool_report_fn fn, void *ctx);
/* What the calling thread is about, for reports: a string that lasts. Returns the one before. */
PAGEPOOL_API const char *page_pool_set_tag(const char *tag);

struct pp_holder {
	struct pp_page *page; /* to be compared; it may be back by now */
	const void *address;
	struct pp_site allocated;
};
/*
 * Anyone, while the pool lives: the pages that its users have, the first n of them into ret[]; how
 * many there are. A snapshot of a pool that runs on. -EOPNOTSUPP: not a checked pool.
 */
PAGEPOOL_API int64_t page_pool_holders(const struct page_pool *pool, size_t n,
				       struct pp_holder *ret);

/* ---- pages: for whoever holds one ----------------------------------------------------------- */

/* The pool that the page belongs to; NULL: it has left its pool. */
PAGEPOOL_API struct page_pool *page_pool_get_pp(const struct pp_page *page);
PAGEPOOL_API void *pp_page_address(const struct pp_page *page);
/* By which address the device of its pool knows it; 0: it is not mapped. */
PAGEPOOL_API uint64_t page_pool_get_dma_addr(const struct pp_page *page);
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
