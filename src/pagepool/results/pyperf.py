# SPDX-License-Identifier: BSD-2-Clause
"""Reads the JSON of pyperf, Python's benchmark runner.

A pyperf run is one process: a run here, with the mean of its values. Values are seconds per loop
of an inner loop; ``loops`` and ``inner_loops`` say how often that was repeated, so interval and
count are those of the clock. Warm-ups and calibration are left out, and so are names of hosts and
paths.
"""

from __future__ import annotations

import math
from typing import Annotated, TypeAlias

import msgspec

from pagepool.results.errors import ResultsError
from pagepool.results.foreign import Collector, decode, facts
from pagepool.results.model import Machine, ResultSet
from pagepool.results.text import stem_of

VERSION = "1.0"

_Metadata: TypeAlias = dict[str, str | int | float | bool | None]
_Number = Annotated[int, msgspec.Meta(ge=1, le=2**32)]

#: pyperf's word -> ours: what is of a machine, and what is of a moment.
_MACHINE = (
    ("cpu_model_name", "cpu"),
    ("cpu_count", "online cpus"),
    ("cpu_affinity", "cpu affinity"),
    ("cpu_config", "cpu config"),
    ("aslr", "aslr"),
    ("platform", "platform"),
    ("python_compiler", "compiler"),
    ("timer", "timer"),
    ("perf_version", "pyperf"),
)
_MOMENT = (("date", "date"), ("load_avg_1min", "load"), ("cpu_freq", "cpu freq"))


class _Run(msgspec.Struct):
    metadata: _Metadata = {}
    values: tuple[float, ...] = ()


class _Benchmark(msgspec.Struct):
    runs: tuple[_Run, ...]
    metadata: _Metadata = {}


class _Suite(msgspec.Struct):
    benchmarks: tuple[_Benchmark, ...]
    version: str | int | float
    metadata: _Metadata = {}


def loads(data: bytes, file: str) -> ResultSet:
    """Read a suite; its one build is called like the file. Raises `ResultsError`."""
    suite = decode(data, _Suite, file, "pyperf result")
    if suite.version != VERSION:
        what = f"pyperf's format {str(suite.version)[:80]!r}: this version reads {VERSION!r}"
        raise ResultsError(file, what, "convert it with 'python -m pyperf convert'")
    found = Collector(file)
    label = stem_of(file)
    machines: list[Machine] = []
    dates: list[str] = []
    for at, benchmark in enumerate(suite.benchmarks):
        common = {**suite.metadata, **benchmark.metadata}
        name = str(common.get("name") or "benchmark")[:1000]
        unit = common.get("unit", "second")
        if unit != "second":
            found.odd("unit", f"{name}: its unit is {str(unit)[:80]!r}, no time; not read")
            continue
        measured = [run for run in benchmark.runs if run.values]
        for number, run in enumerate(measured):
            metadata = {**common, **run.metadata}
            loops = _positive(metadata, "loops", f"{file}: benchmark {at + 1}")
            inner = _positive(metadata, "inner_loops", f"{file}: benchmark {at + 1}")
            moment = _moment(metadata)
            # A sum of floats loses nothing that matters; one of infinities is none.
            mean = math.fsum(run.values) / len(run.values) if _finite(run.values) else math.nan
            if min(run.values) < 0:
                mean = min(run.values)
            count = None if loops is None else loops * (inner or 1) * len(run.values)
            ns = mean * 1e9
            found.add(label, number, name, ns * (count or 1), count, moment)
            machines.append(_machine(metadata))
            dates += [moment["date"]] if "date" in moment else []
    machine = _shared(machines, found)
    return found.results(facts([("date", min(dates, default=""))]) | machine)


def _finite(values: tuple[float, ...]) -> bool:
    return all(map(math.isfinite, values)) and sum(map(abs, values)) < math.inf


def _positive(metadata: _Metadata, key: str, where: str) -> int | None:
    value = metadata.get(key)
    if value is None:
        return None
    try:
        return msgspec.convert(value, _Number)
    except msgspec.ValidationError as error:
        raise ResultsError(where, f"bad pyperf result: {key}: {error}") from None


def _moment(metadata: _Metadata) -> Machine:
    return facts([(ours, metadata.get(theirs)) for theirs, ours in _MOMENT])


def _machine(metadata: _Metadata) -> Machine:
    python = metadata.get("python_version")
    if python:
        python = f"{metadata.get('python_implementation') or 'python'} {python}"
    pairs = [(ours, metadata.get(theirs)) for theirs, ours in _MACHINE]
    return facts([*pairs, ("python", python)])


def _shared(machines: list[Machine], found: Collector) -> Machine:
    """What all runs say of their machine; that they say unlike things is odd."""
    if not machines:
        return {}
    first = machines[0]
    shared = {
        key: value for key, value in first.items() if all(m.get(key) == value for m in machines)
    }
    unlike = list(dict.fromkeys(key for m in machines for key in m if key not in shared))
    if unlike:
        found.odd(
            "unlike-runs", f"its runs are of unlike machines or settings: {', '.join(unlike)}"
        )
    return shared
