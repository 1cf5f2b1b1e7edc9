/* SPDX-License-Identifier: BSD-2-Clause */
/* Lanes: what is not the common case of lanes.h. */
#include "lanes.h"

#include <stdlib.h>
#include <string.h>

/* What the consumer reads at a refill is on no line that a put writes: a put writes tail, and at
 * each batch published. */
_Static_assert(offsetof(struct pp_lane, tail) >= offsetof(struct pp_lane, dying) + PP_CACHELINE &&
		       offsetof(struct pp_lane, published) >=
			       offsetof(struct pp_lane, sync_bytes) + PP_CACHELINE &&
		       offsetof(struct pp_lane, head) >=
			       offsetof(struct pp_lane, published) + PP_CACHELINE,
	       "lines of a lane that are written by one side only");

_Thread_local struct pp_my_lanes pp_my_lanes;

static pthread_key_t thread_exit_key;
static bool have_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- lanes and their threads ------------------------------------------------------------------
 */

static void unref(struct pp_lane *lane)
{
	/* acq_rel: all that the other side did to it comes before the free. */
	if (pp_fetch_sub_acq_rel(&lane->refs, 1u) > 1)
		return;
	free(lane->entries);
	free(lane);
}

static void publish(struct pp_lane *lane)
{
	/* release: as in pp_lane_put(). */
	pp_store_release(&lane->published, lane->tail);
}

/* The thread exits: another one may go on with its lanes. */
static void thread_exits(void *arg)
{
	struct pp_my_lanes *mine = arg;

	while (mine->all) {
		struct pp_lane *lane = mine->all;

		mine->all = lane->next_mine;
		publish(lane);
		/* release: who takes it over sees the lane as it was left. */
		pp_store_release(&lane->taken, 0u);
		unref(lane);
	}
	memset(mine->recent, 0, sizeof(mine->recent));
	mine->over = true;
}

/* The parent's pools are not the child's business. */
static void after_fork(void)
{
	memset(&pp_my_lanes, 0, sizeof(pp_my_lanes));
}

static void init(void)
{
	have_key = pp_biased_lock_available() && pthread_atfork(NULL, NULL, after_fork) == 0 &&
		   pthread_key_create(&thread_exit_key, thread_exits) == 0;
}

/* Those of pools that are gone. */
static void forget_dead(struct pp_my_lanes *mine)
{
	struct pp_lane **link = &mine->all, *lane;

	while ((lane = *link)) {
		/* acquire: the pool's side is through with it. */
		if (pp_load_acquire(&lane->refs) > 1) {
			link = &lane->next_mine;
			continue;
		}
		*link = lane->next_mine;
		if (mine->recent[lane->pool % 8] == lane)
			mine->recent[lane->pool % 8] = NULL;
		unref(lane);
	}
}

static struct pp_lane *create(struct page_pool *pool)
{
	struct pp_lane *lane = pp_sys_aligned_zalloc(_Alignof(struct pp_lane), sizeof(*lane));
	uint64_t size = 1;

	if (!lane)
		return NULL;
	while (size < pool->ring.size)
		size *= 2;
	lane->entries =
		pp_sys_aligned_zalloc(_Alignof(struct pp_lane), size * sizeof(lane->entries[0]));
	if (!lane->entries) {
		free(lane);
		return NULL;
	}
	lane->size = pool->ring.size;
	lane->mask = (uint32_t)size - 1;
	lane->pool = pool->id;
	lane->taken = 1;
	lane->refs = 2;
	pp_spinlock_init(&lane->lock);
	return lane;
}

/* One that its thread has left, or a new one. */
static struct pp_lane *take(struct page_pool *pool)
{
	struct pp_lanes *lanes = &pool->lanes;
	struct pp_lane *lane, *made = NULL;

	/* acquire: the lane is initialised. */
	for (lane = pp_load_acquire(&lanes->first); lane; lane = pp_load_acquire(&lane->next)) {
		uint32_t taken = 0;

		/* acq_rel: as its last thread left it; and of two one gets it. */
		if (!pp_load_relaxed(&lane->taken) && pp_cas_acq_rel(&lane->taken, &taken, 1u)) {
			/* relaxed: the pool has a reference, and the caller holds the pool. */
			pp_fetch_add_relaxed(&lane->refs, 1u);
			return lane;
		}
	}
	made = create(pool);
	if (!made)
		return NULL;
	pp_spin_lock(&lanes->lock);
	if (unlikely(lanes->closed)) {
		pp_spin_unlock(&lanes->lock);
		free(made->entries);
		free(made);
		return NULL;
	}
	/* release: who finds it finds it initialised. */
	if (lanes->last)
		pp_store_release(&lanes->last->next, made);
	else
		pp_store_release(&lanes->first, made);
	lanes->last = made;
	pp_spin_unlock(&lanes->lock);
	return made;
}

static struct pp_lane *find(struct page_pool *pool, bool make)
{
	struct pp_my_lanes *mine = &pp_my_lanes;
	struct pp_lane *lane;

	if (mine->over)
		return NULL;
	for (lane = mine->all; lane && lane->pool != pool->id; lane = lane->next_mine)
		;
	if (!lane && make) {
		pthread_once(&once, init);
		if (!have_key || pthread_setspecific(thread_exit_key, mine)) {
			mine->over = true;
			return NULL;
		}
		forget_dead(mine);
		lane = take(pool);
		if (lane) {
			lane->next_mine = mine->all;
			mine->all = lane;
		}
	}
	if (lane)
		mine->recent[pool->id % 8] = lane;
	return lane;
}

struct pp_lane *pp_lane_find(struct page_pool *pool)
{
	return find(pool, true);
}

void page_pool_flush(struct page_pool *pool)
{
	struct pp_lane *lane = pool->lanes_on ? find(pool, false) : NULL;

	if (lane)
		publish(lane);
}

/* ---- full -------------------------------------------------------------------------------------
 */

/* Counted out as all that does not fit, or as the last one if the pool was destroyed meanwhile. */
static void leave_for_good(struct page_pool *pool, struct pp_lane *lane, struct pp_page *page)
{
	bool dying;

	if (unlikely(pool->formalities))
		pp_pool_leave_formally(pool, page, false);
	pp_spin_lock(&lane->lock);
	/* relaxed: destroy takes the lock after it has set it. */
	dying = pp_load_relaxed(&lane->dying);
	if (likely(!dying))
		/* release: page_pool_inflight() that sees it sees the page in held. */
		pp_add_single_writer_release(&lane->released, 1);
	else
		pp_add_single_writer(&lane->released_dying, 1);
	pp_spin_unlock(&lane->lock);
	if (unlikely(dying))
		pp_pool_unpend(pool, 1);
	pp_page_leave(page);
}

void pp_lane_overflow(struct page_pool *pool, struct pp_lane *lane, struct pp_page **pages,
		      size_t n)
{
	/* relaxed: if it is set this very moment, either road is right. */
	if (pp_load_relaxed(&lane->dying)) {
		/* They count as ring, full or not. */
		pp_pool_recycle_in_ring(pool, pages, n);
		return;
	}
	if (pool->has_stats)
		pp_add_single_writer(&lane->ring_full, 1); /* once a call, as the kernel */
	for (size_t i = 0; i < n; i++) {
		/* relaxed: as in pp_lane_put(). */
		uint16_t held = pp_load_relaxed(pp_held(pool, pages[i]));

		/* Not into the lane again, should there be room by now. */
		if (likely(held && pp_take_back_of(pool, pages[i], held)))
			leave_for_good(pool, lane, pages[i]);
		else
			pp_pool_refuse(pool, pages[i]);
	}
}

void pp_lane_put_otherwise(struct page_pool *pool, struct pp_page *page)
{
	struct pp_lane *lane = pp_lane_mine(pool);

	if (lane)
		pp_lane_put(pool, lane, &page, 1);
	else
		pp_pool_recycle_in_ring(pool, &page, 1);
}

/* ---- take out ---------------------------------------------------------------------------------
 */

static inline struct pp_page *page_of(const struct page_pool *pool, uint64_t entry)
{
	return &pool->all[(uint32_t)entry];
}

static inline uint16_t held_of(uint64_t entry)
{
	return (uint16_t)(entry >> 32);
}

static inline int nid_of(uint64_t entry)
{
	return (int16_t)(entry >> 48);
}

static PP_COLD void refuse_entry(struct page_pool *pool, struct pp_lane *lane, uint64_t entry)
{
	/* One writer at a time: the consumer, or who has the lock once it is dying. */
	pp_add_single_writer(&lane->refused, 1);
	pp_pool_refuse(pool, page_of(pool, entry));
}

/* The lines of n entries from head on, all at once: they are in the cache of the CPU that wrote
 * them. */
static inline void fetch(const struct pp_lane *lane, uint64_t head, uint64_t end, size_t n)
{
	for (uint64_t i = head; i < end && i < head + n; i += PP_LANE_LINE)
		__builtin_prefetch(&lane->entries[i & lane->mask]);
}

/* Of one lane. */
static size_t consume(struct page_pool *pool, struct pp_lane *lane, bool held_back, size_t n,
		      struct pp_page **pages, struct pp_page **wrong)
{
	uint64_t head = lane->head, end = lane->seen;
	int nid = pool->nid;
	size_t got = 0;

	while (got < n) {
		uint64_t entry;
		struct pp_page *page;
		uint16_t *held;

		if (head == end) {
			/* acquire: pairs with the release of pp_lane_put(). What was held back was
			 * seen before it is published. */
			uint64_t now = pp_load_acquire(held_back ? &lane->tail : &lane->published);

			if ((int64_t)(now - end) <= 0)
				break;
			end = now;
			fetch(lane, head, end, n - got);
			/* relaxed: for who counts what is held back. */
			pp_store_relaxed(&lane->seen, end);
		}
		/* relaxed: ordered by the load above. */
		entry = pp_load_relaxed(&lane->entries[head++ & lane->mask]);
		page = page_of(pool, entry);
		held = pp_held(pool, page);

		/* relaxed: only the consumer and the provider's next owner write it, after it had
		 * come back; whoever puts it twice this very moment by another road, and gets it
		 * out of the pool, is not found. */
		if (unlikely(pp_load_relaxed(held) != held_of(entry))) {
			refuse_entry(pool, lane, entry);
			continue;
		}
		pp_store_relaxed(held, (uint16_t)PP_NOT_HELD);
		if (unlikely(nid != PP_NUMA_NO_NODE && nid_of(entry) != nid)) {
			*wrong = page;
			break;
		}
		pages[got++] = page;
	}
	/* release: the entries were read before they are overwritten. */
	pp_store_release(&lane->head, head);
	/* For the next refill, while the pages of this one are handed out. */
	fetch(lane, head, end, PP_ALLOC_CACHE_REFILL);
	return got;
}

/* Once around, from where the cursor is. */
static size_t consume_around(struct page_pool *pool, bool held_back, size_t n,
			     struct pp_page **pages, struct pp_page **wrong)
{
	struct pp_lane *start = pool->lane_cursor, *lane = start;
	size_t got = 0;

	do {
		if (lane) {
			got += consume(pool, lane, held_back, n - got, pages + got, wrong);
			/* acquire: the lane is initialised. */
			lane = pp_load_acquire(&lane->next);
		} else {
			if (!held_back)
				got += pp_pool_consume_ring(pool, n - got, pages + got, wrong);
			lane = pp_load_acquire(&pool->lanes.first);
		}
	} while (lane != start && got < n && !*wrong);
	return got;
}

size_t pp_lanes_consume(struct page_pool *pool, size_t n, struct pp_page **pages,
			struct pp_page **wrong)
{
	struct pp_lane *start = pool->lane_cursor;
	size_t got = consume_around(pool, false, n, pages, wrong);

	if (!got && !*wrong)
		got = consume_around(pool, true, n, pages, wrong);
	pool->lane_cursor = pp_load_acquire(start ? &start->next : &pool->lanes.first);
	return got;
}

/* ---- the end ----------------------------------------------------------------------------------
 */

#define AT_ONCE 64

/* Some of what is left in a lane that is dying: by destroy, or by its thread. How many. */
static size_t take_out(struct pp_lane *lane, uint64_t entries[AT_ONCE])
{
	uint64_t head, n;

	pp_spin_lock(&lane->lock);
	head = lane->head;
	/* acquire: pairs with pp_lane_put(). */
	n = pp_load_acquire(&lane->tail) - head;
	if (n > AT_ONCE)
		n = AT_ONCE;
	for (uint64_t i = 0; i < n; i++)
		entries[i] = pp_load_relaxed(&lane->entries[(head + i) & lane->mask]);
	/* release: as in consume(). relaxed: likewise. */
	pp_store_release(&lane->head, head + n);
	pp_store_relaxed(&lane->seen, head + n);
	pp_spin_unlock(&lane->lock);
	return n;
}

void pp_lane_retract(struct page_pool *pool, struct pp_lane *lane)
{
	uint64_t entries[AT_ONCE];
	size_t n;

	/* acquire: pairs with pp_lanes_close(). It is set, as the caller saw, and stays so. */
	(void)pp_load_acquire(&lane->dying);
	/* The pool is there as long as a page is left: so it is not looked at after the last. */
	while ((n = take_out(lane, entries))) {
		struct pp_page *pages[AT_ONCE];
		size_t good = 0;

		for (size_t i = 0; i < n; i++) {
			struct pp_page *page = page_of(pool, entries[i]);

			if (likely(pp_take_back_of(pool, page, held_of(entries[i])))) {
				pages[good++] = page;
				continue;
			}
			pp_spin_lock(&lane->lock);
			refuse_entry(pool, lane, entries[i]);
			pp_spin_unlock(&lane->lock);
		}
		for (size_t i = 0; i < good; i++)
			leave_for_good(pool, lane, pages[i]);
	}
}

void pp_lanes_close(struct page_pool *pool)
{
	struct pp_lanes *lanes = &pool->lanes;
	struct pp_lane *lane;

	pp_spin_lock(&lanes->lock);
	lanes->closed = true;
	pp_spin_unlock(&lanes->lock);
	if (!lanes->first)
		return;
	for (lane = lanes->first; lane; lane = lane->next)
		/* release: a producer that finds it set before this thread got to its lane goes on
		 * from where the consumer was. The barrier orders it against the producers' stores
		 * to tail. */
		pp_store_release(&lane->dying, true);
	if (!pp_barrier_everywhere())
		pp_log("page_pool: no membarrier to end pool %u with: pages that are put at this "
		       "moment may stay out",
		       pool->id);
	for (lane = lanes->first; lane; lane = lane->next) {
		uint64_t entries[AT_ONCE];
		size_t n;

		while ((n = take_out(lane, entries))) {
			for (size_t i = 0; i < n; i++) {
				struct pp_page *page = page_of(pool, entries[i]);

				if (likely(pp_take_back_of(pool, page, held_of(entries[i])))) {
					pp_pool_release(pool, page, true);
					continue;
				}
				pp_spin_lock(&lane->lock);
				refuse_entry(pool, lane, entries[i]);
				pp_spin_unlock(&lane->lock);
			}
		}
	}
}

void pp_lanes_fini(struct page_pool *pool)
{
	struct pp_lane *lane = pool->lanes.first;

	while (lane) {
		struct pp_lane *next = lane->next;

		unref(lane);
		lane = next;
	}
}

/* ---- sums -------------------------------------------------------------------------------------
 */

struct pp_lanes_sum pp_lanes_sum(const struct page_pool *pool)
{
	struct pp_lanes_sum sum = {0};
	const struct pp_lane *lane;

	/* acquire: the lane is initialised. */
	for (lane = pp_load_acquire(&pool->lanes.first); lane;
	     lane = pp_load_acquire(&lane->next)) {
		/* acquire: as in page_pool_inflight(); what was refused or taken out was put. */
		uint64_t refused = pp_load_acquire(&lane->refused);
		uint64_t head = pp_load_acquire(&lane->head);
		uint64_t published = pp_load_acquire(&lane->published);
		uint64_t seen = pp_load_relaxed(&lane->seen);
		uint64_t tail;

		sum.released += pp_load_acquire(&lane->released);
		tail = pp_load_acquire(&lane->tail);
		sum.ring += tail - refused;
		sum.inside += tail - head;
		sum.held_back += tail - (seen > published ? seen : published);
		/* relaxed: independent counters, each by itself. */
		sum.ring_full += pp_load_relaxed(&lane->ring_full);
		sum.released_dying += pp_load_relaxed(&lane->released_dying);
		sum.syncs += pp_load_relaxed(&lane->syncs);
		sum.sync_bytes += pp_load_relaxed(&lane->sync_bytes);
	}
	return sum;
}

uint64_t page_pool_held_back(const struct page_pool *pool)
{
	return pp_lanes_sum(pool).held_back;
}
