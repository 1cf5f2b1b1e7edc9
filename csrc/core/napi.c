/* SPDX-License-Identifier: BSD-2-Clause */
/* The consumer's context: which thread is in it. */
#include <stdlib.h>

#include "internal.h"

_Thread_local uint64_t pp_thread_id;

/* What a pool without a napi is bound to: nobody is ever in it. */
struct pp_napi pp_napi_none = {.owner = PP_NO_THREAD, .refs = 1};

static uint64_t this_thread(void)
{
	static uint64_t last;

	if (unlikely(!pp_thread_id))
		/* relaxed: only uniqueness matters. A number is never used again, so a thread that
		 * died inside a napi leaves it taken and nobody mistaken for it. */
		pp_thread_id = pp_fetch_add_relaxed(&last, 1) + 1;
	return pp_thread_id;
}

int pp_napi_create(struct pp_napi **ret)
{
	struct pp_napi *napi = pp_sys_aligned_zalloc(PP_CACHELINE, sizeof(*napi));

	if (!napi)
		return pp_fail(-ENOMEM, "no memory for a napi");
	/* relaxed: a producer that looks at a pool just bound to it reads this after, because the
	 * address of what it reads depends on the pool (the store there is release). */
	pp_store_relaxed(&napi->owner, PP_NO_THREAD);
	napi->refs = 1;
	*ret = napi;
	return 0;
}

void pp_napi_unref(struct pp_napi *napi)
{
	/* acq_rel: what others did with it happened before it is freed. */
	if (pp_fetch_sub_acq_rel(&napi->refs, 1) == 1)
		free(napi);
}

int pp_napi_destroy(struct pp_napi *napi)
{
	/* relaxed: the caller says that nobody enters it any more; this only finds a mistake. */
	if (pp_load_relaxed(&napi->owner) != PP_NO_THREAD)
		return pp_fail(-EBUSY, "a thread is in this napi: let it leave first");
	pp_napi_unref(napi);
	return 0;
}

int pp_napi_enter(struct pp_napi *napi)
{
	uint64_t nobody = PP_NO_THREAD;
	uint64_t self = this_thread();

	/* relaxed: nobody else writes this thread's number. */
	if (pp_load_relaxed(&napi->owner) != self) {
		/* acquire: all that the last owner did to its pools before it left is visible. */
		if (!pp_cas_acq_rel(&napi->owner, &nobody, self))
			return pp_fail(-EBUSY, "another thread is in this napi");
	}
	napi->depth++;
	return 0;
}

int pp_napi_exit(struct pp_napi *napi)
{
	if (!pp_napi_entered(napi))
		return pp_fail(-EPERM, "the calling thread is not in this napi");
	if (!--napi->depth)
		/* release: the next owner sees what was done to the pools. */
		pp_store_release(&napi->owner, PP_NO_THREAD);
	return 0;
}

bool pp_napi_entered(const struct pp_napi *napi)
{
	/* relaxed: see pp_napi_local(). */
	return pp_load_relaxed(&napi->owner) == pp_thread_id;
}
