# SPDX-License-Identifier: BSD-2-Clause
"""A return storm: several CPUs return pages that were handed out before, all at once."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from statistics import fmean, median_low
from typing import Literal, NamedTuple

from pagepool.bench import _loops, suite
from pagepool.bench.collect import Collector, median_ns
from pagepool.bench.errors import SettingsError, WorkerDied
from pagepool.bench.events import (
    Event,
    Notice,
    RunStarted,
    Started,
    TestFailed,
    TestStarted,
    Warned,
)
from pagepool.bench.process import Worker
from pagepool.bench.protocol import CpusDone, Failed, Pools, Ready, StormJob
from pagepool.results.model import Machine

DEFAULT_LOOPS = _loops.STORM_DEFAULT_LOOPS
MAX_PRODUCERS = _loops.STORM_MAX_PRODUCERS
MAX_BULK = 64
#: How pages that are neighbours in memory go to the producers.
SPREADS = ("block", "round-robin")
_PREFIX = _loops.STORM_PREFIX


def run_storm(
    *,
    producers: Sequence[int] = (1, 2),
    loops: int = DEFAULT_LOOPS,
    runs: int = suite.DEFAULT_RUNS,
    designs: Sequence[str] = ("ring",),
    spread: Literal["block", "round-robin"] = "block",
    pages: int | None = None,
    bulk: int | None = None,
    stats: bool = True,
    checked: bool = False,
    oversubscribe: bool = False,
    python: str | None = None,
) -> Generator[Event, None, None]:
    """Run the benchmark and yield what happens: `pagepool.bench.events`, `Started` first.

    ``loops`` are the pages that each producer returns, rounded up to whole rounds of ``pages``;
    each run has all ``designs``, each with all numbers of ``producers``. ``spread`` is one of
    `SPREADS`; ``bulk`` puts so many pages at once. Settings are checked at once: raises
    `SettingsError`, also when there are fewer CPUs than producers, unless ``oversubscribe``.
    ``python`` as in `run_simple`. While it runs it raises `WorkerDied` and `BenchError`. Closing
    the generator ends the worker process.
    """
    suite.check_counts(loops, runs)
    several = suite.check_designs(designs)
    numbers = tuple(producers)
    if not numbers:
        raise SettingsError("no number of producers")
    for index, number in enumerate(numbers):
        if not 1 <= number <= MAX_PRODUCERS:
            raise SettingsError(f"{number} producers: can be 1 to {MAX_PRODUCERS}")
        if number in numbers[:index]:
            raise SettingsError(f"{number} producers are given twice")
    if spread not in SPREADS:
        raise SettingsError(f"spread {spread!r}: can be {' or '.join(SPREADS)}")
    if bulk is not None and not 2 <= bulk <= MAX_BULK:
        raise SettingsError(f"bulk of {bulk}: can be 2 to {MAX_BULK}")
    step, most = _loops.STORM_PAGES_STEP, _loops.STORM_POOL_SIZE // max(numbers)
    most -= most % step
    if pages is not None and (pages % step or not step <= pages <= most):
        raise SettingsError(
            f"{pages} pages a round: can be a multiple of {step} up to {most} "
            f"with {max(numbers)} producers"
        )
    jobs = []
    for number in numbers:
        what = f"{number} producer{'s' if number != 1 else ''}"
        cpus = suite.choose_cpus(number, what, oversubscribe)
        jobs.append(
            StormJob(
                loops=loops,
                producers=number,
                cpus=None if cpus is None else tuple(cpus),
                pages=pages or _loops.storm_pages(number),
                round_robin=spread == "round-robin",
                bulk=bulk or 0,
            )
        )
    return _run(jobs, runs, several, Pools(stats=stats, checked=checked), python)


def _run(
    jobs: list[StormJob], runs: int, designs: tuple[str, ...], pools: Pools, python: str | None
) -> Generator[Event, None, None]:
    pinned = [job for job in jobs if job.cpus is not None]
    over = ", ".join(str(job.producers) for job in jobs if job.cpus is None)
    mark = suite.oversubscribed(f"{over} producers") if over else ""
    for run in range(1, runs + 1):
        # Threads that are not pinned run where this process may; those that are say where.
        with Worker(python=python) as worker:
            cpu = pinned[0].cpus[0] if pinned and pinned[0].cpus and not over else None
            ready = suite.start(worker, cpu, pools)
            if run == 1:
                settings = {
                    "suite": "storm",
                    "loops": str(jobs[0].loops),
                    "producers": ",".join(str(job.producers) for job in jobs),
                }
                machine = _facts(ready, designs, pools, python, jobs, mark)
                names = tuple(_title(job) for job in jobs)
                yield Started(machine, settings, names, runs, designs)
                yield from suite.doubts(ready, cpu, pools)
                if mark:
                    yield Warned(f"oversubscribed: {mark.removeprefix('yes: ')}")
            yield RunStarted(run)
            for design in suite.rotated(designs, run):
                yield from suite.begin_design(run, design, designs, f"{_PREFIX}Loaded")
                for job in jobs:
                    yield from _one_job(worker, run, job, design)
            for line in worker.complaints():
                yield Warned(f"the worker said: {line}")


def _title(job: StormJob) -> str:
    return f"{_name(job)}, {job.producers} producer{'s' if job.producers != 1 else ''}"


def _name(job: StormJob) -> str:
    return _loops.STORM_BULK_NAME if job.bulk else _loops.STORM_NAME


def _one_job(worker: Worker, run: int, job: StormJob, design: str) -> Generator[Event, None, None]:
    title = _title(job)
    yield TestStarted(run, title)
    if job.cpus is None:
        mark = suite.oversubscribed(f"{job.producers} producers").removeprefix("yes: ")
        yield Notice(run, f"{_PREFIX}oversubscribed: {mark}")
    request = StormJob(
        job.loops,
        job.producers,
        job.cpus,
        design,
        job.pages,
        job.round_robin,
        job.bulk,
    )
    answer = worker.ask(request, f"in {title}, {design}, run {run}")
    if isinstance(answer, Failed):
        yield TestFailed(run, title, f"{design}, {job.producers} producers: {answer.text}")
        return
    if not isinstance(answer, CpusDone):
        raise WorkerDied(f"the worker answered nonsense in {title}: {answer}")
    yield from suite.cpu_records(run, design, answer)
    for cpu in answer.cpus:
        counts = cpu.counts
        low, middle, high = (
            counts[key] / counts["pages"] for key in ("low ns", "median ns", "high ns")
        )
        yield Notice(
            run,
            f"{_PREFIX}{cpu.name} CPU({cpu.cpu}): {counts['rounds']} rounds of {counts['pages']} "
            f"pages, median {middle:.3f} ns a page, tenth to ninth tenth {low:.3f} to {high:.3f}",
        )


def _facts(
    ready: Ready,
    designs: tuple[str, ...],
    pools: Pools,
    python: str | None,
    jobs: list[StormJob],
    mark: str,
) -> Machine:
    facts = suite.facts(ready, designs, f"pool_size {_loops.STORM_POOL_SIZE}", pools, python)
    most = max((job.cpus for job in jobs if job.cpus is not None), key=len, default=())
    facts["pinned cpu"] = f"{','.join(map(str, most))} return" if most else "none"
    block = f"in blocks of {_loops.STORM_BLOCK}"
    facts["spread"] = "page by page" if jobs[0].round_robin else block
    facts["puts"] = f"in bulk, {jobs[0].bulk} at once" if jobs[0].bulk else "one by one"
    facts["pages a round"] = ",".join(str(job.pages) for job in jobs)
    facts["oversubscribed"] = mark or "no"
    return facts


# What was measured


class StormSummary(NamedTuple):
    """One design with one number of producers over all runs; ns per page and producer.

    ``ns`` is the mean over the producers of each one's median round, and of the runs the median;
    ``mean`` the same of all rounds. ``to_ring`` and ``to_one``: ``ns`` by that of ring, and by
    the design's own with one producer; ``None`` where that was not measured.
    """

    design: str
    producers: int
    runs: int
    ns: float
    ns_min: float
    ns_max: float
    mean: float
    to_ring: float | None
    to_one: float | None
    #: ns, a value a run.
    values: tuple[float, ...] = ()


def summarize_storm(collector: Collector) -> list[StormSummary]:
    """A summary for each design and number of producers, by producers and then by design."""
    medians: dict[tuple[int, str], list[float]] = {}
    means: dict[tuple[int, str], list[float]] = {}
    for design in collector.designs:
        for records in collector.of(design):
            for number in dict.fromkeys(record.step or 0 for record in records):
                cpus = [
                    record
                    for record in records
                    if record.step == number and record.kind == "cpu" and record.ns is not None
                ]
                if not cpus:
                    continue
                key = (number, design)
                medians.setdefault(key, []).append(fmean(map(median_ns, cpus)))
                means.setdefault(key, []).append(fmean(record.ns or 0.0 for record in cpus))
    middle = {key: median_low(values) for key, values in medians.items()}

    def ratio(key: tuple[int, str], other: tuple[int, str]) -> float | None:
        return middle[key] / middle[other] if middle.get(other) else None

    order = sorted(medians, key=lambda key: (key[0], collector.designs.index(key[1])))
    return [
        StormSummary(
            design=key[1],
            producers=key[0],
            runs=len(medians[key]),
            ns=middle[key],
            ns_min=min(medians[key]),
            ns_max=max(medians[key]),
            mean=median_low(means[key]),
            to_ring=ratio(key, (key[0], "ring")),
            to_one=ratio(key, (1, key[1])),
            values=tuple(medians[key]),
        )
        for key in order
    ]
