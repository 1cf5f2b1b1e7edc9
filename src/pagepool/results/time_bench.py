# SPDX-License-Identifier: BSD-2-Clause
"""The text of the kernel's time_bench: one record a line, written and parsed.

The formats are those of ``lib/time_bench.c`` of the kernel's benchmark modules::

    Type:%s Per elem: %llu cycles(tsc) %llu.%03llu ns (step:%d) - (measurement period
        time:%llu.%09u sec time_interval:%llu) - (invoke count:%llu tsc_interval:%llu)
    Type:%s CPU(%d) %llu cycles(tsc) %llu.%03llu ns (step:%d) - ...the same tail
    Sum Type:%s Average: %llu cycles(tsc) CPUs:%d step:%d
"""

from __future__ import annotations

from pagepool.results.model import Record

PREFIX = "time_bench: "


def format_record(record: Record) -> str:
    """The kernel's line for a record, without a time stamp.

    Cycles are an integer division, nanoseconds are cut to three decimals. Unlike the kernel's,
    the decimals are right for every count (see `Record.ns_printed`). What the record does not
    have (step, intervals) the line does not have either. Raises ``ValueError`` for a record
    without any figure.
    """
    cycles = record.cycles_printed
    if cycles is None:
        raise ValueError(f"{record.name}: no cycles to print")
    if record.kind == "sum":
        tail = "" if record.cpus is None else f" CPUs:{record.cpus}"
        tail += "" if record.step is None else f" step:{record.step}"
        return f"{PREFIX}Sum Type:{record.name} Average: {cycles} cycles(tsc){tail}"
    if record.ns_printed is None:
        raise ValueError(f"{record.name}: no nanoseconds to print")
    what = f"CPU({record.cpu or 0})" if record.kind == "cpu" else "Per elem:"
    line = f"{PREFIX}Type:{record.name} {what} {cycles} cycles(tsc) {record.ns_printed} ns"
    if record.step is not None:
        line += f" (step:{record.step})"
    if record.time_interval_ns is not None and record.invoke_count is not None:
        seconds, rest = divmod(record.time_interval_ns, 1_000_000_000)
        line += (
            f" - (measurement period time:{seconds}.{rest:09} sec"
            f" time_interval:{record.time_interval_ns})"
        )
        if record.tsc_interval is not None:
            line += f" - (invoke count:{record.invoke_count} tsc_interval:{record.tsc_interval})"
    return line
