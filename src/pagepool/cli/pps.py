# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool pps``: packets per second as nanoseconds a packet, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction

import click

from pagepool.cli._output import fail, write
from pagepool.results import rates
from pagepool.results.rates import Change, Range
from pagepool.results.words import align


@click.command(short_help="Turn packets per second into nanoseconds a packet, and back.")
@click.argument("figures", nargs=-1, metavar="[RATE|NSns]...")
@click.option("--before", metavar="RATE", help="The rate before a change: 49.3M, or 20.3ns.")
@click.option("--after", metavar="RATE", help="And after it.")
@click.option("--diff", metavar="RATE", help="What changed, in packets per second: -8387677.")
@click.option("--percent", metavar="P", help="And how much that is of the rate before: 17.")
@click.option("--link", metavar="BITS", help="Budget of a full link: 100G, 25G.")
@click.option(
    "--frame",
    type=int,
    default=rates.MIN_FRAME,
    show_default=True,
    metavar="BYTES",
    help="Its frames, with the check sum.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Form of the output.",
)
def command(
    figures: tuple[str, ...],
    before: str | None,
    after: str | None,
    diff: str | None,
    percent: str | None,
    link: str | None,
    frame: int,
    form: str,
) -> None:
    """Turn packets per second into nanoseconds a packet, and back.

    A figure that was printed was rounded: beside each value stands the range that it may have
    been rounded from.
    """
    try:
        rows = {text: rates.parse_rate(text) for text in figures}
        moved = _change(before, after, diff, percent)
        budget = None
        if link is not None:
            budget = rates.wire_rate(rates.parse_exact(link, "--link"), frame)
    except ValueError as error:
        fail(f"pps: {error}")
    if not rows and moved is None and budget is None:
        fail("pps: nothing to convert: give rates, --before and --after, or --link")
    if form == "json":
        write(json.dumps(_document(rows, moved, budget), indent=1) + "\n")
        return
    lines: list[str] = []
    lines += _figures(rows, budget)
    if moved is not None:
        lines += [""] * bool(lines) + list(_moved(moved, budget))
    if budget is not None:
        lines += [""] * bool(lines)
        lines.append(
            f"wire speed, {link} and {frame}-byte frames: {_int(budget)} packets/s, "
            f"{_ns(10**9 / budget)} ns a packet"
        )
    write("\n".join(lines) + "\n")


def _change(
    before: str | None, after: str | None, diff: str | None, percent: str | None
) -> Change | None:
    given = [text is not None for text in (before, after, diff, percent)]
    if not any(given):
        return None
    if before is not None and after is not None and not any(given[2:]):
        return rates.change(
            rates.parse_rate(before, "--before"), rates.parse_rate(after, "--after")
        )
    if diff is not None and percent is not None and not any(given[:2]):
        share, rest = rates.parse(percent, "--percent")
        if rest.strip() not in ("", "%"):
            raise ValueError(f"--percent {percent!r} is no percentage")
        change, unit = rates.parse(diff, "--diff")
        if unit.strip().lower() not in ("", "pps"):
            raise ValueError(f"--diff {diff!r} is no rate")
        return rates.change_of(change, share)
    raise ValueError("give --before and --after, or --diff and --percent")


def _int(value: Fraction) -> str:
    return f"{int(value):,}"


def _ns(value: Fraction) -> str:
    return f"{float(value):.3f}"


def _signed(value: Fraction) -> str:
    return f"{float(value):+.3f}"


def _rate_signed(value: Fraction) -> str:
    return f"{round(value):+,}"


def _share(value: Fraction) -> str:
    return f"{float(value):+.2f} %"


def _row(name: str, rate: Range, budget: Fraction | None) -> tuple[str, ...]:
    ns = rates.invert(rate)
    cells = (
        name,
        _int(rate.value),
        f"{_int(rate.least)}..{_int(rate.most)}",
        _ns(ns.value),
        f"{_ns(ns.least)}..{_ns(ns.most)}",
    )
    return cells if budget is None else (*cells, f"{float(100 * rate.value / budget):.1f} %")


def _head(budget: Fraction | None) -> tuple[str, ...]:
    head = ("", "packets/s", "rounded from", "ns/packet", "rounded from")
    return head if budget is None else (*head, "of the wire")


def _figures(rows: dict[str, Range], budget: Fraction | None) -> Iterator[str]:
    if rows:
        yield from align([_head(budget), *(_row(*item, budget) for item in rows.items())])


def _moved(moved: Change, budget: Fraction | None) -> Iterator[str]:
    blank = ("",) * (budget is not None)
    yield from align(
        [
            _head(budget),
            _row("before", moved.before, budget),
            _row("after", moved.after, budget),
            (
                "change",
                _rate_signed(moved.rate.value),
                f"{_rate_signed(moved.rate.least)}..{_rate_signed(moved.rate.most)}",
                _signed(moved.ns.value),
                f"{_signed(moved.ns.least)}..{_signed(moved.ns.most)}",
                *blank,
            ),
            (
                "",
                _share(moved.rate_percent.value),
                f"{_share(moved.rate_percent.least)}..{_share(moved.rate_percent.most)}",
                _share(moved.ns_percent.value),
                f"{_share(moved.ns_percent.least)}..{_share(moved.ns_percent.most)}",
                *blank,
            ),
        ]
    )


def _triple(figure: Range) -> dict[str, float]:
    return {name: float(value) for name, value in figure._asdict().items()}


def _document(
    rows: dict[str, Range], moved: Change | None, budget: Fraction | None
) -> dict[str, object]:
    document: dict[str, object] = {
        "schema": "pagepool.pps/1",
        "figures": [
            {"given": text, "pps": _triple(rate), "ns": _triple(rates.invert(rate))}
            for text, rate in rows.items()
        ],
    }
    if moved is not None:
        document["change"] = {name: _triple(value) for name, value in moved._asdict().items()}
    if budget is not None:
        document["wire"] = {"pps": float(budget), "ns": float(10**9 / budget)}
    return document
