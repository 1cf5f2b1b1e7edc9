/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A NIC, as far as memory goes: a ring of receive descriptors between a driver and the wire.
 *
 *     polled <= done <= posted <= polled + slots       counters that wrap, modulo 2^32
 *
 * Slots from polled to done are completed, from done to posted wait for frames. A slot belongs to
 * the wire in the latter range and to the driver otherwise; posted and done hand it over.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define NIC_DEFAULT_SLOTS 256u
#define NIC_MAX_SLOTS 65536u

struct descriptor {
	uint64_t dma;
	size_t length;
	void *cookie;
	int64_t result; /* bytes of the frame, or a negative errno */
};

struct pp_nic {
	/* constant */
	struct pp_device *device; /* a reference */
	struct descriptor *ring;
	uint32_t slots;
	/* driver */
	uint32_t posted PP_ALIGNED(PP_CACHELINE); /* the wire reads it, atomic */
	uint32_t polled;
	/* wire */
	uint32_t done PP_ALIGNED(PP_CACHELINE); /* the driver reads it, atomic */
};

static struct descriptor *at(const struct pp_nic *nic, uint32_t i)
{
	return &nic->ring[i & (nic->slots - 1)];
}

int pp_nic_create(const struct pp_nic_params *params, struct pp_nic **ret)
{
	struct pp_nic *nic;
	uint32_t slots;
	int err = pp_check_size("struct pp_nic_params", params, params->size, sizeof(*params),
				sizeof(*params));

	if (err)
		return err;
	slots = params->slots ? params->slots : NIC_DEFAULT_SLOTS;
	if (slots > NIC_MAX_SLOTS || (slots & (slots - 1)))
		return pp_fail(-EINVAL, "a NIC of %u slots: must be a power of two, %u at most",
			       slots, NIC_MAX_SLOTS);
	nic = pp_sys_aligned_zalloc(PP_CACHELINE, sizeof(*nic));
	if (!nic)
		return pp_fail(-ENOMEM, "no memory for a NIC");
	nic->ring = pp_sys_calloc(slots, sizeof(*nic->ring));
	if (!nic->ring) {
		free(nic);
		return pp_fail(-ENOMEM, "no memory for the %u descriptors of a NIC", slots);
	}
	nic->slots = slots;
	nic->device = params->device ? params->device : pp_device_none();
	pp_device_get(nic->device);
	*ret = nic;
	return 0;
}

void pp_nic_destroy(struct pp_nic *nic)
{
	pp_device_put(nic->device);
	free(nic->ring);
	free(nic);
}

int pp_nic_post(struct pp_nic *nic, uint64_t dma, size_t length, void *cookie)
{
	if (nic->posted - nic->polled == nic->slots)
		return pp_fail(-ENOSPC, "all %u descriptors of the NIC are in use: poll first",
			       nic->slots);
	*at(nic, nic->posted) = (struct descriptor){
		.dma = dma,
		.length = length,
		.cookie = cookie,
	};
	/* release: the wire, which acquires it, sees the descriptor, and in the buffer what the
	 * driver wrote there. */
	pp_store_release(&nic->posted, nic->posted + 1);
	return 0;
}

int pp_nic_receive(struct pp_nic *nic, const void *frame, size_t length)
{
	struct descriptor *slot = at(nic, nic->done);
	int err;

	/* acquire: pairs with the release in post. */
	if (pp_load_acquire(&nic->posted) == nic->done)
		return pp_fail(-ENOBUFS, "no buffer posted: the frame is dropped");
	if (length > slot->length)
		return pp_fail(-EMSGSIZE,
			       "a frame of %zu bytes for a buffer of %zu: the frame is dropped",
			       length, slot->length);
	err = pp_device_write(nic->device, slot->dma, frame, length);
	slot->result = err ? err : (int64_t)length;
	/* release: the driver, which acquires it, sees the result and the frame; and that the slot
	 * is no longer looked at, before it posts the next one there. */
	pp_store_release(&nic->done, nic->done + 1);
	return err;
}

bool pp_nic_poll(struct pp_nic *nic, void **cookie, int64_t *length)
{
	const struct descriptor *slot = at(nic, nic->polled);

	/* acquire: pairs with the release in receive. */
	if (pp_load_acquire(&nic->done) == nic->polled)
		return false;
	*cookie = slot->cookie;
	*length = slot->result;
	nic->polled++;
	return true;
}

bool pp_nic_take(struct pp_nic *nic, void **cookie)
{
	/* acquire: the wire is silent, and this is what it did last. */
	uint32_t done = pp_load_acquire(&nic->done);

	if (done == nic->posted)
		return false;
	*cookie = at(nic, done)->cookie;
	/* Those that are completed and not polled move up: so the slot is free at once. */
	for (uint32_t i = done; i != nic->polled; i--)
		*at(nic, i) = *at(nic, i - 1);
	nic->polled++;
	/* relaxed: the wire is silent; whatever tells it that it may go on orders this. */
	pp_store_relaxed(&nic->done, done + 1);
	return true;
}
