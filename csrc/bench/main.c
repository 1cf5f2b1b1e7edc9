// SPDX-License-Identifier: BSD-2-Clause
/*
 * bench_page_pool_simple as a program of its own, without Python: for a profiler, an emulator,
 * valgrind. Prints what the kernel's module prints. To pin it, run it under taskset(1).
 *
 * Exit: 0, 1 when a test failed, 2 on a wrong argument.
 */
#include <errno.h>
#include <fnmatch.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_simple.h"
#include "pagepool.h"

#define PROGRAM "bench_page_pool_simple"

enum {
	OPT_DESIGN = 256,
	OPT_NO_STATS,
	OPT_DMA,
	OPT_NO_TRACKING,
	OPT_CHECKED,
	OPT_LIST,
	OPT_VERSION
};

static const struct option options[] = {
	{"loops", required_argument, NULL, 'l'},
	{"runs", required_argument, NULL, 'r'},
	{"tests", required_argument, NULL, 't'},
	{"design", required_argument, NULL, OPT_DESIGN},
	{"no-stats", no_argument, NULL, OPT_NO_STATS},
	{"dma", required_argument, NULL, OPT_DMA},
	{"no-tracking", no_argument, NULL, OPT_NO_TRACKING},
	{"checked", no_argument, NULL, OPT_CHECKED},
	{"list", no_argument, NULL, OPT_LIST},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

static const char usage[] =
	"Usage: " PROGRAM " [OPTION]...\n"
	"Time the page_pool: one allocation and one return on one CPU.\n"
	"\n"
	"  -l, --loops N      rounds of each test, 1000 to 4294967295; 10000000 if not given;\n"
	"                     for_loop and atomic_inc do ten times as many\n"
	"  -r, --runs N       all tests N times, 1 to 1000; 1 if not given\n"
	"  -t, --tests GLOB   only tests whose name matches; may be given again\n"
	"      --design NAME  of the pools: ring (if not given), ours, list or a step of it\n"
	"      --no-stats     pools without statistics; then nothing is verified either\n"
	"      --dma HOW      off (if not given); none: pages are mapped for a device without\n"
	"                     an IOMMU; iommu: for one behind a software IOMMU\n"
	"      --no-tracking  the pools do not know which pages they have mapped\n"
	"      --checked      checked pools; PAGEPOOL_CHECKED=1 in the environment does it, too\n"
	"      --list         list the tests\n"
	"  -h, --help         this text\n"
	"      --version      the version of the library\n";

struct settings {
	struct bench_simple_params params;
	uint64_t runs;
	char **globs; /* pointers into argv */
	size_t nr_globs;
	bool list;
};

static int wrong(const char *fmt, const char *what)
{
	fputs(PROGRAM ": ", stderr);
	fprintf(stderr, fmt, what);
	fputs("; try --help\n", stderr);
	return 2;
}

/* A plain decimal number within low and high. */
static bool parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *ret)
{
	uint64_t value = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		value = value * 10 + (uint64_t)(*text - '0');
		if (value > high)
			return false;
	}
	if (value < low)
		return false;
	*ret = value;
	return true;
}

static bool selected(const struct settings *s, const char *name)
{
	for (size_t i = 0; i < s->nr_globs; i++) {
		if (!fnmatch(s->globs[i], name, 0))
			return true;
	}
	return !s->nr_globs;
}

static bool parse_dma(const char *text, enum bench_simple_dma *ret)
{
	for (unsigned i = 0; i < sizeof(bench_simple_dma_names) / sizeof(char *); i++) {
		if (strcmp(text, bench_simple_dma_names[i]))
			continue;
		*ret = (enum bench_simple_dma)i;
		return true;
	}
	return false;
}

/* Something went to standard output: is it still there? */
static bool printed(void)
{
	if (!fflush(stdout) && !ferror(stdout))
		return true;
	fprintf(stderr, PROGRAM ": cannot write: %s\n", strerror(errno));
	return false;
}

static bool run_one(const struct settings *s, const struct bench_simple_test *test)
{
	struct time_bench_record rec;
	char line[TIME_BENCH_LINE_MAX];
	int err;

	if (test->notice)
		printf(BENCH_SIMPLE_PREFIX "%s\n", test->notice);
	err = bench_simple_run(test->name, &s->params, &rec);
	if (err) {
		fprintf(stderr, PROGRAM ": %s\n", rec.error);
		return false;
	}
	if (time_bench_format_warning(&rec, line, sizeof(line)))
		fprintf(stderr, PROGRAM ": warning: %s\n", line);
	time_bench_format(&rec, line, sizeof(line));
	puts(line);
	if (time_bench_format_pmu(&rec, line, sizeof(line)))
		puts(line);
	return true;
}

static bool run_all(const struct settings *s)
{
	bool handler = false, all = true;

	puts(BENCH_SIMPLE_PREFIX BENCH_SIMPLE_LOADED);
	for (size_t i = 0; i < bench_simple_nr_tests; i++) {
		const struct bench_simple_test *test = &bench_simple_tests[i];

		if (!selected(s, test->name))
			continue;
		if (test->context == BENCH_TASKLET && !handler) {
			puts(BENCH_SIMPLE_PREFIX BENCH_SIMPLE_HANDLER);
			handler = true;
		}
		all = run_one(s, test) && all;
		if (!printed())
			return false;
	}
	return all;
}

static int check_globs(const struct settings *s)
{
	for (size_t i = 0; i < s->nr_globs; i++) {
		size_t j = 0;

		while (j < bench_simple_nr_tests &&
		       fnmatch(s->globs[i], bench_simple_tests[j].name, 0))
			j++;
		if (j == bench_simple_nr_tests)
			return wrong("no test matches '%s' (--list shows them)", s->globs[i]);
	}
	return 0;
}

/* -1: go on; otherwise the exit status. */
static int parse(int argc, char **argv, struct settings *s)
{
	int opt;

	opterr = 0;
	while ((opt = getopt_long(argc, argv, ":l:r:t:h", options, NULL)) != -1) {
		switch (opt) {
		case 'l':
			if (!parse_number(optarg, TIME_BENCH_MIN_LOOPS, TIME_BENCH_MAX_LOOPS,
					  &s->params.loops))
				return wrong("--loops takes 1000 to 4294967295, not '%s'", optarg);
			break;
		case 'r':
			if (!parse_number(optarg, 1, 1000, &s->runs))
				return wrong("--runs takes 1 to 1000, not '%s'", optarg);
			break;
		case 't':
			s->globs[s->nr_globs++] = optarg;
			break;
		case OPT_DESIGN:
			if (pp_design_parse(optarg, &s->params.design))
				return wrong("--design: %s", page_pool_last_error());
			break;
		case OPT_NO_STATS:
			s->params.no_stats = true;
			break;
		case OPT_DMA:
			if (!parse_dma(optarg, &s->params.dma))
				return wrong("--dma takes off, none or iommu, not '%s'", optarg);
			break;
		case OPT_NO_TRACKING:
			s->params.no_tracking = true;
			break;
		case OPT_CHECKED:
			s->params.checked = true;
			break;
		case OPT_LIST:
			s->list = true;
			break;
		case OPT_VERSION:
			printf(PROGRAM " (pagepool) %s\n", page_pool_version());
			return printed() ? 0 : 1;
		case 'h':
			fputs(usage, stdout);
			return printed() ? 0 : 1;
		case ':':
			return wrong("%s needs a value", argv[optind - 1]);
		default:
			return wrong("unknown option '%s'", argv[optind - 1]);
		}
	}
	if (optind < argc)
		return wrong("no arguments are taken: '%s'", argv[optind]);
	if (s->params.no_tracking && s->params.dma == BENCH_DMA_OFF)
		return wrong("%s has no meaning without --dma none or iommu", "--no-tracking");
	return -1;
}

int main(int argc, char **argv)
{
	struct settings s = {.runs = 1};
	const char *checked;
	int status;

	s.params.pmu = true;
	/* No more globs than arguments. */
	s.globs = calloc((size_t)argc + 1, sizeof(*s.globs));
	if (!s.globs) {
		fputs(PROGRAM ": out of memory\n", stderr);
		return 1;
	}
	status = parse(argc, argv, &s);
	if (status < 0 && check_globs(&s))
		status = 2;
	if (status < 0 && s.list) {
		for (size_t i = 0; i < bench_simple_nr_tests; i++) {
			const struct bench_simple_test *test = &bench_simple_tests[i];

			if (selected(&s, test->name))
				printf("%-30s %s\n", test->name, test->what);
		}
		status = printed() ? 0 : 1;
	}
	if (status < 0) {
		checked = bench_simple_checked_text(&s.params);
		if (!checked) {
			fprintf(stderr, PROGRAM ": no pool: %s\n", page_pool_last_error());
			status = 1;
		}
	}
	if (status < 0) {
		printf("# pagepool: %s\n", page_pool_version());
		printf("# counter: %s\n", time_bench_counter_name());
		printf("# design: %s\n", pp_design_name(s.params.design));
		printf("# statistics: %s\n", s.params.no_stats ? "off" : "on");
		printf("# dma: %s\n", bench_simple_dma_text(&s.params));
		printf("# checked mode: %s\n", checked);
		puts("# rcu: not measured, the pool has no read-side sections");
		status = 0;
		for (uint64_t i = 0; i < s.runs; i++) {
			if (!run_all(&s))
				status = 1;
			if (ferror(stdout))
				break;
		}
	}
	free(s.globs);
	return status;
}
