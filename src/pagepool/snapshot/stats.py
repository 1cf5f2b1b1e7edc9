# SPDX-License-Identifier: BSD-2-Clause
"""The eleven counters of a page_pool."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class PoolStats:
    """Counters since the pool was made, or between two readings (``later - earlier``).

    Names and meaning are those of the kernel's documentation and of ``ethtool -S`` (there with
    ``rx_pp_`` in front, and two shorter: ``alloc_slow_ho``, ``recycle_released_ref``). Counts of
    pages, except ``alloc_slow`` (calls of the page allocator, each for up to 64 pages) and
    ``recycle_ring_full``, to which a bulk return adds one however many pages did not fit.

    Two sums hold for a pool without fragments: the pages allocated are
    ``alloc_fast + alloc_refill + alloc_slow + alloc_slow_high_order``, and the pages that came
    back one by one with nobody else holding them are
    ``recycle_cached + recycle_ring + recycle_ring_full``.
    """

    alloc_fast: int
    alloc_slow: int
    alloc_slow_high_order: int
    alloc_empty: int
    alloc_refill: int
    alloc_waive: int
    recycle_cached: int
    recycle_cache_full: int
    recycle_ring: int
    recycle_ring_full: int
    recycle_released_refcnt: int

    def __sub__(self, earlier: PoolStats) -> PoolStats:
        """What happened between two readings of one pool."""
        if not isinstance(earlier, PoolStats):
            return NotImplemented
        return PoolStats(
            **{
                f.name: getattr(self, f.name) - getattr(earlier, f.name)
                for f in dataclasses.fields(self)
            }
        )

    @property
    def allocated(self) -> int:
        """Allocations: fragments where the pool hands out fragments, else pages."""
        return self.alloc_fast + self.alloc_refill + self.alloc_slow + self.alloc_slow_high_order

    @property
    def recycled(self) -> int:
        """Pages that stayed in the pool when they came back."""
        return self.recycle_cached + self.recycle_ring

    @property
    def recycle_rate(self) -> float | None:
        """``recycled / allocated``, from 0 to about 1; ``None`` if nothing was allocated.

        Over a pool of fragments this counts pages above the line and fragments below, and so
        misleads (49 % were once shown where 98 % was recycled): show both parts then.
        """
        return self.recycled / self.allocated if self.allocated else None
