/* SPDX-License-Identifier: BSD-2-Clause */
/* The ring: see struct pp_ring. */
#ifndef PP_CORE_RING_H
#define PP_CORE_RING_H

#include "types.h"

/* Slots the consumer clears at once: two cache lines' worth, but one by one in a small ring, where
 * holding back so many would make it look full (the kernel's rule). */
static inline uint32_t pp_ring_batch(uint32_t size)
{
	uint32_t batch = PP_CACHELINE * 2 / sizeof(struct pp_page *);

	return batch > size / 2 ? 1 : batch;
}

/* Under the ring's lock. False: no free slot. */
static inline bool pp_ring_produce(struct pp_ring *r, struct pp_page *page)
{
	struct pp_page **slot = &r->queue[r->producer];

	/* acquire: pairs with the consumer's clearing; it has read the slot before. */
	if (unlikely(pp_load_acquire(slot)))
		return false;
	/* release: who takes the page out sees all that was written to it and its metadata. */
	pp_store_release(slot, page);
	if (unlikely(++r->producer == r->size))
		r->producer = 0;
	return true;
}

/* Consumer. The oldest page, left in its slot; NULL: empty. */
static inline struct pp_page *pp_ring_peek(const struct pp_ring *r)
{
	/* acquire: pairs with produce. */
	return pp_load_acquire(&r->queue[r->consumer_head]);
}

/* Consumer. The page that peek has shown is taken. */
static inline void pp_ring_discard(struct pp_ring *r)
{
	uint32_t head = ++r->consumer_head;

	if (unlikely(head - r->consumer_tail >= r->batch || head == r->size)) {
		/* The last first: a producer that waits at the first finds the whole batch free,
		 * and the two do not fight for the line slot by slot. */
		for (uint32_t i = head; i-- > r->consumer_tail;)
			/* release: the consumer's read of the slot comes before a producer's write.
			 */
			pp_store_release(&r->queue[i], NULL);
		if (head == r->size)
			r->consumer_head = head = 0;
		r->consumer_tail = head;
	}
}

#endif
