# SPDX-License-Identifier: BSD-2-Clause
"""Builds that nobody ran."""

from __future__ import annotations

from pagepool.compare.selection import Chosen
from pagepool.results.model import Build, Record, Run


def record(
    name: str = "lock",
    interval: int = 10**9,
    count: int = 10**8,
    ghz: float = 3.6,
    instructions: int | None = None,
) -> Record:
    return Record(
        name=name,
        step=0,
        time_interval_ns=interval,
        invoke_count=count,
        tsc_interval=int(interval * ghz),
        instructions=instructions,
    )


def build(label: str, *runs: list[Record], **machine: str) -> Chosen:
    made = Build(label, tuple(Run(tuple(records)) for records in runs), machine=machine)
    return Chosen(f"{label}.txt", made)
