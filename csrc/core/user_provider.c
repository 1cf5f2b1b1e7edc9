/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A provider of the caller's own: memory comes from and goes to callbacks, and only the metadata is
 * kept here. A block has one pp_page, whatever its order; which one has nothing to do with its
 * address.
 *
 * A piece of metadata is on the free list, or with a call of alloc that is asking, or out, or with
 * a call of free. The callbacks run without the lock. What they do wrong costs the caller pages and
 * a line in the log, never somebody else's memory.
 */
#include <stdlib.h>
#include <string.h>

#include "page.h"

/* Blocks asked for at once: a pool wants no more. */
#define MOST PP_ALLOC_CACHE_REFILL
/* So many more may be written into memory[] before somebody's stack is hit. */
#define SLACK 16

struct user_provider {
	struct pp_provider base;
	struct pp_provider_params params; /* constant */
	/* under lock */
	pthread_mutex_t lock;
	uint32_t free;   /* list of free metadata: index + 1; 0: none */
	uint32_t known;  /* metadata from 0 on that was ever used */
	uint32_t mapped; /* metadata that is committed, whole chunks */
	uint64_t out;    /* in pages: handed out, and not yet returned from free */
	uint64_t asked;  /* in pages: more that calls of alloc under way may bring */
	uint64_t failed;
	int64_t next_log_ns;
	bool retired; /* no reference left: the last block to come back ends it */
};

static struct user_provider *to_user(struct pp_provider *p)
{
	return (struct user_provider *)p;
}

/* ---- metadata: under the lock -----------------------------------------------------------------
 */

static void give_metadata(struct user_provider *u, struct pp_page *page)
{
	pp_page_set_state(page, PP_PAGE_FREE);
	page->next = u->free;
	u->free = (uint32_t)(page - u->base.pages) + 1;
}

/* NULL: there is no memory for more. */
static struct pp_page *take_metadata(struct user_provider *u)
{
	struct pp_page *page;

	if (u->free) {
		page = &u->base.pages[u->free - 1];
		u->free = page->next;
		pp_page_set_state(page, PP_PAGE_IDLE);
		return page;
	}
	/* The caller has room for a block, so there is metadata that is not in use. */
	if (u->known == u->mapped) {
		if (pp_provider_commit_pages(&u->base, u->mapped))
			return NULL;
		u->mapped += PP_CHUNK_PAGES;
	}
	page = &u->base.pages[u->known++];
	page->provider = &u->base;
	pp_page_set_state(page, PP_PAGE_IDLE);
	return page;
}

/* ---- what a callback gives --------------------------------------------------------------------
 */

/* NULL: it can be used. */
static const char *what_is_wrong(const void *memory, size_t length)
{
	if (!memory)
		return "is NULL";
	if ((uintptr_t)memory % PP_PAGE_SIZE)
		return "is not aligned to 4096 bytes";
	if ((uintptr_t)memory > UINTPTR_MAX - length)
		return "does not fit into the address space";
	return NULL;
}

/* Said once a second at most. */
static PP_COLD bool may_complain(struct user_provider *u)
{
	int64_t now = pp_sys_now_ns();
	bool say;

	pthread_mutex_lock(&u->lock);
	say = now >= u->next_log_ns;
	if (say)
		u->next_log_ns = now + 1000000000;
	pthread_mutex_unlock(&u->lock);
	return say;
}

/*
 * Asks the callback for n blocks; those that can be used are moved to the front of memory[], which
 * has room for SLACK more; how many. What it should not have given goes back to it.
 */
static size_t ask(struct user_provider *u, unsigned order, int nid, size_t n, void **memory)
{
	const struct pp_provider_params *p = &u->params;
	size_t length = PP_PAGE_SIZE << order;
	size_t got, good = 0;

	/* What it says that it has written and has not is NULL. */
	memset(memory, 0, (n + SLACK) * sizeof(memory[0]));
	got = p->alloc(p->ctx, order, nid, n, memory);
	if (unlikely(got > n + SLACK)) {
		/* No number of blocks: most likely a negative errno. Whether there are any, and
		 * whose they are, nobody knows. */
		if (may_complain(u))
			pp_log("page_pool: a provider's alloc says that it gave %zu blocks of %zu: "
			       "none is used",
			       got, n);
		return 0;
	}
	for (size_t i = 0; i < got; i++) {
		const char *wrong =
			i < n ? what_is_wrong(memory[i], length) : "is one more than was asked for";

		if (likely(!wrong)) {
			memory[good++] = memory[i];
			continue;
		}
		if (may_complain(u))
			pp_log("page_pool: a provider's alloc gave %p, which %s: refused",
			       memory[i], wrong);
		if (memory[i])
			p->free(p->ctx, memory[i], order);
	}
	return good;
}

/* ---- provider ---------------------------------------------------------------------------------
 */

static size_t user_alloc(struct pp_provider *p, unsigned order, int nid, size_t n,
			 struct pp_page **pages)
{
	struct user_provider *u = to_user(p);
	void *memory[MOST + SLACK];
	size_t room, want = 0, got = 0;

	if (u->params.nid != PP_NUMA_NO_NODE)
		nid = u->params.nid;
	pthread_mutex_lock(&u->lock);
	/* Two that ask at once near the limit: the second may find no room that the first does not
	 * come to use. */
	room = (u->base.nr - u->out - u->asked) >> order;
	if (n > room)
		n = room;
	if (n > MOST)
		n = MOST;
	while (want < n && (pages[want] = take_metadata(u)))
		want++;
	u->asked += (uint64_t)want << order;
	pthread_mutex_unlock(&u->lock);

	if (want)
		got = ask(u, order, nid, want, memory);

	pthread_mutex_lock(&u->lock);
	for (size_t i = 0; i < got; i++) {
		struct pp_page *page = pages[i];

		/* relaxed: page_pool_holders() may look at what was here before. */
		pp_store_relaxed(&page->addr, memory[i]);
		/* relaxed: see take() in arena.c. */
		pp_store_relaxed(&page->ref, PP_REF_ONE);
		page->nid = (int16_t)(nid == PP_NUMA_NO_NODE ? 0 : nid);
		pp_store_relaxed(&page->order, (uint8_t)order);
		pp_page_set_state(page, PP_PAGE_OUT);
	}
	for (size_t i = want; i > got; i--)
		give_metadata(u, pages[i - 1]);
	u->asked -= (uint64_t)want << order;
	u->out += (uint64_t)got << order;
	u->failed += !got;
	pthread_mutex_unlock(&u->lock);
	return got;
}

/* Nobody has a reference and nothing is out: so nobody can come. */
static void user_destroy(struct user_provider *u)
{
	struct pp_provider_params params = u->params;
	struct pp_provider base = u->base;

	pthread_mutex_destroy(&u->lock);
	free(u);
	pp_provider_forget_pages(&base);
	if (params.release)
		params.release(params.ctx);
}

/*
 * First the callback, then the metadata: as long as the block counts as out, the provider lives (so
 * release comes after the last free), and nobody is asked for memory in its place (so there is
 * never more than max_bytes). But it is no page any more before: once the callback has the memory
 * it may be handed out again, with other metadata, before it returns.
 */
static void user_free(struct pp_provider *p, struct pp_page *page)
{
	struct user_provider *u = to_user(p);
	unsigned order = page->order;
	bool last;

	pp_page_set_state(page, PP_PAGE_IDLE);
	u->params.free(u->params.ctx, page->addr, order);

	pthread_mutex_lock(&u->lock);
	give_metadata(u, page);
	u->out -= 1ull << order;
	last = u->retired && !u->out;
	pthread_mutex_unlock(&u->lock);
	if (last)
		user_destroy(u);
}

static void user_retire(struct pp_provider *p)
{
	struct user_provider *u = to_user(p);
	bool last;

	/* Who allocates has a reference: nothing is being asked for. */
	pthread_mutex_lock(&u->lock);
	u->retired = true;
	last = !u->out;
	pthread_mutex_unlock(&u->lock);
	if (last)
		user_destroy(u);
}

static void user_info(struct pp_provider *p, struct pp_provider_info *info)
{
	struct user_provider *u = to_user(p);

	pthread_mutex_lock(&u->lock);
	info->limit = (uint64_t)u->base.nr << PP_PAGE_SHIFT;
	/* What the callbacks have beyond that is theirs to know. */
	info->mapped = u->out << PP_PAGE_SHIFT;
	info->out = u->out << PP_PAGE_SHIFT;
	info->failed = u->failed;
	info->nid = u->params.nid;
	info->huge = PP_HUGE_NONE;
	pthread_mutex_unlock(&u->lock);
}

/* By looking at every block that there ever was at once: an index would cost each allocation
 * something, for a call that is not made for each packet. */
static struct pp_page *user_page(struct pp_provider *p, const void *address)
{
	struct user_provider *u = to_user(p);
	struct pp_page *found = NULL;

	pthread_mutex_lock(&u->lock);
	for (uint32_t i = 0; i < u->known && !found; i++) {
		struct pp_page *page = &u->base.pages[i];

		/* relaxed: to handed out, with its address, only under the lock; away from it at
		 * any time, if the caller does not hold it. */
		if (pp_load_relaxed(&page->state) == PP_PAGE_OUT &&
		    (uintptr_t)address - (uintptr_t)page->addr < pp_page_size(page))
			found = page;
	}
	pthread_mutex_unlock(&u->lock);
	return found;
}

/*
 * None of its pages goes into a thread's magazine: a magazine belongs to an arena that exists
 * (pp_magazine.arena is set by that arena and cleared before it is freed), so none has this
 * provider's address, be it one where an arena was.
 */
static const struct pp_provider_ops user_ops = {
	.alloc = user_alloc,
	.free = user_free,
	.retire = user_retire,
	.info = user_info,
	.page = user_page,
};

int pp_provider_create(const struct pp_provider_params *params, struct pp_provider **ret)
{
	size_t most = (size_t)PP_MAX_PAGES << PP_PAGE_SHIFT;
	struct user_provider *u;
	int err = pp_check_size("struct pp_provider_params", params, params->size, sizeof(*params),
				sizeof(*params));

	if (!err)
		err = pp_check_nid(params->nid);
	if (err)
		return err;
	if (!params->alloc || !params->free)
		return pp_fail(-EINVAL, "a provider needs alloc and free");
	if (params->max_bytes < PP_PAGE_SIZE || params->max_bytes > most)
		return pp_fail(-EINVAL, "a provider's max_bytes of %zu: must be from %zu to %zu",
			       params->max_bytes, PP_PAGE_SIZE, most);
	u = pp_sys_aligned_zalloc(PP_CACHELINE, sizeof(*u));
	if (!u)
		return pp_fail(-ENOMEM, "no memory for a provider");
	err = pp_provider_reserve_pages(&u->base, (uint32_t)(params->max_bytes >> PP_PAGE_SHIFT));
	if (err) {
		free(u);
		return pp_fail(
			err,
			"no address space for the metadata of a provider of %zu bytes: set a "
			"smaller max_bytes, or raise ulimit -v",
			params->max_bytes);
	}
	/* The memory is the callbacks' business; see also pp_region_create(). */
	if (params->nid != PP_NUMA_NO_NODE)
		(void)pp_provider_bind_pages(&u->base, params->nid);
	u->base.ops = &user_ops;
	u->base.refs = 1;
	u->params = *params;
	pthread_mutex_init(&u->lock, NULL); /* cannot fail with default attributes */
	*ret = &u->base;
	return 0;
}

/* ---- validity ---------------------------------------------------------------------------------
 */

bool pp_user_provider_is_valid(struct pp_provider *p, const char **why)
{
	struct user_provider *u = to_user(p);
	uint64_t free_pages = 0, idle = 0, out = 0;

	*why = NULL;
	pthread_mutex_lock(&u->lock);
	for (uint32_t i = u->free; i && free_pages <= u->known; i = u->base.pages[i - 1].next) {
		if (u->base.pages[i - 1].state != PP_PAGE_FREE)
			*why = "metadata in the free list is not free";
		free_pages++;
	}
	for (uint32_t i = 0; i < u->known; i++) {
		const struct pp_page *page = &u->base.pages[i];

		if (page->state == PP_PAGE_OUT)
			out += 1ull << page->order;
		idle += page->state != PP_PAGE_FREE;
	}
	if (free_pages + idle != u->known)
		*why = "free metadata + metadata in use != metadata";
	if (out > u->out)
		*why = "more is handed out than is counted";
	if (u->out + u->asked > u->base.nr)
		*why = "more is out, or asked for, than may be";
	pthread_mutex_unlock(&u->lock);
	return !*why;
}
