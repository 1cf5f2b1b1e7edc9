# SPDX-License-Identifier: BSD-2-Clause
"""The text of the kernel's time_bench: one record a line, written and parsed.

The formats are those of ``lib/time_bench.c`` of the kernel's benchmark modules::

    Type:%s Per elem: %llu cycles(tsc) %llu.%03llu ns (step:%d) - (measurement period
        time:%llu.%09u sec time_interval:%llu) - (invoke count:%llu tsc_interval:%llu)
    Type:%s CPU(%d) %llu cycles(tsc) %llu.%03llu ns (step:%d) - ...the same tail
    Sum Type:%s Average: %llu cycles(tsc) CPUs:%d step:%d
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from pagepool.results.model import Kind, Record, Source

PREFIX = "time_bench: "


def format_record(record: Record) -> str:
    """The kernel's line for a record, without a time stamp.

    Cycles are an integer division, nanoseconds are cut to three decimals. Unlike the kernel's,
    the decimals are right for every count (see `Record.ns_printed`). What the record does not
    have (step, intervals) the line does not have either. Raises ``ValueError`` for a record
    without any figure.
    """
    cycles = record.cycles_printed
    if cycles is None:
        raise ValueError(f"{record.name}: no cycles to print")
    if record.kind == "sum":
        tail = "" if record.cpus is None else f" CPUs:{record.cpus}"
        tail += "" if record.step is None else f" step:{record.step}"
        return f"{PREFIX}Sum Type:{record.name} Average: {cycles} cycles(tsc){tail}"
    if record.ns_printed is None:
        raise ValueError(f"{record.name}: no nanoseconds to print")
    what = f"CPU({record.cpu or 0})" if record.kind == "cpu" else "Per elem:"
    line = f"{PREFIX}Type:{record.name} {what} {cycles} cycles(tsc) {record.ns_printed} ns"
    if record.step is not None:
        line += f" (step:{record.step})"
    if record.time_interval_ns is not None and record.invoke_count is not None:
        seconds, rest = divmod(record.time_interval_ns, 1_000_000_000)
        line += (
            f" - (measurement period time:{seconds}.{rest:09} sec"
            f" time_interval:{record.time_interval_ns})"
        )
        if record.tsc_interval is not None:
            line += f" - (invoke count:{record.invoke_count} tsc_interval:{record.tsc_interval})"
    return line


#: After a line: the record cannot end here; it may end here; it is whole; this is no record.
Progress = Literal["open", "enough", "whole", "misfit"]

#: A name is at most this many words (2014's modules have names like "kmem fastpath reuse").
_MAX_NAME_WORDS = 10
_MAX_NAME = 120

_NUMBER = r"([0-9]{1,18})"
_NAME_END = re.compile(r"Per|CPU\(([0-9]{1,5})\)|Average:|PMU")


def _slot(pattern: str, field: str = "") -> tuple[Callable[[str], re.Match[str] | None], str]:
    return re.compile(pattern).fullmatch, field


# The words of a record after its name. A mailer breaks lines at blanks only, so it cannot break
# a word, and words are all that there is to compare.
_FIGURES = [_slot(_NUMBER, "printed_cycles"), _slot(r"cycles\(tsc\)")]
_NS = [_slot(r"([0-9]{1,18}\.[0-9]{1,9})", "printed_ns"), _slot("ns")]
_STEP = [_slot(r"\(step:([0-9]{1,9})\)", "step")]
_TAIL = [
    _slot("-"),
    _slot(r"\(measurement"),
    _slot("period"),
    _slot(r"time:([0-9]{1,18}\.[0-9]{1,9})", "seconds"),
    _slot("sec"),
    _slot(rf"time_interval:{_NUMBER}\)", "time_interval_ns"),
    _slot("-"),
    _slot(r"\(invoke"),
    _slot(rf"count:{_NUMBER}", "invoke_count"),
    _slot(rf"tsc_interval:{_NUMBER}\)\W*", "tsc_interval"),
]
_ELEM = _FIGURES + _NS + _STEP + _TAIL
_SUM = [*_FIGURES, _slot(rf"CPUs:{_NUMBER}", "cpus"), _slot(r"step:([0-9]{1,9})", "step")]
_PMU = [_slot(r"inst/clock([0-9]{1,18})/[0-9]{1,18}", "instructions")]

#: Words that may be absent: the step (2014's modules), and the dash before a bracket where
#: somebody broke the line by hand.
_OPTIONAL = frozenset({4, 5, 11})
_NS_AT, _MEASUREMENT_AT = 3, 6


class RecordParser:
    """Takes one record, word by word, over as many lines as a mailer made of it.

    Start it with the text after prefix and time stamp (``Type:...``, ``Sum Type:...`` or, when
    the break came before ``Type:``, nothing) and feed it the following lines until it answers
    ``whole`` or ``misfit``.
    """

    def __init__(self, prefixed: bool = False) -> None:
        """``prefixed``: the line named a module, so what follows must be a record."""
        self.prefixed = prefixed
        self.name = ""
        self.kind: Kind = "elem"
        self.pmu = False
        self.values: dict[str, str] = {}
        self._words = 0
        self._state: Literal["start", "name", "elem", "slots"] = "start"
        self._slots = _ELEM
        self._at = 0
        self._enough = False
        self._torn = False

    @property
    def is_named(self) -> bool:
        """Whether the text so far is a record's: a name and the words that follow a name."""
        return self._state in ("elem", "slots")

    @property
    def is_cut(self) -> bool:
        """Whether the record stopped in the middle of its figures or of its tail."""
        if self.pmu or self._state != "slots":
            return True
        if self._slots is _SUM:
            return self._at < len(_SUM)
        return not self._enough or self._torn or _MEASUREMENT_AT <= self._at < len(_ELEM)

    def feed(self, text: str) -> Progress:
        """One more line. A ``misfit`` line was not consumed, and the record ends before it."""
        words = text.split()
        for index, word in enumerate(words):
            if not self._take(word):
                self._torn = index == len(words) - 1 and _tears(word)
                # The line may have been right up to here: what was taken stays taken.
                return "misfit" if index == 0 or not self._enough else "whole"
            if self._state == "slots" and self._at == len(self._slots):
                return "whole"
        return "enough" if self._enough else "open"

    def _take(self, word: str) -> bool:
        if self._state == "slots":
            return self._take_slot(word)
        if self._state == "start":
            if word == "Sum" and self.kind != "sum":
                self.kind = "sum"
                return True
            if word.startswith("Type:") and len(word) > 5:
                self.name = word[5:]
                self._words = 1
                self._state = "name"
                return len(self.name) <= _MAX_NAME
            return False
        if self._state == "elem":
            self._state = "slots"
            return word == "elem:"
        if match := _NAME_END.fullmatch(word):
            self._begin_figures(match)
            return True
        if word == "-":  # a list below the name: `Type:x` / ` - Per elem: ...`
            return True
        self.name += f" {word}"
        self._words += 1
        return self._words <= _MAX_NAME_WORDS and len(self.name) <= _MAX_NAME

    def _begin_figures(self, match: re.Match[str]) -> None:
        word = match.group()
        self._state = "slots"
        if word == "Per":
            self._state = "elem"
        elif word == "Average:":
            self.kind = "sum"
            self._slots = _SUM
        elif word == "PMU":
            self.pmu = True
            self._slots = _PMU
        else:
            self.kind = "cpu"
            self.values["cpu"] = match.group(1)

    def _take_slot(self, word: str) -> bool:
        at = self._at
        while at < len(self._slots):
            matches, field = self._slots[at]
            if match := matches(word):
                if field:
                    self.values[field] = match.group(1)
                self._at = at + 1
                if self._slots is _ELEM:
                    self._enough = self._enough or at >= _NS_AT
                else:
                    self._enough = self._enough or at >= 1
                return True
            if self._slots is not _ELEM or at not in _OPTIONAL:
                return False
            at += 1
        return False

    def record(self, source: Source, uptime: float | None) -> tuple[Record, list[tuple[str, str]]]:
        """The record, and what is odd about it: (code, sentence), as `judge` gives them."""
        number = {
            field: int(value)
            for field, value in self.values.items()
            if field not in ("printed_ns", "seconds")
        }
        record = Record(
            name=self.name,
            kind=self.kind,
            step=number.get("step"),
            cpu=number.get("cpu"),
            cpus=number.get("cpus"),
            printed_cycles=number.get("printed_cycles"),
            printed_ns=self.values.get("printed_ns"),
            time_interval_ns=number.get("time_interval_ns"),
            invoke_count=number.get("invoke_count"),
            tsc_interval=number.get("tsc_interval"),
            uptime=uptime,
            source=source,
        )
        odd = judge(record, self.values.get("seconds"))
        if self.is_cut:
            odd.insert(0, ("cut-short", f"{self.name}: the record is cut short {_kept(record)}"))
        if odd:
            record = _with_oddities(record, tuple(code for code, _ in odd))
        return record, odd


def judge(record: Record, seconds: str | None = None) -> list[tuple[str, str]]:
    """What a record says that cannot be, as (code, sentence). Nothing is corrected.

    ``seconds`` is the printed measurement period, which must agree with the interval.
    """
    odd: list[tuple[str, str]] = []
    name, count = record.name, record.invoke_count
    interval, tsc = record.time_interval_ns, record.tsc_interval
    if count == 0:
        odd.append(("zero-loops", f"{name}: an invoke count of 0 measures nothing; not used"))
    if interval == 0:
        odd.append(("zero-time", f"{name}: a time interval of 0 measures nothing; not used"))
    has_interval = bool(count) and interval is not None
    has_other = bool(record.pps) or record.events is not None
    if (
        record.printed_ns is None
        and record.printed_cycles is None
        and not (has_interval or has_other)
    ):
        odd.append(("no-figure", f"{name}: a record without a figure; not used"))
    if record.printed_ns is not None and len(record.printed_ns.partition(".")[2]) > 3:
        odd.append(
            (
                "long-fraction",
                f"{name}: {record.printed_ns} ns has more than three decimals (the kernel's "
                f"division overflows them); read as {record.ns_printed}",
            )
        )
    if count and interval:
        printed = record.printed_ns
        if printed is not None and printed not in _ns_texts(interval, count):
            odd.append(
                (
                    "contradiction",
                    f"{name}: prints {printed} ns, but its interval gives "
                    f"{interval / count:.4f}; kept as it is",
                )
            )
        if tsc is not None and record.printed_cycles not in (None, tsc // count):
            odd.append(
                (
                    "contradiction",
                    f"{name}: prints {record.printed_cycles} cycles, but its interval gives "
                    f"{tsc / count:.2f}; kept as it is",
                )
            )
    if seconds is not None and interval is not None:
        whole, _, fraction = seconds.partition(".")
        if int(whole) * 10**9 + int(f"{fraction:0<9}") != interval:
            odd.append(
                (
                    "contradiction",
                    f"{name}: a period of {seconds} s, but an interval of {interval} ns; "
                    "the interval is used",
                )
            )
    return odd


def _ns_texts(interval: int, count: int) -> set[str]:
    """How a right line may print the figure: cut to three decimals, or by the kernel's division.

    The kernel divides the remainder by ``count / 1000``, an integer division, so that counts
    which are no multiple of 1000 print up to a thousandth more per loop.
    """
    whole, rest = divmod(interval, count)
    texts = {f"{whole}.{rest * 1000 // count:03}"}
    if count >= 1000:
        texts.add(f"{whole}.{rest // (count // 1000):03}")
    return texts


def _tears(word: str) -> bool:
    """Whether a word is only the beginning of one that comes after the figures."""
    return word.startswith("(step:") or any(
        full.startswith(word) for full in ("(step:", "(measurement")
    )


def _kept(record: Record) -> str:
    if record.time_interval_ns is not None and record.invoke_count is not None:
        return "after its invoke count; the nanoseconds are exact"
    if record.printed_ns is not None:
        return "in its tail; the printed figure is kept"
    return "before its nanoseconds"


def _with_oddities(record: Record, codes: tuple[str, ...]) -> Record:
    return msgspec.structs.replace(record, oddities=codes)
