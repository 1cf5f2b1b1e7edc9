# SPDX-License-Identifier: BSD-2-Clause
"""Reads the JSON of Google Benchmark (``--benchmark_format=json``, ``--benchmark_out``).

A repetition is a run. The time is the wall clock's (``real_time``), which is what time_bench
measures: by the iterations it is the interval that was measured. Where only aggregates were
reported, the medians are read, and no count is known. Names of hosts and paths are left out.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from pagepool.results.errors import ResultsError
from pagepool.results.foreign import Collector, Name, Positive, decode, facts
from pagepool.results.model import Machine, ResultSet
from pagepool.results.text import stem_of

#: Of a newer library; older ones say none.
VERSION = 1

_NS: dict[str, float] = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
#: What libraries before 1.5 append to a name, and newer ones say.
_AGGREGATES = ("_mean", "_median", "_stddev", "_cv")

_Index: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**32)]


class _Cache(msgspec.Struct):
    type: str
    level: int
    size: int


class _Context(msgspec.Struct):
    date: str | None = None
    num_cpus: int | None = None
    mhz_per_cpu: int | float | None = None
    cpu_scaling_enabled: bool | None = None
    aslr_enabled: bool | None = None
    caches: tuple[_Cache, ...] = ()
    load_avg: tuple[float, ...] = ()
    version: str | None = msgspec.field(default=None, name="library_version")
    built_as: str | None = msgspec.field(default=None, name="library_build_type")
    json_schema_version: int = VERSION


class _Benchmark(msgspec.Struct):
    name: Name
    run_name: Name | None = None
    run_type: Literal["iteration", "aggregate"] | None = None
    aggregate_name: str | None = None
    repetition_index: _Index = 0
    iterations: Positive | None = None
    real_time: float | None = None
    time_unit: Literal["ns", "us", "ms", "s"] = "ns"
    error_occurred: bool = False
    error_message: str = ""
    skipped: bool = False
    skip_message: str = ""

    @property
    def of(self) -> str:
        """The name without that of an aggregate."""
        return self.run_name or self.name


class _Document(msgspec.Struct):
    context: _Context
    benchmarks: tuple[_Benchmark, ...]


def loads(data: bytes, file: str) -> ResultSet:
    """Read a document; its one build is called like the file. Raises `ResultsError`."""
    document = decode(data, _Document, file, "Google Benchmark result")
    context = document.context
    if context.json_schema_version != VERSION:
        what = f"Google Benchmark's JSON of version {context.json_schema_version}"
        raise ResultsError(file, what, f"this version reads {VERSION}")
    found = Collector(file)
    _beware(context, found)
    label = stem_of(file)
    names = {it.name for it in document.benchmarks}
    aggregates, measured = [], set()
    for it in document.benchmarks:
        if it.error_occurred:
            found.odd("failed", f"{it.of}: failed: {it.error_message[:300]}", "error")
        elif it.skipped:
            found.odd("failed", f"{it.of}: was skipped: {it.skip_message[:300]}", "note")
        elif _is_aggregate(it, names):
            aggregates.append(it)
        elif it.real_time is None or it.iterations is None:
            missing = "real_time" if it.real_time is None else "iterations"
            found.odd("no-figure", f"{it.of}: has no {missing}; not used", "error")
        else:
            measured.add(it.of)
            total = it.real_time * _NS[it.time_unit] * it.iterations
            found.add(label, it.repetition_index, it.of, total, it.iterations)
    medians = [it for it in aggregates if it.of not in measured and it.aggregate_name == "median"]
    for it in medians:
        if it.real_time is not None:
            found.add(label, 0, it.of, it.real_time * _NS[it.time_unit])
    if medians:
        text = "medians only, of repetitions that are not there: each counts as one run"
        found.odd("aggregates", f"{text}; leave out --benchmark_report_aggregates_only")
    return found.results(_machine(context))


def _is_aggregate(it: _Benchmark, names: set[str]) -> bool:
    if it.run_type is not None:
        return it.run_type == "aggregate"
    return any(it.name.removesuffix(end) in names for end in _AGGREGATES if it.name.endswith(end))


def _beware(context: _Context, found: Collector) -> None:
    """What Google Benchmark itself warns of."""
    if context.built_as == "debug":
        text = "Google Benchmark's library says that it was built for debugging"
        found.odd("debug-library", f"{text}: its own work may be in the times")
    if context.cpu_scaling_enabled:
        text = "CPU frequency scaling was enabled: the times may be noisy"
        found.odd("cpu-scaling", text)


def _machine(context: _Context) -> Machine:
    caches = (f"L{it.level} {it.type} {_size(it.size)}" for it in context.caches)
    mhz = context.mhz_per_cpu
    return facts(
        [
            ("date", context.date),
            ("online cpus", context.num_cpus),
            ("cpu freq", None if mhz is None else f"{mhz} MHz"),
            ("cpu scaling", _switch(context.cpu_scaling_enabled)),
            ("aslr", _switch(context.aslr_enabled)),
            ("caches", ", ".join(caches)),
            ("load", " ".join(f"{load:g}" for load in context.load_avg)),
            ("google benchmark", context.version),
            ("library build", context.built_as),
        ]
    )


def _switch(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
