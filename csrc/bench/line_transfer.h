/* SPDX-License-Identifier: BSD-2-Clause */
/* How long a cache line takes from one CPU to another. See line_transfer.c. */
#ifndef PP_BENCH_LINE_TRANSFER_H
#define PP_BENCH_LINE_TRANSFER_H

#include <stdint.h>

/* Transfers in one hand-over: the right to write comes, then the other one's read. */
#define LINE_TRANSFERS_A_HAND_OVER 2

/*
 * Two CPUs hand one line to each other so often, and *ns is how long all of it took. 0, or the
 * negative errno of what went wrong: -EINVAL for one and the same CPU, or one that the process may
 * not run on.
 */
int line_transfer_run(unsigned first_cpu, unsigned second_cpu, uint64_t hand_overs, uint64_t *ns);

#endif
