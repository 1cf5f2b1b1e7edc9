# SPDX-License-Identifier: BSD-2-Clause
"""Packet rates and counters: programs that print a sample every second or two.

xdp_rxq_info, xdp-bench and the samples before it, xdpsock, pktgen, ethtool_stats, perf stat. What a
program printed between its head and the next text is one measurement: one record, the mean of its
samples. Device names are not kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from pagepool.results.headings import PROMPT
from pagepool.results.model import Record

What: TypeAlias = Literal["rate", "event"]

_RATE = r"(?P<rate>\d{1,3}(?:,\d{3})+|\d{1,18})"

_RXQ_HEAD = re.compile(
    r"Running XDP on dev:\S+ \(ifindex:\d+\) action:(?P<action>XDP_\w+)(?: options:(?P<how>\S+))?"
)
_COMMAND = re.compile(
    PROMPT
    + r"(?:\S*/)?(?P<tool>xdp-bench|xdp_rxq_info|xdp_redirect\w*|xdpsock|xdp[12])"
    + r"(?: (?P<rest>.*))?$"
)
#: The head line of xdp-bench, and of the samples of the kernel before it.
_HEADS = (
    (re.compile(r"Dropping packets on .*"), "XDP_DROP"),
    (re.compile(r"Hairpinning \(XDP_TX\) packets on .*"), "XDP_TX"),
    (re.compile(r"Passing packets on .*"), "XDP_PASS"),
    (re.compile(r"Redirecting from \S+ .*"), "XDP_REDIRECT"),
)
_XDPSOCK_HEAD = re.compile(r"sock\d+@\S+ (?P<mode>rxdrop|txonly|l2fwd)\b.*")
_MODES = {"drop": "XDP_DROP", "pass": "XDP_PASS", "tx": "XDP_TX", "redirect": "XDP_REDIRECT"}
_ACTION = re.compile(r"\bXDP_(?:DROP|PASS|TX|REDIRECT)\b")

_TOTAL = re.compile(rf"XDP-RX CPU\s+total\s+{_RATE}$")
_SUMMARY = re.compile(rf"(?:Summary|\S+->\S+)\s+{_RATE} rx/s\b.*")
_PKT = re.compile(rf"(?:proto \d+|ifindex \d+):\s+{_RATE} pkt/s$")
_XDPSOCK = re.compile(rf"(?P<way>rx|tx)\s+{_RATE}\s+\d[\d,]*$")
#: Both carry the mean of all before: the last one counts.
_AWK = re.compile(r"n=(?P<n>\d{1,12})\s+cur-pps:\d+ avg=(?P<rate>\d{1,18}) .*")
_PKTGEN = re.compile(
    r"(?:[-*] )?instant rx:\d+ tx:\d+ pps n:(?P<n>\d{1,12}) "
    r"average: rx:(?P<rx>\d{1,18}) tx:(?P<tx>\d{1,18}) pps$"
)
_PKTGEN_RESULT = re.compile(rf"{_RATE}pps \d+Mb/sec \(\d+bps\) errors: \d+$")
_ETHTOOL = re.compile(
    r"Ethtool\([^)]*\) stat:\s+(?P<rate>\d{1,18}) \(\s*[\d,]+\) <= (?P<name>[\w.\[\]-]{1,80}) /sec$"
)
#: ``3.967.401.581 cycles ( +- 0,02% )``: the separators are those of the user's language.
_PERF = re.compile(
    r"(?P<rate>\d{1,3}(?:[.,]\d{3})+|\d{1,18})\s+(?P<name>[a-zA-Z][\w:./-]{1,60})\s+"
    r"(?:#.*|\( ?\+-\s*\d+[.,]\d+% ?\).*)$"
)

#: What stands between the samples of one measurement.
_BETWEEN = re.compile(
    r"XDP stats\b|XDP-RX CPU\b|RXQ stats\b|rx_queue_index\b|pps\s+pkts\b|\(instant variation\b"
    r"|(?:receive|enqueue|kthread|xmit|redirect|cpumap|devmap|xdp_stats|xdp_exception|cpu:\d+)\b.*/s"
    r"|Show adapter\(s\)|Ethtool\(|Current:|Flags:|Result: OK:|[rt]x\s+0\s+0$"
)


class Sample(NamedTuple):
    """One line's figure: of which record, and whether it replaces all before (``n`` samples)."""

    what: What
    name: str
    value: int
    n: int | None = None


@dataclass(slots=True)
class _Series:
    what: What
    first: int
    last: int
    values: list[int] = field(default_factory=list)
    n: int | None = None


class Measurement(NamedTuple):
    """One record without source, and the lines that it is from."""

    record: Record
    first: int
    last: int


@dataclass(slots=True)
class Samples:
    """What one text, at one quote depth, has printed since the last head or other text."""

    head: str = ""
    name: str = ""
    series: dict[tuple[What, str], _Series] = field(default_factory=dict)

    def feed(
        self, number: int, text: str, above: Callable[[], Iterable[str]]
    ) -> tuple[bool, list[Measurement]]:
        """A line: whether it was of such a program, and the measurements that it ends.

        ``above`` gives the lines above it, nearest first: the oldest samples print a rate only.
        """
        if name := _head(text):
            if text == self.head:  # printed again with every sample
                return True, []
            ended = self.end()
            self.head, self.name = text, name
            return True, ended
        if sample := _sample(text, self.name):
            if not self.name and sample.what == "rate":
                sample = sample._replace(name=_named_above(above()) or sample.name)
            self._take(number, sample)
            return True, []
        if _BETWEEN.match(text) is not None:
            return True, []
        ended = self.end()
        self.head = self.name = ""
        return False, ended

    def _take(self, number: int, sample: Sample) -> None:
        series = self.series.get((sample.what, sample.name))
        if series is None:
            series = _Series(sample.what, number, number)
            self.series[sample.what, sample.name] = series
        series.last = number
        if sample.n is not None:
            series.values, series.n = [sample.value], sample.n
        else:
            series.values.append(sample.value)

    def end(self) -> list[Measurement]:
        """The measurements so far; what follows is another one."""
        found = []
        for (what, name), it in self.series.items():
            mean = round(sum(it.values) / len(it.values))
            found.append(
                Measurement(
                    Record(
                        name=name,
                        kind=what,
                        pps=mean if what == "rate" else None,
                        events=mean if what == "event" else None,
                        counts={"samples": it.n or len(it.values)},
                    ),
                    it.first,
                    it.last,
                )
            )
        self.series = {}
        return found


def _head(text: str) -> str | None:
    if match := _RXQ_HEAD.match(text):
        how = match["how"]
        return match["action"] if how in (None, "no_touch", "swapmac") else f"{match[1]} {how}"
    for pattern, name in _HEADS:
        if pattern.fullmatch(text):
            return name
    if match := _XDPSOCK_HEAD.fullmatch(text):
        return f"xdpsock {match['mode']}"
    match = _COMMAND.match(text)
    if match is None:
        return None
    tool, rest = match["tool"], match["rest"] or ""
    if tool == "xdp-bench":
        word = next(iter(rest.split()), "")
        return _MODES.get(word, f"xdp-bench {word}" if re.fullmatch(r"[a-z-]{2,20}", word) else "")
    if action := _ACTION.search(rest):
        return action.group()
    return {"xdp1": "XDP_DROP", "xdp2": "XDP_TX", "xdpsock": "xdpsock", "xdp_rxq_info": "XDP"}.get(
        tool, "XDP_REDIRECT"
    )


def _sample(text: str, name: str) -> Sample | None:
    if match := _TOTAL.match(text) or _SUMMARY.match(text) or _PKT.match(text):
        return Sample("rate", name or "packets", _number(match["rate"]))
    if (match := _XDPSOCK.match(text)) and name.startswith("xdpsock"):
        value = _number(match["rate"])
        return Sample("rate", f"{name} {match['way']}", value) if value else None
    if match := _AWK.match(text):
        return Sample("rate", name or "packets", int(match["rate"]), int(match["n"]))
    if match := _PKTGEN.match(text):
        way = "rx" if int(match["rx"]) > int(match["tx"]) else "tx"
        return Sample("rate", f"packets {way}", int(match[way]), int(match["n"]))
    if match := _PKTGEN_RESULT.match(text):
        return Sample("rate", "pktgen", _number(match["rate"]))
    if match := _ETHTOOL.match(text):
        return Sample("event", match["name"], int(match["rate"]))
    if match := _PERF.match(text):
        return Sample("event", match["name"], _number(match["rate"]))
    return None


def _named_above(above: Iterable[str]) -> str | None:
    """``XDP_DROP (samples/bpf/xdp1)``: the nearest text above a rate that has no head."""
    for text in above:
        if text and _sample(text, "") is None:
            action = _ACTION.search(text)
            return None if action is None else action.group()
    return None


def _number(text: str) -> int:
    return int(re.sub("[.,]", "", text))
