# SPDX-License-Identifier: BSD-2-Clause
"""Random sequences of calls, against an account in plain Python of who holds which memory.

What must hold after every step: no memory is handed out while it is held or viewed; nobody but its
holder changes it; every byte that the arena gave out is in a pool or viewed; what is in a pool is
mapped for its device and nothing else is; checked pools know who has what; and the sums of the
statistics. PAGEPOOL_TEST_PROFILE=thorough makes longer and more of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import pickle
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import pagepool

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]

FRAME = 4096
STAMP = 16


def _numpy(thing: Any) -> Any:
    if numpy is None:
        return memoryview(thing)
    return numpy.frombuffer(thing, dtype="u1")


def _released_with_a_slice(page: pagepool.Page) -> memoryview:
    with page.view() as view:
        return view[:STAMP]


#: Ways to hold the memory through the page: these keep the Page object, too.
THROUGH_PAGE: dict[str, Callable[[pagepool.Page], Any]] = {
    "memoryview": lambda page: memoryview(page),
    "slice": lambda page: memoryview(page)[:STAMP],
    "ctypes": lambda page: (ctypes.c_char * STAMP).from_buffer(page),
    "numpy": _numpy,
    "pickle": lambda page: pickle.PickleBuffer(page).raw(),
}
#: And through what page.view() gives.
THROUGH_VIEW: dict[str, Callable[[pagepool.Page], Any]] = {
    "view": lambda page: page.view(),
    "slice of view": lambda page: page.view()[: 2 * STAMP][:STAMP],
    "cast of view": lambda page: page.view().cast("I"),
    "view of view": lambda page: memoryview(page.view()),
    "constant view": lambda page: page.view().toreadonly(),
    "ctypes over view": lambda page: (ctypes.c_char * STAMP).from_buffer(page.view()),
    "numpy over view": lambda page: _numpy(page.view()),
    "pickle of view": lambda page: pickle.PickleBuffer(page.view()),
    "object of view": lambda page: page.view().obj,
}
#: These cannot be released, as a buffer of the view is out, or do not care.
EXPORTS = {"ctypes over view", "numpy over view", "pickle of view"}


class Book(pagepool.Device):
    """A device that knows what is mapped."""

    def __init__(self) -> None:
        super().__init__("book")
        self.mapped: dict[int, int] = {}  # dma -> address
        self.wrong: list[str] = []
        self.last = 0

    def map(self, address: int, length: int, direction: object) -> int:
        self.last += 1 << 23
        if address in self.mapped.values():
            self.wrong.append("mapped twice")
        self.mapped[self.last] = address
        return self.last

    def unmap(self, dma: int, length: int, direction: object) -> None:
        if self.mapped.pop(dma, None) is None:
            self.wrong.append("unmapped and not mapped")

    def sync_for_device(self, dma: int, offset: int, length: int, direction: object) -> None:
        if dma not in self.mapped:
            self.wrong.append("synced and not mapped")

    sync_for_cpu = sync_for_device


@dataclass(eq=False)
class Memory:
    """One page's, from when somebody looked at it until nobody can any more."""

    pool: Pool
    address: int
    size: int
    stamp: bytes
    page: pagepool.Page | None
    views: list[tuple[str, Any]] = field(default_factory=list)
    weak: list[weakref.ref[memoryview]] = field(default_factory=list)

    @property
    def held(self) -> bool:
        return self.page is not None

    def is_viewed(self) -> bool:
        return bool(self.views) or any(ref() is not None for ref in self.weak)

    def frames(self) -> range:
        return range(self.address // FRAME, (self.address + self.size) // FRAME)


@dataclass(eq=False)
class Batch:
    """Pages that were allocated together; those in memories were looked at."""

    pool: Pool
    batch: pagepool.PageBatch
    memories: dict[int, Memory] = field(default_factory=dict)


@dataclass(eq=False)
class Pool:
    """What a pool must say of itself."""

    pool: pagepool.PagePool
    order: int
    napi: int | None
    out: int = 0  # pages with a user, that are the pool's
    allocated: int = 0
    free_puts: int = 0  # of pages that nobody else holds
    bulk: bool = False  # were there bulk ones among them
    released: int = 0  # put while somebody else holds them
    tracked: bool = True


class Sequences(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pools: list[Pool] = []
        self.memories: list[Memory] = []
        self.batches: list[Batch] = []
        self.owner: dict[int, Memory] = {}
        self.napis = [pagepool.Napi(), pagepool.Napi()]
        self.depth = [0, 0]
        self.number = 0

    @initialize()
    def make_the_arena(self) -> None:
        self.arena = pagepool.Arena(limit=4 << 20)
        self.iommu = pagepool.Iommu()
        self.eth0 = self.iommu.attach("eth0")
        self.nic = pagepool.Nic(self.eth0)
        self.book = Book()
        self.make_pool(0, 0, None, None, None, True, False, False)

    # -- the account

    def can_allocate(self, pool: Pool) -> bool:
        return not pool.pool.closed and (pool.napi is None or self.depth[pool.napi] > 0)

    def look(self, pool: Pool, page: pagepool.Page) -> Memory:
        """A page that was allocated: its memory must be nobody's."""
        self.number += 1
        stamp = self.number.to_bytes(8, "little") + page.address.to_bytes(8, "little")
        memory = Memory(pool, page.address, len(page), stamp, page)
        assert memory.size == FRAME << pool.order
        for frame in memory.frames():
            assert frame not in self.owner, "memory in use was handed out"
            self.owner[frame] = memory
        if self.number % 2:
            page.view()[:STAMP] = stamp
        else:
            memoryview(page)[:STAMP] = stamp
        page.view()[-STAMP:] = stamp
        self.memories.append(memory)
        return memory

    def forget(self, memory: Memory) -> None:
        self.memories.remove(memory)
        for frame in memory.frames():
            del self.owner[frame]

    def was_put(self, memory: Memory, viewed: bool) -> None:
        memory.page = None
        memory.pool.out -= 1
        if viewed:
            memory.pool.released += 1
        else:
            memory.pool.free_puts += 1
        # No weak reference brings a view back that nobody holds.
        if not memory.views:
            assert not memory.is_viewed()
            self.forget(memory)

    def pick(self, memories: list[Memory], i: int) -> Memory:
        return memories[i % len(memories)]

    def held(self) -> list[Memory]:
        return [memory for memory in self.memories if memory.held]

    # -- pools

    @precondition(lambda self: len(self.pools) < 5)
    @rule(
        order=st.sampled_from([0, 0, 0, 1, 3]),
        pool_size=st.sampled_from([0, 1, 7, 64]),
        napi=st.sampled_from([None, 0, 1]),
        node=st.sampled_from([None, 0, 1]),
        device=st.sampled_from([None, "book", "eth0", "none"]),
        tracked=st.sampled_from([True, True, False]),
        sync=st.booleans(),
        checked=st.sampled_from([False, False, True, "full"]),
    )
    def make_pool(
        self,
        order: int,
        pool_size: int,
        napi: int | None,
        node: int | None,
        device: str | None,
        tracked: bool,
        sync: bool,
        checked: bool | Literal["full"],
    ) -> None:
        pool = pagepool.PagePool(
            order=order,
            pool_size=pool_size,
            node=node,
            napi=None if napi is None else self.napis[napi],
            provider=self.arena,
            device={"book": self.book, "eth0": self.eth0, "none": pagepool.NO_DEVICE}.get(
                device or ""
            ),
            dma_sync=sync and device is not None,
            track_mappings=tracked,
            checked=checked,
        )
        self.pools.append(Pool(pool, order, napi, tracked=tracked))

    @rule(i=st.integers(0, 99))
    def close(self, i: int) -> None:
        self.pools[i % len(self.pools)].pool.close()

    @precondition(lambda self: len(self.pools) > 1)
    @rule(i=st.integers(0, 99))
    def drop_pool(self, i: int) -> None:
        """It ends by itself, unless a page that is kept by a view keeps it, or an empty batch."""
        pool = self.pools[i % len(self.pools)]
        if pool.out == 0:
            users = {id(memory.pool) for memory in self.memories}
            users |= {id(batch.pool) for batch in self.batches}
            if id(pool) in users:
                pool.pool.close()
            self.pools.remove(pool)

    @rule(i=st.integers(0, 99), node=st.sampled_from([None, 0, 1]))
    def update_nid(self, i: int, node: int | None) -> None:
        pool = self.pools[i % len(self.pools)]
        if self.can_allocate(pool):
            pool.pool.update_nid(node)
            assert pool.pool.node == node
        else:
            with pytest.raises((pagepool.WrongContext, pagepool.PoolClosed)):
                pool.pool.update_nid(node)

    @rule(i=st.integers(0, 99), napi=st.sampled_from([None, 0, 1]))
    def bind(self, i: int, napi: int | None) -> None:
        pool = self.pools[i % len(self.pools)]
        refused = pool.pool.closed
        if napi is None:
            refused = refused or (pool.napi is not None and self.depth[pool.napi] > 0)
        else:
            refused = refused or pool.napi not in (None, napi)
        try:
            if napi is None:
                pool.pool.disable_direct_recycling()
            else:
                pool.pool.enable_direct_recycling(self.napis[napi])
        except (pagepool.WrongContext, pagepool.PoolClosed):
            assert refused
        else:
            assert not refused
            pool.napi = napi
            assert pool.pool.napi is (None if napi is None else self.napis[napi])

    @rule(napi=st.integers(0, 1), enter=st.booleans())
    def move(self, napi: int, enter: bool) -> None:
        if enter:
            self.napis[napi].enter()
            self.depth[napi] += 1
        elif self.depth[napi]:
            self.napis[napi].exit()
            self.depth[napi] -= 1
        else:
            with pytest.raises(pagepool.WrongContext):
                self.napis[napi].exit()

    # -- allocate

    def allocate(self, pool: Pool, allocate: Callable[[], Any]) -> Any:
        if not self.can_allocate(pool):
            with pytest.raises((pagepool.WrongContext, pagepool.PoolClosed)):
                allocate()
            return None
        try:
            return allocate()
        except pagepool.OutOfPages:
            info = self.arena.info
            # Of higher orders there may be none in one piece.
            assert pool.order or info.out == info.limit
            return None

    @rule(
        pools=st.lists(st.integers(0, 99), min_size=1, max_size=6),
        kinds=st.lists(st.sampled_from([*THROUGH_PAGE, *THROUGH_VIEW]), max_size=3),
    )
    def alloc(self, pools: list[int], kinds: list[str]) -> None:
        """A page from each of them, and the views of the last."""
        memory = None
        for i in pools:
            pool = self.pools[i % len(self.pools)]
            page = self.allocate(pool, pool.pool.alloc)
            if page is not None:
                pool.out += 1
                pool.allocated += 1
                memory = self.look(pool, page)
        if memory is not None and memory.page is not None:
            for kind in kinds:
                memory.views.append((kind, (THROUGH_PAGE | THROUGH_VIEW)[kind](memory.page)))

    @rule(i=st.integers(0, 99), n=st.sampled_from([1, 5, 64, 65, 200, 700]))
    def alloc_bulk(self, i: int, n: int) -> None:
        pool = self.pools[i % len(self.pools)]
        batch = self.allocate(pool, lambda: pool.pool.alloc_bulk(n))
        if batch is not None:
            pool.out += len(batch)
            pool.allocated += len(batch)
            self.batches.append(Batch(pool, batch))

    @precondition(lambda self: self.batches)
    @rule(i=st.integers(0, 99), at=st.integers(0, 9))
    def look_into_a_batch(self, i: int, at: int) -> None:
        batch = self.batches[i % len(self.batches)]
        at %= len(batch.batch)
        if at not in batch.memories:
            batch.memories[at] = self.look(batch.pool, batch.batch[at])
        memory = batch.memories[at]
        if memory.held:
            assert batch.batch[at] is memory.page
        else:
            assert not batch.batch[at].held

    # -- views

    @precondition(lambda self: self.held())
    @rule(i=st.integers(0, 999), kind=st.sampled_from([*THROUGH_PAGE, *THROUGH_VIEW]))
    def view(self, i: int, kind: str) -> None:
        memory = self.pick(self.held(), i)
        assert memory.page is not None
        memory.views.append((kind, (THROUGH_PAGE | THROUGH_VIEW)[kind](memory.page)))

    @precondition(lambda self: self.held())
    @rule(i=st.integers(0, 999))
    def look_weakly(self, i: int) -> None:
        memory = self.pick(self.held(), i)
        assert memory.page is not None
        memory.weak.append(weakref.ref(memory.page.view()))

    @precondition(lambda self: self.held())
    @rule(i=st.integers(0, 999), keep=st.booleans())
    def release_the_view(self, i: int, keep: bool) -> None:
        memory = self.pick(self.held(), i)
        assert memory.page is not None
        view = memory.page.view()
        part = view[:STAMP] if keep else None
        try:
            view.release()
        except BufferError:
            assert any(kind in EXPORTS for kind, _ in memory.views)
            return
        # The object is one; a view of an exporting kind may be of an older one that was released.
        memory.views = [(kind, it) for kind, it in memory.views if it is not view]
        # A view that was released shows nothing to whom it comes back to.
        memory.weak = [ref for ref in memory.weak if ref() is not view]
        if part is not None:
            memory.views.append(("slice of a released view", part))

    @precondition(lambda self: any(memory.views for memory in self.memories))
    @rule(i=st.integers(0, 999), j=st.integers(0, 99))
    def let_go(self, i: int, j: int) -> None:
        memory = self.pick([memory for memory in self.memories if memory.views], i)
        memory.views.pop(j % len(memory.views))
        if not memory.held and not memory.views:
            assert not memory.is_viewed()
            self.forget(memory)

    @precondition(lambda self: self.memories)
    @rule(i=st.integers(0, 999))
    def write(self, i: int) -> None:
        """Through whatever the holder has."""
        memory = self.pick(self.memories, i)
        self.number += 1
        stamp = self.number.to_bytes(8, "little") + memory.address.to_bytes(8, "little")
        ways = [it for kind, it in memory.views if kind != "constant view"]
        if memory.page is not None:
            ways.append(memory.page)
        if ways:
            view = memoryview(ways[i % len(ways)])
            if not view.readonly:
                view.cast("B")[:STAMP] = stamp
                memory.stamp = stamp

    # -- devices

    @precondition(lambda self: self.held())
    @rule(i=st.integers(0, 999), offset=st.sampled_from([0, 1, 4000, 9999]))
    def dma(self, i: int, offset: int) -> None:
        memory = self.pick(self.held(), i)
        page, pool = memory.page, memory.pool.pool
        assert page is not None
        if pool.device is None:
            with pytest.raises(pagepool.NotSupported):
                pool.dma_sync_for_cpu(page, offset)
            with pytest.raises(pagepool.NotSupported):
                _ = page.dma
            return
        pool.dma_sync_for_cpu(page, offset)
        if pool.closed and memory.pool.tracked:
            with pytest.raises(pagepool.DeviceGone):
                _ = page.dma
        elif pool.device is self.book:
            assert self.book.mapped[page.dma] == page.address
        elif pool.device is pagepool.NO_DEVICE:
            assert page.dma == page.address

    @precondition(lambda self: any(m.pool.pool.device is self.eth0 for m in self.held()))
    @rule(i=st.integers(0, 999))
    def receive(self, i: int) -> None:
        """A frame comes by the NIC."""
        pages = [memory for memory in self.held() if memory.pool.pool.device is self.eth0]
        memory = self.pick(pages, i)
        assert memory.page is not None
        self.number += 1
        stamp = self.number.to_bytes(8, "little") + memory.address.to_bytes(8, "little")
        if memory.pool.pool.closed and memory.pool.tracked:
            with pytest.raises(pagepool.DeviceGone):
                self.nic.post(memory.page)
            return
        self.nic.post(memory.page)
        assert self.nic.receive(stamp)
        assert self.nic.poll() == (memory.page, STAMP)
        memory.stamp = stamp

    # -- give back

    @precondition(lambda self: self.held())
    @rule(
        which=st.lists(st.integers(0, 999), min_size=1, max_size=6),
        how=st.sampled_from(["put", "page.put", "put_full", "recycle_direct", "with", "put_bulk"]),
        direct=st.booleans(),
    )
    def put(self, which: list[int], how: str, direct: bool) -> None:
        for i in which:
            if self.held():
                self.put_one(self.pick(self.held(), i), how, direct)

    def put_one(self, memory: Memory, how: str, direct: bool) -> None:
        page, pool = memory.page, memory.pool.pool
        assert page is not None
        viewed = memory.is_viewed()
        promise = (direct and how in ("put", "page.put", "put_full")) or how == "recycle_direct"
        napi = memory.pool.napi
        # A pool that was closed is bound to nothing, and no promise of it can be broken.
        broken = promise and napi is not None and not self.depth[napi] and not pool.closed
        with pytest.raises(pagepool.WrongContext) if broken else contextlib.nullcontext():
            if how == "put":
                pool.put(page, allow_direct=direct, dma_sync_size=64)
            elif how == "page.put":
                page.put(allow_direct=direct)
            elif how == "put_full":
                pool.put_full(page, allow_direct=direct)
            elif how == "recycle_direct":
                pool.recycle_direct(page)
            elif how == "put_bulk":
                memory.pool.bulk = True
                pool.put_bulk(iter([page]))
            else:
                with page:
                    pass
        if broken:
            assert page.held
            return
        self.was_put(memory, viewed)
        # Not twice, by no road.
        for again in (page.put, lambda: pool.put(page), lambda: pool.put_bulk([page]), page.view):
            with pytest.raises(pagepool.PageGone):
                again()

    @precondition(lambda self: self.held())
    @rule(
        which=st.lists(st.integers(0, 999), min_size=1, max_size=12),
        wrong=st.sampled_from([0, 0, 1]),
    )
    def put_bulk(self, which: list[int], wrong: int) -> None:
        memories = list({id(m): m for m in (self.pick(self.held(), i) for i in which)}.values())
        pages = [memory.page for memory in memories if memory.page is not None]
        viewed = [memory.is_viewed() for memory in memories]
        if wrong:
            with pytest.raises(pagepool.PageGone):
                pagepool.PagePool.put_bulk([*pages, pages[0]])
            assert all(page.held for page in pages)
            return
        pagepool.PagePool.put_bulk(pages)
        for memory, was_viewed in zip(memories, viewed, strict=True):
            memory.pool.bulk = True
            self.was_put(memory, was_viewed)

    @precondition(lambda self: self.held())
    @rule(i=st.integers(0, 999), j=st.integers(0, 99))
    def put_into_another_pool(self, i: int, j: int) -> None:
        memory = self.pick(self.held(), i)
        pool = self.pools[j % len(self.pools)]
        if pool is not memory.pool and memory.page is not None:
            with pytest.raises(pagepool.ForeignPage):
                pool.pool.put(memory.page)

    @precondition(lambda self: self.batches)
    @rule(i=st.integers(0, 99), how=st.sampled_from(["put", "put_bulk", "drop"]))
    def end_batch(self, i: int, how: str) -> None:
        batch = self.batches.pop(i % len(self.batches))
        held = [memory for memory in batch.memories.values() if memory.held]
        viewed = [memory.is_viewed() for memory in held]
        unseen = len(batch.batch) - len(batch.memories)
        if how == "drop":
            # The pages that were looked at are held here, so they stay.
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                batch.batch = None  # type: ignore[assignment]
            assert len(caught) == (unseen > 0)
            assert all(memory.page is not None and memory.page.held for memory in held)
        else:
            if how == "put":
                batch.batch.put()
            else:
                pagepool.PagePool.put_bulk(batch.batch)
            for memory, was_viewed in zip(held, viewed, strict=True):
                assert memory.page is not None
                assert not memory.page.held
                self.was_put(memory, was_viewed)
            with pytest.raises(pagepool.PageGone):
                batch.batch.put()
        batch.pool.bulk = True
        batch.pool.out -= unseen
        batch.pool.free_puts += unseen

    @precondition(lambda self: self.held())
    @rule(i=st.integers(0, 999))
    def drop(self, i: int) -> None:
        """The Page goes without a put, unless a view of it keeps it."""
        memory = self.pick(self.held(), i)
        in_batch = any(memory in batch.memories.values() for batch in self.batches)
        if in_batch or any(kind in THROUGH_PAGE for kind, _ in memory.views):
            return
        viewed = memory.is_viewed()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            memory.page = None
        assert [w.category for w in caught] == [ResourceWarning]
        self.was_put(memory, viewed)

    # -- what must hold

    @invariant()
    def nobody_else_wrote(self) -> None:
        for memory in self.memories:
            if memory.page is not None:
                assert memory.page.held
                assert memory.page.address == memory.address
                assert memoryview(memory.page)[:STAMP] == memory.stamp
            for _, it in memory.views:
                assert bytes(memoryview(it).cast("B")[:STAMP]) == memory.stamp

    @invariant()
    def every_byte_is_somewhere(self) -> None:
        if not self.pools:
            return
        in_pools = sum(p.pool.inflight * p.pool.page_size for p in self.pools)
        viewed = sum(memory.size for memory in self.memories if not memory.held)
        assert self.arena.info.out == in_pools + viewed

    @invariant()
    def what_is_in_a_pool_is_mapped(self) -> None:
        if not self.pools:
            return
        for device, mapped in (
            (self.book, len(self.book.mapped)),
            (self.eth0, len(self.eth0.mappings)),
        ):
            assert mapped == sum(
                p.pool.inflight
                for p in self.pools
                if p.pool.device is device and not (p.pool.closed and p.tracked)
            )
        assert (self.book.wrong, self.iommu.fault_count) == ([], 0)

    @invariant()
    def holders_are_known(self) -> None:
        for p in self.pools:
            if p.pool.checked:
                held = {m.address for m in self.memories if m.held and m.pool is p}
                known = {holder.address for holder in p.pool.holders()}
                assert (held <= known, len(known)) == (True, p.out)

    @invariant()
    def the_sums_hold(self) -> None:
        for p in self.pools:
            stats = p.pool.stats
            assert stats.allocated == p.allocated
            assert stats.recycle_released_refcnt == p.released
            recycled = stats.recycle_cached + stats.recycle_ring + stats.recycle_ring_full
            if p.bulk and stats.recycle_ring_full:
                assert recycled <= p.free_puts
            else:
                assert recycled == p.free_puts
            assert stats.alloc_slow <= stats.alloc_empty + stats.alloc_waive
            assert p.pool.inflight >= p.out
            assert not p.pool.closed or p.pool.inflight == p.out
            if p.order:
                assert stats.alloc_slow == 0
            else:
                assert stats.alloc_slow_high_order == 0

    def teardown(self) -> None:
        batch = None
        for batch in self.batches:
            batch.batch.put()
        pagepool.PagePool.put_bulk(
            [
                memory.page
                for memory in self.memories
                if memory.page is not None and memory.page.held
            ]
        )
        for i, depth in enumerate(self.depth):
            for _ in range(depth):
                self.napis[i].exit()
        viewed = sum(memory.size for memory in self.memories if memory.views)
        for p in self.pools:
            p.pool.close()
            assert p.pool.inflight == 0
        if self.pools:
            assert self.arena.info.out == viewed
            self.memories.clear()
            self.owner.clear()
            self.batches.clear()
            batch = None
            gc.collect(0)
            assert self.arena.info.out == 0


TestSequences = Sequences.TestCase
