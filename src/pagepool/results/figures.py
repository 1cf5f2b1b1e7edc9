# SPDX-License-Identifier: BSD-2-Clause
"""Figures that stand on one line and are no line of time_bench: summaries, lists, other modules.

Each recogniser takes the peeled text of one line and answers with records that have no source
yet. Where the name stands above the figure, `caption` finds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from pagepool.results import headings, names
from pagepool.results.model import Record

_CYCLES = r"(?P<cycles>\d{1,18})\s+cycles\(tsc\)"
_NS = r"(?P<ns>\d{1,18}\.\d{1,9})\s+ns"
_STEP = r"(?:\s+\(step:(?P<step>\d{1,9})\))?"
_BULLET = r"(?:[-*] {1,3})?"

#: ``no-softirq-page_pool01 Per elem: 11 cycles(tsc) 4.337 ns``: the summary of the kernel's
#: script, and how people copy single lines. One word of a name, nothing in front of it.
_SUMMARY = re.compile(
    rf"{_BULLET}(?P<name>[A-Za-z][\w.()+-]{{1,80}})\s+Per elem:\s+{_CYCLES}\s+{_NS}{_STEP}$"
)
#: The same with its tail, or the beginning of it: a line of time_bench that lost its ``Type:``.
_UNTYPED = re.compile(
    rf"(?:[\w.-]+:\s+)?(?P<record>[A-Za-z][\w.()+-]{{1,80}}\s+Per elem:\s+{_CYCLES}\s+{_NS}"
    r"\s+\(step:\d{1,9}\)\s+-.*)$"
)
#: ``single_page alloc+put: 207 cycles(tsc) 57.773 ns``, ``2 concurrent CPUs, cost per elem: ...``
_NAMED = re.compile(
    rf"{_BULLET}(?!(?:[Cc]ost )?[Pp]er elem\b)(?P<name>[A-Za-z0-9][\w .()+/-]{{1,60}}?)\s*"
    rf"(?::\s+(?:Per elem:\s+)?|,\s+cost per elem:\s*){_CYCLES}\s+{_NS}{_STEP}$"
)
_NAMELESS = re.compile(rf"{_BULLET}(?:cost )?per elem:\s*{_CYCLES}\s+{_NS}{_STEP}$", re.IGNORECASE)
#: ``3 cycles(tsc) 31.171 ns``: a sentence above has to name the test.
_BARE = re.compile(rf"{_BULLET}{_CYCLES}\s+{_NS}$")

_PAGES = re.compile(
    r"(?:[\w.-]+:\s+)?(?P<name>[A-Za-z]\w*) order:(?P<order>\d{1,2})\(\d+B/x\d+\)\s+"
    r"(?P<cycles>\d{1,18}) cycles per-(?P<size>\d+)B (?P<per>\d{1,18}) cycles$"
)
_PARALLEL = re.compile(
    r"(?:[\w.-]+:\s+)?Parallel-CPUs:(?P<cpus>\d{1,5}) page order:(?P<order>\d{1,2})\(\d+B/x\d+\)\s+"
    r"ave (?P<cycles>\d{1,18}) cycles per-(?P<size>\d+)B (?P<per>\d{1,18}) cycles$"
)
_SLAB = re.compile(
    r"(?P<times>\d{1,12}) times (?P<alloc>[A-Za-z_]\w*)\((?P<size>\d+)\)(?P<both>/\w+)?\s*"
    r"-> (?P<cycles>\d{1,18}) cycles(?: (?P<free>[A-Za-z_]\w*) -> (?P<frees>\d{1,18}) cycles)?$"
)
_TYPE = re.compile(r"Type:(?P<name>[\w.+-]{1,80})$")
_TAIL = re.compile(r"(?:- ?)?\((?:measurement|invoke)\b")
_CPUS = re.compile(r"(\d{1,5}) (?:\w+ )?CPUs?\b")
#: In a heading of page_bench04 the function is the name: ``LIST variant: time_bulk_...: step=``.
_FUNCTION = re.compile(r"\btime_\w+")


class Wanting(NamedTuple):
    """A figure whose name is above it: the record without one, and whether a test must be named."""

    record: Record
    is_bare: bool


def untyped(text: str) -> str | None:
    """The text of a record of time_bench that only lacks ``Type:``, with it."""
    match = _UNTYPED.match(text)
    return None if match is None else f"Type:{match['record']}"


def read(text: str) -> list[Record]:
    """The records of a line that has all of them, names included."""
    if "cycles" not in text:
        return []
    if "cycles(tsc)" in text:
        match = _SUMMARY.match(text) or _NAMED.match(text)
        return [] if match is None else [_record(match, match["name"].strip())]
    if match := _PAGES.match(text):
        return [
            Record(
                name=f"{match['name']} order:{match['order']}",
                printed_cycles=int(match["cycles"]),
                counts={f"cycles per {match['size']}B": int(match["per"])},
            )
        ]
    if match := _PARALLEL.match(text):
        return [
            Record(
                name=f"page order:{match['order']} CPUs:{match['cpus']}",
                cpus=int(match["cpus"]),
                printed_cycles=int(match["cycles"]),
                counts={f"cycles per {match['size']}B": int(match["per"])},
            )
        ]
    if match := _SLAB.match(text):
        times = {"times": int(match["times"])}
        name = f"{match['alloc']}({match['size']}){match['both'] or ''}"
        records = [Record(name=name, printed_cycles=int(match["cycles"]), counts=times)]
        if match["free"]:
            name = f"{match['free']}({match['size']})"
            records.append(Record(name=name, printed_cycles=int(match["frees"]), counts=times))
        return records
    return []


def wanting(text: str) -> Wanting | None:
    """A figure that needs a name from above."""
    if "cycles(tsc)" not in text:
        return None
    if match := _NAMELESS.match(text):
        return Wanting(_record(match, ""), False)
    if match := _BARE.match(text):
        return Wanting(_record(match, ""), True)
    return None


class Caption(NamedTuple):
    """What stands above a figure: a name, its line, and the heading of a build, if it is one."""

    name: str
    line: int
    heading: headings.Heading | None = None


def caption(above: Iterable[tuple[int, str]], figure: Wanting) -> Caption | None:
    """What the lines above a figure, nearest first, call it.

    Blank lines, further figures and headings of builds are passed; the first line that is none
    of these is the name. A bare figure's has to name a test, and says which build it is.
    """
    for line, text in above:
        if not text or wanting(text) is not None:
            continue
        if figure.is_bare:
            test = names.named_in(text)
            if test is None:
                return None
            rest = " ".join(text.replace(test, " ").rstrip(":").split())
            return Caption(
                test, line, headings.heading(text) or headings.Heading(rest[:28].strip(), text)
            )
        if headings.heading(text) is not None or _TAIL.match(text):
            continue
        if match := _TYPE.match(text):
            return Caption(match["name"], line)
        if function := _FUNCTION.search(text):
            return Caption(function.group(), line)
        name = text.lstrip("-* ").rstrip(": ")[:60].strip()
        return Caption(name, line) if name and not headings.is_rule(name) else None
    return None


def _record(match: re.Match[str], name: str) -> Record:
    groups = match.groupdict()
    step = groups.get("step")
    cpus = _CPUS.search(name)
    return Record(
        name=name,
        step=None if step is None else int(step),
        cpus=None if cpus is None else int(cpus.group(1)),
        printed_cycles=int(groups["cycles"]),
        printed_ns=groups["ns"],
    )
