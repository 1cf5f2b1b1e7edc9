# SPDX-License-Identifier: BSD-2-Clause
"""The pool as Python sees it: who may call what, over the rules."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Literal, Self, SupportsIndex, final

from pagepool import errors
from pagepool.model.arena import Arena
from pagepool.model.checked import Checked, Poison, Record, how_checked, report_written
from pagepool.model.context import STEP
from pagepool.model.device import Device
from pagepool.model.dma import Dma
from pagepool.model.frame import Frame
from pagepool.model.handles import Page, PageBatch, site
from pagepool.model.limits import (
    DEFAULT_POOL_SIZE,
    MAX_ORDER,
    MAX_POOL_SIZE,
    PAGE_SIZE,
    check_design,
    check_node,
    check_seconds,
    node_number,
    unsigned,
)
from pagepool.model.napi import Napi
from pagepool.model.provider import Provider
from pagepool.model.rules import ALL, Pool
from pagepool.snapshot import DmaStats, Holder, PoolStats

DMA_DIRS = ("from_device", "bidirectional")


def _is_a(thing: object, cls: type, what: str) -> None:
    if not isinstance(thing, cls):
        raise TypeError(f"{what} must be a {cls.__name__}, not {type(thing).__name__}")


@final
class PagePool:
    """The kernel's page_pool: pages that come back are handed out again.

    One consumer allocates: the thread inside the pool's napi, or without a napi any one thread at
    a time. Pages come back from any thread, also after the pool was closed. A context manager;
    leaving it closes it.
    """

    def __init__(
        self,
        *,
        pool_size: SupportsIndex = 0,
        order: SupportsIndex = 0,
        node: SupportsIndex | None = None,
        napi: Napi | None = None,
        provider: Provider | None = None,
        device: Device | None = None,
        dma_sync: bool = False,
        dma_dir: Literal["from_device", "bidirectional"] = "from_device",
        offset: SupportsIndex = 0,
        max_len: SupportsIndex | None = None,
        track_mappings: bool = True,
        design: str | None = None,
        checked: Checked = False,
        statistics: bool = True,
        retry: float = 1.0,
        warn: float = 60.0,
    ) -> None:
        """Make a pool; pages come when the first is allocated.

        pool_size: slots of the ring, in pages; 0: 1024; over 16384: clamped, as in Linux 6.17.
        order: a page is ``4096 << order`` bytes; 10 at most.
        node: NUMA node that pages should be on; others are given back (``alloc_waive``).
        napi: the consumer's context.
        provider: where pages come from; ``None``: an arena of its own.
        device: pages are mapped for it while they are in the pool.
        dma_sync: and synced for it when they enter and when they are recycled.
        dma_dir: who writes to them: the device, or both.
        offset, max_len: which part of a page is the device's; ``None``, and without dma_sync 0:
        all behind offset.
        track_mappings: ``False``: the rule up to Linux 6.15, which does not know at the end which
        pages are mapped: one that comes back later is unmapped through a device that may be gone.
        design: what sits between those who return pages and the consumer: ``ring`` (the kernel's),
        ``list``, ``ours``; see ``docs/designs.md``. ``None``: what ``PAGEPOOL_DESIGN`` in the
        environment says, or ``ring``.
        checked: remember who has which page since when (``holders()``), say in the errors where a
        page was allocated and put, and find what is written to a page after it was put: 64 bytes of
        it are overwritten while it is in the pool; ``"full"``: all of it. ``PAGEPOOL_CHECKED=1``,
        or ``full``, in the environment sets it for all pools.
        statistics: ``False``: ``stats`` raises NotSupported.
        retry, warn: seconds; checked and not used, since the model has no clock.

        Raises InvalidParameter, TypeError.
        """
        high = unsigned(order, "order", 0xFFFF)
        size = unsigned(pool_size, "pool_size", 0xFFFFFFFF)
        nid = node_number(node)
        check_seconds(retry, "retry")
        check_seconds(warn, "warn")
        if napi is not None:
            _is_a(napi, Napi, "napi")
        if provider is not None:
            _is_a(provider, Provider, "provider")
            provider._check()
        if device is not None:
            _is_a(device, Device, "device")
            device._check()
        start = unsigned(offset, "offset", 0xFFFFFFFF)
        part = None if max_len is None else unsigned(max_len, "max_len", 0xFFFFFFFF)
        page_size = PAGE_SIZE << high
        # Rule: without a sync for the device it may be left out.
        if part is None or (part == 0 and not dma_sync):
            part = max(page_size - start, 0)
        self._design = check_design(design)
        if dma_dir not in DMA_DIRS:
            raise errors.InvalidParameter(
                f"dma_dir is {dma_dir!r}: must be one of {', '.join(DMA_DIRS)}, "
                "since a pool's pages are for receiving"
            )
        if dma_sync and device is None:
            raise errors.InvalidParameter("dma_sync without a device: there is nobody to sync for")
        if dma_sync and part == 0:
            raise errors.InvalidParameter("dma_sync with max_len 0: there is nothing to sync")
        self._checked = how_checked(checked)
        if high > MAX_ORDER:
            raise errors.InvalidParameter(
                f"order {high}: a page is at most of order {MAX_ORDER} "
                f"({PAGE_SIZE << MAX_ORDER} bytes)"
            )
        if start + part > page_size:
            raise errors.InvalidParameter(
                f"offset {start} and max_len {part} are more than a page of {page_size} bytes"
            )
        self._records: dict[int, Record] = {}  # checked: by address, of its last use
        self._provider = provider
        self._device = device
        self._dma_dir = dma_dir
        self._part = range(start, start + part)
        self._statistics = statistics
        self._closed = False
        with STEP:
            ring = min(size or DEFAULT_POOL_SIZE, MAX_POOL_SIZE)
            check_node(nid)
            dma = (
                None
                if device is None
                else Dma(device, dma_dir, dma_sync, self._part, track_mappings)
            )
            source = Arena() if provider is None else provider
            self._pool = Pool(ring, high, nid, source, dma, self._design)
            self._pool.napi = napi
            if self._checked:
                at = 0 if device is None else start
                self._pool.poison = Poison(self._checked == "full", at, page_size)

    # -- who may do what

    def _check(self) -> None:
        # Rule: a closed pool allocates never again.
        if self._closed:
            raise errors.PoolClosed("the pool is closed: nothing is allocated from it any more")

    def _elsewhere(self) -> bool:
        napi = self._pool.napi
        return napi is not None and not napi.entered

    def _check_consumer(self) -> None:
        self._check()
        # Rule: only the consumer allocates: with a napi, the thread that is in it.
        if self._elsewhere():
            raise errors.WrongContext(
                f"pool {self.id} is bound to a napi, and this thread is not in it: "
                "allocate inside `with napi:`"
            )

    def _check_promise(self) -> None:
        # Rule: a promise of direct recycling that is known to be broken is refused.
        if self._elsewhere():
            raise errors.WrongContext(
                f"pool {self.id} is bound to a napi, and this thread is not in it: "
                "the promise of direct recycling cannot be kept"
            )

    def _check_mine(self, page: Page) -> None:
        # Rule: a page goes back to its own pool.
        if page.pool is not self:
            raise errors.ForeignPage(
                f"page allocated at {page.allocated_at} belongs to pool "
                f"{page.pool.id}, not to this one"
            )

    # -- allocate

    def alloc(self) -> Page:
        """One page; its content is what the last user left, or zeros.

        Raises OutOfPages, WrongContext (bound to a napi, and the calling thread is not in it),
        PoolClosed.
        """
        with STEP:
            self._check_consumer()
            frame = self._pool.alloc()
            if frame is None:
                raise self._out_of_pages()
            page = Page._of(self, frame, site(2))
            if self._checked:
                page._record = self._remember([frame], page.address, len(page))
            return page

    def alloc_frag(self, size: int, /) -> Page:
        """A piece of a page, for a small buffer: a Page of exactly ``size`` bytes.

        Raises as ``alloc``, and InvalidParameter for a size below 1 or over ``page_size``.
        """
        with STEP:
            self._check_consumer()
            # Rule: a piece larger than the page is refused.
            if not 1 <= size <= self.page_size:
                raise errors.InvalidParameter(
                    f"a piece of {size} bytes: must be from 1 to {self.page_size}, "
                    "the page of this pool"
                )
            piece = self._pool.alloc_frag(size)
            if piece is None:
                raise self._out_of_pages()
            frame, offset = piece
            page = Page._piece_of(self, frame, site(2), offset, size)
            if self._checked:
                page._record = self._remember([frame], page.address, len(page))
            return page

    def alloc_bulk(self, n: int, /) -> PageBatch:
        """Up to n pages, at least one. Raises as ``alloc``, and InvalidParameter for n < 1."""
        with STEP:
            self._check_consumer()
            if n < 1:
                raise errors.InvalidParameter(f"alloc_bulk of {n} pages: ask for at least one")
            frames = self._pool.alloc_bulk(n)
            # Rule: fewer pages than asked for are a success, none are not.
            if not frames:
                raise self._out_of_pages()
            batch = PageBatch._of(self, frames, site(2))
            if self._checked:
                batch._record = self._remember(frames, None, self.page_size)
            return batch

    def _remember(self, frames: list[Frame], address: int | None, length: int) -> Record:
        """They were allocated here and now; address: of the one page, or piece."""
        for frame in frames:
            assert self._pool.poison is not None
            byte = self._pool.poison.written(frame)
            if byte is not None:
                report_written(self.id, frame, byte, self._records.get(frame.address))
        record = Record(length)
        for frame in frames:
            self._records[frame.address if address is None else address] = record
        return record

    def _out_of_pages(self) -> errors.OutOfPages:
        dma = self._pool.dma
        refusal = None if dma is None else dma.take_refusal()
        if self._device is not None and refusal is not None:
            error = errors.OutOfPages(
                f"pool {self.id} has no page: none could be mapped for device "
                f"{self._device.name}, {self.inflight} pages in flight"
            )
            error.__cause__ = refusal
            return error
        return errors.OutOfPages(
            f"pool {self.id} has no page: its provider is at its limit or the "
            f"system is out of memory, {self.inflight} pages in flight"
        )

    # -- put

    def put(self, page: Page, /, *, allow_direct: bool = False, dma_sync_size: int = -1) -> None:
        """Give a page back; from any thread.

        allow_direct: the promise that the caller runs where the consumer runs. True by itself
        inside the pool's napi.
        dma_sync_size: bytes of the device's part that it may have to see; -1: all.

        Raises PageGone (put already), ForeignPage (of another pool), WrongContext (the promise is
        known to be broken); the page then stays what it was.
        """
        _is_a(page, Page, "page")
        if dma_sync_size < -1:
            raise errors.InvalidParameter(
                f"dma_sync_size is {dma_sync_size}: must be a number of bytes, or -1 for all"
            )
        with STEP:
            page._check()
            self._check_mine(page)
            if allow_direct:
                self._check_promise()
            page._give_back(allow_direct, ALL if dma_sync_size < 0 else dma_sync_size)

    def put_full(self, page: Page, /, *, allow_direct: bool = False) -> None:
        """``put`` with all of the page to be synced for the device."""
        self.put(page, allow_direct=allow_direct)

    def recycle_direct(self, page: Page, /) -> None:
        """``put_full`` with ``allow_direct``."""
        self.put(page, allow_direct=True)

    @staticmethod
    def put_bulk(pages: PageBatch | Iterable[Page], /) -> None:
        """Give many pages back, possibly of several pools.

        Direct for pools whose napi the calling thread is in. Nothing is put if one of them cannot
        be: raises PageGone, TypeError.
        """
        if isinstance(pages, PageBatch):
            pages.put()
            return
        with STEP:
            gathered = list(pages)
            seen: set[int] = set()
            # Rule: all or nothing.
            for page in gathered:
                if not isinstance(page, Page):
                    raise TypeError(f"put_bulk takes pages, not {type(page).__name__}")
                if id(page) in seen:
                    raise errors.PageGone(
                        f"page allocated at {page.allocated_at} is in this put_bulk twice"
                    )
                page._check()
                seen.add(id(page))
            # Rule: pages that somebody has a view of leave their pool, before the others are put.
            bulk = []
            for page in gathered:
                if page._viewed:
                    page._give_back(False)
                else:
                    bulk.append(page._frame)
                    page._put_from_now_on()
            Pool.put_bulk(bulk)

    def flush(self) -> None:
        """What the calling thread has put can be had by the consumer at once.

        For a thread that goes idle. Design ``ours``; with the others it is so anyway.
        """
        with STEP:
            self._pool.way.flush()

    # -- what the device wrote

    def dma_sync_for_cpu(
        self, page: Page, /, offset: SupportsIndex = 0, size: SupportsIndex | None = None
    ) -> None:
        """What the device wrote into the page is the caller's to see; before it is looked at.

        size bytes, from offset bytes into the device's part of the page, or into the piece;
        ``None``: all behind offset. What goes beyond the device's part is left out. Raises
        PageGone, ForeignPage, NotSupported (no device), InvalidParameter.
        """
        _is_a(page, Page, "page")
        start = unsigned(offset, "offset", 0xFFFFFFFF)
        length = ALL if size is None else unsigned(size, "size", 0xFFFFFFFF)
        with STEP:
            page._check()
            self._check_mine(page)
            if self._pool.dma is None:
                raise self._no_device()
            # Rule: the device's part of the page, and of a piece what it has of that.
            first, end = self._part.start, self._part.stop
            if page._piece:
                first, end = page._offset, min(end, page._offset + len(page))
            part = range(max(first + start, self._part.start), min(first + start + length, end))
            self._pool.dma.sync_for_cpu(page._frame, part.start, len(part))

    def _no_device(self) -> errors.NotSupported:
        return errors.NotSupported(f"pool {self.id} was made without a device")

    # -- settings

    def _count_from(self, n: int, /) -> None:
        """For tests, on a new pool: as if n pages had come and gone; so the 32-bit counts wrap."""
        self._pool.in_flight.held = self._pool.in_flight.released = n & 0xFFFFFFFF

    def update_nid(self, node: SupportsIndex | None, /) -> None:
        """Pages should be on another NUMA node now: the cache goes back to the provider.

        The consumer's call. Raises WrongContext, PoolClosed, InvalidParameter.
        """
        nid = node_number(node)
        with STEP:
            self._check_consumer()
            check_node(nid)
            self._pool.update_nid(nid)

    def enable_direct_recycling(self, napi: Napi, /) -> None:
        """Bind the pool to a napi. Raises WrongContext if it is bound to another."""
        _is_a(napi, Napi, "napi")
        with STEP:
            self._check()
            if self._pool.napi not in (None, napi):
                raise errors.WrongContext(
                    f"pool {self.id} is bound to another napi: disable direct recycling first"
                )
            self._pool.napi = napi

    def disable_direct_recycling(self) -> None:
        """Unbind it. Raises WrongContext while a thread is in the napi."""
        with STEP:
            self._check()
            if self._pool.napi is not None and self._pool.napi.taken:
                raise errors.WrongContext(
                    f"a thread is in the napi of pool {self.id}: let it leave first"
                )
            self._pool.napi = None

    # -- the end

    def close(self) -> None:
        """Destroy the pool; again: nothing happens.

        Cache and ring go back to the provider. With pages out it lives on until the last one is
        put. Raises WrongContext while another thread is in its napi.
        """
        with STEP:
            if self._closed:
                return
            napi = self._pool.napi
            # Rule: not under another thread's poll.
            if napi is not None and napi.taken and not napi.entered:
                raise errors.WrongContext(
                    f"thread {napi._name!r} is in the napi of pool {self.id}: "
                    "let it leave before the pool is closed"
                )
            self._closed = True
            self._pool.destroy()

    def __del__(self) -> None:
        """Dropped: no Page is left, they keep the pool; what is cached goes back."""
        pool = getattr(self, "_pool", None)
        if pool is not None and not self._closed:
            STEP.later(pool.destroy)

    def __enter__(self) -> Self:
        """Raises PoolClosed."""
        self._check()
        return self

    def __exit__(self, *exc: object) -> None:
        """``close``."""
        self.close()

    # -- facts

    @property
    def stats(self) -> PoolStats:
        """The counters of this moment. Raises NotSupported."""
        with STEP:
            if not self._statistics:
                raise errors.NotSupported(f"pool {self.id} was made without statistics")
            return self._pool.stats

    def holders(self) -> list[Holder]:
        """The pages and pieces that are out, the oldest first, with who allocated them where.

        Raises NotSupported: the pool is not checked.
        """
        with STEP:
            if not self._checked:
                raise errors.NotSupported(
                    f"pool {self.id} is not checked: make it with checked=True"
                )
            now = time.monotonic()
            found = [
                Holder(
                    address,
                    record.length,
                    now - record.at,
                    record.thread,
                    record.site,
                    record.traceback,
                )
                for address, record in self._records.items()
                if record.put is None
            ]
        return sorted(found, key=lambda holder: (-holder.age, holder.address))

    @property
    def checked(self) -> Checked:
        """In checked mode, also by the environment."""
        return self._checked

    @property
    def design(self) -> str:
        """What sits between those who return pages and the consumer."""
        return self._design

    @property
    def dma_stats(self) -> DmaStats:
        """What the pool asked of its device so far. Raises NotSupported (it has none)."""
        with STEP:
            if self._pool.dma is None:
                raise self._no_device()
            return self._pool.dma.count.snapshot()

    @property
    def inflight(self) -> int:
        """Pages handed out or in cache or ring: held minus released, 32 bits, signed."""
        return self._pool.in_flight.pages

    @property
    def held_back(self) -> int:
        """Pages put by all threads that wait for a batch to be complete.

        At most 31 a thread; the consumer has them before it asks the provider. Design ``ours``;
        0 with the others.
        """
        with STEP:
            return self._pool.way.held_back

    @property
    def id(self) -> int:
        """From 1, unique in the process."""
        return self._pool.id

    @property
    def order(self) -> int:
        """Of its pages."""
        return self._pool.order

    @property
    def pool_size(self) -> int:
        """Slots of the ring, in pages."""
        return self._pool.way.size

    @property
    def page_size(self) -> int:
        """Bytes of a page: ``4096 << order``."""
        return PAGE_SIZE << self._pool.order

    @property
    def node(self) -> int | None:
        """NUMA node asked for."""
        return self._pool.node

    @property
    def napi(self) -> Napi | None:
        """The napi that it is bound to."""
        return self._pool.napi

    @property
    def provider(self) -> Provider | None:
        """The provider that was given; ``None``: one of its own."""
        return self._provider

    @property
    def device(self) -> Device | None:
        """The device that its pages are mapped for."""
        return self._device

    @property
    def dma_dir(self) -> str:
        """Who writes to its pages: ``"from_device"`` or ``"bidirectional"``."""
        return self._dma_dir

    @property
    def offset(self) -> int:
        """Where in a page the device's part starts, bytes."""
        return self._part.start

    @property
    def max_len(self) -> int:
        """Bytes of that part."""
        return len(self._part)

    @property
    def closed(self) -> bool:
        """Was it closed?"""
        return self._closed

    def __repr__(self) -> str:
        """Sizes and what is in flight."""
        return (
            f"<pagepool.PagePool {self.id}: pages of {self.page_size} bytes, "
            f"ring of {self.pool_size}, {self.inflight} in flight"
            f"{', closed' if self._closed else ''}>"
        )
