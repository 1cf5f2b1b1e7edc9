# SPDX-License-Identifier: BSD-2-Clause
"""From rounds of slices to rows, and from rows to a table and JSON.

A round runs everything that a row compares back to back. A row's ratio is the median over the
rounds of (ours / theirs) in that round: what disturbs both of a round cancels out, and one
disturbed round does not count. The ratio of the two medians is in the JSON beside it.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peer_process import Slice

FORMAT = "pagepool-peers/1"


@dataclass(frozen=True, order=True)
class Slot:
    """A test of a peer."""

    peer: str
    test: str

    def __str__(self) -> str:
        return f"{self.peer} {self.test}"


@dataclass(frozen=True)
class Comparison:
    """A row to be: ours against theirs. With several of theirs: against the fastest of them."""

    path: str
    ours: Slot
    theirs: tuple[Slot, ...]
    reach: float | None = None  # the ratio to get to, or less

    @property
    def slots(self) -> tuple[Slot, ...]:
        return (self.ours, *self.theirs)


Round = Mapping[Slot, Slice]


@dataclass(frozen=True)
class Spread:
    median: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def json(self) -> dict[str, float]:
        return {"median": self.median, "min": self.min, "max": self.max}


@dataclass(frozen=True)
class Row:
    comparison: Comparison
    theirs: Slot | None  # the one that was compared with
    rounds: int
    ours_ns: Spread | None = None
    ours_cycles: Spread | None = None
    theirs_ns: Spread | None = None
    theirs_cycles: Spread | None = None
    ratio: Spread | None = None
    ratio_of_medians: float | None = None
    skipped: str = ""  # why there are no figures

    @property
    def reached(self) -> bool | None:
        if self.ratio is None or self.comparison.reach is None:
            return None
        return self.ratio.median <= self.comparison.reach

    def json(self) -> dict[str, Any]:
        def spread(value: Spread | None) -> dict[str, float] | None:
            return value.json() if value else None

        return {
            "path": self.comparison.path,
            "ours": str(self.comparison.ours),
            "theirs": str(self.theirs) if self.theirs else None,
            "candidates": [str(slot) for slot in self.comparison.theirs],
            "rounds": self.rounds,
            "ours_ns": spread(self.ours_ns),
            "ours_cycles": spread(self.ours_cycles),
            "theirs_ns": spread(self.theirs_ns),
            "theirs_cycles": spread(self.theirs_cycles),
            "ratio": spread(self.ratio),
            "ratio_of_medians": self.ratio_of_medians,
            "reach": self.comparison.reach,
            "reached": self.reached,
            "skipped": self.skipped or None,
        }


def make_row(comparison: Comparison, rounds: Iterable[Round], missing: Mapping[Slot, str]) -> Row:
    """One row. ``missing`` says of slots that cannot be measured why."""
    present = [slot for slot in comparison.theirs if slot not in missing]
    if comparison.ours in missing:
        return Row(comparison, None, 0, skipped=missing[comparison.ours])
    if not present:
        whys = dict.fromkeys(missing[slot] for slot in comparison.theirs)
        return Row(comparison, None, 0, skipped="; ".join(whys))

    whole = [r for r in rounds if comparison.ours in r and all(slot in r for slot in present)]
    if not whole:
        return Row(comparison, None, 0, skipped="not measured")

    def ns(slot: Slot) -> list[float]:
        return [r[slot].ns_each for r in whole]

    def cycles(slot: Slot) -> list[float]:
        return [r[slot].cycles_each for r in whole]

    # The fastest by its median over the run: picking the fastest anew in each round would
    # reward whoever is noisiest.
    theirs = min(present, key=lambda slot: statistics.median(ns(slot)))
    ours_ns, theirs_ns = ns(comparison.ours), ns(theirs)
    return Row(
        comparison,
        theirs,
        len(whole),
        ours_ns=Spread.of(ours_ns),
        ours_cycles=Spread.of(cycles(comparison.ours)),
        theirs_ns=Spread.of(theirs_ns),
        theirs_cycles=Spread.of(cycles(theirs)),
        ratio=Spread.of([a / b for a, b in zip(ours_ns, theirs_ns, strict=True)]),
        ratio_of_medians=statistics.median(ours_ns) / statistics.median(theirs_ns),
    )


def _figure(value: float) -> str:
    """Three significant digits."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, min(3, 2 - math.floor(math.log10(abs(value)))))
    return f"{value:.{decimals}f}"


def _spread(value: Spread | None) -> str:
    return f"({_figure(value.min)}..{_figure(value.max)})" if value else ""


def _median(value: Spread | None) -> str:
    return _figure(value.median) if value else "-"


def _ratio(value: Spread | None) -> str:
    """A decimal more than a figure: 1.004 misses 1."""
    return f"{value.median:.3f} ({value.min:.2f}..{value.max:.2f})" if value else "-"


def _cycles(value: Spread | None) -> str:
    """A machine without a counter reads 0 everywhere: no figure, rather than a wrong one."""
    return _median(value) if value and value.max > 0 else "-"


HEADER = ("path", "ours", "ns", "cycles", "against", "ns", "cycles", "ratio", "reach", "")
_RIGHT = frozenset({2, 3, 5, 6, 7, 8})


def table(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """The cells of the table, without the header."""
    cells: list[tuple[str, ...]] = []
    dash = ("-", "-")
    for row in rows:
        comparison = row.comparison
        reach = "" if comparison.reach is None else f"<= {comparison.reach:.3g}"
        if row.skipped:
            against = " | ".join(str(slot) for slot in comparison.theirs)
            why = f"skipped: {row.skipped}"
            cells.append((comparison.path, str(comparison.ours), *dash, against, *dash))
            cells[-1] += ("-", reach, why)
            continue
        best = f" (best of {len(comparison.theirs)})" if len(comparison.theirs) > 1 else ""
        verdict = {None: "", True: "reached", False: "missed"}[row.reached]
        cells.append(
            (
                comparison.path,
                str(comparison.ours),
                f"{_median(row.ours_ns)} {_spread(row.ours_ns)}",
                _cycles(row.ours_cycles),
                f"{row.theirs}{best}",
                f"{_median(row.theirs_ns)} {_spread(row.theirs_ns)}",
                _cycles(row.theirs_cycles),
                _ratio(row.ratio),
                reach,
                verdict,
            )
        )
    return cells


def text_table(rows: Iterable[Row]) -> str:
    """The table as text: columns two spaces apart, no escapes, no trailing blanks."""
    lines = [HEADER, *table(rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    widths[-1] = 0
    out = []
    for line in lines:
        padded = [
            cell.rjust(width) if i in _RIGHT else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        out.append("  ".join(padded).rstrip() + "\n")
    return "".join(out)


def document(
    rows: Iterable[Row],
    rounds: Iterable[Round],
    *,
    run: Mapping[str, Any],
    peers: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Everything, for a file: the rows, and each slice that they were made from."""
    return {
        "format": FORMAT,
        "run": dict(run),
        "peers": [dict(peer) for peer in peers],
        "rows": [row.json() for row in rows],
        "rounds": [
            [{"slot": str(slot), **dataclasses.asdict(done)} for slot, done in one.items()]
            for one in rounds
        ],
    }
