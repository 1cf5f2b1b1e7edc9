# SPDX-License-Identifier: BSD-2-Clause
"""Tables of results: org and markdown, tabs, blanks; builds beside each other or below each other.

A row is read as soon as its table's head is known: which columns are cycles, nanoseconds or a rate,
and of which build. Differences and percentages are what somebody computed, and are left. There is
no table without a unit or a test's name in its head, so other tables of a mail are none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from pagepool.results import headings, names
from pagepool.results.lines import clean
from pagepool.results.model import Record

Unit: TypeAlias = Literal["cycles", "ns", "pps", "skip", ""]

#: More columns are no table that a person wrote.
_MAX_COLUMNS = 40
#: Lines between the head of a table without rules and its first row, and between its rows.
_REACH = 5
_HEAD_ROWS = 4

_UNITS: dict[str, tuple[Unit, int]] = {
    **dict.fromkeys(("cycles", "cycle", "cyc", "cycles(tsc)"), ("cycles", 1)),
    **dict.fromkeys(("ns", "nsec", "nsecs", "nanosec", "nanosecs"), ("ns", 1)),
    **dict.fromkeys(("nanosecond", "nanoseconds", "ns/elem", "ns/op", "ns/page"), ("ns", 1)),
    **dict.fromkeys(("pps", "pkt/s", "pkts/s", "packets/s", "packets/sec"), ("pps", 1)),
    **dict.fromkeys(("kpps",), ("pps", 10**3)),
    **dict.fromkeys(("mpps", "mpkt/s"), ("pps", 10**6)),
    **dict.fromkeys(("%", "percent", "diff", "diff%", "delta", "change", "ratio"), ("skip", 1)),
    **dict.fromkeys(("speedup", "improvement", "instr", "verdict", "runs", "gain"), ("skip", 1)),
    **dict.fromkeys(("min..max", "min", "max", "stddev", "stdev"), ("skip", 1)),
}
#: Say nothing of whose figures a column has.
_NO_LABELS = frozenset({"avg", "average", "mean", "median", "time", "cpu", "cost", "per", "elem"})
_RULE = re.compile(r":?-*:?|=*")
_WORD = re.compile(r"[^\s|`*]+")
_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d{1,18})(?:\.\d{1,9})?")
_CELL = re.compile(
    rf"[`*=~]*(?P<number>{_NUMBER.pattern})\s*(?P<unit>ns|cycles|[KM]?pps|M|%)?[`*=~]*"
)
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


class Head(NamedTuple):
    """The columns beside the names, and what the head says of these (``tasklet_*``)."""

    columns: tuple[Column, ...]
    glob: str = ""

    @property
    def is_turned(self) -> bool:
        """Tests are the columns, builds or runs the rows."""
        return any(column.test for column in self.columns)


class Entry(NamedTuple):
    """One record of one row: of which build (empty: of that which the text is about)."""

    label: str
    record: Record


class Cell(NamedTuple):
    """A number as it is written, and the unit beside it."""

    number: str
    unit: Unit = ""
    scale: int = 1


@dataclass(slots=True)
class Table:
    """The table that one text, at one quote depth, may be in."""

    first: int = 0
    _last: int = 0
    _is_bar: bool = False
    _head: Head | None = None
    _rows: list[list[tuple[int, int, str]]] = field(default_factory=list)
    _dashes: list[str] = field(default_factory=list)

    def bar(self, number: int, text: str) -> list[Entry] | None:
        """A line that begins with a bar: the records of a row; ``None``: it is of no table."""
        cells = _bar_cells(text)
        if cells is None:
            return None
        if not self._is_bar or number != self._last + 1:
            self._is_bar, self._rows, self._head, self.first = True, [], None, number
        self._last = number
        if all(_RULE.fullmatch(content) for _, _, content in cells):
            return []
        values = [_cell(content) for _, _, content in cells[1:]]
        if not any(values):
            if self._head is None and len(self._rows) < _HEAD_ROWS:
                self._rows.append(cells)
            return []
        if self._head is None:
            self._head = _bar_head(self._rows, cells)
        return _entries(self._head, _plain(cells[0][2]), values)

    def aligned(
        self, number: int, text: str, above: Callable[[], Sequence[tuple[int, str]]]
    ) -> list[Entry] | None:
        """A line of a name and numbers below blanks or tabs (expanded); ``None``: it is none.

        ``above`` gives the lines above it with their numbers, nearest first.
        """
        row = _aligned_cells(text)
        if row is None:
            return None
        name, cells = row
        head = self._head
        if self._is_bar or head is None or number - self._last > _REACH:
            found = _aligned_head(above(), cells, name)
            if found is None:
                return None
            self.first, head = found
            self._is_bar, self._rows, self._head = False, [], head
        width = len(head.columns)
        if len(cells) > width:  # a name may end in a number
            spare = " ".join(cell.number for cell in cells[:-width] if cell)
            name, cells = f"{name} {spare}", cells[-width:]
        if len(cells) != width or (name.isdecimal() and not head.is_turned):
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
        marks = re.match(rf"(?:[ \t]{{0,3}}>){{1,{quoted}}} ?", raw)
        raw = raw[marks.end() :] if marks else raw
    return clean(raw.expandtabs(8)).rstrip()


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


def _plain(text: str) -> str:
    """A name without the marks that make it bold or code."""
    return text.strip("`*=~ ")


def _cell(text: str) -> Cell | None:
    match = _CELL.fullmatch(text)
    if match is None:
        return None
    suffix = (match["unit"] or "").lower()
    unit, scale = _UNITS.get("mpps" if suffix == "m" else suffix, ("", 1))
    return Cell(match["number"].replace(",", ""), unit, scale)


def _aligned_cells(text: str) -> tuple[str, list[Cell | None]] | None:
    """Name and cells of a row: from its end to the left, as far as there are numbers."""
    words = text.split()
    if not 2 <= len(words) <= 2 * _MAX_COLUMNS:
        return None
    cells: list[Cell | None] = []
    unit = ""
    while len(words) > 1:
        word = words[-1]
        if not unit and word in ("ns", "cycles", "pps", "Mpps", "Kpps", "%"):
            unit = word
        elif word == "-" and not unit:
            cells.append(None)
        elif (cell := _cell(word + unit)) is not None:
            cells.append(cell)
            unit = ""
        else:
            break
        words.pop()
    if unit or not any(cells):
        return None
    cells.reverse()
    return " ".join(words), cells


def _dashed_cells(text: str) -> tuple[int, list[tuple[int, str | None]]]:
    """The step of such a row, and its figures; what is computed from them is left."""
    step, *parts = re.split(r"\s+-\s+", text.strip())
    if not parts or not step.isdecimal() or len(step) > 6:
        return 0, []
    matches = [_DASHED.fullmatch(part) for part in parts]
    return int(step), [(int(match["cycles"]), match["ns"]) for match in matches if match]


# Heads


def _column(titles: Sequence[str]) -> Column:
    """What a column is, of its own titles from the top down."""
    unit: Unit = ""
    scale = 1
    label: list[str] = []
    for title in titles:
        for word in _WORD.findall(title):
            known = _UNITS.get(word.lower()) or _UNITS.get(word.lower().strip("()[],:"))
            if known is not None:
                if unit != "skip":
                    unit, scale = known
            elif word.strip("()[],:") not in label and word.lower().strip("()") not in _NO_LABELS:
                label.append(word.strip("()[],:"))
    text = " ".join(filter(None, label))
    if names.is_test(text):
        return Column("", unit, scale, names.full_name(text))
    return Column(text, unit, scale)


def _columns(titles: Sequence[Sequence[str]]) -> tuple[Column, ...]:
    """All of them, each with its titles from the top down."""
    columns: list[Column] = []
    carried: Column | None = None
    for one in titles:
        column = _column(one)
        if column.unit not in ("", "skip"):
            # `Cycles` may stand above the first of its columns only; a unit in the lowest row is
            # that column's alone.
            carried = None if _column(one[-1:]).unit else column
        elif carried is not None and not column.unit and not column.test:
            column = column._replace(unit=carried.unit, scale=carried.scale)
        columns.append(column)
    return tuple(_apart(columns))


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


def _bar_head(
    rows: Sequence[list[tuple[int, int, str]]], first: list[tuple[int, int, str]]
) -> Head:
    """The head of a table with bars: its rows above the first row of numbers."""
    titles: list[list[str]] = [[] for _ in first[1:]]
    for depth, row in enumerate(rows):
        is_last = depth == len(rows) - 1
        for index, title in enumerate(_spread(row, first, carry=not is_last)):
            titles[index].append(title)
    glob = next((m[1] for row in rows if (m := _GLOB.fullmatch(_plain(row[0][2])))), "")
    return Head(_columns(titles), glob)


def _spread(
    row: list[tuple[int, int, str]], first: list[tuple[int, int, str]], carry: bool
) -> list[str]:
    """The titles of one row of a head, one for each column of numbers."""
    width, above = len(first) - 1, [_plain(content) for _, _, content in row[1:]]
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
        found.append(next((_plain(text) for a, b, text in row[1:] if a <= middle <= b), ""))
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
        if head is not None:
            return number, head
    return None


def _head_of_units(text: str, upper: str, width: int) -> Head | None:
    """``cycles nanosec cycles nanosec``, and above it what each pair is of."""
    words = text.split()
    if len(words) != width or not all(word.lower() in _UNITS for word in words):
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
            Column(labels[number], *_UNITS[word.lower()])
            for word, number in zip(words, numbers, strict=True)
        )
    )


def _head_of_titles(text: str, upper: str, cells: Sequence[Cell | None], name: str) -> Head | None:
    """``fast_path ptr_ring slow``, or ``test  before ns  after ns  diff``."""
    width = len(cells)
    for titles in (re.split(r"\s{2,}", text.strip()), text.split()):
        glob = _GLOB.fullmatch(titles[0])
        if len(titles) == width + 1:
            titles = titles[1:]
        if len(titles) != width or any(_cell(title) for title in titles):
            continue
        tops = _tops(upper, text, titles)
        columns = _columns([[top, title] for top, title in zip(tops, titles, strict=True)])
        tests = sum(bool(column.test) for column in columns)
        if tests == width and (_ORDINAL.fullmatch(name) or _VERSION.fullmatch(name)):
            return Head(columns)
        if width > 1 and not tests and any(it.unit not in ("", "skip") for it in columns):
            return Head(columns, glob[1] if glob else "")
    return None


def _tops(upper: str, text: str, titles: Sequence[str]) -> list[str]:
    """The upper row of a head, title by title, where it has units: by where they stand."""
    parts = [(match.start(), match.group()) for match in _SPACED.finditer(upper)]
    units = [
        (start, part)
        for start, part in parts
        if all(word.lower().strip("()") in _UNITS for word in part.split())
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
    if len(cells) != len(head.columns) or not name or len(name) > 120:
        return []
    if not head.is_turned and not name.isdecimal() and _CELL.fullmatch(name):
        return []  # a figure: the names stand elsewhere
    if head.is_turned:
        label = "" if _ORDINAL.fullmatch(name) else name.rstrip(":")
        return [
            Entry(label, record)
            for column, cell in zip(head.columns, cells, strict=True)
            if cell and column.test and (record := _record(column.test, [(column, cell)]))
        ]
    groups: dict[str, list[tuple[Column, Cell]]] = {}
    for column, cell in zip(head.columns, cells, strict=True):
        if cell is not None and column.unit != "skip":
            groups.setdefault(column.label, []).append((column, cell))
    test = names.full_name(name, head.glob)
    return [
        Entry(label, record)
        for label, figures in groups.items()
        if (record := _record(test, figures)) is not None
    ]


def _record(name: str, figures: Sequence[tuple[Column, Cell]]) -> Record | None:
    cycles = ns = pps = None
    for column, cell in figures:
        unit, scale = (cell.unit, cell.scale) if cell.unit else (column.unit, column.scale)
        if unit == "cycles" and "." not in cell.number and cell.number[0] not in "+-":
            cycles = int(cell.number)
        elif unit == "ns" and cell.number[0] not in "+-":
            ns = cell.number if "." in cell.number else f"{cell.number}.0"
        elif unit == "pps" and cell.number[0] not in "+-":
            pps = round(float(cell.number) * scale)
    if cycles is None and ns is None and not pps:
        return None
    record = Record(name=name, printed_cycles=cycles, printed_ns=ns)
    if pps:
        return Record(name=name, kind="rate", pps=pps)
    if parts := names.cpu_of(name):
        return Record(name=parts[0], kind="cpu", cpu=parts[1], printed_cycles=cycles, printed_ns=ns)
    if name.endswith(" average"):
        return Record(name=name.removesuffix(" average"), kind="sum", printed_cycles=cycles)
    return record
