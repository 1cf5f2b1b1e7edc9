# SPDX-License-Identifier: BSD-2-Clause
"""The reader of text: logs, mails, org documents, this project's own output.

One pass, a line at a time, in memory that depends on the records and not on the file. Most lines
of a long log concern nobody and are left after a few substring tests on their bytes. What a line
is, is decided here; where its records go, in `assembly`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

import msgspec

from pagepool.results import facts, figures, headings, tables
from pagepool.results.assembly import Assembly, Context, Stream
from pagepool.results.errors import ResultsError
from pagepool.results.lines import Line, RawLine, Skipped, peel
from pagepool.results.model import Input, Machine, Record, ResultSet, Severity, Source
from pagepool.results.packed import unpacked_name
from pagepool.results.samples import Measurement
from pagepool.results.time_bench import RecordParser
from pagepool.results.words import count

#: Records kept of one file: they are what memory is spent on. 22 runs of 10 are a long mail.
MAX_RECORDS = 250_000
#: Lines that are kept to look back at: heads of tables, names above figures.
_LOOK_BACK = 10

_MARKER = re.compile(r"(?:time_bench|bench_page_pool):(?:\s+(?P<rest>.*))?$")
_RECORD = re.compile(r"(?:\w[\w.-]*:\s+)?(?P<record>(?:Sum\s+)?Type:\S.*)$")

#: Of a record, wherever it stands.
_MODULE_TYPE = re.compile(r"(?:time_bench|bench_page_pool):\s*(?:Sum\s+)?Type:")
_CYCLES = re.compile(r"\d cycles\(tsc\)")
#: What may stand before what was printed, one within another: ``# `` and ``+``.
_MAX_MARKS = 3


class Mark(NamedTuple):
    """Between lines: another text begins, a mail of an archive or an attachment.

    ``file`` is its name in messages, ``stem`` what its builds are called, ``heading`` a subject.
    """

    file: str
    stem: str
    heading: str | None = None


@dataclass(slots=True)
class _Pending:
    parser: RecordParser
    stream: Stream
    line: Line
    first: int
    last: int


def stem_of(file: str) -> str:
    """What the builds of a file are called that nobody has named."""
    return "stdin" if file == "-" else PurePath(unpacked_name(file)).stem or file


class TextReader:
    """Reads one text. Call `read` once."""

    def __init__(self, file: str) -> None:
        """``file``: the name to report, as the user gave it."""
        self._file = file
        self._context = Context(0, file, stem_of(file))
        self._assembly = Assembly(self._context)
        self._pending: _Pending | None = None
        self._uptime_ahead: tuple[int, float] | None = None
        self._above: deque[tuple[int, bytes]] = deque(maxlen=_LOOK_BACK)
        self._peeled: dict[str, Line] = {}  # of some of these
        self._is_any = False
        self._is_org = False
        #: The first row of figures without a unit; 0: there was none.
        self._unitless = 0

    def read(self, lines: Iterable[RawLine | Skipped | Mark]) -> ResultSet:
        """All lines. Raises `ResultsError` when there is nothing in them, ``OSError``."""
        number = lines_of_it = size = 0
        nul = full = False
        assembly, above = self._assembly, self._above
        for line in lines:
            if isinstance(line, Skipped):
                self._flush()
                assembly.at += line.lines
                above.extend(enumerate(line.tail, assembly.at - len(line.tail) + 1))
                number, size = number + line.lines, size + line.size
                lines_of_it = number
                continue
            if isinstance(line, Mark):
                self._begin(line)
                continue
            number, data, cut = line
            if self._context.file is self._file:
                lines_of_it, size = number, size + len(data)
            if cut or b"\0" in data:
                nul = nul or b"\0" in data
                if cut and b"Type:" in data:
                    text = "a very long line: its end was skipped"
                    assembly.odd(number, "error", "long-line", text)
            assembly.at += 1
            if self._pending is not None or _may_matter(data):
                self._line(number, data.decode("utf-8", "replace"))
                if assembly.number_of_records >= MAX_RECORDS:
                    full = True
                    break
            above.append((assembly.at, data))
        self._end_of_text()
        if full:
            text = f"more than {MAX_RECORDS} records: the rest of the file was not read"
            assembly.odd(number, "error", "too-many", text)
        builds = assembly.finish()
        oddities = assembly.oddities
        if not builds:
            if size == 0 and not self._is_any:
                raise ResultsError(self._file, "empty")
            if nul:
                raise ResultsError(self._file, "binary data, no results", "give a log or a mail")
            if oddities:
                first = oddities[0]
                raise ResultsError(f"{self._file}:{first.line}", f"no results; {first.text}")
            hint = "expected lines like 'time_bench: Type:NAME Per elem: ...'"
            if self._unitless:
                hint = (
                    f"the table at line {self._unitless} needs cycles, ns, ... in its head, "
                    "its rows' names or its cells"
                )
            raise ResultsError(self._file, f"no results in {count(lines_of_it, 'line')}", hint)
        return ResultSet(builds, tuple(oddities), (Input(self._file, "text", lines_of_it, size),))

    def _begin(self, mark: Mark) -> None:
        self._end_of_text()
        self._context = Context(
            self._context.number + 1 if self._is_any else 0, mark.file, mark.stem, mark.heading
        )
        self._is_any, self._is_org = True, False
        self._assembly.begin(self._context)

    def _end_of_text(self) -> None:
        self._flush()
        for stream in self._assembly.streams():
            self._measured(stream, stream.samples.end())
        self._above.clear()
        self._peeled.clear()
        self._uptime_ahead = None

    # One line

    def _line(self, number: int, raw: str) -> None:
        line = _below_marks(self._peel(raw))
        pending = self._pending
        if pending is not None:
            if self._continues(pending, line):
                text = line.text[1:] if pending.line.is_added else line.text
                progress = pending.parser.feed(text)
                if progress != "misfit":
                    pending.last = number
                    if progress == "whole":
                        self._flush()
                    return
            self._flush()
        stream = self._assembly.stream(line.depth)
        if not line.text or line.text == "[":
            # A mailer may leave the time stamp alone on its line.
            self._uptime_ahead = None if line.uptime is None else (self._assembly.at, line.uptime)
            return
        ahead = self._uptime_ahead
        if line.uptime is None and ahead and ahead[0] == self._assembly.at - 1:
            line = line._replace(stamped=True, uptime=ahead[1])
        self._uptime_ahead = None
        if (
            self._begin_record(stream, line, number)
            or self._figures(stream, line, number)
            or self._samples(stream, line, number)
            or (not line.stamped and self._table(stream, line, number, raw))
        ):
            return
        self._around(stream, line, number, raw)

    def _continues(self, pending: _Pending, line: Line) -> bool:
        """Whether a line may be the next part of a record that a mailer broke."""
        first = pending.line
        return (
            bool(line.text)
            and not line.stamped
            and line.depth == first.depth
            and line.bar == first.bar
            and (line.text[0] == "+" or not first.is_added)
            and not _MARKER.match(line.text)
        )

    def _begin_record(self, stream: Stream, line: Line, number: int) -> bool:
        text = line.text
        match = _MARKER.match(text)
        if match is not None:
            text = match.group("rest") or ""
            if text and not text.startswith(("Type:", "Sum")):
                return False
        elif found := _RECORD.match(text):
            text = found.group("record")
        elif typed := figures.untyped(text):
            text = typed
        else:
            return False
        parser = RecordParser(prefixed=match is not None)
        progress = parser.feed(text)
        self._pending = _Pending(parser, stream, line, number, number)
        if progress in ("whole", "misfit"):
            self._flush()
        return True

    def _flush(self) -> None:
        """The pending record is over, whole or not."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        parser, odd = pending.parser, self._assembly.odd
        where = Source(self._context.file, pending.first, pending.last)
        if not parser.is_named:
            if parser.prefixed and parser.name:
                text = f"not a record: {parser.name[:60]!r} is not followed by figures"
                odd(pending.first, "warning", "no-record", text)
            elif _MODULE_TYPE.match(pending.line.text):
                text = "not a record: no name behind 'Type:'"
                odd(pending.first, "warning", "no-record", text)
            return
        if parser.pmu:
            self._instructions(pending)
            return
        record, oddities = parser.record(where, pending.line.uptime)
        if record.printed_cycles is None or (record.printed_ns is None and record.kind != "sum"):
            missing = "cycles" if record.printed_cycles is None else "nanoseconds"
            text = f"{record.name}: cut short, or no number, where its {missing} are; not used"
            odd(pending.first, "error", "cut-short", text)
            return
        for code, text in oddities:
            odd(pending.first, "warning", code, text)
        self._assembly.add(pending.stream, record)

    def _instructions(self, pending: _Pending) -> None:
        """``Type:NAME PMU inst/clock...`` follows the record that it belongs to."""
        run = pending.stream.run
        value = pending.parser.values.get("instructions")
        if run is None or value is None or not run.records:
            return
        if run.records[-1].name == pending.parser.name:
            run.records[-1] = msgspec.structs.replace(run.records[-1], instructions=int(value))

    # Figures that are no record of time_bench

    def _figures(self, stream: Stream, line: Line, number: int) -> bool:
        """Summaries, lists and other modules' lines; figures that are named by what is above."""
        found = figures.read(line.text)
        if found:
            for record in found:
                said = None if record.printed_ns is None else self._assembly.at
                if "single_page" in record.name and _is_section(stream.heading):
                    stream.heading = None
                self._add(stream, record, number, number, line.uptime, said)
            return True
        figure = figures.wanting(line.text)
        if figure is None:
            return False
        caption = figures.caption(self._texts_above(line.depth), figure)
        if caption is None:
            return False
        if caption.heading is not None:
            # What a sentence is about is not what the log below it is about.
            if stream.heading_at == caption.line:
                stream.heading = None
            stream = stream.column(caption.heading, caption.line, number, self._assembly.at)
        record = msgspec.structs.replace(figure.record, name=caption.name)
        self._add(stream, record, number, number, line.uptime, caption.line)
        return True

    def _samples(self, stream: Stream, line: Line, number: int) -> bool:
        """Packet rates: kept until the program that prints them is through."""
        depth = line.depth
        is_one, ended = stream.samples.feed(
            number, line.text, lambda: (text for _, text in self._texts_above(depth))
        )
        self._measured(stream, ended)
        return is_one

    def _measured(self, stream: Stream, measurements: list[Measurement]) -> None:
        for record, first, last in measurements:
            self._add(stream, record, first, last, None, None)

    def _table(self, stream: Stream, line: Line, number: int, raw: str) -> bool:
        """A row of a table: its records go to the builds that its columns are of."""
        table = stream.table
        text, at = tables.layout(raw, line.depth), self._assembly.at
        entries = table.bar(at, text) if text.lstrip()[:1] in ("|", "+") else None
        read = table.dashed if "cycles(tsc)" in text else table.aligned
        if entries is None:
            entries = read(at, text, lambda: self._layouts_above(line.depth))
        if table.unitless and not self._unitless:
            self._unitless = number
        if entries is None:
            return False
        if stream.begin_block(table.first):
            stream.new_run = True
            stream.settings = {**stream.settings, **self._parameters(line.depth)}
        for label, record, is_part in entries:
            into = stream
            if label:
                into = stream.column(headings.Heading(label, label), table.first, number, at)
            if record.kind in ("cpu", "sum"):
                record = msgspec.structs.replace(record, step=_returning(into))
            if is_part and into.complete(record, table.first):
                continue
            self._add(into, record, number, number, None, table.first)
        return True

    def _add(
        self,
        stream: Stream,
        record: Record,
        first: int,
        last: int,
        uptime: float | None,
        said: int | None,
    ) -> None:
        source = Source(self._context.file, first, last)
        record = msgspec.structs.replace(record, source=source, uptime=uptime)
        self._assembly.add(stream, record, said)

    # What stands above

    def _texts_above(self, depth: int) -> Iterator[tuple[int, str]]:
        """The lines above at one quote depth, peeled, nearest first."""
        for number, data in reversed(self._above):
            line = self._peel(data.decode("utf-8", "replace"))
            if line.depth == depth:
                yield number, line.text

    def _layouts_above(self, depth: int) -> Iterator[tuple[int, str]]:
        """The same as they stand on the page."""
        for number, data in reversed(self._above):
            raw = data.decode("utf-8", "replace")
            if self._peel(raw).depth == depth:
                yield number, tables.layout(raw, depth)

    def _peel(self, raw: str) -> Line:
        """A line peeled; those above are looked at by many lines below them."""
        line = self._peeled.get(raw)
        if line is None:
            if len(self._peeled) > 2 * _LOOK_BACK:
                self._peeled.clear()
            line = self._peeled[raw] = peel(raw)
        return line

    def _parameters(self, depth: int) -> Machine:
        """``bench_page_pool_simple results, loops=200000000`` above a table."""
        for _, text in self._texts_above(depth):
            if "bench_page_pool" in text and (found := headings.parameters(text)):
                return found
        return {}

    def _around(self, stream: Stream, line: Line, number: int, raw: str) -> None:
        """A line that is no record: does it say where the next ones belong?"""
        text = line.text
        if (found := _unread(line)) is not None:
            self._assembly.odd(number, *found)
            return
        if facts.read(text, stream.facts):
            return
        self._is_org = self._is_org or headings.is_org(text)
        if text[:1] in "*#" and (title := headings.headline(text)) is not None:
            # In a mail an asterisk is a bullet, and so it is when it is indented.
            if text[0] == "#" or (self._is_org and tables.layout(raw, line.depth)[:1] == "*"):
                self._assembly.section(stream, title)
        elif (parameters := headings.run_start(text)) is not None:
            stream.new_run = True
            stream.settings = {**stream.settings, **parameters}
        elif kernel := headings.kernel(text):
            if line.stamped:
                facts.reboot(stream.facts)
            self._assembly.kernel(stream, kernel, line.stamped, number)
        elif fact := headings.fact(text):
            self._assembly.fact(stream, *fact, number, text)
            if fact[0] == "cpu" and (heading := headings.heading(text)) is not None:
                stream.head(heading, number, self._assembly.at)  # `Results on my Xeon:`
        elif heading := headings.heading(text) or self._underlined(line):
            stream.head(heading, number, self._assembly.at)

    def _underlined(self, line: Line) -> headings.Heading | None:
        """A heading with a rule below it, which is the present line."""
        if not headings.is_rule(line.text):
            return None
        above = next((text for _, text in self._texts_above(line.depth)), "")
        return headings.phrase(above)


def _below_marks(line: Line) -> Line:
    """A line without the ``# `` that kselftest's runner puts before what a test prints, and
    without the ``+`` of a patch that adds it to a document."""
    inner = line
    for _ in range(_MAX_MARKS):
        is_added = inner.text[:1] == "+"
        if not is_added and not inner.text.startswith("# "):
            break
        below = peel(inner.text[1:])
        if below.depth or below.bar:
            break
        inner = below._replace(depth=line.depth, bar=line.bar, is_added=is_added or inner.is_added)
        if _is_record(inner, is_added):
            return inner
    return line


def _is_record(line: Line, is_added: bool = True) -> bool:
    """Whether a line is what a benchmark prints. A time stamp is enough, but not in a patch."""
    text = line.text
    return bool(
        (line.stamped and not is_added)
        or _MARKER.match(text)
        or _RECORD.match(text)
        or figures.read(text)
    )


def _unread(line: Line) -> tuple[Severity, str, str] | None:
    """Of a line that has a record in it and was not read as one: why."""
    text = line.text
    found = _MODULE_TYPE.search(text) if "Type:" in text else None
    if found is None:
        return None
    if text[0] == "-" and _is_record(peel(text[1:])):
        return "note", "no-record", "a record in a line that a patch removes; not read"
    if _CYCLES.search(text, found.end()) is None:
        return None
    return "warning", "no-record", f"a record behind {text[: found.start()][:40]!r}; not read"


def _is_section(heading: headings.Heading | None) -> bool:
    """page_bench04 calls its first section ``BASELINE``; the others are no builds either."""
    return heading is not None and heading.text == "BASELINE"


def _returning(stream: Stream) -> int | None:
    """The step of cross_cpu's records is the number of returning CPUs."""
    known = stream.settings or (stream.run.settings if stream.run else {})
    value = known.get("returning_cpus", "")
    return int(value) if value.isdecimal() and len(value) < 6 else None


#: What every line that can matter has in it, but for headings and commits.
_NEEDLES = (b"bench", b"Type:", b"#", b"cycles", b"Linux version", b"CPU: ", b"Machine: ")
#: A blank that does not break. It may be within any of these, and between numbers.
_HARD_BLANK = b"\xc2\xa0"
_WORDS = re.compile(b"|".join((*_NEEDLES, *facts.NEEDLES))).search
#: A line of the 1000th second of a boot or later. What a boot says of itself comes earlier.
_LATE = re.compile(rb"\[ ?\d{4,}\.").search
#: What else matters in text that no kernel has printed: rates, rules, tables, machines.
_TYPED = re.compile(
    rb"XDP|xdp|pps|pkt/s|/sec|rx/s|->|elem:|\+-|sock\d|[-=]{4}|\||\xc2\xb1|\xe2\x94|\xe2\x95"
    rb"|%[^)\n]{0,14}\)|Machine [A-Z\d]: |CPU [A-Z]: "
).search
#: Two numbers at the end of a line, or one behind a comma, a tab or blanks: the row of a table.
_ROW = re.compile(
    rb"(?:(?:\d|-|\))\s?[a-zA-Z%\xb5\xc2\xce\xbc/]*\s+[(\[]?[-+\d.,/]*(?:\d|-)"
    rb"|(?:,\s?\"?|\t|\s\s)(?:[-+]?\d[\d.,/]*|-)|\d,+)"
    rb"\s?[a-zA-Z%\xb5\xc2\xce\xbc/]*[)\]]?\"?\s*$"
).search
#: A commit, or the headline of an org document.
_COMMIT = re.compile(rb"[> |\t]*[0-9a-f]{10}|(?:> ?)*\*{1,6} ").match
_COMMIT_BEGINS = frozenset(bytes([char]) for char in b"> |\t0123456789abcdef*")
_HEADING_ENDS = frozenset({b":", b"e", b"E", b" ", b"\t", b"\r"})
#: A line that a log's reader stamped, 23 bytes or more.
_STAMP = rb"(?:\[|<\d|[A-Z][a-z]{2} [ \d]\d \d\d:|\d{4}-\d\d-\d\d[T ])"
_STAMPED = re.compile(_STAMP).match
_SHORT_OR_TYPED = re.compile(rb"\n(?!" + _STAMP + rb"[^\n]{23}|\Z)").search
#: How a heading ends; and what may stand behind it, which is looked at line by line.
_ENDS = (b":\n", b"aseline\n", b"ASELINE\n", b" \n", b"\t\n", b"\r\n")


def _may_matter(data: bytes) -> bool:
    """Whether a line can be anything at all; called for every line of a log of any length.

    Two microseconds more here are a minute for a log of two gigabytes, hence the cheap tests
    in front of the dear ones.
    """
    return (
        len(data) < 24
        or _WORDS(data) is not None
        or (not data.isascii() and _HARD_BLANK in data)
        or data[-1:] != b"\n"
        or (data[-2:-1] in _HEADING_ENDS and data.rstrip().endswith((b":", b"aseline", b"ASELINE")))
        or (data[:1] in _COMMIT_BEGINS and _COMMIT(data) is not None)
        or (_STAMPED(data) is None and (_TYPED(data) is not None or _ROW(data[-60:]) is not None))
    )


def is_dull(block: bytes) -> bool:
    """Whether not one of some whole lines matters: all are stamped, and `_may_matter` of none.

    It looks for each word in the whole block, which takes a quarter of the time that looking
    for all of them in each line takes.
    """
    return (
        not any(needle in block for needle in _NEEDLES)
        and (block.isascii() or _HARD_BLANK not in block)
        and not (_may_boot(block) and any(needle in block for needle in facts.NEEDLES))
        and not any(end in block for end in _ENDS)
        and b"\0" not in block
        and block[-1:] == b"\n"
        and _SHORT_OR_TYPED(b"\n" + block) is None
    )


def _may_boot(block: bytes) -> bool:
    """Whether lines of a boot may be among stamped ones: some are early, or have no uptime."""
    return b"[  " in block or _LATE(block) is None
