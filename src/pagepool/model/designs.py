# SPDX-License-Identifier: BSD-2-Clause
"""Which name is which design: a way back, and a cache."""

from __future__ import annotations

from pagepool.model.cache import Cache
from pagepool.model.lanes import Lanes
from pagepool.model.list import LinkedCache, LinkedRing
from pagepool.model.ring import Ring
from pagepool.model.way import Way


def make_way(design: str, size: int) -> Way:
    """The way back of a checked name; size: pages."""
    if design == "ours":
        return Lanes(size)
    # Rule: list-cache by itself keeps the ring.
    if design in ("ring", "list-cache"):
        return Ring(size)
    # Rule: list is all three steps, list-batch the first two.
    return LinkedRing(size, batch=design in ("list", "list-batch"))


def make_cache(design: str) -> Cache:
    """Its cache."""
    if design in ("list", "list-cache", "list-ring-cache"):
        return LinkedCache()
    return Cache()
