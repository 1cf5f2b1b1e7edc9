# SPDX-License-Identifier: BSD-2-Clause
"""The arithmetic on several runs: median, spread, overlap, modes. No verdicts.

The median of an even number of values is the lower of the two in the middle, so that every
figure that is shown was measured by some run: a mean of a fast and a slow mode is a time that
nothing ever took.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Beyond this ratio of the slowest to the fastest run of one build the runs are not samples of
#: one thing. Quiet machines stay within some 3 %; the known bimodal logs jump by 30 % to 120 %.
MODE_RATIO = 1.15


def median_index(values: Sequence[float]) -> int:
    """Index of the median of a non-empty sequence (of an even number: of the lower one)."""
    order = sorted(range(len(values)), key=lambda index: (values[index], index))
    return order[(len(values) - 1) // 2]


def ranges_overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether min..max of two non-empty sequences have a value in common."""
    return min(one) <= max(other) and min(other) <= max(one)


def has_modes(values: Sequence[float], ratio: float = MODE_RATIO) -> bool:
    """Whether the runs of one build lie too far apart to be one distribution."""
    return len(values) > 1 and min(values) > 0 and max(values) / min(values) > ratio


def change_percent(before: float, after: float) -> float | None:
    """By how many per cent ``after`` is above ``before``; ``None`` where before is 0."""
    return None if before == 0 else (after - before) / before * 100
