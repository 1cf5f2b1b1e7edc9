# SPDX-License-Identifier: BSD-2-Clause
"""How long a cache line takes from one CPU to another."""

def transfer_ns(first_cpu: int, second_cpu: int, hand_overs: int = 20000) -> float:
    """Nanoseconds of one transfer, of a run of so many hand-overs. Raises ``OSError``."""
