# SPDX-License-Identifier: BSD-2-Clause
"""What was measured about designs, as a document: schema ``pagepool.designs/1``."""

from __future__ import annotations

from statistics import median_low
from typing import Annotated

import msgspec

from pagepool.results.model import Count, Machine, Text

SCHEMA = "pagepool.designs/1"


class SurveyError(Exception):
    """Not a survey; one line."""


#: With fewer runs no figure is said to be more than another one: by chance one is more in all of
#: four runs once in sixteen times, in all of five once in 32.
ENOUGH_RUNS = 5


class Figure(msgspec.Struct, frozen=True):
    """Nanoseconds, a value a run; in each run all designs were measured one after the other."""

    values: Annotated[tuple[float, ...], msgspec.Meta(min_length=1)]

    @property
    def ns(self) -> float:
        """The median; of an even number the lower one."""
        return median_low(self.values)

    @property
    def least(self) -> float:
        """The smallest."""
        return min(self.values)

    @property
    def most(self) -> float:
        """The largest."""
        return max(self.values)

    def is_more_than(self, other: Figure) -> bool:
        """In each run, and in enough of them."""
        pairs = list(zip(self.values, other.values, strict=False))
        return (
            len(self.values) == len(other.values)
            and len(pairs) >= ENOUGH_RUNS
            and all(mine > theirs for mine, theirs in pairs)
        )


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """Allocate and put on one CPU, ns for both; ``test`` is that of bench_page_pool_simple."""

    test: Text
    design: Text
    figure: Figure
    instructions: float | None = None


class Storm(msgspec.Struct, frozen=True, kw_only=True):
    """ns per put, with so many producers at once; ``bulk``: pages of a call, 1 for single puts."""

    producers: Count
    bulk: Count
    design: Text
    figure: Figure


class CrossCpu(msgspec.Struct, frozen=True, kw_only=True):
    """ns per page on the CPUs that return pages while another one allocates.

    ``net``: without the hand-over, which was measured in the same runs. ``fell_out``: pages that
    the pool had no room for, in all runs.
    """

    returning: Count
    design: Text
    figure: Figure
    handover: float
    net: Figure
    fell_out: Count | None = None


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A workload: counts and statistics of all its pools, the same in each run, and its time.

    ``variant`` says what is not as usual; ``pages`` are those of a packet, where they are all
    alike. ``figure`` is per packet.
    """

    workload: Text
    variant: Text = ""
    pages: Count | None = None
    design: Text
    counts: dict[Text, Count]
    statistics: dict[Text, Count]
    figure: Figure | None = None

    @property
    def recycled(self) -> float:
        """Pages that stayed in the pool, of those that were allocated."""
        stayed = self.statistics["recycle_cached"] + self.statistics["recycle_ring"]
        return stayed / max(self.counts["allocated"], 1)


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing of it was measured: line transfers and ns per put, by simulation."""

    scenario: Text
    cpus: Count
    design: Text
    transfers: float
    ns: float


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. ``designs[0]`` is what the others are compared with."""

    schema: Text = SCHEMA
    machine: Machine
    command: Text
    designs: tuple[Text, ...]
    paths: tuple[Path, ...]
    storms: tuple[Storm, ...]
    cross_cpu: tuple[CrossCpu, ...]
    work: tuple[Work, ...]
    predicted: tuple[Predicted, ...]
    transfer_ns: float


def dumps(survey: Survey) -> str:
    """The document as text: indented, ending with a newline."""
    return msgspec.json.format(msgspec.json.encode(survey), indent=1).decode() + "\n"


def loads(data: bytes, name: str) -> Survey:
    """Read a document. Raises `SurveyError` that says where it is not one."""
    try:
        survey = msgspec.json.decode(data, type=Survey)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        what = " ".join(str(error).split())
        raise SurveyError(f"{name}: not what --json of this command writes: {what}") from None
    if survey.schema != SCHEMA:
        raise SurveyError(f"{name}: schema {survey.schema[:80]!r}: this version reads {SCHEMA!r}")
    if not survey.designs:
        raise SurveyError(f"{name}: no design was measured")
    return survey
