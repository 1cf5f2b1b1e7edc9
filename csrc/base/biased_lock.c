/* SPDX-License-Identifier: BSD-2-Clause */
#include "biased_lock.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool available;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int membarrier(int cmd)
{
	return (int)syscall(__NR_membarrier, cmd, 0, 0);
}

static void probe(void)
{
	available = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
		    membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
}

bool pp_biased_lock_available(void)
{
	pthread_once(&once, probe);
	return available;
}

bool pp_barrier_everywhere(void)
{
	return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0 ||
	       membarrier(MEMBARRIER_CMD_GLOBAL) == 0;
}

bool pp_biased_lock_remote(struct pp_biased_lock *l)
{
#ifdef PP_TSAN
	while (pp_exchange_acquire(&l->busy, 1u))
		sched_yield();
#else
	pp_store_relaxed(&l->wanted, 1u);
	if (!pp_barrier_everywhere()) {
		pp_store_release(&l->wanted, 0u);
		return false;
	}
	/* acquire: pairs with the owner's release when it leaves. */
	while (pp_load_acquire(&l->busy))
		sched_yield();
#endif
	return true;
}
