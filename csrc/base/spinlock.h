/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lock of the ring's producers: held for a few nanoseconds, mostly uncontended. After a bounded
 * spin it yields, because in user space the holder may have been preempted.
 */
#ifndef PP_BASE_SPINLOCK_H
#define PP_BASE_SPINLOCK_H

#include <sched.h>
#include <stdint.h>

#include "atomic.h"
#include "compiler.h"

struct pp_spinlock {
	uint32_t locked; /* 0 or 1 */
};

#define PP_SPIN_BEFORE_YIELD 128

static inline void pp_spinlock_init(struct pp_spinlock *lock)
{
	pp_store_relaxed(&lock->locked, 0u);
}

static inline void pp_spin_lock(struct pp_spinlock *lock)
{
	/* acquire: sees all that the last holder did before its release below. */
	while (unlikely(pp_exchange_acquire(&lock->locked, 1u))) {
		unsigned spins = 0;

		/* relaxed: only a hint when to try again; the exchange above orders. */
		while (pp_load_relaxed(&lock->locked)) {
			if (++spins < PP_SPIN_BEFORE_YIELD) {
				pp_cpu_relax();
			} else {
				sched_yield();
				spins = 0;
			}
		}
	}
}

static inline void pp_spin_unlock(struct pp_spinlock *lock)
{
	/* release: what was done under the lock is visible to the next holder. It is the holder's
	 * last access to the lock, so who holds it afterwards may free it. */
	pp_store_release(&lock->locked, 0u);
}

#endif
