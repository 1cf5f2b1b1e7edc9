# SPDX-License-Identifier: BSD-2-Clause
"""What a caller holds: a page (or a piece of one), and a batch of pages."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self, final

from pagepool import errors
from pagepool.model.checked import Record
from pagepool.model.context import STEP
from pagepool.model.frame import Frame, Memory
from pagepool.model.rules import ALL

if TYPE_CHECKING:
    from pagepool.model.pool import PagePool


def site(depth: int) -> str:
    """File and line of the caller's caller, depth frames above this function."""
    frame = sys._getframe(depth)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _warn_dropped(text: str) -> None:
    # From a destructor, perhaps while the interpreter exits and half of it is gone.
    with contextlib.suppress(TypeError, AttributeError, ImportError):
        warnings.warn(text, ResourceWarning, stacklevel=3)


@final
class Page:
    """A page that the caller holds, or a piece of one: writable bytes, and a context manager.

    ``page.view()`` is all of it. The page itself is a buffer too (``memoryview(page)``) from Python
    3.12 on; before, Python has no way for a class that is not written in C to be one.

    Putting a page while a view of it exists is allowed: the page then leaves its pool
    (``recycle_released_refcnt``) and its memory lives until the last view is gone. A page that is
    dropped without a put goes back to its pool and gives a ResourceWarning that says where it was
    allocated.
    """

    _pool: PagePool
    _frame: Frame
    _memory: Memory | None  # a piece's
    _length: int
    _offset: int
    _piece: bool
    _site: str
    _held: bool = False
    _record: Record | None = None  # None: not of a checked pool

    def __init__(self) -> None:
        """Raises TypeError."""
        raise TypeError("pages come from a pool: pool.alloc()")

    @classmethod
    def _of(cls, pool: PagePool, frame: Frame, where: str) -> Page:
        """The whole page."""
        page = cls.__new__(cls)
        page._pool, page._frame, page._site, page._held = pool, frame, where, True
        page._memory, page._length, page._offset, page._piece = None, frame.size, 0, False
        return page

    @classmethod
    def _piece_of(cls, pool: PagePool, frame: Frame, where: str, offset: int, size: int) -> Page:
        """A piece of it."""
        page = cls._of(pool, frame, where)
        page._memory, page._length = Memory(frame, offset, size), size
        page._offset, page._piece = offset, True
        return page

    def _check(self) -> None:
        # Rule: a page that was put is not the caller's any more.
        if not self._held:
            text = f"page allocated at {self._site} was put already"
            record = self._record
            if record is None:
                raise errors.PageGone(text)
            if record.put is not None:
                text += f", {record.put_by}"
            raise record.add_to(errors.PageGone(text))

    def _bytes(self) -> Memory:
        return self._frame.memory if self._memory is None else self._memory

    @property
    def _viewed(self) -> bool:
        return self._frame.viewed if self._memory is None else self._memory.viewed

    def _put_from_now_on(self) -> None:
        self._held = False
        if self._record is not None:
            self._record.was_put()

    def _give_back(self, allow_direct: bool, sync_size: int = ALL) -> None:
        """Held, in a step."""
        self._put_from_now_on()
        # Rule: a view is somebody else who holds the page.
        if self._viewed:
            assert self._frame.provider is not None
            self._frame.provider.watch(self._frame, self._bytes())
        self._pool._pool.put(self._frame, allow_direct, sync_size)

    def __del__(self) -> None:
        """Dropped: it is not lost, it goes back before anybody is told."""
        if self._held:
            what = "piece of a page" if self._piece else "page"
            pool_id, where = self._pool.id, self._site
            STEP.later(lambda: self._give_back(False))
            _warn_dropped(
                f"{what} of pool {pool_id}, allocated at {where}, was dropped without a put; "
                "the pool has it back"
            )

    def view(self) -> memoryview:
        """All of it as writable bytes: the same object as long as somebody has it.

        Drop it (and slices of it) before the put, or the page leaves the pool. Raises PageGone.
        """
        self._check()
        # Rule: who has a view of a piece has the piece.
        return self._bytes().view(self if self._piece else None)

    def __buffer__(self, flags: int, /) -> memoryview:
        """A view. Raises PageGone."""
        return memoryview(self.view())

    def put(self, *, allow_direct: bool = False) -> None:
        """``page.pool.put(page)``."""
        self._check()
        self._pool.put(self, allow_direct=allow_direct)

    def __enter__(self) -> Self:
        """Raises PageGone."""
        self._check()
        return self

    def __exit__(self, *exc: object) -> None:
        """Put it, if it was not by hand."""
        if self._held:
            self._pool.put(self)

    def __len__(self) -> int:
        """Bytes."""
        return self._length

    @property
    def pool(self) -> PagePool:
        """The pool that it was allocated from."""
        return self._pool

    @property
    def held(self) -> bool:
        """Is it still the caller's, not put?"""
        return self._held

    @property
    def address(self) -> int:
        """Of its first byte, see Arena and Region. Raises PageGone."""
        self._check()
        return self._frame.address + self._offset

    @property
    def dma(self) -> int:
        """By which address the pool's device knows its first byte.

        Raises NotSupported (the pool has no device), DeviceGone (the pool was closed, and has
        unmapped it), PageGone.
        """
        self._check()
        if self._pool.device is None:
            raise self._pool._no_device()
        dma = self._frame.dma
        if dma is None:
            raise errors.DeviceGone(
                f"page allocated at {self._site} was unmapped when its pool was closed"
            )
        return dma + self._offset

    @property
    def order(self) -> int:
        """Its page is ``4096 << order`` bytes. Raises PageGone."""
        self._check()
        return self._frame.order

    @property
    def node(self) -> int:
        """Its NUMA node. Raises PageGone."""
        self._check()
        return self._frame.node

    @property
    def pfmemalloc(self) -> bool:
        """From emergency reserves: it will leave the pool when put. Raises PageGone."""
        self._check()
        return self._frame.pfmemalloc

    @property
    def offset(self) -> int:
        """Bytes from the start of the page: 0, unless it is a piece. Raises PageGone."""
        self._check()
        return self._offset

    @property
    def piece(self) -> bool:
        """Is it a piece of a page?"""
        return self._piece

    @property
    def users(self) -> int:
        """Pieces of the page that are out, and those the pool may still hand out.

        1: the page is not in pieces. Raises PageGone.
        """
        self._check()
        return self._frame.users

    @property
    def ref_count(self) -> int:
        """Holders; views count only after the put. Raises PageGone."""
        self._check()
        return self._frame.holders

    @property
    def allocated_at(self) -> str:
        """File and line of the allocation."""
        return self._site

    def __repr__(self) -> str:
        """Size, address, and where it was allocated."""
        if not self._held:
            return f"<pagepool.Page, put; allocated at {self._site}>"
        what = " in part," if self._piece else " of"
        return (
            f"<pagepool.Page{what} {self._length} bytes at {self.address:#x}, "
            f"allocated at {self._site}>"
        )


@final
class PageBatch:
    """Pages that were allocated together: a sequence of pages, put together."""

    _pool: PagePool
    _frames: list[Frame]
    _made: list[Page | None]  # the Page of each index that somebody looked at
    _site: str
    _held: bool = False
    _record: Record | None = None  # of all its pages; None: not of a checked pool

    def __init__(self) -> None:
        """Raises TypeError."""
        raise TypeError("batches come from a pool: pool.alloc_bulk(n)")

    @classmethod
    def _of(cls, pool: PagePool, frames: list[Frame], where: str) -> PageBatch:
        batch = cls.__new__(cls)
        batch._pool, batch._frames, batch._made = pool, frames, [None] * len(frames)
        batch._site, batch._held = where, True
        return batch

    def _check(self) -> None:
        if not self._held:
            raise self._gone()

    def _gone(self) -> errors.PageGone:
        error = errors.PageGone(f"batch of pages allocated at {self._site} was put already")
        return error if self._record is None else self._record.add_to(error)

    def _not_looked_at(self) -> list[Frame]:
        return [frame for i, frame in enumerate(self._frames) if self._made[i] is None]

    def _put_from_now_on(self) -> None:
        self._held = False
        if self._record is not None:
            self._record.was_put()

    def _give_back(self) -> None:
        """Held, in a step. Pages nobody has looked at together, then the others one by one."""
        self._put_from_now_on()
        self._pool._pool.put_bulk(self._not_looked_at())
        for page in self._made:
            if page is not None and page.held:
                page._give_back(False)
        self._made = []

    def __del__(self) -> None:
        """Dropped: the pages that nobody has looked at go back; the others say so themselves."""
        frames = self._not_looked_at() if self._held else []
        if not frames:
            return
        pool = self._pool
        self._put_from_now_on()
        STEP.later(lambda: pool._pool.put_bulk(frames))
        _warn_dropped(
            f"{len(frames)} pages of pool {pool.id}, allocated at {self._site}, were dropped "
            "without a put; the pool has them back"
        )

    def __len__(self) -> int:
        """Pages."""
        return len(self._frames)

    def __getitem__(self, i: int, /) -> Page:
        """The Page, the same one each time. Raises IndexError, PageGone."""
        self._check()
        n = len(self._frames)
        at = i + n if i < 0 else i
        if not 0 <= at < n:
            raise IndexError(f"a batch of {n} pages has no page {at}")
        page = self._made[at]
        if page is None:
            page = self._made[at] = Page._of(self._pool, self._frames[at], self._site)
            if self._record is not None:
                page._record = self._pool._records[page.address] = self._record.copy()
        return page

    def __iter__(self) -> Iterator[Page]:
        """Every Page. Raises PageGone."""
        for i in range(len(self._frames)):
            yield self[i]

    def put(self) -> None:
        """Put all that were not put one by one. Raises PageGone the second time."""
        with STEP:
            self._check()
            self._give_back()

    def __enter__(self) -> Self:
        """Raises PageGone."""
        self._check()
        return self

    def __exit__(self, *exc: object) -> None:
        """Put them, if they were not by hand."""
        if self._held:
            self.put()

    @property
    def pool(self) -> PagePool:
        """The pool that they were allocated from."""
        return self._pool

    @property
    def held(self) -> bool:
        """Was it not put yet?"""
        return self._held

    def __repr__(self) -> str:
        """How many, and where they were allocated."""
        put = "" if self._held else ", put"
        return f"<pagepool.PageBatch of {len(self._frames)} pages{put}; allocated at {self._site}>"
