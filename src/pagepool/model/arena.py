# SPDX-License-Identifier: BSD-2-Clause
"""An arena: pages of memory that grows, each with bytes of its own."""

from __future__ import annotations

import itertools
import os
from typing import Literal, SupportsIndex, final

from pagepool import errors
from pagepool.model.frame import Frame
from pagepool.model.limits import (
    CHUNK_PAGES,
    PAGE_SHIFT,
    PAGE_SIZE,
    check_node,
    node_number,
    unsigned,
)
from pagepool.model.provider import MAX_LIMIT, Provider

DEFAULT_LIMIT = 64 << 30
CHUNK_SIZE = CHUNK_PAGES << PAGE_SHIFT
HUGE = ("none", "thp", "hugetlb")
#: Addresses of page 0, so that no two arenas share one; above all that a processor has.
_bases = itertools.count(1 << 57, 1 << 44)


@final
class Arena(Provider):
    """Memory that grows by 4 MiB up to a limit."""

    def __init__(
        self,
        *,
        limit: SupportsIndex = 0,
        reserve: SupportsIndex = 0,
        node: SupportsIndex | None = None,
        huge: Literal["none", "thp", "hugetlb"] = "none",
    ) -> None:
        """Nothing is mapped before it is needed.

        limit: bytes, rounded up to 4 MiB; 0: the machine's memory, 64 GiB at most.
        reserve: the last so many bytes below the limit are handed out marked ``pfmemalloc``.
        node: NUMA node that the pages count as being on.
        huge: only a label here; ``"hugetlb"`` is refused, the model has no reserved huge pages.

        Raises InvalidParameter, NoMemory.
        """
        most = 0xFFFFFFFFFFFFFFFF
        size, kept = unsigned(limit, "limit", most), unsigned(reserve, "reserve", most)
        nid = node_number(node)
        if huge not in HUGE:
            raise errors.InvalidParameter(f"huge is {huge!r}: must be one of {', '.join(HUGE)}")
        self._once()
        if size > MAX_LIMIT:
            raise errors.InvalidParameter(
                f"an arena's limit of {size} bytes is more than the largest, {MAX_LIMIT}"
            )
        if size == 0:
            size = min(_machine_memory(), DEFAULT_LIMIT)
        elif kept >= size:
            raise errors.InvalidParameter(
                f"an arena's reserve of {kept} bytes leaves nothing of {size}"
            )
        size = -(-size // CHUNK_SIZE) * CHUNK_SIZE
        if kept >= size:
            raise errors.InvalidParameter(
                f"an arena's reserve of {kept} bytes leaves nothing of {size}"
            )
        check_node(nid)
        if huge == "hugetlb":
            raise errors.NoMemory("no reserved huge pages to be had: the model has none")
        self._kind = huge
        self._make(next(_bases), size // PAGE_SIZE, kept, nid)
        if huge == "thp":
            self._buddy.grow()  # refused at once rather than at the first packet, where it fails

    @property
    def _huge(self) -> str:
        return self._kind

    def bytes_of(self, frame: Frame) -> bytearray:
        """Zeros; they are the page's until it is handed out as a larger or a smaller one."""
        return bytearray(frame.size)


def _machine_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
