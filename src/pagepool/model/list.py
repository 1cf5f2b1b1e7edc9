# SPDX-License-Identifier: BSD-2-Clause
"""Design ``list``: pages linked to each other, as a patch series to the kernel has it.

Its three steps, each a patch of the series, can be had one by one. ``list-ring``: a linked list
under the producers' lock instead of the ring; ``list-batch``: and the consumer takes a refill under
one lock; ``list-cache``: the cache is a linked list. ``list-ring-cache``: the first and the third;
``list``: all three. Statistics mean the same in all, and are the same after the same calls; but a
ring is full a little earlier, since its slots are cleared later.
"""

from __future__ import annotations

from collections.abc import Iterator

from pagepool.model.cache import Cache
from pagepool.model.frame import Frame
from pagepool.model.way import Locked, Taken, is_wrong


class LinkedRing(Locked):
    """A FIFO of pages, each of which knows the one behind it, under the producers' lock."""

    def __init__(self, size: int, batch: bool) -> None:
        """size: pages; batch: a refill is taken under one lock, else each page under its own."""
        super().__init__(size)
        self.batch = batch
        self.first: Frame | None = None
        self.last: Frame | None = None
        self.listed = 0  # pages in it

    def _produce(self, frame: Frame) -> bool:
        # Rule: it is full with pool_size pages.
        if self.listed >= self.size:
            return False
        frame.link = None
        if self.last is None:
            self.first = frame
        else:
            self.last.link = frame
        self.last = frame
        self.listed += 1
        return True

    def _pop(self) -> Frame | None:
        """Under the lock: the oldest; None: there is none."""
        frame = self.first
        if frame is None:
            return None
        self.first = frame.link
        if self.first is None:
            self.last = None
        self.listed -= 1
        return frame

    def take(self, n: int, node: int | None) -> Taken:
        """The oldest first, under the producers' lock."""
        frames: list[Frame] = []
        # Rule: without the lock it is only looked whether there is anything.
        while len(frames) < n and self.listed:
            with self.lock:
                # Rule: one page, or with batch n, or as many as there are.
                for _ in range(n if self.batch else 1):
                    frame = self._pop()
                    if frame is None:
                        break
                    # Rule: a page on the wrong node ends it.
                    if is_wrong(frame, node):
                        return frames, frame
                    frames.append(frame)
            # Rule: with batch the lock is taken once.
            if self.batch:
                break
        return frames, None

    def _rest(self) -> Iterator[Frame]:
        while (frame := self._pop()) is not None:
            yield frame


class LinkedCache(Cache):
    """The consumer's cache as a list of linked pages: the same LIFO of 128."""

    def __init__(self) -> None:
        """Empty."""
        super().__init__()
        self.top: Frame | None = None
        self.cached = 0

    def __len__(self) -> int:
        """Pages in it."""
        return self.cached

    def push(self, frame: Frame) -> None:
        """On top. Not full."""
        frame.link = self.top
        self.top = frame
        self.cached += 1

    def pop(self) -> Frame:
        """Rule: the newest page first."""
        frame = self.top
        assert frame is not None, "a cache that is not empty has a top"
        self.top = frame.link
        self.cached -= 1
        return frame
