/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XDP: a NIC with a ring of buffers, one page each. A poll finds the oldest of them filled, decides
 * what becomes of them (dropped, sent back, redirected to another CPU), and gives the NIC as many
 * new ones.
 */
#include <errno.h>
#include <stdlib.h>

#include "workload_parts.h"

/* Buffers for the NIC where there is none: slots from nic_next on. */
static int refill(struct work *w, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		struct pp_page **slot = &w->nic[w->nic_next];

		if (!work_alloc(w, w->pools[0], 1, slot)) {
			*slot = NULL;
			return work_fail(w, -ENOMEM, "no page for the NIC's ring");
		}
		w->nic_next = (w->nic_next + 1) % w->nic_size;
	}
	return 0;
}

/* Both count: the first fill is the consumer's as well, so the napi is entered. */
int work_xdp_prepare(struct work *w)
{
	int err = work_add_pool(w, true, 0);

	if (err)
		return err;
	w->nic = calloc(w->knobs[WORKLOAD_RX_RING], sizeof(w->nic[0]));
	if (!w->nic)
		return work_fail(w, -ENOMEM, "no memory for the NIC's ring");
	w->nic_size = w->knobs[WORKLOAD_RX_RING];
	err = pp_napi_enter(w->napi);
	if (err)
		return work_fail(w, err, "cannot enter the napi: %s", page_pool_last_error());
	err = refill(w, w->nic_size);
	pp_napi_exit(w->napi);
	return err;
}

int work_xdp_tx_prepare(struct work *w)
{
	size_t size = w->knobs[WORKLOAD_TX_LAG] * w->knobs[WORKLOAD_PACKETS];
	int err = work_xdp_prepare(w);

	if (err)
		return err;
	w->tx = calloc(size, sizeof(w->tx[0]));
	if (!w->tx)
		return work_fail(w, -ENOMEM, "no memory for the sent packets");
	w->tx_size = size;
	return 0;
}

int work_xdp_redirect_prepare(struct work *w)
{
	w->bulk = true;
	return work_xdp_prepare(w);
}

/* The filled buffer i of this poll, which is the NIC's no more. */
static struct pp_page *receive(struct work *w, uint64_t i)
{
	struct pp_page **slot = &w->nic[(w->nic_next + i) % w->nic_size];
	struct pp_page *page = *slot;

	*slot = NULL;
	w->r->packets++;
	if (w->knobs[WORKLOAD_READ_DATA]) {
		const volatile uint64_t *data = pp_page_address(page);

		/* volatile: that it is read is the point, not what it is. */
		for (int k = 0; k < 8; k++)
			(void)data[k];
	}
	return page;
}

int work_xdp_drop_poll(struct work *w)
{
	uint64_t n = w->knobs[WORKLOAD_PACKETS];

	for (uint64_t i = 0; i < n; i++)
		work_put(w, w->pools[0], receive(w, i));
	return refill(w, n);
}

int work_xdp_tx_poll(struct work *w)
{
	uint64_t n = w->knobs[WORKLOAD_PACKETS];

	/* The slots that this poll's packets need are those that were sent tx-lag polls ago: their
	 * completions come first. */
	for (uint64_t i = 0; i < n; i++) {
		struct pp_page **slot = &w->tx[(w->tx_next + i) % w->tx_size];

		if (*slot)
			work_put(w, w->pools[0], *slot);
		*slot = NULL;
	}
	for (uint64_t i = 0; i < n; i++) {
		w->tx[w->tx_next] = receive(w, i);
		w->tx_next = (w->tx_next + 1) % w->tx_size;
	}
	return refill(w, n);
}

int work_xdp_redirect_poll(struct work *w)
{
	uint64_t n = w->knobs[WORKLOAD_PACKETS];

	for (uint64_t i = 0; i < n; i++) {
		struct pp_page *page = receive(w, i);

		if (work_queue_add(&w->queue, &page, 1)) {
			work_put(w, w->pools[0], page);
			return work_fail(w, -ENOMEM, "no memory for the redirected packets");
		}
	}
	return refill(w, n);
}
