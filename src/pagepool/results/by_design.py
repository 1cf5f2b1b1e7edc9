# SPDX-License-Identifier: BSD-2-Clause
"""Reads what this project's own suites write as JSON: workloads, and the survey of designs.

Each design is a build, called like it, so that one file compares its designs. What was predicted
and not measured is left out.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pagepool.results.errors import ResultsError
from pagepool.results.foreign import Collector, Name, decode
from pagepool.results.lines import clean
from pagepool.results.model import Count, Machine, ResultSet, Text
from pagepool.results.names import workload_name

WORKLOAD = "pagepool.workload/1"
DESIGNS = "pagepool.designs/1"


class _Result(msgspec.Struct):
    design: Name
    ns_per_packet: tuple[float, ...]
    counts: dict[str, int] = {}
    point: dict[str, int] = {}


class _Workload(msgspec.Struct):
    workload: Name
    results: tuple[_Result, ...]
    machine: Machine = {}
    settings: Machine = {}


class _Figure(msgspec.Struct):
    values: tuple[float, ...]


class _Path(msgspec.Struct):
    test: Text
    design: Name
    figure: _Figure


class _Storm(msgspec.Struct):
    producers: Count
    bulk: Count
    design: Name
    figure: _Figure


class _CrossCpu(msgspec.Struct):
    returning: Count
    design: Name
    figure: _Figure
    net: _Figure


class _Work(msgspec.Struct):
    workload: Text
    design: Name
    variant: Text = ""
    figure: _Figure | None = None


class _Survey(msgspec.Struct):
    designs: tuple[Name, ...]
    machine: Machine = {}
    command: Text = ""
    paths: tuple[_Path, ...] = ()
    storms: tuple[_Storm, ...] = ()
    cross_cpu: tuple[_CrossCpu, ...] = ()
    work: tuple[_Work, ...] = ()


def workload(data: bytes, file: str) -> ResultSet:
    """What ``pagepool bench workload --json`` writes: the time of a packet, by design and case.

    Raises `ResultsError`; so if the model ran it, which has no time.
    """
    document = decode(data, _Workload, file, "workload result")
    found = Collector(file)
    for result in document.results:
        name = workload_name(document.workload, result.point)
        packets = result.counts.get("packets", 0)
        # Packets of a run are counted, and its time was divided by that.
        count = packets if 0 < packets < 2**63 else None
        for run, ns in enumerate(result.ns_per_packet):
            found.add(clean(result.design), run, name, ns * (count or 1), count)
    return found.results(document.machine, document.settings)


def designs(data: bytes, file: str) -> ResultSet:
    """What ``pagepool designs --json`` writes, without its predictions. Raises `ResultsError`."""
    survey = decode(data, _Survey, file, "survey of designs")
    if not survey.designs:
        raise ResultsError(file, "no design was measured")
    found = Collector(file)
    # In the order of the survey, whichever design a table begins with.
    figures = list(_figures(survey))
    order = {design: at for at, design in enumerate(survey.designs)}
    figures.sort(key=lambda it: order.get(it[0], len(order)))
    for design, name, figure in figures:
        for run, ns in enumerate(figure.values):
            found.add(clean(design), run, name, ns)
    return found.results(survey.machine, {"command": survey.command} if survey.command else None)


def _figures(survey: _Survey) -> Iterable[tuple[str, str, _Figure]]:
    for path in survey.paths:
        yield path.design, path.test, path.figure
    for storm in survey.storms:
        yield storm.design, f"storm producers={storm.producers} bulk={storm.bulk}", storm.figure
    for cross in survey.cross_cpu:
        name = f"cross_cpu returning={cross.returning}"
        yield cross.design, name, cross.figure
        yield cross.design, f"{name} without hand-over", cross.net
    for work in survey.work:
        if work.figure is not None:
            variant = f" {work.variant}" if work.variant else ""
            yield work.design, f"workload_{work.workload}{variant}", work.figure
