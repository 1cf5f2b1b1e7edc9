# SPDX-License-Identifier: BSD-2-Clause
"""Tables of results: org and markdown, tabs, blanks; builds beside each other or below each other.

A row is read as soon as its table's head is known: which columns are cycles, nanoseconds or a rate,
and of which build. Differences and percentages are what somebody computed, and are left. There is
no table without a unit or a test's name in its head, so other tables of a mail are none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import NamedTuple

from pagepool.results import names
from pagepool.results.cells import (
    CHANGE,
    Cell,
    cell,
    is_computed,
    merged,
    nanoseconds,
    plain,
    trailing,
    unit_of_name,
)
from pagepool.results.columns import Figure, figures_of, is_rated, is_time
from pagepool.results.heads import (
    HEAD_ROWS,
    MAX_COLUMNS,
    NARROW_TAB,
    ORDINAL,
    Head,
    Parted,
    aligned_head,
    bar_head,
    fits,
    is_row,
    parted_head,
)
from pagepool.results.lines import BLANK, clean
from pagepool.results.model import Record

#: Lines between the head of a table without rules and its first row, and between its rows.
_REACH = 5
_RULE = re.compile(r":?-*:?|=*")
#: Of columns that are none of times or rates, where a unit stands only beside the names.
_OTHERS = frozenset(
    {"loops", "loop", "count", "counts", "iterations", "iter", "n", "nr", "samples", "size",
     "threads", "cpus", "order", "bytes", "pages", "batch", "step", "packets", "date", "kernel"}
)  # fmt: skip
#: The rule of a table that is drawn: ``+------+-----+``.
_GRID = re.compile(r"\+(?:[-=:]+\+)+")
#: What terminals draw tables with, as text has it.
_DRAWN = {
    **dict.fromkeys(map(ord, "\u2502\u2503\u2551\u2506\u2507\u250a\u250b"), "|"),
    **dict.fromkeys(map(ord, "\u2500\u2501\u2550\u2504\u2505\u2508\u2509"), "-"),
    **dict.fromkeys((*range(0x250C, 0x254C), *range(0x2552, 0x2570)), "+"),
}
_DASHED = re.compile(r"(?P<cycles>\d{1,18})\s+cycles\(tsc\)(?:\s+(?P<ns>\d{1,18}\.\d{1,9})\s+ns)?")


class Entry(NamedTuple):
    """One record of one row: of which build (empty: of that which the text is about)."""

    label: str
    record: Record
    #: The row has one of its figures: another row may have the other one.
    is_part: bool = False


@dataclass(slots=True)
class Table:
    """The table that one text, at one quote depth, may be in."""

    first: int = 0
    _last: int = 0
    _is_bar: bool = False
    _head: Head | None = None
    _rows: list[list[tuple[int, int, str]]] = field(default_factory=list)
    _dashes: list[str] = field(default_factory=list)
    #: Its rows are parted by this, as its head is.
    _parted: Parted | None = None
    _carried: tuple[str, str] = ("", "")
    #: The first line of a table whose figures have no unit; 0: there was none.
    unitless: int = 0

    def bar(self, number: int, text: str) -> list[Entry] | None:
        """A line that begins with a bar or cross: a row's records; ``None``: it is of no table."""
        cells = [] if _GRID.fullmatch(text.strip()) else _bar_cells(text)
        if cells is None:
            return None
        if not self._is_bar or number != self._last + 1:
            self._is_bar, self._rows, self._head, self.first = True, [], None, number
            self._parted = None
        self._last = number
        if all(_RULE.fullmatch(content) for _, _, content in cells):
            return []
        values = [cell(content) for _, _, content in cells]
        if self._head is None:
            if not is_row(self._rows, values):
                is_title = not self._rows or not names.is_test(plain(cells[0][2]))
                if is_title and len(self._rows) < HEAD_ROWS:
                    self._rows.append(cells)
                return []
            self._head = bar_head(self._rows, cells)
        return self._bar_row(self._head, [plain(content) for _, _, content in cells], values)

    def _bar_row(self, head: Head, texts: list[str], values: list[Cell | None]) -> list[Entry]:
        """The records of a row with bars."""
        if max(head.name, head.build) >= len(texts):
            return []
        name, build = texts[head.name], texts[head.build] if head.build >= 0 else ""
        if head.build >= 0:  # what stands once is meant for the rows below it
            name, build = name or self._carried[0], build or self._carried[1]
            self._carried = (name, build)
        figures = [it for at, it in enumerate(values) if at not in (head.name, head.build)]
        entries = _entries(head, name, figures)
        if not entries and not self.unitless and _has_no_unit(head, figures):
            self.unitless = self.first
        return [it._replace(label=build) for it in entries] if build else entries

    def aligned(
        self, number: int, text: str, above: Callable[[], Iterable[tuple[int, str]]]
    ) -> list[Entry] | None:
        """A line of a name and numbers below blanks or tabs (expanded); ``None``: it is none.

        ``above`` gives the lines above it with their numbers, nearest first.
        """
        if (entries := self._parted_row(number, text, above)) is not None:
            return entries
        row = trailing(text, MAX_COLUMNS)
        if row is None:
            return None
        name, cells = row
        if self._is_bar or self._head is None or number - self._last > _REACH:
            lines = list(islice((it for it in above() if it[1].strip()), HEAD_ROWS + 1))
            found = next(filter(None, (aligned_head(lines, it, name) for it in _ways(cells))), None)
            if found is None:
                if not self.unitless and names.is_test(name):
                    self.unitless = number
                return None
            self.first, self._head = found
            self._is_bar, self._rows = False, []
        head = self._head
        width = len(head.columns)
        cells = next((some for some in _ways(cells) if fits(head, some)), cells)
        if len(cells) > width:  # a name may end in a number
            spare = " ".join(it.number for it in cells[:-width] if it)
            name, cells = f"{name} {spare}", cells[-width:]
        if not fits(head, cells) or (name.isdecimal() and not head.is_turned):
            return None
        self._last = number
        return _entries(head, name, cells) or None

    def _parted_row(
        self, number: int, text: str, above: Callable[[], Iterable[tuple[int, str]]]
    ) -> list[Entry] | None:
        """A row of a table whose head says which column has the names: as if it had bars."""
        if self._parted is None or number - self._last > _REACH:
            found = parted_head(above, text)
            if found is None:
                return None
            self.first, self._parted = found
            self._is_bar, self._rows, self._head, self._carried = False, [], None, ("", "")
        contents = self._parted.contents(text)
        if contents is None:
            return None
        self._last = number
        return self._bar_row(
            self._parted.head, [plain(it) for it in contents], [cell(it) for it in contents]
        )

    def dashed(
        self, number: int, text: str, above: Callable[[], Iterable[tuple[int, str]]]
    ) -> list[Entry] | None:
        """``16 - 45 cycles(tsc) 11.357 ns - 47 cycles(tsc) 11.459 ns``: a step, a build each."""
        step, figures = _dashed_cells(text)
        if not figures:
            return None
        labels = self._dashes
        if number - self._last > _REACH or len(labels) < len(figures) + 1:
            for line, title in above():
                labels = re.split(r"\s*-\s+", title.strip())
                if title.strip() and not _dashed_cells(title)[1]:
                    self.first = line
                    break
            if len(labels) < len(figures) + 1 or not labels[0]:
                return None
            self._dashes, self._head = labels, None
        self._last = number
        return [
            Entry(label.strip(), Record(name=labels[0], step=step, printed_cycles=c, printed_ns=ns))
            for label, (c, ns) in zip(labels[1:], figures, strict=False)
        ]


def layout(raw: str, quoted: int) -> str:
    """A line below its quote marks, tabs expanded, so that columns stand where they stood."""
    if quoted:
        marks = re.match(rf"(?:{BLANK}{{0,3}}>){{1,{quoted}}}[ \xa0]?", raw)
        raw = raw[marks.end() :] if marks else raw
    text = "".join(NARROW_TAB if it == "\t" else clean(it) for it in _expanded(raw)).rstrip()
    return text if text.isascii() else text.translate(_DRAWN)


def _expanded(raw: str) -> Iterator[str]:
    """The parts of a line, blanks instead of tabs; but tabs that are one blank wide as they are."""
    column = 0
    for index, part in enumerate(raw.split("\t")):
        if index:
            wide = 8 - column % 8
            yield "\t" if wide == 1 else " " * wide
            column += wide
        yield part
        column += len(part)


def _bar_cells(text: str) -> list[tuple[int, int, str]] | None:
    """Start, end and content of the cells of ``| a | b |``."""
    text = text.strip()
    if len(text) < 3 or text[0] != "|" or not text.endswith("|"):
        return None
    # An org rule has crosses between its columns.
    body = text.replace("+", "|") if re.fullmatch(r"[|+:\s-]+", text) else text
    cells, start = [], 1
    for part in body[1:-1].split("|"):
        cells.append((start, start + len(part), part.strip()))
        start += len(part) + 1
    return cells if len(cells) <= MAX_COLUMNS else None


def _ways(cells: list[Cell | None]) -> Iterator[list[Cell | None]]:
    """The cells of a row; those but for changes, which need no column of their own; its pairs."""
    yield cells
    if CHANGE in cells:
        yield [it for it in cells if it is not CHANGE]
    if any(it is not None and it.unit == "skip" for it in cells):
        yield [it for it in cells if it is None or it.unit != "skip"]
    if (pairs := merged([it for it in cells if it is not CHANGE])) is not None:
        yield pairs


def _dashed_cells(text: str) -> tuple[int, list[tuple[int, str | None]]]:
    """The step of such a row, and its figures; what is computed from them is left."""
    step, *parts = re.split(r"\s+-\s+", text.strip())
    if not parts or not step.isdecimal() or len(step) > 6:
        return 0, []
    matches = [_DASHED.fullmatch(part) for part in parts]
    return int(step), [(int(match["cycles"]), match["ns"]) for match in matches if match]


def _entries(head: Head, name: str, cells: Sequence[Cell | None]) -> list[Entry]:
    """The records of one row."""
    if len(cells) != len(head.columns) or not name or len(name) > 120 or is_computed(name):
        return []
    groups: dict[str, list[Figure]] = {}
    if head.is_turned:
        label = "" if ORDINAL.fullmatch(name) else name.rstrip(":")
        for column, it in zip(head.columns, cells, strict=True):
            if it and column.test:
                groups.setdefault(column.test, []).extend(figures_of(column, it))
        return [
            Entry(label, record)
            for test, figures in groups.items()
            if (record := _record(test, figures)) is not None
        ]
    name, unit, scale = unit_of_name(name)
    if unit == "skip" or (not name.isdecimal() and cell(name)):
        return []  # of percentages; a figure: the names stand elsewhere
    is_part, is_rate = unit in ("cycles", "ns", "pps"), is_rated(name)
    if not unit:
        unit, scale = head.unit, head.scale
    is_titled = any(column.has_title for column in head.columns)
    for column, it in zip(head.columns, cells, strict=True):
        if it is None or column.unit == "skip":
            continue
        if not column.unit:
            if is_titled and not column.has_title:
                continue  # nobody knows what it is
            if not _OTHERS.intersection(column.label.lower().split()):
                column = column._replace(unit=unit, scale=scale)
        groups.setdefault(column.label, []).extend(figures_of(column, it, is_rate))
    test = names.full_name(name, head.glob)
    return [
        Entry(label, record, is_part)
        for label, figures in groups.items()
        if (record := _record(test, figures)) is not None
    ]


def _has_no_unit(head: Head, cells: Sequence[Cell | None]) -> bool:
    """Whether a row has figures, and nothing says of what: neither its head nor they."""
    columns = (head.unit, *(column.unit for column in head.columns))
    plain = [it for it in cells if it and not it.is_signed]
    return bool(plain) and not any(map(is_time, (*columns, *(it.unit for it in plain))))


def _record(name: str, figures: Sequence[Figure]) -> Record | None:
    cycles = ns = pps = None
    for number, unit, scale in figures:
        if unit == "cycles" and "." not in number:
            cycles = int(number)
        elif unit == "ns":
            ns = nanoseconds(number, scale)
        elif unit == "pps":
            pps = round(Decimal(number) * scale)
    if cycles is None and ns is None and not pps:
        return None
    if pps:
        return Record(name=name, kind="rate", pps=pps)
    if parts := names.cpu_of(name):
        return Record(name=parts[0], kind="cpu", cpu=parts[1], printed_cycles=cycles, printed_ns=ns)
    if name.endswith(" average"):
        return Record(name=name.removesuffix(" average"), kind="sum", printed_cycles=cycles)
    return Record(name=name, printed_cycles=cycles, printed_ns=ns)
