// SPDX-License-Identifier: BSD-2-Clause
/*
 * A round: the consumer has all pages, and wakes the producers. Each copies its list (a bulk put
 * makes scratch of it), they wait for each other at a gate that spins, and each times its own puts.
 * The consumer sleeps meanwhile, and then takes all pages back, untimed. That they are the same
 * ones is seen from their sum.
 */
#include "bench_storm.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "pagepool.h"

/* As in bench_simple.c: where a loop begins must not depend on what is in front of it. */
#define TIMED PP_NOINLINE PP_ALIGNED(64)

struct run {
	const struct bench_storm_params *params;
	struct bench_storm_result *result;
	struct page_pool *pool;
	struct pp_page **pages;      /* producers * result->pages: each producer's list */
	struct time_bench_lap *laps; /* producers * rounds */
	int *errors;                 /* of the producers */
	/* Sleep until all have come: the producers and the consumer. */
	pthread_barrier_t ready, done;
	struct bench_gate gate; /* the producers */
	bool over;              /* under ready: no further round */
};

static int fail(struct bench_storm_result *result, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int fail(struct bench_storm_result *result, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(result->error, sizeof(result->error), fmt, args);
	va_end(args);
	return err;
}

unsigned bench_storm_pages(unsigned producers)
{
	unsigned pages = BENCH_STORM_POOL_SIZE / producers;

	if (pages > BENCH_STORM_MAX_PAGES)
		pages = BENCH_STORM_MAX_PAGES;
	return pages - pages % BENCH_STORM_PAGES_STEP;
}

/* ---- the producers --------------------------------------------------------------------------- */

static TIMED void storm(struct page_pool *pool, struct pp_page **pages, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		page_pool_put_full_page(pool, pages[i], false);
}

static TIMED void storm_bulk(struct pp_page **pages, unsigned n, unsigned bulk)
{
	for (unsigned i = 0; i < n; i += bulk)
		page_pool_put_page_bulk(pages + i, n - i < bulk ? n - i : bulk);
}

struct place {
	struct run *run;
	unsigned index;
};

static int time_producer(struct time_bench_record *rec, void *data)
{
	struct place *place = data;
	struct run *run = place->run;
	const unsigned n = run->result->pages, bulk = run->params->bulk;
	struct pp_page **mine = run->pages + (size_t)place->index * n;
	struct time_bench_lap *lap = run->laps + place->index * run->result->rounds;
	struct pp_page **pages = malloc(n * sizeof(*pages));
	const bool able = pages;

	for (;;) {
		pthread_barrier_wait(&run->ready);
		if (run->over)
			break;
		if (able) {
			memcpy(pages, mine, n * sizeof(*pages));
			bench_gate_pass(&run->gate);
			time_bench_lap_start(rec);
			if (bulk)
				storm_bulk(pages, n, bulk);
			else
				storm(run->pool, pages, n);
			bench_flush(run->pool);
			time_bench_lap_stop(rec, n, lap++);
		} else {
			/* The others wait for this one, and the pages have to come back. */
			bench_gate_pass(&run->gate);
			storm(run->pool, mine, n);
		}
		pthread_barrier_wait(&run->done);
	}
	free(pages);
	return able ? 0 : time_bench_fail(rec, -ENOMEM, "%s: no memory", rec->name);
}

static void producer_thread(void *arg, unsigned index)
{
	struct run *run = arg;
	const struct bench_storm_params *params = run->params;
	struct place place = {run, index};
	struct time_bench_request request = {
		.name = params->bulk ? BENCH_STORM_BULK_NAME : BENCH_STORM_NAME,
		.step = params->producers,
		.loops = params->loops,
		.fn = time_producer,
		.data = &place,
		.clock = params->clock,
	};

	run->errors[index] = time_bench_run(&request, &run->result->cpus[index].rec);
}

/* ---- the consumer ---------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b)
{
	const struct pp_page *const *one = a, *const *other = b;
	uintptr_t x = (uintptr_t)pp_page_address(*one), y = (uintptr_t)pp_page_address(*other);

	return (x > y) - (x < y);
}

static size_t take(struct run *run, struct pp_page **pages, size_t n)
{
	size_t got = 0;

	while (got < n && (pages[got] = page_pool_alloc_pages(run->pool)))
		got++;
	return got;
}

static uintptr_t sum_of(struct pp_page *const *pages, size_t n)
{
	uintptr_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += (uintptr_t)pages[i];
	return sum;
}

/* All pages, by address, dealt out to the producers' lists. */
static void deal(struct run *run, struct pp_page **sorted)
{
	const unsigned producers = run->params->producers, n = run->result->pages;
	const unsigned block = run->params->round_robin ? 1 : BENCH_STORM_BLOCK;
	size_t at = 0;

	/* n is a multiple of the block. */
	for (unsigned i = 0; i < n; i += block) {
		for (unsigned p = 0; p < producers; p++) {
			for (unsigned j = 0; j < block; j++)
				run->pages[(size_t)p * n + i + j] = sorted[at++];
		}
	}
}

static int verify(struct run *run, const struct page_pool_stats *a, const struct page_pool_stats *b)
{
	const uint64_t n = (uint64_t)run->params->producers * run->result->pages;
	const uint64_t puts = n * run->result->rounds;
	const struct {
		const char *what;
		uint64_t is, expected;
	} facts[] = {
		{"recycle ring", b->recycle_ring - a->recycle_ring, puts},
		{"recycle ring_full", b->recycle_ring_full - a->recycle_ring_full, 0},
		{"recycle cached", b->recycle_cached - a->recycle_cached, 0},
		{"recycle released_refcnt", b->recycle_released_refcnt - a->recycle_released_refcnt,
		 0},
		{"alloc slow", b->alloc_slow - a->alloc_slow, 0},
		{"refused puts", page_pool_refused_puts(run->pool), 0},
	};

	for (size_t i = 0; i < PP_ARRAY_SIZE(facts); i++) {
		if (facts[i].is == facts[i].expected)
			continue;
		return fail(run->result, -EPROTO,
			    BENCH_STORM_NAME ": measured something else: %s is %" PRIu64
					     " after %" PRIu64 " puts, expected %" PRIu64,
			    facts[i].what, facts[i].is, puts, facts[i].expected);
	}
	return 0;
}

/* The consumer's side of all rounds; whatever happens, it ends with the producers told. */
static int rounds(struct run *run, struct pp_page **back)
{
	const size_t n = (size_t)run->params->producers * run->result->pages;
	const uintptr_t sum = sum_of(run->pages, n);
	size_t held = n; /* pages that the consumer has */
	int err = 0;

	for (uint64_t i = 0; i < run->result->rounds && !err; i++) {
		pthread_barrier_wait(&run->ready);
		pthread_barrier_wait(&run->done);
		held = take(run, back, n);
		if (held < n)
			err = fail(run->result, -ENOMEM, "only %zu of %zu pages came back: %s",
				   held, n, page_pool_last_error());
		else if (sum_of(back, n) != sum)
			err = fail(run->result, -EPROTO,
				   BENCH_STORM_NAME
				   ": measured something else: other pages came back in round "
				   "%" PRIu64,
				   i + 1);
	}
	run->over = true;
	pthread_barrier_wait(&run->ready);
	for (size_t i = 0; i < held; i++)
		page_pool_put_full_page(run->pool, back[i], false);
	return err;
}

static int run_threads(struct run *run, struct pp_page **back)
{
	const unsigned producers = run->params->producers;
	struct bench_gang *gang;
	int err;

	pthread_barrier_init(&run->ready, NULL, producers + 1);
	pthread_barrier_init(&run->done, NULL, producers + 1);
	err = bench_gang_start(producers, run->params->cpus, producer_thread, run,
			       run->result->error, sizeof(run->result->error), &gang);
	if (!err) {
		err = rounds(run, back);
		bench_gang_join(gang);
		for (unsigned i = 0; i < producers && !err; i++) {
			if (run->errors[i])
				err = fail(run->result, run->errors[i], "%s",
					   run->result->cpus[i].rec.error);
		}
	} else {
		for (size_t i = 0; i < (size_t)producers * run->result->pages; i++)
			page_pool_put_full_page(run->pool, back[i], false);
	}
	pthread_barrier_destroy(&run->done);
	pthread_barrier_destroy(&run->ready);
	return err;
}

static int by_time(const void *a, const void *b)
{
	const struct time_bench_lap *one = a, *other = b;

	return (one->ns > other->ns) - (one->ns < other->ns);
}

static void summarize(struct run *run)
{
	const uint64_t n = run->result->rounds;

	for (unsigned p = 0; p < run->params->producers; p++) {
		struct bench_storm_cpu *cpu = &run->result->cpus[p];
		struct time_bench_lap *laps = run->laps + p * n;

		qsort(laps, n, sizeof(*laps), by_time);
		cpu->median = laps[(n - 1) / 2];
		cpu->low = laps[(n - 1) / 10];
		cpu->high = laps[n - 1 - (n - 1) / 10];
	}
}

static int run_in_pool(struct run *run, struct pp_page **back)
{
	const size_t n = (size_t)run->params->producers * run->result->pages;
	struct page_pool_stats before = {.size = sizeof(before)};
	struct page_pool_stats after = {.size = sizeof(after)};
	bool stats = !run->params->no_stats;
	size_t got = take(run, back, n);
	int err = 0;

	if (got == n) {
		qsort(back, n, sizeof(*back), by_address);
		deal(run, back);
		if (stats)
			err = page_pool_get_stats(run->pool, &before);
		if (err)
			fail(run->result, err, "no statistics: %s", page_pool_last_error());
	} else {
		err = fail(run->result, -ENOMEM, "only %zu of %zu pages to be had: %s", got, n,
			   page_pool_last_error());
	}
	if (err) {
		while (got)
			page_pool_put_full_page(run->pool, back[--got], false);
		return err;
	}
	err = run_threads(run, back);
	if (err)
		return err;
	if (stats) {
		err = page_pool_get_stats(run->pool, &after);
		if (err)
			return fail(run->result, err, "no statistics: %s", page_pool_last_error());
		/* The consumer has put all pages once more, at the end. */
		after.recycle_ring -= n;
		err = verify(run, &before, &after);
	}
	if (!err)
		summarize(run);
	return err;
}

static int run_with_lists(struct run *run, struct pp_page **back)
{
	struct page_pool_params p = PAGE_POOL_PARAMS_INIT;
	int err;

	p.pool_size = BENCH_STORM_POOL_SIZE;
	p.design = run->params->design;
	p.flags = (run->params->no_stats ? PP_FLAG_NO_STATS : 0) |
		  (run->params->checked ? PP_FLAG_CHECKED : 0);
	err = page_pool_create(&p, &run->pool);
	if (err)
		return fail(run->result, err, "no pool: %s", page_pool_last_error());
	err = run_in_pool(run, back);
	page_pool_destroy(run->pool);
	return err;
}

static int check(const struct bench_storm_params *p, struct bench_storm_result *result)
{
	const unsigned n = result->pages;

	if (!p->producers || p->producers > BENCH_STORM_MAX_PRODUCERS)
		return fail(result, -EINVAL, "%u producers: can be 1 to %u", p->producers,
			    BENCH_STORM_MAX_PRODUCERS);
	if (!n || n % BENCH_STORM_PAGES_STEP || (uint64_t)n * p->producers > BENCH_STORM_POOL_SIZE)
		return fail(result, -EINVAL,
			    "%u pages of each of %u producers: can be a multiple of %u, and %u of "
			    "all producers",
			    n, p->producers, BENCH_STORM_PAGES_STEP, BENCH_STORM_POOL_SIZE);
	if (p->bulk == 1 || p->bulk > 64)
		return fail(result, -EINVAL, "bulk of %u: can be 2 to 64", p->bulk);
	/* time_bench_run() would refuse them in each thread, in front of the gate. */
	if (p->loops < TIME_BENCH_MIN_LOOPS)
		return fail(result, -EINVAL, "%" PRIu64 " loops are too few to time, need %u",
			    p->loops, TIME_BENCH_MIN_LOOPS);
	if (p->loops > TIME_BENCH_MAX_LOOPS)
		return fail(result, -ERANGE, "%" PRIu64 " loops are too many, at most %" PRIu32,
			    p->loops, TIME_BENCH_MAX_LOOPS);
	return 0;
}

int bench_storm_run(const struct bench_storm_params *given, struct bench_storm_result *result)
{
	struct bench_storm_params params = *given;
	struct bench_storm_cpu *cpus = result->cpus;
	struct run run = {.params = &params, .result = result};
	struct pp_page **back;
	size_t n;
	int err;

	if (!params.loops)
		params.loops = BENCH_STORM_DEFAULT_LOOPS;
	*result = (struct bench_storm_result){.cpus = cpus, .pages = params.pages};
	if (!params.pages && params.producers && params.producers <= BENCH_STORM_MAX_PRODUCERS)
		result->pages = bench_storm_pages(params.producers);
	err = check(&params, result);
	if (err)
		return err;
	result->rounds = (params.loops + result->pages - 1) / result->pages;
	memset(cpus, 0, params.producers * sizeof(*cpus));
	for (unsigned i = 0; i < params.producers; i++)
		cpus[i].cpu = params.cpus ? params.cpus[i] : (int)i;
	bench_gate_init(&run.gate, params.producers, !params.cpus);
	n = (size_t)params.producers * result->pages;
	run.pages = calloc(n, sizeof(*run.pages));
	back = calloc(n, sizeof(*back));
	run.laps = calloc((size_t)params.producers * result->rounds, sizeof(*run.laps));
	run.errors = calloc(params.producers, sizeof(*run.errors));
	if (run.pages && back && run.laps && run.errors)
		err = run_with_lists(&run, back);
	else
		err = fail(result, -ENOMEM,
			   "no memory for the times of %" PRIu64
			   " rounds; fewer loops or more pages in a round need less",
			   result->rounds);
	free(run.errors);
	free(run.laps);
	free(back);
	free(run.pages);
	return err;
}
