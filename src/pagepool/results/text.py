# SPDX-License-Identifier: BSD-2-Clause
"""The reader of text: logs, mails, org documents, this project's own output.

One pass, a line at a time, in memory that depends on the records and not on the file. Most lines
of a long log concern nobody and are left after a few substring tests on their bytes.

A *run* begins with ``bench_page_pool_simple: Loaded``, with ``insmod``/``modprobe`` of such a
module, with ``# run N``, when the time stamps go backwards, or when a test comes a second time. A
*build* begins with a heading or with another kernel version. What is quoted at another depth in a
mail is somebody else's: every depth has its own builds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePath

import msgspec

from pagepool.results import headings
from pagepool.results.errors import ResultsError
from pagepool.results.lines import Line, RawLine, peel
from pagepool.results.model import (
    SHORT_PERIOD,
    Build,
    Input,
    Key,
    Machine,
    Oddity,
    Record,
    ResultSet,
    Run,
    Severity,
    Source,
)
from pagepool.results.packed import unpacked_name
from pagepool.results.time_bench import RecordParser
from pagepool.results.words import count

#: Records kept of one file: they are what memory is spent on. 22 runs of 10 are a long mail.
MAX_RECORDS = 250_000
#: Oddities of one file that are kept word for word; the rest is counted.
MAX_ODDITIES = 1000
#: A heading further away than this does not belong to the records below it.
HEADING_REACH = 40
#: Counters that differ by more than this are of two machines. One machine's records agree within
#: some 0.1 %; the nominal speeds of two differ by a step of 100 MHz, 2.5 % and more.
CLOCK_TOLERANCE = 0.02

#: Facts that change from run to run without making another build of it.
_VOLATILE = frozenset({"date", "time", "started", "finished", "load", "uptime", "run"})
#: ``# key: value`` lines that say how it was run, not where: they go to the runs below them.
_SETTINGS = frozenset(
    {"loops", "suite", "command", "tests", "runs", "cpus", "returning_cpus", "producers"}
)

_MARKER = re.compile(r"(?:time_bench|bench_page_pool):(?:\s+(?P<rest>.*))?$")
_RECORD = re.compile(r"(?:[\w.-]+:\s+)?(?P<record>(?:Sum\s+)?Type:\S.*)$")
#: ``no-softirq-page_pool01 Per elem: 11 cycles(tsc) 4.337 ns``: the summary of the kernel's
#: script, and how people copy single lines. One word of a name, nothing in front of it.
_SUMMARY = re.compile(
    r"(?:[-*] )?(?P<name>[A-Za-z][\w.()+-]{1,80})\s+Per elem:\s+(?P<cycles>\d{1,18})\s+"
    r"cycles\(tsc\)\s+(?P<ns>\d{1,18}\.\d{1,9})\s+ns(?:\s+\(step:(?P<step>\d{1,9})\))?$"
)
_NAMELESS = re.compile(r"(?:[-*] )?\d+ cycles\(tsc\) \d+\.\d+ ns")


@dataclass(slots=True)
class _Run:
    settings: Machine
    line: int
    records: list[Record] = field(default_factory=list)
    keys: set[Key] = field(default_factory=set)


@dataclass(slots=True)
class _Build:
    label: str | None
    heading: str | None
    kernel: headings.Kernel | None
    depth: int
    line: int
    clock: float | None = None
    machine: Machine = field(default_factory=dict)
    runs: list[_Run] = field(default_factory=list)


@dataclass(slots=True)
class _Stream:
    """What is known at one quote depth: where the next record will go."""

    depth: int
    build: _Build | None = None
    run: _Run | None = None
    heading: headings.Heading | None = None
    heading_line: int = 0
    kernel: headings.Kernel | None = None
    kernel_line: int = 0
    new_build: bool = False
    new_run: bool = False
    uptime: float | None = None
    settings: Machine = field(default_factory=dict)
    common: Machine = field(default_factory=dict)
    facts: Machine = field(default_factory=dict)


@dataclass(slots=True)
class _Pending:
    parser: RecordParser
    stream: _Stream
    line: Line
    first: int
    last: int


class TextReader:
    """Reads one text. Call `read` once."""

    def __init__(self, file: str) -> None:
        """``file``: the name to report, as the user gave it."""
        self._file = file
        self._builds: list[_Build] = []
        self._streams: dict[int, _Stream] = {}
        self._oddities: list[Oddity] = []
        self._more_oddities = 0
        self._pending: _Pending | None = None
        self._uptime_ahead: tuple[int, float] | None = None
        self._seen: dict[tuple[Key, int, int, int | None], int] = {}
        self._copies: list[tuple[int, int]] = []
        self._number_of_records = 0

    def read(self, lines: Iterable[RawLine]) -> ResultSet:
        """All lines. Raises `ResultsError` when there is nothing in them, ``OSError``."""
        number = size = 0
        nul = empty = full = False
        for number, data, cut in lines:
            size += len(data)
            if cut or b"\0" in data:
                nul = nul or b"\0" in data
                if cut and b"Type:" in data:
                    self._odd(number, "error", "long-line", "a very long line: its end was skipped")
            if self._pending is None and not _may_matter(data):
                continue
            self._line(number, data.decode("utf-8", "replace"))
            if self._number_of_records >= MAX_RECORDS:
                full = True
                break
        empty = size == 0
        self._flush()
        if full:
            text = f"more than {MAX_RECORDS} records: the rest of the file was not read"
            self._odd(number, "error", "too-many", text)
        self._finish()
        builds = self._result()
        if not builds:
            if empty:
                raise ResultsError(self._file, "empty")
            if nul:
                raise ResultsError(self._file, "binary data, no results", "give a log or a mail")
            if self._oddities:
                first = self._oddities[0]
                raise ResultsError(f"{self._file}:{first.line}", f"no results; {first.text}")
            raise ResultsError(
                self._file,
                f"no results in {count(number, 'line')}",
                "expected lines like 'time_bench: Type:NAME Per elem: ...'",
            )
        return ResultSet(builds, tuple(self._oddities), (Input(self._file, "text", number, size),))

    # One line

    def _line(self, number: int, raw: str) -> None:
        line = peel(raw)
        pending = self._pending
        if pending is not None:
            if self._continues(pending, line):
                progress = pending.parser.feed(line.text)
                if progress != "misfit":
                    pending.last = number
                    if progress == "whole":
                        self._flush()
                    return
            self._flush()
        stream = self._streams.get(line.depth)
        if stream is None:
            stream = self._streams[line.depth] = _Stream(line.depth)
        if not line.text or line.text == "[":
            # A mailer may leave the time stamp alone on its line.
            self._uptime_ahead = None if line.uptime is None else (number, line.uptime)
            return
        if line.uptime is None and self._uptime_ahead and self._uptime_ahead[0] == number - 1:
            line = line._replace(stamped=True, uptime=self._uptime_ahead[1])
        self._uptime_ahead = None
        if self._begin_record(stream, line, number):
            return
        if self._summary(stream, line, number):
            return
        self._around(stream, line, number)

    def _continues(self, pending: _Pending, line: Line) -> bool:
        """Whether a line may be the next part of a record that a mailer broke."""
        first = pending.line
        return (
            bool(line.text)
            and not line.stamped
            and line.depth == first.depth
            and line.bar == first.bar
            and not _MARKER.match(line.text)
        )

    def _begin_record(self, stream: _Stream, line: Line, number: int) -> bool:
        text = line.text
        match = _MARKER.match(text)
        if match is not None:
            text = match.group("rest") or ""
            if text and not text.startswith(("Type:", "Sum")):
                return False
        elif found := _RECORD.match(text):
            text = found.group("record")
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
        parser = pending.parser
        where = Source(self._file, pending.first, pending.last)
        if not parser.is_named:
            if parser.prefixed and parser.name:
                text = f"not a record: {parser.name[:60]!r} is not followed by figures"
                self._odd(pending.first, "warning", "no-record", text)
            return
        if parser.pmu:
            self._instructions(pending)
            return
        record, odd = parser.record(where, pending.line.uptime)
        if record.printed_cycles is None or (record.printed_ns is None and record.kind != "sum"):
            missing = "cycles" if record.printed_cycles is None else "nanoseconds"
            text = f"{record.name}: cut short, or no number, where its {missing} are; not used"
            self._odd(pending.first, "error", "cut-short", text)
            return
        for code, text in odd:
            self._odd(pending.first, "warning", code, text)
        self._add(pending.stream, record)

    def _instructions(self, pending: _Pending) -> None:
        """``Type:NAME PMU inst/clock...`` follows the record that it belongs to."""
        run = pending.stream.run
        value = pending.parser.values.get("instructions")
        if run is None or value is None or not run.records:
            return
        if run.records[-1].name == pending.parser.name:
            run.records[-1] = msgspec.structs.replace(run.records[-1], instructions=int(value))

    def _summary(self, stream: _Stream, line: Line, number: int) -> bool:
        match = _SUMMARY.match(line.text)
        if match is None:
            return False
        step = match.group("step")
        record = Record(
            name=match.group("name"),
            step=None if step is None else int(step),
            printed_cycles=int(match.group("cycles")),
            printed_ns=match.group("ns"),
            uptime=line.uptime,
            source=Source(self._file, number, number),
        )
        run = stream.run
        if run is not None and stream.heading is None and record.key in run.keys:
            # The script prints the log and then its own summary of it.
            for other in run.records:
                if other.key == record.key and other.printed_ns == record.printed_ns:
                    self._copies.append((number, other.source.line if other.source else 0))
                    return True
        self._add(stream, record)
        return True

    def _around(self, stream: _Stream, line: Line, number: int) -> None:
        """A line that is no record: does it say where the next ones belong?"""
        text = line.text
        if (parameters := headings.run_start(text)) is not None:
            stream.new_run = True
            stream.settings = {**stream.settings, **parameters}
        elif kernel := headings.kernel(text):
            self._kernel(stream, kernel, line.stamped, number)
        elif found := headings.fact(text):
            key, value = found
            if key in ("build", "label"):
                stream.heading, stream.heading_line = headings.Heading(value, text), number
            elif key in _SETTINGS:
                stream.common[key] = value
            else:
                stream.facts[key] = value
        elif heading := headings.heading(text):
            stream.heading, stream.heading_line = heading, number
        elif _NAMELESS.match(text):
            # Figures without a name, below their own heading: it is not the next run's.
            stream.heading = None

    def _kernel(self, stream: _Stream, kernel: headings.Kernel, stamped: bool, number: int) -> None:
        """A version line: of the build above it, when that has none yet, or of the next one.

        People type ``cat /proc/version`` after their runs; a boot's own banner and a mail's
        ``uname`` stand before them.
        """
        build = stream.build
        if stream.heading is None and build is not None and build.runs and not stream.new_build:
            if build.kernel is not None and build.kernel.release == kernel.release:
                return
            if build.kernel is None and not stamped and kernel.text.startswith("Linux version"):
                build.kernel = kernel
                self._check_commit(build, number)
                return
            stream.new_build = True
        stream.kernel, stream.kernel_line = kernel, number

    def _check_commit(self, build: _Build, number: int) -> None:
        """``git describe`` puts the commit into the release: it must be the heading's."""
        if build.kernel is None or build.label is None:
            return
        label = build.label
        commit = re.search(r"-g([0-9a-f]{7,40})\b", build.kernel.release)
        if commit is None or not re.fullmatch(r"[0-9a-f]{7,40}", label):
            return
        length = min(len(label), len(commit.group(1)))
        if label[:length] != commit.group(1)[:length]:
            text = f"the heading says {label}, the kernel {build.kernel.release}"
            self._odd(number, "warning", "other-commit", text)

    # Where a record goes

    def _add(self, stream: _Stream, record: Record) -> None:
        line = record.source.line if record.source else 0
        if self._is_copy(record, line):
            # The copy's heading, its kernel and its `Loaded` go with it.
            stream.heading, stream.kernel = None, None
            stream.new_build, stream.new_run = False, False
            return
        if stream.heading is not None and line - stream.heading_line > HEADING_REACH:
            stream.heading = None
        begins = (
            stream.run is None
            or stream.new_run
            or record.key in stream.run.keys
            or (
                record.uptime is not None
                and stream.uptime is not None
                and record.uptime < stream.uptime
            )
        )
        build = self._build(stream, line, _clock(record) if begins else None)
        run = stream.run
        if run is None or begins:
            run = stream.run = _Run({**stream.common, **stream.settings}, line)
            stream.settings = {}
            build.runs.append(run)
        stream.new_run = False
        stream.uptime = record.uptime
        build.clock = build.clock or _clock(record)
        run.records.append(record)
        run.keys.add(record.key)
        self._number_of_records += 1

    def _build(self, stream: _Stream, line: int, clock: float | None) -> _Build:
        """The build that a record of this stream belongs to now, begun if need be.

        ``clock`` is that of the first record of a run (GHz). A mail may have a ``Before:`` of
        one machine and a ``Before:`` of another.
        """
        build, heading = stream.build, stream.heading
        facts, stream.facts = stream.facts, {}
        stays = build is not None and not stream.new_build and heading is None
        if build is not None and stays and _may_be(build, facts, clock):
            build.machine.update(facts)
            return build
        label = heading.label if heading else stream.kernel.release if stream.kernel else None
        again = self._same_label(stream, label, facts, clock)
        if again is None:
            again = _Build(
                label=label,
                heading=heading.text if heading else None,
                kernel=stream.kernel,
                depth=stream.depth,
                line=stream.heading_line if heading else line,
            )
            self._builds.append(again)
        again.machine.update(facts)
        self._check_commit(again, stream.kernel_line)
        stream.build, stream.run, stream.uptime = again, None, None
        stream.heading, stream.kernel, stream.new_build = None, None, False
        return again

    def _same_label(
        self, stream: _Stream, label: str | None, facts: Machine, clock: float | None
    ) -> _Build | None:
        """An earlier build under the same heading: a mail may come back to ``Control:``."""
        if label is None:
            return None
        for build in self._builds:
            if build.depth != stream.depth or build.label != label:
                continue
            known, now = build.kernel, stream.kernel
            if known is not None and now is not None and known.release != now.release:
                continue
            if _may_be(build, facts, clock):
                build.kernel = known or now
                return build
        return None

    def _is_copy(self, record: Record, line: int) -> bool:
        """Whether the very same measurement was read before: own text, and a quote of it.

        Nanoseconds and counter cycles of two measurements do not agree to the last digit.
        """
        if not (record.time_interval_ns and record.invoke_count):
            return False
        identity = (
            record.key,
            record.time_interval_ns,
            record.invoke_count,
            record.tsc_interval,
        )
        first = self._seen.setdefault(identity, line)
        if first == line:
            return False
        self._copies.append((line, first))
        return True

    # The end

    def _odd(self, line: int, severity: Severity, code: str, text: str) -> None:
        if len(self._oddities) < MAX_ODDITIES:
            self._oddities.append(Oddity(self._file, line, text, severity, code))
        else:
            self._more_oddities += 1

    def _finish(self) -> None:
        if self._copies:
            (first, original), number = self._copies[0], len(self._copies)
            records = "1 record is a copy" if number == 1 else f"{number} records are copies"
            text = f"{records} of what was read before (line {original} on); counted once"
            self._odd(first, "note", "copy", text)
        for stream in self._streams.values():
            build = stream.build
            if build and not stream.new_build and _may_be(build, stream.facts, None):
                build.machine.update(stream.facts)
            if stream.kernel is not None and self._builds:
                text = f"the kernel {stream.kernel.release} has no records below it"
                self._odd(stream.kernel_line, "note", "no-records", text)
        self._oddities.sort(key=lambda oddity: oddity.line)
        if self._more_oddities:
            text = f"{self._more_oddities} more oddities"
            self._oddities.append(Oddity(self._file, 0, text, "note", "more"))

    def _result(self) -> tuple[Build, ...]:
        """The builds, with labels that are there, short, and unique in the file."""
        stem = (
            "stdin" if self._file == "-" else PurePath(unpacked_name(self._file)).stem or self._file
        )
        depths = {build.depth for build in self._builds}
        labels: dict[str, int] = {}
        result = []
        for build in self._builds:
            label = build.label
            if label is None:
                label = stem if build.depth == min(depths) else f"quoted{build.depth}"
            number = labels[label] = labels.get(label, 0) + 1
            runs = tuple(
                Run(tuple(run.records), run.settings, Source(self._file, run.line, _last(run)))
                for run in build.runs
            )
            result.append(
                Build(
                    label=label if number == 1 else f"{label}#{number}",
                    runs=runs,
                    kernel=build.kernel.text if build.kernel else build.machine.get("kernel"),
                    heading=build.heading,
                    machine=build.machine,
                    source=Source(self._file, build.line, _last(build.runs[-1])),
                )
            )
        return tuple(result)


def _last(run: _Run) -> int:
    source = run.records[-1].source
    return source.last_line if source else run.line


def _clock(record: Record) -> float | None:
    """The counter's speed in GHz, where the record can tell: the two clocks are not read at one
    moment, and what comes between is a visible part of a short record."""
    short = (record.time_interval_ns or 0) < SHORT_PERIOD * 1e9
    return None if short else record.tsc_ghz


def _may_be(build: _Build, facts: Machine, clock: float | None) -> bool:
    """Whether what is known of a run allows that it is of this build, on the same machine."""
    if clock and build.clock and abs(clock / build.clock - 1) > CLOCK_TOLERANCE:
        return False
    return not any(
        key not in _VOLATILE and build.machine.get(key, value) != value
        for key, value in facts.items()
    )


#: What every line that can matter has in it, but for headings and commits.
_WORDS = re.compile(rb"bench|Type:|#|cycles\(|Linux version|CPU: |Machine: ").search
_COMMIT = re.compile(rb"[> |\t]*[0-9a-f]{10}").match
_COMMIT_BEGINS = frozenset(bytes([char]) for char in b"> |\t0123456789abcdef")
_HEADING_ENDS = frozenset({b":", b"e", b"E", b" ", b"\t", b"\r"})


def _may_matter(data: bytes) -> bool:
    """Whether a line can be anything at all; called for every line of a log of any length.

    Two microseconds more here are a minute for a log of two gigabytes, hence the cheap tests
    in front of the dear ones.
    """
    return (
        len(data) < 24
        or _WORDS(data) is not None
        or data[-1:] != b"\n"
        or (data[-2:-1] in _HEADING_ENDS and data.rstrip().endswith((b":", b"aseline", b"ASELINE")))
        or (data[:1] in _COMMIT_BEGINS and _COMMIT(data) is not None)
    )
