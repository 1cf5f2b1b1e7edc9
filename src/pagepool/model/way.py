# SPDX-License-Identifier: BSD-2-Clause
"""What a design is: the way of pages from those who put them back to the consumer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from pagepool.model.frame import Frame

#: What a refill takes out: pages, and the page on the wrong node that has ended it.
Taken = tuple[list[Frame], Frame | None]


class Lock:
    """The producers' lock. A call is one step here, so nobody ever waits for it.

    It shows what is done under one lock; ``pagepool.simulate`` has one to wait for.
    """

    def __enter__(self) -> None:
        """Take it."""

    def __exit__(self, *exc: object) -> None:
        """Leave it."""


class Way(ABC):
    """What sits between those who put pages and the one who allocates; a file per design."""

    def __init__(self, size: int) -> None:
        """Empty. size: pages."""
        self.size = size
        self.closed = False  # the pool was destroyed
        self.refused = 0  # puts of pages that were put already

    @abstractmethod
    def put(self, frames: list[Frame]) -> list[Frame]:
        """From any thread: one call for at most 64 pages; those that leave the pool."""

    @abstractmethod
    def take(self, n: int, node: int | None) -> Taken:
        """The consumer: up to n pages, those on node if there is one asked for."""

    @property
    @abstractmethod
    def counted(self) -> tuple[int, int]:
        """Statistics ``recycle_ring`` and ``recycle_ring_full``."""

    @abstractmethod
    def _rest(self) -> Iterable[Frame]:
        """Closed: take out every page."""

    def close(self) -> list[Frame]:
        """Nothing enters any more. Every page that is in it, the oldest first."""
        self.closed = True
        return list(self._rest())

    def flush(self) -> None:  # noqa: B027
        """What the calling thread has put can be taken. Rule: but in lanes it always can."""

    @property
    def held_back(self) -> int:
        """Pages that were put and cannot be taken yet."""
        return 0

    def _given_back(self, frame: Frame) -> bool:
        """Its user gives it back. False: he had done so before."""
        # Rule: a second put is refused, nothing else happens.
        if not frame.held:
            self.refused += 1
            return False
        frame.held = 0
        return True


def is_wrong(frame: Frame, node: int | None) -> bool:
    """Rule: without a node asked for, any page is right."""
    return node is not None and frame.node != node


class Locked(Way):
    """A design with one lock for all who put: a call takes it once."""

    def __init__(self, size: int) -> None:
        """Empty. size: pages."""
        super().__init__(size)
        self.lock = Lock()
        self.recycle_ring = 0
        self.recycle_ring_full = 0

    @abstractmethod
    def _produce(self, frame: Frame) -> bool:
        """Under the lock. False: full."""

    @property
    def counted(self) -> tuple[int, int]:
        """Statistics ``recycle_ring`` and ``recycle_ring_full``."""
        return self.recycle_ring, self.recycle_ring_full

    def _count_full(self, pages: int) -> None:
        """So many pages of one call did not fit."""
        # Rule: `ring_full` counts the call, not the pages.
        del pages
        self.recycle_ring_full += 1

    def put(self, frames: list[Frame]) -> list[Frame]:
        """Into it, under one lock; those that leave the pool."""
        with self.lock:
            frames = [frame for frame in frames if self._given_back(frame)]
            # Rule: the pool was destroyed: nothing would take them out again. They count as passing
            # through the ring, and leave at once.
            if self.closed:
                self.recycle_ring += len(frames)
                return frames
            fitted = 0
            while fitted < len(frames) and self._produce(frames[fitted]):
                fitted += 1
            self.recycle_ring += fitted
            # Rule: what does not fit leaves the pool.
            if fitted < len(frames):
                self._count_full(len(frames) - fitted)
            return frames[fitted:]
