# SPDX-License-Identifier: BSD-2-Clause
"""Where things stand in the pictures of a page: geometry and words, no markup.

Across, places are per cent of the width, so that a picture is as wide as its page is; down, they
are pixels. A picture has its runs as points, or only the range of each build where a page has to
stay small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import groupby, pairwise
from typing import NamedTuple, TypeAlias

from pagepool.compare import decisions
from pagepool.compare.report import METRICS, Metric, Report, Side, figure
from pagepool.compare.statistics import median_index
from pagepool.compare.verdict import Verdict
from pagepool.results.model import Key
from pagepool.results.words import count

UNITS: dict[Metric, str] = {"ns": "ns", "cycles": "cycles", "instructions": "instructions"}

#: Pixels: the height of a strip, and where the first and last run of it stand.
STRIP_HEIGHT = 30
_STRIP_EDGE = 7
#: Pixels: where the values of columns begin and end, below the words on top.
COLUMNS_TOP, COLUMNS_BOTTOM = 34, 214
#: The share of the middle value that an axis spans at least: noise of 0.1 % is not to look large.
_LEAST_SPAN = 0.04
#: More builds than this do not fit below each other.
MOST_STRIPS = 6
#: More builds than this leave no room for words in the picture.
_MOST_WORDS = 20
_LONGEST_LABEL = 16


class Scale(NamedTuple):
    """An axis from ``low`` to ``high``, and the values that are written at it."""

    low: float
    high: float
    ticks: tuple[float, ...]
    digits: int

    def at(self, value: float) -> float:
        """A share of the axis, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def scale(values: Iterable[float], most_ticks: int = 5) -> Scale:
    """An axis for these values, with some room around them; it need not begin at 0."""
    known = list(values)
    low, high = min(known), max(known)
    middle = (low + high) / 2
    half = max((high - low) / 2, abs(middle) * _LEAST_SPAN / 2, 0.01) * 1.12
    low, high = (max(0.0, middle - half) if low >= 0 else middle - half), middle + half
    rough = (high - low) / most_ticks
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * power for unit in (1, 2, 5, 10) if unit * power >= rough * (1 - 1e-9))
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Scale(low, high, tuple(step * at for at in range(first, last + 1)), digits)


class Value(NamedTuple):
    """What one run measured: exact and as printed, the number of the run, and where it stands."""

    exact: float
    printed: Decimal
    run: int
    source: str

    def told(self, unit: str) -> str:
        """The run in words."""
        where = f", {self.source}" if self.source else ""
        return f"run {self.run}: {self.printed} {unit}{where}"


#: The runs of a test, by the place of the build in the report.
Runs: TypeAlias = dict[int, list[Value]]


class Measured(NamedTuple):
    """The runs of a test in the metric that it is judged in."""

    metric: Metric
    runs: Runs


def runs(report: Report, metric: Metric) -> dict[Key, Runs]:
    """Every run of each test that can be used, of all builds."""
    found: dict[Key, Runs] = {}
    for place, build in enumerate(report.builds):
        for number, run in enumerate(build.runs, 1):
            for record in run.records:
                if record.is_usable and (known := figure(record, metric)):
                    source = str(record.source) if record.source else ""
                    of_test = found.setdefault(record.key, {})
                    of_test.setdefault(place, []).append(Value(*known, number, source))
    return found


def measured(report: Report) -> dict[Key, Measured]:
    """Each test in the metric that most builds have, of these times before instructions."""
    found: dict[Key, Measured] = {}
    for metric in dict.fromkeys((*decisions.TIMES, *METRICS)):
        if metric in report.metrics:
            for key, of_test in runs(report, metric).items():
                if key not in found or len(of_test) > len(found[key].runs):
                    found[key] = Measured(metric, of_test)
    return found


class Point(NamedTuple):
    """One run: per cent, pixels, and its words."""

    x: float
    y: float
    told: str


class Mark(NamedTuple):
    """A word beside a build: the verdict, and by how much."""

    kind: str
    size: str


class Tick(NamedTuple):
    """A text at an axis: per cent across or pixels down."""

    at: float
    text: str


class Lot(NamedTuple):
    """The runs of one build in a picture.

    ``at`` is per cent of the width for a column; ``low``, ``high`` and ``middle`` (the median)
    are per cent in a strip, pixels in a column.
    """

    side: Side
    at: float
    points: tuple[Point, ...]
    low: float
    high: float
    middle: float
    printed: str
    values: tuple[str, ...]
    told: str
    mark: Mark | None

    @property
    def dots(self) -> str:
        """The points as a path, in a box 1000 wide."""
        return dots(self.points)


class Chart(NamedTuple):
    """One test in a picture.

    ``strips``: a build below the other, values across; else a column a build, in a picture
    ``least_width`` pixels wide at least. ``margin``: where a median counts as the same as the
    first build's, per cent from and width. The rest is of columns, paths and points of a box
    1000 wide: medians, ranges, runs, and over builds in order ``lines`` through the medians and
    ``bands`` of the ranges.
    """

    name: str
    unit: str
    strips: bool
    ticks: tuple[Tick, ...]
    lots: tuple[Lot, ...]
    margin: tuple[float, float] | None = None
    least_width: int = 0
    words: bool = True
    medians: str = ""
    ranges: str = ""
    dots: str = ""
    lines: tuple[str, ...] = ()
    bands: tuple[str, ...] = ()


class Foot(NamedTuple):
    """What stands below the columns of all pictures of a page: names of builds, total height."""

    labels: tuple[Tick, ...]
    height: int


def chart(report: Report, name: str, found: Measured, said: dict[str, Verdict]) -> Chart:
    """The picture of a test: ``said`` has the verdicts on it, by the name of the build."""
    beside = report.series or len(report.sides) > MOST_STRIPS
    return (_columns if beside else _strips)(report, name, found, said)


def _strips(report: Report, name: str, found: Measured, said: dict[str, Verdict]) -> Chart:
    axis = scale(value.exact for values in found.runs.values() for value in values)
    unit = UNITS[found.metric]
    lots = []
    for place, values in found.runs.items():
        room = STRIP_HEIGHT - 2 * _STRIP_EDGE
        # From top to bottom in the order of the runs: a drift can be seen.
        downs = [
            _STRIP_EDGE + room * (at / (len(values) - 1) if len(values) > 1 else 0.5)
            for at in range(len(values))
        ]
        places = [
            (axis.at(value.exact) * 100, down) for value, down in zip(values, downs, strict=True)
        ]
        lots.append(
            _lot(
                report.sides[place],
                values,
                unit,
                places,
                [axis.at(value.exact) * 100 for value in values],
                said,
            )
        )
    margin = None
    if found.metric == "ns":
        first = next(iter(found.runs.values()))
        before = first[median_index([value.exact for value in first])].exact
        half = max(before * report.margin.percent / 100, report.margin.ns)
        low, high = (min(1, max(0, axis.at(before + by))) * 100 for by in (-half, half))
        margin = (low, high - low)
    ticks = _ticks(axis, [axis.at(tick) * 100 for tick in axis.ticks])
    return Chart(name, unit, True, ticks, tuple(lots), margin)


def _columns(report: Report, name: str, found: Measured, said: dict[str, Verdict]) -> Chart:
    axis = scale(value.exact for values in found.runs.values() for value in values)
    unit = UNITS[found.metric]

    def down(value: float) -> float:
        return COLUMNS_BOTTOM - axis.at(value) * (COLUMNS_BOTTOM - COLUMNS_TOP)

    number = len(report.sides)
    slot = 100 / _slots(number)
    lots: dict[int, Lot] = {}
    for place, values in found.runs.items():
        across = _across(place, number)
        # Beside each other in the order of the runs.
        shifts = [
            slot * 0.2 * (at / (len(values) - 1) - 0.5) if len(values) > 1 else 0.0
            for at in range(len(values))
        ]
        downs = [down(value.exact) for value in values]
        places = [(across + shift, at) for shift, at in zip(shifts, downs, strict=True)]
        lots[place] = _lot(report.sides[place], values, unit, places, downs, said, across)
    lines, bands = [], []
    if report.series:
        # A build without the test ends the line.
        for _, group in groupby(enumerate(lots), key=lambda pair: pair[1] - pair[0]):
            part = [lots[place] for _, place in group]
            lines.append(" ".join(f"{lot.at * 10:.0f},{lot.middle:.0f}" for lot in part))
            upper = [f"{lot.at * 10:.0f},{lot.high:.0f}" for lot in part]
            lower = [f"{lot.at * 10:.0f},{lot.low:.0f}" for lot in part]
            bands.append(" ".join([*upper, *reversed(lower)]))
    half = slot * 10 * 0.16
    words = number <= _MOST_WORDS
    return Chart(
        name,
        unit,
        False,
        _ticks(axis, [down(tick) for tick in axis.ticks]),
        tuple(lots.values()),
        least_width=round(_slots(number) * (66 if words else 16)),
        words=words,
        medians="".join(
            f"M{lot.at * 10 - half:.0f} {lot.middle:.1f}h{2 * half:.0f}" for lot in lots.values()
        ),
        ranges="".join(f"M{lot.at * 10:.0f} {lot.high:.0f}V{lot.low:.0f}" for lot in lots.values()),
        dots=dots([point for lot in lots.values() for point in lot.points]),
        lines=tuple(lines),
        bands=tuple(bands),
    )


def _room(number: int) -> float:
    """So many columns are left free for the axis, whatever the number of builds."""
    return max(1.0, number / 14)


def _slots(number: int) -> float:
    return number - 1 + _room(number) + 0.7


def _across(place: int, number: int) -> float:
    return (place + _room(number)) / _slots(number) * 100


def foot(report: Report) -> Foot:
    """The names below all columns of a report."""
    number = len(report.sides)
    labels = [shorten(side.name) for side in report.sides]
    height = COLUMNS_BOTTOM + 20 + round(max(map(len, labels)) * 5.8)
    ticks = tuple(Tick(_across(place, number), label) for place, label in enumerate(labels))
    return Foot(ticks, height)


def _ticks(axis: Scale, places: Sequence[float]) -> tuple[Tick, ...]:
    return tuple(
        Tick(at, f"{tick:.{axis.digits}f}") for at, tick in zip(places, axis.ticks, strict=True)
    )


def _lot(
    side: Side,
    values: Sequence[Value],
    unit: str,
    places: Sequence[tuple[float, float]],
    along: Sequence[float],
    said: dict[str, Verdict],
    at: float = 0.0,
) -> Lot:
    """``places`` across and down, ``along`` the axis of the values."""
    middle = median_index([value.exact for value in values])
    by_size = sorted(range(len(values)), key=lambda index: values[index].exact)
    least, most = by_size[0], by_size[-1]
    told = f"{side.name}: {count(len(values), 'run')}, median {values[middle].printed} {unit}"
    if len(values) > 1:
        told += f", {values[least].printed}..{values[most].printed}"
    it = said.get(side.name)
    mark = None
    if it and it.method != "none":
        mark = Mark(it.kind, f"{it.percent.estimate:+.1f} %" if it.percent else "")
        told += f", {mark.kind} {mark.size}".rstrip()
    return Lot(
        side=side,
        at=at,
        points=tuple(
            Point(x, y, value.told(unit)) for value, (x, y) in zip(values, places, strict=True)
        ),
        low=along[least],
        high=along[most],
        middle=along[middle],
        printed=str(values[middle].printed),
        values=tuple(str(value.printed) for value in values),
        told=told,
        mark=mark,
    )


def dots(points: Iterable[Point]) -> str:
    """A path that is only round ends, one a point, in a box 1000 wide: a few bytes each."""
    at = [(round(point.x * 10), round(point.y)) for point in points]
    moves = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise([(0, 0), *at])]
    return "".join(f"m{x}{'' if y < 0 else ' '}{y}h0" for x, y in moves)


def shorten(label: str) -> str:
    """A label for the foot of a column: of a long one its beginning and its end."""
    if len(label) <= _LONGEST_LABEL:
        return label
    return f"{label[:6]}…{label[-(_LONGEST_LABEL - 7) :]}"


def short(value: float) -> str:
    """A place with two decimals, and without the zeros at their end."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
