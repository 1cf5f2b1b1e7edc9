# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool bench workload``: what packets do to a pool, and what its statistics say."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import click

from pagepool.cli import _output, _sides
from pagepool.cli._bench import JsonFile, Progress, Wrong, fact_lines, parse_count, say
from pagepool.cli._output import INTERRUPTED, split_globs
from pagepool.cli._recorded import RecordedCommand, recorded
from pagepool.compare.verdict import Margin
from pagepool.results.names import workload_name
from pagepool.results.words import align

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pagepool.bench.workload import Case, Result, WorkloadEvent
    from pagepool.cli._sides import Asked
    from pagepool.compare.report import Report

SCHEMA = "pagepool.workload/1"

#: Columns of a sweep, by count or statistic.
_COLUMNS = {
    "alloc_fast": "fast",
    "alloc_slow": "slow",
    "alloc_empty": "empty",
    "alloc_refill": "refill",
    "recycle_cached": "cached",
    "recycle_cache_full": "cache_full",
    "recycle_ring": "ring",
    "left": "left",
    "recycle_released_refcnt": "released",
    "dropped": "dropped",
}

#: Option -> knob: those that have an option of their own, and take a number.
_NUMBERS = {
    "polls": ("20000", "How often the poller is called."),
    "packets": ("64", "Packets of a poll."),
    "pool-size": ("1024", "Slots of a pool's ring."),
    "reader-hiccup": (
        "0",
        "So many polls in a row the reader frees nothing, and then all of it.",
    ),
    "poller-hiccup": ("0", "So many polls in a row come late, and then all at once."),
    "hiccup-every": ("64", "Polls from one hiccup to the next."),
    "defer-max": (
        "all",
        "Packets whose free the reader leaves to the poller; it frees the others itself.",
    ),
    "threads": ("1", "2: the reader is a thread on another CPU, in step with the poller."),
    "rx-ring": ("256", "xdp-*: buffers that the NIC has."),
    "tx-lag": ("1", "xdp-tx: polls until a sent packet is completed."),
    "bulk": ("16", "xdp-redirect, mixed: pages that are returned at once."),
    "memory": ("512 or 16384", "memory-pressure, multi-buffer: pages that there are in all."),
    "reserve": ("128", "memory-pressure: how many of them are the emergency reserve."),
    "pools": ("4", "mixed: pools that one reader returns to."),
    "cache": ("128", "With --engine model: pages of the cache."),
    "refill": ("64", "With --engine model: pages of a refill."),
}

_SWITCHES = {
    "napi-direct": "tcp-stream: deferred frees are direct; the pool is bound to the poller's napi.",
    "read-data": "xdp-*: read the first 64 bytes of each packet.",
    "driver-bug": "multi-buffer: forget the pages that are cut off, then find out who has them.",
}


def parse_range(text: str) -> tuple[int, int]:
    """``1..18`` or ``4``, with counts as `parse_count` has them. Raises ``ValueError``."""
    first, dots, last = text.partition("..")
    least = parse_count(first)
    most = parse_count(last) if dots else least
    if least > most:
        raise ValueError(f"{text!r} is empty")
    return least, most


def parse_sweep(text: str) -> dict[str, list[int]]:
    """``NAME=FROM..TO[:STEP],...`` as values by name. Raises ``ValueError``.

    The end is always among the values.
    """
    swept: dict[str, list[int]] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([a-z-]+)=([^:]+?)(?::([^:]+))?\s*", part)
        if match is None:
            raise ValueError(f"{part!r} is no NAME=FROM..TO[:STEP]")
        name, values, step = match.groups()
        if name in swept:
            raise ValueError(f"{name} is swept twice")
        least, most = parse_range(values)
        stride = parse_count(step) if step else 1
        if stride < 1:
            raise ValueError(f"{part!r}: a step is 1 or more")
        if (most - least) // stride > 100_000:
            raise ValueError(f"{part!r}: too many values")
        swept[name] = list(range(least, most + 1, stride))
        if swept[name][-1] != most:
            swept[name].append(most)
    return swept


def _numbers(function: Any) -> Any:
    for name, what in reversed(_SWITCHES.items()):
        function = click.option(f"--{name}", is_flag=True, help=what)(function)
    for name, (standard, what) in reversed(_NUMBERS.items()):
        if name == "hiccup-every":
            standard += "; memory-pressure: 32"
        if name == "reader-hiccup":
            standard += "; memory-pressure: 24"
        function = click.option(f"--{name}", metavar="N", help=f"{what}  [default: {standard}]")(
            function
        )
    return function


@click.command(
    cls=RecordedCommand,
    short_help="Run packets through a pool: its statistics, and the time of a packet.",
)
@click.argument("name", required=False)
@click.option(
    "--pages",
    metavar="N|N..M",
    help="Pages of a packet; of a range each packet draws its own."
    "  [default: tcp-stream 1..18, multi-buffer 1..17, mixed 1..4, memory-pressure 1]",
)
@_numbers
@click.option(
    "--design",
    "designs",
    multiple=True,
    metavar="NAME",
    help="Design of the pools; several, with commas, take turns and are compared.  [default: ring]",
)
@click.option(
    "--sweep",
    multiple=True,
    metavar="NAME=A..B[:STEP]",
    help="Run it for each of these values of an option, like reader-hiccup=0..32; repeat it or "
    "use commas for all combinations.",
)
@click.option("--seed", default="1", metavar="N", show_default=True, help="Of all that is chance.")
@click.option(
    "--runs",
    default="3",
    show_default=True,
    metavar="N",
    help="All of it so often, each time in a fresh process: for the time; the statistics are the "
    "same each time.",
)
@click.option(
    "--engine",
    type=click.Choice(["core", "model"]),
    default="core",
    show_default=True,
    help="model: tcp-stream's statistics for other sizes of --cache and --refill, without time.",
)
@click.option(
    "--cpu", type=click.IntRange(min=0), metavar="N", help="Poll on this CPU; else one is chosen."
)
@click.option(
    "--json",
    "json_path",
    metavar="FILE",
    help="Write all of it there as well; '-' writes it, and nothing else, to the output.",
)
@_sides.until_options
@click.option("--list", "list_only", is_flag=True, help="List the workloads and their options.")
def command(
    name: str | None,
    pages: str | None,
    designs: tuple[str, ...],
    sweep: tuple[str, ...],
    seed: str,
    runs: str,
    engine: str,
    cpu: int | None,
    json_path: str | None,
    list_only: bool,
    until_decided: bool,
    max_runs: int | None,
    margin: Margin,
    fail_on: dict[str, float],
    **given: Any,
) -> None:
    """Run packets through a pool: its statistics, and the time of a packet.

    The statistics are the result: they are the same in each run. They are those from the pool's
    creation to the end of the last poll. On a pipe it prints one line each, on a
    terminal a table. With --until-decided it prints the comparison of the designs' times.
    Exit status: 0, 1 when something gave no result or --fail-on has rows, 2 for wrong arguments,
    130 after Ctrl-C.
    """
    from pagepool.bench import SettingsError
    from pagepool.bench import workload as room

    if list_only:
        _list(room)
        return
    asked = _sides.Asked(until_decided, max_runs, margin, fail_on)
    _sides.check(asked)
    made_by: room.Engine = "model" if engine == "model" else "core"
    try:
        if name is None:
            raise SettingsError(f"which workload? {', '.join(room.WORKLOADS)}; see --list")
        knobs = _knobs(pages, given)
        swept = _option("--sweep", parse_sweep, ",".join(sweep)) if sweep else {}
        chosen = split_globs(designs) or ["ring"]
        cases = room.cases(name, knobs, swept, made_by)
        session = (_UntilSession if until_decided else _Session)(name, cases, json_path, asked)
        events = room.run_workload(
            name,
            designs=chosen,
            knobs=knobs,
            sweep=swept,
            seed=_option("--seed", parse_count, seed),
            runs=asked.most if until_decided else _option("--runs", parse_count, runs),
            engine=made_by,
            cpu=cpu,
            more=session.more,
        )
        if until_decided:
            _check_until(made_by, chosen, cases, asked)
    except SettingsError as error:
        raise Wrong(str(error)) from None
    with contextlib.closing(events):
        sys.exit(session.run(events))


def _check_until(engine: str, designs: Sequence[str], cases: Sequence[Case], asked: Asked) -> None:
    from pagepool.cli._until import check_runs

    if engine == "model":
        raise Wrong("--until-decided and --engine model: the model has no time to compare")
    if len(designs) < 2:
        raise Wrong("--until-decided needs two sides to compare: --design A,B")
    check_runs(len(cases) * (len(designs) - 1), asked.most)


def _option(option: str, parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise Wrong(f"{option}: {error}") from None


def _knobs(pages: str | None, given: dict[str, Any]) -> dict[str, int]:
    knobs: dict[str, int] = {}
    for key, value in given.items():
        knob = key.replace("_", "-")
        if value is True:
            knobs[knob] = 1
        elif knob == "defer-max" and value == "all":
            pass  # which it is if nothing is said
        elif value not in (None, False):
            knobs[knob] = _option(f"--{knob}", parse_count, value)
    if pages is not None:
        knobs["pages-from"], knobs["pages-to"] = _option("--pages", parse_range, pages)
    return knobs


def _list(room: Any) -> None:
    for workload in room.WORKLOADS.values():
        click.echo(f"{workload.name:<18}{workload.what}")
        settings = " ".join(f"{knob}={value}" for knob, value in workload.knobs.items())
        click.echo(f"{'':<18}{settings}")


class _Session:
    """One invocation: takes the events, and prints what came out."""

    def __init__(
        self, name: str, cases: Sequence[Case], json_path: str | None, asked: Asked
    ) -> None:
        from pagepool.bench.workload import WorkloadCollector

        self._name = name
        self._cases = cases
        self._to_stdout = json_path == "-"
        self._file = None if json_path in (None, "-") else JsonFile(str(json_path))
        self._terminal = bool(sys.stdout) and sys.stdout.isatty() and not self._to_stdout
        self._collector = WorkloadCollector()
        self._lines: list[str] = []  # of time_bench
        self._asked = asked
        self._bar: Progress | None = None

    def more(self, run: int) -> Collection[int] | None:
        """The cases of a run after the first, by their index; ``None``: there is no such run."""
        return range(len(self._cases))

    def run(self, events: Iterator[WorkloadEvent]) -> int:
        """Take all events. Returns the exit status."""
        from pagepool.bench import BenchError, TestFailed, Warned
        from pagepool.bench.workload import Ran, record
        from pagepool.results.time_bench import format_record

        status = 0
        try:
            with Progress() as bar:
                self._bar = bar
                for event in map(recorded, events):
                    self._collector.add(event)
                    bar.show(event)
                    if isinstance(event, Warned):
                        say(f"warning: {event.text}", bar)
                    elif isinstance(event, TestFailed):
                        say(event.text, bar)
                        status = 1
                    elif isinstance(event, Ran):
                        timed = record(self._name, event)
                        if timed is not None:
                            self._lines.append(format_record(timed))
        except KeyboardInterrupt:
            kept = len(self._collector.results())
            say(f"interrupted: {kept} results were kept" if kept else "interrupted: nothing ran")
            status = INTERRUPTED
        except BenchError as error:
            say(str(error))
            status = 1
        self._bar = None
        return max(status, self._finish())

    def _finish(self) -> int:
        results = self._collector.results()
        if not results:
            if self._file is not None:
                self._file.abandon()
            return 0
        status = 0
        for case, design in self._collector.unlike():
            where = " ".join(f"{k}={v}" for k, v in self._cases[case].point.items())
            say(f"{self._name} {where} {design}: the statistics differ from run to run")
            status = 1
        for doubt in self._collector.doubts():
            say(f"warning: {self._name}: {doubt}")
        text = json.dumps(self._document(results), indent=1) + "\n"
        if self._file is not None and not self._file.write(text):
            status = 1
        try:
            if self._to_stdout:
                click.echo(text, nl=False)
            status = max(status, self._show(results))
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                _output.leave_quietly()
            _output.stdout_failed(error)
        return status

    def _show(self, results: list[Result]) -> int:
        """Prints what came out, unless the JSON was; an exit status."""
        if self._terminal:
            _print_tables(self._name, self._cases, results, self._collector.machine)
        elif not self._to_stdout:
            self._print(results)
        return 0

    def _print(self, results: list[Result]) -> None:
        for line in fact_lines(self._collector.machine | self._collector.settings):
            click.echo(line)
        title, rows = _table(self._cases, results)
        for line in align([title, *rows]):
            click.echo(line)
        for line in _findings(self._cases, results):
            click.echo(line)
        if len(self._cases) == 1:
            for line in self._lines:
                click.echo(line)

    def _document(self, results: list[Result]) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "workload": self._name,
            "machine": self._collector.machine,
            "settings": self._collector.settings,
            "results": [
                {
                    "point": self._cases[result.case].point,
                    "knobs": self._cases[result.case].knobs,
                    "design": result.design,
                    "counts": result.counts,
                    "statistics": result.stats,
                    "pools": result.pools,
                    "in_flight": result.in_flight,
                    "leaks": [{"tag": tag, "pages": pages} for tag, pages in result.leaks],
                    "ns_per_packet": result.ns,
                }
                for result in results
            ],
        }


class _UntilSession(_Session):
    """One invocation with ``--until-decided``: prints the comparison of the designs' times."""

    def __init__(
        self, name: str, cases: Sequence[Case], json_path: str | None, asked: Asked
    ) -> None:
        from pagepool.cli._until import Decider

        super().__init__(name, cases, json_path, asked)
        self._source = json_path if self._file is not None else f"pagepool bench workload {name}"
        self._decider = Decider(asked, self._judge, lambda text: say(text, self._bar))

    def more(self, run: int) -> Collection[int] | None:
        """Those that are open. Raises `BenchError`."""
        from pagepool.compare import looks

        tests = {name for name, _step in self._decider.again(run - 1)}
        self._collector.settings |= {looks.SETTING: self._decider.plan}
        names = enumerate(workload_name(self._name, case.point) for case in self._cases)
        return [index for index, name in names if name in tests] or None

    def _judge(self) -> Report:
        from pagepool.cli._until import judge
        from pagepool.results import by_design

        document = json.dumps(self._document(self._collector.results()))
        results = by_design.workload(document.encode(), str(self._source))
        return judge(results, str(self._source), self._asked.margin)

    def _show(self, results: list[Result]) -> int:
        from pagepool.cli._until import show
        from pagepool.results.errors import ResultsError

        try:
            found = self._judge()
        except ResultsError:
            return 0  # a design gave no time, and why has been said
        return show(found, self._asked, to_stdout=self._to_stdout)


# -- tables ---------------------------------------------------------------------------------------


def _table(cases: Sequence[Case], results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    return _sweep_table(cases, results) if len(cases) > 1 else _side_by_side(results)


def _ns(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def _side_by_side(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """A line a count or statistic, a column a design."""
    rows = []
    for count in results[0].counts:
        values = [result.counts[count] for result in results]
        # What a workload does not have is 0 in all designs, and is left out.
        if any(values) or count in ("dropped", "left"):
            rows.append([count, *map(str, values)])
    rows.append(["in_flight", *(str(result.in_flight) for result in results)])
    for statistic in results[0].stats:
        rows.append([statistic, *(str(result.stats[statistic]) for result in results)])
    rows.append(["recycled", *(_percent(result.recycled) for result in results)])
    rows.append(["ns/packet median", *(_ns(result.ns_median) for result in results)])
    spread = [f"{_ns(min(r.ns))}..{_ns(max(r.ns))}" if r.ns else "-" for r in results]
    rows.append(["ns/packet range", *spread])
    first = results[0].ns_median
    if len(results) > 1 and first:
        times = (result.ns_median for result in results)
        shares = ("-" if ns is None else f"{ns / first:.3f}" for ns in times)
        rows.append([f"times {results[0].design}", *shares])
    return ["", *(result.design for result in results)], rows


def _sweep_table(
    cases: Sequence[Case], results: Sequence[Result]
) -> tuple[list[str], list[list[str]]]:
    """A line a case and design, a column a statistic."""
    swept = list(cases[0].point)
    rows = []
    for result in results:
        values = result.stats | result.counts
        rows.append(
            [
                *(str(cases[result.case].point[name]) for name in swept),
                result.design,
                *(str(values.get(column, 0)) for column in _COLUMNS),
                _percent(result.recycled),
                _ns(result.ns_median),
            ]
        )
    return [*swept, "design", *_COLUMNS.values(), "recycled", "ns/packet"], rows


def _findings(cases: Sequence[Case], results: Sequence[Result]) -> list[str]:
    """What the figures say, in words: from where on something overflows, and what leaks."""
    from pagepool.bench.workload import where

    lines = []
    for design in dict.fromkeys(result.design for result in results):
        of_design = [result for result in results if result.design == design]
        if len(cases) > 1 and len(cases[0].point) == 1:
            ((swept, _),) = cases[0].point.items()
            values = [case.point[swept] for case in cases]
            for count, what in (
                ("recycle_cache_full", "the cache overflows into the ring"),
                ("left", "the ring overflows into the page allocator"),
                ("dropped", "packets are dropped"),
            ):
                lines.append(f"{design}: {what}: {where(of_design, values, count, swept)}")
        for result in of_design:
            if result.leaks:
                point = "".join(f" {k}={v}" for k, v in cases[result.case].point.items())
                lines.append(
                    f"{design}{point}: leak: {result.counts['leaked']} pages are out that nobody "
                    "has; who allocated them:"
                )
                lines += [f"  {pages} {tag}" for tag, pages in result.leaks]
    if any(result.checked for result in results):
        lines.append("the pools were checked ones: the time is not the pool's")
    return lines


def _print_tables(
    name: str, cases: Sequence[Case], results: Sequence[Result], machine: dict[str, str]
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    title, rows = _table(cases, results)
    table = Table(
        title=f"workload {name}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for index, column in enumerate(title):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    # A terminal that is too narrow breaks the lines; a figure that is cut is worse.
    wide = console.options.update(max_width=1000)
    console.width = max(console.width, console.measure(table, options=wide).maximum)
    console.print(table)
    for line in _findings(cases, results):
        console.print(Text(line))
    for key in ("engine", "cpu", "pinned cpu", "reader's cpu", "kernel", "checked mode"):
        if key in machine:
            console.print(Text(f"{key}: {machine[key]}", style="dim"))
