/* SPDX-License-Identifier: BSD-2-Clause */
/* The mmap arena: see arena.h. */
#include "magazine.h"
#include "page.h"

#include <stdlib.h>
#include <unistd.h>

#define DEFAULT_LIMIT ((size_t)64 << 30)
#define SMALLEST_DEFAULT_LIMIT ((size_t)64 << 20)

static struct pp_arena *to_arena(struct pp_provider *p)
{
	return (struct pp_arena *)p;
}

static uint32_t index_of(const struct pp_arena *arena, const struct pp_page *page)
{
	return (uint32_t)(page - arena->base.pages);
}

/* ---- buddy: under the arena's lock ------------------------------------------------------------
 */

static void list_add(struct pp_arena *arena, uint32_t i, unsigned order)
{
	struct pp_page *page = &arena->base.pages[i];

	pp_store_relaxed(&page->order, (uint8_t)order);
	pp_page_set_state(page, PP_PAGE_FREE);
	page->prev = 0;
	page->next = arena->free[order];
	if (page->next)
		arena->base.pages[page->next - 1].prev = i + 1;
	arena->free[order] = i + 1;
}

static void list_del(struct pp_arena *arena, uint32_t i)
{
	struct pp_page *page = &arena->base.pages[i];

	if (page->next)
		arena->base.pages[page->next - 1].prev = page->prev;
	if (page->prev)
		arena->base.pages[page->prev - 1].next = page->next;
	else
		arena->free[page->order] = page->next;
	pp_page_set_state(page, PP_PAGE_TAIL);
}

static void buddy_free(struct pp_arena *arena, uint32_t i, unsigned order)
{
	pp_page_set_state(&arena->base.pages[i], PP_PAGE_TAIL);
	while (order < PP_CHUNK_ORDER) {
		uint32_t buddy = i ^ (1u << order);

		/* Both halves lie in one chunk, and chunks are mapped whole. relaxed: it may go
		 * from taken to handed out without the lock, but to and from free only under it. */
		if (pp_load_relaxed(&arena->base.pages[buddy].state) != PP_PAGE_FREE ||
		    arena->base.pages[buddy].order != order)
			break;
		list_del(arena, buddy);
		i &= ~(1u << order);
		order++;
	}
	list_add(arena, i, order);
}

/* A free block of exactly this order out of a larger one, or -1. */
static int64_t buddy_alloc(struct pp_arena *arena, unsigned order)
{
	for (unsigned o = order; o <= PP_CHUNK_ORDER; o++) {
		uint32_t i;

		if (!arena->free[o])
			continue;
		i = arena->free[o] - 1;
		list_del(arena, i);
		while (o > order) {
			o--;
			list_add(arena, i + (1u << o), o);
		}
		return i;
	}
	return -1;
}

/* Pages from first to last are mapped, and usable from now on. */
static void name_pages(struct pp_arena *arena, size_t first, size_t last)
{
	for (size_t i = first; i < last; i++) {
		arena->base.pages[i].provider = &arena->base;
		arena->base.pages[i].addr = arena->memory + (i << PP_PAGE_SHIFT);
	}
	/* release: pp_arena_page() may look at the metadata of every page below mapped. */
	pp_store_release(&arena->mapped, (uint32_t)last);
}

static int grow(struct pp_arena *arena)
{
	size_t first = arena->mapped;
	int err;

	if (first == arena->base.nr)
		return -ENOMEM;
	err = pp_provider_commit_pages(&arena->base, (uint32_t)first);
	if (!err)
		err = pp_sys_commit(arena->memory + (first << PP_PAGE_SHIFT), PP_CHUNK_SIZE,
				    arena->huge);
	if (err)
		return err;
	/* These are a new mapping, that knows nothing of the old one's node. */
	if (arena->huge == PP_HUGE_HUGETLB && arena->nid != PP_NUMA_NO_NODE &&
	    pp_sys_bind(arena->memory + (first << PP_PAGE_SHIFT), PP_CHUNK_SIZE, arena->nid))
		arena->lacks |= PP_LACKS_NODE;
	name_pages(arena, first, first + PP_CHUNK_PAGES);
	buddy_free(arena, (uint32_t)first, PP_CHUNK_ORDER);
	return 0;
}

static unsigned floor_log2(size_t n)
{
	return 63u - (unsigned)__builtin_clzll(n);
}

/* Pages of order 0 in blocks as large as there are, so that a refill lies together in memory. */
static size_t take(struct pp_arena *arena, unsigned order, size_t n, struct pp_page **pages)
{
	size_t got = 0;

	while (got < n) {
		unsigned block = order ? order : floor_log2(n - got);
		int64_t i;

		if (block > PP_CHUNK_ORDER)
			block = PP_CHUNK_ORDER;
		i = buddy_alloc(arena, block);
		if (i < 0 && grow(arena) == 0)
			continue;
		while (i < 0 && block > order)
			i = buddy_alloc(arena, --block);
		if (i < 0)
			break;
		for (uint32_t k = 0; k < 1u << (block - order); k++) {
			struct pp_page *page = &arena->base.pages[i + k];

			pp_store_relaxed(&page->order, (uint8_t)order);
			/* relaxed: written under the lock, read by anyone as a hint. */
			pp_add_single_writer(&arena->taken, 1u << order);
			/* relaxed, as all that follow: nobody has the page; but a put too many by
			 * who had it before may look. */
			pp_store_relaxed(&page->ref, PP_REF_ONE);
			if (unlikely(arena->taken > arena->base.nr - arena->reserve))
				pp_store_relaxed(&page->ref, PP_REF_ONE | PP_REF_PFMEMALLOC);
			pages[got++] = page;
		}
	}
	return got;
}

void pp_arena_give(struct pp_arena *arena, struct pp_page *page)
{
	pp_add_single_writer(&arena->taken, -(uint64_t)(1u << page->order));
	buddy_free(arena, index_of(arena, page), page->order);
}

/* ---- provider ---------------------------------------------------------------------------------
 */

static void arena_destroy(struct pp_arena *arena)
{
	struct pp_arena was = *arena;

	pthread_mutex_destroy(&arena->lock);
	free(arena);
	pp_provider_forget_pages(&was.base);
	if (!was.region)
		pp_sys_unreserve(was.memory, (size_t)was.base.nr << PP_PAGE_SHIFT);
	else if (was.release)
		was.release(was.release_ctx, was.memory, was.length);
}

static size_t arena_alloc(struct pp_provider *p, unsigned order, int nid, size_t n,
			  struct pp_page **pages)
{
	struct pp_arena *arena = to_arena(p);
	size_t idle = 0, got;

	if (order == 0) {
		idle = pp_magazine_take(arena, n, pages);
		if (unlikely(idle && arena->reserve)) {
			/* relaxed: a hint of how much is left. */
			bool low = pp_load_relaxed(&arena->taken) > arena->base.nr - arena->reserve;

			for (size_t i = 0; i < idle; i++)
				pp_store_relaxed(&pages[i]->ref,
						 PP_REF_ONE | (low ? PP_REF_PFMEMALLOC : 0));
		}
	}
	got = idle;
	if (got < n) {
		pthread_mutex_lock(&arena->lock);
		got += take(arena, order, n - got, pages + got);
		pthread_mutex_unlock(&arena->lock);
	}
	if (unlikely(!got)) {
		/* The last resort: what lies idle in the magazines of all threads. */
		pp_magazines_drain(arena, false);
		pthread_mutex_lock(&arena->lock);
		got = take(arena, order, n, pages);
		if (!got)
			pp_inc_single_writer(&arena->failed);
		pthread_mutex_unlock(&arena->lock);
	}
	if (arena->nid != PP_NUMA_NO_NODE)
		nid = arena->nid;
	for (size_t i = 0; i < got; i++) {
		pages[i]->nid = (int16_t)(nid == PP_NUMA_NO_NODE ? 0 : nid);
		pp_page_set_state(pages[i], PP_PAGE_OUT);
	}
	return got;
}

void pp_arena_free_locked(struct pp_arena *arena, struct pp_page *page)
{
	bool last;

	pthread_mutex_lock(&arena->lock);
	pp_arena_give(arena, page);
	last = arena->life == PP_ARENA_CLOSED && !arena->taken;
	pthread_mutex_unlock(&arena->lock);
	/* It does not open again, and without pages and references nobody can come. */
	if (last)
		arena_destroy(arena);
}

static void arena_free(struct pp_provider *p, struct pp_page *page)
{
	struct pp_arena *arena = to_arena(p);

	pp_page_set_state(page, PP_PAGE_IDLE);
	if (likely(page->order == 0) && likely(pp_magazine_give(arena, page)))
		return;
	pp_arena_free_locked(arena, page);
}

PP_NOINLINE void pp_page_free_slow(struct pp_page *page)
{
	page->provider->ops->free(page->provider, page);
}

static void arena_retire(struct pp_provider *p)
{
	struct pp_arena *arena = to_arena(p);
	bool last;

	/* Nobody allocates any more. From here on no magazine takes a page of this arena... */
	pthread_mutex_lock(&arena->lock);
	pp_store_relaxed(&arena->life, (uint8_t)PP_ARENA_CLOSING);
	pthread_mutex_unlock(&arena->lock);

	if (!pp_magazines_drain(arena, true))
		return; /* a magazine cannot be emptied: rather a leak than a page freed in use */

	pthread_mutex_lock(&arena->lock);
	/* ...and only now may somebody else find that his page was the last. */
	pp_store_relaxed(&arena->life, (uint8_t)PP_ARENA_CLOSED);
	last = !arena->taken;
	pthread_mutex_unlock(&arena->lock);
	if (last)
		arena_destroy(arena);
}

static void arena_info(struct pp_provider *p, struct pp_provider_info *info)
{
	struct pp_arena *arena = to_arena(p);
	uint64_t idle = pp_magazines_count(arena);
	uint64_t taken;

	pthread_mutex_lock(&arena->lock);
	taken = arena->taken;
	info->limit = (uint64_t)arena->base.nr << PP_PAGE_SHIFT;
	info->mapped = (uint64_t)arena->mapped << PP_PAGE_SHIFT;
	/* The magazines went on meanwhile. */
	info->out = taken > idle ? (taken - idle) << PP_PAGE_SHIFT : 0;
	info->failed = arena->failed;
	info->nid = arena->nid;
	info->huge = arena->huge;
	info->lacks = arena->lacks;
	pthread_mutex_unlock(&arena->lock);
}

static struct pp_page *arena_page(struct pp_provider *p, const void *address)
{
	struct pp_arena *arena = to_arena(p);
	uintptr_t offset = (uintptr_t)address - (uintptr_t)arena->memory;
	uint32_t i = (uint32_t)(offset >> PP_PAGE_SHIFT);

	/* acquire: pairs with grow(). */
	if (offset >= (uintptr_t)pp_load_acquire(&arena->mapped) << PP_PAGE_SHIFT)
		return NULL;
	/* The block that holds it starts at one of these. */
	for (unsigned order = 0; order <= PP_CHUNK_ORDER; order++) {
		struct pp_page *page = &arena->base.pages[i & ~((1u << order) - 1)];

		if (pp_load_relaxed(&page->state) == PP_PAGE_OUT)
			/* relaxed: a page that the caller does not hold may go meanwhile. */
			return pp_load_relaxed(&page->order) >= order ? page : NULL;
	}
	return NULL;
}

static const struct pp_provider_ops arena_ops = {
	.alloc = arena_alloc,
	.free = arena_free,
	.retire = arena_retire,
	.info = arena_info,
	.page = arena_page,
};

static size_t machine_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);

	/* Where the system does not say: what nobody misses. */
	return pages > 0 && size > 0 ? (size_t)pages * (size_t)size : SMALLEST_DEFAULT_LIMIT;
}

static size_t round_up(size_t size)
{
	return (size + PP_CHUNK_SIZE - 1) & ~(PP_CHUNK_SIZE - 1);
}

static int check(const struct pp_arena_params *params)
{
	int err = pp_check_size("struct pp_arena_params", params, params->size,
				sizeof(struct pp_arena_params), sizeof(struct pp_arena_params));

	if (err)
		return err;
	if (params->limit > (size_t)PP_MAX_PAGES << PP_PAGE_SHIFT)
		return pp_fail(-EINVAL,
			       "an arena's limit of %zu bytes is more than the largest, %zu",
			       params->limit, (size_t)PP_MAX_PAGES << PP_PAGE_SHIFT);
	if (params->limit && params->reserve >= params->limit)
		return pp_fail(-EINVAL, "an arena's reserve of %zu bytes leaves nothing of %zu",
			       params->reserve, params->limit);
	if (params->huge > PP_HUGE_HUGETLB)
		return pp_fail(-EINVAL, "huge page kind %u is unknown", params->huge);
	return pp_check_nid(params->nid);
}

static void arena_init(struct pp_arena *arena, size_t reserve, int nid)
{
	arena->base.ops = &arena_ops;
	arena->base.refs = 1;
	arena->reserve = (uint32_t)((reserve + PP_PAGE_SIZE - 1) >> PP_PAGE_SHIFT);
	arena->nid = nid;
	pthread_mutex_init(&arena->lock, NULL); /* cannot fail with default attributes */
}

int pp_arena_create(const struct pp_arena_params *params, struct pp_provider **ret)
{
	struct pp_arena *arena;
	size_t limit, smallest;
	int err = check(params);

	if (err)
		return err;
	limit = round_up(params->limit ? params->limit : machine_memory());
	if (!params->limit && limit > DEFAULT_LIMIT)
		limit = DEFAULT_LIMIT;
	/* Where address space is limited (ulimit -v), a default is content with less. */
	smallest = params->limit || limit < SMALLEST_DEFAULT_LIMIT ? limit : SMALLEST_DEFAULT_LIMIT;
	if (params->reserve >= limit)
		return pp_fail(-EINVAL, "an arena's reserve of %zu bytes leaves nothing of %zu",
			       params->reserve, limit);

	arena = pp_sys_aligned_zalloc(PP_CACHELINE, sizeof(*arena));
	if (!arena)
		return pp_fail(-ENOMEM, "no memory for an arena");
	for (;; limit = round_up(limit / 2)) {
		arena->memory = pp_sys_reserve(limit, PP_CHUNK_SIZE);
		if (arena->memory &&
		    !pp_provider_reserve_pages(&arena->base, (uint32_t)(limit >> PP_PAGE_SHIFT)))
			break;
		if (arena->memory)
			pp_sys_unreserve(arena->memory, limit);
		if (limit / 2 < smallest || params->reserve >= limit / 2) {
			free(arena);
			return pp_fail(-ENOMEM,
				       "no address space for an arena of %zu bytes: set a "
				       "smaller limit, or raise ulimit -v",
				       limit);
		}
	}
	arena_init(arena, params->reserve, params->nid);
	arena->huge = params->huge;
	/* All of it now, though it has no memory yet: so what cannot be done is known before the
	 * first page. The metadata as well: whoever takes a page reads that first. */
	if (arena->nid != PP_NUMA_NO_NODE && (pp_sys_bind(arena->memory, limit, arena->nid) ||
					      pp_provider_bind_pages(&arena->base, arena->nid)))
		arena->lacks |= PP_LACKS_NODE;
	if (arena->huge == PP_HUGE_THP && pp_sys_thp_is_off())
		arena->lacks |= PP_LACKS_THP;

	/* Huge pages that are not to be had are better refused now than at the first packet. */
	if (arena->huge != PP_HUGE_NONE) {
		err = grow(arena);
		if (err) {
			arena_destroy(arena);
			return pp_fail(err, "no %s huge pages to be had: %s",
				       params->huge == PP_HUGE_THP ? "transparent" : "reserved",
				       params->huge != PP_HUGE_THP ? "see /proc/sys/vm/nr_hugepages"
				       : err == -EINVAL            ? "the system was built without"
								   : "no memory");
		}
	}
	*ret = &arena->base;
	return 0;
}

/* ---- region -----------------------------------------------------------------------------------
 */

static int check_region(const struct pp_region_params *params)
{
	int err = pp_check_size("struct pp_region_params", params, params->size,
				sizeof(struct pp_region_params), sizeof(struct pp_region_params));

	if (err)
		return err;
	if (!params->memory || (uintptr_t)params->memory % PP_PAGE_SIZE)
		return pp_fail(-EINVAL, "a region at %p: must be aligned to %zu bytes",
			       params->memory, PP_PAGE_SIZE);
	if (params->length < PP_PAGE_SIZE || params->length > (size_t)PP_MAX_PAGES << PP_PAGE_SHIFT)
		return pp_fail(-EINVAL, "a region of %zu bytes: must be from %zu to %zu",
			       params->length, PP_PAGE_SIZE, (size_t)PP_MAX_PAGES << PP_PAGE_SHIFT);
	if (params->reserve >= params->length)
		return pp_fail(-EINVAL, "a region's reserve of %zu bytes leaves nothing of %zu",
			       params->reserve, params->length);
	return pp_check_nid(params->nid);
}

int pp_region_create(const struct pp_region_params *params, struct pp_provider **ret)
{
	struct pp_arena *arena;
	int err = check_region(params);

	if (err)
		return err;
	arena = pp_sys_aligned_zalloc(PP_CACHELINE, sizeof(*arena));
	if (!arena)
		return pp_fail(-ENOMEM, "no memory for a region");
	arena->memory = params->memory;
	err = pp_provider_reserve_pages(&arena->base, (uint32_t)(params->length >> PP_PAGE_SHIFT));
	if (err) {
		free(arena);
		return pp_fail(err, "no address space for the metadata of a region");
	}
	/* The memory is where its owner has it; the metadata need not lie elsewhere. If it cannot
	 * be had there, nothing is lost that was asked for. */
	if (params->nid != PP_NUMA_NO_NODE)
		(void)pp_provider_bind_pages(&arena->base, params->nid);
	for (uint32_t first = 0; first < arena->base.nr && !err; first += PP_CHUNK_PAGES)
		err = pp_provider_commit_pages(&arena->base, first);
	if (err) {
		pp_provider_forget_pages(&arena->base);
		free(arena);
		return pp_fail(err, "no memory for the metadata of a region of %zu bytes",
			       params->length);
	}
	arena_init(arena, params->reserve, params->nid);
	arena->region = true;
	arena->release = params->release;
	arena->release_ctx = params->ctx;
	arena->length = params->length;
	name_pages(arena, 0, arena->base.nr);
	/* Whole chunks, and what is left over in blocks that get smaller. */
	for (uint32_t i = 0; i < arena->base.nr;) {
		unsigned order = PP_CHUNK_ORDER;

		while (arena->base.nr - i < 1u << order)
			order--;
		list_add(arena, i, order);
		i += 1u << order;
	}
	*ret = &arena->base;
	return 0;
}

/* ---- validity ---------------------------------------------------------------------------------
 */

bool pp_arena_is_valid(struct pp_provider *p, const char **why)
{
	struct pp_arena *arena = to_arena(p);
	uint64_t free_pages = 0;

	*why = NULL;
	pthread_mutex_lock(&arena->lock);
	for (unsigned order = 0; order <= PP_CHUNK_ORDER; order++) {
		uint32_t prev = 0;

		for (uint32_t i = arena->free[order]; i; i = arena->base.pages[i - 1].next) {
			const struct pp_page *page = &arena->base.pages[i - 1];
			const struct pp_page *buddy = &arena->base.pages[(i - 1) ^ (1u << order)];

			if (page->state != PP_PAGE_FREE || page->order != order)
				*why = "a block in a free list is not free, or of another order";
			if (page->prev != prev)
				*why = "a free list's back link is wrong";
			if ((i - 1) & ((1u << order) - 1))
				*why = "a free block is not aligned to its order";
			if (order < PP_CHUNK_ORDER &&
			    pp_load_relaxed(&buddy->state) == PP_PAGE_FREE && buddy->order == order)
				*why = "two free buddies were not merged";
			prev = i;
			free_pages += 1u << order;
		}
	}
	if (free_pages + arena->taken != arena->mapped)
		*why = "free pages + taken pages != mapped pages";
	pthread_mutex_unlock(&arena->lock);
	return !*why;
}
