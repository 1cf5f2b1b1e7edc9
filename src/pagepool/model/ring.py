# SPDX-License-Identifier: BSD-2-Clause
"""Design ``ring``, the kernel's: a FIFO of pages in a circle of slots."""

from __future__ import annotations

from collections.abc import Iterator

from pagepool.model.frame import Frame
from pagepool.model.way import Locked, Taken, is_wrong

CLEARED_AT_ONCE = 16


class Ring(Locked):
    """A circle of slots; None is an empty slot.

    Producers look only at the slots, never at the consumer's position, and so does the consumer: so
    what has been consumed but not cleared is full for a producer.
    """

    def __init__(self, size: int) -> None:
        """Size in slots, pages."""
        super().__init__(size)
        self.slots: list[Frame | None] = [None] * size
        # Rule: slots are cleared 16 at a time, one by one in a ring of fewer than 32.
        self.batch = CLEARED_AT_ONCE if size >= 2 * CLEARED_AT_ONCE else 1
        self.producer = 0  # next slot to fill
        self.consumer = 0  # next slot to empty
        self.uncleared = 0  # first slot emptied and not cleared

    def _produce(self, frame: Frame) -> bool:
        # Rule: the ring is full when the slot to fill is not cleared, even if it was consumed: up
        # to 15 consumed slots make no room yet.
        if self.slots[self.producer] is not None:
            return False
        self.slots[self.producer] = frame
        self.producer = (self.producer + 1) % self.size
        return True

    def peek(self) -> Frame | None:
        """The oldest page, left there; None: the ring is empty."""
        return self.slots[self.consumer]

    def discard(self) -> None:
        """The oldest page was taken."""
        self.consumer += 1
        # Rule: a batch of consumed slots is complete, or the end of the circle is reached: they are
        # cleared (the last first, which only shows to who looks at the same time).
        if self.consumer - self.uncleared >= self.batch or self.consumer == self.size:
            for slot in reversed(range(self.uncleared, self.consumer)):
                self.slots[slot] = None
            self.consumer %= self.size
            self.uncleared = self.consumer

    def take(self, n: int, node: int | None) -> Taken:
        """The oldest first, one by one; without the lock."""
        frames: list[Frame] = []
        # Rule: until there are n, or the ring is empty.
        while len(frames) < n and (frame := self.peek()) is not None:
            self.discard()
            # Rule: a page on the wrong node ends it.
            if is_wrong(frame, node):
                return frames, frame
            frames.append(frame)
        return frames, None

    def _rest(self) -> Iterator[Frame]:
        while (frame := self.peek()) is not None:
            self.discard()
            yield frame
