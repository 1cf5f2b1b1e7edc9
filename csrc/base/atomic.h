/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Atomics, with the memory order in the name. Nothing else in the tree uses __atomic_* or
 * <stdatomic.h>: so a search for pp_ with an order finds every place that needs a reason.
 *
 * They work on plain fields through a pointer, any integer or pointer type.
 */
#ifndef PP_BASE_ATOMIC_H
#define PP_BASE_ATOMIC_H

#define pp_load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define pp_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define pp_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define pp_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)

#define pp_fetch_add_relaxed(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define pp_fetch_sub_acq_rel(p, v) __atomic_fetch_sub((p), (v), __ATOMIC_ACQ_REL)
#define pp_exchange_acquire(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQUIRE)
/* Strong; *expected is what was there when it fails. */
#define pp_cas_acq_rel(p, expected, desired)                                         \
	__atomic_compare_exchange_n((p), (expected), (desired), 0, __ATOMIC_ACQ_REL, \
				    __ATOMIC_ACQUIRE)

/*
 * One writer, many readers: the writer's own read needs no order and its write only must not tear.
 * A plain load, add and store; no lock prefix.
 */
#define pp_inc_single_writer(p) pp_add_single_writer((p), 1)
#define pp_add_single_writer(p, n) \
	__atomic_store_n((p), __atomic_load_n((p), __ATOMIC_RELAXED) + (n), __ATOMIC_RELAXED)

/* What the writer did before comes before the new value, for who loads that with acquire. */
#define pp_add_single_writer_release(p, n) \
	__atomic_store_n((p), __atomic_load_n((p), __ATOMIC_RELAXED) + (n), __ATOMIC_RELEASE)

static inline void pp_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

#endif
