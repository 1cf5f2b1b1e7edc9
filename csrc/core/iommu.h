/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device behind the software IOMMU: its address space and its page table.
 *
 * The table is a radix tree of 9 bits a level over the page numbers of device addresses, as many
 * levels as the address has bits for. What hardware keeps in 8 bytes a page takes 16 here, because
 * an entry stays when its mapping goes: a late access can then be told from a wild one, and
 * reported with the memory that it would have hit.
 *
 * A mapping is aligned to its span (its length, rounded up to a power of two pages), and the whole
 * span is its own. So each of its entries can say the same, its first byte and its length, and
 * where it starts follows from the address that led to the entry.
 *
 * Invariants, checked by pp_iommu_is_valid():
 *
 *   leaf.used    = its entries that are mapped
 *   table.used   = its children; 0 only in the root
 *   mapped       = mappings that start in some leaf
 *   idle leaves  = leaves with used == 0 that the cursor is not in, at most PP_IOMMU_IDLE_LEAVES
 *                  (once the device is gone: those from before)
 */
#ifndef PP_CORE_IOMMU_H
#define PP_CORE_IOMMU_H

#include "internal.h"

#define PP_IOMMU_TABLE_SHIFT 9
#define PP_IOMMU_TABLE_SIZE (1u << PP_IOMMU_TABLE_SHIFT)
/* Leaves that are kept for what they remember alone: 128 MiB of addresses, 512 KiB of memory. */
#define PP_IOMMU_IDLE_LEAVES 64

enum pp_iommu_state {
	PP_IOMMU_FREE = 0,
	PP_IOMMU_MAPPED,
	PP_IOMMU_WAS_MAPPED,
};

struct pp_iommu_entry {
	char *memory; /* first byte of the mapping, not of this page */
	uint64_t length : 60;
	uint64_t dir : 2;   /* enum pp_dma_direction */
	uint64_t state : 2; /* enum pp_iommu_state */
};

_Static_assert(sizeof(struct pp_iommu_entry) == 16, "a leaf is 8 KiB and its head");

/* What both kinds of node have first: where they hang. */
struct pp_iommu_node {
	struct pp_iommu_table *parent; /* NULL: the root */
	uint16_t slot;                 /* in it */
	uint16_t used;                 /* a leaf: entries that are mapped; a table: children */
};

struct pp_iommu_leaf {
	struct pp_iommu_node node;
	bool fresh;     /* made by a map that is not through yet */
	bool idle;      /* it is in the FIFO */
	uint64_t first; /* page number of entry[0]; constant */
	struct pp_iommu_leaf *prev, *next;
	struct pp_iommu_entry entry[PP_IOMMU_TABLE_SIZE];
};

struct pp_iommu_table {
	struct pp_iommu_node node;
	void *child[PP_IOMMU_TABLE_SIZE]; /* leaves at level 1, tables above */
};

/* Everything behind lock is under it. */
struct pp_iommu_device {
	struct pp_device base;
	struct pp_iommu *iommu; /* constant, a reference */
	uint64_t end;           /* constant: first address beyond the space */
	unsigned levels;        /* constant: of tables, without the leaves; 1 or more */
	pthread_mutex_t lock;
	bool gone;        /* unbound */
	uint64_t cursor;  /* where the last mapping ended */
	uint64_t mapped;  /* mappings */
	uint64_t nr_node; /* leaves, and tables below the root */
	/* leaves that only remember, the one that was first to do so first */
	struct pp_iommu_leaf *idle_first, *idle_last;
	unsigned nr_idle;
	struct pp_iommu_table root;
};

struct pp_iommu {
	int64_t refs;                  /* creator and devices; anyone, atomic */
	uint64_t fault;                /* refusals; anyone, atomic */
	struct pp_iommu_params params; /* constant */
};

/* Bytes of address space that a mapping takes. */
static inline uint64_t pp_iommu_span(uint64_t length)
{
	uint64_t span = PP_PAGE_SIZE;

	while (span < length)
		span <<= 1;
	return span;
}

/* The first leaf that has a page number at or above this; NULL: none. */
struct pp_iommu_leaf *pp_iommu_next_leaf(const struct pp_iommu_device *d, uint64_t page);

#endif
