# SPDX-License-Identifier: BSD-2-Clause
"""The statistics while they are counted, and what is in flight."""

from __future__ import annotations

import dataclasses

from pagepool.snapshot import DmaStats, PoolStats


@dataclasses.dataclass
class Counters:
    """Meaning as in ``PoolStats``; ``recycle_ring`` and ``recycle_ring_full`` the design counts."""

    alloc_fast: int = 0
    alloc_slow: int = 0
    alloc_slow_high_order: int = 0
    alloc_empty: int = 0
    alloc_refill: int = 0
    alloc_waive: int = 0
    recycle_cached: int = 0
    recycle_cache_full: int = 0
    recycle_released_refcnt: int = 0

    def snapshot(self, ring: int, ring_full: int) -> PoolStats:
        """The counters of this moment."""
        return PoolStats(recycle_ring=ring, recycle_ring_full=ring_full, **dataclasses.asdict(self))


@dataclasses.dataclass
class DmaCounters:
    """Meaning as in ``DmaStats``."""

    maps: int = 0
    map_errors: int = 0
    unmaps: int = 0
    unmaps_destroy: int = 0
    unmaps_skipped: int = 0
    syncs: int = 0
    sync_bytes: int = 0
    syncs_skipped: int = 0

    def snapshot(self) -> DmaStats:
        """The counters of this moment."""
        return DmaStats(**dataclasses.asdict(self))


@dataclasses.dataclass
class InFlight:
    """Pages that came into the pool, and pages that left it: serial numbers of 32 bits."""

    held: int = 0
    released: int = 0

    def hold(self, n: int) -> None:
        """n pages came in."""
        self.held = (self.held + n) & 0xFFFFFFFF

    def release(self) -> None:
        """A page left."""
        self.released = (self.released + 1) & 0xFFFFFFFF

    @property
    def pages(self) -> int:
        """Rule: the difference, right across the wrap; negative would be a bug."""
        return ((self.held - self.released + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
