# SPDX-License-Identifier: BSD-2-Clause
"""Text for a mail: 76 columns, whatever goes in, and nothing that a mail program takes for its own.

Paragraphs are wrapped, tables that are too wide go on below with their first column again, and
commands are broken where a shell joins them. A line never has trailing blanks, and none begins
with what ends or changes a mail: ``From ``, ``>``, a signature's ``-- ``, the ``---`` that cuts a
commit message.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterable, Sequence, Set
from itertools import pairwise

from pagepool.compare.formats import Column
from pagepool.results.lines import clean

#: Columns of a line: quoted once or twice it still fits into 80.
WIDTH = 76

#: A column of names is not made narrower for what stands beside it.
LEAST_NAME = 12

#: What a line of a mail must not begin with: mbox, quotes, signatures; git's end of the message.
_RISKY = re.compile(r"From |>|--|diff -|Index: |#")


#: Where a line may end: not between a figure and its unit.
_BLANK = re.compile(r" (?!(?:ns|%|GHz|MHz)(?!\w))")


def columns(text: str) -> int:
    """Columns that a text takes on a terminal, or more: what joins others is counted as one."""
    if text.isascii():
        return len(text)
    return sum(1 + (unicodedata.east_asian_width(char) in "WF") for char in text)


def guard(text: str) -> str:
    """A text that may begin a line: one blank in front of what a mail program would act on."""
    return f" {text}" if _RISKY.match(text) else text


def wrap(text: str, lead: str = "", hang: str | None = None) -> list[str]:
    """A paragraph behind ``lead``; its other lines stand below it, or behind ``hang``.

    A word goes to the next line; one that is longer than a line is broken.
    """
    hang = " " * columns(lead) if hang is None else hang
    # What begins in the first column may need a blank.
    room = WIDTH - (not hang or not lead)
    lines, line, is_empty = [], lead, True
    for word in _BLANK.split(" ".join(clean(text).split())):
        while word:
            joined = f"{line}{word}" if is_empty else f"{line} {word}"
            if columns(joined) <= room:
                line, word, is_empty = joined, "", False
            elif is_empty or columns(hang) + columns(word) > room:
                # No line has room for all of it.
                start = line if is_empty else f"{line} "
                head = _head(word, room - columns(start))
                if head:
                    start, word = start + head, word[len(head) :]
                lines.append(start.rstrip())
                line, is_empty = hang, True
            else:
                lines.append(line)
                line, is_empty = hang, True
    if not is_empty or not lines:
        lines.append(line.rstrip())
    return [guard(one) for one in lines]


def _head(text: str, room: int) -> str:
    """As much of the beginning as fits."""
    end = 0
    while end < len(text) and (room := room - columns(text[end])) >= 0:
        end += 1
    return text[:end]


# Tables


class Table:
    """Rows of cells with titles between them; what is too wide goes on below.

    Columns break between their blocks, and a name that has no room in its column stands above its
    row.
    """

    def __init__(
        self,
        heads: Sequence[Column],
        lines: Sequence[list[str] | str],
        below: Set[str] = frozenset(),
    ) -> None:
        """``lines``: the cells of a row, the name first; or a title, which must not be too wide.

        below: blocks that may stand below the others; no name is moved to make room for them.
        """
        self._heads = [
            head._replace(top=clean(head.top), bottom=clean(head.bottom)) for head in heads
        ]
        cells = [line if isinstance(line, str) else [*map(clean, line)] for line in lines]
        rows = [line for line in cells if not isinstance(line, str)]
        self._sizes = [
            max(columns(text) for text in (head.top, head.bottom, *(row[index] for row in rows)))
            for index, head in enumerate(self._heads)
        ]
        beside = [
            index for index, head in enumerate(self._heads) if index and head.block not in below
        ]
        room = WIDTH - self._width(beside, 1) - 1
        self._lines: list[list[str] | str] = []
        for line in cells:
            if isinstance(line, str):
                self._lines.append(guard(clean(line)).rstrip())
            elif columns(line[0]) < max(room, LEAST_NAME):
                self._lines.append([guard(line[0]), *line[1:]])
            else:
                self._lines += [guard(line[0]).rstrip(), ["", *line[1:]]]
        head = self._heads[0]
        names = [line[0] for line in self._lines if not isinstance(line, str)]
        self._sizes[0] = max(map(columns, (head.top, head.bottom, *names)))

    def text(self) -> list[str]:
        """The table in lines."""
        sheets: list[list[int]] = []
        for block in self._blocks():
            whole = self._width([0, *block], 1) <= WIDTH
            # What has no room even by itself is broken between any of its columns.
            for part in [block] if whole else [[index] for index in block]:
                if sheets and self._width([*sheets[-1], *part], 1) <= WIDTH:
                    sheets[-1] += part
                else:
                    sheets.append([0, *part])
        lines: list[str] = []
        for sheet in sheets:
            lines += ["", *self._sheet(sheet)] if lines else self._sheet(sheet)
        return lines

    def _blocks(self) -> list[list[int]]:
        blocks: list[list[int]] = []
        for index, head in enumerate(self._heads[1:], 1):
            if blocks and head.block == self._heads[index - 1].block:
                blocks[-1].append(index)
            else:
                blocks.append([index])
        return blocks

    def _width(self, sheet: Sequence[int], gap: int) -> int:
        return sum(self._sizes[index] for index in sheet) + gap * (len(sheet) - 1)

    def _sheet(self, sheet: Sequence[int]) -> Iterable[str]:
        gap = " " if self._width(sheet, 2) > WIDTH else "  "
        tops = [self._heads[index].top for index in sheet]
        bottoms = [self._heads[index].bottom for index in sheet]
        for cells in (tops, bottoms) if any(bottoms) else (tops,):
            yield self._line(cells, sheet, gap)
        for line in self._lines:
            if isinstance(line, str):
                yield line
            else:
                yield self._line([line[index] for index in sheet], sheet, gap)

    def _line(self, cells: Sequence[str], sheet: Sequence[int], gap: str) -> str:
        padded = []
        for index, text in zip(sheet, cells, strict=True):
            blanks = " " * (self._sizes[index] - columns(text))
            padded.append(blanks + text if self._heads[index].is_number else text + blanks)
        return gap.join(padded).rstrip()


# Commands


def command(words: Sequence[str], indent: str) -> list[str]:
    """A command of these words, which are quoted as a shell needs it, broken with backslashes.

    Between words a line goes on, indented further; a word that is longer than a line goes on in
    the first column, where the shell joins it.
    """
    lines, line = [], ""
    quoted = [*map(clean, words), ""]
    for position, (word, behind) in enumerate(pairwise(quoted)):
        lead = indent if position == 0 else f"{indent}    "
        # An option and its value stay together, if a line has room for both.
        both = f"{word} {behind}".rstrip() if word.startswith("--") else word
        if not _has_room(lead + both):
            both = word
        if line and _has_room(f"{line} {both}"):
            line += f" {word}"
            continue
        if line:
            lines.append(f"{line} \\")
        line = lead + word
        if not _has_room(line):
            *broken, line = _pieces(_unquoted(word), lead)
            lines += [f"{piece}\\" for piece in broken]
    # What is left at an end without quotes is no blank to a shell, but to a mailer.
    return [one.rstrip() for one in (*lines, line)]


def _has_room(line: str) -> bool:
    """Whether a blank and a backslash fit behind it."""
    return columns(line) <= WIDTH - 2


def _pieces(word: str, lead: str) -> list[str]:
    """A word in quoted parts, each for a line that ends with a backslash."""
    pieces, line = [], lead
    part = ""
    for char in word:
        if columns(line + shlex.quote(part + char)) > WIDTH - 4:
            pieces.append(line + _quoted(part))
            line, part = "", ""
        part += char
    return [*pieces, line + _quoted(part)]


def _unquoted(word: str) -> str:
    try:
        return " ".join(shlex.split(word))
    except ValueError:  # a quote that is not closed: so it was read
        return word


def _quoted(text: str) -> str:
    # Always in quotes: so it begins with nothing that a mail program would act on.
    quoted = shlex.quote(text)
    return quoted if quoted.startswith("'") else f"'{text}'"
