# SPDX-License-Identifier: BSD-2-Clause
"""The workloads, in C: their table, and how to run one."""

from collections.abc import Mapping
from typing import NamedTuple

class Knob(NamedTuple):
    """What can be set in a workload, and from where to where; a switch goes from 0 to 1."""

    name: str
    least: int
    most: int
    what: str

class Workload(NamedTuple):
    """A workload; ``knobs``: those that mean something to it, with what they are if not set."""

    name: str
    what: str
    knobs: dict[str, int]

class Outcome(NamedTuple):
    """What a workload did: counts, statistics of each pool, and the time of all of it."""

    counts: dict[str, int]
    stats: list[dict[str, int]]
    inflight: list[int]
    leaks: list[tuple[str, int]]
    checked: bool
    time_interval_ns: int
    tsc_interval: int

class WorkloadError(Exception):
    """A workload gave no result; ``errno`` is the positive error number."""

    errno: int
    def __init__(self, errno: int, text: str) -> None: ...

STATISTICS: tuple[str, ...]
KNOBS: dict[str, Knob]
WORKLOADS: dict[str, Workload]

def check(name: str, knobs: Mapping[str, int], *, design: str = "ring") -> None:
    """Whether the workload can be run so. Raises `WorkloadError`, ``ValueError``."""

def run(
    name: str,
    knobs: Mapping[str, int],
    *,
    design: str = "ring",
    seed: int = 1,
    reader_cpu: int = -1,
) -> Outcome:
    """Run a workload once, on the calling thread, without the GIL. Cannot be interrupted.

    ``knobs``: values by name, others as in `Workload`. ``reader_cpu``: where the reader's thread
    runs, -1 for anywhere. Raises `WorkloadError`, ``ValueError`` for names that are none.
    """
