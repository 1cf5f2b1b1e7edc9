/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * memory-pressure: there is little memory, and the last of it is an emergency reserve. While the
 * reader has its hiccup packets pile up: first pages come marked pfmemalloc, then none come.
 *
 * What the kernel's stack does with a packet in such a page: it is dropped at once, unless it is
 * for a socket that memory is freed through (swap over the network). Here that is every fourth.
 */
#include <errno.h>
#include <stdlib.h>

#include "workload_parts.h"

#define FREES_MEMORY(i) ((i) % 4 == 0)

int work_pressure_prepare(struct work *w)
{
	int err = work_make_region(w);

	return err ? err : work_add_pool(w, true, 0);
}

int work_pressure_poll(struct work *w)
{
	struct pp_page *pages[WORKLOAD_MAX_PAGES];
	struct workload_result *r = w->r;

	for (uint64_t i = 0; i < w->knobs[WORKLOAD_PACKETS]; i++) {
		size_t n = work_pages(w), emergency = 0;

		if (work_alloc(w, w->pools[0], n, pages) < n) {
			r->dropped++;
			continue;
		}
		for (size_t k = 0; k < n; k++)
			emergency += pp_page_is_pfmemalloc(pages[k]);
		r->emergency += emergency;
		if (emergency && !FREES_MEMORY(i)) {
			r->dropped++;
			for (size_t k = 0; k < n; k++)
				work_put(w, w->pools[0], pages[k]);
			continue;
		}
		if (work_queue_add(&w->queue, pages, n)) {
			for (size_t k = 0; k < n; k++)
				work_put(w, w->pools[0], pages[k]);
			return work_fail(w, -ENOMEM, "no memory for the reader's queue");
		}
		r->packets++;
	}
	return 0;
}
