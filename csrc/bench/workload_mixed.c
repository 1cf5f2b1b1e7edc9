/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mixed: several pools with one poller, as a NIC with several queues on one CPU, and one reader who
 * gets their packets as they come and returns the pages in bulks, of several pools each.
 */
#include "workload_parts.h"

int work_mixed_prepare(struct work *w)
{
	int err = 0;

	w->bulk = true;
	for (uint64_t i = 0; i < w->knobs[WORKLOAD_POOLS] && !err; i++)
		err = work_add_pool(w, true, 0);
	return err;
}

int work_mixed_poll(struct work *w)
{
	struct pp_page *pages[WORKLOAD_MAX_PAGES];

	for (uint64_t i = 0; i < w->knobs[WORKLOAD_PACKETS]; i++) {
		struct page_pool *pool = w->pools[work_chance(w, w->knobs[WORKLOAD_POOLS])];
		int err = work_deliver(w, pool, work_pages(w), pages);

		if (err)
			return err;
	}
	return 0;
}
