/* SPDX-License-Identifier: BSD-2-Clause */
#include "peer.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Turns before the timed part: after a switch from another process nothing of ours is in the
 * nearest caches, and no branch is known. */
#define WARM_UP_PART 16
#define WARM_UP_MIN 1024

static FILE *out;
static int other_cpu = -1;

/* The counter that the kernel's time_bench reads; 0 where there is none. */
static uint64_t read_counter(void)
{
#if defined(__x86_64__)
	uint32_t low, high;

	/* The fences keep the loop's instructions on their side of the reading. */
	__asm__ __volatile__("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
	uint64_t value;

	__asm__ __volatile__("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(value) : : "memory");
	return value;
#else
	return 0;
#endif
}

static uint64_t read_clock(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* What peers say contains no quotes, backslashes or control characters; a request may. */
static void put_string(const char *text)
{
	putc('"', out);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c < ' ' || c > '~' || c == '"' || c == '\\')
			fprintf(out, "\\u%04x", c);
		else
			putc(c, out);
	}
	putc('"', out);
}

static void __attribute__((format(printf, 1, 2))) reply_error(const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fputs("{\"error\": ", out);
	put_string(text);
	fputs("}\n", out);
}

static void serve_list(const struct peer *peer)
{
	fputs("{\"tests\": [", out);
	for (size_t i = 0; i < peer->count; i++) {
		if (i)
			fputs(", ", out);
		put_string(peer->tests[i].name);
	}
	fputs("]}\n", out);
}

static void serve_run(const struct peer *peer, const char *name, uint64_t loops)
{
	uint64_t turns, warm_up, done, ns, tsc, cpu;
	struct peer_test *test = NULL;
	const char *wrong = NULL;
	int error;

	for (size_t i = 0; i < peer->count; i++) {
		if (!strcmp(peer->tests[i].name, name))
			test = &peer->tests[i];
	}
	if (!test) {
		reply_error("no test %s", name);
		return;
	}
	if (!test->opened) {
		error = test->open(test);
		if (error) {
			reply_error("%s: %s", name, strerror(-error));
			return;
		}
		test->opened = 1;
	}

	turns = (loops + test->batch - 1) / test->batch;
	warm_up = turns / WARM_UP_PART;
	if (warm_up < WARM_UP_MIN)
		warm_up = WARM_UP_MIN;
	if (test->run(test->ctx, warm_up) != warm_up) {
		reply_error("%s: nothing left to get", name);
		return;
	}

	if (test->before)
		test->before(test);
	cpu = read_clock(CLOCK_THREAD_CPUTIME_ID);
	ns = read_clock(CLOCK_MONOTONIC);
	tsc = read_counter();
	done = test->run(test->ctx, turns);
	tsc = read_counter() - tsc;
	ns = read_clock(CLOCK_MONOTONIC) - ns;
	cpu = read_clock(CLOCK_THREAD_CPUTIME_ID) - cpu;
	if (done != turns)
		wrong = "nothing left to get";
	else if (test->after)
		wrong = test->after(test, turns);
	if (wrong) {
		reply_error("%s: %s", name, wrong);
		return;
	}

	fputs("{\"test\": ", out);
	put_string(name);
	fprintf(out, ", \"loops\": %" PRIu64 ", \"ns\": %" PRIu64, turns * test->batch, ns);
	fprintf(out, ", \"tsc\": %" PRIu64 ", \"cpu_ns\": %" PRIu64 "}\n", tsc, cpu);
}

static void *sleep_on(void *unused)
{
	(void)unused;
	for (;;)
		pause();
	return NULL;
}

int peer_start(int argc, char **argv)
{
	bool threads = argc == 4 && !strcmp(argv[3], "--threads");
	pthread_t thread;
	char *end = NULL;
	cpu_set_t set;
	long cpu = -1;
	int fd, error;

	if ((argc == 3 || threads) && !strcmp(argv[1], "--cpu"))
		cpu = strtol(argv[2], &end, 10);
	if (!end || *end || end == argv[2] || cpu < 0 || cpu >= CPU_SETSIZE) {
		fprintf(stderr, "usage: %s --cpu N [--threads]\n", argv[0]);
		exit(2);
	}
	if (!sched_getaffinity(0, sizeof(set), &set)) {
		for (int i = 0; i < CPU_SETSIZE && other_cpu < 0; i++) {
			if (i != cpu && CPU_ISSET((size_t)i, &set))
				other_cpu = i;
		}
	}
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		fprintf(stderr, "%s: CPU %ld: %s\n", argv[0], cpu, strerror(errno));
		exit(1);
	}

	error = threads ? pthread_create(&thread, NULL, sleep_on, NULL) : 0;
	if (error) {
		fprintf(stderr, "%s: a second thread: %s\n", argv[0], strerror(error));
		exit(1);
	}

	fd = dup(STDOUT_FILENO);
	out = fd < 0 ? NULL : fdopen(fd, "w");
	if (!out || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
		fprintf(stderr, "%s: standard output: %s\n", argv[0], strerror(errno));
		exit(1);
	}
	return (int)cpu;
}

int peer_other_cpu(void)
{
	return other_cpu;
}

int peer_serve(const struct peer *peer)
{
	char line[256], name[PEER_NAME_MAX], rest[2];
	uint64_t loops;

	fputs("{\"peer\": ", out);
	put_string(peer->name);
	fputs(", \"version\": ", out);
	put_string(peer->version);
	fputs(", \"detail\": ", out);
	put_string(peer->detail);
	fputs("}\n", out);
	fflush(out);

	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (!strcmp(line, "quit"))
			break;
		if (!strcmp(line, "list"))
			serve_list(peer);
		else if (sscanf(line, "run %47s %" SCNu64 " %1s", name, &loops, rest) == 2 && loops)
			serve_run(peer, name, loops);
		else
			reply_error("not understood: %.100s", line);
		fflush(out);
	}
	return ferror(out) ? 1 : 0;
}
