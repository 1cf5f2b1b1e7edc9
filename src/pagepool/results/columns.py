# SPDX-License-Identifier: BSD-2-Clause
"""The columns of tables: what their titles say of the figures below, and these in their unit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pagepool.results import names
from pagepool.results.cells import PAIRS, Cell, Unit, unit_of

#: Say nothing of whose figures a column has.
_NO_LABELS = frozenset(
    {"avg", "average", "mean", "median", "time", "cpu", "cost", "per", "elem", "latency",
     "operation", "op", "p50", "50th"}
)  # fmt: skip
#: Beside these totals in ms are none of what is looked for.
_FINE = frozenset({"cycles", *PAIRS.values()})
#: Behind a unit: what the cells have in brackets.
_SPREADS = frozenset(
    {"stddev", "stdev", "std", "std.", "dev", "sd", "sem", "\u03c3", "\u00b1", "+-", "+/-"}
)
_WORD = re.compile(r"[^\s|`*]+")
#: ``time(ns)``: a unit that nothing divides from its word.
_ATTACHED = re.compile(r"(?P<word>[^()\[\]]+)[(\[](?P<unit>[^()\[\]]+)[)\]]:?")
#: An English word, too: where it may be one it is a unit only in brackets.
_AMBIGUOUS = frozenset({"us"})
_DIFFERENCE = re.compile(r"(?P<one>.+?)\s*[-/\u2212]\s*(?P<other>.+)")


class Column(NamedTuple):
    """What stands in a column: its build (may be empty), unit and scale, or the test it is of.

    ``has_spread``: its title says that the cells have one in brackets.
    """

    label: str
    unit: Unit
    scale: int = 1
    test: str = ""
    has_title: bool = True
    has_spread: bool = False


def column_of(titles: Sequence[str], is_prose: bool = False) -> Column:
    """What a column is, of its own titles from the top down.

    ``is_prose``: the words may be those of a sentence, where ``us`` is no unit.
    """
    unit: Unit = ""
    scale, has_spread = 1, False
    label: list[str] = []
    for title in titles:
        here: list[Unit] = []
        for word in _WORD.findall(title):
            bare, known = _known(word)
            if is_prose and word.lower() in _AMBIGUOUS:
                bare, known = word, None
            if here and word.lower().strip("()[],") in _SPREADS:
                has_spread = True
                continue
            if known is not None:
                here.append(known[0])
                if unit != "skip":
                    unit, scale = known
            if bare and bare not in label and bare.lower() not in _NO_LABELS:
                label.append(bare)
        if len(here) > len({*here}):
            unit = "skip"  # two titles that nothing divides
        elif {"cycles", "ns"} <= {*here}:  # two figures in a cell
            unit, scale = PAIRS.get((here[0], here[1]), "skip") if len(here) == 2 else "skip", 1
    text = " ".join(label)
    if names.is_test(text):
        return Column("", unit, scale, names.full_name(text), has_spread=has_spread)
    has_title = any(title.strip() for title in titles)
    return Column(text, unit, scale, has_title=has_title, has_spread=has_spread)


def _known(word: str) -> tuple[str, tuple[Unit, int] | None]:
    """What a word of a title is: a label (may be empty), a unit, or both (``before(ns)``)."""
    known = unit_of(word) or unit_of(word.strip("()[],:"))
    if known is not None:
        return "", known
    if (match := _ATTACHED.fullmatch(word)) is not None:
        known = unit_of(match["unit"])
        if known is not None:
            return match["word"], known
    return word.strip("()[],:"), None


def columns_of(titles: Sequence[Sequence[str]], is_prose: bool = False) -> tuple[Column, ...]:
    """All of them, each with its titles from the top down."""
    columns: list[Column] = []
    carried: Column | None = None
    for one in titles:
        column = column_of(one, is_prose)
        if column.unit not in ("", "skip"):
            # `Cycles` may stand above the first of its columns only; a unit in the lowest row is
            # that column's alone.
            carried = None if column_of(one[-1:], is_prose).unit else column
        elif carried is not None and not column.unit and not column.test:
            column = column._replace(unit=carried.unit, scale=carried.scale)
        columns.append(column)
    return tuple(_apart(list(_left_out(columns))))


def _left_out(columns: Sequence[Column]) -> Iterator[Column]:
    """The columns; those of ``after - before``, and totals in ms beside ns, are not read."""
    labels = {it.label for it in columns}
    is_fine = any(it.unit in _FINE or (it.unit == "ns" and it.scale == 1) for it in columns)
    for column in columns:
        match = _DIFFERENCE.fullmatch(column.label)
        is_computed = match is not None and {match["one"], match["other"]} <= labels
        if is_computed or (is_fine and column.unit == "ns" and column.scale != 1):
            column = column._replace(unit="skip")
        yield column


def _apart(columns: Sequence[Column]) -> list[Column]:
    """Two columns of one unit and one build are of two that nobody has named."""
    whole = [(it.label, it.unit) for it in columns if it.unit not in ("", "skip") and not it.test]
    seen: dict[tuple[str, Unit], int] = {}
    found = []
    for column in columns:
        key = (column.label, column.unit)
        if not column.test and whole.count(key) > 1:
            seen[key] = seen.get(key, 0) + 1
            column = column._replace(label=f"{column.label} column {seen[key]}".strip())
        found.append(column)
    return found


def has_unit(title: str) -> bool:
    """Whether a title says of times or rates what they are in."""
    return is_time(column_of([title]).unit)


def is_rated(test: str) -> bool:
    """Whether a test's figures are packets a second by its name."""
    return test.startswith("XDP_")


def is_time(unit: Unit) -> bool:
    """Whether it is one of what is measured here: times, cycles or rates."""
    return unit in ("cycles", "ns", "pps", *PAIRS.values())


class Figure(NamedTuple):
    """A number, its unit, and how many ns or packets a second that is."""

    number: str
    unit: Unit
    scale: int


def figures_of(column: Column, it: Cell, is_rate: bool = False) -> list[Figure]:
    """A cell in its column: its own unit goes before that of the column."""
    unit, scale = (it.unit, it.scale) if it.unit else (column.unit, column.scale)
    is_pair = unit in PAIRS.values()
    is_doubtful = not it.second if is_pair else it.second and not column.has_spread
    if it.is_signed or is_doubtful:
        return []  # a pair where one figure is expected, or one for two
    if is_pair:
        pair = {"cycles": it.number, "ns": it.second}
        if unit == "ns/cycles":
            pair = {"cycles": it.second, "ns": it.number}
        if "." in pair["cycles"]:
            return []  # the other way round
        return [Figure(pair["cycles"], "cycles", 1), Figure(pair["ns"], "ns", 1)]
    if unit == "factor":
        is_rate = is_rate or column.unit == "pps" or is_rated(column.test)
        unit = "pps" if is_rate else "skip"
    return [Figure(it.number, unit, scale)]


def says_time(it: Cell, is_rate: bool) -> bool:
    """Whether a cell says of itself what it is."""
    figures = figures_of(Column("", ""), it, is_rate)
    return bool(figures) and all(is_time(figure.unit) for figure in figures)
