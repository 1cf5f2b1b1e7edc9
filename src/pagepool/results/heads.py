# SPDX-License-Identifier: BSD-2-Clause
"""The heads of tables: which rows are one, where names, builds and figures stand below it.

With bars a head is known by the first row of figures; without them it is looked for above that.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, pairwise
from typing import NamedTuple, TypeAlias

from pagepool.results import headings
from pagepool.results.cells import Cell, Unit, cell, plain, unit_of, unit_of_name
from pagepool.results.columns import (
    Column,
    column_of,
    columns_of,
    has_unit,
    is_rated,
    is_time,
    says_time,
)

#: How far above the first row of figures a head may be, and how many rows it has at most.
HEAD_ROWS = 4
#: Titles of the columns of names, of builds, and of mere numbers of rows.
_NAMES = frozenset(
    {"test", "tests", "test name", "name", "benchmark", "bench", "case", "test case", "testcase",
     "workload", "function", "operation"}
)  # fmt: skip
_BUILDS = frozenset(
    {"kernel", "kernel version", "build", "version", "branch", "tree", "commit", "patch", "series"}
)
#: A word of these is in each head that says where the names are.
_TITLED = re.compile("|".join({it.split()[0] for it in _NAMES | _BUILDS}), re.IGNORECASE).search
_ORDINALS = frozenset({"", "#", "no", "no.", "nr", "nr.", "id", "run", "idx", "index"})
#: Between cells without bars: blanks, or a tab that is as narrow as one (see `tables.layout`).
NARROW_TAB = "\x1f"
_BETWEEN = re.compile(rf"\s{{2,}}|{NARROW_TAB}")
_SPACED = re.compile(r"\S+(?: \S+)*")
_GLOB = re.compile(r"\(?([\w*-]*\*[\w*-]*)\)?")
#: The name of a row that is one of several runs.
ORDINAL = re.compile(r"(?:run ?|#)?\d{1,4}[.):]?", re.IGNORECASE)
_VERSION = re.compile(r"[<>=~v]{0,3}\d{1,3}\.\d{1,3}[\w.+-]*:?")
#: More columns are no table that a person wrote.
MAX_COLUMNS = 40


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


#: Start, end and content of each cell.
Row: TypeAlias = list[tuple[int, int, str]]


class Parted(NamedTuple):
    """The cells of rows without bars: what may part them, how many there are, and their head."""

    ways: tuple[Callable[[str], Row], ...]
    width: int
    head: Head

    def contents(self, text: str) -> list[str] | None:
        """Of the cells of one row; ``None``: it has not that many, or none with a figure."""
        for parts in self.ways:
            contents = [content for _, _, content in parts(text)]
            if len(contents) == self.width and any(map(cell, contents)):
                return contents
        return None


def _spaced(text: str) -> Row:
    """Cells with two blanks or more between them."""
    return [(match.start(), match.end(), match.group()) for match in _SPACED.finditer(text)]


def _worded(text: str) -> Row:
    """Cells of one word each: a tab may be as narrow as a blank."""
    return [(match.start(), match.end(), match.group()) for match in re.finditer(r"\S+", text)]


def _with_commas(text: str) -> Row:
    """Cells with commas between them, in quotes or not."""
    try:
        contents = next(csv.reader([text.strip()], skipinitialspace=True), [])
    except csv.Error:
        return []
    cells: Row = []
    for content in contents:
        start = cells[-1][1] + 1 if cells else 0
        cells.append((start, start + len(content), content.strip()))
    return cells


#: Of tables without bars.
_WAYS = ((",", (_with_commas,)), (" ", (_spaced, _worded)))


def parted_head(
    above: Callable[[], Iterable[tuple[int, str]]], text: str
) -> tuple[int, Parted] | None:
    """The head that a row without bars has above it, if it says where the names are; its line.

    Blanks part the cells of tables whose other column of words is of builds, and of those with
    one column of figures; rows of others are read from their end.
    """
    lines: list[tuple[int, str]] | None = None
    for mark, ways in _WAYS:
        for parts in ways if mark in text else ():
            row = parts(text)
            words = sum(cell(content) is None for _, _, content in row)
            if not 1 <= words < len(row) <= MAX_COLUMNS or words > 3:
                continue
            if lines is None:
                lines = [it for it in islice(above(), HEAD_ROWS + 1) if it[1].strip()]
            found = _head_among(lines, row, ways)
            if found is not None:
                return found[0], Parted(ways, len(row), found[1])
    return None


def _head_among(
    lines: Sequence[tuple[int, str]], row: Row, ways: Sequence[Callable[[str], Row]]
) -> tuple[int, Head] | None:
    """The nearest of some lines that is the head of a row, and its number."""
    has_commas = ways == (_with_commas,)
    for (number, line), (_, upper) in pairwise([*lines, (0, "")]):
        if _TITLED(line) is None:
            continue
        titles = next((it for it in (parts(line) for parts in ways) if len(it) == len(row)), [])
        if not _has_names(titles):
            continue
        over = _with_commas(upper) if has_commas else []
        is_over = len(over) == len(row) and not any(cell(it[2]) for it in over)
        head = bar_head([over, titles] if is_over else [titles], row)
        is_narrow = len(row) == 2 and any(is_time(it.unit) for it in head.columns)
        if head.columns and (head.build >= 0 or has_commas or is_narrow):
            return number, head
    return None


def _has_names(titles: Row) -> bool:
    """Whether one of them is that of the tests, or of builds where all others are tests."""
    texts = [plain(content) for _, _, content in titles]
    named = {text.lower().rstrip(":") for text in texts}
    if any(map(cell, texts)):
        return False
    return bool(named & _NAMES) or (
        bool(named & _BUILDS) and sum(bool(column_of([it]).test) for it in texts) == len(texts) - 1
    )


def is_row(rows: Sequence[Row], values: Sequence[Cell | None]) -> bool:
    """Whether a row is the first below its head: a number beside the names, or left of them."""
    if any(values[1:]):
        return True
    same = [row for row in rows if len(row) == len(values)]
    return values[0] is not None and bool(same) and has_unit(plain(same[-1][0][2]))


def bar_head(rows: Sequence[Row], first: Row) -> Head:
    """The head of a table with bars: its rows above the first row of numbers."""
    name, build = _name_and_build(rows, first)
    if name < 0:
        return Head(())

    def turned(row: Row) -> Row:
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
    columns = columns_of(titles)
    if build >= 0 and any(it.label and is_time(it.unit) for it in columns):
        return Head(())  # builds in rows and in columns
    corner = column_of([plain(row[0][2]) for row in rows], is_prose=True)
    return Head(columns, glob, corner.unit, corner.scale, name, build)


def _name_and_build(rows: Sequence[Row], first: Row) -> tuple[int, int]:
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
    if has_unit(titles[0]):
        found = named if len(named) == 1 else texts
        return (found[0], build if build != found[0] else -1) if len(found) == 1 else (-1, -1)
    if not named:
        return 0, -1
    return (named[0], build) if len(named) == 1 and titles[0] in _ORDINALS else (-1, -1)


def _spread(row: Row, first: Row, carry: bool) -> list[str]:
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


def aligned_head(
    above: Sequence[tuple[int, str]], cells: Sequence[Cell | None], name: str
) -> tuple[int, Head] | None:
    """The head of a table without bars, and its first line; ``None``: nothing above is one.

    ``above``: the lines above that are not empty, nearest first.
    """
    for index, (number, text) in enumerate(above[:HEAD_ROWS]):
        if headings.is_rule(text.strip()):
            continue
        upper = above[index + 1][1] if index + 1 < len(above) else ""
        head = _head_of_units(text, upper, len(cells)) or _head_of_titles(text, upper, cells, name)
        if head is not None and fits(head, cells):
            return number, head
    return None


def fits(head: Head, cells: Sequence[Cell | None]) -> bool:
    """Whether there is a column for each cell, and none of times or rates for a percentage."""
    has_units = any(is_time(column.unit) for column in head.columns)
    return len(cells) == len(head.columns) and all(
        it is None or it.unit != "skip" or column.unit == "skip" or (not column.unit and has_units)
        for column, it in zip(head.columns, cells, strict=True)
    )


def _head_of_units(text: str, upper: str, width: int) -> Head | None:
    """``cycles nanosec cycles nanosec``, and above it what each pair is of."""
    words = text.split()
    if len(words) == width + 1 and words[0].lower() in _NAMES:
        words = words[1:]
    if len(words) != width or not all(unit_of(word) for word in words):
        return None
    groups, seen = 0, set[str]()
    numbers = []
    for word in words:
        if word.lower() in seen or not groups:
            groups, seen = groups + 1, set()
        seen.add(word.lower())
        numbers.append(groups - 1)
    labels = _BETWEEN.split(upper.strip())
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
    figures = [it for it in cells if it and it.unit != "skip" and not it.is_signed]
    for is_prose, titles in ((False, _BETWEEN.split(text.strip())), (True, text.split())):
        glob = _GLOB.fullmatch(titles[0])
        corner = titles[0] if len(titles) == width + 1 else ""
        if corner:
            titles = titles[1:]
        if len(titles) != width or any(cell(title) for title in titles):
            continue
        if not titles or titles[0].lower() in _NAMES:
            continue  # what looks like one title further on is two
        tops = _tops(upper, text, titles)
        pairs = [[top, title] for top, title in zip(tops, titles, strict=True)]
        columns = columns_of(pairs, is_prose)
        tests = sum(bool(column.test) for column in columns)
        if tests == width and (
            corner.lower() in _BUILDS or ORDINAL.fullmatch(name) or _VERSION.fullmatch(name)
        ):
            return Head(columns)
        if width < 2 or tests:
            continue
        if any(it.unit not in ("", "skip") for it in columns):
            return Head(columns, glob[1] if glob else "")
        unit = column_of([corner], is_prose=True)
        if not is_prose and (
            is_time(unit.unit)
            or is_time(unit_of_name(name)[1])
            or (figures and all(says_time(it, is_rated(name)) for it in figures))
        ):
            return Head(columns, glob[1] if glob else "", unit.unit, unit.scale)
    return None


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
