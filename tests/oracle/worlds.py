# SPDX-License-Identifier: BSD-2-Clause
"""The same calls on engine and model, and everything that can be seen of both afterwards."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

#: Addresses count from the first chunk of the arena: both take their first page from there.
CHUNK = 4 << 20

MAIN, OTHER = False, True


class World:
    """One implementation, and what a test made of it; all is known by its place in a list."""

    def __init__(self, api: Any, other: ThreadPoolExecutor) -> None:
        """api: the module that has PagePool and the rest; other: its second thread."""
        self.api = api
        self.other = other
        self.arenas: list[Any] = []
        self.napis: list[Any] = []
        self.pools: list[Any] = []
        self.pages: list[Any] = []
        self.batches: list[Any] = []
        self.views: list[Any] = []
        self.base: dict[int, int] = {}  # place of the arena -> address of its first page

    def run(self, act: Callable[[World], object], thread: bool) -> tuple[object, object]:
        """What the call gave: a value, or the exception's name and words; and the warnings."""
        return self.other.submit(self._run, act).result() if thread else self._run(act)

    def _run(self, act: Callable[[World], object]) -> tuple[object, object]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                got = act(self)
            except Exception as e:
                got = (type(e).__name__, _without_ids(str(e)))
        return got, [(w.category.__name__, _without_ids(str(w.message))) for w in seen]

    def number(self, page: Any) -> int:
        """Which byte of its arena the page starts at."""
        arena = self.arenas.index(page.pool.provider)
        base = self.base.setdefault(arena, page.address & ~(CHUNK - 1))
        address: int = page.address
        return address - base

    def page(self, page: Any) -> object:
        """All that can be seen of a page."""
        if not page.held:
            return "put"
        return (
            self.number(page),
            len(page),
            page.offset,
            page.users,
            page.ref_count,
            page.pfmemalloc,
            page.node,
            page.order,
        )

    def pool(self, pool: Any) -> object:
        """All that can be seen of a pool."""
        napi = None if pool.napi is None else self.napis.index(pool.napi)
        try:
            stats = str(pool.stats)
        except self.api.NotSupported:
            stats = "none"
        return stats, pool.inflight, pool.node, pool.closed, pool.pool_size, pool.page_size, napi

    def seen(self) -> dict[str, list[Any]]:
        """All that can be seen of everything."""
        return {
            # What the machine lacks is nothing that the model could know.
            "arenas": [tuple(arena.info._replace(lacks=())) for arena in self.arenas],
            "pools": [self.pool(pool) for pool in self.pools],
            "pages": [self.page(page) for page in self.pages],
            "batches": [(len(batch), batch.held) for batch in self.batches],
            "napis": [napi.entered for napi in self.napis],
        }

    def end(self) -> dict[str, list[Any]]:
        """Everything is given back, and all arenas have their pages."""
        self.views.clear()
        for napi in self.napis:
            for leave in (self._leave, lambda napi: self.other.submit(self._leave, napi).result()):
                leave(napi)
        for thing in [*self.pages, *self.batches]:
            if thing.held:
                thing.put()
        for pool in self.pools:
            pool.close()
        return self.seen()

    @staticmethod
    def _leave(napi: Any) -> None:
        while napi.entered:
            napi.exit()


def _without_ids(text: str) -> str:
    """Pools of engine and model count by themselves, and each has its own second thread."""
    text = re.sub(r"\bpool \d+", "pool N", text)
    return re.sub(r"'other-\w+'", "'other'", text)
