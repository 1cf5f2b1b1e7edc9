# SPDX-License-Identifier: BSD-2-Clause
"""Packets per second and nanoseconds per packet: what a rate that somebody printed says.

A printed figure was rounded: ``49.3M`` is anything from 49.25 to 49.35 million. All that is
computed from it is a range, and the arithmetic is exact.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

#: What Ethernet sends besides a frame: preamble and delimiter (8 bytes), and the gap (12).
WIRE_OVERHEAD = 20
MIN_FRAME = 64  # bytes, with the check sum
MAX_FRAME = 65535

_UNITS = {"": 0, "k": 3, "m": 6, "g": 9, "t": 12}
_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?P<digits>\d{1,3}(?:[,_ ]\d{3})+|\d{1,30})(?P<fraction>\.\d{1,30})?"
    r"\s*(?P<unit>[kKmMgGtT]?)"
)
_PER_SECOND = re.compile(r"\s*(?:pps|packets?/s(?:ec)?|pkts?/s(?:ec)?|p/s|/s)?\Z", re.IGNORECASE)


class Range(NamedTuple):
    """A value and what it may be: ``least <= value <= most``."""

    value: Fraction
    least: Fraction
    most: Fraction

    @property
    def is_exact(self) -> bool:
        """Nothing was rounded, as far as one can tell."""
        return self.least == self.most


class Change(NamedTuple):
    """From one rate to another: rates, ns a packet, and what changed of both."""

    before: Range
    after: Range
    before_ns: Range
    after_ns: Range
    rate: Range
    ns: Range
    rate_percent: Range
    ns_percent: Range


def parse(text: str, what: str = "figure") -> tuple[Range, str]:
    """A figure with its unit taken in, and what stands behind it. Raises ``ValueError``.

    ``49.3M``, ``49,300,000``, ``-8387677``. The range is half a unit of the last digit that was
    written, up and down.
    """
    match = _NUMBER.match(text.strip())
    if match is None:
        raise ValueError(f"{what} {text!r} is no number: use 49300000, 49.3M or 49,300,000")
    digits = re.sub("[,_ ]", "", match["digits"])
    scale = 10 ** _UNITS[match["unit"].lower()]
    fraction = match["fraction"] or ""
    value = Fraction(Decimal(match["sign"] + digits + fraction)) * scale
    half = Fraction(scale, 2 * 10 ** max(len(fraction) - 1, 0))
    return Range(value, value - half, value + half), text.strip()[match.end() :]


def parse_rate(text: str, what: str = "rate") -> Range:
    """Packets per second; ``20.3 ns`` too, which is turned into them. Raises ``ValueError``."""
    figure, rest = parse(text, what)
    if rest.strip() == "ns":
        return invert(_positive(figure, text, what))
    if _PER_SECOND.match(rest) is None:
        raise ValueError(f"{what} {text!r}: {rest.strip()!r} is no unit: use pps, Mpps or ns")
    return _positive(figure, text, what)


def parse_exact(text: str, what: str) -> Fraction:
    """A figure that nobody rounded: the speed of a link. Raises ``ValueError``."""
    figure, rest = parse(text, what)
    if rest.strip().lower() not in ("", "bit/s", "bps", "b/s") or figure.value <= 0:
        raise ValueError(f"{what} {text!r}: use 100G, 25G or 1000M")
    return figure.value


def _positive(figure: Range, text: str, what: str) -> Range:
    if figure.least <= 0:
        raise ValueError(f"{what} {text!r} is, or may have been rounded from, nothing at all")
    return figure


def invert(figure: Range) -> Range:
    """Packets per second as ns a packet, or the other way round: 10^9 through it."""
    return Range(10**9 / figure.value, 10**9 / figure.most, 10**9 / figure.least)


def change(before: Range, after: Range) -> Change:
    """What changed. Both are packets per second."""
    before_ns, after_ns = invert(before), invert(after)
    return Change(
        before,
        after,
        before_ns,
        after_ns,
        _minus(after, before),
        _minus(after_ns, before_ns),
        _percent(before, after),
        _percent(before_ns, after_ns),
    )


def change_of(diff: Range, percent: Range) -> Change:
    """What changed, of a difference in packets per second and its percentage.

    The percentage may have lost its sign; both ends of its range are tried with both of the
    difference's. Raises ``ValueError`` where they contradict each other.
    """
    if diff.least <= 0 <= diff.most:
        raise ValueError(
            "a difference of nothing, or one that was rounded to it, has no percentage"
        )
    sign = 1 if diff.value > 0 else -1
    if percent.value * sign < 0 and percent.value < 0:
        raise ValueError("the difference is positive and its percentage negative")
    size = Range(abs(diff.value), *_ends(abs(diff.least), abs(diff.most)))
    part = Range(abs(percent.value), *_ends(abs(percent.least), abs(percent.most)))
    if percent.least <= 0 <= percent.most or part.least <= 0:
        raise ValueError("the percentage may have been rounded from nothing: the rate may be any")
    if sign < 0 and part.most >= 100:
        raise ValueError("a loss of 100 % or more")
    corners = [(d, p / 100) for d in (size.least, size.most) for p in (part.least, part.most)]
    befores = [d / p for d, p in corners]
    afters = [d / p + sign * d for d, p in corners]
    middle = size.value / (part.value / 100)
    before = Range(middle, min(befores), max(befores))
    after = Range(middle + sign * size.value, min(afters), max(afters))
    # before and after go together: their differences are those of the same corner.
    costs = [10**9 / a - 10**9 / b for a, b in zip(afters, befores, strict=True)]
    relative = [b / a - 1 for a, b in zip(afters, befores, strict=True)]
    cost = 10**9 / after.value - 10**9 / before.value
    return Change(
        before,
        after,
        invert(before),
        invert(after),
        diff,
        Range(cost, min(costs), max(costs)),
        Range(sign * part.value, *_ends(sign * part.least, sign * part.most)),
        Range(100 * (before.value / after.value - 1), 100 * min(relative), 100 * max(relative)),
    )


def wire_rate(bits: Fraction, frame: int) -> Fraction:
    """Packets per second of a full link: ``frame`` bytes with the check sum. Raises ValueError.

    100 Gbit/s and 64 bytes: 148,809,523, 6.72 ns each.
    """
    if not MIN_FRAME <= frame <= MAX_FRAME:
        raise ValueError(
            f"a frame of {frame} bytes: {MIN_FRAME} to {MAX_FRAME}, with the check sum's 4"
        )
    return bits / ((frame + WIRE_OVERHEAD) * 8)


def _ends(one: Fraction, other: Fraction) -> tuple[Fraction, Fraction]:
    return min(one, other), max(one, other)


def _minus(one: Range, other: Range) -> Range:
    return Range(one.value - other.value, one.least - other.most, one.most - other.least)


def _percent(before: Range, after: Range) -> Range:
    return Range(
        100 * (after.value / before.value - 1),
        100 * (after.least / before.most - 1),
        100 * (after.most / before.least - 1),
    )
