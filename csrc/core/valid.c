/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The invariants of types.h, checked: consumer only, with no producer at work for the full tier.
 * And those of iommu.h: anyone.
 */
#include "cache.h"
#include "iommu.h"
#include "lanes.h"

/* A page that is the pool's own, in one of its parts. */
static void check_idle(const struct page_pool *pool, const struct pp_page *page, uint64_t ref,
		       const char **why)
{
	if (page->owner != pool->owner)
		*why = "a page in cache or ring is not this pool's";
	else if (ref != PP_REF_ONE)
		*why = "a page in cache or ring is held by somebody, or in pieces";
	else if (page->state != PP_PAGE_OUT)
		*why = "a page in cache or ring is free in its provider";
}

static void check_cached(const struct page_pool *pool, const struct pp_page *page, const char **why)
{
	/* It may be from the reserves until it is used. */
	check_idle(pool, page, page->ref & ~PP_REF_PFMEMALLOC, why);
	if (pp_is_held(pool, page))
		*why = "a cached page is held by its user";
}

static void check_cache(const struct page_pool *pool, uint64_t cached, const char **why)
{
	uint32_t link = pool->cache_top;

	for (uint64_t i = 0; i < cached && !pool->list_cache; i++) {
		check_cached(pool, pool->pages[i], why);
		for (uint64_t k = 0; k < i; k++)
			if (pool->pages[k] == pool->pages[i])
				*why = "a page is twice in the cache";
	}
	if (!pool->list_cache)
		return;
	for (uint64_t i = 0; i < cached; i++) {
		if (!link) {
			*why = "the cache's list is too short";
			return;
		}
		check_cached(pool, pp_linked(pool, link), why);
		link = pp_linked(pool, link)->link;
	}
	if (link)
		*why = "the cache's list is too long";
}

static uint64_t check_ring(const struct page_pool *pool, const char **why)
{
	const struct pp_ring *ring = &pool->ring;
	uint32_t link = ring->first, last = 0;
	uint64_t inside = 0;

	for (uint32_t i = 0; ring->queue && i < ring->size; i++) {
		const struct pp_page *page = ring->queue[i];

		/* Consumed and not cleared: somebody else's by now. */
		if (!page || (i >= ring->consumer_tail && i < ring->consumer_head))
			continue;
		inside++;
		check_idle(pool, page, page->ref, why);
		if (pp_is_held(pool, page))
			*why = "a page in the ring is held by its user";
	}
	for (; link && inside <= ring->size; last = link, link = pp_linked(pool, link)->link) {
		inside++;
		check_idle(pool, pp_linked(pool, link), pp_linked(pool, link)->ref, why);
		if (pp_is_held(pool, pp_linked(pool, link)))
			*why = "a page in the list is held by its user";
	}
	if (!ring->queue && (last != ring->last || inside != ring->listed || inside > ring->size))
		*why = "the list has the wrong end or length";
	return inside;
}

/*
 * Those that are in a lane once too often: they will be refused when they are taken out. So many
 * entries are of a page that was taken back by another road, or is in a lane already.
 */
uint64_t pp_lanes_twice(const struct page_pool *pool)
{
	const struct pp_lane *lane, *other;
	uint64_t n = 0;

	for (lane = pool->lanes.first; lane; lane = lane->next) {
		for (uint64_t i = lane->head; i != lane->tail; i++) {
			uint64_t entry = lane->entries[i & lane->mask];
			bool twice = *pp_held(pool, &pool->all[(uint32_t)entry]) !=
				     (uint16_t)(entry >> 32);

			for (other = pool->lanes.first; other && !twice; other = other->next) {
				uint64_t end = other == lane ? i : other->tail;

				for (uint64_t k = other->head; k != end && !twice; k++)
					twice = other->entries[k & other->mask] == entry;
				if (other == lane)
					break;
			}
			n += twice;
		}
	}
	return n;
}

static uint64_t check_lanes(const struct page_pool *pool, const char **why)
{
	const struct pp_lane *lane;
	bool cursor = !pool->lane_cursor;
	uint64_t inside = 0;

	for (lane = pool->lanes.first; lane; lane = lane->next) {
		uint64_t n = lane->tail - lane->head;

		cursor = cursor || lane == pool->lane_cursor;
		if (n > lane->size)
			*why = "more entries in a lane than it has places";
		if (lane->published > lane->tail || lane->seen > lane->tail ||
		    lane->tail - lane->published >= PP_LANE_BATCH)
			*why = "a lane has published what was not put";
		if (!lane->next && lane != pool->lanes.last)
			*why = "the last lane is not";
		for (uint64_t i = lane->head; i != lane->tail && n <= lane->size; i++) {
			uint64_t entry = lane->entries[i & lane->mask];
			const struct pp_page *page = &pool->all[(uint32_t)entry];

			inside++;
			/* Else it was put twice, and will be refused. */
			if (*pp_held(pool, page) != (uint16_t)(entry >> 32))
				continue;
			check_idle(pool, page, page->ref, why);
			if (page->nid != (int16_t)(entry >> 48))
				*why = "an entry of a lane has the wrong node";
		}
	}
	if (!cursor)
		*why = "the next refill begins at a lane of another pool";
	return inside;
}

bool page_pool_is_valid(const struct page_pool *pool, enum pp_tier tier, const char **why)
{
	const struct pp_cache *cache = &pool->cache;
	const struct pp_ring *ring = &pool->ring;
	uint64_t cached = cache->pushed - cache->popped;
	uint64_t in_ring = 0;

	*why = NULL;
	if (cached > PP_ALLOC_CACHE_SIZE)
		*why = "more pages cached than the cache holds";
	else if (!cache->capacity && cached)
		*why = "pages cached after destroy";
	else if (pool->stats_seq & 1)
		*why = "statistics left in the middle of a change";
	else if (cache->pushed < pool->stats.filled)
		*why = "recycle_cached is negative";
	else if (cache->popped < pool->stats.refill + pool->stats.slow + pool->stats.drained)
		*why = "alloc_fast is negative";
	else if (pool->frag_page && (pool->frag_page->owner != pool->owner || !pool->frag_users ||
				     pool->frag_offset > PP_PAGE_SIZE << pool->order))
		*why = "the page that is being cut up is not this pool's, or over-used";
	else if (ring->producer >= ring->size || ring->consumer_head >= ring->size ||
		 ring->consumer_tail > ring->consumer_head)
		*why = "a ring index is out of range";
	else if (ring->consumer_head - ring->consumer_tail >= ring->batch)
		*why = "more consumed slots are not cleared than a batch";
	if (*why || tier == PP_TIER_QUICK)
		return !*why;

	check_cache(pool, cached, why);
	in_ring = check_ring(pool, why) + check_lanes(pool, why);
	if ((int64_t)(cached + in_ring) > (int64_t)page_pool_inflight(pool))
		in_ring -= pp_lanes_twice(pool);
	if ((int64_t)(cached + in_ring) > (int64_t)page_pool_inflight(pool))
		*why = "more pages in cache and ring than in flight";
	return !*why;
}

/* What hangs under a table of this level; counts nodes and mappings that start there. */
static void check_table(const struct pp_iommu_table *t, unsigned level, uint64_t first,
			uint64_t *nodes, uint64_t *mapped, const char **why)
{
	unsigned used = 0;

	for (unsigned i = 0; i < PP_IOMMU_TABLE_SIZE; i++) {
		const struct pp_iommu_node *node = t->child[i];
		const struct pp_iommu_leaf *leaf = t->child[i];
		uint64_t page = first + ((uint64_t)i << (level * PP_IOMMU_TABLE_SHIFT));
		unsigned live = 0;

		if (!node)
			continue;
		used++;
		++*nodes;
		if (node->parent != t || node->slot != i)
			*why = "a node of a page table does not know where it hangs";
		if (level > 1) {
			check_table(t->child[i], level - 1, page, nodes, mapped, why);
			continue;
		}
		for (unsigned k = 0; k < PP_IOMMU_TABLE_SIZE; k++) {
			const struct pp_iommu_entry *e = &leaf->entry[k];

			if (e->state != PP_IOMMU_MAPPED)
				continue;
			live++;
			if (!(((page + k) << PP_PAGE_SHIFT) & (pp_iommu_span(e->length) - 1)))
				++*mapped;
		}
		if (live != node->used)
			*why = "a leaf of a page table has miscounted its mappings";
		if (leaf->first != page)
			*why = "a leaf of a page table does not know its addresses";
		if (leaf->fresh)
			*why = "a leaf of a page table was left in the middle of a map";
		if (leaf->idle && live)
			*why = "a leaf with mappings is among those to be forgotten";
	}
	if (used != t->node.used)
		*why = "a page table has miscounted its children";
	if (!used && t->node.parent)
		*why = "an empty page table was kept";
}

bool pp_iommu_is_valid(struct pp_device *device, const char **why)
{
	struct pp_iommu_device *d = (struct pp_iommu_device *)device;
	const struct pp_iommu_leaf *leaf, *prev = NULL;
	uint64_t nodes = 0, mapped = 0, idle = 0, unused = 0;

	*why = NULL;
	pthread_mutex_lock(&d->lock);
	check_table(&d->root, d->levels, 0, &nodes, &mapped, why);
	if (nodes != d->nr_node)
		*why = "a device has miscounted the nodes of its page table";
	if (mapped != d->mapped)
		*why = "a device has miscounted its mappings";
	for (leaf = d->idle_first; leaf; prev = leaf, leaf = leaf->next) {
		idle++;
		if (!leaf->idle || leaf->prev != prev)
			*why = "the list of leaves to be forgotten is torn";
	}
	if (prev != d->idle_last || idle != d->nr_idle || idle > PP_IOMMU_IDLE_LEAVES)
		*why = "the list of leaves to be forgotten has the wrong end or length";
	for (leaf = pp_iommu_next_leaf(d, 0); leaf;
	     leaf = pp_iommu_next_leaf(d, leaf->first + PP_IOMMU_TABLE_SIZE))
		if (!leaf->node.used && !leaf->idle &&
		    leaf->first != (d->cursor >> PP_PAGE_SHIFT & ~(PP_IOMMU_TABLE_SIZE - 1ull)))
			unused++;
	if (unused && !d->gone)
		*why = "a leaf without mappings will never be forgotten";
	pthread_mutex_unlock(&d->lock);
	return !*why;
}
