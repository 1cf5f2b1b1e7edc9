/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The software IOMMU: what a device reads and writes goes through mappings, and what does not is
 * refused and reported. iommu.h has the design of its page table.
 *
 * One lock per device. The copies of write and read are made under it: so there are none under way
 * once unmap or unbind has returned. Reports are made after it is dropped.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "iommu.h"

static struct pp_iommu_device *behind(struct pp_device *device)
{
	return (struct pp_iommu_device *)device;
}

/* ---- reports ---------------------------------------------------------------------------------
 */

static void iommu_unref(struct pp_iommu *iommu)
{
	/* acq_rel: what the others did with it happened before it is freed. */
	if (pp_fetch_sub_acq_rel(&iommu->refs, 1) == 1)
		free(iommu);
}

static const char *why_text(const struct pp_iommu_fault *fault)
{
	switch (fault->why) {
	case PP_IOMMU_DEVICE_GONE:
		return "the device is gone";
	case PP_IOMMU_UNMAPPED:
		return "it was unmapped";
	case PP_IOMMU_NEVER:
		return "nothing known was ever mapped there";
	case PP_IOMMU_LENGTH:
		return fault->op == PP_IOMMU_UNMAP ? "that is not all of the mapping"
						   : "it goes beyond the mapping";
	case PP_IOMMU_DIRECTION:
		break;
	}
	return "the mapping is for the other direction";
}

/* No lock held. Everything of the fault is known but device and text. */
static PP_COLD int report(struct pp_iommu_device *d, struct pp_iommu_fault *fault)
{
	static const char *const ops[] = {
		[PP_IOMMU_WRITE] = "write", [PP_IOMMU_READ] = "read", [PP_IOMMU_SYNC] = "sync",
		[PP_IOMMU_UNMAP] = "unmap", [PP_IOMMU_MAP] = "map",
	};
	const struct pp_iommu_params *params = &d->iommu->params;
	bool was = fault->why == PP_IOMMU_DEVICE_GONE || fault->why == PP_IOMMU_UNMAPPED;
	char where[32] = "", memory[48] = "", text[224];

	if (fault->op != PP_IOMMU_MAP)
		snprintf(where, sizeof(where), " at 0x%" PRIx64, fault->dma);
	if (fault->memory)
		snprintf(memory, sizeof(memory), "; it %s memory 0x%" PRIxPTR,
			 was && fault->op != PP_IOMMU_MAP ? "was" : "is", (uintptr_t)fault->memory);
	snprintf(text, sizeof(text), "iommu: %s: %s of %zu bytes%s refused: %s%s", d->base.name,
		 ops[fault->op], fault->length, where, why_text(fault), memory);
	fault->device = d->base.name;
	fault->text = text;
	/* relaxed: a statistic. */
	pp_fetch_add_relaxed(&d->iommu->fault, 1);
	if (params->fault)
		params->fault(params->ctx, fault);
	else
		pp_log("%s", text);
	/* After the callback, whose own calls may have failed. */
	return pp_fail(fault->why == PP_IOMMU_DEVICE_GONE ? -ENODEV : -EFAULT, "%s", text);
}

/* ---- the table --------------------------------------------------------------------------------
 */

/* Level 1: of leaves. */
static unsigned slot_of(uint64_t page, unsigned level)
{
	return (page >> (level * PP_IOMMU_TABLE_SHIFT)) & (PP_IOMMU_TABLE_SIZE - 1);
}

static struct pp_iommu_leaf *leaf_at(const struct pp_iommu_device *d, uint64_t page)
{
	const struct pp_iommu_table *t = &d->root;

	if (page >= d->end >> PP_PAGE_SHIFT)
		return NULL;
	for (unsigned level = d->levels; t && level > 1; level--)
		t = t->child[slot_of(page, level)];
	return t ? t->child[slot_of(page, 1)] : NULL;
}

/* Of a child of t, level: of t. */
static struct pp_iommu_leaf *next_leaf(const struct pp_iommu_table *t, unsigned level,
				       uint64_t page)
{
	unsigned first = slot_of(page, level);

	for (unsigned i = first; i < PP_IOMMU_TABLE_SIZE; i++) {
		struct pp_iommu_leaf *leaf = t->child[i];

		if (leaf && level > 1)
			leaf = next_leaf(t->child[i], level - 1, i == first ? page : 0);
		if (leaf)
			return leaf;
	}
	return NULL;
}

struct pp_iommu_leaf *pp_iommu_next_leaf(const struct pp_iommu_device *d, uint64_t page)
{
	return page < d->end >> PP_PAGE_SHIFT ? next_leaf(&d->root, d->levels, page) : NULL;
}

static void hang(struct pp_iommu_device *d, struct pp_iommu_table *t, unsigned slot,
		 struct pp_iommu_node *child)
{
	child->parent = t;
	child->slot = (uint16_t)slot;
	t->child[slot] = child;
	t->node.used++;
	d->nr_node++;
}

/* A table without children goes as well, and so on upwards. */
static void prune(struct pp_iommu_device *d, struct pp_iommu_table *t)
{
	while (!t->node.used && t->node.parent) {
		struct pp_iommu_table *parent = t->node.parent;

		parent->child[t->node.slot] = NULL;
		parent->node.used--;
		d->nr_node--;
		free(t);
		t = parent;
	}
}

static void leaf_free(struct pp_iommu_device *d, struct pp_iommu_leaf *leaf)
{
	struct pp_iommu_table *parent = leaf->node.parent;

	parent->child[leaf->node.slot] = NULL;
	parent->node.used--;
	d->nr_node--;
	free(leaf);
	prune(d, parent);
}

/* NULL: no memory, and nothing was changed. */
static struct pp_iommu_leaf *leaf_make(struct pp_iommu_device *d, uint64_t page)
{
	struct pp_iommu_table *t = &d->root, *child;
	struct pp_iommu_leaf *leaf;

	for (unsigned level = d->levels; level > 1; level--, t = child) {
		child = t->child[slot_of(page, level)];
		if (child)
			continue;
		child = pp_sys_calloc(1, sizeof(*child));
		if (!child) {
			prune(d, t);
			return NULL;
		}
		hang(d, t, slot_of(page, level), &child->node);
	}
	leaf = t->child[slot_of(page, 1)];
	if (leaf)
		return leaf;
	leaf = pp_sys_calloc(1, sizeof(*leaf));
	if (!leaf) {
		prune(d, t);
		return NULL;
	}
	leaf->first = page & ~(uint64_t)(PP_IOMMU_TABLE_SIZE - 1);
	leaf->fresh = true;
	hang(d, t, slot_of(page, 1), &leaf->node);
	return leaf;
}

/* The entry of an address, and where its mapping starts. NULL: nothing known. */
static const struct pp_iommu_entry *entry_at(const struct pp_iommu_device *d, uint64_t dma,
					     uint64_t *start)
{
	const struct pp_iommu_leaf *leaf = leaf_at(d, dma >> PP_PAGE_SHIFT);
	const struct pp_iommu_entry *e;

	if (!leaf)
		return NULL;
	e = &leaf->entry[slot_of(dma >> PP_PAGE_SHIFT, 0)];
	if (e->state == PP_IOMMU_FREE)
		return NULL;
	*start = dma & ~(pp_iommu_span(e->length) - 1);
	return e;
}

/* ---- leaves that only remember --------------------------------------------------------------- */

static void idle_remove(struct pp_iommu_device *d, struct pp_iommu_leaf *leaf)
{
	*(leaf->prev ? &leaf->prev->next : &d->idle_first) = leaf->next;
	*(leaf->next ? &leaf->next->prev : &d->idle_last) = leaf->prev;
	leaf->prev = leaf->next = NULL;
	leaf->idle = false;
	d->nr_idle--;
}

static void idle_append(struct pp_iommu_device *d, struct pp_iommu_leaf *leaf)
{
	leaf->prev = d->idle_last;
	*(d->idle_last ? &d->idle_last->next : &d->idle_first) = leaf;
	d->idle_last = leaf;
	leaf->idle = true;
	d->nr_idle++;
}

/*
 * A leaf may have become one that only remembers. Not the one where the cursor is: it is about to
 * be used again.
 */
static void settle(struct pp_iommu_device *d, struct pp_iommu_leaf *leaf)
{
	if (leaf->node.used || leaf->idle || leaf == leaf_at(d, d->cursor >> PP_PAGE_SHIFT))
		return;
	idle_append(d, leaf);
	if (d->nr_idle > PP_IOMMU_IDLE_LEAVES) {
		struct pp_iommu_leaf *oldest = d->idle_first;

		idle_remove(d, oldest);
		leaf_free(d, oldest);
	}
}

/* ---- mappings ---------------------------------------------------------------------------------
 */

/* Behind the first mapping that has a part in these addresses; 0: there is none. */
static uint64_t behind_mapping(const struct pp_iommu_device *d, uint64_t at, uint64_t span)
{
	uint64_t page = at >> PP_PAGE_SHIFT, end = (at + span) >> PP_PAGE_SHIFT;

	while (page < end) {
		const struct pp_iommu_leaf *leaf = leaf_at(d, page);
		uint64_t next = (page | (PP_IOMMU_TABLE_SIZE - 1)) + 1;

		if (leaf && leaf->node.used == PP_IOMMU_TABLE_SIZE)
			return next << PP_PAGE_SHIFT;
		if (!leaf || !leaf->node.used) {
			page = next;
			continue;
		}
		for (; page < next && page < end; page++) {
			const struct pp_iommu_entry *e = &leaf->entry[slot_of(page, 0)];
			uint64_t mine = pp_iommu_span(e->length);

			if (e->state == PP_IOMMU_MAPPED)
				return ((page << PP_PAGE_SHIFT) & ~(mine - 1)) + mine;
		}
	}
	return 0;
}

/* Where the next mapping goes; 0: the space is used up. */
static uint64_t find_space(const struct pp_iommu_device *d, uint64_t span)
{
	uint64_t at = d->cursor;
	bool again = false;

	for (;;) {
		uint64_t next;

		at = (at + span - 1) & ~(span - 1); /* both far from 2^64 */
		if (at + span > d->end) {
			if (again)
				return 0;
			again = true;
			at = PP_PAGE_SIZE;
			continue;
		}
		next = behind_mapping(d, at, span);
		if (!next)
			return at;
		at = next;
	}
}

/* All leaves of the pages from first to before end, or none that was not there before. */
static int make_leaves(struct pp_iommu_device *d, uint64_t first, uint64_t end)
{
	uint64_t page = first;

	while (page < end && leaf_make(d, page))
		page = (page | (PP_IOMMU_TABLE_SIZE - 1)) + 1;
	if (page >= end)
		return 0;
	for (end = page, page = first; page < end;) {
		struct pp_iommu_leaf *leaf = leaf_at(d, page);

		page = leaf->first + PP_IOMMU_TABLE_SIZE;
		if (leaf->fresh)
			leaf_free(d, leaf);
	}
	return -ENOMEM;
}

static int map_locked(struct pp_iommu_device *d, void *memory, size_t length,
		      enum pp_dma_direction dir, uint64_t *dma)
{
	struct pp_iommu_leaf *leaf, *left;
	uint64_t span, at;
	int err;

	if (length > d->end)
		return -ENOSPC;
	span = pp_iommu_span(length);
	at = find_space(d, span);
	if (!at)
		return -ENOSPC;
	err = make_leaves(d, at >> PP_PAGE_SHIFT, (at + span) >> PP_PAGE_SHIFT);
	if (err)
		return err;
	for (uint64_t page = at >> PP_PAGE_SHIFT; page < (at + span) >> PP_PAGE_SHIFT;) {
		leaf = leaf_at(d, page);
		leaf->fresh = false;
		if (leaf->idle)
			idle_remove(d, leaf);
		for (; page < leaf->first + PP_IOMMU_TABLE_SIZE &&
		       page < (at + span) >> PP_PAGE_SHIFT;
		     page++) {
			leaf->entry[slot_of(page, 0)] = (struct pp_iommu_entry){
				.memory = memory,
				.length = length,
				.dir = dir,
				.state = PP_IOMMU_MAPPED,
			};
			leaf->node.used++;
		}
	}
	d->mapped++;
	left = leaf_at(d, d->cursor >> PP_PAGE_SHIFT);
	d->cursor = at + span;
	if (left)
		settle(d, left);
	*dma = at;
	return 0;
}

static int iommu_map(struct pp_device *device, void *memory, size_t length,
		     enum pp_dma_direction dir, uint64_t *dma)
{
	struct pp_iommu_device *d = behind(device);
	struct pp_iommu_fault fault;
	int err;

	if (!length)
		return pp_fail(-EINVAL, "iommu: %s: a mapping of no bytes", device->name);
	pthread_mutex_lock(&d->lock);
	err = d->gone ? -ENODEV : map_locked(d, memory, length, dir, dma);
	pthread_mutex_unlock(&d->lock);
	switch (err) {
	case -ENODEV:
		fault = (struct pp_iommu_fault){
			.op = PP_IOMMU_MAP,
			.why = PP_IOMMU_DEVICE_GONE,
			.length = length,
			.memory = memory,
		};
		return report(d, &fault);
	case -ENOSPC:
		return pp_fail(err,
			       "iommu: %s: address space of %u bits is used up: no room for "
			       "%zu bytes",
			       device->name, d->iommu->params.bits, length);
	case -ENOMEM:
		return pp_fail(err, "iommu: %s: no memory for the page table", device->name);
	}
	return err;
}

/*
 * May it be done? fault has op, dma (of a mapping, or in one) and length. False: it has why. memory
 * and dma are then those of the byte at offset.
 */
static bool granted(const struct pp_iommu_device *d, struct pp_iommu_fault *fault, uint64_t offset)
{
	uint64_t start = 0, at = 0, left = 0;
	const struct pp_iommu_entry *e = entry_at(d, fault->dma, &start);
	bool inside = false, whole;

	if (e) {
		/* One after the other, since the sum may not fit into 64 bits. */
		at = fault->dma - start;
		inside = at <= e->length && offset <= e->length - at;
		at += offset;
		left = inside ? e->length - at : 0;
		if (left)
			fault->memory = e->memory + at;
	}
	fault->dma += offset;
	whole = fault->op == PP_IOMMU_UNMAP ? inside && !at && fault->length == left
					    : inside && fault->length <= left;
	if (d->gone)
		fault->why = PP_IOMMU_DEVICE_GONE;
	else if (!e)
		fault->why = PP_IOMMU_NEVER;
	else if (e->state == PP_IOMMU_WAS_MAPPED)
		fault->why = PP_IOMMU_UNMAPPED;
	else if (!whole)
		fault->why = PP_IOMMU_LENGTH;
	else if ((fault->op == PP_IOMMU_WRITE && e->dir == PP_DMA_TO_DEVICE) ||
		 (fault->op == PP_IOMMU_READ && e->dir == PP_DMA_FROM_DEVICE))
		fault->why = PP_IOMMU_DIRECTION;
	else
		return true;
	return false;
}

static void unmap_locked(struct pp_iommu_device *d, uint64_t dma, size_t length)
{
	uint64_t page = dma >> PP_PAGE_SHIFT;
	uint64_t end = (dma + pp_iommu_span(length)) >> PP_PAGE_SHIFT;

	while (page < end) {
		struct pp_iommu_leaf *leaf = leaf_at(d, page);

		for (; page < end && page < leaf->first + PP_IOMMU_TABLE_SIZE; page++) {
			leaf->entry[slot_of(page, 0)].state = PP_IOMMU_WAS_MAPPED;
			leaf->node.used--;
		}
		settle(d, leaf);
	}
	d->mapped--;
}

static void iommu_unmap(struct pp_device *device, uint64_t dma, size_t length,
			enum pp_dma_direction dir)
{
	struct pp_iommu_device *d = behind(device);
	struct pp_iommu_fault fault = {.op = PP_IOMMU_UNMAP, .dma = dma, .length = length};
	bool ok;

	pthread_mutex_lock(&d->lock);
	ok = granted(d, &fault, 0);
	if (ok)
		unmap_locked(d, dma, length);
	pthread_mutex_unlock(&d->lock);
	if (!ok)
		report(d, &fault);
}

static void iommu_sync(struct pp_device *device, uint64_t dma, size_t offset, size_t length,
		       enum pp_dma_direction dir, bool for_cpu)
{
	struct pp_iommu_device *d = behind(device);
	struct pp_iommu_fault fault = {.op = PP_IOMMU_SYNC, .dma = dma, .length = length};
	bool ok;

	/* There is nothing to copy: device and CPU share the memory. What counts is that the driver
	 * syncs only what is mapped. */
	pthread_mutex_lock(&d->lock);
	ok = granted(d, &fault, offset);
	pthread_mutex_unlock(&d->lock);
	if (!ok)
		report(d, &fault);
}

static int iommu_write(struct pp_device *device, uint64_t dma, const void *data, size_t length)
{
	struct pp_iommu_device *d = behind(device);
	struct pp_iommu_fault fault = {.op = PP_IOMMU_WRITE, .dma = dma, .length = length};
	bool ok;

	pthread_mutex_lock(&d->lock);
	ok = granted(d, &fault, 0);
	if (ok && length)
		memmove(fault.memory, data, length); /* data may be of the same page */
	pthread_mutex_unlock(&d->lock);
	return ok ? 0 : report(d, &fault);
}

static int iommu_read(struct pp_device *device, uint64_t dma, void *data, size_t length)
{
	struct pp_iommu_device *d = behind(device);
	struct pp_iommu_fault fault = {.op = PP_IOMMU_READ, .dma = dma, .length = length};
	bool ok;

	pthread_mutex_lock(&d->lock);
	ok = granted(d, &fault, 0);
	if (ok && length)
		memmove(data, fault.memory, length);
	pthread_mutex_unlock(&d->lock);
	return ok ? 0 : report(d, &fault);
}

/*
 * What was mapped stays known, all of it: nothing can be mapped any more, so the table does not
 * grow.
 */
static int64_t iommu_unbind(struct pp_device *device)
{
	struct pp_iommu_device *d = behind(device);
	struct pp_iommu_leaf *leaf;
	uint64_t left, page = 0;
	bool again;

	pthread_mutex_lock(&d->lock);
	again = d->gone;
	left = d->mapped;
	d->gone = true;
	d->mapped = 0;
	while (!again && (leaf = pp_iommu_next_leaf(d, page))) {
		for (unsigned i = 0; leaf->node.used && i < PP_IOMMU_TABLE_SIZE; i++)
			if (leaf->entry[i].state == PP_IOMMU_MAPPED) {
				leaf->entry[i].state = PP_IOMMU_WAS_MAPPED;
				leaf->node.used--;
			}
		page = leaf->first + PP_IOMMU_TABLE_SIZE;
	}
	pthread_mutex_unlock(&d->lock);
	if (again)
		return pp_fail(-ENODEV, "device %s was unbound already", device->name);
	return (int64_t)left;
}

static size_t iommu_mappings(struct pp_device *device, uint64_t dma, size_t n,
			     struct pp_iommu_mapping *ret)
{
	struct pp_iommu_device *d = behind(device);
	const struct pp_iommu_leaf *leaf;
	uint64_t page = dma >> PP_PAGE_SHIFT;
	size_t got = 0;

	pthread_mutex_lock(&d->lock);
	while (got < n && (leaf = pp_iommu_next_leaf(d, page))) {
		const struct pp_iommu_entry *e;
		uint64_t start;

		if (page < leaf->first)
			page = leaf->first;
		e = &leaf->entry[slot_of(page, 0)];
		if (e->state != PP_IOMMU_MAPPED) {
			/* The rest of a leaf without mappings at one step. */
			page = leaf->node.used ? page + 1 : leaf->first + PP_IOMMU_TABLE_SIZE;
			continue;
		}
		start = (page << PP_PAGE_SHIFT) & ~(pp_iommu_span(e->length) - 1);
		if (start >= dma)
			ret[got++] = (struct pp_iommu_mapping){
				.dma = start,
				.memory = e->memory,
				.length = e->length,
				.dir = e->dir,
			};
		page = (start + pp_iommu_span(e->length)) >> PP_PAGE_SHIFT;
	}
	pthread_mutex_unlock(&d->lock);
	return got;
}

static void iommu_retire(struct pp_device *device)
{
	struct pp_iommu_device *d = behind(device);
	struct pp_iommu_leaf *leaf;

	while ((leaf = pp_iommu_next_leaf(d, 0)))
		leaf_free(d, leaf);
	pthread_mutex_destroy(&d->lock);
	iommu_unref(d->iommu);
	free(d);
}

static const struct pp_device_ops iommu_ops = {
	.map = iommu_map,
	.unmap = iommu_unmap,
	.sync = iommu_sync,
	.write = iommu_write,
	.read = iommu_read,
	.unbind = iommu_unbind,
	.mappings = iommu_mappings,
	.retire = iommu_retire,
};

/* ---- an IOMMU and its devices ------------------------------------------------------------------
 */

int pp_iommu_create(const struct pp_iommu_params *params, struct pp_iommu **ret)
{
	struct pp_iommu *iommu;
	int err = pp_check_size("struct pp_iommu_params", params, params->size, sizeof(*params),
				sizeof(*params));

	if (err)
		return err;
	if (params->bits && (params->bits < 16 || params->bits > 56))
		return pp_fail(-EINVAL, "an IOMMU's addresses of %u bits: must be 16 to 56",
			       params->bits);
	iommu = pp_sys_calloc(1, sizeof(*iommu));
	if (!iommu)
		return pp_fail(-ENOMEM, "no memory for an IOMMU");
	iommu->refs = 1;
	iommu->params = *params;
	if (!iommu->params.bits)
		iommu->params.bits = 48;
	*ret = iommu;
	return 0;
}

void pp_iommu_put(struct pp_iommu *iommu)
{
	iommu_unref(iommu);
}

int pp_iommu_attach(struct pp_iommu *iommu, const char *name, struct pp_device **ret)
{
	unsigned bits = iommu->params.bits - PP_PAGE_SHIFT; /* of a page number */
	struct pp_iommu_device *d = pp_sys_calloc(1, sizeof(*d));

	if (!d)
		return pp_fail(-ENOMEM, "no memory for a device behind an IOMMU");
	pp_device_init(&d->base, &iommu_ops, name);
	d->base.syncs_device = true;
	d->base.syncs_cpu = true;
	/* relaxed: the caller has a reference already. */
	pp_fetch_add_relaxed(&iommu->refs, 1);
	d->iommu = iommu;
	d->end = 1ull << iommu->params.bits;
	d->cursor = PP_PAGE_SIZE;
	/* What the leaves leave over, but at least the root. */
	d->levels = 1;
	while (bits > (d->levels + 1) * PP_IOMMU_TABLE_SHIFT)
		d->levels++;
	pthread_mutex_init(&d->lock, NULL); /* cannot fail without attributes */
	*ret = &d->base;
	return 0;
}

uint64_t pp_iommu_faults(const struct pp_iommu *iommu)
{
	/* relaxed: a statistic. */
	return pp_load_relaxed(&iommu->fault);
}
