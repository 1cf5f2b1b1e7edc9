# SPDX-License-Identifier: BSD-2-Clause
"""A page of memory and who has a part in it.

``Frame`` is what the kernel calls a page (and the C core ``struct pp_page``); ``Page`` is what a
caller holds of it.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from pagepool.model.limits import PAGE_SIZE

if TYPE_CHECKING:
    from pagepool.model.arena import Arena
    from pagepool.model.rules import Pool


class Memory:
    """Writable bytes that know whether anybody has a view of them."""

    def __init__(self, size: int) -> None:
        """Size in bytes."""
        self._bytes = bytearray(size)
        self._view: weakref.ref[memoryview] | None = None

    def view(self) -> memoryview:
        """All of it; the same object as long as somebody has it and did not release it."""
        view = self._view() if self._view else None
        if view is not None and not _released(view):
            return view
        view = memoryview(self._bytes)
        self._view = weakref.ref(view)
        return view

    @property
    def viewed(self) -> bool:
        """Has anybody a view, a slice or a cast of one, or a buffer through one?"""
        try:
            # A bytearray that somebody has a buffer of refuses to change its size.
            self._bytes.append(0)
        except BufferError:
            return True
        self._bytes.pop()
        return False


def _released(view: memoryview) -> bool:
    try:
        return view.nbytes < 0
    except ValueError:
        return True


class Frame:
    """One page of ``4096 << order`` bytes: its number in its arena, and who has it."""

    def __init__(self, arena: Arena, number: int) -> None:
        """Free; the arena says the rest when it hands it out."""
        self.arena = arena
        self.number = number
        self.order = 0
        self.node = 0
        self.pfmemalloc = False  # from emergency reserves
        self.holders = 0  # the reference count: the pool's (or the user's), and views after a put
        self.users = 1  # pieces out, and those the pool may still hand out; 1: not in pieces
        self.pool: Pool | None = None  # None: it has left its pool
        self._memory: Memory | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return PAGE_SIZE << self.order

    @property
    def address(self) -> int:
        """By its number in its arena, not where its bytes are: these may lie anywhere."""
        return self.arena.base + self.number * PAGE_SIZE

    @property
    def memory(self) -> Memory:
        """Its bytes, made when first looked at: what the last user left, or zeros."""
        if self._memory is None:
            self._memory = Memory(self.size)
        return self._memory

    @property
    def viewed(self) -> bool:
        """Has anybody a view of it?"""
        return self._memory is not None and self._memory.viewed

    def handed_out(self, order: int, pfmemalloc: bool) -> None:
        """The arena gives it to a pool: one holder, one user."""
        if order != self.order:
            self._memory = None
        self.order = order
        self.pfmemalloc = pfmemalloc
        self.holders = 1
        self.users = 1
        self.pool = None

    @property
    def recyclable(self) -> bool:
        """Rule: reference count 1, one user, not from emergency reserves."""
        return self.holders == 1 and self.users == 1 and not self.pfmemalloc

    def drop_users(self, n: int) -> bool:
        """n users let go. True: they were the last; then it has one user again, the caller."""
        self.users -= n
        # Rule: not the last user: the page stays where it is.
        if self.users:
            return False
        self.users = 1
        return True

    def get(self) -> None:
        """One more holder."""
        self.holders += 1

    def drop(self) -> None:
        """A holder lets go. Rule: the last one frees the page, whoever it is."""
        self.holders -= 1
        if self.holders == 0:
            self.arena.free(self)
