# SPDX-License-Identifier: BSD-2-Clause
"""Change or noise: by ranks, by pooled noise, and when nothing can be said."""

from __future__ import annotations

import itertools
import math
import random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagepool.compare import statistics, verdict
from pagepool.compare.verdict import Margin, Noise

# ranks


def by_hand(one: list[float], other: list[float]) -> float:
    """The two-sided p by trying all ways to choose who is ``one``."""
    values = one + other
    ranks = [
        sum(v < value for v in values) + (sum(v == value for v in values) + 1) / 2
        for value in values
    ]
    drawn = sum(ranks[: len(one)])
    sums = [sum(choice) for choice in itertools.combinations(ranks, len(one))]
    below = sum(s <= drawn for s in sums) / len(sums)
    above = sum(s >= drawn for s in sums) / len(sums)
    return min(1.0, 2 * min(below, above))


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
)
def test_the_rank_test_counts_all_ways(one: list[int], other: list[int]) -> None:
    a, b = list(map(float, one)), list(map(float, other))
    assert statistics.rank_test(a, b) == pytest.approx(by_hand(a, b))


def test_published_values_of_the_rank_test() -> None:
    """Critical values of U, two-sided 5 %: 23 of 10 and 10, 2 of 5 and 5 (Mann-Whitney tables)."""

    def p(n: int, u: int) -> float:
        # U pairs have the first above the second.
        other = [float(2 * k) for k in range(n)]
        one: list[float] = []
        left = u
        for _ in range(n):
            take = min(left, n)
            one.append(2 * take - 1.0 + len(one) / 100)
            left -= take
        return statistics.rank_test(one, other)

    assert p(10, 23) <= 0.05 < p(10, 24)
    assert p(5, 2) <= 0.05 < p(5, 3)
    assert statistics.least_p(6, 6) == pytest.approx(2 / 924)


def test_many_runs_take_the_normal_approximation() -> None:
    rng = random.Random(1)
    one, other = ([rng.random() for _ in range(30)] for _ in range(2))
    exact = statistics.rank_test(one, other)
    limit, statistics.EXACT_RUNS = statistics.EXACT_RUNS, 10
    try:
        assert statistics.rank_test(one, other) == pytest.approx(exact, abs=0.01)
        assert statistics.rank_test([1.0] * 30, [1.0] * 30) == 1.0
    finally:
        statistics.EXACT_RUNS = limit


def test_the_interval_of_a_shift() -> None:
    one = [float(x) for x in range(10)]
    assert statistics.shift(one, [x + 3 for x in one]).estimate == 3
    # 10 and 10: the 24th difference from each end (U of 23 is the last outside).
    differences = sorted(b - a for a in one for b in one)
    found = statistics.shift(one, one)
    assert (found.low, found.high) == (differences[23], differences[-24])
    # Of so few all of them.
    assert statistics.shift([1.0, 2.0], [5.0, 7.0]) == (3.0, 4.5, 6.0)


# Student's t, Holm


@pytest.mark.parametrize(
    ("df", "t"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042)]
)
def test_tables_of_t(df: int, t: float) -> None:
    assert statistics.t_tail(t, df) == pytest.approx(0.05, abs=2e-4)
    assert statistics.t_quantile(0.05, df) == pytest.approx(t, abs=1e-3)


def test_t_is_normal_in_the_end() -> None:
    assert statistics.t_quantile(0.05, 2000) == pytest.approx(NormalDist().inv_cdf(0.975), abs=1e-2)


def test_holm() -> None:
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([]) == []
    assert statistics.holm([0.9, 0.8]) == [1.0, 1.0]


# noise


def test_noise_is_pooled_around_each_builds_own_middle() -> None:
    one = verdict.noise([[100.0, 101.0], [200.0, 202.0], [50.0]])
    assert one is not None
    assert (one.df, one.runs, one.span, one.outlying) == (2, 4, 0.0, 0)
    assert one.sigma == pytest.approx(math.log(1.01) / math.sqrt(2), rel=1e-6)
    assert verdict.noise([[1.0], [2.0]]) is None
    flat = verdict.noise([[5.0, 5.0, 5.0]])
    assert flat is not None and flat.sigma == verdict.LEAST_NOISE


def test_a_disturbed_run_is_counted_and_widens_nothing() -> None:
    quiet = [100.0, 100.3, 99.8, 100.1, 99.9, 100.2, 100.0, 99.7, 100.1, 100.0]
    one, other = verdict.noise([quiet]), verdict.noise([[*quiet, 113.0, 99.9, 100.1]])
    assert one is not None and other is not None
    assert (one.outlying, other.outlying) == (0, 1)
    assert other.sigma < 2 * one.sigma
    assert other.span == 0


def test_modes_of_few_and_of_many_runs() -> None:
    few = verdict.noise([[15.005, 15.005, 27.319, 27.319]])
    assert few is not None and few.span == pytest.approx(math.log(27.319 / 15.005))
    many = verdict.noise([[100.0 + k / 10 for k in range(10)] + [150.0, 151.0]])
    assert many is not None and many.span > math.log(1.4)
    alone = verdict.noise([[100.0 + k / 10 for k in range(10)] + [150.0]])
    assert alone is not None and alone.span == 0


# verdicts


def decide(
    before: list[float],
    after: list[float],
    *,
    others: list[list[float]] | None = None,
    rows: int = 1,
    controls: float | None = None,
    margin: Margin | None = None,
) -> tuple[str, str, int | None]:
    pooled = verdict.noise([before, after, *(others or [])])
    it = verdict.judge(before, after, pooled)
    p = None if it.p is None else min(1.0, it.p * rows)
    case = verdict.Case(it, pooled, (margin or Margin()).log(before[0]), controls)
    return verdict.decide(case, p, rows)


SOME = [100.0, 100.4, 99.7, 100.1, 99.8, 100.3, 100.2, 99.9]


def test_ranks_find_what_is_there() -> None:
    more = [time * 1.03 for time in SOME]
    assert decide(SOME, more) == ("slower", "", None)
    assert decide(more, SOME) == ("faster", "", None)
    assert decide(SOME, more[:6]) == ("slower", "", None)
    assert decide(SOME, [time + 0.05 for time in SOME]) == ("same", "", None)


def test_less_than_the_margin_is_no_change() -> None:
    assert decide(SOME, [time * 1.009 for time in SOME])[0] in ("same", "inconclusive")
    assert decide(SOME, [time * 1.009 for time in SOME], margin=Margin(0.5, 0.0))[0] == "slower"
    # 0.2 ns of 5 ns are 4 %.
    small = [time / 20 for time in SOME]
    assert decide(small, [time * 1.03 for time in small])[0] == "same"
    assert decide(small, [time * 1.03 for time in small], margin=Margin(1, 0))[0] == "slower"


def test_one_run_a_side_is_never_a_verdict() -> None:
    assert decide([100.0], [300.0]) == ("inconclusive", "nothing is known of its noise", 5)
    # Of others the noise is known, and still: one run of twenty is disturbed.
    others = [[100.0, 100.1, 99.9, 100.2]] * 3
    kind, why, more = decide([100.0], [110.0], others=others)
    assert (kind, why) == ("inconclusive", "1 run may all have been disturbed")
    assert more is not None and 1 <= more <= 5


def test_few_runs_borrow_the_noise_of_other_builds() -> None:
    others = [[200.0, 200.5], [190.0, 190.2, 190.1], [210.0, 210.3]]
    assert decide([165.0, 164.8], [200.4, 201.0], others=others)[0] == "slower"
    # Two runs that are both disturbed are one pair in some hundred.
    assert decide([165.0, 164.8], [172.0, 172.2], others=others, rows=40)[0] == "inconclusive"
    # The gap counts: a run among those of the other side leaves none.
    assert decide([165.0, 164.8], [164.9, 201.0], others=others)[0] == "unstable"


def test_modes_hide_what_is_smaller_than_they_are() -> None:
    two_modes = [[15.0, 15.0, 27.3, 27.3]]
    kind, why, _ = decide([25.78, 25.78], [15.1, 15.2], others=two_modes)
    assert (kind, why) == ("unstable", "runs of one build are 82 % apart")
    assert decide([15.0, 15.1], [60.0, 60.1], others=two_modes)[0] == "slower"


def test_what_the_machine_did_is_no_change() -> None:
    more = [time * 1.03 for time in SOME]
    kind, why, _ = decide(SOME, more, controls=math.log(1.05))
    assert kind == "inconclusive" and why.startswith("a control moved by 5.0 %")
    assert decide(SOME, more, controls=math.log(1.01))[0] == "slower"


def test_as_many_more_runs_as_it_says_decide() -> None:
    """What it asks for is enough most of the time: the effect is known from few runs only."""
    rng = random.Random(3)
    asked = decided = 0
    for _ in range(300):
        sides = [[rng.gauss(100, 1.0) + shift for _ in range(6)] for shift in (0.0, 2.2)]
        kind, _, more = decide(*sides)
        if kind == "inconclusive" and more is not None and more <= 60:
            for runs, shift in zip(sides, (0.0, 2.2), strict=True):
                runs += [rng.gauss(100, 1.0) + shift for _ in range(more)]
            asked += 1
            decided += decide(*sides)[0] != "inconclusive"
    assert asked > 20
    assert decided > 0.6 * asked


def test_smallest() -> None:
    pooled = Noise(0.01, 0.01, 10, 20, 0, 0.0)
    few = verdict.smallest(verdict.judge(SOME[:3], SOME[:3], pooled), pooled, 1)
    many = verdict.smallest(verdict.judge(SOME, SOME, pooled), pooled, 1)
    assert few is not None and many is not None
    assert few > many > 1
    # 6 and 6 runs cannot be significant among 50 rows.
    assert verdict.smallest(verdict.judge(SOME[:6], SOME[:6], pooled), pooled, 50) is None


@given(
    st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=8),
    st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=8),
    st.integers(1, 100),
)
def test_any_times_have_a_verdict(before: list[float], after: list[float], rows: int) -> None:
    kind, why, more = decide(before, after, rows=rows)
    assert kind in ("faster", "slower", "same", "inconclusive", "unstable")
    assert more is None or more >= 1
    assert (kind == "unstable") <= bool(why)


def test_a_build_that_scatters_more_has_noise_of_its_own() -> None:
    """Quiet builds lend their noise to others like them, not to one that is much noisier."""
    quiet = [
        [100.0, 100.1, 99.9, 100.05],
        [100.1, 99.95, 100.0, 100.1],
        [99.9, 100.0, 100.1, 100.0],
    ]
    wild = [98.0, 104.0, 101.0, 99.5]
    pooled = verdict.noise([*quiet, wild])
    assert pooled is not None and pooled.sigma < 0.004
    own = verdict.judge(quiet[0], wild, pooled)
    assert own.effect is not None
    assert own.effect.high - own.effect.low > 0.06
    like = verdict.judge(quiet[0], quiet[1], pooled)
    assert like.effect is not None
    assert like.effect.high - like.effect.low < 0.02


def test_noise_that_several_builds_have_is_not_that_of_one() -> None:
    """Where others scatter as well it is known from all of them, and not from four runs."""
    quiet = [[90.0, 90.05], [55.1, 55.2], [55.0, 55.1], [55.1, 55.0]]
    rough = [[55.5, 64.3, 67.3, 67.5], [55.9, 66.0, 68.2], [60.0, 56.0, 67.0, 55.0, 65.0]]
    pooled = verdict.noise([*quiet, *rough])
    assert pooled is not None and pooled.rough > 2 * pooled.sigma
    it = verdict.judge(quiet[0], rough[0], pooled)
    assert it.p is not None and it.p < 0.001
    # Nobody else scatters so: four runs say little.
    alone = verdict.noise([*quiet, *quiet, rough[0]])
    assert alone is not None
    it = verdict.judge(quiet[0], rough[0], alone)
    assert it.p is not None and it.p > 0.005


def test_what_the_machine_did_may_hide_a_change() -> None:
    times = [100.0, 100.1, 99.9, 100.05, 100.02, 99.97, 100.0]
    pooled = verdict.noise([times, times])
    it = verdict.judge(times, times, pooled)
    assert verdict.decide(verdict.Case(it, pooled, 0.01), it.p, 1)[0] == "same"
    kind, why, _ = verdict.decide(verdict.Case(it, pooled, 0.01, 0.13), it.p, 1)
    assert (kind, why) == ("inconclusive", "a control moved by 13.9 %, this did not")
