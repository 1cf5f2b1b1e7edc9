# SPDX-License-Identifier: BSD-2-Clause
"""What a benchmark reports while it runs."""

from __future__ import annotations

import msgspec

from pagepool.results.model import Machine, Record


class Started(msgspec.Struct, frozen=True):
    """The first event: where it runs, what will be run, and how.

    Each run has all ``tests`` in all ``designs``; these have one name each in comparisons. What is
    compared may be other than designs, see `pagepool.bench.rounds`; the names are then those of its
    sides. ``runs``: so many, or at most so many.
    """

    machine: Machine
    settings: Machine
    tests: tuple[str, ...]
    runs: int
    designs: tuple[str, ...] = ("ring",)


class RunStarted(msgspec.Struct, frozen=True):
    """A run begins, numbered from 1: a fresh worker process."""

    run: int


class DesignStarted(msgspec.Struct, frozen=True):
    """A design's part of a run begins; only where several designs are run.

    ``facts``: what is known of it, beside what `Started` says of the machine.
    """

    run: int
    design: str
    facts: Machine = {}


class Notice(msgspec.Struct, frozen=True):
    """A line of text that the kernel's module prints at this place."""

    run: int
    text: str


class TestStarted(msgspec.Struct, frozen=True):
    """A test begins."""

    __test__ = False  # for pytest, which collects what is called Test

    run: int
    test: str


class Recorded(msgspec.Struct, frozen=True):
    """A test gave a figure.

    ``pmu_line`` is the kernel's line for instructions, if counted. ``cpu_share`` is the part of
    the time (0 to 1) in which the worker really ran: what is missing, other programs had.
    """

    run: int
    record: Record
    pmu_line: str = ""
    cpu_share: float = 1.0
    design: str = "ring"


class TestFailed(msgspec.Struct, frozen=True):
    """A test gave no figure; the others go on. ``text`` is one line."""

    __test__ = False

    run: int
    test: str
    text: str


class Warned(msgspec.Struct, frozen=True):
    """Something that makes figures doubtful, in one line."""

    text: str


Event = Started | RunStarted | DesignStarted | Notice | TestStarted | Recorded | TestFailed | Warned
