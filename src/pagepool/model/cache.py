# SPDX-License-Identifier: BSD-2-Clause
"""The consumer's cache: LIFO of pages."""

from __future__ import annotations

from collections.abc import Iterator

from pagepool.model.frame import Frame
from pagepool.model.limits import CACHE_SIZE


class Cache:
    """At most 128 pages; only the consumer touches it."""

    def __init__(self) -> None:
        """Empty."""
        self.pages: list[Frame] = []
        self.size = CACHE_SIZE  # what if it were another? `pagepool bench workload` asks

    def __len__(self) -> int:
        """Pages in it."""
        return len(self.pages)

    @property
    def full(self) -> bool:
        """Is there no room?"""
        return len(self) >= self.size

    def push(self, frame: Frame) -> None:
        """On top. Not full."""
        self.pages.append(frame)

    def pop(self) -> Frame:
        """Rule: the newest page first, its bytes are the likeliest to be in the CPU's caches."""
        return self.pages.pop()

    def pop_all(self) -> Iterator[Frame]:
        """Take out every page, the newest first."""
        while len(self):
            yield self.pop()
