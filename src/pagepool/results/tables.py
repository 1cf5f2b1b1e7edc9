# SPDX-License-Identifier: BSD-2-Clause
"""Tables of results: org and markdown, tabs, blanks; builds beside each other or below each other.

A row is read as soon as its table's head is known: which columns are cycles, nanoseconds or a rate,
and of which build. Differences and percentages are what somebody computed, and are left. There is
no table without a unit or a test's name in its head, so other tables of a mail are none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple, TypeAlias

from pagepool.results import headings, names
from pagepool.results.cells import (
    CHANGE,
    Cell,
    Unit,
    cell,
    is_computed,
    nanoseconds,
    plain,
    trailing,
    unit_of,
    unit_of_name,
)
from pagepool.results.lines import BLANK, clean
from pagepool.results.model import Record

#: More columns are no table that a person wrote.
_MAX_COLUMNS = 40
#: Lines between the head of a table without rules and its first row, and between its rows.
_REACH = 5
_HEAD_ROWS = 4

#: Say nothing of whose figures a column has.
_NO_LABELS = frozenset(
    {"avg", "average", "mean", "median", "time", "cpu", "cost", "per", "elem", "latency",
     "operation", "op", "p50", "50th"}
)  # fmt: skip
_RULE = re.compile(r":?-*:?|=*")
_WORD = re.compile(r"[^\s|`*]+")
#: ``time(ns)``: a unit that nothing divides from its word.
_ATTACHED = re.compile(r"(?P<word>[^()\[\]]+)[(\[](?P<unit>[^()\[\]]+)[)\]]:?")
#: An English word, too: where it may be one it is a unit only in brackets.
_AMBIGUOUS = frozenset({"us"})
#: Titles of the columns of names, of builds, and of mere numbers of rows.
_NAMES = frozenset(
    {"test", "tests", "test name", "name", "benchmark", "bench", "case", "test case", "testcase",
     "workload", "function", "operation"}
)  # fmt: skip
_BUILDS = frozenset(
    {"kernel", "kernel version", "build", "version", "branch", "tree", "commit", "patch", "series"}
)
_ORDINALS = frozenset({"", "#", "no", "no.", "nr", "nr.", "id", "run", "idx", "index"})
#: Of columns that are none of times or rates, where a unit stands only beside the names.
_OTHERS = frozenset(
    {"loops", "loop", "count", "counts", "iterations", "iter", "n", "nr", "samples", "size",
     "threads", "cpus", "order", "bytes", "pages", "batch", "step", "packets", "date", "kernel"}
)  # fmt: skip
_DIFFERENCE = re.compile(r"(?P<one>.+?)\s*[-/\u2212]\s*(?P<other>.+)")
#: The rule of a table that is drawn: ``+------+-----+``.
_GRID = re.compile(r"\+(?:[-=:]+\+)+")
#: What terminals draw tables with, as text has it.
_DRAWN = {
    **dict.fromkeys(map(ord, "\u2502\u2503\u2551\u2506\u2507\u250a\u250b"), "|"),
    **dict.fromkeys(map(ord, "\u2500\u2501\u2550\u2504\u2505\u2508\u2509"), "-"),
    **dict.fromkeys((*range(0x250C, 0x254C), *range(0x2552, 0x2570)), "+"),
}
_SPACED = re.compile(r"\S+(?: \S+)*")
_GLOB = re.compile(r"\(?([\w*-]*\*[\w*-]*)\)?")
_DASHED = re.compile(r"(?P<cycles>\d{1,18})\s+cycles\(tsc\)(?:\s+(?P<ns>\d{1,18}\.\d{1,9})\s+ns)?")
_ORDINAL = re.compile(r"(?:run ?|#)?\d{1,4}[.):]?", re.IGNORECASE)
_VERSION = re.compile(r"[<>=~v]{0,3}\d{1,3}\.\d{1,3}[\w.+-]*:?")


class Column(NamedTuple):
    """What stands in a column: its build (may be empty), unit and scale, or the test it is of."""

    label: str
    unit: Unit
    scale: int = 1
    test: str = ""
    has_title: bool = True


class Head(NamedTuple):
    """The columns beside the names, and what the head says of these (``tasklet_*``).

    ``unit`` and ``scale`` are those of columns that have none. ``name`` and ``build`` are the
    places of these two in a row with bars; ``build`` may be nowhere (-1).
    """

    columns: tuple[Column, ...]
    glob: str = ""
    unit: Unit = ""
    scale: int = 1
    name: int = 0
    build: int = -1

    @property
    def is_turned(self) -> bool:
        """Tests are the columns, builds or runs the rows."""
        return any(column.test for column in self.columns)


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
        self._last = number
        if all(_RULE.fullmatch(content) for _, _, content in cells):
            return []
        values = [cell(content) for _, _, content in cells]
        if self._head is None:
            if not _is_row(self._rows, values):
                if len(self._rows) < _HEAD_ROWS:
                    self._rows.append(cells)
                return []
            self._head = _bar_head(self._rows, cells)
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
        self, number: int, text: str, above: Callable[[], Sequence[tuple[int, str]]]
    ) -> list[Entry] | None:
        """A line of a name and numbers below blanks or tabs (expanded); ``None``: it is none.

        ``above`` gives the lines above it with their numbers, nearest first.
        """
        row = trailing(text, _MAX_COLUMNS)
        if row is None:
            return None
        name, cells = row
        if self._is_bar or self._head is None or number - self._last > _REACH:
            found = None
            for some in _without_changes(cells):
                found = _aligned_head(above(), some, name)
                if found is not None:
                    break
            if found is None:
                if not self.unitless and names.is_test(name):
                    self.unitless = number
                return None
            self.first, self._head = found
            self._is_bar, self._rows = False, []
        head = self._head
        width = len(head.columns)
        cells = next((some for some in _without_changes(cells) if _fits(head, some)), cells)
        if len(cells) > width:  # a name may end in a number
            spare = " ".join(it.number for it in cells[:-width] if it)
            name, cells = f"{name} {spare}", cells[-width:]
        if not _fits(head, cells) or (name.isdecimal() and not head.is_turned):
            return None
        self._last = number
        return _entries(head, name, cells) or None

    def dashed(
        self, number: int, text: str, above: Callable[[], Sequence[tuple[int, str]]]
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
    text = clean(raw.expandtabs(8)).rstrip()
    return text if text.isascii() else text.translate(_DRAWN)


# Cells


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
    return cells if len(cells) <= _MAX_COLUMNS else None


def _without_changes(cells: list[Cell | None]) -> Iterator[list[Cell | None]]:
    """The cells of a row; and those but for changes, which need no column of their own."""
    yield cells
    if CHANGE in cells:
        yield [it for it in cells if it is not CHANGE]
    if any(it is not None and it.unit == "skip" for it in cells):
        yield [it for it in cells if it is None or it.unit != "skip"]


def _dashed_cells(text: str) -> tuple[int, list[tuple[int, str | None]]]:
    """The step of such a row, and its figures; what is computed from them is left."""
    step, *parts = re.split(r"\s+-\s+", text.strip())
    if not parts or not step.isdecimal() or len(step) > 6:
        return 0, []
    matches = [_DASHED.fullmatch(part) for part in parts]
    return int(step), [(int(match["cycles"]), match["ns"]) for match in matches if match]


# Heads


def _column(titles: Sequence[str], is_prose: bool = False) -> Column:
    """What a column is, of its own titles from the top down.

    ``is_prose``: the words may be those of a sentence, where ``us`` is no unit.
    """
    unit: Unit = ""
    scale = 1
    label: list[str] = []
    for title in titles:
        here: set[Unit] = set()
        for word in _WORD.findall(title):
            bare, known = _known(word)
            if is_prose and word.lower() in _AMBIGUOUS:
                bare, known = word, None
            if known is not None:
                here.add(known[0])
                if unit != "skip":
                    unit, scale = known
            if bare and bare not in label and bare.lower() not in _NO_LABELS:
                label.append(bare)
        if {"cycles", "ns"} <= here:
            unit = "skip"  # two figures in a cell: which is which?
    text = " ".join(label)
    if names.is_test(text):
        return Column("", unit, scale, names.full_name(text))
    return Column(text, unit, scale, has_title=any(title.strip() for title in titles))


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


def _columns(titles: Sequence[Sequence[str]], is_prose: bool = False) -> tuple[Column, ...]:
    """All of them, each with its titles from the top down."""
    columns: list[Column] = []
    carried: Column | None = None
    for one in titles:
        column = _column(one, is_prose)
        if column.unit not in ("", "skip"):
            # `Cycles` may stand above the first of its columns only; a unit in the lowest row is
            # that column's alone.
            carried = None if _column(one[-1:], is_prose).unit else column
        elif carried is not None and not column.unit and not column.test:
            column = column._replace(unit=carried.unit, scale=carried.scale)
        columns.append(column)
    return tuple(_apart(list(_left_out(columns))))


def _left_out(columns: Sequence[Column]) -> Iterator[Column]:
    """The columns; those of ``after - before``, and totals in ms beside ns, are not read."""
    labels = {it.label for it in columns}
    is_fine = any(it.unit == "cycles" or (it.unit == "ns" and it.scale == 1) for it in columns)
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


_Row: TypeAlias = list[tuple[int, int, str]]


def _is_row(rows: Sequence[_Row], values: Sequence[Cell | None]) -> bool:
    """Whether a row is the first below its head: a number beside the names, or left of them."""
    if any(values[1:]):
        return True
    same = [row for row in rows if len(row) == len(values)]
    return values[0] is not None and bool(same) and _has_unit(plain(same[-1][0][2]))


def _has_unit(title: str) -> bool:
    return _is_time(_column([title]).unit)


def _bar_head(rows: Sequence[_Row], first: _Row) -> Head:
    """The head of a table with bars: its rows above the first row of numbers."""
    name, build = _name_and_build(rows, first)
    if name < 0:
        return Head(())

    def turned(row: _Row) -> _Row:
        """A row with its name in front, and without its build."""
        if len(row) != len(first) or (name, build) == (0, -1):
            return row
        return [row[name], *(it for at, it in enumerate(row) if at not in (name, build))]

    rows, first = [turned(row) for row in rows], turned(first)
    titles: list[list[str]] = [[] for _ in first[1:]]
    for depth, row in enumerate(rows):
        is_last = depth == len(rows) - 1
        for index, title in enumerate(_spread(row, first, carry=not is_last)):
            titles[index].append(title)
    glob = next((m[1] for row in rows if (m := _GLOB.fullmatch(plain(row[0][2])))), "")
    columns = _columns(titles)
    if build >= 0 and any(it.label and _is_time(it.unit) for it in columns):
        return Head(())  # builds in rows and in columns
    corner = _column([plain(row[0][2]) for row in rows], is_prose=True)
    return Head(columns, glob, corner.unit, corner.scale, name, build)


def _name_and_build(rows: Sequence[_Row], first: _Row) -> tuple[int, int]:
    """Which columns have names and builds (-1: none has); a name of -1: who knows."""
    same = [row for row in rows if len(row) == len(first)]
    titles = [plain(content).lower().rstrip(":") for _, _, content in same[-1]] if same else []
    texts = [at for at, it in enumerate(first) if it[2] not in ("", "-") and cell(it[2]) is None]
    if not titles:
        return 0, -1
    named = [at for at in texts if titles[at] in _NAMES]
    builds = [at for at, title in enumerate(titles) if title in _BUILDS]
    build = builds[0] if len(builds) == 1 else -1
    if build == 0 and len(named) == 1:
        return named[0], 0
    if texts and texts[0] == 0:
        return 0, build if build > 0 else -1
    if _has_unit(titles[0]):
        found = named if len(named) == 1 else texts
        return (found[0], build if build != found[0] else -1) if len(found) == 1 else (-1, -1)
    if not named:
        return 0, -1
    return (named[0], build) if len(named) == 1 and titles[0] in _ORDINALS else (-1, -1)


def _spread(row: _Row, first: _Row, carry: bool) -> list[str]:
    """The titles of one row of a head, one for each column of numbers."""
    width, above = len(first) - 1, [plain(content) for _, _, content in row[1:]]
    if len(above) == width:
        if carry:
            for index in range(1, width):
                above[index] = above[index] or above[index - 1]
        return above
    if above and len(above) < width and width % len(above) == 0:
        each = width // len(above)
        return [title for title in above for _ in range(each)]
    found = []
    for start, end, _ in first[1:]:
        middle = (start + end) // 2
        found.append(next((plain(text) for a, b, text in row[1:] if a <= middle <= b), ""))
    return found


def _aligned_head(
    above: Sequence[tuple[int, str]], cells: Sequence[Cell | None], name: str
) -> tuple[int, Head] | None:
    """The head of a table without bars, and its first line; ``None``: nothing above is one."""
    texts = [(number, text) for number, text in above if text.strip()]
    for index, (number, text) in enumerate(texts[:_HEAD_ROWS]):
        if headings.is_rule(text.strip()):
            continue
        upper = texts[index + 1][1] if index + 1 < len(texts) else ""
        head = _head_of_units(text, upper, len(cells)) or _head_of_titles(text, upper, cells, name)
        if head is not None and _fits(head, cells):
            return number, head
    return None


def _fits(head: Head, cells: Sequence[Cell | None]) -> bool:
    """Whether there is a column for each cell, and none of times or rates for a percentage."""
    has_units = any(_is_time(column.unit) for column in head.columns)
    return len(cells) == len(head.columns) and all(
        it is None or it.unit != "skip" or column.unit == "skip" or (not column.unit and has_units)
        for column, it in zip(head.columns, cells, strict=True)
    )


def _head_of_units(text: str, upper: str, width: int) -> Head | None:
    """``cycles nanosec cycles nanosec``, and above it what each pair is of."""
    words = text.split()
    if len(words) != width or not all(unit_of(word) for word in words):
        return None
    groups, seen = 0, set[str]()
    numbers = []
    for word in words:
        if word.lower() in seen or not groups:
            groups, seen = groups + 1, set()
        seen.add(word.lower())
        numbers.append(groups - 1)
    labels = re.split(r"\s{2,}", upper.strip())
    if len(labels) == groups + 1:
        labels = labels[1:]
    if len(labels) != groups or groups == 1:
        labels = [f"column {n + 1}" if groups > 1 else "" for n in range(groups)]
    return Head(
        tuple(
            Column(labels[number], *(unit_of(word) or ("skip", 1)))
            for word, number in zip(words, numbers, strict=True)
        )
    )


def _head_of_titles(text: str, upper: str, cells: Sequence[Cell | None], name: str) -> Head | None:
    """``fast_path ptr_ring slow``, or ``test  before ns  after ns  diff``."""
    width = len(cells)
    figures = [it for it in cells if it and it is not CHANGE]
    for is_prose, titles in ((False, re.split(r"\s{2,}", text.strip())), (True, text.split())):
        glob = _GLOB.fullmatch(titles[0])
        corner = titles[0] if len(titles) == width + 1 else ""
        if corner:
            titles = titles[1:]
        if len(titles) != width or any(cell(title) for title in titles):
            continue
        tops = _tops(upper, text, titles)
        pairs = [[top, title] for top, title in zip(tops, titles, strict=True)]
        columns = _columns(pairs, is_prose)
        tests = sum(bool(column.test) for column in columns)
        if tests == width and (_ORDINAL.fullmatch(name) or _VERSION.fullmatch(name)):
            return Head(columns)
        if width < 2 or tests:
            continue
        if any(it.unit not in ("", "skip") for it in columns):
            return Head(columns, glob[1] if glob else "")
        unit = _column([corner], is_prose=True)
        if not is_prose and (
            _is_time(unit.unit)
            or _is_time(unit_of_name(name)[1])
            or all(_is_time(_figure(Column("", ""), it, _is_rate(name)).unit) for it in figures)
        ):
            return Head(columns, glob[1] if glob else "", unit.unit, unit.scale)
    return None


def _is_rate(test: str) -> bool:
    """Whether a test's figures are packets a second by its name."""
    return test.startswith("XDP_")


def _is_time(unit: Unit) -> bool:
    return unit in ("cycles", "ns", "pps")


def _tops(upper: str, text: str, titles: Sequence[str]) -> list[str]:
    """The upper row of a head, title by title, where it has units: by where they stand."""
    parts = [(match.start(), match.group()) for match in _SPACED.finditer(upper)]
    units = [
        (start, part)
        for start, part in parts
        if all(unit_of(word.strip("()")) for word in part.split())
    ]
    if not units or len(upper) > 200:
        return [""] * len(titles)
    found, position = [], 0
    for title in titles:
        position = text.find(title, position) + len(title)
        # Numbers are set to the right: a title begins at or before the end of its column.
        found.append(next((part for start, part in reversed(units) if start < position), ""))
    return found


# Rows


def _entries(head: Head, name: str, cells: Sequence[Cell | None]) -> list[Entry]:
    """The records of one row."""
    if len(cells) != len(head.columns) or not name or len(name) > 120 or is_computed(name):
        return []
    if head.is_turned:
        label = "" if _ORDINAL.fullmatch(name) else name.rstrip(":")
        return [
            Entry(label, record)
            for column, it in zip(head.columns, cells, strict=True)
            if it and column.test and (record := _record(column.test, [_figure(column, it)]))
        ]
    name, unit, scale = unit_of_name(name)
    if unit == "skip" or (not name.isdecimal() and cell(name)):
        return []  # of percentages; a figure: the names stand elsewhere
    is_part, is_rate = bool(unit), _is_rate(name)
    if not unit:
        unit, scale = head.unit, head.scale
    groups: dict[str, list[_Figure]] = {}
    is_titled = any(column.has_title for column in head.columns)
    for column, it in zip(head.columns, cells, strict=True):
        if it is None or column.unit == "skip":
            continue
        if not column.unit:
            if is_titled and not column.has_title:
                continue  # nobody knows what it is
            if not _OTHERS.intersection(column.label.lower().split()):
                column = column._replace(unit=unit, scale=scale)
        groups.setdefault(column.label, []).append(_figure(column, it, is_rate))
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
    return bool(plain) and not any(map(_is_time, (*columns, *(it.unit for it in plain))))


class _Figure(NamedTuple):
    number: str
    unit: Unit
    scale: int


def _figure(column: Column, it: Cell, is_rate: bool = False) -> _Figure:
    """A cell in its column: its own unit goes before that of the column."""
    if it.is_signed:
        return _Figure("", "skip", 1)
    if it.unit == "factor":
        is_rate = is_rate or column.unit == "pps" or _is_rate(column.test)
        return _Figure(it.number, "pps" if is_rate else "skip", it.scale)
    if it.unit:
        return _Figure(it.number, it.unit, it.scale)
    return _Figure(it.number, column.unit, column.scale)


def _record(name: str, figures: Sequence[_Figure]) -> Record | None:
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
