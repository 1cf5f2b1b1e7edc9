/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * time_bench: times a tight loop and divides.
 *
 * A test is a callback that contains its loop. What it needs it prepares first, then
 *
 *	time_bench_start(rec);
 *	for (i = 0; i < rec->loops; i++)
 *		...
 *	time_bench_stop(rec, i);
 *
 * and what comes after time_bench_stop() is not measured either. time_bench_run() calls it, checks
 * what came out, and refuses a figure that means nothing. A record holds sums; what is printed
 * per element is computed from them, always in 64 bits.
 */
#ifndef PP_BENCH_TIME_BENCH_H
#define PP_BENCH_TIME_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Fewer loops than this measure the clock; more do not fit the kernel's 32-bit counts. */
#define TIME_BENCH_MIN_LOOPS 1000u
#define TIME_BENCH_MAX_LOOPS UINT32_MAX

/* Longest line that time_bench_format*() makes, with a name of TIME_BENCH_NAME_MAX bytes. */
#define TIME_BENCH_LINE_MAX 512
#define TIME_BENCH_NAME_MAX 64

/* Where time comes from: the machine, or in a test of time_bench itself a script. */
struct time_bench_clock {
	/* Ticks of a counter that is cheap to read. NULL: there is none, cycles are 0. */
	uint64_t (*counter)(void *ctx);
	/* Wall-clock nanoseconds into *ns; 0 or a negative errno. */
	int (*wall)(void *ctx, uint64_t *ns);
	void *ctx;
};

/*
 * The machine's. Wall clock: CLOCK_MONOTONIC_RAW, because a clock that NTP slews while the loop
 * runs makes the nanoseconds of two runs differ by up to 0.05 %, and the counter's speed with them.
 */
extern const struct time_bench_clock time_bench_machine_clock;

/* "rdtsc", "cntvct" or "none": what time_bench_machine_clock counts. */
const char *time_bench_counter_name(void);

/*
 * The counter's speed in kHz, measured over at least ns nanoseconds of the wall clock; 0: no
 * counter. A negative errno when the clock fails.
 */
int time_bench_counter_khz(const struct time_bench_clock *clock, uint64_t ns, uint64_t *ret);

struct time_bench_record {
	/* set by time_bench_run() before the callback */
	char name[TIME_BENCH_NAME_MAX];
	uint32_t step;
	uint64_t loops; /* asked for */

	/* set by time_bench_stop() */
	uint64_t invoke_count; /* done */
	uint64_t time_interval_ns;
	uint64_t tsc_interval; /* 0 if there is no counter */
	bool has_pmu;          /* the two below were counted, all of the time */
	uint64_t instructions; /* in user space, of this thread */
	uint64_t pmu_cycles;   /* the core's own, unlike the counter's */

	/* the callback's or time_bench_run()'s reason when it failed: one line */
	char error[256];

	/* private, between start and stop */
	struct time_bench_clock clock;
	uint64_t start_ns;
	uint64_t start_tsc;
	int clock_error;
	bool started;
	bool stopped;
	bool backwards;
	int pmu_fd[2]; /* instructions (the group's leader), cycles; -1: not open */
};

/* 0 or a negative errno with rec->error set. Must call start and stop once each. */
typedef int (*time_bench_fn)(struct time_bench_record *rec, void *data);

struct time_bench_request {
	const char *name;
	uint32_t step;
	uint64_t loops; /* TIME_BENCH_MIN_LOOPS to TIME_BENCH_MAX_LOOPS */
	/* The callback gets loops * times; 0 is 1. The product may exceed 32 bits. */
	uint32_t times;
	bool pmu; /* count instructions where that can be had */
	time_bench_fn fn;
	void *data;
	const struct time_bench_clock *clock; /* NULL: the machine's */
};

/*
 * Runs one test. A negative errno means that there is no figure, and rec->error says why:
 *   -EINVAL   fewer than 1000 loops, or no name
 *   -ERANGE   more than 2^32 - 1 loops
 *   -ETIME    no time passed, or it went backwards
 *   -ENODATA  the callback did nothing, or never timed anything
 * or what the callback or the clock returned.
 */
int time_bench_run(const struct time_bench_request *request, struct time_bench_record *rec);

void time_bench_start(struct time_bench_record *rec);
void time_bench_stop(struct time_bench_record *rec, uint64_t done);

/* One part of a test that is timed in parts. */
struct time_bench_lap {
	uint64_t ns, ticks;
};
/*
 * Instead of start and stop, as often as there are parts: the record has their sum. No instructions
 * are counted: to switch that on and off would cost more than a short part. *ret: this part, zero
 * when the clock failed.
 */
void time_bench_lap_start(struct time_bench_record *rec);
void time_bench_lap_stop(struct time_bench_record *rec, uint64_t done, struct time_bench_lap *ret);

/* Sets rec->error; returns err. */
int time_bench_fail(struct time_bench_record *rec, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Can instructions be counted here? 0, or the negative errno of perf_event_open(2). */
int time_bench_pmu_probe(void);

/* ---- text: what the kernel prints, without newline; all return what snprintf() returns ------ */

/* "time_bench: Type:..."; needs invoke_count > 0. */
int time_bench_format(const struct time_bench_record *rec, char *buf, size_t size);
/* The line with instructions per clock; 0 and an empty string without has_pmu. */
int time_bench_format_pmu(const struct time_bench_record *rec, char *buf, size_t size);
/* What is odd though it is a figure: fewer rounds than asked. 0 and an empty string: nothing. */
int time_bench_format_warning(const struct time_bench_record *rec, char *buf, size_t size);

#endif
