# SPDX-License-Identifier: BSD-2-Clause
"""Runs everything that says something about designs, one suite after the other."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from pagepool import bench
from pagepool.bench.workload import Result
from pagepool.designs.survey import CrossCpu, Figure, Path, Predicted, Storm, Survey, Work
from pagepool.results.model import Machine
from pagepool.simulate import SCENARIOS, TRANSFER_NS, simulate

#: Pages of a put in bulk: those of an XDP redirect.
BULK = 16
PREDICTED_CPUS = (1, 2, 3, 4, 16, 64)
#: Facts about the machine and the library that are the same for all suites.
_FACTS = ("cpu", "cpus", "kernel", "governor", "counter", "pagepool", "compiler")


class Part(NamedTuple):
    """A suite begins."""

    text: str


class Plan(NamedTuple):
    """How much: ``loops`` of the suites that count them, ``polls`` of the workloads."""

    designs: tuple[str, ...] = ("ring", "list", "ours")
    runs: int = 5
    loops: int = 5_000_000
    polls: int = 20_000
    predicted_cpus: tuple[int, ...] = PREDICTED_CPUS


Event = bench.Event | bench.WorkloadEvent | Part


def measure(plan: Plan, command: str) -> Generator[Event, None, Survey]:
    """Measure, and return the survey. Raises what the suites raise."""
    cpus = len(os.sched_getaffinity(0))
    suite: dict[str, Any] = {"designs": list(plan.designs), "runs": plan.runs}
    loops: dict[str, Any] = {"loops": plan.loops}
    machine: Machine = {}

    yield Part("by path: allocate and put on one CPU")
    paths = yield from _collect(bench.run_simple(tests=["tasklet*"], **loops, **suite))
    machine |= {fact: paths.machine[fact] for fact in _FACTS if fact in paths.machine}

    storms: list[Storm] = []
    producers = sorted({1, cpus})
    for bulk in (None, BULK):
        yield Part("storm: several CPUs put at once" + (f", {bulk} a call" if bulk else ""))
        events = bench.run_storm(producers=producers, bulk=bulk, **loops, **suite)
        storms += _storms((yield from _collect(events)), bulk or 1)

    cross: list[CrossCpu] = []
    for returning in range(1, cpus):
        yield Part(f"cross-cpu: {returning} of {cpus} CPUs return pages")
        events = bench.run_cross_cpu(returning=returning, **loops, **suite)
        cross += _cross((yield from _collect(events)), returning)

    work: list[Work] = []
    for name, variant, knobs in _workloads(cpus):
        yield Part(f"workload {name}{', ' if variant else ''}{variant}")
        swept = name == "tcp-stream" and "threads" not in knobs
        made = yield from _play(name, knobs | {"polls": plan.polls}, suite)
        work += _work(name, variant, None, made)
        if swept:
            few = {**suite, "runs": 1}
            for pages in range(1, 19):
                at = knobs | {"polls": plan.polls // 10, "pages": pages}
                work += _work(name, variant, pages, (yield from _play(name, at, few)), time=False)

    yield Part("simulation: beyond this machine's CPUs")
    predicted = [
        Predicted(scenario=scenario, cpus=n, design=design, transfers=it.transfers, ns=it.ns)
        for scenario in SCENARIOS
        for design in plan.designs
        for n in plan.predicted_cpus
        for it in [simulate(design, n, scenario=scenario)]
    ]
    return Survey(
        machine=machine,
        command=command,
        designs=plan.designs,
        paths=tuple(_paths(paths)),
        storms=tuple(storms),
        cross_cpu=tuple(cross),
        work=tuple(work),
        predicted=tuple(predicted),
        transfer_ns=TRANSFER_NS,
    )


def _workloads(cpus: int) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Name, what is not as usual, and the settings for it."""
    for name in bench.WORKLOADS:
        yield name, "", {}
        if name == "tcp-stream":
            yield name, "direct", {"napi-direct": 1}
            if cpus > 1:
                yield name, "reader on another CPU", {"threads": 2}
        if name == "xdp-redirect" and cpus > 1:
            yield name, "other CPU", {"threads": 2}


def _collect(
    events: Generator[bench.Event, None, None],
) -> Generator[bench.Event, None, bench.Collector]:
    collector = bench.Collector()
    for event in events:
        collector.add(event)
        yield event
    return collector


def _play(
    name: str, knobs: dict[str, int], suite: dict[str, Any]
) -> Generator[bench.WorkloadEvent, None, list[Result]]:
    collector = bench.WorkloadCollector()
    for event in bench.run_workload(name, knobs=knobs, **suite):
        collector.add(event)
        yield event
    return collector.results()


def _paths(collector: bench.Collector) -> Iterator[Path]:
    for design in collector.designs:
        for it in collector.summaries(design):
            yield Path(
                test=it.name,
                design=design,
                figure=Figure(it.values),
                instructions=it.instructions,
            )


def _storms(collector: bench.Collector, bulk: int) -> Iterator[Storm]:
    for it in bench.summarize_storm(collector):
        figure = Figure(it.values)
        yield Storm(producers=it.producers, bulk=bulk, design=it.design, figure=figure)


def _cross(collector: bench.Collector, returning: int) -> Iterator[CrossCpu]:
    for it in bench.summarize_cross_cpu(collector):
        if it.handover is None or not it.nets:
            continue  # a loop of the two gave no figure, which was said
        yield CrossCpu(
            returning=returning,
            design=it.design,
            figure=Figure(it.values),
            handover=it.handover,
            net=Figure(it.nets),
            fell_out=it.fell_out,
        )


def _work(
    name: str, variant: str, pages: int | None, results: list[Result], *, time: bool = True
) -> Iterator[Work]:
    for it in results:
        yield Work(
            workload=name,
            variant=variant,
            pages=pages,
            design=it.design,
            counts=it.counts,
            statistics=it.stats,
            figure=Figure(tuple(it.ns)) if time and it.ns else None,
        )
