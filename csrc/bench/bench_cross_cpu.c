// SPDX-License-Identifier: BSD-2-Clause
/*
 * Pages that circulate: as many as fit into all queues, and some for the cache and for what a
 * design holds back. They are allocated and put back by the consumer before the loops start, so
 * the provider is not in the figures, unless pages fall out of a pool that is too small.
 *
 * The end: each returning CPU takes as many pages as it was asked for, and the consumer hands out
 * as many; so nobody has to be told when it is over.
 */
#include "bench_cross_cpu.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pagepool.h"
#include "queue.h"

/* As in bench_simple.c: where a loop begins must not depend on what is in front of it. */
#define TIMED PP_NOINLINE PP_ALIGNED(64)

/* Without a pool pages come from an array, around and around: more of them than queues hold. */
#define SPARE_PAGES 4096u

struct run {
	const struct bench_cross_cpu_params *params;
	struct bench_cross_cpu_result *result;
	struct page_pool *pool; /* NULL: hand-over alone */
	struct bench_queue *queues;
	int *errors;    /* of the threads, as cpus[] */
	uint64_t *ends; /* of stretches: so many for each returning CPU */
	uint64_t stretches;
	bool yields;
	struct bench_gate gate;
	/* The consumer has no more pages: those that wait may go. */
	BENCH_APART uint32_t over;
};

static int fail(struct bench_cross_cpu_result *result, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int fail(struct bench_cross_cpu_result *result, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(result->error, sizeof(result->error), fmt, args);
	va_end(args);
	return err;
}

/* What the calling thread has had of its CPU. */
static uint64_t busy_ns(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts))
		return 0;
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

/* ---- the returning CPUs ------------------------------------------------------------------------
 */

/* What a returning CPU notes. */
struct log {
	uint64_t *ends; /* of stretches */
	uint64_t n, waits;
};

/* NULL: it is over. */
static PP_COLD void *wait_for_page(struct run *run, struct bench_queue *queue, uint64_t *waits)
{
	struct bench_patience patience = {.yields = run->yields};
	void *page;

	++*waits;
	while (!(page = bench_queue_pop(queue))) {
		/* acquire: what was pushed before it was over can be popped. */
		if (pp_load_acquire(&run->over))
			return bench_queue_pop(queue);
		bench_wait(&patience);
	}
	return page;
}

/* When a stretch ended; 0 when the clock fails, and time_bench_stop() will see it fail. */
static uint64_t now(const struct time_bench_record *rec)
{
	uint64_t ns;

	return rec->clock.wall(rec->clock.ctx, &ns) ? 0 : ns;
}

#define RETURN_PAGES(put)                                                                         \
	do {                                                                                      \
		uint64_t i_ = 0, loops_ = rec->loops;                                             \
                                                                                                  \
		time_bench_start(rec);                                                            \
		while (i_ < loops_) {                                                             \
			uint64_t left_ = loops_ - i_;                                             \
			uint64_t end_ =                                                           \
				i_ + (left_ < BENCH_CROSS_CPU_STRETCH ? left_                     \
								      : BENCH_CROSS_CPU_STRETCH); \
                                                                                                  \
			for (; i_ < end_; i_++) {                                                 \
				void *page = bench_queue_pop(queue);                              \
                                                                                                  \
				if (unlikely(!page)) {                                            \
					page = wait_for_page(run, queue, &log->waits);            \
					if (!page)                                                \
						break;                                            \
				}                                                                 \
				put;                                                              \
			}                                                                         \
			if (i_ < end_)                                                            \
				break;                                                            \
			log->ends[log->n++] = now(rec);                                           \
		}                                                                                 \
		time_bench_stop(rec, i_);                                                         \
	} while (0)

static TIMED void return_to_pool(struct time_bench_record *rec, struct run *run,
				 struct bench_queue *queue, struct log *log)
{
	struct page_pool *pool = run->pool;

	RETURN_PAGES(page_pool_put_full_page(pool, page, false));
}

static TIMED void return_nowhere(struct time_bench_record *rec, struct run *run,
				 struct bench_queue *queue, struct log *log)
{
	/* The optimizer must not find out that nobody wants the page. */
	RETURN_PAGES(__asm__ __volatile__("" : : "r"(page) : "memory"));
}

struct place {
	struct run *run;
	unsigned index;
};

static int by_size(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;

	return (one > other) - (one < other);
}

static void find_median(struct bench_cross_cpu_cpu *me, const struct log *log)
{
	uint64_t n = me->rec.invoke_count / BENCH_CROSS_CPU_STRETCH;
	uint64_t before = me->rec.start_ns;

	me->stretch = n ? BENCH_CROSS_CPU_STRETCH : me->rec.invoke_count;
	me->median_ns = me->rec.time_interval_ns;
	if (!n)
		return;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t end = log->ends[i];

		log->ends[i] = end - before;
		before = end;
	}
	qsort(log->ends, n, sizeof(*log->ends), by_size);
	me->median_ns = log->ends[(n - 1) / 2];
}

static int time_returning(struct time_bench_record *rec, void *data)
{
	struct place *place = data;
	struct run *run = place->run;
	struct bench_cross_cpu_cpu *me = &run->result->cpus[place->index];
	struct bench_queue *queue = &run->queues[place->index];
	struct log log = {.ends = run->ends + place->index * run->stretches};
	uint64_t busy;

	bench_gate_pass(&run->gate);
	busy = busy_ns();
	if (run->pool)
		return_to_pool(rec, run, queue, &log);
	else
		return_nowhere(rec, run, queue, &log);
	me->busy_ns = busy_ns() - busy;
	me->waits = log.waits;
	find_median(me, &log);
	if (run->pool)
		bench_flush(run->pool);
	return 0;
}

/* ---- the consumer ---------------------------------------------------------------------------- */

static PP_COLD void wait_for_room(struct run *run, struct bench_queue *queue, void *page,
				  uint64_t *waits)
{
	struct bench_patience patience = {.yields = run->yields};

	++*waits;
	while (!bench_queue_push(queue, page))
		bench_wait(&patience);
}

/* get is an expression over i_; NULL ends the loop. */
#define HAND_OUT(get)                                                   \
	do {                                                            \
		uint64_t i_, loops_ = rec->loops;                       \
		unsigned next = 0, returning = run->params->returning;  \
                                                                        \
		time_bench_start(rec);                                  \
		for (i_ = 0; i_ < loops_; i_++) {                       \
			struct bench_queue *queue = &run->queues[next]; \
			void *page = get;                               \
                                                                        \
			if (unlikely(!page))                            \
				break;                                  \
			if (unlikely(!bench_queue_push(queue, page)))   \
				wait_for_room(run, queue, page, n);     \
			next = next + 1 == returning ? 0 : next + 1;    \
		}                                                       \
		time_bench_stop(rec, i_);                               \
	} while (0)

static TIMED void hand_out_of_pool(struct time_bench_record *rec, struct run *run, uint64_t *n)
{
	struct page_pool *pool = run->pool;

	HAND_OUT(page_pool_alloc_pages(pool));
}

static TIMED void hand_out_of_array(struct time_bench_record *rec, struct run *run, uint64_t *n)
{
	/* Never looked at: only their addresses are handed around. */
	static char pages[SPARE_PAGES];

	HAND_OUT(&pages[i_ % SPARE_PAGES]);
}

static int time_consumer(struct time_bench_record *rec, void *data)
{
	struct run *run = data;
	struct bench_cross_cpu_cpu *me = &run->result->cpus[run->params->returning];
	uint64_t waits = 0, busy;

	bench_gate_pass(&run->gate);
	busy = busy_ns();
	if (run->pool)
		hand_out_of_pool(rec, run, &waits);
	else
		hand_out_of_array(rec, run, &waits);
	me->busy_ns = busy_ns() - busy;
	me->waits = waits;
	for (unsigned i = 0; i < run->params->returning; i++)
		bench_queue_flush(&run->queues[i]);
	/* release: after what was pushed. */
	pp_store_release(&run->over, 1u);
	if (rec->invoke_count < rec->loops)
		return time_bench_fail(rec, -ENOMEM,
				       "%s: out of pages after %" PRIu64 " of %" PRIu64
				       ": give this process more memory",
				       rec->name, rec->invoke_count, rec->loops);
	return 0;
}

/* ---- both ------------------------------------------------------------------------------------ */

static void time_one(struct run *run, unsigned index)
{
	const struct bench_cross_cpu_params *params = run->params;
	struct place place = {run, index};
	bool consumer = index == params->returning;
	struct time_bench_request request = {
		.name = run->pool ? BENCH_CROSS_CPU_NAME : BENCH_CROSS_CPU_HANDOVER_NAME,
		.step = params->returning,
		.loops = params->loops ? params->loops : BENCH_CROSS_CPU_DEFAULT_LOOPS,
		.times = consumer ? params->returning : 1,
		.pmu = params->pmu,
		.fn = consumer ? time_consumer : time_returning,
		.data = consumer ? (void *)run : (void *)&place,
		.clock = params->clock,
	};

	run->errors[index] = time_bench_run(&request, &run->result->cpus[index].rec);
}

static void returning_thread(void *arg, unsigned index)
{
	time_one(arg, index);
}

/* The pages that circulate, from the provider into the pool. */
static int prefill(struct run *run)
{
	struct bench_cross_cpu_result *result = run->result;
	unsigned want = run->params->returning * (BENCH_QUEUE_SIZE + 2 * BENCH_QUEUE_BATCH) +
			2 * PP_ALLOC_CACHE_SIZE;
	struct pp_page **pages;
	unsigned n = 0;

	if (want > result->pool_size)
		want = result->pool_size;
	pages = malloc(want * sizeof(*pages));
	if (!pages)
		return fail(result, -ENOMEM, "no memory for a list of %u pages", want);
	while (n < want && (pages[n] = page_pool_alloc_pages(run->pool)))
		n++;
	for (unsigned i = 0; i < n; i++)
		page_pool_put_full_page(run->pool, pages[i], false);
	bench_flush(run->pool);
	free(pages);
	if (n < want)
		return fail(result, -ENOMEM, "only %u of %u pages to be had: %s", n, want,
			    page_pool_last_error());
	result->pages = n;
	return 0;
}

static int expect(struct bench_cross_cpu_result *result, const char *what, uint64_t is,
		  uint64_t expected)
{
	if (is == expected)
		return 0;
	return fail(result, -EPROTO,
		    BENCH_CROSS_CPU_NAME ": measured something else: %s is %" PRIu64
					 ", expected %" PRIu64,
		    what, is, expected);
}

static int verify(struct run *run, const struct page_pool_stats *a, const struct page_pool_stats *b)
{
	struct bench_cross_cpu_result *result = run->result;
	const uint64_t n = result->cpus[run->params->returning].rec.invoke_count;
	int err;

	result->ring_full = b->recycle_ring_full - a->recycle_ring_full;
	result->slow = b->alloc_slow - a->alloc_slow;
	err = expect(result, "alloc fast + refill + slow",
		     b->alloc_fast - a->alloc_fast + b->alloc_refill - a->alloc_refill +
			     result->slow,
		     n);
	if (!err)
		err = expect(result, "recycle ring + ring_full",
			     b->recycle_ring - a->recycle_ring + result->ring_full, n);
	if (!err)
		err = expect(result, "recycle cached", b->recycle_cached - a->recycle_cached, 0);
	if (!err)
		err = expect(result, "recycle released_refcnt",
			     b->recycle_released_refcnt - a->recycle_released_refcnt, 0);
	if (!err)
		err = expect(result, "refused puts", page_pool_refused_puts(run->pool), 0);
	return err;
}

static int run_threads(struct run *run)
{
	const struct bench_cross_cpu_params *params = run->params;
	struct bench_cross_cpu_result *result = run->result;
	struct bench_gang *gang;
	int err = bench_pin(params->cpus ? params->cpus[params->returning] : -1);

	if (err)
		return fail(result, err, "cannot run on CPU %d: %s",
			    params->cpus[params->returning], strerror(-err));
	err = bench_gang_start(params->returning, params->cpus, returning_thread, run,
			       result->error, sizeof(result->error), &gang);
	if (err)
		return err;
	time_one(run, params->returning);
	bench_gang_join(gang);
	/* The consumer's first: if it ran out of pages, that is why the others stopped. */
	for (unsigned i = params->returning + 1; i-- > 0;) {
		if (!run->errors[i])
			continue;
		return fail(result, run->errors[i], "%s", result->cpus[i].rec.error);
	}
	return 0;
}

static int run_in_pool(struct run *run)
{
	struct page_pool_stats before = {.size = sizeof(before)};
	struct page_pool_stats after = {.size = sizeof(after)};
	bool stats = !run->params->no_stats;
	int err = prefill(run);

	if (!err && stats)
		err = page_pool_get_stats(run->pool, &before);
	if (!err)
		err = run_threads(run);
	if (!err && stats)
		err = page_pool_get_stats(run->pool, &after);
	if (err) {
		if (!run->result->error[0])
			fail(run->result, err, "no statistics: %s", page_pool_last_error());
		return err;
	}
	return stats ? verify(run, &before, &after) : 0;
}

static int run_with_queues(struct run *run)
{
	const struct bench_cross_cpu_params *params = run->params;
	struct bench_cross_cpu_result *result = run->result;
	struct page_pool_params p = PAGE_POOL_PARAMS_INIT;
	int err;

	if (params->handover)
		return run_threads(run);
	p.pool_size = BENCH_CROSS_CPU_POOL_SIZE;
	p.design = params->design;
	p.flags =
		(params->no_stats ? PP_FLAG_NO_STATS : 0) | (params->checked ? PP_FLAG_CHECKED : 0);
	err = page_pool_create(&p, &run->pool);
	if (err)
		return fail(result, err, "no pool: %s", page_pool_last_error());
	result->pool_size = page_pool_size(run->pool);
	err = run_in_pool(run);
	page_pool_destroy(run->pool);
	return err;
}

int bench_cross_cpu_run(const struct bench_cross_cpu_params *params,
			struct bench_cross_cpu_result *result)
{
	const unsigned n = params->returning;
	struct bench_cross_cpu_cpu *cpus = result->cpus;
	struct run run = {.params = params, .result = result, .yields = !params->cpus};
	int err;

	*result = (struct bench_cross_cpu_result){.cpus = cpus};
	if (!n || n > BENCH_CROSS_CPU_MAX_RETURNING)
		return fail(result, -EINVAL, "%u returning CPUs: can be 1 to %u", n,
			    BENCH_CROSS_CPU_MAX_RETURNING);
	/* time_bench_run() would refuse them in each thread, in front of the gate. */
	if (params->loops && params->loops < TIME_BENCH_MIN_LOOPS)
		return fail(result, -EINVAL, "%" PRIu64 " loops are too few to time, need %u",
			    params->loops, TIME_BENCH_MIN_LOOPS);
	if (params->loops > TIME_BENCH_MAX_LOOPS)
		return fail(result, -ERANGE, "%" PRIu64 " loops are too many, at most %" PRIu32,
			    params->loops, TIME_BENCH_MAX_LOOPS);
	memset(cpus, 0, (n + 1) * sizeof(*cpus));
	for (unsigned i = 0; i <= n; i++)
		cpus[i].cpu = params->cpus ? params->cpus[i] : (int)i;
	bench_gate_init(&run.gate, n + 1, run.yields);
	run.queues = aligned_alloc(128, n * sizeof(*run.queues));
	run.errors = calloc(n + 1, sizeof(*run.errors));
	/* One that is not whole at the end. */
	run.stretches = (params->loops ? params->loops : BENCH_CROSS_CPU_DEFAULT_LOOPS) /
				BENCH_CROSS_CPU_STRETCH +
			1;
	run.ends = calloc(n * run.stretches, sizeof(*run.ends));
	if (run.queues && run.errors && run.ends) {
		memset(run.queues, 0, n * sizeof(*run.queues));
		err = run_with_queues(&run);
	} else {
		err = fail(result, -ENOMEM,
			   "no memory for %u queues and times of %" PRIu64 " pages", n,
			   run.stretches * BENCH_CROSS_CPU_STRETCH);
	}
	free(run.ends);
	free(run.errors);
	free(run.queues);
	return err;
}
