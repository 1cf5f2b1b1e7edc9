# SPDX-License-Identifier: BSD-2-Clause
"""Change or noise: what several runs of two builds say about one test.

The unit is the run: one load of the module, one boot, one pass of the benchmark. From
`RANK_RUNS` runs a side ranks decide, which need no model of the noise. With fewer no permutation
can: the noise of the test is then pooled over all builds of the same machine, on the log scale,
and what counts is the gap between the runs of both sides, not the distance of their middles: one
run that was disturbed opens no gap. That all runs of a side were disturbed at once is never
impossible, and bounds what few runs can say; see `disturbed`.

Everything here is on logarithms of times, so a difference is a percentage; `judge` knows nothing
of the other rows of a report, `decide_all` adjusts the p of all of them together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import NormalDist, fmean, median
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from pagepool.compare import statistics
from pagepool.compare.statistics import Interval
from pagepool.results.words import count

Kind: TypeAlias = Literal["faster", "slower", "same", "inconclusive", "unstable"]
Method: TypeAlias = Literal["ranks", "pooled", "exact", "none"]

#: False alarms: of so many reports without a change one may have any.
ALPHA = 0.05
#: Chance to find the change that ``smallest`` and ``more_runs`` are about.
POWER = 0.8
#: Runs a side from which on ranks decide.
RANK_RUNS = 6
#: Of 20 runs one is disturbed, if the input does not say otherwise...
DISTURBED = 0.05
#: ...by 15 % on the average: what `statistics.MODE_RATIO` takes for the distance of two modes.
DISTURBANCE = math.log(statistics.MODE_RATIO)
#: Robust standard deviations from the middle of its build: a run that was disturbed.
OUTLYING = 5.0
#: Runs that scatter so much with this chance at most, if their noise is that of all builds, have
#: more noise...
NOISIER = 0.01
#: ...and with this one, if it is that of all builds with all that is far out, noise of their own.
#: A tenth: quiet builds would make the noise of a few others too small.
ROUGHER = 0.1
#: Nobody's noise is smaller: that two runs agree to the nanosecond is chance. 0.05 %.
LEAST_NOISE = 5e-4
#: More runs than this are not asked for.
MANY = 1000


class Margin(msgspec.Struct, frozen=True):
    """Less than this is no change: per cent of before, or nanoseconds if that is more."""

    percent: float = 1.0
    ns: float = 0.2

    def log(self, before_ns: float | None) -> float:
        """The margin as a difference of logarithms."""
        share = self.percent / 100
        if before_ns:
            share = max(share, self.ns / before_ns)
        return math.log1p(share)


class Noise(msgspec.Struct, frozen=True):
    """How much the runs of one build of one test differ, of all builds of one machine.

    ``sigma`` is a standard deviation of logarithms with ``df`` degrees of freedom, from ``runs``
    runs of which ``outlying`` were disturbed; ``rough`` the same of all runs as they are, those
    that are far out too. ``span`` is the distance of the modes, 0 if no build has several.
    """

    sigma: float
    rough: float
    df: int
    runs: int
    outlying: int
    span: float


class Verdict(msgspec.Struct, frozen=True):
    """What is said of one row.

    ``percent``, ``ns``, ``cycles``: by how much after is above before, with its 95 % interval.
    ``p`` as of this row alone (where its runs were looked at several times, of all these looks
    together), ``p_adjusted`` for all rows of the report. ``smallest``: per cent,
    the change that so many runs find with a chance of 80 %. ``more_runs``: so many more on each
    side would decide; ``None`` where that is not known or does not matter. ``why`` goes on after
    the word.
    """

    kind: Kind
    method: Method
    why: str = ""
    p: float | None = None
    p_adjusted: float | None = None
    percent: Interval | None = None
    ns: Interval | None = None
    cycles: Interval | None = None
    smallest: float | None = None
    more_runs: int | None = None


class Judgement(msgspec.Struct, frozen=True):
    """What the runs of one row say by themselves. Logarithms of after / before.

    ``share``: what may be spent of `ALPHA` here, because there are other looks at these runs;
    ``p`` is adjusted for it, and the interval of ``effect`` holds for all looks together.
    """

    method: Method
    runs: tuple[int, int]
    effect: Interval | None
    p: float | None
    gap: float
    share: float = 1.0


class Case(NamedTuple):
    """A row of a report: what its runs say, and what bounds that.

    margin: a logarithm, see `Margin.log`. controls: by how much a test that does not touch the
    pool moved between these builds, a logarithm; a row that moved less did not move by itself.
    """

    it: Judgement
    noise: Noise | None
    margin: float
    controls: float | None = None

    @property
    def p(self) -> float | None:
        """The p that may raise a false alarm: what modes hide is never called."""
        return None if hidden(self.it, self.noise) else self.it.p


class Decision(NamedTuple):
    """What is said of a case: how many more runs a side would decide, and its adjusted p."""

    kind: Kind
    why: str
    more_runs: int | None
    p_adjusted: float | None


def noise(builds: Iterable[Sequence[float]]) -> Noise | None:
    """Pools the runs of several builds, each around its own middle. ``None``: all ran once."""
    residuals: list[float] = []
    span, squares, df, runs = 0.0, 0.0, 0, 0
    for times in builds:
        values = [math.log(time) for time in times if time > 0]
        if len(values) < 2:
            continue
        middle = median(values)
        # Around a middle of so few values they lie closer than around the true one.
        stretch = math.sqrt(len(values) / (len(values) - 1))
        residuals += [abs(value - middle) * stretch for value in values]
        squares += _squares(values)
        span = max(span, _modes(values))
        df += len(values) - 1
        runs += len(values)
    if not residuals:
        return None
    robust = max(median(residuals) / NormalDist().inv_cdf(0.75), LEAST_NOISE)
    # Where there are modes, a run that is far from the middle is of the other one.
    outlying = 0 if span else sum(residual > OUTLYING * robust for residual in residuals)
    if runs >= 2 * RANK_RUNS:
        # What is far out is counted as outlying, and does not widen the rest.
        residuals = [min(residual, 3 * robust) for residual in residuals]
    sigma = math.sqrt(sum(residual**2 for residual in residuals) / runs)
    rough = max(math.sqrt(squares / df), LEAST_NOISE)
    return Noise(max(sigma, LEAST_NOISE), rough, df, runs, outlying, span)


def _squares(values: Sequence[float]) -> float:
    """The sum of the squared distances from their mean."""
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _modes(values: Sequence[float]) -> float:
    """How far the modes of one build are apart, 0 if it has one.

    Of few runs any two that are so far apart may be modes. Of many a few are only disturbed: a
    mode has a sixth of them, and two at least.
    """
    ordered = sorted(values)
    span = ordered[-1] - ordered[0]
    if span <= math.log(statistics.MODE_RATIO):
        return 0.0
    if len(ordered) < RANK_RUNS:
        return span
    least = max(2, math.ceil(len(ordered) / 6))
    # The middles of what lies on both sides of the widest gap.
    gaps = [(b - a, k + 1) for k, (a, b) in enumerate(pairwise(ordered))]
    _, at = max(gaps)
    if at < least or len(ordered) - at < least:
        return 0.0
    apart = median(ordered[at:]) - median(ordered[:at])
    return apart if apart > math.log(statistics.MODE_RATIO) else 0.0


def _share(pooled: Noise) -> float:
    """Of so many runs one is disturbed; that none of the input was is no proof that none is."""
    return max(DISTURBED, (pooled.outlying + 1) / (pooled.runs + 1))


def disturbed(gap: float, sides: int, pooled: Noise) -> float:
    """Chance that ``sides`` runs were disturbed alike, by ``gap`` at least, all of one side."""
    return min(1.0, 2 * (_share(pooled) * math.exp(-gap / DISTURBANCE)) ** sides)


def _undisturbed(sides: int, pooled: Noise, rows: float) -> float:
    """The gap that so many runs do not open by being disturbed, with enough certainty."""
    return max(0.0, DISTURBANCE * math.log(_share(pooled) / (ALPHA / rows / 2) ** (1 / sides)))


def judge(
    before: Sequence[float], after: Sequence[float], pooled: Noise | None, share: float = 1.0
) -> Judgement:
    """What these runs say by themselves: times of two builds, and the noise of their test.

    ``share`` as in `Judgement`.
    """
    alpha = ALPHA * share
    one = [math.log(time) for time in before if time > 0]
    other = [math.log(time) for time in after if time > 0]
    n, m = len(one), len(other)
    if not n or not m:
        return Judgement("none", (n, m), None, None, 0.0, share)
    gap = max(min(other) - max(one), min(one) - max(other), 0.0)
    if min(n, m) >= RANK_RUNS:
        p = min(statistics.rank_test(one, other) / share, 1.0)
        return Judgement("ranks", (n, m), statistics.shift(one, other, alpha), p, gap, share)
    middle = median(other) - median(one)
    if pooled is None:
        return Judgement("none", (n, m), Interval(-math.inf, middle, math.inf), None, gap, share)
    sigma, df = _noise_of(one, other, pooled)
    error = sigma * math.sqrt(1 / n + 1 / m)
    half = statistics.t_quantile(alpha, df) * error
    p = max(statistics.t_tail(gap / error, df), disturbed(gap, min(n, m), pooled))
    effect = Interval(middle - half, middle, middle + half)
    return Judgement("pooled", (n, m), effect, min(p / share, 1.0), gap, share)


def _noise_of(one: Sequence[float], other: Sequence[float], pooled: Noise) -> tuple[float, int]:
    """The standard deviation of these runs and its degrees of freedom: that of all builds; if they
    scatter more than that allows, that of all builds without leaving out what is far out there;
    if they scatter more than that, too, their own."""
    df = len(one) + len(other) - 2
    squares = _squares(one) + _squares(other)
    for sigma, chance in ((pooled.sigma, NOISIER), (pooled.rough, ROUGHER)):
        if df < 1 or statistics.chi_square_tail(squares / sigma**2, df) >= chance:
            return sigma, pooled.df
    return math.sqrt(squares / df), df


def decide_all(cases: Sequence[Case]) -> tuple[list[Decision], int]:
    """The decisions on all rows of a report, and how many p were adjusted together."""
    ps = [case.p for case in cases]
    known = [p for p in ps if p is not None]
    adjusted = iter(statistics.holm(known))
    decisions = []
    for case, p in zip(cases, ps, strict=True):
        p_adjusted = None if p is None else next(adjusted)
        decided = decide(case, p_adjusted, max(len(known), 1))
        decisions.append(Decision(*decided, p_adjusted))
    return decisions, len(known)


def decide(case: Case, p_adjusted: float | None, rows: int) -> tuple[Kind, str, int | None]:
    """One of ``rows`` rows, whose p is adjusted for all: kind, why, how many more runs decide."""
    it, pooled, margin, controls = case
    if pooled and hidden(it, pooled):
        return "unstable", _apart(pooled), None
    if it.effect is None or it.p is None or p_adjusted is None:
        return "inconclusive", "nothing is known of its noise", max(RANK_RUNS - min(it.runs), 1)
    size = abs(it.effect.estimate)
    significant = p_adjusted <= ALPHA
    if pooled and pooled.span and not significant:
        return "unstable", _apart(pooled), None
    if significant and size > margin:
        if controls is not None and size <= controls:
            moved = f"a control moved by {percent(controls):.1f} %"
            return "inconclusive", f"{moved}: the machine may have", None
        return ("slower" if it.effect.estimate > 0 else "faster"), "", None
    if -margin <= it.effect.low and it.effect.high <= margin:
        if controls is not None and controls > margin:
            # What the machine did may hide what the change did.
            moved = f"a control moved by {percent(controls):.1f} %"
            return "inconclusive", f"{moved}, this did not", None
        return "same", "", None
    why = ""
    if (
        it.method == "pooled"
        and pooled
        and size > margin
        and not -margin <= it.effect.low <= margin
    ):
        why = f"{count(min(it.runs), 'run')} may all have been disturbed"
    return "inconclusive", why, _more(it, pooled, margin, rows / it.share)


def _apart(pooled: Noise) -> str:
    return f"runs of one build are {percent(pooled.span):.0f} % apart"


def hidden(it: Judgement, pooled: Noise | None) -> bool:
    """Whether modes hide what there may be, whatever its p.

    Few runs may all have come from one mode: the sides have to be further apart than these are.
    """
    return bool(pooled and pooled.span and it.method == "pooled" and it.gap <= pooled.span)


def smallest(it: Judgement, pooled: Noise | None, rows: int) -> float | None:
    """Per cent: the change that so many runs find with a chance of `POWER`."""
    if pooled is None or it.method == "none":
        return None
    tests = rows / it.share
    if it.method == "ranks" and statistics.least_p(*it.runs) > ALPHA / tests:
        return None
    n, m = it.runs
    size = _reach(tests) * pooled.sigma * math.sqrt(1 / n + 1 / m)
    if it.method == "pooled":
        size = max(size, _undisturbed(min(n, m), pooled, tests))
    return percent(size)


def share(log: float) -> float:
    """A difference of logarithms as a share of what it is a difference from."""
    return math.expm1(log) if log < 700 else math.inf


def percent(log: float) -> float:
    """A difference of logarithms in per cent."""
    return share(log) * 100


def _reach(rows: float) -> float:
    normal = NormalDist()
    return normal.inv_cdf(1 - ALPHA / rows / 2) + normal.inv_cdf(POWER)


def _more(it: Judgement, pooled: Noise | None, margin: float, rows: float) -> int | None:
    """How many more runs a side would decide, if the effect is what it seems to be."""
    assert it.effect is not None
    if pooled is None:
        return None
    size = abs(it.effect.estimate)
    if size > margin:
        # Enough to find it.
        needed = 2 * (_reach(rows) * pooled.sigma / size) ** 2
    else:
        # Enough for an interval that lies within the margin.
        room = max(margin - size, margin / 10)
        needed = 2 * (NormalDist().inv_cdf(1 - ALPHA * it.share / 2) * pooled.sigma / room) ** 2
    if it.method == "pooled" and it.gap > margin:
        for sides in range(min(it.runs) + 1, RANK_RUNS):
            if sides >= needed and disturbed(it.gap, sides, pooled) <= ALPHA / rows:
                return sides - min(it.runs)
    least = RANK_RUNS
    while size > margin and statistics.least_p(least, least) > ALPHA / rows:
        least += 1
    more = max(math.ceil(needed), least) - min(it.runs)
    return None if more > MANY else max(1, more)
