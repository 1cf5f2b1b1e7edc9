# SPDX-License-Identifier: BSD-2-Clause
"""Puts records where they belong: into runs, runs into builds, copies nowhere.

A *run* begins with ``bench_page_pool_simple: Loaded``, with ``insmod``/``modprobe`` of such a
module, with ``# run N``, when the time stamps go backwards, or when a test comes a second time. A
*build* begins with a heading or with another kernel version. What is quoted at another depth in a
mail is somebody else's: every depth has its own builds, and every mail and attachment, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from pagepool.results import copies, headings
from pagepool.results.model import (
    SHORT_PERIOD,
    Build,
    Key,
    Machine,
    Oddity,
    Record,
    Run,
    Severity,
    Source,
)
from pagepool.results.samples import Samples
from pagepool.results.tables import Table

#: Oddities of one file that are kept word for word; the rest is counted.
MAX_ODDITIES = 1000
#: A heading further away than this does not belong to the records below it.
HEADING_REACH = 40
#: Counters that differ by more than this are of two machines. One machine's records agree within
#: some 0.1 %; the nominal speeds of two differ by a step of 100 MHz, 2.5 % and more.
CLOCK_TOLERANCE = 0.02

#: Rows of a table in which the other figure of a test is looked for.
_ROWS = 40
#: Of a section's title, where nothing else names a build.
_MAX_HEADLINE = 40

#: Facts that change from run to run without making another build of it.
_VOLATILE = frozenset(
    {"date", "time", "started", "finished", "load", "uptime", "run", "counter", "tsc"}
)
#: ``# key: value`` lines that say how it was run, not where: they go to the runs below them.
_SETTINGS = frozenset(
    {"loops", "suite", "command", "tests", "runs", "cpus", "returning_cpus", "producers"}
)


#: A line of a file.
_Where: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Context:
    """One text of a file: the file itself, a mail of an archive, an attachment.

    ``stem`` is what its builds are called that nobody has named; ``heading`` a mail's subject.
    """

    number: int
    file: str
    stem: str
    heading: str | None = None


@dataclass(slots=True, eq=False)
class _Run:
    settings: Machine
    line: int
    block: int = 0
    is_said: bool = False
    records: list[Record] = field(default_factory=list)
    keys: set[Key] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Build:
    label: str | None
    heading: str | None
    kernel: headings.Kernel | None
    context: Context
    depth: int
    section: int
    line: int
    clock: float | None = None
    machine: Machine = field(default_factory=dict)
    runs: list[_Run] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Stream:
    """What is known at one quote depth of a text: where the next record will go."""

    context: Context
    depth: int
    section: int = 0
    headline: str | None = None
    build: _Build | None = None
    run: _Run | None = None
    heading: headings.Heading | None = None
    heading_line: int = 0
    heading_at: int = 0
    kernel: headings.Kernel | None = None
    kernel_line: int = 0
    new_build: bool = False
    new_run: bool = False
    uptime: float | None = None
    settings: Machine = field(default_factory=dict)
    common: Machine = field(default_factory=dict)
    facts: Machine = field(default_factory=dict)
    #: The CPU that was named last, and the level of the headline that did (0: a line): what comes
    #: below is of it, too.
    cpu: str = ""
    cpu_level: int = 0
    table: Table = field(default_factory=Table)
    samples: Samples = field(default_factory=Samples)
    beside: dict[str, Stream] = field(default_factory=dict)
    beside_of: int = 0

    def column(self, heading: headings.Heading, block: int, line: int, at: int) -> Stream:
        """The stream of one column of a table, or of what a sentence is about, at ``block``.

        ``line`` is that of its file, ``at`` counts the lines of the text.
        """
        self.begin_block(block)
        stream = self.beside.get(heading.label)
        if stream is None:
            stream = self.beside[heading.label] = Stream(self.context, self.depth, self.section)
            stream.head(heading, line, at)
            stream.settings = dict(self.settings)
            stream.facts = dict(self.facts)
            stream.cpu = self.cpu
            stream.new_run = True
        stream.heading_line, stream.heading_at = line, at
        return stream

    def begin_block(self, block: int) -> bool:
        """Columns are those of the table at ``block`` from here on; whether it is another one."""
        is_new = block != self.beside_of
        if is_new:
            self.beside, self.beside_of = {}, block
        return is_new

    def complete(self, record: Record, block: int) -> bool:
        """Whether a row of the table at ``block`` is the other figure of a row above it, and only
        completes its record: ``fast path (ns)`` after ``fast path (cycles)``."""
        run = self.run
        if run is None or self.new_run or not run.is_said or run.block != block:
            return False
        for at in range(len(run.records) - 1, max(len(run.records) - _ROWS, 0) - 1, -1):
            one = run.records[at]
            if one.key != record.key:
                continue
            cycles = [it.printed_cycles for it in (one, record) if it.printed_cycles is not None]
            ns = [it.printed_ns for it in (one, record) if it.printed_ns is not None]
            if len(cycles) != 1 or len(ns) != 1:
                return False
            run.records[at] = msgspec.structs.replace(
                one, printed_cycles=cycles[0], printed_ns=ns[0]
            )
            return True
        return False

    def head(self, heading: headings.Heading, line: int, at: int) -> None:
        """What stands below is under this heading."""
        self.heading, self.heading_line, self.heading_at = heading, line, at


class Assembly:
    """The builds of one file, as they come up."""

    def __init__(self, context: Context) -> None:
        """``context``: the file's first text."""
        self.context = context
        self.number_of_records = 0
        #: Lines of text so far: of a decoded mail they are others than those of its file.
        self.at = 0
        self.oddities: list[Oddity] = []
        self._builds: list[_Build] = []
        self._labelled: dict[tuple[int, int, int, str | None], list[_Build]] = {}
        self._streams: dict[int, Stream] = {}
        self._more_oddities = 0
        self._seen: dict[tuple[Key, int, int, int | None], _Where] = {}
        self._copies: list[tuple[_Where, _Where]] = []

    def stream(self, depth: int) -> Stream:
        """What is known at one quote depth of the present text."""
        stream = self._streams.get(depth)
        if stream is None:
            stream = self._streams[depth] = Stream(self.context, depth)
        return stream

    def streams(self) -> Iterator[Stream]:
        """Those of the present text."""
        return iter(self._streams.values())

    def begin(self, context: Context) -> None:
        """Another text: nothing that the one before said is about it."""
        self._leave()
        self.context = context

    def odd(self, line: int, severity: Severity, code: str, text: str) -> None:
        """Something that was noticed in the present text."""
        if len(self.oddities) < MAX_ODDITIES:
            self.oddities.append(Oddity(self.context.file, line, text, severity, code))
        else:
            self._more_oddities += 1

    # Facts

    def fact(self, stream: Stream, key: str, value: str, line: int, text: str) -> None:
        """A ``key: value`` that somebody wrote: of the build, the run, or the build's name."""
        if key in ("build", "label"):
            stream.head(headings.Heading(value, text), line, self.at)
        elif key in _SETTINGS:
            stream.common[key] = value
        else:
            stream.facts[key] = value

    def section(self, stream: Stream, title: headings.Headline) -> None:
        """Another section of a document: its builds are not those of the one before."""
        stream.section += 1
        stream.headline = title.text[:_MAX_HEADLINE].rstrip(": ")
        stream.heading, stream.new_build = None, True
        if title.level <= stream.cpu_level or not stream.cpu_level:
            stream.cpu = ""
        key, value = headings.fact(title.text) or headings.fact(f"{title.text}:") or ("", "")
        if key == "cpu":
            stream.facts[key], stream.cpu_level = value, title.level

    def kernel(self, stream: Stream, kernel: headings.Kernel, stamped: bool, number: int) -> None:
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
            self.odd(number, "warning", "other-commit", text)

    # Where a record goes

    def add(self, stream: Stream, record: Record, said: int | None = None) -> None:
        """A record. ``said``: from a summary or a table that begins at this line, not a log."""
        line = record.source.line if record.source else 0
        if self._is_copy(record, line):
            # The copy's heading, its kernel and its `Loaded` go with it.
            stream.heading, stream.kernel = None, None
            stream.new_build, stream.new_run = False, False
            return
        if stream.heading is not None and self.at - stream.heading_at > HEADING_REACH:
            stream.heading = None
        begins = (
            stream.run is None
            or stream.new_run
            or record.key in stream.run.keys
            or stream.run.is_said != (said is not None)
            or (
                record.uptime is not None
                and stream.uptime is not None
                and record.uptime < stream.uptime
            )
        )
        build = self._build(stream, line, clock_of(record) if begins else None)
        run = stream.run
        if run is None or begins:
            block = build.line if said is None else said
            settings = {**stream.common, **stream.settings}
            run = stream.run = _Run(settings, line, block, said is not None)
            stream.settings = {}
            build.runs.append(run)
        stream.new_run = False
        stream.uptime = record.uptime
        build.clock = build.clock or clock_of(record)
        run.records.append(record)
        run.keys.add(record.key)
        self.number_of_records += 1

    def _build(self, stream: Stream, line: int, clock: float | None) -> _Build:
        """The build that a record of this stream belongs to now, begun if need be.

        ``clock`` is that of the first record of a run (GHz). A mail may have a ``Before:`` of
        one machine and a ``Before:`` of another.
        """
        build, heading = stream.build, stream.heading
        facts, stream.facts = stream.facts, {}
        stream.cpu = facts.get("cpu", stream.cpu)
        stays = build is not None and not stream.new_build and heading is None
        if build is not None and stays and _may_be(build, facts, clock):
            build.machine.update(facts)
            return build
        if stream.cpu and "cpu" not in facts:
            if build is None or _is_clock(build.clock, clock):
                facts["cpu"] = stream.cpu
            else:
                stream.cpu = ""  # of another machine
        label = heading.label if heading else stream.kernel.release if stream.kernel else None
        label = label or stream.headline
        again = self._same_label(stream, label, facts, clock)
        if again is None:
            again = _Build(
                label=label,
                heading=heading.text if heading else None,
                kernel=stream.kernel,
                context=stream.context,
                depth=stream.depth,
                section=stream.section,
                line=stream.heading_line if heading else line,
            )
            self._builds.append(again)
            self._labelled.setdefault(_place(again, again.label), []).append(again)
        again.machine.update(facts)
        self._check_commit(again, stream.kernel_line)
        stream.build, stream.run, stream.uptime = again, None, None
        stream.heading, stream.kernel, stream.new_build = None, None, False
        return again

    def _same_label(
        self, stream: Stream, label: str | None, facts: Machine, clock: float | None
    ) -> _Build | None:
        """An earlier build under the same heading: a mail may come back to ``Control:``."""
        if label is None:
            return None
        for build in self._labelled.get(_place(stream, label), ()):
            # `with patches` may be all that a label keeps of two long headings.
            if stream.heading is not None and build.heading != stream.heading.text:
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
        here = (self.context.file, line)
        first = self._seen.setdefault(identity, here)
        if first == here:
            return False
        self._copies.append((here, first))
        return True

    # The end

    def _leave(self) -> None:
        """The present text is over."""
        for stream in self._streams.values():
            build = stream.build
            if build and not stream.new_build and _may_be(build, stream.facts, None):
                build.machine.update(stream.facts)
            if stream.kernel is not None and self._builds:
                text = f"the kernel {stream.kernel.release} has no records below it"
                self.odd(stream.kernel_line, "note", "no-records", text)
        self._streams = {}

    def finish(self) -> tuple[Build, ...]:
        """All builds, with labels that are there, short, and unique in the file."""
        self._leave()
        self._drop_copies()
        if self._copies:
            ((file, first), (where, original)), number = self._copies[0], len(self._copies)
            records = "1 record is a copy" if number == 1 else f"{number} records are copies"
            other = f"line {original} on" if where == file else f"{where}:{original} on"
            text = f"{records} of other records ({other}); counted once"
            self.oddities.append(Oddity(file, first, text, "note", "copy"))
        order = {file: at for at, file in enumerate(dict.fromkeys(o.file for o in self.oddities))}
        self.oddities.sort(key=lambda oddity: (order[oddity.file], oddity.line))
        if self._more_oddities:
            text = f"{self._more_oddities} more oddities"
            self.oddities.append(Oddity(self.context.file, 0, text, "note", "more"))
        return self._result()

    def _drop_copies(self) -> None:
        """Runs that repeat others are not counted, and where they contradict them that is said."""
        every = [(build, run) for build in self._builds for run in build.runs]
        places = [
            copies.Place(
                run.records,
                build.context.number,
                build.depth,
                run.block,
                not run.is_said and any(record.invoke_count for record in run.records),
                run.is_said,
            )
            for build, run in every
        ]
        gone: set[int] = set()
        found = copies.find(places)
        for copy in found:
            build, run = every[copy.run]
            source, original = every[copy.of]
            gone.add(id(run))
            self.number_of_records -= len(run.records)
            for record in run.records:
                here = (build.context.file, record.source.line if record.source else 0)
                self._copies.append((here, (source.context.file, original.line)))
            for said, read in copy.differing:
                text = (
                    f"{said.name}: the table says {_both(said)}, the record of line "
                    f"{read.source.line if read.source else 0} {_both(read)}; the record is used"
                )
                line = said.source.line if said.source else 0
                self.oddities.append(
                    Oddity(build.context.file, line, text, "warning", "contradiction")
                )
        self._name_logs(every, found)
        order = {build.context.file: at for at, (build, _) in enumerate(reversed(every))}
        self._copies.sort(key=lambda copy: (-order.get(copy[0][0], 0), copy[0][1]))
        for build in self._builds:
            build.runs = [run for run in build.runs if id(run) not in gone]
        self._builds = [build for build in self._builds if build.runs]

    def _name_logs(self, every: list[tuple[_Build, _Run]], found: list[copies.Copy]) -> None:
        """Runs of a log that nobody named are of the build whose table or sentence repeats them.

        ``For fast_path after this patchset: 27.496 ns`` above three loads: that of the load which
        says 27.496, too, is the patched one. Only in one text, and where one build claims a run.
        """
        claims: dict[int, dict[int, int]] = {}
        for copy in found:
            build, run = every[copy.run]
            source, _ = every[copy.of]
            if (
                run.is_said
                and build.heading is not None
                and source.label is None
                and source.context.number == build.context.number
                and _is_clock(build.clock, source.clock)
            ):
                claims.setdefault(copy.of, {}).setdefault(id(build), copy.run)
        for of, claim in claims.items():
            if len(claim) != 1:
                continue
            build, said = every[next(iter(claim.values()))]
            source, run = every[of]
            source.runs.remove(run)
            build.runs.insert(build.runs.index(said), run)
            build.clock = build.clock or source.clock
            build.machine = {**source.machine, **build.machine}
            text = f"this run is of {build.label!r}, whose figures at line {said.line} are its own"
            self.odd(run.line, "note", "named", text)

    def _result(self) -> tuple[Build, ...]:
        depths: dict[int, int] = {}
        for build in self._builds:
            number = build.context.number
            depths[number] = min(build.depth, depths.get(number, build.depth))
        labels: dict[str, int] = {}
        result = []
        for build in self._builds:
            context, label = build.context, build.label
            if label is None:
                label = context.stem
                if build.depth != depths[context.number]:
                    label = f"quoted{build.depth}"
                    label = f"{context.stem}-{label}" if context.number else label
            number = labels[label] = labels.get(label, 0) + 1
            runs = tuple(
                Run(tuple(run.records), run.settings, Source(context.file, run.line, _last(run)))
                for run in build.runs
            )
            result.append(
                Build(
                    label=label if number == 1 else f"{label}#{number}",
                    runs=runs,
                    kernel=build.kernel.text if build.kernel else build.machine.get("kernel"),
                    heading=build.heading or context.heading,
                    machine=build.machine,
                    source=Source(context.file, build.line, _last(build.runs[-1])),
                    quoted=min(build.depth, 1000),
                )
            )
        return tuple(result)


def _place(it: _Build | Stream, label: str | None) -> tuple[int, int, int, str | None]:
    return it.context.number, it.depth, it.section, label


def _both(record: Record) -> str:
    return f"{record.cycles_printed}/{record.ns_printed}"


def _last(run: _Run) -> int:
    source = run.records[-1].source
    return source.last_line if source else run.line


def clock_of(record: Record) -> float | None:
    """The counter's speed in GHz, where the record can tell: the two clocks are not read at one
    moment, and what comes between is a visible part of a short record."""
    short = (record.time_interval_ns or 0) < SHORT_PERIOD * 1e9
    return None if short else record.tsc_ghz


def _is_clock(known: float | None, clock: float | None) -> bool:
    """Whether two runs may have the same counter, as far as it is known."""
    return not clock or not known or abs(clock / known - 1) <= CLOCK_TOLERANCE


def _may_be(build: _Build, facts: Machine, clock: float | None) -> bool:
    """Whether what is known of a run allows that it is of this build, on the same machine."""
    if not _is_clock(build.clock, clock):
        return False
    return not any(
        key not in _VOLATILE and build.machine.get(key, value) != value
        for key, value in facts.items()
    )
