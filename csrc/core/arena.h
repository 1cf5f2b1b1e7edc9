/* SPDX-License-Identifier: BSD-2-Clause */
/* The arena: a buddy allocator over reserved address space, with a magazine per thread before it.
 */
#ifndef PP_CORE_ARENA_H
#define PP_CORE_ARENA_H

#include "internal.h"

#define PP_CHUNK_SIZE ((size_t)PP_CHUNK_PAGES << PP_PAGE_SHIFT)

struct pp_magazine;

enum pp_arena_life {
	PP_ARENA_OPEN = 0,
	PP_ARENA_CLOSING, /* no reference left: no magazines any more, they are being emptied */
	PP_ARENA_CLOSED,  /* the last page to come back frees the arena */
};

struct pp_arena {
	struct pp_provider base;
	/* constant */
	char *memory;     /* base.nr pages, i at memory + i * PP_PAGE_SIZE; an arena's: address
			   * space aligned to a chunk */
	uint32_t reserve; /* the last pages to be handed out are marked pfmemalloc */
	int nid;
	unsigned huge;
	bool region; /* the memory is the caller's, who has it back with release */
	void (*release)(void *ctx, void *memory, size_t length);
	void *release_ctx;
	size_t length; /* bytes that the caller gave */
	/* under lock; taken, mapped and failed read by anyone, atomic */
	pthread_mutex_t lock;
	uint32_t free[PP_CHUNK_ORDER + 1]; /* list of free blocks by order: index + 1; 0: none */
	uint32_t mapped;                   /* pages usable so far; an arena's: whole chunks */
	uint64_t taken;                    /* pages not in the buddy: out + in magazines */
	uint64_t failed;
	unsigned lacks; /* enum pp_lacks */
	uint8_t life;   /* enum pp_arena_life; written under lock, atomic */
	/* under the magazines' lock */
	struct pp_magazine *magazines;
};

/* Arena lock held, magazine or holder gives up the page. */
void pp_arena_give(struct pp_arena *arena, struct pp_page *page);

/* Without a magazine. May free the arena. */
void pp_arena_free_locked(struct pp_arena *arena, struct pp_page *page);

#endif
