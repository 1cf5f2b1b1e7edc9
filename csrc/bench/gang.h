/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads for the benchmarks that need several: each on its CPU, and a gate through which they go
 * together.
 */
#ifndef PP_BENCH_GANG_H
#define PP_BENCH_GANG_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "pagepool.h"

#define BENCH_MAX_THREADS 256u

struct bench_gang;

/* Of thread index, from 0. */
typedef void (*bench_gang_fn)(void *arg, unsigned index);

/*
 * n threads (1 to BENCH_MAX_THREADS), thread i on cpus[i]; cpus NULL, or an entry below 0: wherever
 * the system likes. Either all of them run fn, or none: then a negative errno, and a line of why in
 * error. bench_gang_join() waits for them to return.
 */
int bench_gang_start(unsigned n, const int *cpus, bench_gang_fn fn, void *arg, char *error,
		     size_t error_size, struct bench_gang **ret);
void bench_gang_join(struct bench_gang *gang);

/* Pins the calling thread, if cpu is not below 0. A negative errno. */
int bench_pin(int cpu);

/*
 * What a thread does that waits for another one: a spin, and if there are more threads than CPUs,
 * now and then room for the one that it waits for.
 *
 * It pauses seldom: a hypervisor takes a CPU away from who does nothing but pause (pause-loop
 * exiting). That was 80 us at a gate, and the others were through with what was to be timed before
 * it came back: of 2440 rounds of a storm on two CPUs of a virtual machine they overlapped in 600,
 * with this in 2350.
 */
#define BENCH_SPINS_A_PAUSE 128u

struct bench_patience {
	bool yields;
	unsigned spins;
};

static inline void bench_wait(struct bench_patience *patience)
{
	if (++patience->spins % BENCH_SPINS_A_PAUSE)
		return;
	pp_cpu_relax();
	if (patience->yields && patience->spins % (2 * BENCH_SPINS_A_PAUSE) == 0)
		sched_yield();
}

/* A barrier that spins, so that those who wait at it leave it within nanoseconds of each other. */
struct bench_gate {
	PP_ALIGNED(128) uint32_t missing;
	PP_ALIGNED(128) uint32_t opened; /* how often it was */
	uint32_t size;
	bool yields;
};

static inline void bench_gate_init(struct bench_gate *gate, unsigned size, bool yields)
{
	gate->missing = gate->size = size;
	gate->opened = 0;
	gate->yields = yields;
}

static inline void bench_gate_pass(struct bench_gate *gate)
{
	struct bench_patience patience = {.yields = gate->yields};
	/* relaxed: it cannot change before the caller arrives. */
	uint32_t before = pp_load_relaxed(&gate->opened);

	/* acq_rel: what all did before they arrived comes before what any does behind the gate. */
	if (pp_fetch_sub_acq_rel(&gate->missing, 1u) == 1) {
		/* relaxed: seen by who passes the gate, through opened. */
		pp_store_relaxed(&gate->missing, gate->size);
		pp_store_release(&gate->opened, before + 1);
		return;
	}
	/* acquire: pairs with the release above. */
	while (pp_load_acquire(&gate->opened) == before)
		bench_wait(&patience);
}

/*
 * The end of a timed part: what the calling thread has put is there for the consumer. A design that
 * batches would otherwise leave the last pages out of its price.
 */
static inline void bench_flush(struct page_pool *pool)
{
	page_pool_flush(pool);
}

#endif
