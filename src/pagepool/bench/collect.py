# SPDX-License-Identifier: BSD-2-Clause
"""Gathers the events of a benchmark into the model that results are kept in."""

from __future__ import annotations

from statistics import median_low
from typing import NamedTuple

from pagepool.bench.events import DesignStarted, Event, Recorded, Started, TestFailed
from pagepool.bench.simple import MIN_CPU_SHARE
from pagepool.results.model import SHORT_PERIOD, Build, Machine, Record, ResultSet, Run


class Summary(NamedTuple):
    """One test over all runs: median, smallest, largest; ns and counter cycles per element.

    Of an even number of runs the lower median, as `pagepool.compare` has it: it was measured.
    ``instructions`` is the median per element, ``None`` unless every run counted them.
    """

    name: str
    runs: int
    ns: float
    ns_min: float
    ns_max: float
    cycles: float
    cycles_min: float
    cycles_max: float
    instructions: float | None
    #: ns, a value a run.
    values: tuple[float, ...] = ()


class Collector:
    """Takes events as they come; what it has at any moment is whole."""

    def __init__(self) -> None:
        """Nothing measured yet."""
        self.machine: Machine = {}
        self.settings: Machine = {}
        self.failed: list[TestFailed] = []
        self.designs: tuple[str, ...] = ("ring",)
        self._facts: dict[str, Machine] = {}
        self._runs: dict[str, dict[int, list[Record]]] = {}
        self._shares: dict[str, float] = {}

    def add(self, event: Event) -> None:
        """One more event."""
        if isinstance(event, Started):
            self.machine, self.settings = event.machine, event.settings
            self.designs = event.designs
        elif isinstance(event, DesignStarted):
            self._facts.setdefault(event.design, {}).update(event.facts)
        elif isinstance(event, Recorded):
            name = event.record.name
            runs = self._runs.setdefault(event.design, {})
            runs.setdefault(event.run, []).append(event.record)
            self._shares[name] = min(event.cpu_share, self._shares.get(name, 1.0))
        elif isinstance(event, TestFailed):
            self.failed.append(event)

    def facts(self, design: str) -> Machine:
        """What is known of the machine and of one design on it."""
        return self.machine | self._facts.get(design, {})

    def shared_facts(self) -> Machine:
        """What is so for all designs."""
        known = [self.facts(design) for design in self.designs]
        return {
            key: value
            for key, value in known[0].items()
            if all(facts.get(key) == value for facts in known)
        }

    @property
    def records(self) -> list[Record]:
        """All records so far, design after design, run after run."""
        return [record for design in self.designs for run in self.of(design) for record in run]

    def of(self, design: str) -> list[list[Record]]:
        """The records of one design, a list a run."""
        return list(self._runs.get(design, {}).values())

    @property
    def runs(self) -> int:
        """How many runs gave at least one record."""
        return len({run for runs in self._runs.values() for run in runs})

    def results(self, label: str, prefix: str | None = None) -> ResultSet:
        """A build a design, with all runs that have records; empty when nothing was measured.

        ``label`` and ``prefix`` as in `build_label`.
        """
        builds = []
        for design in self.designs:
            runs = tuple(Run(tuple(records), self.settings) for records in self.of(design))
            machine = self.facts(design)
            name = build_label(design, self.designs, prefix) or label
            if runs:
                builds.append(Build(name, runs, machine.get("kernel"), machine=machine))
        return ResultSet(tuple(builds))

    def summaries(self, design: str | None = None) -> list[Summary]:
        """One summary a test of one design, the first if not given, in the order of the tests."""
        by_name: dict[str, list[Record]] = {}
        for run in self.of(self.designs[0] if design is None else design):
            for record in run:
                if record.ns is not None:
                    by_name.setdefault(record.name, []).append(record)
        return [_summary(name, records) for name, records in by_name.items()]

    def too_short(self) -> list[tuple[str, float]]:
        """Tests with a period below `SHORT_PERIOD`: name, and its shortest period in seconds."""
        shortest: dict[str, float] = {}
        for record in self.records:
            if record.kind == "sum":
                continue  # it has no period of its own
            seconds = (record.time_interval_ns or 0) / 1e9
            if seconds < SHORT_PERIOD:
                shortest[record.name] = min(seconds, shortest.get(record.name, seconds))
        return list(shortest.items())

    def disturbed(self) -> list[tuple[str, float]]:
        """Tests that had less of their CPU than `MIN_CPU_SHARE`: name, and its worst share.

        Too short a test is not judged: scheduling goes by milliseconds.
        """
        short = {name for name, _ in self.too_short()}
        return [
            (name, share)
            for name, share in self._shares.items()
            if share < MIN_CPU_SHARE and name not in short
        ]


def build_label(design: str, designs: tuple[str, ...], prefix: str | None) -> str | None:
    """What a build is called; ``None``: as its file is.

    A design that is not the kernel's, or one of several, has its name in it, behind the
    ``prefix`` that was given for all of them.
    """
    if designs == ("ring",):
        return prefix
    return design if prefix is None else f"{prefix}-{design}"


def median_ns(record: Record) -> float:
    """Nanoseconds per page in the median round or stretch of a record that has counted it."""
    return record.counts["median ns"] / record.counts["pages"]


def _summary(name: str, records: list[Record]) -> Summary:
    ns = [record.ns for record in records if record.ns is not None]
    cycles = [record.cycles for record in records if record.cycles is not None]
    counted = [record.instructions_per_elem for record in records]
    instructions = [value for value in counted if value is not None]
    return Summary(
        name=name,
        runs=len(records),
        ns=median_low(ns),
        ns_min=min(ns),
        ns_max=max(ns),
        cycles=median_low(cycles),
        cycles_min=min(cycles),
        cycles_max=max(cycles),
        instructions=median_low(instructions) if len(instructions) == len(records) else None,
        values=tuple(ns),
    )
