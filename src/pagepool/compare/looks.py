# SPDX-License-Identifier: BSD-2-Clause
"""Runs that went on until the verdict was clear: when it is looked at, and what a look may spend.

Who looks after every run until something shows finds something. So the looks are fixed before the
first one, by the number of rows and the largest number of runs alone, and each has the same share
of `verdict.ALPHA`. That the chance of any false alarm in all looks together is no larger than in a
single one then holds by addition, whatever the noise: Bonferroni's rule over the looks, within each
Holm's over the rows. An interval at such a share covers the truth at all looks at once, so that
``same`` is bounded as well.

The plan stands in the settings of the runs, so whoever compares them later judges them alike.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from pagepool.compare import statistics
from pagepool.compare.verdict import ALPHA, RANK_RUNS, Kind
from pagepool.results.model import Build

#: The setting of a run that says that there are more only where the verdict was open.
SETTING = "until_decided"
#: From one look to the next at least so many times the runs: a look that sees little that is new
#: only costs the others.
GROWTH = 1.4

_TEXT = re.compile(r"looks at (\d{1,6}(?:,\d{1,6}){0,99}) runs")


class Looks(NamedTuple):
    """The numbers of runs a side at which the verdict is looked at, in their order."""

    at: tuple[int, ...]

    @property
    def share(self) -> float:
        """What a look may spend of `verdict.ALPHA`."""
        return 1 / len(self.at)

    def made(self, runs: int) -> int:
        """How many of them there were with so many runs."""
        return sum(at <= runs for at in self.at)

    def __str__(self) -> str:
        """As it stands in the settings of a run; `parse` reads it."""
        return f"looks at {','.join(map(str, self.at))} runs"


def parse(text: str) -> Looks | None:
    """The looks of a setting; ``None`` for what is no such text."""
    match = _TEXT.fullmatch(text)
    return Looks(tuple(map(int, match.group(1).split(",")))) if match else None


def plan(rows: int, most: int) -> Looks:
    """The looks for so many rows with a verdict, and ``most`` runs a side, `RANK_RUNS` or more.

    The first one is at the fewest runs with which ranks can call one of the rows; the others
    follow by the same factor, `GROWTH` at least, up to ``most``.
    """
    number = 1
    while most >= _first(rows, number + 1) * GROWTH**number:
        number += 1
    first = min(_first(rows, number), most)
    factor = (most / first) ** (1 / max(number - 1, 1))
    return Looks((*(round(first * factor**k) for k in range(number - 1)), most))


def least_runs(rows: int) -> int:
    """With fewer runs a side no look can call any of so many rows slower or faster."""
    return _first(rows, 1)


def _first(rows: int, looks: int) -> int:
    runs = RANK_RUNS
    while statistics.least_p(runs, runs) > ALPHA / looks / max(rows, 1):
        runs += 1
    return runs


def of(build: Build) -> Looks | None:
    """The looks that chose the number of a build's runs; ``None``: nobody says that any did."""
    texts = (run.settings.get(SETTING) for run in build.runs)
    return next((found for text in texts if text and (found := parse(text))), None)


def of_pair(before: Build, after: Build) -> tuple[Looks, int] | None:
    """The looks that spent most of two builds, and how many there were."""
    made = [
        (found, found.made(len(build.runs)))
        for build in (before, after)
        if (found := of(build)) is not None
    ]
    return max(made, key=lambda one: len(one[0].at), default=None)


Row = TypeVar("Row", bound=Hashable)


class Undecided(Generic[Row]):
    """The rows that need more runs, look after look.

    ``unstable`` is taken at its word when two looks in a row say so: of the fewest runs two that
    were disturbed are enough to look like a mode, of half as many more they are not.
    """

    def __init__(self) -> None:
        """No look so far."""
        self._unstable: frozenset[Row] = frozenset()

    def look(self, kinds: Mapping[Row, Kind]) -> list[Row]:
        """What each row is said to be now; returns those that are open."""
        unstable = frozenset(row for row, kind in kinds.items() if kind == "unstable")
        again = unstable - self._unstable
        self._unstable = unstable
        return [row for row, kind in kinds.items() if kind == "inconclusive" or row in again]
