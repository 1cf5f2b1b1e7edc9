# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool bench``: run the benchmarks, print what the kernel prints, or a table."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NoReturn

import click

from pagepool.cli import _sides, workload
from pagepool.cli._bench import Wrong, count, say
from pagepool.cli._output import INTERRUPTED, split_globs
from pagepool.cli._recorded import RecordedCommand
from pagepool.cli._session import Session

if TYPE_CHECKING:
    from pagepool.bench import Collector, Event
    from pagepool.bench.rounds import Next
    from pagepool.cli._sides import Asked

#: Facts that the table on a terminal shows below itself; the text on a pipe has all of them.
_SHOWN = (
    *("cpu", "pinned cpu", "kernel", "governor", "counter", "design", "pool", "queues"),
    *("spread", "puts", "pages a round", "statistics", "dma", "checked mode", "oversubscribed"),
)


class _DefaultGroup(click.Group):
    """A group that runs ``simple`` when no subcommand is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help")):
            args = ["simple", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_DefaultGroup, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Run the kernel's page_pool benchmarks on this pool.

    Without a subcommand: simple, with its options. Exit status: 0, 1 when something gave no
    figure or --fail-on found a row, 2 for wrong arguments, 130 after Ctrl-C, 141 when the reader
    of a pipe went away.
    """


command.add_command(workload.command, "workload")


def _designs(_ctx: click.Context, _param: click.Parameter, value: str) -> list[str]:
    return [name.strip() for name in value.split(",")]


def _counts(_ctx: click.Context, param: click.Parameter, value: str) -> list[int]:
    return [count(_ctx, param, text) for text in value.split(",")]


_loops = click.option(
    "--loops",
    callback=count,
    default="10M",
    show_default=True,
    metavar="N",
    help="Rounds of each test; for_loop and atomic_inc do ten times as many.",
)
_pages = click.option(
    "--loops",
    callback=count,
    default="10M",
    show_default=True,
    metavar="N",
    help="Pages that each CPU returns.",
)
_runs = click.option(
    "--runs",
    callback=count,
    default="3",
    show_default=True,
    metavar="N",
    help="All tests so often, each time in a fresh process: the spread tells what is noise.",
)
_design = click.option(
    "--design",
    "designs",
    callback=_designs,
    default="ring",
    show_default=True,
    metavar="A,B",
    help="Designs of the pool: ring, list (or a step of it), ours. Each run has all of them.",
)
_no_stats = click.option("--no-stats", is_flag=True, help="Make the pools without statistics.")
_checked = click.option(
    "--checked",
    is_flag=True,
    help="Checked pools: what checked mode costs, not the pool's figures.",
)
_json = click.option(
    "--json",
    "json_path",
    metavar="FILE",
    help="Write the records there as well; '-' writes them, and nothing else, to the output.",
)
_label = click.option(
    "--label",
    metavar="TEXT",
    help="What to call this build in comparisons; of several designs, what stands before each.",
)
_oversubscribe = click.option(
    "--oversubscribe",
    is_flag=True,
    help="Run more threads than there are CPUs; the result is marked, and no figure of contention.",
)


@command.command(cls=RecordedCommand)
@_loops
@_runs
@click.option(
    "--tests",
    multiple=True,
    metavar="GLOB",
    help="Only tests whose name matches, like 'tasklet*'; repeat it or use commas.",
)
@_design
@_no_stats
@click.option(
    "--dma",
    type=click.Choice(["off", "none", "iommu"]),
    default="off",
    show_default=True,
    help="Pools that map their pages: for a device without an IOMMU, or behind a software IOMMU.",
)
@click.option(
    "--no-tracking", is_flag=True, help="Pools that do not know which pages they have mapped."
)
@_checked
@click.option(
    "--cpu", type=click.IntRange(min=0), metavar="N", help="Run on this CPU; else one is chosen."
)
@_sides.options
@_json
@_label
@click.option("--list", "list_only", is_flag=True, help="List the tests and exit.")
def simple(
    loops: int,
    runs: int,
    tests: tuple[str, ...],
    designs: list[str],
    no_stats: bool,
    dma: str,
    no_tracking: bool,
    checked: bool,
    cpu: int | None,
    json_path: str | None,
    label: str | None,
    list_only: bool,
    **asked: Any,
) -> None:
    """Allocate and return on one CPU: direct, through the ring, past the pool.

    On a pipe it prints the lines of the kernel's module, and the machine in # lines; on a
    terminal a table. Exit status: 0, 1 when something gave no figure or --fail-on found a row, 2
    for wrong arguments, 130 after Ctrl-C; what was measured until then is printed and kept.
    """
    if tests and not split_globs(tests):
        raise Wrong("--tests: an empty pattern matches no test")
    try:
        _simple(
            {
                "loops": loops,
                "runs": runs,
                "tests": split_globs(tests),
                "designs": designs,
                "stats": not no_stats,
                "dma": dma,
                "tracking": not no_tracking,
                "checked": checked,
                "cpu": cpu,
            },
            json_path,
            label,
            list_only,
            _sides.Asked(**asked),
        )
    except KeyboardInterrupt:  # before the first test, or after the last one
        _interrupted()


def _interrupted() -> NoReturn:
    say("interrupted: nothing was measured")
    sys.exit(INTERRUPTED)


def _simple(
    settings: dict[str, Any],  # of run_simple
    json_path: str | None,
    label: str | None,
    list_only: bool,
    asked: Asked,
) -> None:
    from pagepool import bench

    try:
        if list_only:
            for test in bench.select_tests(settings["tests"]):
                click.echo(f"{test.name:<30} {test.what}")
            return
    except bench.SettingsError as error:
        raise Wrong(str(error)) from None
    _run("simple", settings, json_path, label, _print_table, asked)


def _run(
    name: str,
    settings: dict[str, Any],
    json_path: str | None,
    label: str | None,
    table: Callable[[Collector], None],
    asked: Asked,
) -> NoReturn:
    """Run a suite to its end, and exit."""
    from pagepool import bench

    _sides.check(asked)
    if label is not None and not (label.strip() and label.isprintable()):
        raise Wrong("--label must be printable and not empty")
    try:
        events = _events(name, settings, asked, lambda run: session.more(run))
    except bench.SettingsError as error:
        raise Wrong(str(error)) from None
    session = _session(name, json_path, label, table, settings["runs"], asked)
    with contextlib.closing(events):
        sys.exit(session.run(events))


def _events(
    name: str, settings: dict[str, Any], asked: Asked, more: Next
) -> Generator[Event, None, None]:
    """What is run: a suite by itself with its designs, or its sides in rounds."""
    from pagepool import bench

    suite = bench.SUITES[name]
    if not (asked.until_decided or asked.vary or asked.against):
        return suite.run(**settings)
    sides = _sides.sides(name, settings["designs"], asked)
    if asked.until_decided and len(sides) < 2:
        raise Wrong(
            "--until-decided needs two sides to compare: --design A,B, --vary NAME=A,B or "
            "--against PYTHON"
        )
    most = asked.most if asked.until_decided else settings["runs"]
    events = bench.run_rounds(suite, sides, settings, most, more)
    if asked.until_decided:
        from pagepool.cli._until import check_runs, rows_of

        check_runs(rows_of(name, settings) * (len(sides) - 1), most)
    return events


def _session(
    name: str,
    json_path: str | None,
    label: str | None,
    table: Callable[[Collector], None],
    runs: int,
    asked: Asked,
) -> Session:
    if asked.until_decided:
        from pagepool.bench import SUITES
        from pagepool.cli._until import UntilSession

        return UntilSession(json_path, label, name, SUITES[name], asked)
    return Session(json_path, label, table, runs)


@command.command("cross-cpu", cls=RecordedCommand)
@click.option(
    "--returning-cpus",
    callback=count,
    default="1",
    show_default=True,
    metavar="N",
    help="CPUs that return pages; the consumer has one more.",
)
@_pages
@_runs
@_design
@_no_stats
@_checked
@_oversubscribe
@_sides.options
@_json
@_label
def cross_cpu(
    returning_cpus: int,
    loops: int,
    runs: int,
    designs: list[str],
    no_stats: bool,
    checked: bool,
    oversubscribe: bool,
    json_path: str | None,
    label: str | None,
    **asked: Any,
) -> None:
    """Allocate on one CPU, return on others.

    The consumer hands each page to the next of the returning CPUs in turn, through a queue to
    each, and these put them; the table has the median stretch of 4096 pages. What the queues
    alone cost is measured just before, by the same loop without the pool, so that the pool's
    share is known.

    Output and exit status are those of 'bench simple'; more CPUs than there are is status 2,
    unless --oversubscribe. 'taskset -c LIST' chooses the CPUs.
    """
    settings = {
        "returning": returning_cpus,
        "loops": loops,
        "runs": runs,
        "designs": designs,
        "stats": not no_stats,
        "checked": checked,
        "oversubscribe": oversubscribe,
    }
    try:
        _run("cross-cpu", settings, json_path, label, _print_cross_cpu, _sides.Asked(**asked))
    except KeyboardInterrupt:
        _interrupted()


@command.command(cls=RecordedCommand)
@click.option(
    "--producers",
    callback=_counts,
    default="1,2",
    show_default=True,
    metavar="N,M",
    help="How many CPUs return pages at once; each run has all of these.",
)
@_pages
@_runs
@_design
@click.option(
    "--spread",
    type=click.Choice(["block", "round-robin"]),
    default="block",
    show_default=True,
    help="Pages that are neighbours in memory go to one producer by 32, or each to the next.",
)
@click.option(
    "--pages",
    callback=lambda ctx, param, value: None if value is None else count(ctx, param, value),
    metavar="N",
    help="Pages of each producer in a round; else 4096, or as many as fit into the pool.",
)
@click.option(
    "--bulk",
    type=int,
    metavar="N",
    help="Put by page_pool_put_page_bulk, N at once; else one by one.",
)
@_no_stats
@_checked
@_oversubscribe
@_sides.options
@_json
@_label
def storm(
    producers: list[int],
    loops: int,
    runs: int,
    designs: list[str],
    spread: str,
    pages: int | None,
    bulk: int | None,
    no_stats: bool,
    checked: bool,
    oversubscribe: bool,
    json_path: str | None,
    label: str | None,
    **asked: Any,
) -> None:
    """Return pages from several CPUs, all at once.

    Nothing is allocated in the timed part: it is the price of contention among those who return
    pages alone. In each round every producer returns the same pages in the same order; the table
    has the median round.

    Output and exit status are those of 'bench simple'; more producers than CPUs is status 2,
    unless --oversubscribe. 'taskset -c LIST' chooses the CPUs.
    """
    settings = {
        "producers": producers,
        "loops": loops,
        "runs": runs,
        "designs": designs,
        "spread": spread,
        "pages": pages,
        "bulk": bulk,
        "stats": not no_stats,
        "checked": checked,
        "oversubscribe": oversubscribe,
    }
    try:
        _run("storm", settings, json_path, label, _print_storm, _sides.Asked(**asked))
    except KeyboardInterrupt:
        _interrupted()


def _printed(ns: float) -> str:
    """Cut to three decimals, not rounded: as in the kernel's lines."""
    return f"{math.floor(ns * 1000) / 1000:.3f}"


def _print_table(collector: Collector) -> None:
    if len(collector.designs) == 1:
        _print_simple(collector, collector.designs[0], "")
    else:
        for design in collector.designs:
            if collector.of(design):
                _print_simple(collector, design, f", design {design}")
        _print_ratios(collector)
    _print_facts(collector)


def _runs_title(name: str, collector: Collector) -> str:
    runs = collector.runs
    return f"{name}, {runs} run{'s' if runs != 1 else ''}"


def _print_grid(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """A table that no terminal is too narrow for: that breaks the lines; a cut figure is worse."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    wide = console.options.update(max_width=1000)
    console.width = max(console.width, console.measure(table, options=wide).maximum, len(title))
    console.print(table)


def _print_facts(collector: Collector) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    facts = collector.shared_facts()
    for key in _SHOWN:
        if key in facts:
            console.print(Text(f"{key}: {facts[key]}", style="dim"))


def _print_simple(collector: Collector, design: str, which: str) -> None:
    summaries = collector.summaries(design)
    instructions = any(summary.instructions is not None for summary in summaries)
    rows = []
    for summary in summaries:
        cells = [
            summary.name,
            _printed(summary.ns),
            f"{_printed(summary.ns_min)}..{_printed(summary.ns_max)}" if summary.runs > 1 else "",
            f"{summary.cycles:.1f}",
            f"{summary.cycles_min:.1f}..{summary.cycles_max:.1f}" if summary.runs > 1 else "",
        ]
        if instructions:
            counted = summary.instructions
            cells.append("" if counted is None else f"{counted:.1f}")
        rows.append(cells)
    columns = ["test", "ns", "min..max", "cycles", "min..max"] + ["instr"] * instructions
    _print_grid(_runs_title(f"bench_page_pool_simple{which}", collector), columns, rows)


def _print_ratios(collector: Collector) -> None:
    """The designs beside each other: median ns, and those after the first by the first."""
    first, *others = collector.designs
    by_design = {
        design: {summary.name: summary.ns for summary in collector.summaries(design)}
        for design in collector.designs
    }
    columns = ["test", first, *(head for name in others for head in (name, f"/ {first}"))]
    rows = []
    for name in dict.fromkeys(name for found in by_design.values() for name in found):
        base = by_design[first].get(name)
        cells = [name, _or_dash(base)]
        for design in others:
            ns = by_design[design].get(name)
            cells += [_or_dash(ns), _ratio(ns / base if ns is not None and base else None)]
        rows.append(cells)
    _print_grid("designs beside each other, median ns", columns, rows)


def _or_dash(ns: float | None) -> str:
    return "-" if ns is None else _printed(ns)


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _mark(collector: Collector) -> str:
    oversubscribed = collector.shared_facts().get("oversubscribed", "no")
    return ", OVERSUBSCRIBED" if oversubscribed != "no" else ""


def _print_cross_cpu(collector: Collector) -> None:
    from pagepool.bench import summarize_cross_cpu

    summaries = summarize_cross_cpu(collector)
    ring = next((one for one in summaries if one.design == "ring"), None)
    rows = []
    for one in summaries:
        several = one.runs > 1
        net_range = ""
        if several and one.net_min is not None and one.net_max is not None:
            net_range = f"{_printed(one.net_min)}..{_printed(one.net_max)}"
        to_ring = None
        if ring is not None and ring.net is not None and ring.net > 0 and one.net is not None:
            to_ring = one.net / ring.net
        rows.append(
            [
                one.design,
                _printed(one.ns),
                f"{_printed(one.ns_min)}..{_printed(one.ns_max)}" if several else "",
                _printed(one.mean),
                _or_dash(one.handover),
                _or_dash(one.net),
                net_range,
                _ratio(to_ring),
                str(one.queue_empty),
                str(one.queue_full),
                "-" if one.fell_out is None else str(one.fell_out),
            ]
        )
    number = collector.settings["returning_cpus"]
    name = f"bench_page_pool_cross_cpu, {number} returning CPU{'s' if number != '1' else ''}"
    columns = [
        "design",
        "median ns",
        "min..max",
        "mean ns",
        "hand-over",
        "net",
        "min..max",
        "net / ring",
    ]
    columns += ["queue empty", "queue full", "fell out"]
    _print_grid(_runs_title(name, collector) + _mark(collector), columns, rows)
    _print_facts(collector)


def _print_storm(collector: Collector) -> None:
    from pagepool.bench import summarize_storm

    rows = [
        [
            str(one.producers),
            one.design,
            _printed(one.ns),
            f"{_printed(one.ns_min)}..{_printed(one.ns_max)}" if one.runs > 1 else "",
            _printed(one.mean),
            _ratio(one.to_ring),
            _ratio(one.to_one),
        ]
        for one in summarize_storm(collector)
    ]
    columns = ["producers", "design", "median ns", "min..max", "mean ns", "/ ring", "/ 1 producer"]
    title = _runs_title("bench_page_pool_storm", collector) + _mark(collector)
    _print_grid(title, columns, rows)
    _print_facts(collector)
