// SPDX-License-Identifier: BSD-2-Clause
/*
 * bench_storm: the pages' way around, what is made of the rounds' times, what is refused. Includes
 * the benchmark to reach its inside.
 */
#include "bench/bench_storm.c"

#include "test.h"

static const char *const designs[] = {"ring",       "ours",       "list",           "list-ring",
				      "list-batch", "list-cache", "list-ring-cache"};

static unsigned design(const char *name)
{
	unsigned ret;

	CHECK(!pp_design_parse(name, &ret));
	return ret;
}

static void check_records(const struct bench_storm_params *params,
			  const struct bench_storm_result *result)
{
	const uint64_t rounds = (params->loops + result->pages - 1) / result->pages;

	CHECK(result->rounds == rounds);
	for (unsigned i = 0; i < params->producers; i++) {
		const struct bench_storm_cpu *cpu = &result->cpus[i];

		CHECK(!strcmp(cpu->rec.name,
			      params->bulk ? BENCH_STORM_BULK_NAME : BENCH_STORM_NAME));
		CHECK(cpu->rec.step == params->producers);
		CHECK(cpu->rec.invoke_count == rounds * result->pages);
		CHECK(cpu->low.ns <= cpu->median.ns && cpu->median.ns <= cpu->high.ns);
		CHECK(cpu->low.ns > 0);
		CHECK(cpu->high.ns <= cpu->rec.time_interval_ns);
		CHECK(cpu->cpu == (int)i);
	}
}

TEST(every_page_comes_back_in_every_design)
{
	struct bench_storm_cpu cpus[3];
	struct bench_storm_result result = {.cpus = cpus};

	for (size_t i = 0; i < PP_ARRAY_SIZE(designs); i++) {
		for (unsigned bits = 0; bits < 8; bits++) {
			struct bench_storm_params params = {
				.loops = 2000,
				.producers = bits & 1 ? 3 : 1,
				.pages = 192,
				.round_robin = bits & 2,
				.bulk = bits & 4 ? 7 : 0,
				.design = design(designs[i]),
			};

			if (bench_storm_run(&params, &result))
				printf("# %s, %u: %s\n", designs[i], bits, result.error);
			CHECK(!result.error[0]);
			CHECK(result.pages == 192);
			check_records(&params, &result);
		}
	}
}

/* The pool is full to the last page. */
TEST(as_many_as_fit)
{
	struct bench_storm_cpu cpus[4];
	struct bench_storm_result result = {.cpus = cpus};

	for (size_t i = 0; i < PP_ARRAY_SIZE(designs); i++) {
		struct bench_storm_params params = {
			.loops = 10000, .producers = 4, .design = design(designs[i])};

		CHECK(!bench_storm_run(&params, &result));
		CHECK(result.pages == 4096);
		check_records(&params, &result);
	}
	CHECK(bench_storm_pages(1) == 4096);
	CHECK(bench_storm_pages(5) == 3264);
	CHECK(bench_storm_pages(64) == 256);
	CHECK(bench_storm_pages(256) == 64);
}

TEST(without_statistics_and_checked)
{
	struct bench_storm_cpu cpus[2];
	struct bench_storm_result result = {.cpus = cpus};
	struct bench_storm_params params = {
		.loops = 1000, .producers = 2, .pages = 64, .no_stats = true, .checked = true};

	CHECK(!bench_storm_run(&params, &result));
	check_records(&params, &result);
}

TEST(neighbours_are_dealt_as_asked)
{
	enum {
		N = 128,
		PRODUCERS = 2
	};
	static char memory[N * PRODUCERS];
	struct pp_page *sorted[N * PRODUCERS], *lists[N * PRODUCERS];
	struct bench_storm_result result = {.pages = N};
	struct bench_storm_params params = {.producers = PRODUCERS};
	struct run run = {.params = &params, .result = &result, .pages = lists};

	/* Never looked into: only the addresses count. */
	for (unsigned i = 0; i < N * PRODUCERS; i++)
		sorted[i] = (void *)&memory[i];
	deal(&run, sorted);
	for (unsigned i = 0; i < N; i++) {
		CHECK(lists[i] == sorted[i / 32 * 64 + i % 32]);
		CHECK(lists[N + i] == sorted[i / 32 * 64 + 32 + i % 32]);
	}
	params.round_robin = true;
	deal(&run, sorted);
	for (unsigned i = 0; i < N; i++) {
		CHECK(lists[i] == sorted[2 * i]);
		CHECK(lists[N + i] == sorted[2 * i + 1]);
	}
}

TEST(median_and_tenths_were_measured)
{
	/* Two producers of 12 rounds: 12, 1, 11, 2, ... and ten times that. */
	struct time_bench_lap laps[24];
	struct bench_storm_cpu cpus[2] = {{.cpu = 0}};
	struct bench_storm_result result = {.cpus = cpus, .rounds = 12};
	struct bench_storm_params params = {.producers = 2};
	struct run run = {.params = &params, .result = &result, .laps = laps};

	for (unsigned i = 0; i < 12; i++) {
		uint64_t ns = i % 2 ? i / 2 + 1 : 12 - i / 2;

		laps[i] = (struct time_bench_lap){ns, 3 * ns};
		laps[12 + i] = (struct time_bench_lap){10 * ns, 30 * ns};
	}
	summarize(&run);
	CHECK(cpus[0].median.ns == 6 && cpus[0].median.ticks == 18);
	CHECK(cpus[0].low.ns == 2 && cpus[0].high.ns == 11);
	CHECK(cpus[1].median.ns == 60 && cpus[1].low.ns == 20 && cpus[1].high.ns == 110);
	result.rounds = 1;
	summarize(&run);
	CHECK(cpus[0].median.ns == 1 && cpus[0].low.ns == 1 && cpus[0].high.ns == 1);
}

TEST(what_cannot_be)
{
	static const int nowhere[] = {1 << 20};
	struct bench_storm_cpu cpus[2];
	struct bench_storm_result result = {.cpus = cpus};
	static const struct {
		struct bench_storm_params params;
		int err;
		const char *error;
	} wrong[] = {
		{{.loops = 1000}, -EINVAL, "0 producers: can be 1 to 256"},
		{{.loops = 1000, .producers = 257}, -EINVAL, "257 producers: can be 1 to 256"},
		{{.loops = 1000, .producers = 1, .pages = 100},
		 -EINVAL,
		 "100 pages of each of 1 producers: can be a multiple of 64, and 16384 of all "
		 "producers"},
		{{.loops = 1000, .producers = 2, .pages = 8256},
		 -EINVAL,
		 "8256 pages of each of 2 producers: can be a multiple of 64, and 16384 of all "
		 "producers"},
		{{.loops = 1000, .producers = 1, .bulk = 1}, -EINVAL, "bulk of 1: can be 2 to 64"},
		{{.loops = 1000, .producers = 1, .bulk = 65},
		 -EINVAL,
		 "bulk of 65: can be 2 to 64"},
		{{.loops = 999, .producers = 1},
		 -EINVAL,
		 "999 loops are too few to time, need 1000"},
		{{.loops = UINT64_C(1) << 32, .producers = 1},
		 -ERANGE,
		 "4294967296 loops are too many, at most 4294967295"},
		{{.loops = 1000, .producers = 1, .cpus = nowhere},
		 -EINVAL,
		 "cannot run on CPU 1048576: Invalid argument"},
	};

	for (size_t i = 0; i < PP_ARRAY_SIZE(wrong); i++) {
		CHECK(bench_storm_run(&wrong[i].params, &result) == wrong[i].err);
		if (strcmp(result.error, wrong[i].error))
			printf("# %s\n", result.error);
		CHECK(!strcmp(result.error, wrong[i].error));
	}
}

TEST(another_road_is_an_error)
{
	struct bench_storm_result result = {.pages = 64, .rounds = 10};
	struct bench_storm_params params = {.producers = 2};
	struct run run = {.params = &params, .result = &result};
	struct page_pool_params p = PAGE_POOL_PARAMS_INIT;
	struct page_pool_stats a = {.recycle_ring = 7}, b;

	CHECK(!page_pool_create(&p, &run.pool));
	b = a;
	b.recycle_ring += 1280;
	CHECK(!verify(&run, &a, &b));
	for (int i = 0; i < 5; i++) {
		struct page_pool_stats c = b;

		*(i == 0   ? &c.recycle_ring
		  : i == 1 ? &c.recycle_ring_full
		  : i == 2 ? &c.recycle_cached
		  : i == 3 ? &c.recycle_released_refcnt
			   : &c.alloc_slow) += 1;
		CHECK(verify(&run, &a, &c) == -EPROTO);
		CHECK(strstr(result.error, "measured something else"));
	}
	page_pool_destroy(run.pool);
}
