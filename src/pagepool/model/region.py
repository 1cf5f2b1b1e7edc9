# SPDX-License-Identifier: BSD-2-Clause
"""A region: pages out of memory that somebody has."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from typing import TYPE_CHECKING, SupportsIndex, final

from pagepool import errors
from pagepool.model.frame import Frame, real_address
from pagepool.model.handles import Page
from pagepool.model.limits import PAGE_SIZE, check_node, node_number, unsigned
from pagepool.model.provider import MAX_LIMIT, Provider

if TYPE_CHECKING:
    from typing_extensions import Buffer


@final
class Region(Provider):
    """Pages out of any writable buffer, a file mapping, shared memory.

    The buffer is held until the region, its pools and all of its pages are gone. Pages are aligned
    to 4096 bytes, so an unaligned buffer loses its beginning, and what is left over at its end. An
    address is where the bytes are.
    """

    _fd: int | None = None

    def __init__(
        self, buffer: Buffer, *, reserve: SupportsIndex = 0, node: SupportsIndex | None = None
    ) -> None:
        """Pages out of a writable, contiguous buffer of at least one aligned page.

        reserve, node: as an Arena's. Raises InvalidParameter, BufferError (read-only).
        """
        kept, nid = unsigned(reserve, "reserve", 0xFFFFFFFFFFFFFFFF), node_number(node)
        with memoryview(buffer) as given:
            if given.readonly or not given.c_contiguous:
                raise BufferError("a region's buffer must be writable and contiguous")
            length = given.nbytes
            start = real_address(given) if length else 0
        self._once()
        # Rule: pages are aligned; what is before the first is not used.
        head = -start % PAGE_SIZE
        length = max(length - head, 0)
        most = MAX_LIMIT
        if not PAGE_SIZE <= length <= most:
            raise errors.InvalidParameter(
                f"a region of {length} bytes: must be from {PAGE_SIZE} to {most}"
            )
        if kept >= length:
            raise errors.InvalidParameter(
                f"a region's reserve of {kept} bytes leaves nothing of {length}"
            )
        check_node(nid)
        self._head = head
        # Bytes, whatever the buffer's items are.
        self._memory = memoryview((ctypes.c_ubyte * length).from_buffer(buffer, head)).cast("B")
        self._make(start + head, length // PAGE_SIZE, kept, nid)
        # Rule: whole chunks, and what is left over in blocks that get smaller.
        self._buddy.add(0, self._buddy.limit)

    @staticmethod
    def shared(
        size: SupportsIndex, *, reserve: SupportsIndex = 0, node: SupportsIndex | None = None
    ) -> Region:
        """Memory of its own, of ``size`` bytes, that another process can map: a memfd.

        ``fileno()`` is to be handed over (``pass_fds``, ``socket.send_fds``), and ``offset(page)``
        says where in it a page is. Raises InvalidParameter, NoMemory.
        """
        size = unsigned(size, "size", 1 << 47)
        region = Region.__new__(Region)
        region._fd = os.memfd_create("pagepool", os.MFD_CLOEXEC)
        try:
            os.ftruncate(region._fd, size)
            memory = mmap.mmap(region._fd, size)
        except (OSError, ValueError) as e:
            raise errors.NoMemory(f"no shared memory of {size} bytes: {e}") from None
        region.__init__(memory, reserve=reserve, node=node)
        return region

    def __del__(self) -> None:
        """Shared memory: its file is closed."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)

    def bytes_of(self, frame: Frame) -> memoryview:
        """Where it is in the buffer."""
        at = frame.number * PAGE_SIZE
        return self._memory[at : at + frame.size]

    def fileno(self) -> int:
        """Of the shared memory; closed when region and pages are gone. Raises ValueError: none."""
        self._check()
        if self._fd is None:
            raise ValueError("the region is not shared memory of its own: it has no file")
        return self._fd

    def offset(self, page: Page, /) -> int:
        """Bytes from the start of the buffer to the page. Raises ForeignPage, PageGone."""
        self._check()
        page._check()
        # Rule: only of its own pages.
        if page._frame.provider is not self:
            raise errors.ForeignPage(f"page allocated at {page.allocated_at} is not of this region")
        return self._head + page.address - self.base
