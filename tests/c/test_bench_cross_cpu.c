// SPDX-License-Identifier: BSD-2-Clause
/*
 * The hand-over queue, the threads, and bench_cross_cpu: what is counted, what is refused, and that
 * nobody waits for ever when the pages run out. Includes the benchmark to reach its inside.
 */
#include "bench/bench_cross_cpu.c"

#include "test.h"

static const char *const designs[] = {"ring",       "ours",       "list",           "list-ring",
				      "list-batch", "list-cache", "list-ring-cache"};

static unsigned design(const char *name)
{
	unsigned ret;

	CHECK(!pp_design_parse(name, &ret));
	return ret;
}

/* ---- the queue ------------------------------------------------------------------------------- */

static struct bench_queue *new_queue(void)
{
	struct bench_queue *q = aligned_alloc(128, sizeof(*q));

	CHECK(q);
	memset(q, 0, sizeof(*q));
	return q;
}

TEST(queue_shows_batches)
{
	struct bench_queue *q = new_queue();
	char items[BENCH_QUEUE_SIZE + 1];

	for (unsigned i = 0; i < BENCH_QUEUE_BATCH - 1; i++)
		CHECK(bench_queue_push(q, &items[i]));
	CHECK(!bench_queue_pop(q));
	CHECK(bench_queue_push(q, &items[BENCH_QUEUE_BATCH - 1]));
	for (unsigned i = 0; i < BENCH_QUEUE_BATCH; i++)
		CHECK(bench_queue_pop(q) == &items[i]);
	CHECK(!bench_queue_pop(q));
	CHECK(bench_queue_push(q, &items[7]));
	bench_queue_flush(q);
	CHECK(bench_queue_pop(q) == &items[7]);
	free(q);
}

TEST(queue_is_bounded)
{
	struct bench_queue *q = new_queue();
	char items[2 * BENCH_QUEUE_SIZE];
	unsigned in = 0, out = 0;

	while (bench_queue_push(q, &items[in]))
		in++;
	CHECK(in == BENCH_QUEUE_SIZE);
	/* Room appears by batches, too. */
	for (; out < BENCH_QUEUE_BATCH - 1; out++)
		CHECK(bench_queue_pop(q) == &items[out]);
	CHECK(!bench_queue_push(q, &items[in]));
	CHECK(bench_queue_pop(q) == &items[out++]);
	while (bench_queue_push(q, &items[in]))
		in++;
	CHECK(in == BENCH_QUEUE_SIZE + BENCH_QUEUE_BATCH);
	while (out < in)
		CHECK(bench_queue_pop(q) == &items[out++]);
	CHECK(!bench_queue_pop(q));
	free(q);
}

/* ---- threads --------------------------------------------------------------------------------- */

struct party {
	struct bench_gate gate;
	uint32_t inside, ran;
	bool early;
};

static void join_party(void *arg, unsigned index)
{
	struct party *party = arg;

	(void)index;
	for (uint32_t round = 1; round <= 200; round++) {
		pp_fetch_add_relaxed(&party->inside, 1u);
		bench_gate_pass(&party->gate);
		/* relaxed: the gate orders it. */
		if (pp_load_relaxed(&party->inside) < 3 * round)
			party->early = true;
		bench_gate_pass(&party->gate);
	}
	pp_fetch_add_relaxed(&party->ran, 1u);
}

TEST(nobody_is_through_the_gate_before_all_are_there)
{
	struct party party = {.early = false};
	struct bench_gang *gang;
	char error[256];

	bench_gate_init(&party.gate, 3, true);
	CHECK(!bench_gang_start(3, NULL, join_party, &party, error, sizeof(error), &gang));
	bench_gang_join(gang);
	CHECK(party.ran == 3);
	CHECK(!party.early);
}

TEST(all_threads_or_none)
{
	const int cpus[] = {-1, 1 << 20, -1};
	struct party party = {.ran = 0};
	struct bench_gang *gang;
	char error[256] = "";

	bench_gate_init(&party.gate, 3, true);
	CHECK(bench_gang_start(3, cpus, join_party, &party, error, sizeof(error), &gang) ==
	      -EINVAL);
	CHECK(!strcmp(error, "cannot run on CPU 1048576: Invalid argument"));
	CHECK(party.ran == 0);
}

/* ---- the benchmark --------------------------------------------------------------------------- */

static void check_records(const struct bench_cross_cpu_params *params,
			  const struct bench_cross_cpu_result *result)
{
	for (unsigned i = 0; i <= params->returning; i++) {
		const struct bench_cross_cpu_cpu *cpu = &result->cpus[i];
		uint64_t times = i == params->returning ? params->returning : 1;

		CHECK(!strcmp(cpu->rec.name, params->handover ? BENCH_CROSS_CPU_HANDOVER_NAME
							      : BENCH_CROSS_CPU_NAME));
		CHECK(cpu->rec.step == params->returning);
		CHECK(cpu->rec.invoke_count == params->loops * times);
		CHECK(cpu->rec.time_interval_ns > 0);
		CHECK(cpu->cpu == (int)i);
		if (i < params->returning) {
			CHECK(cpu->stretch == (params->loops < 4096 ? params->loops : 4096));
			CHECK(cpu->median_ns > 0);
			CHECK(cpu->median_ns <= cpu->rec.time_interval_ns);
		}
	}
}

TEST(every_page_is_counted_in_every_design)
{
	struct bench_cross_cpu_cpu cpus[4];
	struct bench_cross_cpu_result result = {.cpus = cpus};

	for (size_t i = 0; i < PP_ARRAY_SIZE(designs); i++) {
		for (unsigned n = 1; n <= 3; n += 2) {
			struct bench_cross_cpu_params params = {
				/* No multiple of the batch. */
				.loops = 20011,
				.returning = n,
				.design = design(designs[i]),
			};

			if (bench_cross_cpu_run(&params, &result))
				printf("# %s, %u: %s\n", designs[i], n, result.error);
			CHECK(!result.error[0]);
			check_records(&params, &result);
			CHECK(result.pool_size == 16384); /* of 32000 */
			CHECK(result.pages > n * BENCH_QUEUE_SIZE);
			CHECK(result.ring_full == 0 && result.slow == 0);
		}
	}
}

TEST(without_the_pool)
{
	struct bench_cross_cpu_cpu cpus[3];
	struct bench_cross_cpu_result result = {.cpus = cpus};
	struct bench_cross_cpu_params params = {.loops = 20011, .returning = 2, .handover = true};

	CHECK(!bench_cross_cpu_run(&params, &result));
	check_records(&params, &result);
	CHECK(result.pool_size == 0 && result.pages == 0);
}

TEST(without_statistics_and_checked)
{
	struct bench_cross_cpu_cpu cpus[2];
	struct bench_cross_cpu_result result = {.cpus = cpus};
	struct bench_cross_cpu_params params = {
		.loops = 2000, .returning = 1, .no_stats = true, .checked = true};

	CHECK(!bench_cross_cpu_run(&params, &result));
	check_records(&params, &result);
}

TEST(what_cannot_be)
{
	static const int nowhere[] = {0, 1 << 20}, not_there[] = {1 << 20, 0};
	struct bench_cross_cpu_cpu cpus[2];
	struct bench_cross_cpu_result result = {.cpus = cpus};
	static const struct {
		struct bench_cross_cpu_params params;
		int err;
		const char *error;
	} wrong[] = {
		{{.loops = 1000}, -EINVAL, "0 returning CPUs: can be 1 to 255"},
		{{.loops = 1000, .returning = 256}, -EINVAL, "256 returning CPUs: can be 1 to 255"},
		{{.loops = 999, .returning = 1},
		 -EINVAL,
		 "999 loops are too few to time, need 1000"},
		{{.loops = UINT64_C(1) << 32, .returning = 1},
		 -ERANGE,
		 "4294967296 loops are too many, at most 4294967295"},
		{{.loops = 1000, .returning = 1, .cpus = nowhere},
		 -EINVAL,
		 "cannot run on CPU 1048576: Invalid argument"},
		{{.loops = 1000, .returning = 1, .cpus = not_there, .handover = true},
		 -EINVAL,
		 "cannot run on CPU 1048576: Invalid argument"},
		{{.loops = 1000, .returning = 1, .design = 0x1000}, -EINVAL, NULL},
	};

	for (size_t i = 0; i < PP_ARRAY_SIZE(wrong); i++) {
		CHECK(bench_cross_cpu_run(&wrong[i].params, &result) == wrong[i].err);
		if (wrong[i].error)
			CHECK(!strcmp(result.error, wrong[i].error));
		CHECK(!strncmp(result.error,
			       wrong[i].error ? "" : "no pool: ", wrong[i].error ? 0 : 9));
	}
}

/* Ten pages, in queues that show 32 at a time: nobody gets any further. */
TEST(out_of_pages_ends_it)
{
	struct pp_arena_params arena = PP_ARENA_PARAMS_INIT;
	struct page_pool_params p = PAGE_POOL_PARAMS_INIT;
	struct bench_cross_cpu_cpu cpus[3] = {{.cpu = 0}};
	struct bench_cross_cpu_result result = {.cpus = cpus};
	struct bench_cross_cpu_params params = {.loops = 1000, .returning = 2};
	struct bench_queue *queues = aligned_alloc(128, 2 * sizeof(*queues));
	struct run run = {.params = &params, .result = &result, .queues = queues, .yields = true};
	static struct pp_page *pages[2048];
	struct pp_provider *provider;
	int errors[3];
	uint64_t ends[2];
	size_t n = 0;

	CHECK(queues);
	memset(queues, 0, 2 * sizeof(*queues));
	run.errors = errors;
	run.ends = ends;
	run.stretches = 1;
	arena.limit = (size_t)4 << 20;
	CHECK(!pp_arena_create(&arena, &provider));
	p.provider = provider;
	CHECK(!page_pool_create(&p, &run.pool));
	while (n < PP_ARRAY_SIZE(pages) && (pages[n] = page_pool_alloc_pages(run.pool)))
		n++;
	CHECK(n > 10 && n < PP_ARRAY_SIZE(pages));
	for (unsigned i = 0; i < 10; i++)
		page_pool_put_full_page(run.pool, pages[--n], false);
	bench_gate_init(&run.gate, 3, true);
	CHECK(run_threads(&run) == -ENOMEM);
	CHECK(strstr(result.error, "out of pages after 10 of 2000"));
	/* What was handed out was returned all the same. */
	CHECK(cpus[0].rec.invoke_count + cpus[1].rec.invoke_count == 10);
	CHECK(page_pool_inflight(run.pool) == (int32_t)n + 10);
	while (n)
		page_pool_put_full_page(run.pool, pages[--n], false);
	page_pool_destroy(run.pool);
	pp_provider_put(provider);
	free(queues);
}

TEST(median_of_stretches)
{
	/* Whole ones of 40, 10, 900 and 20; what follows is none. */
	uint64_t ends[] = {1040, 1050, 1950, 1970, 1971};
	struct log log = {.ends = ends, .n = 5};
	struct bench_cross_cpu_cpu me = {.cpu = 0};

	me.rec.start_ns = 1000;
	me.rec.time_interval_ns = 971;
	me.rec.invoke_count = 4 * BENCH_CROSS_CPU_STRETCH + 7;
	find_median(&me, &log);
	CHECK(me.median_ns == 20 && me.stretch == BENCH_CROSS_CPU_STRETCH);
	me.rec.invoke_count = 1234;
	find_median(&me, &log);
	CHECK(me.median_ns == 971 && me.stretch == 1234);
}

TEST(another_road_is_an_error)
{
	struct bench_cross_cpu_cpu cpus[2] = {{.cpu = 0}};
	struct bench_cross_cpu_result result = {.cpus = cpus};
	struct bench_cross_cpu_params params = {.returning = 1};
	struct run run = {.params = &params, .result = &result};
	struct page_pool_params p = PAGE_POOL_PARAMS_INIT;
	struct page_pool_stats a = {.alloc_fast = 5}, b;

	CHECK(!page_pool_create(&p, &run.pool));
	cpus[1].rec.invoke_count = 100;
	b = a;
	b.alloc_fast += 90;
	b.alloc_refill += 8;
	b.alloc_slow += 2;
	b.recycle_ring += 97;
	b.recycle_ring_full += 3;
	CHECK(!verify(&run, &a, &b));
	CHECK(result.ring_full == 3 && result.slow == 2);
	for (int i = 0; i < 4; i++) {
		struct page_pool_stats c = b;

		if (i == 0)
			c.alloc_fast--;
		else if (i == 1)
			c.recycle_ring++;
		else if (i == 2)
			c.recycle_cached++;
		else
			c.recycle_released_refcnt++;
		CHECK(verify(&run, &a, &c) == -EPROTO);
		CHECK(strstr(result.error, "measured something else"));
	}
	page_pool_destroy(run.pool);
}
