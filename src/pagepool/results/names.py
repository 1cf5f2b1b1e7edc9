# SPDX-License-Identifier: BSD-2-Clause
"""Names of tests, as people shorten them in tables and sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

#: The tests of bench_page_pool_simple that a short name may stand for.
SIMPLE = (
    "no-softirq-page_pool01",
    "no-softirq-page_pool02",
    "no-softirq-page_pool03",
    "tasklet_page_pool01_fast_path",
    "tasklet_page_pool02_ptr_ring",
    "tasklet_page_pool03_slow",
)
#: ``fast_path`` alone is the tasklet's: that of no-softirq never takes the fast path.
_SHORT = {name.split("_", 2)[2].split("_", 1)[1]: name for name in SIMPLE[3:]}
_TEST = re.compile(
    r"(?<![\w/.-])(?:(?:no-softirq|tasklet)[-_]page_pool[\w-]*|page_pool_cross_cpu|XDP_[A-Z]+"
    r"|for_loop|atomic_inc)(?![\w/(]|\.[a-z])"
)
_CPU = re.compile(r"(?P<name>.+) CPU\((?P<cpu>\d{1,5})\)")


def full_name(name: str, glob: str = "") -> str:
    """What a short name stands for; ``glob`` is what a table's head says of its names.

    ``fast_path`` below ``(tasklet_*)`` is ``tasklet_page_pool01_fast_path``. A name that stands
    for nothing, or for several tests, stays what it is.
    """
    name = name.removesuffix(" (control)")  # our own tables say so
    if glob:
        found = [test for test in SIMPLE if fnmatchcase(test, glob) and test.endswith(name)]
        if len(found) == 1:
            return found[0]
    return _SHORT.get(name, name)


def workload_name(workload: str, point: Mapping[str, int]) -> str:
    """The test that a case of a workload is: ``workload_tcp-stream reader-hiccup=4``."""
    return f"workload_{workload}" + "".join(f" {knob}={value}" for knob, value in point.items())


def is_test(name: str) -> bool:
    """Whether it is the name of a test that people make columns of, short or not."""
    return name in _SHORT or _TEST.fullmatch(name) is not None


def named_in(text: str) -> str | None:
    """The one test that a sentence names."""
    found = {match.group() for match in _TEST.finditer(text)}
    return found.pop() if len(found) == 1 else None


def cpu_of(name: str) -> tuple[str, int] | None:
    """``page_pool_cross_cpu CPU(2)``: the name, the CPU."""
    match = _CPU.fullmatch(name)
    return None if match is None else (match["name"], int(match["cpu"]))
