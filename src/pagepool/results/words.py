# SPDX-License-Identifier: BSD-2-Clause
"""How tests, counters, counts and rows are put into words; shared by all that prints them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from pagepool.results.model import Build, Key, Record


def test_name(key: Key, keys: Iterable[Key] = ()) -> str:
    """How a test is called: its name, its CPU or ``average``, and the step where names share.

    ``keys`` are the tests that it must be told apart from.
    """
    return test_names({key, *keys})[key]


def test_names(keys: Collection[Key]) -> dict[Key, str]:
    """How each of several tests is called, told apart from all others."""
    steps: dict[tuple[str, str, int], set[int]] = {}
    for kind, name, step, cpu in keys:
        steps.setdefault((kind, name, cpu), set()).add(step)
    found = {}
    for kind, name, step, cpu in keys:
        text = {"cpu": f"{name} CPU({cpu})", "sum": f"{name} average"}.get(kind, name)
        several = len(steps[kind, name, cpu]) > 1
        found[kind, name, step, cpu] = f"{text} step:{step}" if several else text
    return found


def counter_ghz(records: Iterable[Record]) -> float | None:
    """The time-stamp counter's speed, by the longest record: the others carry more rounding."""
    timed = (record for record in records if record.tsc_ghz is not None)
    longest = max(timed, key=lambda record: record.time_interval_ns or 0, default=None)
    return None if longest is None else longest.tsc_ghz


def counter_text(build: Build) -> str | None:
    """The counter's speed as a build says it, or as its records give it; ``None``: not known."""
    clock = counter_ghz(build.records)
    return build.machine.get("counter") or (hertz(clock) if clock else None)


def hertz(ghz: float) -> str:
    """``3.60 GHz``, ``100 MHz``."""
    return f"{ghz:.2f} GHz" if ghz >= 1 else f"{ghz * 1000:.0f} MHz"


def count(number: int, noun: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns under each other: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *rest = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in rest)]
        lines.append("  ".join(cells).rstrip())
    return lines
