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

/* Under the ring's lock. As many of the n pages as there are free slots; how many. */
static inline size_t pp_ring_produce(struct pp_ring *r, struct pp_page **pages, size_t n)
{
	uint32_t producer = r->producer; /* in a register, not through memory page by page */
	size_t in;

	for (in = 0; in < n; in++) {
		struct pp_page **slot = &r->queue[producer];

		/* acquire: pairs with the consumer's clearing; it has read the slot before. */
		if (unlikely(pp_load_acquire(slot)))
			break;
		/* release: who takes the page out sees all that was written to it and its metadata.
		 */
		pp_store_release(slot, pages[in]);
		if (unlikely(++producer == r->size))
			producer = 0;
	}
	r->producer = producer;
	return in;
}

/* Consumer. The page in slot head, left there; NULL: the ring is empty. */
static inline struct pp_page *pp_ring_peek(const struct pp_ring *r, uint32_t head)
{
	/* acquire: pairs with produce. */
	return pp_load_acquire(&r->queue[head]);
}

/*
 * Consumer. The page in slot head is taken; the next head, which the caller stores in
 * consumer_head when it is done. Slots are cleared in batches, and always at the wrap.
 */
static inline uint32_t pp_ring_discard(struct pp_ring *r, uint32_t head)
{
	uint32_t tail = r->consumer_tail;

	head++;
	if (unlikely(head - tail >= r->batch || head == r->size)) {
		/* The last first: a producer that waits at the first finds the whole batch free,
		 * and the two do not fight for the line slot by slot. */
		for (uint32_t i = head; i-- > tail;)
			/* release: the consumer's read of the slot comes before a producer's
			 * write. */
			pp_store_release(&r->queue[i], NULL);
		if (head == r->size)
			head = 0;
		r->consumer_tail = head;
	}
	return head;
}

#endif
