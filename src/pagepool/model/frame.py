# SPDX-License-Identifier: BSD-2-Clause
"""A page of memory and who has a part in it.

``Frame`` is what the kernel calls a page (and the C core ``struct pp_page``); ``Page`` is what a
caller holds of it.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pagepool.model.context import STEP
from pagepool.model.limits import PAGE_SIZE

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from pagepool.model.provider import Provider
    from pagepool.model.rules import Pool


class Memory:
    """A page's bytes, or a piece's, which know whether anybody has a view of them."""

    def __init__(self, frame: Frame, offset: int, size: int) -> None:
        """Size bytes at this offset of the page."""
        self._frame = weakref.ref(frame)
        self._offset = offset
        self._size = size
        # What views are views of: each of them, a slice or a cast of one, and any buffer through
        # one keeps it, and nothing else does. So it lives as long as they do, and can be watched,
        # which a view by itself cannot; ctypes has the only object in plain Python that is both
        # weakly referable and a buffer of somebody else's memory.
        self._exporter: weakref.ref[Any] | None = None
        self._view: weakref.ref[memoryview] | None = None

    def view(self, keep: object = None) -> memoryview:
        """All of it; the same object as long as somebody has it and did not release it.

        keep: what lives as long as the view.
        """
        view = self._view() if self._view else None
        if view is not None and not _released(view):
            return view
        exporter: Any = self._exporter() if self._exporter else None
        if exporter is None:
            frame = self._frame()
            assert frame is not None, "who asks for a view has the page"
            exporter = (ctypes.c_ubyte * self._size).from_buffer(frame.bytes, self._offset)
            exporter.keep = keep
            self._exporter = weakref.ref(exporter)
        view = memoryview(exporter).cast("B")
        self._view = weakref.ref(view)
        return view

    @property
    def viewed(self) -> bool:
        """Has anybody a view, a slice or a cast of one, or a buffer through one?"""
        return self._exporter is not None and self._exporter() is not None

    def when_not_viewed(self, call: Callable[[], None]) -> None:
        """Viewed: this will be called, as a step, when the last of the views is gone."""
        exporter = self._exporter() if self._exporter else None
        weakref.finalize(exporter, STEP.later, call).atexit = False


def _released(view: memoryview) -> bool:
    try:
        return view.nbytes < 0
    except ValueError:
        return True


def real_address(memory: Buffer) -> int:
    """Where the bytes of a writable buffer, not empty, are."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class Frame:
    """One page of ``4096 << order`` bytes: its number in its provider, and who has it."""

    def __init__(self, number: int, address: int) -> None:
        """Free; the provider says the rest when it hands it out."""
        self.number = number
        self.address = address
        self.provider: Provider | None = None  # None: it is free
        self.order = 0
        self.node = 0
        self.pfmemalloc = False  # from emergency reserves
        self.holders = 0  # the reference count: the pool's (or the user's), and views after a put
        self.users = 1  # pieces out, and those the pool may still hand out; 1: not in pieces
        self.pool: Pool | None = None  # None: it has left its pool
        self.dma: int | None = None  # by which the pool's device knows it; None: it is not mapped
        self.poisoned = False  # in a checked pool, and nobody has it
        self.held = 0  # which allocation its user has it by; 0: it is the pool's, or nobody's
        self.link: Frame | None = None  # in a list: the page behind it
        self._bytes: bytearray | memoryview | None = None
        self._memory: Memory | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return PAGE_SIZE << self.order

    @property
    def out(self) -> bool:
        """Is it handed out?"""
        return self.provider is not None

    @property
    def bytes(self) -> bytearray | memoryview:
        """Its bytes, made when first looked at; who looks this way has no view, see ``memory``."""
        if self._bytes is None:
            assert self.provider is not None, "a page that somebody looks at is handed out"
            self._bytes = self.provider.bytes_of(self)
        return self._bytes

    @property
    def memory(self) -> Memory:
        """Its bytes for whoever holds it: what the last user left, or zeros."""
        if self._memory is None:
            self._memory = Memory(self, 0, self.size)
        return self._memory

    @property
    def viewed(self) -> bool:
        """Has anybody a view of it?"""
        return self._memory is not None and self._memory.viewed

    def handed_out(self, provider: Provider, order: int, pfmemalloc: bool) -> None:
        """The provider gives it to a pool: one holder, one user."""
        if order != self.order:
            self._bytes = self._memory = None
        self.provider = provider
        self.order = order
        self.pfmemalloc = pfmemalloc
        self.holders = 1
        self.users = 1
        self.pool = None
        self.poisoned = False

    @property
    def recyclable(self) -> bool:
        """Rule: reference count 1, one user, not from emergency reserves."""
        return self.holders == 1 and self.users == 1 and not self.pfmemalloc

    def drop_users(self, n: int) -> bool:
        """n users let go. True: they were the last; then it has one user again, the caller."""
        # Rule: not the last user: the page stays where it is.
        if self.users != n:
            self.users -= n
            return False
        # The caller is the only one left, so what counts one user already stays as it is.
        if n != 1:
            self.users = 1
        return True

    def get(self) -> None:
        """One more holder."""
        self.holders += 1

    def drop(self) -> None:
        """A holder lets go. Rule: the last one frees the page, whoever it is."""
        self.holders -= 1
        if self.holders == 0:
            provider, self.provider = self.provider, None
            assert provider is not None, "a page with holders is handed out"
            provider.free(self)
