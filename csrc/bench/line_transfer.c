// SPDX-License-Identifier: BSD-2-Clause
/*
 * How long a cache line takes from one CPU to another: two threads, each on a CPU of its own, count
 * in turn in one line. Who is not at turn reads the line until the other has counted. So a turn is
 * two transfers: the writer takes the line away from the reader, who then has it brought back.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "line_transfer.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "base/atomic.h"
#include "base/compiler.h"

#define NSEC_PER_SEC UINT64_C(1000000000)
/* Both run on CPUs that others want as well: then waiting costs the other one its time. */
#define SPINS_BEFORE_YIELD 10000

struct ping_pong {
	uint64_t turn PP_ALIGNED(PP_CACHELINE); /* turns taken; odd: now it is the first thread */
	uint64_t last PP_ALIGNED(PP_CACHELINE); /* constant, as the following */
	unsigned cpu[2];
	uint64_t ns; /* the first thread */
};

static int stay_on(unsigned cpu)
{
	cpu_set_t set;

	if (cpu >= CPU_SETSIZE)
		return EINVAL;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void wait_for(const uint64_t *turn, uint64_t value)
{
	unsigned spins = 0;

	/* acquire: a hand-over as pools have it, with what was written before. */
	while (pp_load_acquire(turn) < value) {
		pp_cpu_relax();
		if (++spins == SPINS_BEFORE_YIELD) {
			sched_yield();
			spins = 0;
		}
	}
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	/* CLOCK_MONOTONIC_RAW is there since Linux 2.6.28; NTP does not slew it. */
	clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* Every other turn, from mine on. */
static void take_turns(struct ping_pong *p, uint64_t mine)
{
	for (; mine < p->last; mine += 2) {
		wait_for(&p->turn, mine);
		/* relaxed: whether the other one has given up; only this thread writes else. */
		if (unlikely(pp_load_relaxed(&p->turn) > p->last))
			return;
		/* release: as above. */
		pp_store_release(&p->turn, mine + 1);
	}
}

static void *second(void *arg)
{
	struct ping_pong *p = arg;
	int err = stay_on(p->cpu[1]);

	/* Turn 1 says that this thread is there; if it is not where it should be, all turns are
	 * over. release: as above. */
	pp_store_release(&p->turn, err ? p->last + 1 : 1);
	if (!err)
		take_turns(p, 2);
	return (void *)(intptr_t)err;
}

static void *first(void *arg)
{
	struct ping_pong *p = arg;
	pthread_t other;
	void *ended;
	uint64_t start;
	int err = stay_on(p->cpu[0]);

	if (!err)
		err = pthread_create(&other, NULL, second, p);
	if (err)
		return (void *)(intptr_t)err;
	wait_for(&p->turn, 1);
	start = now_ns();
	take_turns(p, 1);
	p->ns = now_ns() - start;
	pthread_join(other, &ended);
	return ended;
}

int line_transfer_run(unsigned first_cpu, unsigned second_cpu, uint64_t hand_overs, uint64_t *ns)
{
	/* The second's arrival is the turn before the first that counts. */
	struct ping_pong p = {.last = hand_overs + 1, .cpu = {first_cpu, second_cpu}};
	pthread_t thread;
	void *ended;
	int err;

	if (first_cpu == second_cpu || !hand_overs)
		return -EINVAL;
	/* A thread of its own, since the caller's affinity is the caller's business. */
	err = pthread_create(&thread, NULL, first, &p);
	if (err)
		return -err;
	pthread_join(thread, &ended);
	*ns = p.ns;
	return -(int)(intptr_t)ended;
}
