/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pages and the pool's device: mapped when they enter the pool, synced when they are recycled,
 * unmapped when they leave.
 *
 * A destroyed pool may outlive its device: pages come back after the driver was unbound. So destroy
 * unmaps every page that is still mapped, and what comes back later is left alone. Exactly one side
 * unmaps, and neither goes on before it is done:
 *
 *   page->mapped    0              not mapped
 *                   id             mapped by the pool with this id, nobody is at it
 *                   id | BUSY      somebody syncs or unmaps it right now
 *
 *   - whoever wants to sync or unmap claims the page (id to id | BUSY, in one step) and stores
 *     what it is afterwards;
 *   - who finds another at it waits: destroy, since it promises that nothing touches the device
 *     after it has returned; a page that leaves, since its memory may be somebody else's the next
 *     moment, and a device must not write to it then.
 *
 * Destroy finds the mapped pages in their providers' metadata: the pool notes only from which
 * chunks of it (1024 pages) it ever had one. Nothing is linked, so mapping a page costs a look
 * at a bit, and unmapping one the claim. A page that has left may be mapped by another pool
 * meanwhile: that the word names the pool tells them apart.
 *
 * Callbacks of a device may come back into the library (Python code can): every call here is made
 * with the pool in order. They may even put the very page that they are called for, which must not
 * wait for itself: page->claimant tells. In the middle of a sync the page is unmapped under the
 * claim that is there; in the middle of an unmap there is nothing left to do. Either way the claim
 * ends there, since the page may be somebody else's when the callback returns.
 */
#include <sched.h>
#include <string.h>

#include "check.h"
#include "lanes.h"

/* ---- claiming ---------------------------------------------------------------------------------
 */

static void (*wait_fn)(void);

void page_pool_set_wait(void (*wait)(void))
{
	/* relaxed: a function is there before anybody waits, or the next look finds it. */
	pp_store_relaxed(&wait_fn, wait);
}

#define SPINS 64

static PP_NOINLINE void wait_a_bit(unsigned *spins)
{
	void (*wait)(void) = pp_load_relaxed(&wait_fn);

	if (++*spins < SPINS)
		pp_cpu_relax();
	else if (wait)
		wait();
	else
		sched_yield();
}

enum claimed {
	NOT_MAPPED, /* this pool has it mapped no more */
	CLAIMED,    /* it is the caller's until unclaim() */
	NESTED,     /* this very thread is in the middle of a sync of it: under that claim */
};

/* The claim ends: the page is mapped by the pool still, or by none (0). */
static void end_claim(struct pp_page *page, uint32_t mapped)
{
	/* relaxed: looked for only by the thread that it names. */
	pp_store_relaxed(&page->claimant, 0u);
	/* release: what was done through the device comes before the next claim, and before the end
	 * of the page or of destroy. */
	pp_store_release(&page->mapped, mapped);
}

/* The claimant of a page has come back for it, from a callback. */
static PP_COLD enum claimed claim_again(struct pp_page *page, uint32_t claimant, bool unmaps)
{
	if (!(claimant & PP_CLAIM_UNMAPS))
		return NESTED;
	if (unmaps)
		end_claim(page, 0);
	return NOT_MAPPED;
}

/* unmaps: else it syncs. */
static enum claimed claim(const struct page_pool *pool, struct pp_page *page, bool unmaps)
{
	const uint32_t self = pp_check_number();
	uint32_t mine = pool->id;
	unsigned spins = 0;

	for (;;) {
		uint32_t mapped = mine;
		uint32_t claimant;

		/* acquire: the mapping, and what the last claimant did, come before what is done to
		 * it now. release: not needed, but there is no weaker form. */
		if (likely(pp_cas_acq_rel(&page->mapped, &mapped, mine | PP_MAPPED_BUSY))) {
			/* relaxed: see end_claim(). */
			pp_store_relaxed(&page->claimant, self | (unmaps ? PP_CLAIM_UNMAPS : 0));
			return CLAIMED;
		}
		if ((mapped & ~PP_MAPPED_BUSY) != mine)
			return NOT_MAPPED;
		/* relaxed: a thread sees what it wrote itself, and no other writes its number. */
		claimant = pp_load_relaxed(&page->claimant);
		if (unlikely((claimant & ~PP_CLAIM_UNMAPS) == self))
			return claim_again(page, claimant, unmaps);
		wait_a_bit(&spins);
	}
}

/* What was CLAIMED is done; but a callback may have ended it. */
static void unclaim(struct pp_page *page, bool unmaps, uint32_t mapped)
{
	/* relaxed: as in claim(). */
	if (likely(pp_load_relaxed(&page->claimant) ==
		   (pp_check_number() | (unmaps ? PP_CLAIM_UNMAPS : 0))))
		end_claim(page, mapped);
}

/* ---- map and unmap ----------------------------------------------------------------------------
 */

static size_t length(const struct page_pool *pool)
{
	return PP_PAGE_SIZE << pool->order;
}

size_t pp_dma_map(struct page_pool *pool, struct pp_page **pages, size_t n)
{
	struct pp_dma *dma = &pool->dma;
	size_t mapped = 0;

	for (size_t i = 0; i < n; i++) {
		struct pp_page *page = pages[i];
		uint64_t address;
		int err = dma->device->ops->map(dma->device, page->addr, length(pool), dma->dir,
						&address);

		if (unlikely(err)) {
			pp_add_single_writer(&dma->map_errors, 1);
			pp_page_drop(page);
			continue;
		}
		page->dma = address;
		pp_add_single_writer(&dma->maps, 1);
		if (dma->sync) {
			dma->device->ops->sync(dma->device, address, dma->offset, dma->max_len,
					       dma->dir, false);
			pp_add_single_writer(&dma->syncs_here, 1);
			pp_add_single_writer(&dma->sync_bytes_here, dma->max_len);
		}
		if (dma->tracked)
			/* release: who finds it mapped finds the address. */
			pp_store_release(&page->mapped, pool->id);
		pages[mapped++] = page;
	}
	return mapped;
}

void pp_dma_unmap(struct page_pool *pool, struct pp_page *page, bool here)
{
	struct pp_dma *dma = &pool->dma;

	enum claimed claimed = dma->tracked ? claim(pool, page, true) : CLAIMED;

	if (unlikely(claimed == NOT_MAPPED)) {
		/* relaxed, as below: a counter. It comes before the page is counted out. */
		pp_fetch_add_relaxed(&dma->unmaps_skipped, 1);
		return;
	}
	dma->device->ops->unmap(dma->device, page->dma, length(pool), dma->dir);
	if (here)
		pp_add_single_writer(&dma->unmaps_here, 1);
	else
		pp_fetch_add_relaxed(&dma->unmaps_elsewhere, 1);
	if (unlikely(claimed == NESTED))
		end_claim(page, 0);
	else if (dma->tracked)
		unclaim(page, true, 0);
}

static void scrub_chunk(struct page_pool *pool, struct pp_page *pages, void *unused)
{
	struct pp_dma *dma = &pool->dma;

	for (size_t i = 0; i < PP_CHUNK_PAGES; i++) {
		struct pp_page *page = &pages[i];

		/* acquire: if somebody else has unmapped it a moment ago, that comes before the end
		 * of destroy, after which the device may go. Whether it is this pool's does not
		 * change any more but to no. */
		if ((pp_load_acquire(&page->mapped) & ~PP_MAPPED_BUSY) != pool->id ||
		    claim(pool, page, true) != CLAIMED)
			continue;
		dma->device->ops->unmap(dma->device, page->dma, length(pool), dma->dir);
		pp_add_single_writer(&dma->unmaps_destroy, 1);
		unclaim(page, true, 0);
	}
}

void pp_dma_scrub(struct page_pool *pool)
{
	if (pool->dma.tracked)
		pp_pool_each_chunk(pool, scrub_chunk, NULL);
}

/* ---- sync -------------------------------------------------------------------------------------
 */

uint32_t pp_dma_sync(struct page_pool *pool, struct pp_page *page, uint32_t size)
{
	struct pp_dma *dma = &pool->dma;
	enum claimed claimed;

	if (size > dma->max_len)
		size = dma->max_len;
	if (!dma->sync || !size)
		return 0;
	claimed = dma->tracked ? claim(pool, page, false) : CLAIMED;
	if (unlikely(claimed == NOT_MAPPED)) {
		/* relaxed: a counter. */
		pp_fetch_add_relaxed(&dma->syncs_skipped, 1);
		return 0;
	}
	dma->device->ops->sync(dma->device, page->dma, dma->offset, size, dma->dir, false);
	if (dma->tracked && likely(claimed == CLAIMED))
		unclaim(page, false, pool->id);
	return size;
}

void pp_dma_sync_here(struct page_pool *pool, struct pp_page *page, uint32_t size)
{
	size = pp_dma_sync(pool, page, size);
	if (!size)
		return;
	pp_add_single_writer(&pool->dma.syncs_here, 1);
	pp_add_single_writer(&pool->dma.sync_bytes_here, size);
}

void page_pool_dma_sync_for_cpu(const struct page_pool *pool, struct pp_page *page, unsigned offset,
				unsigned size)
{
	const struct pp_dma *dma = &pool->dma;
	enum claimed claimed;

	if (!dma->device || !dma->device->syncs_cpu || offset >= dma->max_len)
		return;
	if (size > dma->max_len - offset)
		size = dma->max_len - offset;
	if (!size)
		return;
	claimed = dma->tracked ? claim(pool, page, false) : CLAIMED;
	if (claimed == NOT_MAPPED)
		return;
	dma->device->ops->sync(dma->device, page->dma, dma->offset + offset, size, dma->dir, true);
	if (dma->tracked && likely(claimed == CLAIMED))
		unclaim(page, false, pool->id);
}

/* ---- facts ------------------------------------------------------------------------------------
 */

struct pp_device *page_pool_device(const struct page_pool *pool)
{
	return pool->dma.device;
}

uint64_t page_pool_get_dma_addr(const struct pp_page *page)
{
	const struct page_pool *pool = page_pool_get_pp(page);

	if (!pool || !pool->dma.device)
		return 0;
	/* acquire: pairs with pp_dma_map(). */
	if (pool->dma.tracked && !pp_load_acquire(&page->mapped))
		return 0;
	return page->dma;
}

int page_pool_get_dma_stats(const struct page_pool *pool, struct page_pool_dma_stats *ret)
{
	const struct pp_dma *dma = &pool->dma;
	struct page_pool_dma_stats stats = {0};
	struct pp_lanes_sum lanes;
	int err = pp_check_size("struct page_pool_dma_stats", ret, ret->size,
				offsetof(struct page_pool_dma_stats, maps), ret->size);

	if (err)
		return err;
	if (!dma->device)
		return pp_fail(-EOPNOTSUPP, "pool %u was made without a device", pool->id);
	lanes = pp_lanes_sum(pool);
	/* relaxed: independent counters, each by itself. */
	stats.maps = pp_load_relaxed(&dma->maps);
	stats.map_errors = pp_load_relaxed(&dma->map_errors);
	stats.unmaps = pp_load_relaxed(&dma->unmaps_here) + pp_load_relaxed(&dma->unmaps_elsewhere);
	stats.unmaps_destroy = pp_load_relaxed(&dma->unmaps_destroy);
	stats.unmaps_skipped = pp_load_relaxed(&dma->unmaps_skipped);
	stats.syncs = pp_load_relaxed(&dma->syncs_here) + pp_load_relaxed(&pool->ring.syncs) +
		      lanes.syncs;
	stats.sync_bytes = pp_load_relaxed(&dma->sync_bytes_here) +
			   pp_load_relaxed(&pool->ring.sync_bytes) + lanes.sync_bytes;
	stats.syncs_skipped = pp_load_relaxed(&dma->syncs_skipped);
	stats.size = ret->size;
	if (ret->size > sizeof(stats))
		memset((char *)ret + sizeof(stats), 0, ret->size - sizeof(stats));
	memcpy(ret, &stats, ret->size < sizeof(stats) ? ret->size : sizeof(stats));
	return 0;
}

/* ---- create -----------------------------------------------------------------------------------
 */

static int check(const struct page_pool_params *p)
{
	size_t room = PP_PAGE_SIZE << p->order;

	if (!(p->flags & PP_FLAG_DMA_MAP)) {
		if (p->flags & PP_FLAG_DMA_SYNC_DEV)
			return pp_fail(-EINVAL,
				       "PP_FLAG_DMA_SYNC_DEV without PP_FLAG_DMA_MAP: pages that "
				       "are not mapped cannot be synced");
		if (p->device)
			return pp_fail(-EINVAL, "a device without PP_FLAG_DMA_MAP has no use");
		return 0;
	}
	if (p->dma_dir != PP_DMA_FROM_DEVICE && p->dma_dir != PP_DMA_BIDIRECTIONAL)
		return pp_fail(-EINVAL,
			       "dma_dir %u: a pool's pages are PP_DMA_FROM_DEVICE or "
			       "PP_DMA_BIDIRECTIONAL",
			       p->dma_dir);
	if ((p->flags & PP_FLAG_DMA_SYNC_DEV) && !p->max_len)
		return pp_fail(-EINVAL, "PP_FLAG_DMA_SYNC_DEV with a max_len of 0 syncs nothing");
	if ((uint64_t)p->offset + p->max_len > room)
		return pp_fail(-EINVAL,
			       "offset %u and max_len %u are more than a page of %zu bytes",
			       p->offset, p->max_len, room);
	return 0;
}

int pp_dma_init(struct page_pool *pool, const struct page_pool_params *params)
{
	struct pp_dma *dma = &pool->dma;
	int err = check(params);

	if (err || !(params->flags & PP_FLAG_DMA_MAP))
		return err;
	dma->tracked = !(params->flags & PP_FLAG_NO_TRACKING);
	dma->device = params->device ? params->device : pp_device_none();
	pp_device_get(dma->device);
	dma->offset = params->offset;
	/* Without a sync for the device it may be left out. */
	dma->max_len =
		params->max_len ? params->max_len : (uint32_t)(length(pool) - params->offset);
	dma->dir = (enum pp_dma_direction)params->dma_dir;
	dma->sync = (params->flags & PP_FLAG_DMA_SYNC_DEV) && dma->device->syncs_device;
	return 0;
}

void pp_dma_fini(struct page_pool *pool)
{
	if (pool->dma.device)
		pp_device_put(pool->dma.device);
}
