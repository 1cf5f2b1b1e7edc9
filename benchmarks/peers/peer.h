/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer: a process that stays alive and runs timed loops on request, so that a driver can take
 * turns between several of them. Lines on standard input, a line of JSON back for each:
 *
 *   (at the start)   {"peer": "dpdk", "version": "...", "detail": "..."}
 *   list             {"tests": ["NAME", ...]}
 *   run NAME LOOPS   {"test": "NAME", "loops": N, "ns": N, "tsc": N, "cpu_ns": N}
 *   quit             (ends, as does the end of input)
 *
 * and {"error": "..."} to what went wrong. LOOPS counts elements: one that is taken and given back.
 * A test that moves several at a time rounds LOOPS up; "loops" has what was done. "cpu_ns" is how
 * much of "ns" the thread had the CPU: much less means that somebody else had it too.
 *
 * What is the same for every peer is here and nowhere else: pinning, the clock, the warm-up. What a
 * test does is the peer's, and is one function with one loop: get, PEER_USE(), return.
 */
#ifndef PEER_H
#define PEER_H

#include <stddef.h>
#include <stdint.h>

#define PEER_NAME_MAX 48

struct peer_test {
	char name[PEER_NAME_MAX];
	unsigned batch; /* elements that one turn of the loop moves */
	/* 0, or a negative errno. Called once, before the first run. */
	int (*open)(struct peer_test *test);
	/* The loop. Returns the turns that it made: fewer than asked is an error. */
	uint64_t (*run)(void *ctx, uint64_t turns);
	/* Around the timed part and outside of it; either may be NULL. after() says what was
	 * wrong: that the loop did not take the path that it is there to measure. */
	void (*before)(struct peer_test *test);
	const char *(*after)(struct peer_test *test, uint64_t turns);
	void *ctx;        /* for run(), set by open() */
	const void *spec; /* the peer's own description of the test */
	unsigned size;    /* objects; the rest is the peer's business */
	unsigned flags;
	unsigned design;
	int opened;
};

struct peer {
	const char *name;
	const char *version;
	const char *detail; /* what would explain a surprising figure, or "" */
	struct peer_test *tests;
	size_t count;
};

/*
 * The object was used: the compiler has to assume that anything may have read or changed it and
 * the rest of the memory. No instruction. Without it, it could merge the return of one turn with
 * the get of the next where both are inline.
 */
#define PEER_USE(object) __asm__ __volatile__("" : "+r"(object) : : "memory")

#define peer_unlikely(x) __builtin_expect(!!(x), 0)

/*
 * Reads "--cpu N [--threads]", pins the process, starts a thread that sleeps if asked to (some
 * libraries spare themselves atomic operations in a process that never had a second one), keeps
 * standard output for the protocol (what a library prints there goes to standard error). Returns
 * the CPU; ends the process when it cannot.
 */
int peer_start(int argc, char **argv);
/* One that the process might run on, and not the one that it was pinned to; negative: none. */
int peer_other_cpu(void);
/* Serves until the end of input. The exit status. */
int peer_serve(const struct peer *peer);

#endif
