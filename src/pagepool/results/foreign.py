# SPDX-License-Identifier: BSD-2-Clause
"""What readers of JSON that is not `pagepool.results/1` share: exact times, runs, decoding.

A foreign program gives times as floating point numbers: a total, or a quotient. A record has
integer intervals, as clocks count. Where a time is so near to a whole number of nanoseconds, or
so long, that rounding it is nothing, it becomes an interval with its count; elsewhere the quotient
is kept as it is (`Record.exact_ns`). Counts are never made up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from decimal import ROUND_DOWN, Decimal
from typing import Annotated, TypeVar

import msgspec

from pagepool.results.errors import ResultsError
from pagepool.results.lines import clean
from pagepool.results.model import Build, Machine, Oddity, Record, ResultSet, Run, Severity, Source
from pagepool.results.time_bench import judge

T = TypeVar("T")

#: Names are shown, and are cleaned before; a book is no name.
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
#: What clocks and counters hold: float arithmetic on it cannot overflow.
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]

#: By so much an interval may be rounded: half a nanosecond of 0.5 ms.
_ROUNDING = 1e-6
_MOST = 2**63
_MAX_ODDITIES = 1000


def decode(data: bytes, kind: type[T], name: str, what: str) -> T:
    """A document of a kind. Raises `ResultsError` that names the place inside of it.

    ``what``: the kind, for messages. `NaN` and `Infinity` are no JSON, but are written.
    """
    try:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return msgspec.convert(_loads(data), kind)
    except msgspec.ValidationError as error:
        raise ResultsError(name, f"bad {what}: {one_line(error)}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise ResultsError(name, f"broken JSON: {one_line(error)}", "is it complete?") from None


def _loads(data: bytes) -> object:
    """As Python reads it. Raises ``ValueError``."""
    document = json.loads(data)
    # Half a surrogate pair is no text; only here it would come through.
    json.dumps(document, ensure_ascii=False).encode()
    return document


def one_line(error: Exception) -> str:
    """What an exception says, short."""
    return clean(" ".join(str(error).split())[:300])


def timed(name: str, total: float, count: int) -> Record:
    """A record of ``count`` elements that took ``total`` ns, both measured."""
    whole = round(total)
    if abs(total - whole) <= total * _ROUNDING:
        return Record(name=name, time_interval_ns=whole, invoke_count=count)
    return msgspec.structs.replace(quotient(name, total / count), invoke_count=count)


def quotient(name: str, ns: float) -> Record:
    """A record of which a program says the nanoseconds per element only."""
    printed = Decimal(ns).quantize(Decimal("0.001"), ROUND_DOWN)
    return Record(name=name, printed_ns=f"{printed:f}", exact_ns=ns)


class Collector:
    """Puts records into numbered runs of builds, and notes what is odd."""

    def __init__(self, file: str) -> None:
        """``file``: the name to report."""
        self._file = file
        self._runs: dict[str, dict[int, list[Record]]] = {}
        self._last: dict[tuple[str, str], int] = {}
        self._taken: set[tuple[str, str, int]] = set()
        self._settings: dict[tuple[str, int], Machine] = {}
        self._more = 0
        self._said: set[str] = set()
        self.oddities: list[Oddity] = []

    def odd(self, code: str, text: str, severity: Severity = "warning") -> None:
        """Something was noticed; what is said of each repetition is said once."""
        if text in self._said:
            return
        self._said.add(text)
        if len(self.oddities) < _MAX_ODDITIES:
            self.oddities.append(Oddity(self._file, 0, clean(text), severity, code))
        else:
            self._more += 1

    def add(
        self,
        build: str,
        run: int,
        name: str,
        ns: float,
        count: int | None = None,
        settings: Machine | None = None,
    ) -> None:
        """One time: ``ns`` in all of ``count`` elements, or, without a count, of one element.

        A run has a name once: a second record of it goes into a run behind all that have one.
        """
        name = clean(name) or "?"
        if not math.isfinite(ns) or not 0 <= ns < _MOST:
            self.odd("impossible-time", f"{name}: a time of {ns:g} ns; not used", "error")
            return
        if (build, name, run) in self._taken:
            run = self._last[build, name] + 1
        self._taken.add((build, name, run))
        self._last[build, name] = max(run, self._last.get((build, name), run))
        record = quotient(name, ns) if count is None else timed(name, ns, count)
        odd = judge(record)
        for code, text in odd:
            self.odd(code, text)
        record = msgspec.structs.replace(
            record, source=Source(self._file), oddities=tuple(code for code, _ in odd)
        )
        self._runs.setdefault(build, {}).setdefault(run, []).append(record)
        if settings:
            self._settings.setdefault((build, run), settings)

    def results(self, machine: Machine, settings: Machine | None = None) -> ResultSet:
        """Everything, on a machine; ``settings`` are those of all runs.

        Raises `ResultsError` when there is nothing.
        """
        if not self._runs:
            first = f"; {self.oddities[0].text}" if self.oddities else ""
            raise ResultsError(self._file, f"no results in it{first}")
        if self._more:
            text = f"{self._more} more oddities"
            self.oddities.append(Oddity(self._file, 0, text, "note", "more"))
        builds = tuple(
            Build(
                label=label,
                runs=tuple(
                    Run(
                        tuple(records),
                        {**(settings or {}), **self._settings.get((label, number), {})},
                        Source(self._file),
                    )
                    for number, records in sorted(runs.items())
                ),
                kernel=machine.get("kernel"),
                machine=machine,
                source=Source(self._file),
            )
            for label, runs in self._runs.items()
        )
        return ResultSet(builds, tuple(self.oddities))


def facts(pairs: Sequence[tuple[str, object]]) -> Machine:
    """Facts that are there, as text without control characters; the others are left out."""
    return {key: clean(str(value))[:1000] for key, value in pairs if value not in (None, "")}
