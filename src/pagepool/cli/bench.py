# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool bench``: run the benchmarks, print what the kernel prints, or a table."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pagepool.cli import workload
from pagepool.cli._bench import JsonFile, Progress, Wrong, count, fact_lines, say
from pagepool.cli._output import INTERRUPTED, split_globs

if TYPE_CHECKING:
    from pagepool.bench import Collector, Event

#: Facts that the table on a terminal shows below itself; the text on a pipe has all of them.
_SHOWN = ("cpu", "pinned cpu", "kernel", "governor", "counter", "statistics", "dma", "checked mode")


class _DefaultGroup(click.Group):
    """A group that runs ``simple`` when no subcommand is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help")):
            args = ["simple", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_DefaultGroup, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Run the kernel's page_pool benchmarks on this pool.

    Without a subcommand: simple, with its options.
    """


command.add_command(workload.command, "workload")


@command.command()
@click.option(
    "--loops",
    callback=count,
    default="10M",
    show_default=True,
    metavar="N",
    help="Rounds of each test; for_loop and atomic_inc do ten times as many.",
)
@click.option(
    "--runs",
    callback=count,
    default="3",
    show_default=True,
    metavar="N",
    help="All tests so often, each time in a fresh process: the spread tells what is noise.",
)
@click.option(
    "--tests",
    multiple=True,
    metavar="GLOB",
    help="Only tests whose name matches, like 'tasklet*'; repeat it or use commas.",
)
@click.option("--no-stats", is_flag=True, help="Make the pools without statistics.")
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
@click.option(
    "--checked",
    is_flag=True,
    help="Checked pools: what checked mode costs, not the pool's figures.",
)
@click.option(
    "--cpu", type=click.IntRange(min=0), metavar="N", help="Run on this CPU; else one is chosen."
)
@click.option(
    "--json",
    "json_path",
    metavar="FILE",
    help="Write the records there as well; '-' writes them, and nothing else, to the output.",
)
@click.option("--label", metavar="TEXT", help="What to call this build in comparisons.")
@click.option("--list", "list_only", is_flag=True, help="List the tests and exit.")
def simple(
    loops: int,
    runs: int,
    tests: tuple[str, ...],
    no_stats: bool,
    dma: str,
    no_tracking: bool,
    checked: bool,
    cpu: int | None,
    json_path: str | None,
    label: str | None,
    list_only: bool,
) -> None:
    """Allocate and return on one CPU: direct, through the ring, past the pool.

    On a pipe it prints the lines of the kernel's module, and the machine in # lines; on a
    terminal a table. Exit status: 0, 1 when something gave no figure, 2 for wrong arguments,
    130 after Ctrl-C; what was measured until then is printed and kept.
    """
    if tests and not split_globs(tests):
        raise Wrong("--tests: an empty pattern matches no test")
    try:
        _simple(
            {
                "loops": loops,
                "runs": runs,
                "tests": split_globs(tests),
                "stats": not no_stats,
                "dma": dma,
                "tracking": not no_tracking,
                "checked": checked,
                "cpu": cpu,
            },
            json_path,
            label,
            list_only,
        )
    except KeyboardInterrupt:  # before the first test, or after the last one
        say("interrupted: nothing was measured")
        sys.exit(INTERRUPTED)


def _simple(
    settings: dict[str, Any],  # of run_simple
    json_path: str | None,
    label: str | None,
    list_only: bool,
) -> None:
    from pagepool import bench

    try:
        if list_only:
            for test in bench.select_tests(settings["tests"]):
                click.echo(f"{test.name:<30} {test.what}")
            return
        events = bench.run_simple(**settings)
    except bench.SettingsError as error:
        raise Wrong(str(error)) from None
    if label is not None and not (label.strip() and label.isprintable()):
        raise Wrong("--label must be printable and not empty")
    with contextlib.closing(events):
        sys.exit(_Session(json_path, label).run(events))


class _Session:
    """One invocation: takes the events, prints, and keeps what was measured."""

    def __init__(self, json_path: str | None, label: str | None) -> None:
        from pagepool.bench import Collector

        self._to_stdout = json_path == "-"
        self._file = None if json_path in (None, "-") else JsonFile(str(json_path))
        self._given_label = label
        stem = "pagepool" if self._file is None else Path(str(json_path)).stem
        self._label = label or stem
        self._collector: Collector = Collector()
        # sys.stdout is None where file descriptor 1 was closed (>&-): then nobody wants to know.
        self._terminal = bool(sys.stdout) and sys.stdout.isatty() and not self._to_stdout
        self._warned: list[str] = []

    def run(self, events: Iterator[Event]) -> int:
        """Take all events. Returns the exit status."""
        from pagepool.bench import BenchError

        status = 0
        try:
            with Progress() as progress:
                for event in events:
                    self._collector.add(event)
                    progress.show(event)
                    self._print(event, progress)
        except KeyboardInterrupt:
            status = INTERRUPTED
        except BenchError as error:
            status = 1
            say(str(error))
        except OSError as error:
            return self._output_gone(error)
        # From here on everything is quick, and must not be lost.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return self._finish(status)
        except OSError as error:
            return self._output_gone(error)
        finally:
            signal.signal(signal.SIGINT, before)

    def _output_gone(self, error: OSError) -> int:
        """Standard output takes no more. ``| head`` is a quiet end; the records are kept."""
        if not isinstance(error, BrokenPipeError):
            say(f"standard output: {error.strerror or error}")
        # What is still in the buffer must not fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        self._write_json()
        return 1

    def _print(self, event: Event, bar: Progress) -> None:
        from pagepool import bench
        from pagepool.results.time_bench import format_record

        if isinstance(event, bench.Warned):
            self._warned.append(event.text)
            if not self._terminal:
                say(f"warning: {event.text}", bar)
        elif isinstance(event, bench.TestFailed):
            say(event.text, bar)
        elif self._terminal or self._to_stdout:
            return
        elif isinstance(event, bench.Started):
            for line in fact_lines(event.machine | event.settings, self._given_label):
                click.echo(line)
        elif isinstance(event, bench.Notice):
            click.echo(event.text)
        elif isinstance(event, bench.Recorded):
            click.echo(format_record(event.record))
            if event.pmu_line:
                click.echo(event.pmu_line)

    def _finish(self, status: int) -> int:
        collector = self._collector
        written = self._write_json()
        if self._terminal:
            if collector.records:
                _print_table(collector)
            for text in self._warned:
                say(f"warning: {text}")
        short = collector.too_short()
        if short:
            say(_short_warning(short, collector))
        if disturbed := collector.disturbed():
            say(_disturbed_warning(disturbed))
        if status == INTERRUPTED:
            records = len(collector.records)
            what = "nothing was measured" if not records else f"{records} records were kept"
            say(f"interrupted: {what}")
        elif status == 0 and (collector.failed or not written):
            status = 1
        return status

    def _write_json(self) -> bool:
        from pagepool.results import jsonio

        file, self._file = self._file, None
        if not self._collector.records:
            if file is not None:
                file.abandon()
            return True
        if file is None and not self._to_stdout:
            return True
        text = jsonio.dumps(self._collector.results(self._label))
        if file is not None:
            return file.write(text)
        self._to_stdout = False
        click.echo(text, nl=False)
        return True


def _short_warning(short: list[tuple[str, float]], collector: Collector) -> str:
    from pagepool.bench import MAX_LOOPS
    from pagepool.results.model import SHORT_PERIOD

    name, seconds = min(short, key=lambda item: item[1])
    loops = int(collector.settings["loops"])
    # Twice what is needed, to one digit: nobody types 38461538.
    need = loops * SHORT_PERIOD / max(seconds, 1e-9) * 2
    digit = 10 ** (len(str(int(need))) - 1)
    better = min(-int(-need // digit) * digit, MAX_LOOPS)
    others = f" and {len(short) - 1} more" if len(short) > 1 else ""
    return (
        f"warning: {name}{others} ran for less than {SHORT_PERIOD} s ({seconds:.4f} s): "
        f"too short to trust; try --loops {_compact(better)}"
    )


def _disturbed_warning(disturbed: list[tuple[str, float]]) -> str:
    name, share = min(disturbed, key=lambda item: item[1])
    others = f" and {len(disturbed) - 1} more" if len(disturbed) > 1 else ""
    return (
        f"warning: {name}{others} had to share the CPU ({share:.0%} of the time was its own): "
        "stop other programs, or choose another CPU with --cpu"
    )


def _compact(count: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def _printed(ns: float) -> str:
    """Cut to three decimals, not rounded: as in the kernel's lines."""
    return f"{math.floor(ns * 1000) / 1000:.3f}"


def _print_table(collector: Collector) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    summaries = collector.summaries()
    instructions = any(summary.instructions is not None for summary in summaries)
    runs = collector.runs
    table = Table(
        title=f"bench_page_pool_simple, {runs} run{'s' if runs != 1 else ''}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("test", no_wrap=True)
    columns = ["ns", "min..max", "cycles", "min..max"] + ["instr"] * instructions
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for summary in summaries:
        cells = [
            _printed(summary.ns),
            f"{_printed(summary.ns_min)}..{_printed(summary.ns_max)}" if summary.runs > 1 else "",
            f"{summary.cycles:.1f}",
            f"{summary.cycles_min:.1f}..{summary.cycles_max:.1f}" if summary.runs > 1 else "",
        ]
        if instructions:
            counted = summary.instructions
            cells.append("" if counted is None else f"{counted:.1f}")
        table.add_row(summary.name, *cells)
    console = Console(highlight=False)
    # A terminal that is too narrow breaks the lines; a figure that is cut is worse.
    wide = console.options.update(max_width=1000)
    console.width = max(console.width, console.measure(table, options=wide).maximum)
    console.print(table)
    machine = collector.machine
    for key in _SHOWN:
        if key in machine:
            console.print(Text(f"{key}: {machine[key]}", style="dim"))
