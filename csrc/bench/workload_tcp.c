/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tcp-stream: the poller delivers packets, a reader on another CPU reads them. The reader does not
 * free what it has read: it leaves that to the poller's CPU, which does so at the start of its next
 * poll (deferred freeing), up to so many packets; what is more it frees itself, through the ring.
 *
 * With napi-direct the pool is bound to the poller's napi, and the deferred frees find themselves
 * in it: they go into the cache as long as that has room. Without, all go through the ring, though
 * they happen where the consumer runs.
 */
#include "workload_parts.h"

int work_tcp_prepare(struct work *w)
{
	return work_add_pool(w, w->knobs[WORKLOAD_NAPI_DIRECT], 0);
}

int work_tcp_poll(struct work *w)
{
	struct pp_page *pages[WORKLOAD_MAX_PAGES];

	w->r->deferred += w->deferred.nr;
	work_put_queue(w, &w->deferred);
	for (uint64_t i = 0; i < w->knobs[WORKLOAD_PACKETS]; i++) {
		int err = work_deliver(w, w->pools[0], work_pages(w), pages);

		if (err)
			return err;
	}
	return 0;
}

void work_tcp_read(struct work *w)
{
	const uint64_t most = w->knobs[WORKLOAD_DEFER_MAX];
	struct work_queue *q = &w->queue;
	struct pp_page **pages = q->pages;

	for (size_t i = 0; i < q->packets; i++) {
		size_t n = q->lengths[i];

		if (w->deferred.packets < most) {
			int err = work_queue_add(&w->deferred, pages, n);

			if (err) {
				/* What is left stays in the queue's memory, and must not be put
				 * twice: it moves to the front. */
				w->err = err;
				work_queue_drop(q, i, (size_t)(pages - q->pages));
				return;
			}
		} else {
			for (size_t k = 0; k < n; k++)
				work_put(w, w->pools[0], pages[k]);
		}
		pages += n;
	}
	q->nr = q->packets = 0;
}
