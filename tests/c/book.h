/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device that keeps a strict book of its mappings, for tests from one thread and from many. It
 * fails the test when memory is mapped twice, when what is not mapped is unmapped or synced, when
 * two do something to a mapping at the same time, and when anything comes after its driver is gone.
 *
 * An address is handed out once and never again, so what comes late is always found. The callbacks
 * take no lock: it would order what the pool has to order, and hide from ThreadSanitizer that it
 * does not. For the same reason what the driver writes (gone) and each mapping's notes are plain.
 */
#ifndef PP_TEST_BOOK_H
#define PP_TEST_BOOK_H

#include "test.h"

enum entry_state {
	ENTRY_NEVER = 0,
	ENTRY_MAPPED,
	ENTRY_BUSY, /* a callback is at it */
	ENTRY_UNMAPPED,
};

struct entry {
	uint32_t state; /* enum entry_state; atomic */
	enum pp_dma_direction dir;
	void *memory;
	size_t length;
	/* by who has it busy */
	unsigned syncs, syncs_cpu;
	size_t last_offset, last_length; /* of the last sync */
};

#define ENTRIES_OF_CHUNK 1024
#define ENTRY_CHUNKS 1024
/* An offset into the largest page fits below. */
#define ENTRY_SHIFT 24
#define MEMORY_SLOTS 8192

struct book {
	struct pp_device *device;
	bool gone;                          /* the driver is: plain, see above */
	uint64_t last;                      /* number of the last mapping; atomic */
	struct entry *chunks[ENTRY_CHUNKS]; /* atomic */
	/* Which pages are mapped right now: an open hash of page addresses, which are only added,
	 * and for each how many mappings it has; atomic. */
	uintptr_t memory[MEMORY_SLOTS];
	uint32_t mapped_here[MEMORY_SLOTS];
	/* Counters, atomic. */
	uint64_t maps, map_fails, unmaps, syncs, sync_bytes, syncs_cpu, sync_cpu_bytes;
	/* The mapping that makes it 0 fails; FAIL_ALL: all do; atomic. */
	int64_t fail;
	/* Called at the end of a callback, may come back into the library. */
	void (*on_map)(struct book *book, void *memory);
	void (*on_unmap)(struct book *book, void *memory);
	void (*on_sync)(struct book *book, void *memory);
	void *ctx;
	uint32_t released; /* times that the last reference went; atomic */
	bool ends_itself;  /* then, since nobody else knows when that is */
};
#define FAIL_ALL INT64_MIN

static inline struct entry *book_entry(struct book *book, uint64_t number)
{
	struct entry **slot = &book->chunks[number / ENTRIES_OF_CHUNK], *chunk, *none = NULL;

	CHECK(number / ENTRIES_OF_CHUNK < ENTRY_CHUNKS);
	/* acquire: pairs with the exchange below; the chunk is zero. */
	chunk = pp_load_acquire(slot);
	if (!chunk) {
		chunk = calloc(ENTRIES_OF_CHUNK, sizeof(*chunk));
		CHECK(chunk);
		if (!pp_cas_acq_rel(slot, &none, chunk)) {
			free(chunk);
			chunk = none;
		}
	}
	return &chunk[number % ENTRIES_OF_CHUNK];
}

static inline struct entry *book_find(struct book *book, uint64_t dma)
{
	uint64_t number = dma >> ENTRY_SHIFT;

	/* relaxed: an address that was handed out to the caller was counted before. */
	CHECK(number && number <= pp_load_relaxed(&book->last));
	return book_entry(book, number);
}

/* by: 1 or -1. The first and the last page stand for a large one. */
static inline void book_memory(struct book *book, char *memory, size_t length, uint32_t by)
{
	size_t step = length > 16 * PP_PAGE_SIZE ? length - PP_PAGE_SIZE : PP_PAGE_SIZE;

	for (size_t at = 0; at < length; at += step) {
		uintptr_t address = (uintptr_t)memory + at;
		size_t i = (address >> PP_PAGE_SHIFT) * 0x9e3779b97f4a7c15ull >> 51;

		for (;; i = (i + 1) % MEMORY_SLOTS) {
			/* relaxed: an address, once there, stays. */
			uintptr_t there = pp_load_relaxed(&book->memory[i]);

			if (!there && pp_cas_acq_rel(&book->memory[i], &there, address))
				there = address;
			if (there == address)
				break;
		}
		/* relaxed: whoever maps the page next has it from whoever unmapped it. */
		CHECK_EQ(pp_fetch_add_relaxed(&book->mapped_here[i], by), by == 1 ? 0 : 1);
	}
}

static inline void entry_change(struct entry *entry, uint32_t from, uint32_t to)
{
	/* acquire, but nothing is ever released there: no order comes of it. */
	uint32_t was = pp_exchange_acquire(&entry->state, to);

	if (was == from)
		return;
	printf("# a mapping of %p is in state %u, not %u\n", entry->memory, was, from);
	test_failed();
}

/* ---- the callbacks ------------------------------------------------------------------------------
 */

static inline int book_map(void *ctx, void *memory, size_t length, enum pp_dma_direction dir,
			   uint64_t *dma)
{
	struct book *book = ctx;
	struct entry *entry;
	uint64_t number;

	CHECK(!book->gone);
	/* relaxed: only one maps while mappings are made to fail. */
	if (pp_load_relaxed(&book->fail) == FAIL_ALL ||
	    (pp_load_relaxed(&book->fail) > 0 && pp_fetch_add_relaxed(&book->fail, -1) == 1)) {
		pp_fetch_add_relaxed(&book->map_fails, 1);
		return -ENOMEM;
	}
	/* relaxed, as all counters. */
	number = pp_fetch_add_relaxed(&book->last, 1) + 1;
	entry = book_entry(book, number);
	entry_change(entry, ENTRY_NEVER, ENTRY_BUSY);
	entry->memory = memory;
	entry->length = length;
	entry->dir = dir;
	book_memory(book, memory, length, 1);
	entry_change(entry, ENTRY_BUSY, ENTRY_MAPPED);
	pp_fetch_add_relaxed(&book->maps, 1);
	*dma = number << ENTRY_SHIFT;
	if (book->on_map)
		book->on_map(book, memory);
	CHECK(!book->gone);
	return 0;
}

static inline void book_unmap(void *ctx, uint64_t dma, size_t length, enum pp_dma_direction dir)
{
	struct book *book = ctx;
	struct entry *entry;

	CHECK(!book->gone);
	entry = book_find(book, dma);
	entry_change(entry, ENTRY_MAPPED, ENTRY_BUSY);
	CHECK_EQ(length, entry->length);
	CHECK_EQ(dir, entry->dir);
	book_memory(book, entry->memory, length, -1u);
	entry_change(entry, ENTRY_BUSY, ENTRY_UNMAPPED);
	pp_fetch_add_relaxed(&book->unmaps, 1);
	if (book->on_unmap)
		book->on_unmap(book, entry->memory);
	CHECK(!book->gone);
}

static inline struct entry *book_sync(struct book *book, uint64_t dma, size_t offset, size_t length,
				      enum pp_dma_direction dir)
{
	struct entry *entry;

	CHECK(!book->gone);
	entry = book_find(book, dma);
	entry_change(entry, ENTRY_MAPPED, ENTRY_BUSY);
	CHECK(length && offset + length <= entry->length);
	CHECK_EQ(dir, entry->dir);
	entry->last_offset = offset;
	entry->last_length = length;
	return entry;
}

static inline void book_synced(struct book *book, struct entry *entry)
{
	entry_change(entry, ENTRY_BUSY, ENTRY_MAPPED);
	if (book->on_sync)
		book->on_sync(book, entry->memory);
	CHECK(!book->gone);
}

static inline void book_sync_for_device(void *ctx, uint64_t dma, size_t offset, size_t length,
					enum pp_dma_direction dir)
{
	struct book *book = ctx;
	struct entry *entry = book_sync(book, dma, offset, length, dir);

	entry->syncs++;
	pp_fetch_add_relaxed(&book->syncs, 1);
	pp_fetch_add_relaxed(&book->sync_bytes, length);
	book_synced(book, entry);
}

static inline void book_sync_for_cpu(void *ctx, uint64_t dma, size_t offset, size_t length,
				     enum pp_dma_direction dir)
{
	struct book *book = ctx;
	struct entry *entry = book_sync(book, dma, offset, length, dir);

	entry->syncs_cpu++;
	pp_fetch_add_relaxed(&book->syncs_cpu, 1);
	pp_fetch_add_relaxed(&book->sync_cpu_bytes, length);
	book_synced(book, entry);
}

/* Mappings that are there right now. */
static inline uint64_t book_mapped(struct book *book)
{
	uint64_t n = 0;

	for (uint64_t number = 1; number <= pp_load_relaxed(&book->last); number++)
		n += pp_load_relaxed(&book_entry(book, number)->state) == ENTRY_MAPPED;
	return n;
}

static inline void book_free(struct book *book)
{
	CHECK_EQ(book_mapped(book), 0);
	CHECK_EQ(pp_load_relaxed(&book->maps), pp_load_relaxed(&book->unmaps));
	for (size_t i = 0; i < ENTRY_CHUNKS; i++)
		free(book->chunks[i]);
	free(book);
}

static inline void book_release(void *ctx)
{
	struct book *book = ctx;

	pp_fetch_add_relaxed(&book->released, 1);
	if (book->ends_itself)
		book_free(book);
}

/* ---- what tests do with it ----------------------------------------------------------------------
 */

static inline struct book *book_create(bool syncs)
{
	struct pp_device_params params = PP_DEVICE_PARAMS_INIT;
	struct book *book = calloc(1, sizeof(*book));

	CHECK(book);
	params.name = "book";
	params.ctx = book;
	params.map = book_map;
	params.unmap = book_unmap;
	if (syncs) {
		params.sync_for_device = book_sync_for_device;
		params.sync_for_cpu = book_sync_for_cpu;
	}
	params.release = book_release;
	CHECK_OK(pp_device_create(&params, &book->device));
	return book;
}

/* Every mapping was unmapped, no pool has the device any more. */
static inline void book_end(struct book *book)
{
	CHECK_EQ(pp_load_relaxed(&book->released), 0);
	pp_device_put(book->device);
	CHECK_EQ(pp_load_relaxed(&book->released), 1);
	book_free(book);
}

/* The mapping of a page by this device; NULL: it has none. */
static inline struct entry *book_of(struct book *book, const struct pp_page *page)
{
	uint64_t dma = page_pool_get_dma_addr(page);
	struct entry *entry;

	if (!dma)
		return NULL;
	entry = book_find(book, dma);
	CHECK_PTR(entry->memory, pp_page_address(page));
	CHECK_EQ(entry->length, pp_page_size(page));
	CHECK_EQ(pp_load_relaxed(&entry->state), ENTRY_MAPPED);
	return entry;
}

/* A pool's parameters. With PP_FLAG_DMA_SYNC_DEV all of a page is synced. */
static inline struct page_pool_params book_params(struct book *book, struct pp_provider *provider,
						  unsigned pool_size, unsigned flags)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;

	params.provider = provider;
	params.pool_size = pool_size;
	params.device = book->device;
	params.dma_dir = PP_DMA_FROM_DEVICE;
	params.flags = PP_FLAG_DMA_MAP | flags;
	params.max_len = PP_PAGE_SIZE;
	return params;
}

static inline struct page_pool *book_pool(struct book *book, struct pp_provider *provider,
					  unsigned pool_size, unsigned flags)
{
	struct page_pool_params params = book_params(book, provider, pool_size, flags);
	struct page_pool *pool;

	CHECK_OK(page_pool_create(&params, &pool));
	return pool;
}

static inline struct page_pool_dma_stats dma_of(const struct page_pool *pool)
{
	struct page_pool_dma_stats stats = {.size = sizeof(stats)};

	CHECK_OK(page_pool_get_dma_stats(pool, &stats));
	return stats;
}

#endif
