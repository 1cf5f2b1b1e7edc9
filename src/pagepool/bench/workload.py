# SPDX-License-Identifier: BSD-2-Clause
"""Workloads: what packets do to a pool, and what its statistics say about that."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from statistics import median
from typing import Literal, NamedTuple

import msgspec

from pagepool.bench import _workloads, machine, modelled
from pagepool.bench._workloads import Knob, Outcome, Workload
from pagepool.bench.errors import SettingsError, WorkerDied
from pagepool.bench.events import RunStarted, Started, TestFailed, TestStarted, Warned
from pagepool.bench.process import Worker
from pagepool.bench.protocol import Failed, Play, Played, Ready, Setup
from pagepool.bench.simple import MIN_CPU_SHARE
from pagepool.bench.suite import DEFAULT_RUNS, MAX_RUNS
from pagepool.model.limits import CACHE_REFILL, CACHE_SIZE
from pagepool.results.model import SHORT_PERIOD, Machine, Record

KNOBS: Mapping[str, Knob] = _workloads.KNOBS
WORKLOADS: Mapping[str, Workload] = _workloads.WORKLOADS
STATISTICS = _workloads.STATISTICS
MODELLED = modelled.MODELLED

#: What only the model can vary: pages of the cache, and of a refill.
MODEL_SIZES = {"cache": CACHE_SIZE, "refill": CACHE_REFILL}
MAX_MODEL_SIZE = 1 << 16

#: One name for two knobs: packets that are all alike.
PAGES = {"pages": ("pages-from", "pages-to")}

MAX_CASES = 1000

Engine = Literal["core", "model"]


class Case(NamedTuple):
    """One combination of settings. ``point``: those that a sweep varies, as it names them."""

    point: dict[str, int]
    knobs: dict[str, int]


class Ran(msgspec.Struct, frozen=True):
    """A workload was run once, with one design. ``cpu_share`` as in `Recorded`."""

    run: int
    case: int
    design: str
    outcome: Outcome
    cpu_share: float = 1.0


WorkloadEvent = Started | RunStarted | TestStarted | Ran | TestFailed | Warned


def cases(
    name: str,
    knobs: Mapping[str, int],
    sweep: Mapping[str, Sequence[int]],
    engine: Engine = "core",
) -> list[Case]:
    """All combinations of what is swept, over the settings that are not. Raises `SettingsError`."""
    if name not in WORKLOADS:
        raise SettingsError(
            f"no workload is called {name!r}: there are {', '.join(WORKLOADS)}; see --list"
        )
    number = 1
    for values in sweep.values():
        number *= len(values)
    if number > MAX_CASES:
        raise SettingsError(f"a sweep over {number} cases: can be {MAX_CASES} at most")
    made = []
    for values in itertools.product(*sweep.values()):
        point = dict(zip(sweep, values, strict=True))
        chosen = dict(WORKLOADS[name].knobs)
        if engine == "model":
            chosen |= MODEL_SIZES
        for knob, value in itertools.chain(knobs.items(), point.items()):
            for real in PAGES.get(knob, (knob,)):
                if real not in chosen:
                    raise SettingsError(_no_such_knob(name, knob, engine))
                chosen[real] = value
        made.append(Case(point, chosen))
    return made


def _no_such_knob(name: str, knob: str, engine: Engine) -> str:
    if knob in MODEL_SIZES and engine == "core":
        return f"the core's {knob} is fixed at {MODEL_SIZES[knob]} pages: use --engine model"
    if knob not in KNOBS and knob not in PAGES:
        return f"nothing is called {knob!r}: --list shows what a workload has"
    return f"{name} has no {knob}"


def run_workload(
    name: str,
    *,
    designs: Sequence[str] = ("ring",),
    knobs: Mapping[str, int] | None = None,
    sweep: Mapping[str, Sequence[int]] | None = None,
    seed: int = 1,
    runs: int = DEFAULT_RUNS,
    engine: Engine = "core",
    cpu: int | None = None,
    more: Callable[[int], Collection[int] | None] | None = None,
) -> Generator[WorkloadEvent, None, None]:
    """Run a workload and yield what happens: `Started` first, a `Ran` for each run of each case.

    ``knobs`` are settings by name (`KNOBS`, and ``pages`` for packets that are all alike);
    ``sweep`` gives some of them several values, and all combinations are run. In each run, a
    fresh worker process, all designs take turns. ``engine="model"``: the statistics by the model,
    which can vary ``cache`` and ``refill`` as well, once and without time. ``more``: asked before
    each run after the first, by its number, which cases it has, by their index in `cases`, or
    ``None`` for no more runs; all events of the runs before have been taken then.

    Settings are checked at once: raises `SettingsError`. While it runs it raises `WorkerDied` and
    `BenchError`. Closing the generator ends the worker process.
    """
    made = cases(name, knobs or {}, sweep or {}, engine)
    if not 0 <= seed < 1 << 64:
        raise SettingsError(f"seed {seed}: can be 0 to {(1 << 64) - 1}")
    if not 1 <= runs <= MAX_RUNS:
        raise SettingsError(f"{runs} runs: can be 1 to {MAX_RUNS}")
    if not designs or len(set(designs)) < len(designs):
        raise SettingsError("designs: name one or more, each once")
    if engine == "model" and name not in MODELLED:
        raise SettingsError(f"the model runs {', '.join(MODELLED)}, not {name}")
    if engine == "model" and list(designs) != ["ring"]:
        raise SettingsError("the model runs workloads with design ring only")
    for case in made:
        _check(name, case, designs, engine)
    if engine == "model":
        return _run_model(name, made, seed)
    allowed = os.sched_getaffinity(0)
    if cpu is None:
        cpu = machine.choose_cpu(allowed)
    elif cpu not in allowed:
        raise SettingsError(
            f"CPU {cpu} is not one that this process may use: {machine.format_cpu_list(allowed)}"
        )
    reader = -1
    if any(case.knobs.get("threads", 1) > 1 for case in made):
        if len(allowed) < 2:
            raise SettingsError("a reader on another CPU: there is only one to be had here")
        reader = machine.choose_cpu(allowed - {cpu})
    every = range(len(made))
    wanted = more or (lambda _run: every)
    return _run(name, made, tuple(designs), seed, runs, cpu, reader, wanted)


def _check(name: str, case: Case, designs: Sequence[str], engine: Engine) -> None:
    knobs = {knob: value for knob, value in case.knobs.items() if knob not in MODEL_SIZES}
    for knob, value in knobs.items():
        least, most = KNOBS[knob].least, KNOBS[knob].most
        if not least <= value <= most:
            raise SettingsError(f"{knob} is {value}: can be {least} to {most}")
    for design in designs:
        try:
            _workloads.check(name, knobs, design=design)
        except (_workloads.WorkloadError, ValueError) as error:
            raise SettingsError(str(error)) from None
    if engine == "model":
        cache, refill = case.knobs["cache"], case.knobs["refill"]
        if not 1 <= refill <= cache <= MAX_MODEL_SIZE:
            raise SettingsError(
                f"a cache of {cache} pages and a refill of {refill}: must be 1 to {MAX_MODEL_SIZE},"
                " and a refill must fit"
            )
        if case.knobs["threads"] != 1:
            raise SettingsError("the model has no second thread")


def _names(made: list[Case], designs: Sequence[str]) -> tuple[str, ...]:
    return tuple(case_name(case, design) for case in made for design in designs)


def case_name(case: Case, design: str) -> str:
    """What to call it while it runs."""
    return " ".join([f"{knob}={value}" for knob, value in case.point.items()] + [design])


def settings(name: str, made: Sequence[Case], seed: int) -> Machine:
    """What all cases have in common, for the head of a result."""
    common = {
        knob: "all" if knob == "defer-max" and value == KNOBS[knob].most else str(value)
        for knob, value in made[0].knobs.items()
        if all(case.knobs[knob] == value for case in made)
    }
    return {"suite": "workload", "workload": name, "seed": str(seed)} | common


def _run_model(name: str, made: list[Case], seed: int) -> Generator[WorkloadEvent, None, None]:
    facts = {"engine": "model: the statistics of the rules, no time"}
    yield Started(facts, settings(name, made, seed), _names(made, ["ring"]), 1)
    yield RunStarted(1)
    for index, case in enumerate(made):
        yield TestStarted(1, case_name(case, "ring"))
        sizes = {size: case.knobs[size] for size in MODEL_SIZES}
        outcome = modelled.run(name, case.knobs, seed=seed, **sizes)
        yield Ran(1, index, "ring", outcome)


def _run(
    name: str,
    made: list[Case],
    designs: tuple[str, ...],
    seed: int,
    runs: int,
    cpu: int,
    reader: int,
    more: Callable[[int], Collection[int] | None],
) -> Generator[WorkloadEvent, None, None]:
    for run in range(1, runs + 1):
        wanted = more(run) if run > 1 else range(len(made))
        if wanted is None:
            return
        with Worker() as worker:
            ready = worker.ask(Setup(cpu), "while it started")
            if not isinstance(ready, Ready):
                raise WorkerDied(f"the worker did not start: {ready}")
            if run == 1:
                facts = _facts(ready, reader)
                yield Started(facts, settings(name, made, seed), _names(made, designs), runs)
                if ready.pin_error:
                    yield Warned(f"cannot pin the worker to CPU {cpu}: {ready.pin_error}")
                if ready.checked != "off":
                    yield Warned("PAGEPOOL_CHECKED is set: these are not the pool's figures")
            yield RunStarted(run)
            # Not always the same one first, on a CPU that is cold or has just been busy.
            turn = (run - 1) % len(designs)
            for index in wanted:
                case = made[index]
                for design in designs[turn:] + designs[:turn]:
                    what = case_name(case, design)
                    yield TestStarted(run, what)
                    play = Play(name, case.knobs, design, seed, reader)
                    answer = worker.ask(play, f"in {name} {what}, run {run}")
                    if isinstance(answer, Failed):
                        yield TestFailed(run, what, answer.text)
                    elif isinstance(answer, Played):
                        yield Ran(run, index, design, answer.outcome, answer.cpu_share)
                    else:
                        raise WorkerDied(f"the worker answered nonsense in {name}: {answer}")
            for line in worker.complaints():
                yield Warned(f"the worker said: {line}")


def _facts(ready: Ready, reader: int) -> Machine:
    facts = machine.describe(ready.cpu)
    if reader >= 0:
        facts["reader's cpu"] = str(reader)
    counter = ready.counter
    if ready.counter_khz:
        counter += f" at {ready.counter_khz / 1e6:.2f} GHz, measured"
    return facts | {
        "pagepool": ready.version,
        "compiler": machine.one_line(ready.compiler),
        "core build": ready.build,
        "counter": counter,
        "checked mode": ready.checked,
    }


class Result(NamedTuple):
    """A case with one design: counts and statistics of all pools together, and its time.

    ``ns`` are nanoseconds per packet, one figure a run; empty: there was no packet, or no clock.
    """

    case: int
    design: str
    counts: dict[str, int]
    stats: dict[str, int]
    pools: list[dict[str, int]]
    in_flight: int
    leaks: list[tuple[str, int]]
    checked: bool
    ns: list[float]

    @property
    def recycled(self) -> float | None:
        """Pages that stayed in the pool, of those that were allocated."""
        allocated = self.counts["allocated"]
        stayed = self.stats["recycle_cached"] + self.stats["recycle_ring"]
        return stayed / allocated if allocated else None

    @property
    def ns_median(self) -> float | None:
        """The median of ``ns``."""
        return median(self.ns) if self.ns else None


class WorkloadCollector:
    """Takes events as they come; what it has at any moment is whole."""

    def __init__(self) -> None:
        """Nothing has run yet."""
        self.machine: Machine = {}
        self.settings: Machine = {}
        self._ran: dict[tuple[int, str], list[Ran]] = {}

    def add(self, event: WorkloadEvent) -> None:
        """One more event."""
        if isinstance(event, Started):
            self.machine, self.settings = event.machine, event.settings
        elif isinstance(event, Ran):
            self._ran.setdefault((event.case, event.design), []).append(event)

    def results(self) -> list[Result]:
        """One a case and design, in the order in which they first ran: by case."""
        ordered = sorted(self._ran.items(), key=lambda item: item[0][0])
        return [_result([ran.outcome for ran in runs], *key) for key, runs in ordered]

    def unlike(self) -> list[tuple[int, str]]:
        """Cases and designs whose statistics were not the same in all runs: a bug."""
        return [
            key
            for key, runs in self._ran.items()
            if any(_what(ran.outcome) != _what(runs[0].outcome) for ran in runs)
        ]

    def doubts(self) -> list[str]:
        """Why the time, not the statistics, should be doubted: one line each, without names."""
        timed = [ran for runs in self._ran.values() for ran in runs if ran.outcome.time_interval_ns]
        lines = []
        if timed:
            shortest = min(ran.outcome.time_interval_ns for ran in timed) / 1e9
            if shortest < SHORT_PERIOD:
                lines.append(
                    f"less than {SHORT_PERIOD} s were timed ({shortest:.4f} s): the statistics "
                    "are right, the time is not to be trusted; try more --polls"
                )
            share = min(ran.cpu_share for ran in timed)
            if share < MIN_CPU_SHARE:
                lines.append(
                    f"had to share the CPU ({share:.0%} of the time was its own): stop other "
                    "programs, or choose another CPU with --cpu"
                )
        return lines


def _what(outcome: Outcome) -> Outcome:
    """All but the time."""
    return outcome._replace(time_interval_ns=0, tsc_interval=0)


def _result(outcomes: list[Outcome], case: int, design: str) -> Result:
    first = outcomes[0]
    packets = first.counts["packets"]
    stats = {name: sum(pool[name] for pool in first.stats) for name in STATISTICS}
    return Result(
        case,
        design,
        first.counts,
        stats,
        first.stats,
        sum(first.inflight),
        first.leaks,
        first.checked,
        [o.time_interval_ns / packets for o in outcomes if packets and o.time_interval_ns],
    )


def record(name: str, event: Ran) -> Record | None:
    """The time of one run as time_bench has it, per packet; ``None``: there is none."""
    packets = event.outcome.counts["packets"]
    if not packets or not event.outcome.time_interval_ns:
        return None
    return Record(
        name=f"workload_{name}_{event.design}",
        step=0,
        time_interval_ns=event.outcome.time_interval_ns,
        invoke_count=packets,
        tsc_interval=event.outcome.tsc_interval,
    )


def where(results: Sequence[Result], values: Sequence[int], count: str, swept: str) -> str:
    """At which of the swept values, by case, something is counted, in words.

    ``count``: one of `STATISTICS`, or of the counts.
    """
    counted = sorted({values[r.case] for r in results if (r.stats | r.counts).get(count, 0)})
    reach = sorted({values[r.case] for r in results})
    if not counted:
        return f"never in {swept}={reach[0]}..{reach[-1]}"
    if counted == reach:
        return f"always in {swept}={reach[0]}..{reach[-1]}"
    if counted[0] == reach[0]:
        return f"last with {swept}={counted[-1]}"
    return f"first with {swept}={counted[0]}"
