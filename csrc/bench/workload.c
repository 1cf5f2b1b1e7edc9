/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What all workloads share: their table, pools and reader, and the question whether the statistics
 * add up.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "time_bench.h"
#include "workload_parts.h"

/* ---- the table ----------------------------------------------------------------------------- */

const struct workload_knob_info workload_knobs[WORKLOAD_NR_KNOBS] = {
#define WORKLOAD_KNOB_INFO(id, name, least, most, what) {name, least, most, what},
	WORKLOAD_KNOBS(WORKLOAD_KNOB_INFO)
#undef WORKLOAD_KNOB_INFO
};

#define BIT(knob) (1u << WORKLOAD_##knob)
#define USES_ALWAYS (BIT(POLLS) | BIT(PACKETS))
#define USES_PAGES (BIT(PAGES_FROM) | BIT(PAGES_TO))
#define USES_HICCUP (BIT(READER_HICCUP) | BIT(HICCUP_EVERY))
#define ALWAYS [WORKLOAD_POLLS] = 20000, [WORKLOAD_PACKETS] = 64
#define RING [WORKLOAD_POOL_SIZE] = PP_DEFAULT_POOL_SIZE
#define PAGES(from, to) [WORKLOAD_PAGES_FROM] = (from), [WORKLOAD_PAGES_TO] = (to)
#define THREADS [WORKLOAD_THREADS] = 1

const struct workload workloads[] = {
	{"tcp-stream",
	 "packets of many pages, and a reader on another CPU whose frees come back with the next "
	 "poll",
	 USES_ALWAYS | USES_PAGES | BIT(POOL_SIZE) | BIT(NAPI_DIRECT) | BIT(DEFER_MAX) |
		 USES_HICCUP | BIT(POLLER_HICCUP) | BIT(THREADS),
	 {ALWAYS, RING, PAGES(1, 18),
	  THREADS, [WORKLOAD_DEFER_MAX] = UINT32_MAX, [WORKLOAD_HICCUP_EVERY] = 64},
	 work_tcp_prepare,
	 work_tcp_poll,
	 work_tcp_read,
	 NULL},
	{"xdp-drop",
	 "every packet is dropped where it was received",
	 USES_ALWAYS | BIT(POOL_SIZE) | BIT(RX_RING) | BIT(READ_DATA),
	 {ALWAYS, RING, [WORKLOAD_RX_RING] = 256},
	 work_xdp_prepare,
	 work_xdp_drop_poll,
	 NULL,
	 NULL},
	{"xdp-tx",
	 "every packet is sent back, and completed polls later in the same context",
	 USES_ALWAYS | BIT(POOL_SIZE) | BIT(RX_RING) | BIT(READ_DATA) | BIT(TX_LAG),
	 {ALWAYS, RING, [WORKLOAD_RX_RING] = 256, [WORKLOAD_TX_LAG] = 1},
	 work_xdp_tx_prepare,
	 work_xdp_tx_poll,
	 NULL,
	 NULL},
	{"xdp-redirect",
	 "every packet goes out by another CPU, which returns the pages in bulks",
	 USES_ALWAYS | BIT(POOL_SIZE) | BIT(RX_RING) | BIT(READ_DATA) | BIT(BULK) | BIT(THREADS),
	 {ALWAYS, RING, THREADS, [WORKLOAD_RX_RING] = 256, [WORKLOAD_BULK] = 16},
	 work_xdp_redirect_prepare,
	 work_xdp_redirect_poll,
	 work_read_all_bulk,
	 NULL},
	{"multi-buffer",
	 "frames of several pages are dropped, passed to a reader, or cut",
	 USES_ALWAYS | USES_PAGES | BIT(POOL_SIZE) | BIT(DRIVER_BUG) | BIT(MEMORY) | BIT(THREADS),
	 {ALWAYS, RING, PAGES(1, 17), THREADS, [WORKLOAD_MEMORY] = 16384},
	 work_frames_prepare,
	 work_frames_poll,
	 work_read_all,
	 work_frames_inspect},
	{"memory-pressure",
	 "little memory, part of it an emergency reserve, and a reader with hiccups",
	 USES_ALWAYS | USES_PAGES | BIT(POOL_SIZE) | USES_HICCUP | BIT(MEMORY) | BIT(RESERVE),
	 {ALWAYS, RING, PAGES(1, 1), [WORKLOAD_READER_HICCUP] = 24, [WORKLOAD_HICCUP_EVERY] = 32,
	  [WORKLOAD_MEMORY] = 512, [WORKLOAD_RESERVE] = 128},
	 work_pressure_prepare,
	 work_pressure_poll,
	 work_read_all,
	 NULL},
	{"mixed",
	 "packets of several pools, and one reader that returns them in bulks as they came",
	 USES_ALWAYS | USES_PAGES | BIT(POOL_SIZE) | BIT(BULK) | BIT(POOLS) | BIT(THREADS),
	 {ALWAYS, RING, PAGES(1, 4), THREADS, [WORKLOAD_BULK] = 16, [WORKLOAD_POOLS] = 4},
	 work_mixed_prepare,
	 work_mixed_poll,
	 work_read_all_bulk,
	 NULL},
};
const size_t nr_workloads = PP_ARRAY_SIZE(workloads);

const struct workload *workload_find(const char *name)
{
	for (size_t i = 0; i < nr_workloads; i++)
		if (!strcmp(workloads[i].name, name))
			return &workloads[i];
	return NULL;
}

/* ---- errors, chance ------------------------------------------------------------------------ */

int work_fail(struct work *w, int err, const char *fmt, ...)
{
	va_list args;
	int n;

	n = snprintf(w->r->error, sizeof(w->r->error), "%s: ", w->workload->name);
	va_start(args, fmt);
	vsnprintf(w->r->error + n, sizeof(w->r->error) - (size_t)n, fmt, args);
	va_end(args);
	return err;
}

/* splitmix64: any seed is as good as another, and so are small ones. */
static uint64_t next_chance(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

uint64_t work_chance(struct work *w, uint64_t n)
{
	return (uint64_t)((unsigned __int128)next_chance(&w->chance) * n >> 64);
}

size_t work_pages(struct work *w)
{
	uint64_t from = w->knobs[WORKLOAD_PAGES_FROM], to = w->knobs[WORKLOAD_PAGES_TO];

	return (size_t)(from == to ? from : from + work_chance(w, to - from + 1));
}

/* ---- queues -------------------------------------------------------------------------------- */

static int grow(void **array, size_t *room, size_t need, size_t size)
{
	size_t more = *room ? *room : 1024;
	void *bigger;

	if (likely(need <= *room))
		return 0;
	while (more < need)
		more *= 2;
	bigger = realloc(*array, more * size);
	if (!bigger)
		return -ENOMEM;
	*array = bigger;
	*room = more;
	return 0;
}

int work_queue_add(struct work_queue *q, struct pp_page **pages, size_t n)
{
	int err = grow((void **)&q->pages, &q->room, q->nr + n, sizeof(q->pages[0]));

	if (!err)
		err = grow((void **)&q->lengths, &q->packets_room, q->packets + 1,
			   sizeof(q->lengths[0]));
	if (err)
		return err;
	memcpy(q->pages + q->nr, pages, n * sizeof(pages[0]));
	q->nr += n;
	q->lengths[q->packets++] = (uint16_t)n;
	return 0;
}

void work_queue_drop(struct work_queue *q, size_t packets, size_t pages)
{
	memmove(q->pages, q->pages + pages, (q->nr - pages) * sizeof(q->pages[0]));
	memmove(q->lengths, q->lengths + packets, (q->packets - packets) * sizeof(q->lengths[0]));
	q->nr -= pages;
	q->packets -= packets;
}

static void queue_free(struct work_queue *q)
{
	free(q->pages);
	free(q->lengths);
}

void work_put_queue(struct work *w, struct work_queue *q)
{
	for (size_t i = 0; i < q->nr; i++)
		work_put(w, page_pool_get_pp(q->pages[i]), q->pages[i]);
	q->nr = q->packets = 0;
}

void work_put_queue_bulk(struct work *w, struct work_queue *q, size_t bulk)
{
	for (size_t i = 0; i < q->nr; i += bulk)
		page_pool_put_page_bulk(q->pages + i, q->nr - i < bulk ? q->nr - i : bulk);
	w->r->put += q->nr;
	q->nr = q->packets = 0;
}

void work_read_all(struct work *w)
{
	work_put_queue(w, &w->queue);
}

void work_read_all_bulk(struct work *w)
{
	work_put_queue_bulk(w, &w->queue, w->knobs[WORKLOAD_BULK]);
}

/* ---- pools --------------------------------------------------------------------------------- */

/* The last page is back, whoever had it. */
static void free_region(void *ctx, void *memory, size_t length)
{
	(void)ctx;
	(void)length;
	free(memory);
}

int work_make_region(struct work *w)
{
	struct pp_region_params params = PP_REGION_PARAMS_INIT;
	int err;

	params.length = w->knobs[WORKLOAD_MEMORY] * PP_PAGE_SIZE;
	params.reserve = w->knobs[WORKLOAD_RESERVE] * PP_PAGE_SIZE;
	params.release = free_region;
	params.memory = aligned_alloc(PP_PAGE_SIZE, params.length);
	if (!params.memory)
		return work_fail(w, -ENOMEM, "no memory for %" PRIu64 " pages",
				 w->knobs[WORKLOAD_MEMORY]);
	err = pp_region_create(&params, &w->provider);
	if (!err)
		return 0;
	free(params.memory);
	return work_fail(w, err, "no region: %s", page_pool_last_error());
}

int work_add_pool(struct work *w, bool bound, unsigned flags)
{
	struct page_pool_params params = PAGE_POOL_PARAMS_INIT;
	int err;

	params.pool_size = (unsigned)w->knobs[WORKLOAD_POOL_SIZE];
	params.design = w->params->design;
	params.flags = flags;
	params.napi = bound ? w->napi : NULL;
	params.provider = w->provider;
	err = page_pool_create(&params, &w->pools[w->r->nr_pools]);
	if (err)
		return work_fail(w, err, "no pool: %s", page_pool_last_error());
	if (page_pool_flags(w->pools[w->r->nr_pools]) & (PP_FLAG_CHECKED | PP_FLAG_CHECKED_FULL))
		w->r->checked = true;
	w->r->nr_pools++;
	return 0;
}

size_t work_alloc(struct work *w, struct page_pool *pool, size_t n, struct pp_page **pages)
{
	size_t got = 0;

	while (got < n && (pages[got] = page_pool_alloc_pages(pool)))
		got++;
	w->r->allocated += got;
	if (likely(got == n))
		return n;
	w->r->failed++;
	for (size_t i = 0; i < got; i++)
		work_put(w, pool, pages[i]);
	return got;
}

int work_deliver(struct work *w, struct page_pool *pool, size_t n, struct pp_page **pages)
{
	int err;

	if (work_alloc(w, pool, n, pages) < n) {
		w->r->dropped++;
		return 0;
	}
	err = work_queue_add(&w->queue, pages, n);
	if (unlikely(err)) {
		for (size_t i = 0; i < n; i++)
			work_put(w, pool, pages[i]);
		return work_fail(w, err, "no memory for the reader's queue");
	}
	w->r->packets++;
	return 0;
}

/* ---- the reader ---------------------------------------------------------------------------- */

/* Two threads that wait for each other on a machine that may have other things to do. */
static void wait_until(const uint32_t *counter, uint32_t value)
{
	/* acquire: what the other side did in its turn, or before it asked for this one. */
	for (unsigned spins = 0; pp_load_acquire(counter) != value; spins++)
		if (spins >= 1000)
			sched_yield();
}

static void *reader_thread(void *arg)
{
	struct work *w = arg;
	struct work_reader *reader = &w->reader;

	for (uint32_t turn = 1;; turn++) {
		wait_until(&reader->asked, turn);
		if (reader->quit)
			return NULL;
		reader->turn(w);
		/* release: the turn's work is the poller's to see. */
		pp_store_release(&reader->done, turn);
	}
}

static int reader_start(struct work *w)
{
	struct work_reader *reader = &w->reader;
	pthread_attr_t attr;
	int err;

	reader->turn = w->workload->reader;
	if (w->knobs[WORKLOAD_THREADS] < 2)
		return 0;
	pthread_attr_init(&attr); /* cannot fail on Linux */
	if (w->params->reader_cpu >= 0) {
		cpu_set_t set;

		CPU_ZERO(&set);
		if (w->params->reader_cpu < CPU_SETSIZE)
			CPU_SET(w->params->reader_cpu, &set);
		pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
	}
	err = pthread_create(&reader->thread, &attr, reader_thread, w);
	pthread_attr_destroy(&attr);
	if (err)
		return work_fail(w, -err, "no thread for the reader on CPU %d: %s",
				 w->params->reader_cpu, strerror(err));
	reader->threaded = true;
	return 0;
}

static void reader_turn(struct work *w)
{
	struct work_reader *reader = &w->reader;

	if (!reader->threaded) {
		reader->turn(w);
		return;
	}
	/* release: what the poller delivered is the reader's to see. */
	pp_store_release(&reader->asked, reader->asked + 1);
	wait_until(&reader->done, reader->asked);
}

static void reader_stop(struct work *w)
{
	struct work_reader *reader = &w->reader;

	if (!reader->threaded)
		return;
	reader->quit = true;
	/* release: quit. */
	pp_store_release(&reader->asked, reader->asked + 1);
	pthread_join(reader->thread, NULL);
}

/* ---- time ---------------------------------------------------------------------------------- */

static int now(struct work *w, uint64_t *ns, uint64_t *tsc)
{
	const struct time_bench_clock *clock = &time_bench_machine_clock;
	int err = clock->wall(clock->ctx, ns);

	*tsc = clock->counter ? clock->counter(clock->ctx) : 0;
	return err ? work_fail(w, err, "the clock failed: %s", strerror(-err)) : 0;
}

static int start(struct work *w)
{
	return now(w, &w->start_ns, &w->start_tsc);
}

static int stop(struct work *w)
{
	uint64_t ns, tsc;
	int err = now(w, &ns, &tsc);

	if (err)
		return err;
	if (ns <= w->start_ns || tsc < w->start_tsc)
		return work_fail(w, -ERANGE, "no wall-clock time passed in %" PRIu64 " polls",
				 w->r->polls);
	w->r->time_interval_ns = ns - w->start_ns;
	w->r->tsc_interval = tsc - w->start_tsc;
	return 0;
}

/* ---- do the statistics add up? ------------------------------------------------------------- */

static int add_up(struct work *w)
{
	uint64_t allocated = 0, stayed = 0, full = 0, emergency = 0;
	struct workload_result *r = w->r;
	int64_t inflight = 0;

	for (size_t i = 0; i < r->nr_pools; i++) {
		struct workload_pool_result *p = &r->pools[i];
		struct page_pool_stats *s = &p->stats;
		int err;

		s->size = sizeof(*s);
		err = page_pool_get_stats(w->pools[i], s);
		if (err)
			return work_fail(w, err, "no statistics: %s", page_pool_last_error());
		p->inflight = page_pool_inflight(w->pools[i]);
		inflight += p->inflight;
		allocated += s->alloc_fast + s->alloc_slow + s->alloc_refill;
		stayed += s->recycle_cached + s->recycle_ring;
		full += s->recycle_ring_full;
		emergency += s->recycle_released_refcnt;
		if (page_pool_refused_puts(w->pools[i]))
			return work_fail(w, -EPROTO, "pool %zu refused %" PRIu64 " puts", i,
					 page_pool_refused_puts(w->pools[i]));
	}
	if (allocated != r->allocated)
		return work_fail(w, -EPROTO,
				 "fast + slow + refill is %" PRIu64 ", and %" PRIu64
				 " pages were allocated",
				 allocated, r->allocated);
	r->left = r->put - stayed - emergency;
	/* Of a bulk, however many pages did not fit count once. */
	if (stayed + emergency > r->put || full > r->left || (!w->bulk && full != r->left))
		return work_fail(w, -EPROTO,
				 "cached + ring is %" PRIu64 ", ring_full %" PRIu64
				 ", released_refcnt %" PRIu64 ", and %" PRIu64 " pages were put",
				 stayed, full, emergency, r->put);
	if (inflight < (int64_t)(r->allocated - r->put))
		return work_fail(w, -EPROTO,
				 "%" PRId64 " pages are in flight, and users have %" PRIu64,
				 inflight, r->allocated - r->put);
	return 0;
}

/* ---- the polls ----------------------------------------------------------------------------- */

/* Is this poll part of a hiccup of this length? It is the last of each period. */
static bool in_hiccup(const struct work *w, uint64_t poll, uint64_t length)
{
	uint64_t every = w->knobs[WORKLOAD_HICCUP_EVERY];

	return length && poll % every >= every - length;
}

static int poll_in_napi(struct work *w, uint64_t times)
{
	int err = pp_napi_enter(w->napi), late;

	if (err)
		return work_fail(w, err, "cannot enter the napi: %s", page_pool_last_error());
	while (!err && times--)
		err = w->workload->poll(w);
	late = pp_napi_exit(w->napi);
	if (late && !err)
		err = work_fail(w, late, "cannot leave the napi: %s", page_pool_last_error());
	return err;
}

static int all_polls(struct work *w)
{
	const uint64_t *k = w->knobs;
	struct workload_result *r = w->r;
	uint64_t due = 0;
	int err = 0;

	for (uint64_t i = 0; i < k[WORKLOAD_POLLS] && !err; i++) {
		/* Packets of a poll that comes late wait in the NIC, which has room. */
		due++;
		if (!in_hiccup(w, i, k[WORKLOAD_POLLER_HICCUP])) {
			err = poll_in_napi(w, due);
			due = 0;
		}
		if (r->allocated - r->put > r->most_out)
			r->most_out = r->allocated - r->put;
		if (w->workload->reader && !err && !in_hiccup(w, i, k[WORKLOAD_READER_HICCUP])) {
			reader_turn(w);
			if (w->err)
				err = work_fail(w, w->err, "no memory for the deferred frees");
		}
		r->polls++;
	}
	return err;
}

static int timed_polls(struct work *w)
{
	int err = start(w), late;

	if (err)
		return err;
	err = all_polls(w);
	late = stop(w);
	return err ? err : late;
}

static int prepare_and_poll(struct work *w)
{
	int err = w->workload->prepare(w);

	if (!err)
		err = reader_start(w);
	if (!err)
		err = timed_polls(w);
	reader_stop(w);
	return err ? err : add_up(w);
}

/* ---- one run ------------------------------------------------------------------------------- */

static int check(struct work *w)
{
	const uint64_t *k = w->knobs;

	for (unsigned i = 0; i < WORKLOAD_NR_KNOBS; i++) {
		const struct workload_knob_info *knob = &workload_knobs[i];

		if (!(w->workload->uses & 1u << i)) {
			if (k[i] != w->workload->standard[i])
				return work_fail(w, -EINVAL, "has no %s", knob->name);
			continue;
		}
		if (k[i] < knob->least || k[i] > knob->most)
			return work_fail(w, -EINVAL,
					 "%s is %" PRIu64 ": can be %" PRIu64 " to %" PRIu64,
					 knob->name, k[i], knob->least, knob->most);
	}
	if (w->workload->uses & BIT(PAGES_TO) && k[WORKLOAD_PAGES_FROM] > k[WORKLOAD_PAGES_TO])
		return work_fail(w, -EINVAL, "packets of %" PRIu64 " to %" PRIu64 " pages: none",
				 k[WORKLOAD_PAGES_FROM], k[WORKLOAD_PAGES_TO]);
	if (w->workload->uses & BIT(HICCUP_EVERY)) {
		uint64_t longest = k[WORKLOAD_READER_HICCUP];

		if (w->workload->uses & BIT(POLLER_HICCUP) && k[WORKLOAD_POLLER_HICCUP] > longest)
			longest = k[WORKLOAD_POLLER_HICCUP];
		if (longest >= k[WORKLOAD_HICCUP_EVERY])
			return work_fail(w, -EINVAL,
					 "a hiccup of %" PRIu64 " polls every %" PRIu64
					 ": it would never end",
					 longest, k[WORKLOAD_HICCUP_EVERY]);
	}
	if (w->workload->uses & BIT(RX_RING) && k[WORKLOAD_PACKETS] > k[WORKLOAD_RX_RING])
		return work_fail(w, -EINVAL,
				 "%" PRIu64 " packets a poll, and buffers for %" PRIu64 ": no more "
				 "can arrive than the NIC has buffers for",
				 k[WORKLOAD_PACKETS], k[WORKLOAD_RX_RING]);
	if (w->workload->uses & BIT(RESERVE) && k[WORKLOAD_RESERVE] >= k[WORKLOAD_MEMORY])
		return work_fail(w, -EINVAL,
				 "a reserve of %" PRIu64 " pages leaves nothing of %" PRIu64,
				 k[WORKLOAD_RESERVE], k[WORKLOAD_MEMORY]);
	return 0;
}

static void put_slots(struct work *w, struct pp_page **slots, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (slots[i])
			work_put(w, page_pool_get_pp(slots[i]), slots[i]);
	free(slots);
}

/* All that somebody has comes back; the figures were taken before. */
static void bring_back(struct work *w)
{
	work_put_queue(w, &w->deferred);
	work_put_queue(w, &w->queue);
	queue_free(&w->queue);
	queue_free(&w->deferred);
	put_slots(w, w->nic, w->nic_size);
	put_slots(w, w->tx, w->tx_size);
}

static int destroy_pools(struct work *w, int err)
{
	for (size_t i = 0; i < w->r->nr_pools; i++) {
		struct page_pool *pool = w->pools[i];
		int32_t out;

		page_pool_ref(pool);
		page_pool_destroy(pool);
		out = page_pool_inflight(pool);
		page_pool_unref(pool);
		if (out && !err)
			err = work_fail(w, -EPROTO,
					"%" PRId32 " pages of pool %zu did not come back", out, i);
	}
	return err;
}

static int run_and_clean_up(struct work *w)
{
	int err = prepare_and_poll(w);
	uint64_t put = w->r->put;

	bring_back(w);
	if (!err && w->workload->inspect)
		err = w->workload->inspect(w);
	/* What was put to clean up is not part of the workload. */
	w->r->put = put;
	err = destroy_pools(w, err);
	if (w->provider)
		pp_provider_put(w->provider);
	return err;
}

static struct work begin(const struct workload *workload, const struct workload_params *params,
			 struct workload_result *ret)
{
	memset(ret, 0, sizeof(*ret));
	return (struct work){
		.workload = workload,
		.params = params,
		.knobs = params->knobs,
		.r = ret,
		.chance = params->seed,
	};
}

int workload_check(const struct workload *workload, const struct workload_params *params,
		   struct workload_result *ret)
{
	struct work w = begin(workload, params, ret);
	int err = check(&w);

	if (!err)
		err = work_add_pool(&w, false, 0);
	if (!err)
		page_pool_destroy(w.pools[0]);
	return err;
}

int workload_run(const struct workload *workload, const struct workload_params *params,
		 struct workload_result *ret)
{
	struct work w = begin(workload, params, ret);
	int err = check(&w), late;

	if (err)
		return err;
	err = pp_napi_create(&w.napi);
	if (err)
		return work_fail(&w, err, "no napi: %s", page_pool_last_error());
	err = run_and_clean_up(&w);
	late = pp_napi_destroy(w.napi);
	if (late && !err)
		err = work_fail(&w, late, "cannot destroy the napi: %s", page_pool_last_error());
	return err;
}
