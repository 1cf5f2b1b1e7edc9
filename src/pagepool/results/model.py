# SPDX-License-Identifier: BSD-2-Clause
"""What was measured: records, runs of records, builds of runs, and what was odd about them.

One model for every source: a kernel's log, a mail, the project's own benchmark, its JSON.
Everything here is immutable. Times are nanoseconds, intervals are integers as the kernel prints
them, and a figure that was only *printed* stays text until somebody asks for a number.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal, TypeAlias

import msgspec

#: ``elem``: an ordinary test line; ``cpu``: the share of one CPU in a test on several;
#: ``sum``: the average over these CPUs; ``rate``: packets per second; ``event``: a counter.
Kind: TypeAlias = Literal["elem", "cpu", "sum", "rate", "event"]

#: ``note``: worth knowing; ``warning``: a figure may mislead; ``error``: something was not read.
Severity: TypeAlias = Literal["note", "warning", "error"]

#: What identifies a test: (kind, name, step, cpu). A line without a step is a line with step 0:
#: old modules did not print it.
Key: TypeAlias = tuple[Kind, str, int, int]

#: What the kernel can print as %llu; JSON is held to the same range.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
#: Names and headings are shown on terminals: no control characters in them, nor those that turn
#: what stands beside them from right to left, and not a book.
Text: TypeAlias = Annotated[
    str,
    msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]*\Z", max_length=20_000),
]
Nanoseconds: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}\.[0-9]{1,9}\Z")]
#: Nanoseconds per element that were computed elsewhere: finite, and no more than a `Count`.
Quotient: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=2**63)]

#: Facts about a machine or the settings of a run: lower-case key -> text, in the order read.
Machine: TypeAlias = dict[Text, Text]

#: Oddities that make a record unfit for arithmetic. It is still kept and listed.
IMPOSSIBLE = frozenset({"zero-loops", "zero-time", "no-figure"})
#: All oddities that are about one record.
OF_RECORDS = IMPOSSIBLE | {"cut-short", "contradiction", "long-fraction"}


#: Seconds. A shorter record is warned of, by who measures and by who compares: 0.1 ms of other work
#: (an interrupt or two) is more than 1 % of it.
SHORT_PERIOD = 0.01


class Source(msgspec.Struct, frozen=True):
    """Where a record stands: file as it was named, first and last line (counted from 1)."""

    file: str
    line: int = 0
    last_line: int = 0

    def __str__(self) -> str:
        """``file:line``, as compilers write it."""
        return f"{self.file}:{self.line}" if self.line else self.file


class Oddity(msgspec.Struct, frozen=True):
    """Something that a reader noticed: where, what, and how bad."""

    file: str
    line: int
    text: str
    severity: Severity = "warning"
    code: str = ""

    def __str__(self) -> str:
        """``file:line: severity: text``."""
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.severity}: {self.text}"


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of time_bench, or another figure that stands for one.

    ``printed_cycles`` and ``printed_ns`` are what the line says; ``time_interval_ns``,
    ``invoke_count`` and ``tsc_interval`` are what it was computed from, or ``None`` where a
    mail left them out. ``instructions`` counts the whole interval. ``uptime`` is the log's
    time stamp in seconds. ``cpus`` is the number of CPUs in a ``sum`` line. ``counts`` is what
    else was counted while it was measured: how often a queue was full, for one.

    ``exact_ns`` is what ``printed_ns`` was cut from, of programs that say the quotient and not
    what they divided: nothing is rounded twice, and no interval is made up.

    ``pps`` is a rate in packets per second, the mean of ``counts["samples"]`` where a program
    prints one a second; its ``ns`` are those of one packet. ``events`` is a counter (of perf
    stat), or how often it counts in a second (ethtool_stats): it has no time, and is listed only.
    """

    name: Text
    kind: Kind = "elem"
    step: int | None = None
    cpu: int | None = None
    cpus: Count | None = None
    printed_cycles: Count | None = None
    printed_ns: Nanoseconds | None = None
    exact_ns: Quotient | None = None
    time_interval_ns: Count | None = None
    invoke_count: Count | None = None
    tsc_interval: Count | None = None
    instructions: Count | None = None
    pps: Count | None = None
    events: Count | None = None
    counts: dict[Text, Count] = {}
    uptime: float | None = None
    source: Source | None = None
    oddities: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """What the record measures, apart from who measured it."""
        return (self.kind, self.name, self.step or 0, -1 if self.cpu is None else self.cpu)

    @property
    def is_usable(self) -> bool:
        """Whether arithmetic on the record means anything."""
        return not IMPOSSIBLE.intersection(self.oddities)

    @property
    def ns(self) -> float | None:
        """Nanoseconds per element, from the interval; as printed where there is none."""
        if self.invoke_count and self.time_interval_ns is not None:
            return self.time_interval_ns / self.invoke_count
        if self.pps:
            return 1e9 / self.pps
        if self.exact_ns is not None:
            return self.exact_ns
        printed = self.ns_printed
        return None if printed is None else float(printed)

    @property
    def cycles(self) -> float | None:
        """Cycles of the time-stamp counter per element, from the interval where there is one."""
        if self.invoke_count and self.tsc_interval is not None:
            return self.tsc_interval / self.invoke_count
        return None if self.printed_cycles is None else float(self.printed_cycles)

    @property
    def instructions_per_elem(self) -> float | None:
        """Instructions per element, ``None`` where nobody counted them."""
        if self.invoke_count and self.instructions is not None:
            return self.instructions / self.invoke_count
        return None

    @property
    def ns_printed(self) -> Decimal | None:
        """The printed nanoseconds, three decimals.

        The kernel divides the remainder by ``count / 1000``, so a count that is no multiple of
        1000 can print a fraction of 1000 thousandths: ``5.1000`` (up to 1009 from 100,000 loops
        on). The value itself is below the next whole nanosecond; without an interval to compute
        it from, that is 5.999.
        """
        if self.printed_ns is None:
            if self.invoke_count and self.time_interval_ns is not None:
                return _cut(self.time_interval_ns, self.invoke_count)
            return _cut(10**9, self.pps) if self.pps else None
        whole, _, fraction = self.printed_ns.partition(".")
        if len(fraction) > 3:
            if self.invoke_count and self.time_interval_ns is not None:
                return _cut(self.time_interval_ns, self.invoke_count)
            if len(fraction) == 4 and fraction.startswith("100"):
                return Decimal(f"{whole}.999")
        return Decimal(f"{whole}.{fraction[:3]:0<3}")

    @property
    def cycles_printed(self) -> int | None:
        """The printed cycles: an integer division, as the kernel does it."""
        if self.printed_cycles is not None:
            return self.printed_cycles
        if self.invoke_count and self.tsc_interval is not None:
            return self.tsc_interval // self.invoke_count
        return None

    @property
    def tsc_ghz(self) -> float | None:
        """Speed of the time-stamp counter: cycles per nanosecond."""
        if self.time_interval_ns and self.tsc_interval:
            return self.tsc_interval / self.time_interval_ns
        return None


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """The records of one load of the module, or of one pass of the benchmark, in order."""

    records: tuple[Record, ...]
    settings: Machine = {}
    source: Source | None = None

    @property
    def loops(self) -> int | None:
        """The loops that were asked for: the count that most records share.

        ``for_loop`` and ``atomic_inc`` do ten times as many; they are too few to win.
        """
        counts: dict[int, int] = {}
        for record in self.records:
            if record.invoke_count:
                counts[record.invoke_count] = counts.get(record.invoke_count, 0) + 1
        return max(counts, key=lambda count: (counts[count], -count)) if counts else None


class Build(msgspec.Struct, frozen=True, omit_defaults=True):
    """The runs of one kernel (or one build of this library) on one machine, in order.

    ``label`` is short and unique within its file; ``heading`` is the text that it came from;
    ``kernel`` the version line. ``quoted`` is how many quote marks stand before its lines: at
    another depth it is somebody else's.
    """

    label: Text
    runs: tuple[Run, ...] = ()
    kernel: Text | None = None
    heading: Text | None = None
    machine: Machine = {}
    source: Source | None = None
    quoted: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0

    @property
    def records(self) -> tuple[Record, ...]:
        """All records of all runs, in order."""
        return tuple(record for run in self.runs for record in run.records)


class Input(msgspec.Struct, frozen=True):
    """One file that was read: its name, its form, and how many lines and bytes it had."""

    file: str
    form: Literal["text", "json"] = "text"
    lines: int = 0
    size: int = 0


class ResultSet(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that was read from one or more files."""

    builds: tuple[Build, ...] = ()
    oddities: tuple[Oddity, ...] = ()
    sources: tuple[Input, ...] = ()

    def merge(self, other: ResultSet) -> ResultSet:
        """This set followed by another one; labels stay unique (``before``, ``before#2``)."""
        builds = list(self.builds)
        labels = {build.label for build in builds}
        for build in other.builds:
            label, number = build.label, 1
            while label in labels:
                number += 1
                label = f"{build.label}#{number}"
            labels.add(label)
            builds.append(msgspec.structs.replace(build, label=label))
        return ResultSet(
            builds=tuple(builds),
            oddities=self.oddities + other.oddities,
            sources=self.sources + other.sources,
        )


def _cut(numerator: int, denominator: int) -> Decimal:
    """``numerator / denominator`` cut, not rounded, to three decimals."""
    whole, thousandths = divmod(numerator * 1000 // denominator, 1000)
    return Decimal(f"{whole}.{thousandths:03}")
