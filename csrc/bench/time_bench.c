// SPDX-License-Identifier: BSD-2-Clause
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "time_bench.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NSEC_PER_SEC UINT64_C(1000000000)

/* ---- clocks ------------------------------------------------------------------------------- */

/*
 * The fences keep the loop's instructions on their side: the one before waits until everything
 * older has finished, the one after lets nothing younger begin.
 */
#if defined(__x86_64__)
static uint64_t machine_counter(void *ctx)
{
	uint32_t low, high;

	(void)ctx;
	__asm__ __volatile__("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}
#define MACHINE_COUNTER machine_counter
#define MACHINE_COUNTER_NAME "rdtsc"
#elif defined(__aarch64__)
static uint64_t machine_counter(void *ctx)
{
	uint64_t ticks;

	(void)ctx;
	__asm__ __volatile__("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks) : : "memory");
	return ticks;
}
#define MACHINE_COUNTER machine_counter
#define MACHINE_COUNTER_NAME "cntvct"
#else
#define MACHINE_COUNTER NULL
#define MACHINE_COUNTER_NAME "none"
#endif

static int machine_wall(void *ctx, uint64_t *ns)
{
	struct timespec ts;

	(void)ctx;
	if (clock_gettime(CLOCK_MONOTONIC_RAW, &ts))
		return -errno;
	*ns = (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
	return 0;
}

const struct time_bench_clock time_bench_machine_clock = {
	.counter = MACHINE_COUNTER,
	.wall = machine_wall,
};

const char *time_bench_counter_name(void)
{
	return MACHINE_COUNTER_NAME;
}

/*
 * Counter and wall clock of one moment: the tightest of a few pairs. In between the two the
 * scheduler, or a hypervisor, may take the CPU away for milliseconds; hardly five times in a row.
 */
static int read_both(const struct time_bench_clock *clock, uint64_t *ticks, uint64_t *ns)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 5; i++) {
		uint64_t before = clock->counter(clock->ctx);
		uint64_t now, after;
		int err = clock->wall(clock->ctx, &now);

		if (err)
			return err;
		after = clock->counter(clock->ctx);
		if (after - before < best) {
			best = after - before;
			*ticks = before + best / 2;
			*ns = now;
		}
	}
	return 0;
}

int time_bench_counter_khz(const struct time_bench_clock *clock, uint64_t ns, uint64_t *ret)
{
	uint64_t start_ns = 0, now_ns = 0, start = 0, now = 0;
	int err;

	if (!clock)
		clock = &time_bench_machine_clock;
	if (!clock->counter) {
		*ret = 0;
		return 0;
	}
	err = read_both(clock, &start, &start_ns);
	if (err)
		return err;
	do {
		err = read_both(clock, &now, &now_ns);
		if (err)
			return err;
		if (now < start || now_ns < start_ns)
			return -ETIME;
	} while (now_ns - start_ns < ns || now_ns == start_ns);
	/* ticks / ns * 10^6; the 128 bits make any interval safe. */
	*ret = (uint64_t)((unsigned __int128)(now - start) * 1000000 / (now_ns - start_ns));
	return 0;
}

/* ---- instructions ------------------------------------------------------------------------- */

static int pmu_event(uint64_t config, int leader)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.size = sizeof(attr),
		.config = config,
		.disabled = leader < 0,
		/* The loop's own: no interrupt handlers, and allowed without privileges. */
		.exclude_kernel = 1,
		.exclude_hv = 1,
		.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED |
			       PERF_FORMAT_TOTAL_TIME_RUNNING,
	};
	long fd = syscall(SYS_perf_event_open, &attr, 0, -1, leader, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : (int)fd;
}

static void pmu_close(int fd[2])
{
	for (int i = 0; i < 2; i++) {
		if (fd[i] >= 0)
			close(fd[i]);
		fd[i] = -1;
	}
}

static int pmu_open(int fd[2])
{
	int err;

	fd[1] = -1;
	fd[0] = pmu_event(PERF_COUNT_HW_INSTRUCTIONS, -1);
	if (fd[0] < 0) {
		err = fd[0];
		fd[0] = -1;
		return err;
	}
	fd[1] = pmu_event(PERF_COUNT_HW_CPU_CYCLES, fd[0]);
	if (fd[1] < 0) {
		err = fd[1];
		fd[1] = -1;
		pmu_close(fd);
		return err;
	}
	return 0;
}

int time_bench_pmu_probe(void)
{
	int fd[2];
	int err = pmu_open(fd);

	if (!err)
		pmu_close(fd);
	return err;
}

static void pmu_read(struct time_bench_record *rec)
{
	struct {
		uint64_t nr;
		uint64_t time_enabled;
		uint64_t time_running;
		uint64_t values[2];
	} group;

	if (read(rec->pmu_fd[0], &group, sizeof(group)) != (ssize_t)sizeof(group))
		return;
	/*
	 * Somebody else's events had the hardware part of the time: the kernel's advice is to
	 * scale, but a scaled count is an estimate, and this column is there to be exact.
	 */
	if (group.nr != 2 || group.time_running != group.time_enabled || !group.values[0])
		return;
	rec->instructions = group.values[0];
	rec->pmu_cycles = group.values[1];
	rec->has_pmu = true;
}

/* ---- one test ----------------------------------------------------------------------------- */

int time_bench_fail(struct time_bench_record *rec, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(rec->error, sizeof(rec->error), fmt, args);
	va_end(args);
	return err;
}

/*
 * From the outside in: PMU, wall clock, counter. What the outer ones cost is some hundred
 * instructions and some ten nanoseconds once, which 1000 loops and more make small.
 */
void time_bench_start(struct time_bench_record *rec)
{
	rec->started = true;
	if (rec->pmu_fd[0] >= 0 &&
	    ioctl(rec->pmu_fd[0], PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP))
		pmu_close(rec->pmu_fd);
	rec->clock_error = rec->clock.wall(rec->clock.ctx, &rec->start_ns);
	if (rec->clock.counter)
		rec->start_tsc = rec->clock.counter(rec->clock.ctx);
}

void time_bench_stop(struct time_bench_record *rec, uint64_t done)
{
	uint64_t tsc = 0, ns = 0;
	int err;

	if (rec->clock.counter)
		tsc = rec->clock.counter(rec->clock.ctx);
	err = rec->clock.wall(rec->clock.ctx, &ns);
	if (rec->pmu_fd[0] >= 0 &&
	    !ioctl(rec->pmu_fd[0], PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP))
		pmu_read(rec);

	if (err)
		rec->clock_error = err;
	rec->stopped = true;
	rec->invoke_count = done;
	if (rec->clock_error)
		return;
	rec->backwards = ns < rec->start_ns || tsc < rec->start_tsc;
	if (rec->backwards)
		return;
	rec->time_interval_ns = ns - rec->start_ns;
	rec->tsc_interval = tsc - rec->start_tsc;
}

void time_bench_lap_start(struct time_bench_record *rec)
{
	int err;

	rec->started = true;
	err = rec->clock.wall(rec->clock.ctx, &rec->start_ns);
	if (err)
		rec->clock_error = err;
	if (rec->clock.counter)
		rec->start_tsc = rec->clock.counter(rec->clock.ctx);
}

void time_bench_lap_stop(struct time_bench_record *rec, uint64_t done, struct time_bench_lap *ret)
{
	uint64_t tsc = 0, ns = 0;
	int err;

	if (rec->clock.counter)
		tsc = rec->clock.counter(rec->clock.ctx);
	err = rec->clock.wall(rec->clock.ctx, &ns);
	if (err)
		rec->clock_error = err;
	rec->stopped = true;
	rec->invoke_count += done;
	*ret = (struct time_bench_lap){0, 0};
	if (rec->clock_error)
		return;
	if (ns < rec->start_ns || tsc < rec->start_tsc) {
		rec->backwards = true;
		return;
	}
	ret->ns = ns - rec->start_ns;
	ret->ticks = tsc - rec->start_tsc;
	rec->time_interval_ns += ret->ns;
	rec->tsc_interval += ret->ticks;
}

static int judge(struct time_bench_record *rec)
{
	if (rec->clock_error)
		return time_bench_fail(rec, rec->clock_error, "%s: the clock failed: %s", rec->name,
				       strerror(-rec->clock_error));
	if (!rec->started || !rec->stopped)
		return time_bench_fail(rec, -ENODATA, "%s: the test timed nothing", rec->name);
	if (rec->backwards)
		return time_bench_fail(rec, -ETIME, "%s: time went backwards; pin it to one CPU",
				       rec->name);
	if (!rec->invoke_count)
		return time_bench_fail(rec, -ENODATA, "%s: no round of %" PRIu64 " was done",
				       rec->name, rec->loops);
	if (!rec->time_interval_ns)
		return time_bench_fail(rec, -ETIME,
				       "%s: no wall-clock time passed in %" PRIu64
				       " loops: no figure",
				       rec->name, rec->invoke_count);
	if (rec->clock.counter && !rec->tsc_interval)
		return time_bench_fail(
			rec, -ETIME, "%s: the counter stood still in %" PRIu64 " loops: no figure",
			rec->name, rec->invoke_count);
	return 0;
}

int time_bench_run(const struct time_bench_request *request, struct time_bench_record *rec)
{
	const struct time_bench_clock *clock =
		request->clock ? request->clock : &time_bench_machine_clock;
	int err;

	memset(rec, 0, sizeof(*rec));
	rec->pmu_fd[0] = rec->pmu_fd[1] = -1;
	rec->clock = *clock;
	rec->step = request->step;
	if (!request->name || !*request->name || strlen(request->name) >= sizeof(rec->name))
		return time_bench_fail(rec, -EINVAL, "a test needs a name of 1 to %zu bytes",
				       sizeof(rec->name) - 1);
	strcpy(rec->name, request->name);
	if (request->loops < TIME_BENCH_MIN_LOOPS)
		return time_bench_fail(rec, -EINVAL,
				       "%s: %" PRIu64 " loops are too few to time, need %u or more",
				       rec->name, request->loops, TIME_BENCH_MIN_LOOPS);
	if (request->loops > TIME_BENCH_MAX_LOOPS)
		return time_bench_fail(rec, -ERANGE,
				       "%s: %" PRIu64 " loops are too many, at most %" PRIu32,
				       rec->name, request->loops, TIME_BENCH_MAX_LOOPS);
	rec->loops = request->loops * (request->times ? request->times : 1);

	/* Without a PMU the record simply has no instructions. */
	if (request->pmu)
		(void)pmu_open(rec->pmu_fd);
	err = request->fn(rec, request->data);
	pmu_close(rec->pmu_fd);
	if (!err)
		return judge(rec);
	if (!rec->error[0])
		time_bench_fail(rec, err, "%s: failed: %s", rec->name, strerror(-err));
	return err;
}

/* ---- text --------------------------------------------------------------------------------- */

/*
 * The decimals: (interval mod count) * 1000 / count. A count is below 10 * 2^32, so the product
 * is below 2^46, and unlike a division by (count / 1000) it is right for every count.
 */
int time_bench_format(const struct time_bench_record *rec, char *buf, size_t size)
{
	uint64_t count = rec->invoke_count, ns = rec->time_interval_ns;

	return snprintf(buf, size,
			"time_bench: Type:%s Per elem: %" PRIu64 " cycles(tsc) %" PRIu64
			".%03" PRIu64 " ns (step:%" PRIu32 ") - (measurement period time:%" PRIu64
			".%09" PRIu64 " sec time_interval:%" PRIu64 ") - (invoke count:%" PRIu64
			" tsc_interval:%" PRIu64 ")",
			rec->name, rec->tsc_interval / count, ns / count, ns % count * 1000 / count,
			rec->step, ns / NSEC_PER_SEC, ns % NSEC_PER_SEC, ns, count,
			rec->tsc_interval);
}

int time_bench_format_pmu(const struct time_bench_record *rec, char *buf, size_t size)
{
	uint64_t cycles = rec->pmu_cycles, instructions = rec->instructions;
	uint64_t thousandths;

	if (!rec->has_pmu || !cycles) {
		if (size)
			buf[0] = '\0';
		return 0;
	}
	thousandths = (uint64_t)((unsigned __int128)(instructions % cycles) * 1000 / cycles);
	return snprintf(buf, size,
			"time_bench: Type:%s PMU inst/clock%" PRIu64 "/%" PRIu64 " = %" PRIu64
			".%03" PRIu64 " IPC (inst per cycle)",
			rec->name, instructions, cycles, instructions / cycles, thousandths);
}

int time_bench_format_warning(const struct time_bench_record *rec, char *buf, size_t size)
{
	if (rec->invoke_count >= rec->loops) {
		if (size)
			buf[0] = '\0';
		return 0;
	}
	return snprintf(buf, size,
			"%s: only %" PRIu64 " of %" PRIu64
			" loops were done; the figure is of those",
			rec->name, rec->invoke_count, rec->loops);
}
