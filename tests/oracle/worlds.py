# SPDX-License-Identifier: BSD-2-Clause
"""The same calls on engine and model, and everything that can be seen of both afterwards."""

from __future__ import annotations

import ctypes
import logging
import mmap
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

#: Addresses count from the first chunk of the arena: both take their first page from there.
CHUNK = 4 << 20
#: Below are the addresses of an IOMMU and of a user's device, the same in both worlds.
LOWEST_ADDRESS = 1 << 44
#: Pages out of a pool whose holders are looked at after every call.
FEW = 12

MAIN, OTHER = False, True

_logger = logging.getLogger("pagepool")


class Refused(Exception):
    """By a user's device."""


def user_device(api: Any, refuses: int, breaks: int, syncs: bool, calls: list[Any]) -> Any:
    """A device that numbers its mappings, refuses every refuses-th and breaks now and then.

    breaks: every breaks-th call of another kind raises; 0: never. calls: where they are noted.
    """

    class Device(api.Device):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__("user's")
            self.mappings_made = self.others = 0

        def map(self, address: int, length: int, direction: str) -> int:
            calls.append(("map", address, length, direction))
            self.mappings_made += 1
            if refuses and self.mappings_made % refuses == 0:
                raise Refused(f"mapping {self.mappings_made}")
            return (self.mappings_made - 1) * 0x10000  # the first is 0

        def note(self, *call: object) -> None:
            calls.append(call)
            self.others += 1
            if breaks and self.others % breaks == 0:
                raise Refused(f"call {self.others}")

        def unmap(self, dma: int, length: int, direction: str) -> None:
            self.note("unmap", dma, length, direction)

    class Syncing(Device):
        def sync_for_device(self, dma: int, offset: int, length: int, direction: str) -> None:
            self.note("sync for device", dma, offset, length, direction)

        def sync_for_cpu(self, dma: int, offset: int, length: int, direction: str) -> None:
            self.note("sync for cpu", dma, offset, length, direction)

    return Syncing() if syncs else Device()


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def _overheard(shown: list[Any]) -> Iterator[list[str]]:
    """What is told to nobody in particular: log messages, and exceptions that cannot be raised."""
    kept = _Kept()
    hook, propagate = sys.unraisablehook, _logger.propagate
    sys.unraisablehook = lambda u: shown.append((type(u.exc_value).__name__, str(u.exc_value)))
    _logger.propagate = False
    _logger.addHandler(kept)
    try:
        yield kept.texts
    finally:
        _logger.removeHandler(kept)
        sys.unraisablehook, _logger.propagate = hook, propagate


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
        self.iommus: list[Any] = []
        self.devices: list[Any] = []
        self.nics: list[Any] = []
        self.dmas: list[tuple[Any, int]] = []  # device, and an address that it knew once
        self.where: dict[int, range] = {}  # place of the provider -> addresses of its pages
        self.calls: list[Any] = []  # of users' devices, in this call
        self.faults: list[Any] = []  # told in this call

    def region(self, pages: int, odd: int, **rest: Any) -> None:
        """One more provider; odd: bytes before the first page."""
        memory = mmap.mmap(-1, (pages + 1) << 12)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        first = base + (4096 if odd else 0)
        part = memoryview(memory)[odd : (pages + (odd > 0)) << 12]
        self.arenas.append(self.api.Region(part, **rest))
        self.where[len(self.arenas) - 1] = range(first, first + (pages << 12))

    def run(self, act: Callable[[World], object], thread: bool) -> tuple[Any, ...]:
        """What the call gave: a value, or the exception; and all that it told others."""
        return self.other.submit(self._run, act).result() if thread else self._run(act)

    def _run(self, act: Callable[[World], object]) -> tuple[Any, ...]:
        shown: list[Any] = []
        self.calls.clear()
        self.faults.clear()
        with warnings.catch_warnings(record=True) as warned, _overheard(shown) as logged:
            warnings.simplefilter("always")
            got = self.result(act, self)
        return (
            got,
            [(w.category.__name__, self.words(str(w.message))) for w in warned],
            [tuple(map(self.place, call)) for call in self.calls],
            [self.fault(fault) for fault in self.faults],
            # The model tells of faults at the end of a call.
            sorted(self.words(text) for text in logged),
            shown,
        )

    def result(self, act: Callable[..., object], *args: object) -> object:
        """What it gives, or the exception."""
        try:
            return act(*args)
        except Exception as e:
            return self.error(e)

    def error(self, e: BaseException | None) -> object:
        """Name, words, cause; of each note the first line and the innermost call."""
        if e is None:
            return None
        notes = [self.words(note).splitlines() for note in getattr(e, "__notes__", [])]
        return (
            "raised",
            type(e).__name__,
            self.words(str(e)),
            self.error(e.__cause__),
            [lines[:1] + lines[-2:] for lines in notes],
        )

    def words(self, text: str) -> str:
        """Pools of engine and model count by themselves, and each has its own second thread."""
        text = re.sub(r"\bpool \d+", "pool N", text)
        text = re.sub(r"<pagepool.PagePool \d+", "<pagepool.PagePool N", text)
        text = re.sub(r"'other-\w+'", "'other'", text)
        # What the C core knows of it, and the model cannot: symbols of C code, numbers of threads.
        text = re.sub(r", found by thread .*?(?=; in Python|$)", "", text)
        return re.sub(r"0x[0-9a-f]+", lambda m: str(self.place(int(m[0], 16))), text)

    def place(self, address: object) -> object:
        """Where in which provider; what is no address of memory is itself."""
        if not isinstance(address, int) or address < LOWEST_ADDRESS:
            return address
        for arena, where in self.where.items():
            if address in where:
                return f"provider {arena} + {address - where.start:#x}"
        return "memory"  # of an arena of which nobody has looked at a page yet

    def fault(self, fault: Any) -> object:
        """With the place for the address."""
        return tuple(map(self.place, fault[:-1])), self.words(fault.text)

    def dma(self, page: Any) -> Any:
        """Or why there is none."""
        try:
            return self.place(page.dma)
        except self.api.PoolError as e:
            return self.error(e)

    def number(self, page: Any) -> int:
        """Which byte of its provider the page starts at."""
        provider = page.pool.provider
        arena = self.arenas.index(provider)
        address: int = page.address
        if arena not in self.where:
            base = address & ~(CHUNK - 1)
            self.where[arena] = range(base, base + provider.info.limit)
        return address - self.where[arena].start

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
            self.dma(page),
            provider.offset(page) if hasattr(provider := page.pool.provider, "offset") else None,
        )

    def pool(self, pool: Any) -> object:
        """All that can be seen of a pool."""
        napi = None if pool.napi is None else self.napis.index(pool.napi)
        try:
            stats = str(pool.stats)
        except self.api.NotSupported:
            stats = "none"
        try:
            dma_stats = str(pool.dma_stats)
        except self.api.NotSupported as e:
            dma_stats = self.words(str(e))
        return (
            stats,
            dma_stats,
            pool.inflight,
            pool.design,
            pool.held_back,
            pool.node,
            pool.closed,
            pool.pool_size,
            pool.page_size,
            napi,
            (pool.offset, pool.max_len, pool.dma_dir),
            pool.checked,
            # Tracebacks take their time.
            self.holders(pool) if pool.checked and self.out(pool) < FEW else None,
        )

    def out(self, pool: Any) -> int:
        """Pages and pieces of it that somebody has, or a few more."""
        pages = sum(page.pool is pool for page in self.pages)
        return pages + sum(len(batch) for batch in self.batches if batch.pool is pool)

    def holders(self, pool: Any) -> object:
        """Without ages and addresses; of the calls the innermost."""
        return [
            (
                self.place(holder.address),
                holder.length,
                self.words(repr(holder.thread)),
                holder.allocated_at,
                holder.traceback.splitlines()[-2:],
            )
            for holder in pool.holders()
        ]

    def device(self, device: Any) -> object:
        """A device, its page table and what it refused."""
        if not hasattr(device, "bound"):
            return device.name, device.identity
        return (
            device.name,
            device.bound,
            [(dma, self.place(at), length, dir_) for dma, at, length, dir_ in device.mappings],
        )

    def iommu(self, iommu: Any) -> object:
        """What it refused."""
        return iommu.fault_count, [self.fault(fault) for fault in iommu.faults[-5:]]

    def seen(self) -> dict[str, list[Any]]:
        """All that can be seen of everything."""
        return {
            # First: by the pages' addresses the bases of arenas are known.
            "pages": [self.page(page) for page in self.pages],
            # What the machine lacks is nothing that the model could know.
            "arenas": [tuple(arena.info._replace(lacks=())) for arena in self.arenas],
            "pools": [self.pool(pool) for pool in self.pools],
            "batches": [(len(batch), batch.held) for batch in self.batches],
            "napis": [napi.entered for napi in self.napis],
            "devices": [self.device(device) for device in self.devices],
            "iommus": [self.iommu(iommu) for iommu in self.iommus],
            "nics": [(nic.dropped, self.words(repr(nic))) for nic in self.nics],
        }

    def shown(self) -> object:
        """How everything shows itself, and who has what."""
        things = [
            *(self.pools + self.pages + self.batches + self.napis + self.devices),
            *(self.iommus + self.nics + self.arenas),
        ]
        return (
            [self.words(repr(thing)) for thing in things],
            [self.result(self.holders, pool) for pool in self.pools],
        )

    def end(self) -> dict[str, list[Any]]:
        """Everything is given back, and all arenas have their pages."""
        self.views.clear()
        for napi in self.napis:
            for leave in (self._leave, lambda napi: self.other.submit(self._leave, napi).result()):
                leave(napi)
        for nic in self.nics:
            while done := nic.poll():
                self.pages.append(done[0])
            while page := nic.take():
                self.pages.append(page)
        # Of most pools the pages come back late.
        for i, pool in enumerate(self.pools):
            if i % 3:
                pool.close()
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
