/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The two locks, hammered. What they protect is a plain counter: an increment that is lost shows
 * that two were inside, or that one did not see what the other did.
 */
#include "base/biased_lock.h"
#include "test.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* ---- spin lock ----------------------------------------------------------------------------------
 */

#define THREADS 4
#define TURNS 20000

static struct pp_spinlock spin;
static uint64_t counter;

static void *spin_and_count(void *arg)
{
	for (int i = 0; i < TURNS; i++) {
		pp_spin_lock(&spin);
		counter++;
		pp_spin_unlock(&spin);
	}
	return arg;
}

TEST(spin_lock)
{
	pthread_t thread[THREADS];

	pp_spinlock_init(&spin);
	counter = 0;
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, spin_and_count, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	CHECK_EQ(counter, THREADS * TURNS);
	CHECK_EQ(spin.locked, 0);
}

/* ---- biased lock --------------------------------------------------------------------------------
 */

/* The lock is on a line of its own, and what it protects too: a store to the one may then wait for
 * its line while a load from the other goes ahead. */
static struct pp_biased_lock biased PP_ALIGNED(2 * PP_CACHELINE);
static uint64_t inside PP_ALIGNED(2 * PP_CACHELINE);
static uint64_t remote_did PP_ALIGNED(2 * PP_CACHELINE);
static uint64_t owner_turns PP_ALIGNED(2 * PP_CACHELINE);
static uint32_t phase; /* 0: in and out at once; 1: the owner stays inside; 2: over */

static void remote_turn(void)
{
	CHECK(pp_biased_lock_remote(&biased));
	/* Long enough for the owner to come by. */
	for (int k = 0; k < 20; k++) {
		pp_store_relaxed(&inside, inside + 1);
		remote_did++;
	}
	pp_biased_unlock_remote(&biased);
}

static void *remote_side(void *arg)
{
	for (int i = 0; i < TURNS / 2; i++)
		remote_turn();
	pp_store_release(&phase, 1u);
	for (int i = 0; i < 200; i++) {
		uint64_t turns = pp_load_relaxed(&owner_turns);

		while (pp_load_relaxed(&owner_turns) - turns < 3)
			sched_yield();
		remote_turn();
	}
	pp_store_release(&phase, 2u);
	return arg;
}

TEST(biased_lock)
{
	uint64_t owner_did = 0, refused = 0;
	pthread_t thread;
	uint32_t now;

	if (!pp_biased_lock_available()) {
		printf("# skipped: no membarrier(2) here\n");
		return;
	}
	CHECK_EQ(pthread_create(&thread, NULL, remote_side, NULL), 0);
	while ((now = pp_load_acquire(&phase)) < 2) {
		if (!pp_biased_enter(&biased)) {
			refused++;
			continue;
		}
		/* In phase 1 for longer than a membarrier takes. */
		for (int k = now ? 20000 : 1; k; k--) {
			pp_store_relaxed(&inside, inside + 1);
			owner_did++;
		}
		pp_biased_leave(&biased);
		pp_inc_single_writer(&owner_turns);
	}
	pthread_join(thread, NULL);
	printf("# owner %" PRIu64 ", refused %" PRIu64 ", remote %" PRIu64 "\n", owner_did, refused,
	       remote_did);
	CHECK_EQ(inside, owner_did + remote_did);
	/* Free for both afterwards. */
	CHECK(pp_biased_enter(&biased));
	pp_biased_leave(&biased);
	CHECK(pp_biased_lock_remote(&biased));
	CHECK(!pp_biased_enter(&biased));
	pp_biased_unlock_remote(&biased);
	CHECK(pp_biased_enter(&biased));
	pp_biased_leave(&biased);
}

#ifndef PP_TSAN /* ThreadSanitizer's lock needs no membarrier. */

/* From here on no membarrier of this thread succeeds. False: such a filter cannot be had. */
static bool refuse_membarrier(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_membarrier, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* Whether the owner can still be at it is then not known: the remote side is not let in, whatever
 * the moment, and nothing is locked. A filter is there to stay: in a child. */
static int without_its_barrier(void)
{
	if (!refuse_membarrier())
		return 77;
	CHECK(!pp_biased_lock_remote(&biased));
	CHECK(pp_biased_enter(&biased));
	return 0;
}

TEST(without_its_barrier_the_remote_side_gets_nothing)
{
	if (!pp_biased_lock_available())
		printf("# skipped: no membarrier(2) here\n");
	else
		in_a_child(without_its_barrier);
}

#endif
