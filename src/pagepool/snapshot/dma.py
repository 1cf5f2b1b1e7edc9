# SPDX-License-Identifier: BSD-2-Clause
"""What a pool asked of its device, and what an IOMMU has and refused."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple


@dataclasses.dataclass(frozen=True, slots=True)
class DmaStats:
    """Counters since the pool was made, or between two readings (``later - earlier``).

    Every page that was mapped is unmapped once: when nothing is in flight any more,
    ``maps == unmaps + unmaps_destroy`` (with ``track_mappings=False``, ``maps == unmaps``), and
    ``unmaps_skipped == unmaps_destroy``.
    """

    maps: int
    """Pages mapped."""
    map_errors: int
    """Pages that could not be, and went back to the provider."""
    unmaps: int
    """Pages unmapped when they left the pool."""
    unmaps_destroy: int
    """Pages unmapped by ``close()``, wherever they were."""
    unmaps_skipped: int
    """Pages that left later, and needed none any more."""
    syncs: int
    """Pages synced for the device."""
    sync_bytes: int
    """Bytes of these."""
    syncs_skipped: int
    """Pages that came back after ``close()`` had unmapped them."""

    def __sub__(self, earlier: DmaStats) -> DmaStats:
        """What happened between two readings of one pool."""
        if not isinstance(earlier, DmaStats):
            return NotImplemented
        return DmaStats(
            **{
                f.name: getattr(self, f.name) - getattr(earlier, f.name)
                for f in dataclasses.fields(self)
            }
        )


class Mapping(NamedTuple):
    """One entry of a device's page table."""

    dma: int
    """By which the device knows it."""
    address: int
    """Of the memory."""
    length: int
    direction: str


class Fault(NamedTuple):
    """What the IOMMU refused."""

    op: str
    """By the device: ``"write"``, ``"read"``; by its driver or a pool: ``"sync"``, ``"unmap"``,
    ``"map"``."""
    why: str
    """``"device gone"``, ``"unmapped"``, ``"never mapped"``, ``"length"``, ``"direction"``."""
    device: str
    dma: int
    length: int
    address: int | None
    """Of the memory that is, or was, mapped at dma; ``None``: not known."""
    text: str
    """All of that in one line."""
