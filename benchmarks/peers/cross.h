/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One thread gets 32 objects at a time, another one, on another CPU, gives them back. Between the
 * two is a queue of batches, the same for all peers; what it costs alone is a test too (nothing is
 * got nor given back). The time is that of the whole: until the last object is back.
 *
 * The second thread sleeps outside of the timed part.
 */
#ifndef PEER_CROSS_H
#define PEER_CROSS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

#define CROSS_BATCH 32
#define CROSS_DEPTH 8 /* batches under way */

/* 0: got all 32. Inlined into the loop, as the peer's calls are elsewhere. */
typedef int cross_get(void *pool, void **objects);
typedef void cross_put(void *pool, void **objects);

struct cross {
	void *pool;
	int (*enter)(void); /* by the second thread, before all else; 0, or a negative errno */
	sem_t go, ready;
	int error;

	/* Three lines, in pairs: the first thread's, the second's, and the batches. */
	uint64_t sent __attribute__((aligned(128)));
	uint64_t back __attribute__((aligned(128)));
	uint64_t until __attribute__((aligned(128)));
	void *batches[CROSS_DEPTH][CROSS_BATCH] __attribute__((aligned(128)));
};

/* Pauses seldom: a hypervisor takes a CPU away from who does nothing but pause. */
static inline void cross_relax(unsigned *spins)
{
	if (++*spins % 128)
		return;
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

/* The first thread: get and send. The turns that it made, all of them back. */
static inline __attribute__((always_inline)) uint64_t cross_run(struct cross *cross, uint64_t turns,
								cross_get *get)
{
	uint64_t sent = cross->sent, back = sent, start = sent, end = sent + turns;
	unsigned spins = 0;

	__atomic_store_n(&cross->until, end, __ATOMIC_RELAXED); /* ordered by the semaphore */
	sem_post(&cross->go);
	for (; sent < end; sent++) {
		void *objects[CROSS_BATCH], **all = objects;

		while (peer_unlikely(get(cross->pool, objects))) {
			bool all_back = __atomic_load_n(&cross->back, __ATOMIC_ACQUIRE) == sent;

			/* Others are under way, or in the other one's cache: they come. */
			if (!all_back)
				cross_relax(&spins);
			else if (!get(cross->pool, objects))
				break;
			else
				goto out;
		}
		PEER_USE(all);
		while (sent - back == CROSS_DEPTH) {
			/* acquire: the batch was read before it is overwritten. */
			back = __atomic_load_n(&cross->back, __ATOMIC_ACQUIRE);
			if (sent - back == CROSS_DEPTH)
				cross_relax(&spins);
		}
		memcpy(cross->batches[sent % CROSS_DEPTH], all, sizeof(objects));
		/* release: the batch is there. */
		__atomic_store_n(&cross->sent, sent + 1, __ATOMIC_RELEASE);
	}
out:
	__atomic_store_n(&cross->until, sent, __ATOMIC_RELEASE);
	while (__atomic_load_n(&cross->back, __ATOMIC_ACQUIRE) != sent)
		cross_relax(&spins);
	return sent - start;
}

/* The second thread: take what was sent and give it back. */
static inline __attribute__((always_inline)) void *cross_back(struct cross *cross, cross_put *put)
{
	uint64_t back = 0;
	unsigned spins = 0;

	cross->error = cross->enter ? cross->enter() : 0;
	sem_post(&cross->ready);
	if (cross->error)
		return NULL;
	for (;;) {
		while (sem_wait(&cross->go) && errno == EINTR)
			;
		while (back != __atomic_load_n(&cross->until, __ATOMIC_ACQUIRE)) {
			void *objects[CROSS_BATCH];

			if (__atomic_load_n(&cross->sent, __ATOMIC_ACQUIRE) == back) {
				cross_relax(&spins);
				continue;
			}
			memcpy(objects, cross->batches[back % CROSS_DEPTH], sizeof(objects));
			put(cross->pool, objects);
			/* release: the batch was read, and what put() did is done. */
			__atomic_store_n(&cross->back, ++back, __ATOMIC_RELEASE);
		}
	}
}

/* Starts the second thread, on another CPU than the first; body: cross_back() with the peer's put.
 */
static inline int cross_open(struct peer_test *test, void *pool, void *(*body)(void *),
			     int (*enter)(void))
{
	struct cross *cross;
	pthread_attr_t attributes;
	pthread_t thread;
	cpu_set_t cpus;
	int error, cpu = peer_other_cpu();

	if (cpu < 0)
		return -ENODEV;
	cross = aligned_alloc(128, sizeof(*cross));
	if (!cross)
		return -ENOMEM;
	memset(cross, 0, sizeof(*cross));
	cross->pool = pool;
	cross->enter = enter;
	sem_init(&cross->go, 0, 0);
	sem_init(&cross->ready, 0, 0);
	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	pthread_attr_init(&attributes);
	pthread_attr_setaffinity_np(&attributes, sizeof(cpus), &cpus);
	error = pthread_create(&thread, &attributes, body, cross);
	pthread_attr_destroy(&attributes);
	if (error) {
		free(cross);
		return -error;
	}
	while (sem_wait(&cross->ready) && errno == EINTR)
		;
	if (cross->error)
		return cross->error;
	test->ctx = cross;
	return 0;
}

#endif
