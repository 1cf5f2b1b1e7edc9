# SPDX-License-Identifier: BSD-2-Clause
"""One invocation of a suite: takes its events, prints, and keeps what was measured."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pagepool.cli._bench import JsonFile, Progress, fact_lines, say
from pagepool.cli._output import INTERRUPTED, READER_GONE, silence_stdout
from pagepool.cli._recorded import recorded

if TYPE_CHECKING:
    from pagepool.bench import Collector, Event
    from pagepool.results.model import Machine


class Session:
    """One invocation: takes the events, prints, and keeps what was measured."""

    def __init__(
        self,
        json_path: str | None,
        label: str | None,
        table: Callable[[Collector], None],
        runs: int = 1,
    ) -> None:
        from pagepool.bench import Collector

        self._to_stdout = json_path == "-"
        self._file = None if json_path in (None, "-") else JsonFile(str(json_path))
        self._given_label = label
        self._stem = "pagepool" if self._file is None else Path(str(json_path)).stem
        self._table = table
        self._runs = runs
        self._headed: set[str] = set()
        self._collector: Collector = Collector()
        # sys.stdout is None where file descriptor 1 was closed (>&-): then nobody wants to know.
        self._terminal = bool(sys.stdout) and sys.stdout.isatty() and not self._to_stdout
        self._warned: list[str] = []
        self._written = False  # to standard output

    def more(self, run: int) -> Mapping[str, Any] | None:
        """Of sides in rounds: what a round runs (nothing said: all tests); ``None``: it is none."""
        return {} if run <= self._runs else None

    def run(self, events: Iterator[Event]) -> int:
        """Take all events. Returns the exit status."""
        from pagepool.bench import BenchError

        status = 0
        try:
            with Progress() as progress:
                for event in map(recorded, events):
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
        status = READER_GONE
        if not isinstance(error, BrokenPipeError):
            say(f"standard output: {error.strerror or error}")
            status = 1
        silence_stdout()
        self._write_json()
        return status

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
            if len(event.designs) == 1:
                self._head(event.machine | event.settings, event.designs[0])
        elif isinstance(event, bench.DesignStarted):
            # All facts stand in front of each design once: to a reader it is a build of its own.
            collector, facts = self._collector, event.facts
            if event.design not in self._headed:
                self._headed.add(event.design)
                facts = collector.facts(event.design) | collector.settings
            self._head(facts, event.design)
        elif isinstance(event, bench.Notice):
            click.echo(event.text)
        elif isinstance(event, bench.Recorded):
            click.echo(format_record(event.record))
            if event.pmu_line:
                click.echo(event.pmu_line)

    def _head(self, facts: Machine, design: str) -> None:
        from pagepool.bench import build_label

        label = build_label(design, self._collector.designs, self._given_label)
        for line in fact_lines(facts, label):
            click.echo(line)

    def _finish(self, status: int) -> int:
        collector = self._collector
        written = self._write_json()
        found = self._show() if collector.records else 0
        if self._terminal:
            for text in self._warned:
                say(f"warning: {text}")
        short = collector.too_short()
        if short:
            say(_short_warning(short, collector))
        if disturbed := collector.disturbed():
            say(_disturbed_warning(disturbed, collector.settings.get("suite", "simple")))
        if status == INTERRUPTED:
            records = len(collector.records)
            what = "nothing was measured" if not records else f"{records} records were kept"
            say(f"interrupted: {what}")
        elif status == 0 and (collector.failed or not written):
            status = 1
        return status or found

    def _show(self) -> int:
        """Print the tables of what was measured. Returns an exit status."""
        if self._terminal:
            self._table(self._collector)
        return 0

    def _write_json(self) -> bool:
        from pagepool.results import jsonio

        file, self._file = self._file, None
        if not self._collector.records:
            if file is not None:
                file.abandon()
            return True
        if file is None and not self._to_stdout:
            return True
        text = jsonio.dumps(self._collector.results(self._stem, self._given_label))
        if file is not None:
            return file.write(text)
        if not self._written:
            self._written = True
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


def _disturbed_warning(disturbed: list[tuple[str, float]], suite: str) -> str:
    name, share = min(disturbed, key=lambda item: item[1])
    others = f" and {len(disturbed) - 1} more" if len(disturbed) > 1 else ""
    return (
        f"warning: {name}{others} had to share the CPU ({share:.0%} of the time was its own): "
        "stop other programs, or choose "
        + ("another CPU with --cpu" if suite == "simple" else "other CPUs with taskset")
    )


def _compact(count: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)
