# SPDX-License-Identifier: BSD-2-Clause
"""Workloads on the model: the statistics that other sizes of cache and refill would give.

In the core these are fixed, as in the kernel. The model counts as the core does, so with the usual
sizes it gives the same statistics, and it has no time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from pagepool.bench._workloads import Outcome
from pagepool.model.arena import Arena
from pagepool.model.frame import Frame
from pagepool.model.limits import CACHE_REFILL, CACHE_SIZE
from pagepool.model.napi import Napi
from pagepool.model.rules import ALL, Pool

#: Workloads that the model can run.
MODELLED = ("tcp-stream",)

_MASK = (1 << 64) - 1


class Chance:
    """splitmix64: the generator of the workloads."""

    def __init__(self, seed: int) -> None:
        """Any seed below 2**64."""
        self._state = seed

    def below(self, n: int) -> int:
        """0 to n - 1."""
        self._state = z = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _MASK
        return (z ^ z >> 31) * n >> 64


class _TcpStream:
    """As ``csrc/bench/workload_tcp.c``: a poller, and a reader that leaves the frees to it."""

    def __init__(self, knobs: Mapping[str, int], seed: int, cache: int, refill: int) -> None:
        self.knobs = knobs
        self.chance = Chance(seed)
        self.napi = Napi()
        self.pool = Pool(knobs["pool-size"], 0, None, Arena(), None)
        self.pool.cache.size = cache
        self.pool.refill_to = refill
        if knobs["napi-direct"]:
            self.pool.napi = self.napi
        self.queue: list[list[Frame]] = []
        self.deferred: list[list[Frame]] = []
        self.counts = dict.fromkeys(
            ("polls", "packets", "dropped", "allocated", "put", "deferred", "most_out"), 0
        )

    def put(self, packet: list[Frame]) -> None:
        for frame in packet:
            self.pool.put(frame, False, ALL)
        self.counts["put"] += len(packet)

    def poll(self) -> None:
        for packet in self.deferred:
            self.counts["deferred"] += len(packet)
            self.put(packet)
        self.deferred = []
        least, most = self.knobs["pages-from"], self.knobs["pages-to"]
        for _ in range(self.knobs["packets"]):
            n = least if least == most else least + self.chance.below(most - least + 1)
            packet = self.pool.alloc_bulk(n)
            self.counts["allocated"] += len(packet)
            if len(packet) < n:
                self.counts["dropped"] += 1
                self.put(packet)
                continue
            self.counts["packets"] += 1
            self.queue.append(packet)

    def read(self) -> None:
        room = self.knobs["defer-max"] - len(self.deferred)
        self.deferred += self.queue[:room]
        for packet in self.queue[room:]:
            self.put(packet)
        self.queue = []

    def run(self) -> None:
        counts, every = self.counts, self.knobs["hiccup-every"]
        due = 0
        for poll in range(self.knobs["polls"]):
            due += 1
            if poll % every < every - self.knobs["poller-hiccup"]:
                with self.napi:
                    for _ in range(due):
                        self.poll()
                due = 0
            counts["most_out"] = max(counts["most_out"], counts["allocated"] - counts["put"])
            if poll % every < every - self.knobs["reader-hiccup"]:
                self.read()
            counts["polls"] += 1


def run(
    name: str,
    knobs: Mapping[str, int],
    *,
    seed: int = 1,
    cache: int = CACHE_SIZE,
    refill: int = CACHE_REFILL,
) -> Outcome:
    """Run one of `MODELLED` with all its knobs; ``cache`` and ``refill`` are sizes in pages.

    The outcome has no time. Raises ``ValueError``.
    """
    if name not in MODELLED:
        raise ValueError(f"the model does not run {name}")
    if not 1 <= refill <= cache:
        raise ValueError(f"a refill of {refill} pages does not fit into a cache of {cache}")
    work = _TcpStream(knobs, seed, cache, refill)
    work.run()
    stats = dataclasses.asdict(work.pool.stats)
    left = work.counts["put"] - stats["recycle_cached"] - stats["recycle_ring"]
    counts = work.counts | {"left": left}
    in_flight = work.pool.in_flight.held - work.pool.in_flight.released & 0xFFFFFFFF
    return Outcome(counts, [stats], [in_flight], [], False, 0, 0)
