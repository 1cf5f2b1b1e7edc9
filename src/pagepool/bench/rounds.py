# SPDX-License-Identifier: BSD-2-Clause
"""Sides beside each other: designs, settings or builds of the library, in rounds.

A round runs each side once, in a process of its own, and begins with the next side each time.
Whoever asks for the rounds says before each of them whether there is one, and of which tests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from pagepool.bench.cross_cpu import run_cross_cpu
from pagepool.bench.errors import BenchError, SettingsError
from pagepool.bench.events import (
    DesignStarted,
    Event,
    Notice,
    Recorded,
    RunStarted,
    Started,
    TestFailed,
    TestStarted,
    Warned,
)
from pagepool.bench.simple import run_simple
from pagepool.bench.storm import run_storm
from pagepool.bench.suite import rotated

#: A test as all its records have it: name and step.
Test: TypeAlias = tuple[str, int]

#: Facts that are of a moment, not of a side.
_OF_A_MOMENT = frozenset({"date", "load"})


class Suite(NamedTuple):
    """A suite that can be run in rounds; ``only``: the settings for some of its tests."""

    run: Callable[..., Generator[Event, None, None]]
    only: Callable[[Collection[Test]], dict[str, Any]]


SUITES: Mapping[str, Suite] = {
    "simple": Suite(run_simple, lambda tests: {"tests": [name for name, _ in tests]}),
    # Its two loops are one measurement: the hand-over is told from the pool's share in each run.
    "cross-cpu": Suite(run_cross_cpu, lambda tests: {}),
    "storm": Suite(run_storm, lambda tests: {"producers": [step for _, step in tests]}),
}


class Side(NamedTuple):
    """What is compared with others: its name, and what it has of settings of its own."""

    name: str
    settings: Mapping[str, Any]


#: Asked before each round, by its number from 1: the settings that choose its tests (none: all),
#: or ``None`` for no more rounds.
Next: TypeAlias = Callable[[int], Mapping[str, Any] | None]


def run_rounds(
    suite: Suite, sides: Sequence[Side], settings: Mapping[str, Any], most: int, more: Next
) -> Generator[Event, None, None]:
    """Run a suite in rounds and yield what happens, as the suite does: `Started` first.

    A side stands where suites have a design, so that collectors and tables need not know. ``most``
    is how many rounds there are at most, for whoever shows it; ``more`` decides. When it is asked,
    all events of the rounds before have been taken. Settings are checked at once, those of all
    sides: raises `SettingsError`; else as the suites.
    """
    names = [side.name for side in sides]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise SettingsError(f"two sides are called {name!r}")
    for side in sides:
        suite.run(**{**settings, **side.settings, "runs": 1}).close()
    return _run(suite, sides, settings, most, more)


def _run(
    suite: Suite, sides: Sequence[Side], settings: Mapping[str, Any], most: int, more: Next
) -> Generator[Event, None, None]:
    names = tuple(side.name for side in sides)
    warned: set[str] = set()
    run = 1
    while (chosen := more(run)) is not None:
        for index, side in enumerate(rotated(sides, run)):
            asked = {**settings, **side.settings, **chosen, "runs": 1}
            with contextlib.closing(_one(suite, side, asked, run)) as events:
                for event in events:
                    if isinstance(event, Started):
                        if index == 0:
                            if run == 1:
                                yield _started(event, most, names)
                            yield RunStarted(run)
                        yield DesignStarted(run, side.name, _facts(event) if run == 1 else {})
                    elif not isinstance(event, Warned):
                        yield event
                    elif event.text not in warned:  # each process says the same again
                        warned.add(event.text)
                        yield event
        run += 1


def _one(
    suite: Suite, side: Side, asked: Mapping[str, Any], run: int
) -> Generator[Event, None, None]:
    """One side of one round, with the names that these have here."""
    try:
        with contextlib.closing(suite.run(**asked)) as events:
            for event in events:
                if isinstance(event, Recorded):
                    yield msgspec.structs.replace(event, run=run, design=side.name)
                elif isinstance(event, TestFailed):
                    text = f"{side.name}: {event.text}"
                    yield msgspec.structs.replace(event, run=run, text=text)
                elif isinstance(event, (Notice, TestStarted)):
                    yield msgspec.structs.replace(event, run=run)
                elif isinstance(event, (Started, Warned)):
                    yield event
    except BenchError as error:
        raise type(error)(f"{side.name}, round {run}: {error}") from None


def _started(first: Started, most: int, names: tuple[str, ...]) -> Started:
    """Of all sides: what is of one of them stands in its `DesignStarted`."""
    machine = {key: value for key, value in first.machine.items() if key in _OF_A_MOMENT}
    return msgspec.structs.replace(first, machine=machine, runs=most, designs=names)


def _facts(started: Started) -> dict[str, str]:
    return {key: value for key, value in started.machine.items() if key not in _OF_A_MOMENT}
