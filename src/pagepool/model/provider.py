# SPDX-License-Identifier: BSD-2-Clause
"""Where pages come from: what arenas and regions share, with the C core's order of pages.

A buddy allocator (power-of-two blocks that split and merge) behind a magazine per thread (a stack
of free pages). Neither is a rule of the page_pool; they are here so that engine and model hand out
the same page, by its number, after any sequence of calls.
"""

from __future__ import annotations

import threading
import weakref
from typing import ClassVar, NamedTuple

from pagepool import errors
from pagepool.model.context import STEP
from pagepool.model.frame import Frame, Memory
from pagepool.model.limits import CHUNK_PAGES, MAX_ORDER, PAGE_SHIFT, PAGE_SIZE

MAX_LIMIT = (0xFFFFFFFF - CHUNK_PAGES) << PAGE_SHIFT


class ArenaInfo(NamedTuple):
    """What a provider has and gave out, in bytes, and how often it had nothing to give."""

    limit: int
    mapped: int
    out: int
    failed: int
    node: int | None
    huge: str
    lacks: tuple[str, ...] = ()  # never anything here: a node is a label, so is a huge page


class Buddy:
    """Free blocks by order. The block freed last is used first."""

    def __init__(self, limit: int) -> None:
        """limit: pages; nothing is mapped yet."""
        self.limit = limit
        self.mapped = 0
        # The keys are the blocks' first pages; a dict, because a block that merges leaves from the
        # middle. The last entry is the head of the list.
        self._free: list[dict[int, None]] = [{} for _ in range(MAX_ORDER + 1)]

    def alloc(self, order: int) -> int | None:
        """First page of a free block of exactly this order; None: there is none, of no larger one.

        A larger block is split: the lower half is used, upper halves stay free.
        """
        for larger in range(order, MAX_ORDER + 1):
            if not self._free[larger]:
                continue
            first, _ = self._free[larger].popitem()
            for half in reversed(range(order, larger)):
                self._free[half][first + (1 << half)] = None
            return first
        return None

    def add(self, first: int, pages: int) -> None:
        """So many pages as they are: whole chunks, then blocks that get smaller."""
        end = first + pages
        while first < end:
            order = min((end - first).bit_length() - 1, MAX_ORDER)
            self._free[order][first] = None
            first += 1 << order
        self.mapped = end

    def free(self, first: int, order: int) -> None:
        """The block is free; it merges with its free buddy, and that block with its own."""
        while order < MAX_ORDER:
            buddy = first ^ (1 << order)
            if buddy not in self._free[order]:
                break
            del self._free[order][buddy]
            first &= ~(1 << order)
            order += 1
        self._free[order][first] = None

    def grow(self) -> bool:
        """One chunk more. False: the limit is reached."""
        if self.mapped == self.limit:
            return False
        self.add(self.mapped, CHUNK_PAGES)
        return True


class Magazine:
    """One thread's free pages of one provider, newest last."""

    SIZE = 128
    FLUSH = 64

    def __init__(self, provider: Provider) -> None:
        """Empty."""
        self.frames: list[Frame] = []
        self._provider = weakref.ref(provider)

    def flush(self, n: int) -> None:
        """The n oldest go back to the buddy."""
        oldest = self.frames[:n]
        del self.frames[:n]
        provider = self._provider()
        if provider is not None:
            provider.give(oldest)

    def __del__(self) -> None:
        """The thread exits: all of it goes back."""
        provider, frames = self._provider(), self.frames
        if provider is not None and frames:
            give = provider.give
            STEP.later(lambda: give(frames))


class Provider:
    """Where pages come from: an Arena or a Region. May serve several pools, from several threads.

    A page that is out keeps its provider, a free one does not: so the memory goes with the last
    reference and the last page.
    """

    #: The C core has none where the system has no membarrier(); a test may say so here.
    has_magazines: ClassVar[bool] = True

    _made = False

    def __init__(self) -> None:
        """Raises TypeError."""
        raise TypeError("a provider is an Arena or a Region")

    def _once(self) -> None:
        """Before it is made; after its arguments, whose own code may have made it meanwhile."""
        if self._made:
            name = type(self).__name__
            raise TypeError(f"{'an' if name[0] in 'AEIOU' else 'a'} {name} is made once")

    def _make(self, base: int, limit: int, reserve: int, node: int | None) -> None:
        """base: the address of page 0; limit: pages; reserve: bytes."""
        self.base = base
        self.node = node
        self._reserve = -(-reserve // PAGE_SIZE)
        self._buddy = Buddy(limit)
        self._frames: dict[int, Frame] = {}
        self._taken = 0  # pages not in the buddy: handed out, or in a magazine
        self._failed = 0
        self._local = threading.local()
        self._magazines: list[weakref.ref[Magazine]] = []  # the newest first
        self._made = True

    def _check(self) -> None:
        if not self._made:
            raise errors.InvalidParameter(f"this {type(self).__name__} was never made")

    @property
    def _huge(self) -> str:
        return "none"

    def bytes_of(self, frame: Frame) -> bytearray | memoryview:
        """The memory of a page that is handed out."""
        raise NotImplementedError

    # -- handing out

    def alloc(self, order: int, node: int | None, n: int) -> list[Frame]:
        """Up to n pages for a pool that wants them on that node."""
        got: list[Frame] = []
        # What this thread freed last, first: the n newest of its magazine, in the order of freeing.
        if order == 0 and self.has_magazines:
            magazine = self._magazine()
            got = magazine.frames[-n:]
            del magazine.frames[-n:]
            for frame in got:
                frame.handed_out(self, 0, self._reserve > 0 and self._low())
        got += self._take(order, n - len(got))
        if not got:
            # The last resort: what lies idle in the magazines of all threads.
            for reference in self._magazines:
                idle = reference()
                if idle is not None:
                    idle.flush(len(idle.frames))
            got = self._take(order, n)
            if not got:
                self._failed += 1
        for frame in got:
            # Rule: the provider's node, or the one that was asked for, or 0.
            frame.node = next(nid for nid in (self.node, node, 0) if nid is not None)
        return got

    def _take(self, order: int, n: int) -> list[Frame]:
        """From the buddy; order 0 in blocks as large as there are, so they lie together."""
        got: list[Frame] = []
        while len(got) < n:
            block = order or min((n - len(got)).bit_length() - 1, MAX_ORDER)
            first = self._buddy.alloc(block)
            # Rather grow than use smaller blocks.
            if first is None and self._buddy.grow():
                continue
            while first is None and block > order:
                block -= 1
                first = self._buddy.alloc(block)
            if first is None:
                break
            for number in range(first, first + (1 << (block - order))):
                frame = self._frames.get(number)
                if frame is None:
                    frame = Frame(number, self.base + number * PAGE_SIZE)
                    self._frames[number] = frame
                self._taken += 1 << order
                frame.handed_out(self, order, self._low())
                got.append(frame)
        return got

    def _low(self) -> bool:
        """Rule: the last pages below the limit are the emergency reserves."""
        return self._taken > self._buddy.limit - self._reserve

    # -- taking back

    def free(self, frame: Frame) -> None:
        """The last holder let go: into the calling thread's magazine, or if large to the buddy."""
        if frame.order or not self.has_magazines:
            self.give([frame])
            return
        magazine = self._magazine()
        if len(magazine.frames) == Magazine.SIZE:
            magazine.flush(Magazine.FLUSH)
        magazine.frames.append(frame)

    def give(self, frames: list[Frame]) -> None:
        """Back to the buddy."""
        for frame in frames:
            self._taken -= 1 << frame.order
            self._buddy.free(frame.number, frame.order)

    def _magazine(self) -> Magazine:
        if not hasattr(self._local, "magazine"):
            magazine = self._local.magazine = Magazine(self)
            self._magazines = [weakref.ref(magazine)] + [
                reference for reference in self._magazines if reference() is not None
            ]
        mine: Magazine = self._local.magazine
        return mine

    # -- views that outlive a put

    def watch(self, frame: Frame, memory: Memory) -> None:
        """Rule: the views of this memory hold the page, and the last of them frees it."""
        frame.get()
        memory.when_not_viewed(frame.drop)

    # -- figures

    @property
    def info(self) -> ArenaInfo:
        """Figures of this moment."""
        self._check()
        with STEP:
            magazines = [reference() for reference in self._magazines]
            idle = sum(len(magazine.frames) for magazine in magazines if magazine is not None)
            return ArenaInfo(
                self._buddy.limit << PAGE_SHIFT,
                self._buddy.mapped << PAGE_SHIFT,
                (self._taken - idle) << PAGE_SHIFT,
                self._failed,
                self.node,
                self._huge,
            )

    def __repr__(self) -> str:
        """What is out."""
        name = type(self).__name__
        if not self._made:
            return f"<pagepool.{name}, never made>"
        info = self.info
        return (
            f"<pagepool.{name}, {info.out} bytes out of {info.mapped} mapped, limit {info.limit}>"
        )
