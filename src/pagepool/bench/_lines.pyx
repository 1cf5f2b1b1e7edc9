# SPDX-License-Identifier: BSD-2-Clause
# cython: language_level=3
"""How long a cache line takes from one CPU to another."""

from libc.stdint cimport uint64_t

import os

cdef extern from "bench/line_transfer.h" nogil:
    enum:
        LINE_TRANSFERS_A_HAND_OVER

    int line_transfer_run(unsigned first_cpu, unsigned second_cpu, uint64_t hand_overs,
                          uint64_t *ns)


def transfer_ns(unsigned first_cpu, unsigned second_cpu, uint64_t hand_overs=20000):
    """Nanoseconds of one transfer, of a run of so many hand-overs. Raises ``OSError``."""
    cdef uint64_t ns = 0
    cdef int err
    with nogil:
        err = line_transfer_run(first_cpu, second_cpu, hand_overs, &ns)
    if err:
        raise OSError(
            -err,
            f"a line between CPU {first_cpu} and CPU {second_cpu}: {os.strerror(-err)}",
        )
    return ns / hand_overs / LINE_TRANSFERS_A_HAND_OVER
