# SPDX-License-Identifier: BSD-2-Clause
"""What makes two builds incomparable: one table, from the kind of a fact to what follows of it.

`pagepool.results.kinds` says of which kind each fact is. Here stands what a difference of that
kind is called, and whether rows of such builds get a verdict. What is known of one side only
makes nothing unlike, but debugging: that is said in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from pagepool.results import kinds
from pagepool.results.kinds import Kind
from pagepool.results.model import Build, Machine, Record
from pagepool.results.words import counter_ghz

#: Two builds whose counters differ by more than this ran on unlike machines.
CLOCK_TOLERANCE = 0.01
#: A test whose numbers of loops differ by more than this factor was measured otherwise.
LOOPS_FACTOR = 2.0


class How(NamedTuple):
    """What follows of a difference: the warning's code, its words, and whether verdicts do."""

    code: str
    words: str
    is_judged: bool


#: In the order in which they are told; the first that is not judged is the reason of a row.
HOW: dict[Kind, How] = {
    "machine": How("machines", "unlike machines", False),
    "clock": How("clocks", "unlike clocks", False),
    "loops": How("loops", "unlike loops", False),
    "dma": How("dma", "unlike DMA settings", False),
    "debugging": How("debugging", "unlike debugging options", True),
    "mitigations": How("mitigations", "unlike mitigations", True),
    "frequency": How("frequency", "unlike frequency settings", True),
    "virtual": How("virtual-machine", "a virtual machine on one side", True),
    "preemption": How("preemption", "unlike preemption", True),
    "settings": How("settings", "unlike settings", True),
}

#: Why a row has no verdict.
WITHHELD = frozenset(how.words for how in HOW.values() if not how.is_judged)


class Known(NamedTuple):
    """What is known of a build: the counter's speed in GHz, every fact by its name, and how deep
    it is quoted."""

    clock: float | None
    facts: Machine
    quoted: int = 0


def known(build: Build) -> Known:
    """Everything that may make a build unlike another one."""
    facts = kinds.of(build)
    return Known(counter_ghz(build.records) or _said_clock(facts), facts, build.quoted)


def differences(one: Known, other: Known) -> dict[Kind, list[str]]:
    """By kind what differs: ``cpu (A and B)``. Of clocks nothing is in it but that they do."""
    found: dict[Kind, list[str]] = {}
    if not same_clock(one.clock, other.clock):
        found["clock"] = []
    for name, value in one.facts.items():
        there = other.facts.get(name)
        kind = kinds.kind(name)
        if there is None or kind not in HOW or kind in ("clock", "loops", "debugging"):
            continue
        if not _same(name, kind, value, there):
            found.setdefault(kind, []).append(f"{kinds.shown(name)} ({value} and {there})")
    if one.quoted != other.quoted and not _is_one_machine(one, other):
        text = "one side is quoted, and nothing says that it is the same machine"
        found.setdefault("machine", []).append(text)
    if debugging := _debugging(one.facts, other.facts):
        found["debugging"] = debugging
    return {kind: found[kind] for kind in HOW if kind in found}


def _is_one_machine(one: Known, other: Known) -> bool:
    """Whether something says so: the counters, or the names of the CPUs."""
    if one.clock and other.clock:
        return same_clock(one.clock, other.clock)
    names = one.facts.get("cpu"), other.facts.get("cpu")
    return names[0] is not None and names[1] is not None and same_cpu(names[0], names[1])


def alike(one: Known, other: Known) -> bool:
    """Whether nothing says that two builds cannot be judged by each other."""
    return why(one, other) == ""


def why(one: Known, other: Known) -> str:
    """Why two builds are not judged by each other; empty if they are."""
    return next(
        (HOW[kind].words for kind in differences(one, other) if not HOW[kind].is_judged), ""
    )


def same_clock(one: float | None, other: float | None) -> bool:
    """Whether two counters, in GHz, may be of one machine; one that is not known may."""
    return not one or not other or abs(other / one - 1) <= CLOCK_TOLERANCE


def loops_of(records: Iterable[Record]) -> float | None:
    """The middle of the loops of a test, as far as they are known."""
    counts = [record.invoke_count for record in records if record.invoke_count]
    return median(counts) if counts else None


def same_loops(one: Iterable[Record], other: Iterable[Record]) -> bool:
    """Whether a test ran about as many loops on both sides, as far as that is known."""
    middles = [middle for side in (one, other) if (middle := loops_of(side)) is not None]
    return len(middles) < 2 or max(middles) <= LOOPS_FACTOR * min(middles)


def same_cpu(one: str, other: str) -> bool:
    """Whether two names may be of one CPU: people leave out makers, marks and speeds."""
    words, others = _cpu_words(one), _cpu_words(other)
    return words <= others or others <= words


#: Not of a CPU's name: speed, number of sockets, marks, and what some leave out.
_NO_NAME = re.compile(r"@.*|^\d+ ?x\b|\((?:r|tm)\)|\b(?:cpu|processor|\d+-core|intel|amd|with)\b")


def _cpu_words(name: str) -> set[str]:
    return set(re.findall(r"[\w.+-]+", _NO_NAME.sub(" ", name.casefold())))


def _same(name: str, kind: Kind, one: str, other: str) -> bool:
    if name == "cpu":
        return same_cpu(one, other)
    if kind == "virtual":
        return (one == "no") == (other == "no")
    return one.casefold() == other.casefold()


def _debugging(one: Machine, other: Machine) -> list[str]:
    """Debugging that one side has and the other has not, or does not tell."""
    mine, theirs = kinds.debugging(one), kinds.debugging(other)
    texts = []
    for side, here, there, elsewhere in (
        ("before", mine, theirs, other),
        ("after", theirs, mine, one),
    ):
        if only := [name for name in here if name not in there]:
            untold = "" if kinds.tells_debugging(elsewhere) else "; the other side does not tell"
            texts.append(f"{side} has {', '.join(only)}{untold}")
    return texts + [
        f"{name} ({one[name]} and {other[name]})"
        for name in ("checked mode", "core build")
        if name in one and name in other and one[name] != other[name]
    ]


def _said_clock(facts: Machine) -> float | None:
    """The counter's speed as a boot or a benchmark says it."""
    for key in ("tsc", "counter"):
        if match := re.search(r"([\d.]+) (GHz|MHz)", facts.get(key, "")):
            return float(match[1]) / (1 if match[2] == "GHz" else 1000)
    return None
