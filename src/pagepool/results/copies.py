# SPDX-License-Identifier: BSD-2-Clause
"""Runs that repeat another run: a table of what the log above it says, a summary, a quote.

Records with intervals are recognised one by one, to the nanosecond, while they are read. What a
table or a summary says has three decimals and no interval; here whole runs are held against
each other when all has been read, because a mail has its table before its log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from pagepool.results.model import Record

#: What a table shares with the log that it sums up: name, what it is of, cycles, nanoseconds.
_Figure: TypeAlias = tuple[str, str, int, str | None]
#: Below this a figure (an empty loop) is the same in many runs.
_TELLING_NS = 1.0
#: Figures by which others are looked for, and how many runs are looked at for each.
_RAREST = 3
_MOST = 20


class Place(NamedTuple):
    """A run: its records, the text and quote depth that it is from, and its block there.

    ``is_exact``: it comes from a log with intervals; ``is_said``: from a table, a summary, a
    sentence, which people write about figures that they have.
    """

    records: list[Record]
    context: int
    depth: int
    block: int
    is_exact: bool
    is_said: bool


class Copy(NamedTuple):
    """A run that is one: which, the run that it repeats, and where the two disagree."""

    run: int
    of: int
    differing: list[tuple[Record, Record]]


def find(runs: list[Place]) -> list[Copy]:
    """The runs that repeat others, in order."""
    figures = [[_figure(record) for record in run.records] for run in runs]
    where: dict[_Figure, list[int]] = {}
    for index, of_run in enumerate(figures):
        for figure in set(of_run):
            where.setdefault(figure, []).append(index)
    sets = [frozenset(of_run) for of_run in figures]
    copies: list[Copy] = []
    gone: set[int] = set()
    used: set[tuple[int, int, int, int]] = set()
    for index, run in enumerate(runs):
        if run.is_exact:
            continue
        wanted = len(run.records)
        best: tuple[int, int] | None = None
        for other in _candidates(index, sets[index], where):
            shared = sum(figure in sets[other] for figure in figures[index])
            if (
                other not in gone
                and (other, run.context, run.depth, run.block) not in used
                and (shared == wanted or (run.is_said and shared >= 2 and 2 * shared > wanted))
                and _may_repeat(run, index, runs[other], other, shared == wanted)
            ):
                best = max(best or (0, 0), (shared, -other))
        if best is not None:
            other = -best[1]
            gone.add(index)
            used.add((other, run.context, run.depth, run.block))
            copies.append(Copy(index, other, list(_differing(run.records, runs[other].records))))
    return copies


def _candidates(
    index: int, figures: frozenset[_Figure], where: dict[_Figure, list[int]]
) -> Iterable[int]:
    """The runs that share one of the rarest figures of a run; the empty loop's say little.

    Of several because a table may contradict its log in one of them, and not very many, because
    a long log may say the same thousands of times.
    """
    shared = [where[figure] for figure in figures if len(where[figure]) > 1]
    shared.sort(key=len)
    found: dict[int, None] = {}
    for others in shared[:_RAREST]:
        for other in others[:_MOST]:
            if other != index:
                found[other] = None
    return found


def _may_repeat(run: Place, at: int, other: Place, other_at: int, is_whole: bool) -> bool:
    telling = sum((record.ns or 0) >= _TELLING_NS for record in run.records)
    if not telling:
        return False
    if other.is_exact:
        return run.is_said or (is_whole and run.depth != other.depth)
    if other_at > at or not is_whole:
        return False
    # Both were written by hand. Elsewhere it is a quote; in the same text only a whole table
    # says everything twice, and not two columns of one.
    if (run.context, run.depth) != (other.context, other.depth):
        return True
    return telling >= 3 and run.is_said and run.block != other.block


def _figure(record: Record) -> _Figure:
    cpu = -1 if record.cpu is None else record.cpu
    ns = record.ns_printed
    return (
        record.name,
        record.kind,
        cpu,
        f"{record.cycles_printed if ns is None else ns}",
    )


def _differing(said: list[Record], read: list[Record]) -> Iterable[tuple[Record, Record]]:
    """The records of one test where a table and the log that it sums up say unlike figures."""
    by_test = {(record.kind, record.name, record.cpu): record for record in read}
    for record in said:
        other = by_test.get((record.kind, record.name, record.cpu))
        if other is None:
            continue
        both = (record.ns_printed, other.ns_printed)
        cycles = (record.printed_cycles, other.cycles_printed)
        if (None not in both and both[0] != both[1]) or (
            None not in cycles and cycles[0] != cycles[1]
        ):
            yield record, other
