# SPDX-License-Identifier: BSD-2-Clause
"""Lines of a log or a mail: bounded reading, and the peeling of everything in front of the text.

In front of a record stand, from the outside in: quote marks of mails (``> > ``), a quoting bar
(``| ``), and what printed the log: a level, a date, a host, ``kernel:``, an uptime in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

#: Longest line that is kept. The longest record, quoted six deep, has some 400 bytes.
MAX_LINE = 16 << 10
#: What is looked at at once in a long log: less than the distance between its records.
_BLOCK = 4 << 10
#: Lines of a skipped block that are kept to look back at.
_TAIL = 10

#: What is a blank; of some mailers it is one that does not break.
BLANK = r"[ \t\xa0]"
_QUOTE = re.compile(rf"(?:{BLANK}{{0,3}}>)+")
_BAR = re.compile(rf"{BLANK}{{0,3}}\|(?={BLANK}|$)")
#: Colours of ``dmesg --color=always``, and what else a terminal capture leaves behind.
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200b\u2028\u2029\ufeff"
    # Marks, overrides and isolates of writing from right to left: they turn what stands beside.
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+"
)

_DATE = (
    r"(?:(?:[A-Z][a-z]{2}[ ]+)?[A-Z][a-z]{2}[ ]+\d{1,2}[ ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:[ ]\d{4})?"
    r"|(?:[A-Z][a-z]{2}[ ])?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?"
    r"(?:Z|[ ]?[+-]\d\d:?\d\d|[ ][A-Z]{3,5}(?=[ ]))?)"
)
#: RFC 5424, after its priority: version, date, host, program, process, message id, data.
_SYSLOG = (
    r"\d{1,2}[ ]\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
    r"[ ][!-~]++[ ][!-~]++[ ][!-~]++[ ][!-~]++[ ](?:-|(?:\[[^\s\]]+(?:[ ][^\]]*)?\])++)[ ]*"
)
_HOST = r"(?:(?:[ ]*[\w.-]++){0,2}[ ]+)?(?:kernel|[\w.-]++\[\d+\]):[ ]*"
_STAMP = re.compile(
    rf"""[ \t]*
    (?:<\d{{1,3}}>)?                                        # dmesg -r
    (?:\d{{1,3}},\d{{1,12}},\d{{1,16}},[^;\s]{{1,40}};)?    # /dev/kmsg, netconsole
    (?:(?:kern|user|daemon)[ ]*:(?:emerg|alert|crit|err|warn|notice|info|debug)[ ]*:[ ]*)?  # -x
    (?:{_SYSLOG}
      |{_DATE}(?:[ ]{_HOST}|(?=[ ]|$))                      # syslog, journalctl, iso
      |{_HOST}(?=\[|time_bench:|bench_page_pool|Type:|Sum[ ]))?
    (?:[ ]*(?:\[[ ]*)?(?P<uptime>\d{{1,9}}\.\d{{1,9}})      # [  157.475084]
       (?:[ ]+<[ ]*\d{{1,9}}\.\d{{1,9}}>)?\][ ]*            # dmesg -d
       (?:[\w.-]++[ ]kernel:[ ]*)?                          # journalctl -o short-monotonic
      |\[[ ]*\+\d{{1,9}}\.\d{{1,9}}\][ ]*                   # dmesg -H
      |\[[A-Z][a-z]{{2}}[ ]+\d{{1,2}}[ ]\d\d:\d\d\][ ]*     # the same, once a minute
      |\[{_DATE}\][ ]*)?                                    # dmesg -T
    (?:\[[ ]*[TC]\d+\][ ]*)?                                # CONFIG_PRINTK_CALLER
    """,
    re.VERBOSE,
)


class Line(NamedTuple):
    """One peeled line: quote depth, behind a bar or not, time stamp (seconds), the text itself."""

    depth: int
    bar: bool
    stamped: bool
    uptime: float | None
    text: str
    #: A patch adds it.
    is_added: bool = False


class RawLine(NamedTuple):
    """One line as read: number from 1, bytes without the newline, whether it was cut."""

    number: int
    data: bytes
    cut: bool


class Skipped(NamedTuple):
    """Lines that concern nobody: how many, their bytes, and the last of them as they are."""

    lines: int
    size: int
    tail: list[bytes]


def read_lines(stream: IO[bytes], limit: int = MAX_LINE) -> Iterator[RawLine]:
    """Lines of a binary stream, never holding more than ``limit`` bytes of one.

    The rest of a longer line is read and thrown away; the line says so by ``cut``.
    """
    number = 0
    readline = stream.readline
    while data := readline(limit):
        number += 1
        yield RawLine(number, data, _rest(stream, data, limit))


def read_blocks(
    stream: IO[bytes], is_dull: Callable[[bytes], bool], limit: int = MAX_LINE
) -> Iterator[RawLine | Skipped]:
    """The same, but lines of a long log that concern nobody come by the block.

    ``is_dull`` says of some whole lines that not one of them matters.
    """
    number = 0
    while block := stream.read(_BLOCK):
        if block[-1:] != b"\n":
            last = stream.readline(limit)
            block += last
            cut = _rest(stream, last, limit)
        else:
            cut = False
        if not cut and is_dull(block):
            lines = block.count(b"\n") + (block[-1:] != b"\n")
            number += lines
            yield Skipped(
                lines, len(block), block.removesuffix(b"\n").rsplit(b"\n", _TAIL)[-_TAIL:]
            )
            continue
        lines_of_it = block.split(b"\n")
        end = lines_of_it.pop()
        for data in lines_of_it:
            number += 1
            yield RawLine(number, (data + b"\n")[:limit], len(data) > limit)
        if end:
            number += 1
            yield RawLine(number, end[:limit], cut or len(end) > limit)


def _rest(stream: IO[bytes], data: bytes, limit: int) -> bool:
    """Throw away what is left of a line that reached the limit; whether there was anything."""
    cut = False
    if data[-1:] != b"\n" and len(data) == limit:
        rest = b""
        while (rest := stream.readline(limit)) and rest[-1:] != b"\n":
            cut = True
        cut = cut or len(rest) > 1
    return cut


def peel(raw: str) -> Line:
    """Take off quotes, bar and time stamp; control characters and colours go as well."""
    if "\x1b" in raw:
        raw = _ESCAPE.sub("", raw)
    depth, position = 0, 0
    if match := _QUOTE.match(raw):
        depth = match.group().count(">")
        position = match.end()
    bar = False
    if match := _BAR.match(raw, position):
        bar = True
        position = match.end()
    text = clean(raw[position:])
    match = _STAMP.match(text)
    assert match is not None  # every part of it is optional
    uptime = match.group("uptime")
    head = match.group()
    # A lone number or word is not a time stamp: only what has a date, an uptime or a level is.
    stamped = uptime is not None or any(char in head for char in ":<[;")
    if not stamped:
        return Line(depth, bar, False, None, text.strip())
    return Line(
        depth, bar, True, None if uptime is None else float(uptime), text[match.end() :].strip()
    )


def clean(text: str) -> str:
    """One line without control characters, so that a log cannot drive a terminal."""
    return _CONTROL.sub("", text.replace("\t", " ").replace("\xa0", " "))
