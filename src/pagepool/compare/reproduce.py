# SPDX-License-Identifier: BSD-2-Clause
"""The commands that runs were started with: recorded, or from the parameters in the input.

Our own runs record theirs. Where they did not (older files, runs from Python), it is not known:
what the settings do not tell, such as which tests were left out, would be made up.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple

from pagepool.results.lines import clean
from pagepool.results.model import Build, Run

#: Settings that are no parameter of a kernel module.
_NO_PARAMETER = frozenset({"suite", "command", "tests", "runs", "cpus", "producers"})
_RECORDED = "as recorded"
#: What makes several runs by itself, also if nothing is said.
_OWN = ("pagepool", "bench")


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
            has_runs = "runs" in run.settings or "--runs" in words or words[:2] == _OWN
            lines: tuple[tuple[str, ...], ...] = (words,)
        elif "suite" in run.settings or "pagepool" in build.machine:
            return None  # which design, which tests, mapped or not: settings alone do not say it
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
        if recorded.startswith("pagepool "):  # ours: nothing of it is for the shell to expand
            return tuple(map(shlex.quote, shlex.split(recorded)))
        return tuple(shlex.split(recorded, posix=False))
    except ValueError:  # a quote that is not closed
        return tuple(recorded.split())


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
