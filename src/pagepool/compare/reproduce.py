# SPDX-License-Identifier: BSD-2-Clause
"""The commands that runs were started with: recorded, or from the parameters in the input."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from pagepool.results.lines import clean
from pagepool.results.model import Build, Machine, Run

#: Settings that are no parameter of a kernel module.
_NO_PARAMETER = frozenset({"suite", "command", "tests", "runs", "cpus", "producers"})
_RECORDED = "as recorded"
#: Our suites whose options are their settings, and what these are called.
_SUITES = {
    "simple": {"loops": "--loops"},
    "cross-cpu": {"loops": "--loops", "returning_cpus": "--returning-cpus"},
    "storm": {"loops": "--loops", "producers": "--producers"},
}


class Commands(NamedTuple):
    """Where to run what: commands in words that are quoted as a shell needs it.

    ``times``: how often they were run, each number once. ``has_runs``: one command makes all runs.
    """

    where: str
    lines: tuple[tuple[str, ...], ...]
    times: tuple[int, ...]
    has_runs: bool

    @property
    def is_recorded(self) -> bool:
        """Whether the input has the very command."""
        return self.where == _RECORDED


def commands(build: Build) -> Commands | None:
    """How the runs of a build were started; ``None`` if the input does not say enough."""
    found: dict[tuple[tuple[str, ...], ...], int] = {}
    where, has_runs = "", False
    for run in build.runs:
        if recorded := clean(run.settings.get("command", "")).strip():
            where, words = _RECORDED, _words(recorded)
            has_runs = "runs" in run.settings or "--runs" in words
            lines: tuple[tuple[str, ...], ...] = (words,)
        elif "suite" in run.settings or "pagepool" in build.machine:
            suite = _suite(build, run)
            if suite is None:
                return None
            where, lines, has_runs = "on each build", (suite,), True
        else:
            module = _module(run)
            if module is None:
                return None
            where = "on each kernel"
            lines = (("modprobe", module, *_parameters(module, run)), ("rmmod", module))
        found[lines] = found.get(lines, 0) + 1
    if not found:
        return None
    all_lines = tuple(words for lines in found for words in lines)
    return Commands(where, all_lines, tuple(sorted(set(found.values()))), has_runs)


def _words(recorded: str) -> tuple[str, ...]:
    """The words of a command as it was typed, with their quotes."""
    try:
        return tuple(shlex.split(recorded, posix=False))
    except ValueError:  # a quote that is not closed
        return tuple(recorded.split())


def _suite(build: Build, run: Run) -> tuple[str, ...] | None:
    options = _SUITES.get(run.settings.get("suite", ""))
    if options is None:
        return None
    words = ["pagepool", "bench", run.settings["suite"]]
    for setting, option in options.items():
        if value := run.settings.get(setting):
            words += [option, value]
    words += ["--runs", str(len(build.runs))]
    return tuple(map(shlex.quote, [*words, *_pool_options(build.machine)]))


def _pool_options(machine: Machine) -> list[str]:
    """What the pool was, as far as it is not what it is by itself."""
    words = []
    if (design := machine.get("design", "ring")) != "ring":
        words += ["--design", design]
    if machine.get("statistics") == "off":
        words.append("--no-stats")
    if machine.get("checked mode", "off") != "off":
        words.append("--checked")
    return words


def _module(run: Run) -> str | None:
    """The kernel module whose tests these are: it alone has tests of these names."""
    if any(record.name == "page_pool_cross_cpu" for record in run.records):
        return "bench_page_pool_cross_cpu"
    if any(
        record.name.startswith(("no-softirq-page_pool0", "tasklet_page_pool0"))
        for record in run.records
    ):
        return "bench_page_pool_simple"
    return None


def _parameters(module: str, run: Run) -> list[str]:
    found = {key: value for key, value in run.settings.items() if key not in _NO_PARAMETER}
    if module == "bench_page_pool_simple" and run.loops:
        # Not named, but counted.
        found.setdefault("loops", str(run.loops))
    return [f"{key}={shlex.quote(value)}" for key, value in found.items()]
