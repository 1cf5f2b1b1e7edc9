# SPDX-License-Identifier: BSD-2-Clause
"""What commands that judge share: ``--margin``, ``--fail-on``, the table of a report."""

from __future__ import annotations

import click

from pagepool.cli._output import fail
from pagepool.compare import formats
from pagepool.compare.report import Report
from pagepool.compare.verdict import Margin, Verdict

#: What --fail-on may name.
KINDS = ("slower", "faster", "inconclusive", "unstable")


def _margin(context: click.Context, option: click.Parameter, text: str) -> Margin:
    figures = text.split(",")
    try:
        values = [float(figure) for figure in figures]
    except ValueError:
        values = []
    if not 1 <= len(values) <= 2 or not all(0 <= value < 1e6 for value in values):
        fail(f"--margin {text}: give per cent, and nanoseconds if you like, as in 1,0.2")
    return Margin(*values) if len(values) > 1 else Margin(values[0], 0.0)


def _fail_on(context: click.Context, option: click.Parameter, text: str | None) -> dict[str, float]:
    wanted: dict[str, float] = {}
    if text is None:
        return wanted
    for part in text.split(","):
        kind, _, percent = part.strip().partition(":")
        try:
            least = float(percent) if percent else 0.0
        except ValueError:
            least = -1.0
        if kind not in KINDS or not 0 <= least < 1e6:
            fail(f"--fail-on {text}: give some of {', '.join(KINDS)}, as in slower:5")
        wanted[kind] = least
    return wanted


margin_option = click.option(
    "--margin",
    metavar="PERCENT[,NS]",
    default="1,0.2",
    show_default=True,
    callback=_margin,
    help="What is no change: per cent, or nanoseconds if that is more.",
)
fail_on_option = click.option(
    "--fail-on",
    "fail_on",
    metavar="KIND[:PERCENT],...",
    callback=_fail_on,
    help="Exit with 1 if a row is so: slower, slower:5, faster, inconclusive, unstable.",
)


def failures(found: Report, fail_on: dict[str, float]) -> list[str]:
    """A line for each row that ``--fail-on`` is about."""
    return [
        f"{comparison.before.name} -> {comparison.after.name}: {row.name}: {row.verdict.kind}"
        f"{formats.by(row.verdict)}"
        for comparison in found.comparisons
        for row in comparison.rows
        if row.verdict and row.verdict.kind in fail_on and _by_much(row.verdict, fail_on)
    ]


def _by_much(it: Verdict, fail_on: dict[str, float]) -> bool:
    return it.percent is None or abs(it.percent.estimate) >= fail_on[it.kind]
