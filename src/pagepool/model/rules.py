# SPDX-License-Identifier: BSD-2-Clause
"""The rules of the page_pool: where a page comes from, and where it goes when it is put.

This is the specification; ``handles.py`` and ``pool.py`` only put Python objects around it. Nothing
here checks its caller, but for a page that is put a second time; as the C core.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from pagepool.model.checked import Poison
from pagepool.model.counters import Counters, InFlight
from pagepool.model.designs import make_cache, make_way
from pagepool.model.dma import Dma
from pagepool.model.frame import Frame
from pagepool.model.limits import BULK, CACHE_LINE, CACHE_REFILL, FRAG_BIAS, PAGE_SIZE
from pagepool.model.napi import Napi
from pagepool.model.provider import Provider
from pagepool.snapshot import PoolStats

_ids = itertools.count(1)
ALL = 0xFFFFFFFF  # bytes to sync: more than any page has


class Pool:
    """One consumer's pages: cache, way back, the page that is being cut up, and the counts."""

    def __init__(
        self,
        size: int,
        order: int,
        node: int | None,
        provider: Provider,
        dma: Dma | None,
        design: str = "ring",
    ) -> None:
        """Empty: pages come when the first is allocated."""
        self.id = next(_ids)
        self.order = order
        self.node = node
        self.provider = provider
        self.dma = dma  # None: pages are not mapped
        self.poison: Poison | None = None  # None: not a checked pool
        self.napi: Napi | None = None
        self.dying = False
        self.cache = make_cache(design)
        self.refill_to = CACHE_REFILL  # pages in the cache after a refill, at most
        self.way = make_way(design, size)  # below: the ring, which it is in the kernel
        self.frag: Frame | None = None  # the page that is being cut up
        self.frag_offset = 0  # where its next piece starts, bytes
        self.frag_users = 0  # pieces of it handed out
        self.count = Counters()
        self.in_flight = InFlight()
        self.allocations = 0
        self.refused_in_cache = 0

    @property
    def stats(self) -> PoolStats:
        """The counters of this moment."""
        return self.count.snapshot(*self.way.counted)

    @property
    def refused(self) -> int:
        """Puts of pages that were put already. Rule: they do nothing else."""
        return self.refused_in_cache + self.way.refused

    # -- allocate: the consumer

    def alloc(self) -> Frame | None:
        """A page, or None: no page to be had."""
        frame = self._alloc()
        if frame is not None:
            # Rule: its user may put it once. It says which allocation that is, so that a page that
            # was put and handed out again is told from one that was not. (In C it is 14 bits.)
            self.allocations += 1
            frame.held = self.allocations
        return frame

    def _alloc(self) -> Frame | None:
        # Rule 1: the cache is not empty: the newest page. `fast`.
        if len(self.cache):
            self.count.alloc_fast += 1
            return self.cache.pop()
        # Rule 2: pages go from the ring into the cache.
        self._refill()
        # Rule 3: there is a page in the cache now: `refill`.
        if len(self.cache):
            self.count.alloc_refill += 1
            return self.cache.pop()
        # Rule 4: the provider.
        return self._alloc_slow()

    def _refill(self) -> None:
        """Pages go from the ring into the empty cache, until it holds 64 or the ring is empty."""
        frames, wrong = self.way.take(self.refill_to, self.node)
        for frame in frames:
            self.cache.push(frame)
        # Rule: a page on the wrong node leaves the pool, `waive`, and has ended the refill.
        if wrong is not None:
            self.count.alloc_waive += 1
            self._leave(wrong)
        # Rule: the ring is empty: `empty`, on to the provider.
        elif not frames:
            self.count.alloc_empty += 1

    def _alloc_slow(self) -> Frame | None:
        if self.dma is not None:
            self.dma.refusal = None
        # Rule: a higher order is one page a call; order 0 is up to 64, into the cache.
        frames = self.provider.alloc(self.order, self.node, 1 if self.order else self.refill_to)
        for frame in frames:
            # Rule: a page that cannot be mapped goes back to the provider, the others come in.
            if self._enter(frame):
                self.cache.push(frame)
            else:
                frame.drop()
        # Rule: nothing to be had: nothing is counted.
        if not len(self.cache):
            return None
        if self.dma is not None:
            self.dma.refusal = None
        # Rule: one call counts one, `slow` or `slow_high_order`, however many pages came.
        if self.order:
            self.count.alloc_slow_high_order += 1
        else:
            self.count.alloc_slow += 1
        return self.cache.pop()

    def alloc_bulk(self, n: int) -> list[Frame]:
        """Up to n pages. Rule: as n allocations, until there is no page to be had."""
        frames: list[Frame] = []
        while len(frames) < n and (frame := self.alloc()) is not None:
            frames.append(frame)
        # Rule: why there were no more is nobody's concern.
        if frames and self.dma is not None:
            self.dma.refusal = None
        return frames

    def alloc_frag(self, size: int) -> tuple[Frame, int] | None:
        """A piece of 1 to page size bytes: its page, and where in it; None: no page to be had."""
        room = PAGE_SIZE << self.order
        # Rule: pieces start on cache lines.
        size = -(-size // CACHE_LINE) * CACHE_LINE
        frame = self.frag
        # Rule: pieces of one page follow each other until the next does not fit.
        if frame is not None and self.frag_offset + size <= room:
            offset = self.frag_offset
            self.frag_offset += size
            self.frag_users += 1
            return frame, offset
        # Rule: the page is used up. If all its pieces are back it is used again in place, and that
        # counts as a page that was put into the cache and taken out.
        if frame is not None and self._drop_rest(frame):
            self.count.alloc_fast += 1
            self.count.recycle_cached += 1
            self._sync(frame, ALL)
            return self._cut_first(frame, size), 0
        # Rule: else the next page.
        self.frag = None
        frame = self.alloc()
        if frame is None:
            return None
        return self._cut_first(frame, size), 0

    def _cut_first(self, frame: Frame, size: int) -> Frame:
        self.frag = frame
        self.frag_offset = size
        self.frag_users = 1
        # Rule: more users than there can be pieces, so that handing one out counts nothing.
        frame.users = FRAG_BIAS
        return frame

    def _drop_rest(self, frame: Frame) -> bool:
        """The users never handed out let go. True: all pieces are back, the page is here."""
        # Rule: pieces are out: the last of them brings the page back.
        if not frame.drop_users(FRAG_BIAS - self.frag_users):
            return False
        # Rule: somebody else holds the page, or it is an emergency one: it leaves the pool. Nobody
        # put it, so nothing is counted in `recycle`.
        if not frame.recyclable:
            self._leave(frame)
            return False
        return True

    # -- entering and leaving the pool

    def _enter(self, frame: Frame) -> bool:
        """False: it cannot be mapped."""
        if self.dma is not None and not self.dma.map(frame):
            return False
        frame.pool = self
        self.in_flight.hold(1)
        return True

    def _leave(self, frame: Frame) -> None:
        """Unmap it, count it out, then give the pool's reference back.

        The last holder frees the page.
        """
        if self.dma is not None:
            self.dma.unmap(frame)
        self.in_flight.release()
        frame.pool = None
        frame.held = 0
        frame.drop()

    # -- put: anyone

    def put(self, frame: Frame, allow_direct: bool, sync_size: int) -> None:
        """The page, or a piece of it, comes back.

        sync_size: bytes of the device's part that it may have to see.
        """
        # Rule 2: direct by the caller's promise, or because it is inside the pool's napi.
        direct = allow_direct or self._local
        # Rule 1: not the last piece: done.
        if not frame.drop_users(1):
            return
        # Rule 4: somebody else holds it, or it is from emergency reserves: it leaves the pool.
        if not frame.recyclable:
            self.count.recycle_released_refcnt += 1
            self._leave(frame)
            return
        # Rule 3: synced for the device (also if the ring turns out to be full), then if direct, and
        # there is room, into the cache; else the ring.
        self._was_put(frame, sync_size)
        if not (direct and self._recycle_in_cache(frame)):
            self._recycle_in_ring([frame])

    def _was_put(self, frame: Frame, sync_size: int) -> None:
        """By its last user, and it stays in the pool if there is room."""
        if self.poison is not None:
            self.poison.spread(frame)
        self._sync(frame, sync_size)

    def _sync(self, frame: Frame, size: int) -> None:
        if self.dma is not None:
            self.dma.sync_for_device(frame, size)

    @property
    def _local(self) -> bool:
        return self.napi is not None and self.napi.entered

    def _recycle_in_cache(self, frame: Frame) -> bool:
        # Rule: direct recycling is switched off when the pool is destroyed.
        if self.dying:
            return False
        # Rule: a second put is refused: nothing else happens.
        if not frame.held:
            self.refused_in_cache += 1
            return True
        # Rule: no room: `cache_full`, on to the ring.
        if self.cache.full:
            self.count.recycle_cache_full += 1
            return False
        frame.held = 0
        self.count.recycle_cached += 1
        self.cache.push(frame)
        return True

    def _recycle_in_ring(self, frames: list[Frame]) -> None:
        """One call of the ring's lock, for at most 64 pages; those that do not stay leave."""
        for frame in self.way.put(frames):
            self._leave(frame)

    @staticmethod
    def put_bulk(frames: Iterable[Frame]) -> None:
        """Many pages, possibly of several pools."""
        rest = list(frames)
        # Rule: one pool after the other, in the order of their first pages.
        while rest:
            pool = rest[0].pool
            assert pool is not None, "a page that is in flight has a pool"
            mine = [frame for frame in rest if frame.pool is pool]
            rest = [frame for frame in rest if frame.pool is not pool]
            pool._put_some(mine)

    def _put_some(self, frames: list[Frame]) -> None:
        """All of this pool's."""
        # Rule: nobody promises anything for a bulk put; the napi says whether it is direct.
        direct = self._local
        bulk: list[Frame] = []
        for frame in frames:
            # Rule: a piece, or a page that cannot be recycled: by itself.
            if not frame.recyclable:
                self.put(frame, direct, ALL)
                continue
            # Rule: all of the device's part is synced.
            self._was_put(frame, ALL)
            # Rule: into the cache while there is room; the rest into the ring, 64 at a time.
            if not (direct and self._recycle_in_cache(frame)):
                bulk.append(frame)
                if len(bulk) == BULK:
                    self._recycle_in_ring(bulk)
                    bulk = []
        if bulk:
            self._recycle_in_ring(bulk)

    # -- settings and the end: the consumer

    def update_nid(self, node: int | None) -> None:
        """Rule: the cache goes back to the provider; what is in the ring is looked at in refill."""
        self.node = node
        for frame in self.cache.pop_all():
            self._leave(frame)

    def destroy(self) -> None:
        """Rule: the page that is being cut up, the cache, the ring; stragglers come to `put`.

        Then nothing is mapped any more, wherever the stragglers are.
        """
        self.napi = None
        self.dying = True
        frag, self.frag = self.frag, None
        if frag is not None and self._drop_rest(frag):
            self._leave(frag)
        for frame in self.cache.pop_all():
            self._leave(frame)
        for frame in self.way.close():
            self._leave(frame)
        if self.dma is not None:
            self.dma.unmap_all()
