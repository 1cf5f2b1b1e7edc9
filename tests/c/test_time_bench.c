// SPDX-License-Identifier: BSD-2-Clause
/*
 * time_bench and bench_simple: arithmetic, text, what is refused. A clock that follows a script
 * stands in for the machine's, so that hours and 2^32 loops take no time. Nothing here depends on
 * how fast the machine is.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench_simple.h"
#include "bench/time_bench.h"

static int failures;

#define CHECK(cond)                                                                \
	do {                                                                       \
		if (!(cond)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			failures++;                                                \
		}                                                                  \
	} while (0)

#define CHECK_U64(is, expected)                                                             \
	do {                                                                                \
		uint64_t is_ = (is), expected_ = (expected);                                \
		if (is_ != expected_) {                                                     \
			fprintf(stderr, "%s:%d: %s is %" PRIu64 ", expected %" PRIu64 "\n", \
				__FILE__, __LINE__, #is, is_, expected_);                   \
			failures++;                                                         \
		}                                                                           \
	} while (0)

#define CHECK_STR(is, expected)                                                           \
	do {                                                                              \
		const char *is_ = (is), *expected_ = (expected);                          \
		if (strcmp(is_, expected_)) {                                             \
			fprintf(stderr, "%s:%d: %s is\n\t%s\nexpected\n\t%s\n", __FILE__, \
				__LINE__, #is, is_, expected_);                           \
			failures++;                                                       \
		}                                                                         \
	} while (0)

/* ---- a clock that follows a script --------------------------------------------------------- */

struct script {
	uint64_t ns[2], ticks[2]; /* at start and at stop */
	int err[2];
	unsigned walls, counters; /* how often each was asked */
};

static int script_wall(void *ctx, uint64_t *ns)
{
	struct script *s = ctx;
	unsigned i = s->walls++ ? 1 : 0;

	*ns = s->ns[i];
	return s->err[i];
}

static uint64_t script_counter(void *ctx)
{
	struct script *s = ctx;

	return s->ticks[s->counters++ ? 1 : 0];
}

struct body {
	uint64_t done;
	bool all; /* done is whatever was asked for */
	bool no_start, no_stop;
	int err;
	uint64_t asked; /* out: rec->loops */
	unsigned calls;
};

static int run_body(struct time_bench_record *rec, void *data)
{
	struct body *b = data;

	b->calls++;
	b->asked = rec->loops;
	if (!b->no_start)
		time_bench_start(rec);
	if (!b->no_stop)
		time_bench_stop(rec, b->all ? rec->loops : b->done);
	return b->err;
}

static int run_script(struct script *s, struct body *b, uint64_t loops, uint32_t times,
		      struct time_bench_record *rec)
{
	struct time_bench_clock clock = {script_counter, script_wall, s};
	struct time_bench_request request = {
		.name = "script",
		.loops = loops,
		.times = times,
		.fn = run_body,
		.data = b,
		.clock = &clock,
	};

	return time_bench_run(&request, rec);
}

/* ---- arithmetic and text -------------------------------------------------------------------- */

static struct time_bench_record record_of(const char *name, uint64_t count, uint64_t ns,
					  uint64_t tsc)
{
	struct time_bench_record rec;

	memset(&rec, 0, sizeof(rec));
	strcpy(rec.name, name);
	rec.loops = rec.invoke_count = count;
	rec.time_interval_ns = ns;
	rec.tsc_interval = tsc;
	return rec;
}

static void check_line(const char *name, uint64_t count, uint64_t ns, uint64_t tsc,
		       const char *expected)
{
	struct time_bench_record rec = record_of(name, count, ns, tsc);
	char line[TIME_BENCH_LINE_MAX];

	CHECK_U64((uint64_t)time_bench_format(&rec, line, sizeof(line)), strlen(expected));
	CHECK_STR(line, expected);
}

static void test_lines(void)
{
	/* Two lines of a real log: every digit. */
	check_line("for_loop", 1000000000, 284327440, 1023590451,
		   "time_bench: Type:for_loop Per elem: 1 cycles(tsc) 0.284 ns (step:0) - "
		   "(measurement period time:0.284327440 sec time_interval:284327440) - "
		   "(invoke count:1000000000 tsc_interval:1023590451)");
	check_line("tasklet_page_pool03_slow", 100000000, 6613430605, 23808654870,
		   "time_bench: Type:tasklet_page_pool03_slow Per elem: 238 cycles(tsc) 66.134 ns "
		   "(step:0) - (measurement period time:6.613430605 sec time_interval:6613430605) "
		   "- (invoke count:100000000 tsc_interval:23808654870)");
	/* Counts that are no multiple of 1000: a division by count / 1000 prints 5.1000 here. */
	check_line("x", 10000999, 59999999, 1,
		   "time_bench: Type:x Per elem: 0 cycles(tsc) 5.999 ns (step:0) - (measurement "
		   "period time:0.059999999 sec time_interval:59999999) - (invoke count:10000999 "
		   "tsc_interval:1)");
	check_line("x", 1999, 1998, 0,
		   "time_bench: Type:x Per elem: 0 cycles(tsc) 0.999 ns (step:0) - (measurement "
		   "period time:0.000001998 sec time_interval:1998) - (invoke count:1999 "
		   "tsc_interval:0)");
	/* Fewer than 1000 done: that the divisor is small must not matter. */
	check_line("x", 7, 50, 22,
		   "time_bench: Type:x Per elem: 3 cycles(tsc) 7.142 ns (step:0) - (measurement "
		   "period time:0.000000050 sec time_interval:50) - (invoke count:7 "
		   "tsc_interval:22)");
	/* The most loops there can be, ten times, at 1.25 ns: 53 s and 2^37 ticks. */
	check_line("atomic_inc", UINT64_C(42949672950), UINT64_C(53687091187),
		   UINT64_C(171798691800),
		   "time_bench: Type:atomic_inc Per elem: 4 cycles(tsc) 1.249 ns (step:0) - "
		   "(measurement period time:53.687091187 sec time_interval:53687091187) - "
		   "(invoke count:42949672950 tsc_interval:171798691800)");
	/* A day. */
	check_line("x", 1000, UINT64_C(86400000000001), UINT64_C(311040000000000),
		   "time_bench: Type:x Per elem: 311040000000 cycles(tsc) 86400000000.001 ns "
		   "(step:0) - (measurement period time:86400.000000001 sec "
		   "time_interval:86400000000001) - (invoke count:1000 "
		   "tsc_interval:311040000000000)");
}

static void test_longest_line_fits(void)
{
	struct time_bench_record rec = record_of("", UINT64_MAX, UINT64_MAX, UINT64_MAX);
	char line[TIME_BENCH_LINE_MAX];

	memset(rec.name, 'n', sizeof(rec.name) - 1);
	rec.step = UINT32_MAX;
	rec.has_pmu = true;
	rec.instructions = UINT64_MAX;
	rec.pmu_cycles = 1;
	CHECK(time_bench_format(&rec, line, sizeof(line)) < (int)sizeof(line));
	CHECK(time_bench_format_pmu(&rec, line, sizeof(line)) < (int)sizeof(line));
	rec.loops = UINT64_MAX;
	rec.invoke_count = UINT64_MAX - 1;
	CHECK(time_bench_format_warning(&rec, line, sizeof(line)) < (int)sizeof(line));
}

static void test_pmu_line(void)
{
	struct time_bench_record rec = record_of("lock", 1000, 1, 1);
	char line[TIME_BENCH_LINE_MAX] = "?";

	CHECK(time_bench_format_pmu(&rec, line, sizeof(line)) == 0);
	CHECK_STR(line, "");
	rec.has_pmu = true;
	rec.instructions = UINT64_C(9000000000);
	rec.pmu_cycles = UINT64_C(4000000001);
	time_bench_format_pmu(&rec, line, sizeof(line));
	CHECK_STR(line, "time_bench: Type:lock PMU inst/clock9000000000/4000000001 = 2.249 IPC "
			"(inst per cycle)");
	rec.pmu_cycles = 0; /* no division by it */
	CHECK(time_bench_format_pmu(&rec, line, sizeof(line)) == 0);
}

/* ---- what is measured ----------------------------------------------------------------------- */

static void test_figures(void)
{
	struct script s = {.ns = {1000, 6001}, .ticks = {10, 30}};
	struct body b = {.all = true};
	struct time_bench_record rec;

	CHECK(run_script(&s, &b, 1000, 0, &rec) == 0);
	CHECK_U64(b.calls, 1);
	CHECK_U64(rec.loops, 1000);
	CHECK_U64(rec.invoke_count, 1000);
	CHECK_U64(rec.time_interval_ns, 5001);
	CHECK_U64(rec.tsc_interval, 20);
	CHECK(!rec.has_pmu);
	CHECK_STR(rec.name, "script");
	CHECK_STR(rec.error, "");
}

static void test_64_bits(void)
{
	/* Ten times the most loops, over intervals beyond 32 bits, from starts beyond 63. */
	struct script s = {
		.ns = {UINT64_C(1) << 62, (UINT64_C(1) << 62) + UINT64_C(53687091200)},
		.ticks = {UINT64_C(1) << 63, (UINT64_C(1) << 63) + UINT64_C(171798691840)},
	};
	struct body b = {.all = true};
	struct time_bench_record rec;

	CHECK(run_script(&s, &b, UINT32_MAX, 10, &rec) == 0);
	CHECK_U64(b.asked, UINT64_C(42949672950));
	CHECK_U64(rec.invoke_count, UINT64_C(42949672950));
	CHECK_U64(rec.time_interval_ns, UINT64_C(53687091200));
	CHECK_U64(rec.tsc_interval, UINT64_C(171798691840));
}

static void test_fewer_rounds(void)
{
	struct script s = {.ns = {0, 5000}, .ticks = {0, 5000}};
	struct body b = {.done = 999};
	struct time_bench_record rec;
	char text[TIME_BENCH_LINE_MAX];

	CHECK(run_script(&s, &b, 1000, 1, &rec) == 0);
	CHECK(time_bench_format_warning(&rec, text, sizeof(text)) > 0);
	CHECK_STR(text, "script: only 999 of 1000 loops were done; the figure is of those");
	rec.invoke_count = 1000;
	CHECK(time_bench_format_warning(&rec, text, sizeof(text)) == 0);
	CHECK_STR(text, "");
}

static void test_no_counter(void)
{
	struct script s = {.ns = {0, 5000}};
	struct time_bench_clock clock = {NULL, script_wall, &s};
	struct body b = {.all = true};
	struct time_bench_request request = {
		.name = "x", .loops = 1000, .fn = run_body, .data = &b, .clock = &clock};
	struct time_bench_record rec;
	uint64_t khz = 1;

	CHECK(time_bench_run(&request, &rec) == 0);
	CHECK_U64(rec.tsc_interval, 0);
	CHECK_U64(rec.time_interval_ns, 5000);
	CHECK(time_bench_counter_khz(&clock, 1000, &khz) == 0);
	CHECK_U64(khz, 0);
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void check_refused(struct script s, struct body b, uint64_t loops, int err, const char *text)
{
	struct time_bench_record rec;
	int is = run_script(&s, &b, loops, 1, &rec);

	if (is != err)
		fprintf(stderr, "expected %d (%s), got %d\n", err, text, is);
	CHECK(is == err);
	CHECK_STR(rec.error, text);
}

static void test_refusals(void)
{
	const struct script good = {.ns = {0, 5000}, .ticks = {0, 5000}};
	const struct body all = {.all = true};

	check_refused(good, all, 999, -EINVAL,
		      "script: 999 loops are too few to time, need 1000 or more");
	check_refused(good, all, 0, -EINVAL,
		      "script: 0 loops are too few to time, need 1000 or more");
	check_refused(good, all, UINT64_C(1) << 32, -ERANGE,
		      "script: 4294967296 loops are too many, at most 4294967295");
	check_refused(good, all, UINT64_MAX, -ERANGE,
		      "script: 18446744073709551615 loops are too many, at most 4294967295");
	check_refused((struct script){.ns = {7, 7}, .ticks = {0, 9}}, all, 1000, -ETIME,
		      "script: no wall-clock time passed in 1000 loops: no figure");
	check_refused((struct script){.ns = {0, 9}, .ticks = {7, 7}}, all, 1000, -ETIME,
		      "script: the counter stood still in 1000 loops: no figure");
	check_refused((struct script){.ns = {9, 8}, .ticks = {0, 9}}, all, 1000, -ETIME,
		      "script: time went backwards; pin it to one CPU");
	check_refused((struct script){.ns = {0, 9}, .ticks = {9, 8}}, all, 1000, -ETIME,
		      "script: time went backwards; pin it to one CPU");
	check_refused((struct script){.ns = {0, 9}, .ticks = {0, 9}, .err = {-EINVAL, 0}}, all,
		      1000, -EINVAL, "script: the clock failed: Invalid argument");
	check_refused((struct script){.ns = {0, 9}, .ticks = {0, 9}, .err = {0, -EPERM}}, all, 1000,
		      -EPERM, "script: the clock failed: Operation not permitted");
	check_refused(good, (struct body){.done = 0}, 1000, -ENODATA,
		      "script: no round of 1000 was done");
	check_refused(good, (struct body){.no_start = true, .all = true}, 1000, -ENODATA,
		      "script: the test timed nothing");
	check_refused(good, (struct body){.no_stop = true}, 1000, -ENODATA,
		      "script: the test timed nothing");
	check_refused(good, (struct body){.all = true, .err = -ENOMEM}, 1000, -ENOMEM,
		      "script: failed: Cannot allocate memory");
}

static void test_names(void)
{
	struct body b = {.all = true};
	char name[TIME_BENCH_NAME_MAX + 1];
	struct time_bench_request request = {.loops = 1000, .fn = run_body, .data = &b};
	struct time_bench_record rec;

	CHECK(time_bench_run(&request, &rec) == -EINVAL);
	request.name = "";
	CHECK(time_bench_run(&request, &rec) == -EINVAL);
	memset(name, 'n', sizeof(name));
	name[TIME_BENCH_NAME_MAX] = '\0';
	request.name = name;
	CHECK(time_bench_run(&request, &rec) == -EINVAL);
	CHECK_U64(b.calls, 0);
	name[TIME_BENCH_NAME_MAX - 1] = '\0';
	time_bench_run(&request, &rec);
	CHECK_U64(b.calls, 1);
	CHECK_STR(rec.name, name);
}

/* ---- the counter's speed -------------------------------------------------------------------- */

static uint64_t fake_now;

static uint64_t steady_counter(void *ctx)
{
	(void)ctx;
	return fake_now * 13 / 5; /* 2.6 GHz */
}

static int steady_wall(void *ctx, uint64_t *ns)
{
	(void)ctx;
	/* In the fifth look the CPU is away for 17 ms, between counter and clock. */
	fake_now += fake_now == 400 ? 17000000 : 100;
	*ns = fake_now;
	return 0;
}

static void test_counter_speed(void)
{
	struct time_bench_clock clock = {steady_counter, steady_wall, NULL};
	struct script broken = {.err = {-EINVAL, -EINVAL}};
	struct time_bench_clock bad = {script_counter, script_wall, &broken};
	uint64_t khz = 0;

	fake_now = 0;
	CHECK(time_bench_counter_khz(&clock, 1000000, &khz) == 0);
	CHECK(khz > 2590000 && khz < 2610000);
	CHECK(time_bench_counter_khz(&bad, 1000000, &khz) == -EINVAL);
	CHECK(time_bench_counter_khz(NULL, 1000, &khz) == 0);
	CHECK((khz == 0) == !strcmp(time_bench_counter_name(), "none"));
}

/* ---- the tests themselves, on the machine's clock -------------------------------------------- */

static void test_simple(void)
{
	char line[TIME_BENCH_LINE_MAX];

	for (int no_stats = 0; no_stats < 2; no_stats++) {
		for (size_t i = 0; i < bench_simple_nr_tests; i++) {
			const struct bench_simple_test *test = &bench_simple_tests[i];
			/* No multiple of 64, so that the last batch is not whole. */
			struct bench_simple_params params = {
				.loops = 10001, .no_stats = no_stats, .pmu = true};
			struct time_bench_record rec;
			int err = bench_simple_run(test->name, &params, &rec);

			if (err)
				fprintf(stderr, "%s: %d %s\n", test->name, err, rec.error);
			CHECK(err == 0);
			CHECK_U64(rec.invoke_count, UINT64_C(10001) * test->times);
			CHECK_STR(rec.name, test->name);
			CHECK(rec.has_pmu == (rec.instructions > 0));
			CHECK(!rec.has_pmu || rec.instructions >= rec.invoke_count);
			CHECK((test->notice == NULL) == (test->context == BENCH_NO_POOL));
			CHECK(time_bench_format(&rec, line, sizeof(line)) > 0);
		}
	}
}

static void test_simple_refusals(void)
{
	struct bench_simple_params params = {.loops = 1000};
	struct time_bench_record rec;

	CHECK(bench_simple_run("no-such-test", &params, &rec) == -ENOENT);
	CHECK_STR(rec.error, "no test is called no-such-test");
	params.loops = 999;
	CHECK(bench_simple_run("tasklet_page_pool01_fast_path", &params, &rec) == -EINVAL);
	params.loops = UINT64_C(1) << 32;
	CHECK(bench_simple_run("lock", &params, &rec) == -ERANGE);
}

/* Laps of 30, 5 and 70 ns; the clock reads 1000 more at each start. */
struct lap_script {
	unsigned reads, counters;
	int err_at, back_at;
};

static int lap_wall(void *ctx, uint64_t *ns)
{
	static const uint64_t at[] = {1000, 1030, 2000, 2005, 3000, 3070};
	struct lap_script *s = ctx;
	unsigned i = s->reads++;

	*ns = (int)i == s->back_at ? 1 : at[i];
	return (int)i == s->err_at ? -EIO : 0;
}

static uint64_t lap_counter(void *ctx)
{
	static const uint64_t at[] = {10, 100, 500, 515, 600, 810};
	struct lap_script *s = ctx;

	return at[s->counters++];
}

static int run_laps(struct time_bench_record *rec, void *data)
{
	struct time_bench_lap *laps = data;

	for (unsigned i = 0; i < 3; i++) {
		time_bench_lap_start(rec);
		time_bench_lap_stop(rec, 400, &laps[i]);
	}
	return 0;
}

static void test_laps(void)
{
	struct lap_script script = {.err_at = -1, .back_at = -1};
	const struct time_bench_clock clock = {lap_counter, lap_wall, &script};
	struct time_bench_lap laps[3];
	struct time_bench_request request = {
		.name = "laps", .loops = 1200, .fn = run_laps, .data = laps, .clock = &clock};
	struct time_bench_record rec;

	CHECK(!time_bench_run(&request, &rec));
	CHECK_U64(laps[0].ns, 30);
	CHECK_U64(laps[1].ns, 5);
	CHECK_U64(laps[2].ns, 70);
	CHECK_U64(rec.time_interval_ns, 105);
	CHECK_U64(rec.invoke_count, 1200);
	CHECK_U64(laps[0].ticks, 90);
	CHECK_U64(rec.tsc_interval, 90 + 15 + 210);
	/* An error in any of them is one, also when later ones are right. */
	script = (struct lap_script){.err_at = 1, .back_at = -1};
	CHECK(time_bench_run(&request, &rec) == -EIO);
	script = (struct lap_script){.err_at = 2, .back_at = -1};
	CHECK(time_bench_run(&request, &rec) == -EIO);
	CHECK_U64(laps[1].ns, 0);
	script = (struct lap_script){.err_at = -1, .back_at = 3};
	CHECK(time_bench_run(&request, &rec) == -ETIME);
	CHECK_STR(rec.error, "laps: time went backwards; pin it to one CPU");
}

int main(void)
{
	test_laps();
	test_lines();
	test_longest_line_fits();
	test_pmu_line();
	test_figures();
	test_64_bits();
	test_fewer_rounds();
	test_no_counter();
	test_refusals();
	test_names();
	test_counter_speed();
	test_simple();
	test_simple_refusals();
	if (failures)
		fprintf(stderr, "%d checks failed\n", failures);
	return failures ? 1 : 0;
}
