// SPDX-License-Identifier: BSD-2-Clause
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "gang.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Threads wait at the start until it is known whether all of them are there. */
enum launch {
	LAUNCH_WAIT,
	LAUNCH_GO,
	LAUNCH_STOP
};

struct member {
	struct bench_gang *gang;
	pthread_t thread;
	unsigned index;
	int cpu;
};

struct bench_gang {
	bench_gang_fn fn;
	void *arg;
	unsigned n;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* under lock */
	enum launch launch;
	unsigned ready; /* threads that are pinned, or could not be */
	int err;        /* of the first that could not */
	int err_cpu;
	struct member members[];
};

int bench_pin(int cpu)
{
	/* CPU_ALLOC: a machine may have more CPUs than fit into a cpu_set_t. */
	size_t size;
	cpu_set_t *set;
	int err = 0;

	if (cpu < 0)
		return 0;
	size = CPU_ALLOC_SIZE((size_t)cpu + 1);
	set = CPU_ALLOC((size_t)cpu + 1);
	if (!set)
		return -ENOMEM;
	CPU_ZERO_S(size, set);
	CPU_SET_S((size_t)cpu, size, set);
	if (sched_setaffinity(0, size, set))
		err = -errno;
	CPU_FREE(set);
	return err;
}

static void *run(void *arg)
{
	struct member *me = arg;
	struct bench_gang *gang = me->gang;
	int err = bench_pin(me->cpu);
	enum launch launch;

	pthread_mutex_lock(&gang->lock);
	if (err && !gang->err) {
		gang->err = err;
		gang->err_cpu = me->cpu;
	}
	gang->ready++;
	pthread_cond_broadcast(&gang->changed);
	while (gang->launch == LAUNCH_WAIT)
		pthread_cond_wait(&gang->changed, &gang->lock);
	launch = gang->launch;
	pthread_mutex_unlock(&gang->lock);
	if (launch == LAUNCH_GO)
		gang->fn(gang->arg, me->index);
	return NULL;
}

int bench_gang_start(unsigned n, const int *cpus, bench_gang_fn fn, void *arg, char *error,
		     size_t error_size, struct bench_gang **ret)
{
	struct bench_gang *gang;
	sigset_t all, old;
	unsigned made = 0;
	int err = 0;

	gang = calloc(1, sizeof(*gang) + n * sizeof(gang->members[0]));
	if (!gang) {
		snprintf(error, error_size, "no memory for %u threads", n);
		return -ENOMEM;
	}
	gang->fn = fn;
	gang->arg = arg;
	gang->n = n;
	pthread_mutex_init(&gang->lock, NULL);
	pthread_cond_init(&gang->changed, NULL);
	/* Signals are for the caller's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (made < n) {
		struct member *m = &gang->members[made];

		m->gang = gang;
		m->index = made;
		m->cpu = cpus ? cpus[made] : -1;
		err = -pthread_create(&m->thread, NULL, run, m);
		if (err)
			break;
		made++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_mutex_lock(&gang->lock);
	while (gang->ready < made)
		pthread_cond_wait(&gang->changed, &gang->lock);
	if (err) {
		snprintf(error, error_size, "cannot start thread %u of %u: %s", made + 1, n,
			 strerror(-err));
	} else if (gang->err) {
		err = gang->err;
		snprintf(error, error_size, "cannot run on CPU %d: %s", gang->err_cpu,
			 strerror(-err));
	}
	gang->launch = err ? LAUNCH_STOP : LAUNCH_GO;
	gang->n = made;
	pthread_cond_broadcast(&gang->changed);
	pthread_mutex_unlock(&gang->lock);
	if (err)
		bench_gang_join(gang);
	else
		*ret = gang;
	return err;
}

void bench_gang_join(struct bench_gang *gang)
{
	for (unsigned i = 0; i < gang->n; i++)
		pthread_join(gang->members[i].thread, NULL);
	pthread_cond_destroy(&gang->changed);
	pthread_mutex_destroy(&gang->lock);
	free(gang);
}
