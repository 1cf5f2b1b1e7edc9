# SPDX-License-Identifier: BSD-2-Clause
"""Cells of tables and the units in their heads, their rows' names and themselves.

A cell is one figure, or the two of time_bench (``19 cycles (5.399 ns)``, ``19/5.399``). What people
add to it is left: a spread (``19 +- 1``), a change (``5.1 (-4%)``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Literal, NamedTuple, TypeAlias

#: ``skip``: computed from figures, or no time at all; ``factor``: a bare k, M or G, which only a
#: rate has; ``cycles/ns``: two figures in each cell, in this order.
Unit: TypeAlias = Literal["cycles", "ns", "pps", "skip", "factor", "cycles/ns", "ns/cycles", ""]

#: The units of two figures, by those of each.
PAIRS: dict[tuple[Unit, Unit], Unit] = {
    ("cycles", "ns"): "cycles/ns",
    ("ns", "cycles"): "ns/cycles",
}

_UNITS: dict[str, tuple[Unit, int]] = {
    **dict.fromkeys(("cycles", "cycle", "cyc", "cycles(tsc)"), ("cycles", 1)),
    **dict.fromkeys(("ns", "nsec", "nsecs", "nanosec", "nanosecs"), ("ns", 1)),
    **dict.fromkeys(("nanosecond", "nanoseconds"), ("ns", 1)),
    **dict.fromkeys(("us", "usec", "usecs", "\u00b5s", "\u03bcs"), ("ns", 10**3)),
    **dict.fromkeys(("microsecond", "microseconds"), ("ns", 10**3)),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), ("ns", 10**6)),
    **dict.fromkeys(("pps", "pkt/s", "pkts/s", "packets/s", "packets/sec"), ("pps", 1)),
    **dict.fromkeys(("kpps", "kpkt/s", "kpkts/s"), ("pps", 10**3)),
    **dict.fromkeys(("mpps", "mpkt/s", "mpkts/s"), ("pps", 10**6)),
    **dict.fromkeys(("gpps",), ("pps", 10**9)),
    **dict.fromkeys(("%", "percent", "diff", "diff%", "delta", "change", "ratio"), ("skip", 1)),
    **dict.fromkeys(("speedup", "improvement", "instr", "verdict", "runs", "gain"), ("skip", 1)),
    **dict.fromkeys(("min..max", "min", "max", "stddev", "stdev", "readable"), ("skip", 1)),
    **dict.fromkeys(("diff.", "delta%", "\u03b4", "\u03b4%", "vs", "vs.", "\u00b1"), ("skip", 1)),
    **dict.fromkeys(("p90", "p95", "p99", "p99.9", "90th", "95th", "99th"), ("skip", 1)),
}
_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9}
#: ``ns/op``.
_EACH = frozenset({"op", "elem", "element", "page", "pkt", "packet", "iter", "call", "loop"})
#: Rows of what somebody has computed from the rows above.
_COMPUTED = re.compile(
    r"(?:diff(?:erence)?|delta|\u0394|changes?|ratio|speed-?up|improvement|gain|percent|std\.? ?dev"
    r"|stddev|stdev)?\s*(?:[(\[]?%[)\]]?)?:?",
    re.IGNORECASE,
)

_PLAIN = r"(?:\d{1,3}(?:,\d{3})+|\d{1,18})(?:\.\d{1,9})?"
_UNIT = (
    r"(?:n(?:s(?:ecs?)?|anosec(?:ond)?s?)|[u\u00b5\u03bc]s(?:ecs?)?|ms(?:ecs?)?"
    r"|cyc(?:les?)?(?:\(tsc\))?)(?:/[a-z]{2,7})?"
    r"|[kKMG]?(?:pps|pkts?/s)|[kKMG]|%"
)
#: What stands behind a figure in brackets: ``(-4.0%)``, ``(+0.2 ns, 4 % slower)``, ``(1.04x)``.
_ITEM = (
    rf"(?:(?:[-+\u2212\u00b1]|\+/-|\+-)\s*{_PLAIN}\s*(?:{_UNIT})?"
    rf"|{_PLAIN}\s*%(?: [a-z]{{1,12}})?|{_PLAIN}x)"
)
_CHANGE = rf"[(\[]\s*{_ITEM}(?:\s*[,;/]\s*{_ITEM})*\s*[)\]]"
_SPREAD = rf"(?:\u00b1|\+/?-)\s*{_PLAIN}\s*%?"
_MARK = r"[`*=~]*"
_CELL = re.compile(
    rf"{_MARK}(?P<number>[+-]?{_PLAIN}){_MARK}\s*(?P<unit>{_UNIT})?{_MARK}"
    rf"(?:\s*{_SPREAD}\s*(?P<after>{_UNIT})?{_MARK})?(?:\s*{_CHANGE}|\s+[-+]{_PLAIN}\s*%)?{_MARK}"
)
_FIGURE = rf"{_PLAIN}(?:\s*{_UNIT})?"
_PAIR = re.compile(
    rf"(?P<one>{_FIGURE})(?:(?P<apart>\s*[/,]\s*|\s+)(?P<other>{_FIGURE})"
    rf"|\s*[/,]?\s*[(\[]\s*(?P<inside>{_FIGURE})\s*[)\]])"
)
#: A pair in a row without bars, where blanks part the cells.
_ROW_PAIR = re.compile(rf"(?<![\w.])({_FIGURE})\s*(?:\(\s*({_FIGURE})\s*\)|/\s*({_FIGURE}))(?!\S)")
_UNIT_WORD = re.compile(_UNIT)
_ROW_SPREAD = re.compile(rf"(?<=[\w.%])\s*{_SPREAD}(?![\w.])")
_ROW_CHANGE = re.compile(_CHANGE)
_NAME_UNIT = re.compile(r"(?P<name>.*\S)\s*(?:[(\[]\s*(?P<unit>[^\s()\[\]]{1,20})\s*[)\]])")


class Cell(NamedTuple):
    """A number as it is written, and the unit beside it; or two, whose unit is that of a pair."""

    number: str
    unit: Unit = ""
    scale: int = 1
    second: str = ""

    @property
    def is_signed(self) -> bool:
        """A difference: no figure has a sign."""
        return self.number[:1] in ("+", "-")


#: A change in brackets, where it stands for itself.
CHANGE = Cell("", "skip")


def unit_of(word: str) -> tuple[Unit, int] | None:
    """What a word says of figures: their unit, and how many ns or packets a second it is."""
    word = word.lower()
    found = _UNITS.get(word)
    if found is None and "/" in word:
        word, _, what = word.partition("/")
        found = _UNITS.get(word)
        if found is None or found[0] not in ("cycles", "ns"):
            return None
        if what in _EACH:
            return found
        pair = PAIRS.get((found[0], _UNITS.get(what, found)[0]))
        return None if pair is None or found[1] * _UNITS[what][1] != 1 else (pair, 1)
    return found


def cell(text: str) -> Cell | None:
    """The figure in a cell, or the pair; ``None``: there is none, or more than that."""
    match = _CELL.fullmatch(text)
    if match is None:
        return _pair(text)
    suffix = (match["unit"] or match["after"] or "").lower()
    number = match["number"].replace(",", "")
    if suffix in _FACTORS:
        return Cell(number, "factor", _FACTORS[suffix])
    if not suffix:
        return Cell(number)
    found = unit_of(suffix)
    return None if found is None else Cell(number, *found)


def _pair(text: str) -> Cell | None:
    """``19 cycles (5.399 ns)``, ``19 / 5.399``: both with a unit, or neither; ``5 ns (0.1)``."""
    match = _PAIR.fullmatch(plain(text))
    if match is None:
        return None
    one, other = cell(match["one"]), cell(match["other"] or match["inside"])
    if one is None or other is None:
        return None
    if one.unit and not other.unit and match["inside"]:
        return one  # that is its spread
    if not (one.unit or other.unit) and (match["inside"] or match["apart"].strip()):
        return Cell(one.number, second=other.number)
    return _both(one, other)


def _both(one: Cell, other: Cell) -> Cell | None:
    """One cell of two with their units; ``None``: they are not of time_bench."""
    unit = PAIRS.get((one.unit, other.unit))
    if unit is None or one.scale != other.scale:
        return None
    return Cell(one.number, unit, second=other.number)


def trailing(text: str, most: int) -> tuple[str, list[Cell | None]] | None:
    """Name and cells of a row without bars: from its end to the left, as far as there are numbers.

    ``most``: how many cells a table may have.
    """
    if any(mark in text for mark in "(\u00b1+["):
        text = _ROW_CHANGE.sub(" (%) ", _ROW_SPREAD.sub(" ", text))
    if "(" in text or "/" in text:
        text = _ROW_PAIR.sub(_one_word, text)
    words = text.split()
    if not 2 <= len(words) <= 2 * most:
        return None
    cells: list[Cell | None] = []
    unit = ""
    while len(words) > 1:
        word = words[-1]
        if not unit and _UNIT_WORD.fullmatch(word) and word not in "kKMG":
            unit = word
        elif word == "-" and not unit:
            cells.append(None)
        elif word == "(%)" and not unit:
            cells.append(CHANGE)
        elif (found := cell(word + unit)) is not None:
            cells.append(found)
            unit = ""
        else:
            break
        words.pop()
    if unit or not any(it is not CHANGE for it in cells if it):
        return None
    cells.reverse()
    return " ".join(words), cells


def _one_word(match: re.Match[str]) -> str:
    """A pair without its blanks and brackets; what is none as it was."""
    one, inside, other = match.groups()
    word = (f"{one}({inside})" if inside else f"{one}/{other}").replace(" ", "")
    return word if cell(word) is not None else match[0]


def merged(cells: Sequence[Cell | None]) -> list[Cell | None] | None:
    """``19 cycles 5.399 ns`` twice and more: the pairs of these; ``None``: they are none."""
    found: list[Cell | None] = []
    for one, other in zip(cells[::2], cells[1::2], strict=False):
        if one is None or other is None or (pair := _both(one, other)) is None:
            return None
        found.append(pair)
    return found if found and len(cells) % 2 == 0 else None


def is_computed(name: str) -> bool:
    """Whether a row is one of differences or percentages, by its name."""
    return bool(name) and _COMPUTED.fullmatch(name) is not None


def plain(text: str) -> str:
    """A name without the marks that make it bold or code."""
    return text.strip("`*=~ ")


def unit_of_name(name: str) -> tuple[str, Unit, int]:
    """The unit behind a row's name, and the name without it: ``fast path (ns)``, ``slow [us]``."""
    match = _NAME_UNIT.fullmatch(name)
    if match is not None:
        unit, scale = unit_of(match["unit"]) or ("", 1)
        if unit in ("cycles", "ns", "pps", *PAIRS.values()):
            return plain(match["name"]), unit, scale
        if match["unit"] == "%":
            return plain(match["name"]), "skip", 1
    return name, "", 1


def nanoseconds(number: str, scale: int) -> str:
    """As a record has them, of a number of units of ``scale`` ns: digits as they were written."""
    if scale == 1:
        return number if "." in number else f"{number}.0"
    # No digits but those that were written, and no more than time_bench has.
    whole, _, fraction = f"{Decimal(number) * scale:f}".partition(".")
    return f"{whole}.{fraction[:3].rstrip('0') or '0'}"
