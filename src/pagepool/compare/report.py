# SPDX-License-Identifier: BSD-2-Clause
"""Pairs the tests of two builds, and collects what a reader of the table must know.

The shown figures are the printed ones, their differences are differences of printed figures, and
the percentage is the difference by the printed before, so that tables agree with those in mails.
Beside each stands the exact value from the intervals; every judgement uses only these.

Warnings are data: a code for programs, a sentence for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

import msgspec

from pagepool.compare import decisions, looks, statistics, unlike
from pagepool.compare.selection import Chosen
from pagepool.compare.verdict import RANK_RUNS, Margin, Verdict
from pagepool.results import kinds
from pagepool.results.errors import ResultsError
from pagepool.results.model import (
    OF_RECORDS,
    SHORT_PERIOD,
    Build,
    Key,
    Kind,
    Oddity,
    Record,
    ResultSet,
)
from pagepool.results.words import count, counter_ghz, hertz, test_name, test_names

Metric: TypeAlias = Literal["cycles", "ns", "instructions"]
METRICS: tuple[Metric, ...] = ("cycles", "ns", "instructions")

#: Tests that do not touch the pool. Between two kernels on one machine they should not move.
CONTROLS = frozenset(
    {"for_loop", "atomic_inc", "lock", "rcu", "this_cpu_inc", "page_pool_cross_cpu_handover"}
)

#: GHz. No CPU that runs this has a slower clock: what ticks slower is a timer (arm64: 0.1).
SLOW_COUNTER = 1.0
#: Seconds. A test that ran once and shorter than this: 1 ms of other work, one time slice, is 1 %.
SHORT_ONCE = 0.1
#: The fast path costs this share of the way through the ring at most, where it reaches the cache.
REACHES_CACHE = 0.98


class Warn(msgspec.Struct, frozen=True):
    """Something to beware of: a code, a sentence."""

    code: str
    text: str


class Cell(msgspec.Struct, frozen=True):
    """One test of one build in one metric.

    ``printed`` is the median as a log prints it, ``exact`` from its interval; ``values`` are the
    exact values of all runs in order, ``minimum`` and ``maximum`` theirs as printed.
    """

    printed: Decimal
    exact: float
    n: int
    minimum: Decimal
    maximum: Decimal
    values: tuple[float, ...]


class Pair(msgspec.Struct, frozen=True):
    """One test before and after in one metric.

    ``diff`` and ``change_percent`` are those of the printed figures, as in a mail's table;
    ``exact_diff`` and ``exact_change_percent`` those of the exact medians. ``ranges_overlap`` is
    ``None`` unless both sides have several runs.
    """

    before: Cell | None
    after: Cell | None
    diff: Decimal | None = None
    change_percent: float | None = None
    exact_diff: float | None = None
    exact_change_percent: float | None = None
    ranges_overlap: bool | None = None


class Row(msgspec.Struct, frozen=True):
    """One test: its full name, the pairs of every metric that some side has, and the verdict.

    A control has none.
    """

    name: str
    test: str
    kind: Kind
    step: int
    cpu: int | None
    is_control: bool
    metrics: dict[Metric, Pair]
    verdict: Verdict | None = None

    @property
    def key(self) -> Key:
        """What the row measures."""
        return (self.kind, self.test, self.step, -1 if self.cpu is None else self.cpu)


class Side(msgspec.Struct, frozen=True):
    """One build: how it is named here, where it was read, and how often it ran."""

    name: str
    file: str
    label: str
    runs: int
    kernel: str | None = None
    heading: str | None = None
    machine: dict[str, str] = {}


Against: TypeAlias = Literal["first", "previous"]


class Comparison(msgspec.Struct, frozen=True):
    """One build against the first; in a series also against the one before."""

    before: Side
    after: Side
    rows: tuple[Row, ...]
    controls: tuple[Row, ...]
    against: Against = "first"
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()
    warnings: tuple[Warn, ...] = ()

    @property
    def runs(self) -> set[int]:
        """How often tests were run, on either side."""
        return {
            cell.n
            for row in self.rows
            for pair in row.metrics.values()
            for cell in (pair.before, pair.after)
            if cell is not None
        }

    @property
    def has_spread(self) -> bool:
        """Whether some test was run more than once."""
        return any(n > 1 for n in self.runs)


class Input(msgspec.Struct, frozen=True):
    """One file: the labels of its builds that are compared, and why it could not be read."""

    file: str
    builds: tuple[str, ...] = ()
    error: str | None = None


class Report(msgspec.Struct, frozen=True):
    """All comparisons, what to beware of in single builds, and what the readers noticed.

    ``margin`` is what is no change. ``sides`` are the builds in their order, ``builds`` the same
    with all that was measured. In a ``series`` each is compared with the one before and, from the
    third on, with the first. ``inputs`` are the files, also those that could not be read.
    """

    comparisons: tuple[Comparison, ...]
    metrics: tuple[Metric, ...]
    warnings: tuple[Warn, ...] = ()
    oddities: tuple[Oddity, ...] = ()
    failures: tuple[str, ...] = ()
    sides: tuple[Side, ...] = ()
    builds: tuple[Build, ...] = ()
    margin: Margin = Margin()
    series: bool = False
    inputs: tuple[Input, ...] = ()

    @property
    def judged(self) -> dict[Against, int]:
        """How many rows had their p adjusted together; in a series by what they are against."""
        judged: dict[Against, int] = {}
        for comparison in self.comparisons:
            verdicts = (row.verdict for row in comparison.rows)
            adjusted = sum(it is not None and it.p_adjusted is not None for it in verdicts)
            judged[comparison.against] = judged.get(comparison.against, 0) + adjusted
        return judged

    @property
    def problems(self) -> tuple[Warn, ...]:
        """What is missing in the report, and why: files that were not read, builds without a row.

        What was read and is odd is in ``oddities``.
        """
        return (
            *(Warn("not-read", f"not read: {it.error}") for it in self.inputs if it.error),
            *(Warn("not-compared", f"not compared: {it}") for it in self.failures),
        )

    def to_dicts(self) -> list[dict[str, object]]:
        """A dictionary for each comparison and row: ``pandas.DataFrame(report.to_dicts())``.

        Keys are the columns of the CSV form; times are in ns, values that there are not are
        ``None``.
        """
        from pagepool.compare import formats

        head, *lines = formats.csv_lines(self)
        return [dict(zip(map(str, head), line, strict=True)) for line in lines]

    def _repr_markdown_(self) -> str:
        from pagepool.compare import formats

        return formats.render(self, "markdown")

    def __str__(self) -> str:
        """The table as ``pagepool compare`` prints it."""
        from pagepool.compare import formats

        return formats.render(self, "table")


def compare(
    chosen: Sequence[Chosen],
    metrics: Iterable[Metric] = ("cycles", "ns"),
    tests: Sequence[str] = (),
    results: Sequence[ResultSet] = (),
    *,
    series: bool = False,
    margin: Margin | None = None,
    controls: Sequence[str] = (),
    anyway: bool = False,
    unread: Sequence[ResultsError] = (),
) -> Report:
    """Compare every build with the first. ``tests`` are globs on names; none means all.

    ``results`` are the sets that the builds come from, for their oddities and for the noise of
    the builds that are not compared. ``series``: with the one before as well. ``margin``: what
    is no change. ``controls``: globs of tests that do not touch what was changed, beside
    `CONTROLS`. ``anyway``: verdicts also where builds are too unlike. ``unread``: what could not
    be read, to be told. Raises `ResultsError` when nothing is left to compare; a single build that
    shares no test with the first is told in ``failures``.
    """
    counted = chosen
    chosen = with_times(chosen)
    sides = _sides(chosen)
    groups = [decisions.records_of(one.build) for one in chosen]
    wanted = tuple(metrics)
    all_keys = list(dict.fromkeys(key for group in groups for key in group))
    _check_globs(tests, all_keys)
    _check_globs(controls, all_keys, "--control")
    compared: dict[Against, list[decisions.Between]] = {"previous": [], "first": []}
    failures: list[ResultsError] = []
    for after in range(1, len(chosen)):
        for before in dict.fromkeys((after - 1, 0) if series else (0,)):
            against: Against = "previous" if series and before == after - 1 else "first"
            builds = chosen[before].build, chosen[after].build
            try:
                found = _compare_pair(
                    (sides[before], sides[after]),
                    (groups[before], groups[after]),
                    wanted,
                    tests,
                    controls,
                    against,
                )
            except ResultsError as error:
                failures.append(error)
            else:
                unlike_ones = tuple(_unlike(builds, (groups[before], groups[after]), found, anyway))
                found = msgspec.structs.replace(found, warnings=found.warnings + unlike_ones)
                found = _with_looks(found, *builds)
                compared[against].append(decisions.Between(found, *builds))
    if not any(compared.values()):
        raise failures[0]
    everything = [build for result in results for build in result.builds]
    everything += [one.build for one in chosen]
    margin = margin or Margin()
    pool = decisions.Pool(everything)
    # One family: that any row of the report is called without a change is what has the 5 %.
    between = [one for of_kind in compared.values() for one in of_kind]
    decided = decisions.decide_all(between, pool, margin, anyway=anyway)
    comparisons = [_with_one_run(comparison) for comparison in decided]
    warnings = _build_warnings(sides, groups, tests, [one.build for one in chosen])
    warnings += _counters(counted)
    oddities = tuple(
        oddity
        for result in results
        for oddity in result.oddities
        if oddity.severity != "note" and _concerns(oddity, chosen)
    )
    for metric in wanted:
        if not any(
            pair.before or pair.after
            for comparison in comparisons
            for row in comparison.rows
            if (pair := row.metrics[metric])
        ):
            raise ResultsError(
                f"--metric {metric}", "no selected test has such figures", "choose another"
            )
    return Report(
        tuple(comparisons),
        wanted,
        warnings,
        oddities,
        tuple(map(str, failures)),
        sides=tuple(sides),
        builds=tuple(one.build for one in chosen),
        margin=margin,
        series=series,
        inputs=_inputs(sides, unread),
    )


def _inputs(sides: Iterable[Side], unread: Iterable[ResultsError]) -> tuple[Input, ...]:
    builds: dict[str, list[str]] = {}
    for side in sides:
        builds.setdefault(side.file, []).append(side.label)
    return (
        *(Input(file, tuple(labels)) for file, labels in builds.items()),
        *(Input(error.where, error=str(error)) for error in unread),
    )


def metrics_of(chosen: Sequence[Chosen], tests: Sequence[str] = ()) -> tuple[Metric, ...]:
    """What to show if nobody asked for a metric: cycles and nanoseconds, as far as some build has
    them, and instructions, if all builds counted them."""
    groups = [
        [record for record in one.build.records if _matches(record.key, tests)] for one in chosen
    ]
    found: list[Metric] = [
        metric
        for metric in ("cycles", "ns")
        if any(figure(record, metric) is not None for group in groups for record in group)
    ]
    if all(any(record.instructions_per_elem is not None for record in it) for it in groups):
        found.append("instructions")
    return tuple(found) or ("cycles", "ns")


def with_times(chosen: Sequence[Chosen]) -> Sequence[Chosen]:
    """The builds that can be compared: not those of which only counters are known."""
    timed = [one for one in chosen if decisions.records_of(one.build)]
    if len(timed) < 2 and len(timed) < len(chosen):
        other = next(one for one in chosen if not decisions.records_of(one.build))
        raise ResultsError(
            f"{other.file}@{other.build.label}",
            "holds counters only, which have no time to compare",
            "list them with 'pagepool show'",
        )
    return timed


def _counters(chosen: Sequence[Chosen]) -> tuple[Warn, ...]:
    names = dict.fromkeys(
        record.name for one in chosen for record in one.build.records if record.kind == "event"
    )
    if not names:
        return ()
    shown = ", ".join(list(names)[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    text = f"counters have no time and are not compared; 'pagepool show' lists them: {shown}"
    return (Warn("counters", text),)


def _concerns(oddity: Oddity, chosen: Sequence[Chosen]) -> bool:
    """Whether an oddity may lie in a build that is compared: what is about a record, by line."""
    if oddity.code not in OF_RECORDS:
        return True
    places = [one.build.source for one in chosen]
    return any(
        place is None
        or (place.file == oddity.file and place.line <= oddity.line <= place.last_line)
        for place in places
    )


Group: TypeAlias = dict[Key, list[Record]]


def _matches(key: Key, tests: Sequence[str]) -> bool:
    return not tests or any(fnmatchcase(key[1], glob) for glob in tests)


def _check_globs(tests: Sequence[str], keys: list[Key], option: str = "--tests") -> None:
    names = list(dict.fromkeys(key[1] for key in keys))
    for glob in tests:
        if not any(fnmatchcase(name, glob) for name in names):
            shown = ", ".join(names[:16]) + (", ..." if len(names) > 16 else "")
            raise ResultsError(f"{option} {glob}", "matches no test", f"there are {shown}")


def _sides(chosen: Sequence[Chosen]) -> list[Side]:
    labels = [one.build.label for one in chosen]
    return [
        Side(
            name=label if labels.count(label) == 1 else f"{file}@{label}",
            file=file,
            label=label,
            runs=len(build.runs),
            kernel=build.kernel,
            heading=build.heading,
            machine=build.machine,
        )
        for (file, build), label in zip(chosen, labels, strict=True)
    ]


# Figures


def figure(record: Record, metric: Metric) -> tuple[float, Decimal] | None:
    """One record's value in one metric: exact, and as printed."""
    exact: float | None
    printed: Decimal | None
    if metric == "ns":
        exact, printed = record.ns, record.ns_printed
    elif metric == "cycles":
        exact, cycles = record.cycles, record.cycles_printed
        printed = None if cycles is None else Decimal(cycles)
    else:
        exact, printed = record.instructions_per_elem, None
        if record.instructions is not None and record.invoke_count:
            printed = Decimal(record.instructions * 1000 // record.invoke_count) / 1000
            printed = printed.quantize(Decimal("0.001"))
    return None if exact is None or printed is None else (exact, printed)


def _cell(records: Iterable[Record], metric: Metric) -> Cell | None:
    figures = [
        found
        for record in records
        if record.is_usable and (found := figure(record, metric)) is not None
    ]
    if not figures:
        return None
    values = tuple(exact for exact, _ in figures)
    exact, printed = figures[statistics.median_index(values)]
    return Cell(printed, exact, len(values), min(figures)[1], max(figures)[1], values)


def _pair(before: Cell | None, after: Cell | None) -> Pair:
    if before is None or after is None:
        return Pair(before, after)
    diff = after.printed - before.printed
    several = before.n > 1 and after.n > 1
    return Pair(
        before,
        after,
        diff=diff,
        change_percent=float(diff) / float(before.printed) * 100 if before.printed else None,
        exact_diff=after.exact - before.exact,
        exact_change_percent=statistics.change_percent(before.exact, after.exact),
        ranges_overlap=(
            statistics.ranges_overlap(before.values, after.values) if several else None
        ),
    )


def _is_control(key: Key, controls: Sequence[str]) -> bool:
    return key[1] in CONTROLS or any(fnmatchcase(key[1], glob) for glob in controls)


def _row(
    key: Key,
    name: str,
    before: Group,
    after: Group,
    metrics: Sequence[Metric],
    controls: Sequence[str],
) -> Row:
    pairs: dict[Metric, Pair] = {}
    for metric in metrics:
        pairs[metric] = _pair(_cell(before[key], metric), _cell(after[key], metric))
    return Row(
        name=name,
        test=key[1],
        kind=key[0],
        step=key[2],
        cpu=None if key[3] < 0 else key[3],
        is_control=_is_control(key, controls),
        metrics=pairs,
    )


def _compare_pair(
    sides: tuple[Side, Side],
    groups: tuple[Group, Group],
    metrics: Sequence[Metric],
    tests: Sequence[str],
    controls: Sequence[str],
    against: Against,
) -> Comparison:
    before, after = groups
    shared = [key for key in before if key in after]
    names = test_names(dict.fromkeys([*before, *after]))
    if not shared:
        raise ResultsError(
            f"{sides[0].name} and {sides[1].name}",
            "share no test",
            f"{_few(before)} here, {_few(after)} there",
        )
    selected = [key for key in shared if _matches(key, tests)]
    if not selected:
        raise ResultsError(
            f"--tests {','.join(tests)}",
            f"{sides[0].name} and {sides[1].name} share no such test",
            f"they share {_few(shared)}",
        )
    rows = [_row(key, names[key], before, after, metrics, controls) for key in selected]
    rows.sort(key=lambda row: row.is_control)
    # How far the controls moved matters most when they were not asked for.
    figures = tuple(dict.fromkeys((*METRICS[:2], *metrics)))
    moved = tuple(
        _row(key, names[key], before, after, figures, controls)
        for key in shared
        if _is_control(key, controls)
    )
    return Comparison(
        before=sides[0],
        after=sides[1],
        rows=tuple(rows),
        controls=moved,
        against=against,
        only_before=_only(before, after, tests, names),
        only_after=_only(after, before, tests, names),
        warnings=tuple(_pair_warnings(sides, groups, rows, moved, selected)),
    )


def _only(one: Group, other: Group, tests: Sequence[str], names: dict[Key, str]) -> tuple[str, ...]:
    return tuple(names[key] for key in one if key not in other and _matches(key, tests))


# Warnings about a pair


def _pair_warnings(
    sides: tuple[Side, Side],
    groups: tuple[Group, Group],
    rows: list[Row],
    controls: tuple[Row, ...],
    selected: list[Key],
) -> Iterable[Warn]:
    before, after = groups
    if controls:
        moved = ", ".join(f"{row.name} {_moved(row)}" for row in controls)
        yield Warn("controls", f"controls, which do not touch the pool, moved: {moved}")
    counted = [(row.name, by) for row in controls if (by := decisions.moved_instructions(row))]
    if counted:
        each = ", ".join(f"{name} {by:+.3f}" for name, by in counted)
        yield Warn("control-instructions", f"controls moved by instructions: {each}")
    overlapping = [
        row.name
        for row in rows
        if not row.is_control and any(pair.ranges_overlap for pair in _judged(row))
    ]
    if overlapping:
        yield Warn("overlap", f"ranges of both sides overlap: {', '.join(overlapping)}")
    same = [key for key in selected if _same_measurement(before[key], after[key])]
    if same:
        yield Warn(
            "same-measurement",
            f"{_few(same)}: the very same measurement on both sides, to the nanosecond",
        )


def _unlike(
    builds: tuple[Build, Build], groups: tuple[Group, Group], found: Comparison, anyway: bool
) -> Iterable[Warn]:
    """What makes two builds, or some of their tests, unlike; and what follows of it."""
    one, other = map(unlike.known, builds)
    differing = unlike.differences(one, other)
    before, after = groups
    loops = [
        f"{row.test} {_loops(before[row.key])} and {_loops(after[row.key])}"
        for row in found.rows
        if not unlike.same_loops(before[row.key], after[row.key])
    ]
    if loops:
        more = [f"and {len(loops) - 3} more"] if len(loops) > 3 else []
        differing["loops"] = [", ".join([*loops[:3], *more])]
    for kind, how in unlike.HOW.items():
        if kind not in differing:
            continue
        text = f"{how.words}: {'; '.join(differing[kind])}"
        if kind == "clock":
            assert one.clock is not None and other.clock is not None
            speeds = f"{hertz(one.clock)} and {hertz(other.clock)}"
            text = f"the counters run at {speeds}: {how.words}, whose cycles do not compare"
        if not (how.is_judged or anyway):
            text += "; no verdict, unless with --anyway"
        yield Warn(how.code, text)


def _with_one_run(comparison: Comparison) -> Comparison:
    """Says what a side with one run means, behind what the controls did."""
    counts = comparison.runs
    if 1 not in counts:
        return comparison
    verdicts = [row.verdict for row in comparison.rows if row.verdict]
    judged = [verdict for verdict in verdicts if verdict.why not in unlike.WITHHELD]
    if verdicts and not judged:
        return comparison  # no number of runs would change that
    if all(verdict.method == "none" for verdict in judged):
        one = (
            "one run a side: these differences"
            if counts == {1}
            else "a side with one run: its rows"
        )
        text = f"{one} carry no verdict; with {RANK_RUNS} runs a side ranks decide"
    elif any(verdict.method == "pooled" for verdict in judged):
        text = "a side with one run: its noise is known from the runs of other builds only"
    else:
        return comparison
    warnings = list(comparison.warnings)
    at = 1 if warnings and warnings[0].code == "controls" else 0
    warnings.insert(at, Warn("one-run", text))
    return msgspec.structs.replace(comparison, warnings=tuple(warnings))


def _with_looks(comparison: Comparison, before: Build, after: Build) -> Comparison:
    """Says that the runs themselves chose how many there are."""
    looked = looks.of_pair(before, after)
    if looked is None or len(looked[0].at) == 1:
        return comparison
    (at, made), most = looked, len(looked[0].at)
    text = (
        f"runs were added where the verdict was open: {count(made, 'look')} of at most {most} "
        f"({','.join(map(str, at.at))} runs a side), each judged at 1/{most} of the 5 %, so that "
        "all together err as rarely as one"
    )
    warnings = (*comparison.warnings, Warn("looks", text))
    return msgspec.structs.replace(comparison, warnings=warnings)


def _judged(row: Row) -> list[Pair]:
    """The pairs of a row that ranges are compared in: nanoseconds, or what there is instead."""
    pair = row.metrics.get("ns")
    if pair is not None and pair.before is not None:
        return [pair]
    return list(row.metrics.values())


def _moved(row: Row) -> str:
    # Times first: what instructions moved by is said by itself.
    order: tuple[Metric, ...] = (*decisions.TIMES, "instructions")
    for metric in order:
        pair = row.metrics.get(metric)
        if pair is not None and pair.change_percent is not None:
            return f"{pair.change_percent:+.1f} %"
    return "?"


def _same_measurement(one: list[Record], other: list[Record]) -> bool:
    def identity(record: Record) -> tuple[int, int, int | None] | None:
        if record.time_interval_ns and record.invoke_count:
            return record.time_interval_ns, record.invoke_count, record.tsc_interval
        return None

    known = {identity(record) for record in one} - {None}
    return any(identity(record) in known for record in other)


def _loops(records: list[Record]) -> str:
    counts = sorted({record.invoke_count for record in records if record.invoke_count})
    return "/".join(map(str, counts))


def _clock(group: Group) -> float | None:
    return counter_ghz(record for records in group.values() for record in records)


# Warnings about single builds


def _build_warnings(
    sides: list[Side], groups: list[Group], tests: Sequence[str], builds: Sequence[Build]
) -> tuple[Warn, ...]:
    result = [*_debugging(sides, builds), *_caches(sides, groups, builds)]
    slow: dict[str, list[str]] = {}
    for side, group in zip(sides, groups, strict=True):
        clock = _clock(group)
        if clock is not None and clock < SLOW_COUNTER:
            slow.setdefault(hertz(clock), []).append(side.name)
    for speed, whose in slow.items():
        who = "all builds" if len(whose) == len(sides) else ", ".join(whose)
        text = f"the counter of {who} is a {speed} timer: compare nanoseconds, not its cycles"
        result.append(Warn("slow-counter", text))
    short: dict[float, dict[str, float]] = {}
    for side, group in zip(sides, groups, strict=True):
        names = test_names(group)
        for key, records in group.items():
            if not _matches(key, tests):
                continue
            for record in records:
                if not record.is_usable:
                    where = str(record.source) if record.source else side.name
                    text = f"{where}: {record.name} is left out ({', '.join(record.oddities)})"
                    result.append(Warn("left-out", text))
                elif record.time_interval_ns:
                    once = len(records) == 1 and key[1] not in CONTROLS
                    least = SHORT_ONCE if once else SHORT_PERIOD
                    seconds = record.time_interval_ns / 1e9
                    name = names[key]
                    if seconds < least:
                        of_least = short.setdefault(least, {})
                        of_least[name] = min(seconds, of_least.get(name, seconds))
    for least, tests_of in short.items():
        text = ", ".join(f"{name} ({seconds:.4f} s)" for name, seconds in tests_of.items())
        how = (
            f"once, for less than {least} s" if least == SHORT_ONCE else f"for less than {least} s"
        )
        result.append(Warn("short", f"measured {how}: {text}; use more loops"))
    for side, group in zip(sides, groups, strict=True):
        names = test_names(group)
        for key, records in group.items():
            cell = _cell(records, "ns") or _cell(records, "cycles")
            if cell is None or not _matches(key, tests) or not statistics.has_modes(cell.values):
                continue
            # Cut, not rounded, as everything else in these tables.
            values = ", ".join(
                f"{found[1]}"
                for record in records
                if record.is_usable and (found := figure(record, "ns") or figure(record, "cycles"))
            )
            text = f"{side.name}: {names[key]} has several modes: {values}"
            result.append(Warn("modes", text))
    return tuple(result)


def _debugging(sides: list[Side], builds: Sequence[Build]) -> Iterable[Warn]:
    """Builds whose figures are those of a kernel, or of a core, that is being debugged."""
    who: dict[str, list[str]] = {}
    for side, build in zip(sides, builds, strict=True):
        facts = kinds.of(build)
        if found := [*kinds.debugging(facts), *kinds.slow_core(facts)]:
            who.setdefault(", ".join(found), []).append(side.name)
    for what, names in who.items():
        shown = "all builds" if len(names) == len(sides) else ", ".join(names)
        text = f"debugging is on in {shown} ({what}): these are not the figures of production"
        yield Warn("debug", text)


#: The fast path, and the ways that are through the ring in any case.
_FAST = "tasklet_page_pool01_fast_path"
_RINGS = ("tasklet_page_pool02_ptr_ring", "no-softirq-page_pool02")


def _caches(sides: list[Side], groups: list[Group], builds: Sequence[Build]) -> Iterable[Warn]:
    """Builds whose fast path costs what the ring costs: the pages never were in the cache.

    The first test outside of a softirq is no measure of it: newer kernels go the fast way there,
    too. Our own runs verify their way by the pool's statistics.
    """
    for side, group, build in zip(sides, groups, builds, strict=True):
        fast = _cell(group.get(("elem", _FAST, 0, -1), ()), "ns")
        if fast is None or "pagepool" in build.machine:
            continue
        for name in _RINGS:
            ring = _cell(group.get(("elem", name, 0, -1), ()), "ns")
            if ring is not None and fast.exact >= REACHES_CACHE * ring.exact:
                text = (
                    f"{side.name}: {_FAST} takes {fast.printed} ns and {name} {ring.printed} ns: "
                    "the fast path did not reach the cache"
                )
                yield Warn("no-cache", text)
                break


def _few(keys: Iterable[Key]) -> str:
    names = [test_name(key) for key in keys]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
