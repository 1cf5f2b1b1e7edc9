/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A lock that is biased to one thread: the owner enters and leaves with plain loads and stores,
 * no lock prefix; a remote thread pays with a membarrier(2), which is what makes that right.
 *
 * owner                              remote (one at a time, under a lock of the caller's)
 *   busy = 1                           wanted = 1
 *   (compiler barrier)                 membarrier: every thread of the process has passed a full
 *   wanted set? busy = 0, refused                  barrier since
 *   ... inside ...                     wait until busy == 0
 *   busy = 0                           ... inside ...
 *                                      wanted = 0
 *
 * If the owner's store to busy came before its barrier, the remote side sees it and waits. If it
 * came after, the owner's load of wanted came after too and sees 1. So both are never inside.
 */
#ifndef PP_BASE_BIASED_LOCK_H
#define PP_BASE_BIASED_LOCK_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "atomic.h"
#include "compiler.h"

struct pp_biased_lock {
	uint32_t busy;   /* written by the owner */
	uint32_t wanted; /* written by the remote side */
};

#ifdef PP_TSAN
/* ThreadSanitizer does not know membarrier: the same protocol with a read-modify-write on both
 * sides, so that it checks what is done inside. */
static inline bool pp_biased_enter(struct pp_biased_lock *l)
{
	return !pp_exchange_acquire(&l->busy, 1u);
}
#else
static inline bool pp_biased_enter(struct pp_biased_lock *l)
{
	/* relaxed: ordered against the load below by the remote side's membarrier. */
	pp_store_relaxed(&l->busy, 1u);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	/* acquire: when a remote side has left (wanted back to 0), its work is visible. */
	if (likely(!pp_load_acquire(&l->wanted)))
		return true;
	pp_store_release(&l->busy, 0u);
	return false;
}
#endif

static inline void pp_biased_leave(struct pp_biased_lock *l)
{
	/* release: the remote side that waits for 0 sees what was done inside. */
	pp_store_release(&l->busy, 0u);
}

/*
 * Can the owner's side be used at all? False where there is no membarrier. Costs a system call
 * the first time.
 */
bool pp_biased_lock_available(void);

/*
 * Every thread of the process has passed a full barrier since the call began; where
 * pp_biased_lock_available(). False: it could not be had.
 */
bool pp_barrier_everywhere(void);

/* False: the barrier could not be had, nothing is locked. */
bool pp_biased_lock_remote(struct pp_biased_lock *l);

static inline void pp_biased_unlock_remote(struct pp_biased_lock *l)
{
	/* release, twice: the owner's next acquire of either sees what was done inside. */
#ifdef PP_TSAN
	pp_store_release(&l->busy, 0u);
#endif
	pp_store_release(&l->wanted, 0u);
}

#endif
