# SPDX-License-Identifier: BSD-2-Clause
"""What the commands under ``pagepool bench`` share: counts, errors, a file for JSON, a bar."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pagepool.bench import Event, WorkloadEvent
    from pagepool.results.model import Machine

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def parse_count(text: str) -> int:
    """``1000000``, ``1_000_000``, ``10M``, ``1.5k`` or ``1e7`` as a number.

    Raises ``ValueError`` for anything else, and for what is no whole number.
    """
    match = re.fullmatch(
        r"(?P<digits>\d+(?:_\d+)*)(?P<fraction>\.\d+)?(?:[eE]\+?(?P<exponent>\d{1,2})"
        r"|(?P<unit>[kKmMgG]))?",
        text.strip(),
        re.ASCII,
    )
    if match is None or len(text) > 40:
        raise ValueError(f"{text!r} is no count")
    value = Decimal(match["digits"].replace("_", "") + (match["fraction"] or ""))
    value *= 10 ** int(match["exponent"] or 0) * _UNITS[(match["unit"] or "").lower()]
    if value != int(value):
        raise ValueError(f"{text!r} is no whole number")
    return int(value)


class Wrong(click.ClickException):
    """A setting that cannot be: one line, exit status 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"pagepool bench: {self.message}", file=file, err=file is None)


def count(_ctx: click.Context, param: click.Parameter, value: str) -> int:
    """A callback for options that are counts."""
    try:
        return parse_count(value)
    except ValueError:
        what = f"{param.opts[0]} {value!r} is no count: use 1000000, 1_000_000, 10M or 1e7"
        raise Wrong(what) from None


def say(text: str, bar: Progress | None = None) -> None:
    """One line on standard error, above the progress bar if there is one."""
    if bar is None or not bar.say(f"pagepool bench: {text}"):
        click.echo(f"pagepool bench: {text}", err=True)


class JsonFile:
    """The file for ``--json``: opened before anything is measured, so that no hour is lost."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._created = not Path(path).exists()
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Wrong(f"--json {path}: {reason}") from None

    def write(self, text: str) -> bool:
        """Replace what is in the file. False: it could not be, and that has been said."""
        try:
            with open(self._descriptor, "w", encoding="utf-8") as stream:  # noqa: PTH123
                with contextlib.suppress(OSError):  # a pipe or a device has no length
                    os.ftruncate(self._descriptor, 0)
                stream.write(text)
        except OSError as error:
            say(f"--json {self._path}: {error.strerror or error}")
            return False
        return True

    def abandon(self) -> None:
        """There is nothing to write: leave what was there before."""
        os.close(self._descriptor)
        if self._created:
            with contextlib.suppress(OSError):
                Path(self._path).unlink()


class Progress:
    """A bar on standard error, where that is a terminal; it leaves nothing behind."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._tests = 0

    def __enter__(self) -> Progress:
        if sys.stderr and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.completed}/{task.total}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                # It would wake up on the CPUs next to the one that measures ten times a second.
                refresh_per_second=2,
            )
            self._task = self._bar.add_task("starting", total=None)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> bool:
        """Print a line above the bar. False: there is no bar."""
        if self._bar is None:
            return False
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        return True

    def show(self, event: Event | WorkloadEvent) -> None:
        """What the event says about how far it is."""
        from pagepool import bench

        if self._bar is None:
            return
        if isinstance(event, bench.Started):
            total = len(event.tests) * len(event.designs) * event.runs
            self._bar.update(self._task, total=total)
        elif isinstance(event, bench.TestStarted):
            what = f"run {event.run}: {event.test}"
            self._bar.update(self._task, description=what, completed=self._tests)
            self._tests += 1


def fact_lines(facts: Machine, label: str | None = None) -> list[str]:
    """Facts as ``# key: value`` lines, which the readers of results understand."""
    lines = [f"# {key}: {value}" for key, value in facts.items()]
    if label is not None:
        lines.append(f"# label: {label}")
    return lines
