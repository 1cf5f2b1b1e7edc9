# SPDX-License-Identifier: BSD-2-Clause
"""The arithmetic on several runs: median, spread, overlap, modes, tests, intervals. No verdicts.

The median of an even number of values is the lower of the two in the middle, so that every
figure that is shown was measured by some run: a mean of a fast and a slow mode is a time that
nothing ever took.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, median
from typing import NamedTuple

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


# Ranks


@lru_cache(maxsize=256)
def _rank_sums(n: int, doubled: tuple[int, ...]) -> tuple[list[int], int]:
    """How many ways there are to draw ``n`` of these ranks, by their sum; and all together.

    One integer holds a whole polynomial, a coefficient every ``width`` bits: adding a rank is a
    shift and an addition.
    """
    width = len(doubled) + 1
    ways = [0] * (n + 1)
    ways[0] = 1
    for rank in doubled:
        for k in range(n, 0, -1):
            ways[k] += ways[k - 1] << (rank * width)
    mask = (1 << width) - 1
    raw, counts = ways[n], []
    for _ in range(sum(sorted(doubled)[-n:]) + 1):
        counts.append(raw & mask)
        raw >>= width
    return counts, sum(counts)


#: Beyond so many runs together the distribution of rank sums is taken as normal.
EXACT_RUNS = 60


def rank_test(one: Sequence[float], other: Sequence[float]) -> float:
    """Two-sided p of Wilcoxon's rank sum test (Mann-Whitney), exact also with ties.

    Of more than `EXACT_RUNS` values together the normal approximation, corrected for ties.
    """
    n, m = len(one), len(other)
    values = [*one, *other]
    order = sorted(range(n + m), key=values.__getitem__)
    doubled = [0] * (n + m)
    ties = []
    start = 0
    while start < n + m:
        end = start
        while end + 1 < n + m and values[order[end + 1]] == values[order[start]]:
            end += 1
        ties.append(end - start + 1)
        for place in range(start, end + 1):
            doubled[order[place]] = start + end + 2
        start = end + 1
    drawn = sum(doubled[:n])
    if n + m <= EXACT_RUNS:
        counts, ways = _rank_sums(n, tuple(sorted(doubled)))
        below = sum(counts[: drawn + 1])
        above = sum(counts[drawn:])
        return min(1.0, 2 * min(below, above) / ways)
    mean = n * (n + m + 1)
    tied = sum(t**3 - t for t in ties) / ((n + m) * (n + m - 1))
    variance = n * m / 3 * (n + m + 1 - tied)
    if variance <= 0:
        return 1.0
    z = max(abs(drawn - mean) - 1, 0) / math.sqrt(variance)
    return 2 * (1 - NormalDist().cdf(z))


def least_p(n: int, m: int) -> float:
    """The smallest p that `rank_test` can give for so many runs."""
    return min(1.0, 2 / math.comb(n + m, n))


class Interval(NamedTuple):
    """An estimate and its confidence interval."""

    low: float
    estimate: float
    high: float


@lru_cache(maxsize=256)
def _cut_off(n: int, m: int, alpha: float) -> int:
    """So many of the differences lie outside of the interval at each end."""
    if n + m > EXACT_RUNS:
        z = NormalDist().inv_cdf(1 - alpha / 2)
        spread = math.sqrt(n * m * (n + m + 1) / 12)
        return max(0, int(n * m / 2 - z * spread))
    counts, ways = _rank_sums(n, tuple(range(2, 2 * (n + m) + 1, 2)))
    least = n * (n + 1)
    below = outside = 0
    while (below + counts[least + 2 * outside]) * 2 <= alpha * ways:
        below += counts[least + 2 * outside]
        outside += 1
    return outside


def shift(one: Sequence[float], other: Sequence[float], alpha: float = 0.05) -> Interval:
    """By how much ``other`` lies above ``one``: Hodges and Lehmann's estimate and its interval.

    With so few values that no interval reaches ``1 - alpha``: all differences.
    """
    differences = sorted(b - a for a in one for b in other)
    outside = max(_cut_off(len(one), len(other), alpha) - 1, 0)
    return Interval(differences[outside], median(differences), differences[-1 - outside])


# Student's t


def t_tail(t: float, df: int) -> float:
    """Two-sided p of ``t`` with ``df`` degrees of freedom (Abramowitz and Stegun, 26.7.3 and 4)."""
    angle = math.atan(abs(t) / math.sqrt(df))
    cosine, sine = math.cos(angle), math.sin(angle)
    term, total = (cosine, cosine) if df % 2 else (1.0, 1.0)
    for k in range(3 if df % 2 else 2, df - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    if df == 1:
        inside = 2 * angle / math.pi
    elif df % 2:
        inside = 2 / math.pi * (angle + sine * total)
    else:
        inside = sine * total
    return max(0.0, 1.0 - inside)


@lru_cache(maxsize=1024)
def t_quantile(alpha: float, df: int) -> float:
    """The t whose two-sided p is ``alpha``."""
    low, high = 0.0, 1.0
    while t_tail(high, df) > alpha and high < 1e9:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, df) > alpha else (low, middle)
    return high


# Many tests


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's adjustment: of these, the chance that any false one is at most alpha is alpha."""
    adjusted = [1.0] * len(ps)
    worst = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        worst = max(worst, min(1.0, ps[index] * (len(ps) - rank)))
        adjusted[index] = worst
    return adjusted


def chi_square_tail(square: float, df: int) -> float:
    """Chance that the squares of ``df`` standard normal values sum up to ``square`` or more."""
    half = square / 2
    if half <= 0:
        return 1.0
    # Q(a + 1, x) = Q(a, x) + x^a e^-x / gamma(a + 1), from a = 1/2 or 1 on.
    tail = math.exp(-half) if df % 2 == 0 else math.erfc(math.sqrt(half))
    a = 1.0 if df % 2 == 0 else 0.5
    while a < df / 2:
        tail += math.exp(a * math.log(half) - half - math.lgamma(a + 1))
        a += 1
    return min(tail, 1.0)
