# SPDX-License-Identifier: BSD-2-Clause
"""Devices, IOMMUs and log handlers whose Python code comes back, or lets others in."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import queue
import subprocess
import sys
import textwrap
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

import pagepool

Direction = Literal["bidirectional", "to_device", "from_device"]


class Hooked(pagepool.Device):
    """Keeps a strict book, and calls ``hook`` in every callback that is not within another."""

    def __init__(self) -> None:
        super().__init__("hooked")
        self.hook: Callable[[str], object] | None = None
        self.mapped: dict[int, int] = {}
        self.wrong: list[str] = []
        self.called: set[str] = set()
        self.addresses = itertools.count(1 << 24, 1 << 24)
        self.busy = False

    def call(self, what: str) -> None:
        if self.hook is None or self.busy:
            return
        self.called.add(what)
        self.busy = True
        try:
            self.hook(what)
        finally:
            self.busy = False

    def map(self, address: int, length: int, direction: Direction) -> int:
        self.call("map")
        dma = next(self.addresses)  # one step, whatever other threads do
        if address in self.mapped.values():
            self.wrong.append(f"{address:#x} is mapped again")
        self.mapped[dma] = address
        return dma

    def unmap(self, dma: int, length: int, direction: Direction) -> None:
        if self.mapped.pop(dma, None) is None:
            self.wrong.append(f"unmap of {dma:#x}")
        self.call("unmap")

    def sync(self, dma: int, what: str) -> None:
        if dma not in self.mapped:
            self.wrong.append(f"sync of {dma:#x}")
        self.call(what)

    def sync_for_device(self, dma: int, offset: int, length: int, direction: Direction) -> None:
        self.sync(dma, "sync_for_device")

    def sync_for_cpu(self, dma: int, offset: int, length: int, direction: Direction) -> None:
        self.sync(dma, "sync_for_cpu")


class World:
    """A pool, and pages of it that a callback may do something with."""

    def __init__(self, **parameters: Any) -> None:
        self.arena = pagepool.Arena()
        self.device = Hooked()
        self.pool = pagepool.PagePool(
            device=self.device, provider=self.arena, dma_sync=True, pool_size=2, **parameters
        )
        self.pages: list[pagepool.Page] = []
        self.batches: list[pagepool.PageBatch] = []

    def page(self) -> pagepool.Page | None:
        """One that nobody uses."""
        return self.pages.pop() if self.pages else None

    def work(self) -> None:
        """Every road of a page, the callbacks of each included."""
        pool = self.pool
        for _ in range(3):
            self.pages += [pool.alloc() for _ in range(6)]
            pages = [pool.alloc() for _ in range(6)]
            pool.dma_sync_for_cpu(pages[0])
            pool.put(pages[0])
            pool.recycle_direct(pages[1])
            view = pages[2].view()[:4]
            pages[2].put()  # leaves
            del view
            pool.put_bulk(pages[3:])  # more than the ring takes
            pieces = [pool.alloc_frag(1500) for _ in range(7)]
            for piece in pieces:
                piece.put()
            batch = pool.alloc_bulk(9)
            batch[4].put()
            batch.put()
            pool.update_nid(None)
        pages, self.pages = self.pages, []
        for page in pages:
            page.put()

    def end(self) -> None:
        """All that was done adds up."""
        self.device.hook = None
        for batch in self.batches:
            batch.put()
        pagepool.PagePool.put_bulk(page for page in self.pages if page.held)
        self.pages.clear()  # they keep their pools
        self.pool.close()
        assert self.pool.inflight == 0
        stats = self.pool.dma_stats
        assert stats.maps == stats.unmaps + stats.unmaps_destroy
        assert (self.device.mapped, self.device.wrong) == ({}, [])
        assert self.arena.info.out == 0


# ---- what a callback may do ---------------------------------------------------------------------


def take(world: World, take_: Callable[[], Any], into: list[Any]) -> None:
    try:
        into.append(take_())
    except pagepool.PoolClosed:
        assert world.pool.closed


def alloc(world: World) -> None:
    take(world, world.pool.alloc, world.pages)


def alloc_and_put(world: World) -> None:
    with contextlib.suppress(pagepool.PoolClosed):
        world.pool.alloc().put()
        world.pool.recycle_direct(world.pool.alloc())


def alloc_bulk(world: World) -> None:
    if len(world.batches) < 40:
        take(world, lambda: world.pool.alloc_bulk(70), world.batches)
    else:
        world.batches.pop().put()


def alloc_piece(world: World) -> None:
    take(world, lambda: world.pool.alloc_frag(3000), world.pages)


def put(world: World) -> None:
    if page := world.page():
        page.put()


def put_bulk(world: World) -> None:
    pages, world.pages = world.pages, []
    world.pool.put_bulk(pages)


def recycle_direct(world: World) -> None:
    if page := world.page():
        world.pool.recycle_direct(page)


def drop(world: World) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        world.page()


def look(world: World) -> None:
    if world.pages:
        world.pages[-1].view()[:4] = b"look"
        world.pool.dma_sync_for_cpu(world.pages[-1], 0, 4)
    repr(world.pool)
    _ = world.pool.stats, world.pool.dma_stats
    if world.pool.checked:
        world.pool.holders()


def change_node(world: World) -> None:
    with contextlib.suppress(pagepool.PoolClosed):
        world.pool.update_nid(None)


def close(world: World) -> None:
    if not world.pool.closed:
        with pytest.raises(pagepool.WrongContext, match=r"callback of a device"):
            world.pool.close()


def another_pool(world: World) -> None:
    """That ends by itself, with all of its pages or with the last that comes back."""
    pool = pagepool.PagePool(device=world.device, provider=world.arena, order=1)
    pool.alloc().put()
    world.pages.append(pool.alloc())
    pagepool.PagePool(device=world.device, provider=world.arena).alloc().put()


def collect(world: World) -> None:
    class Garbage:
        def __init__(self) -> None:
            self.page = world.page()
            self.cycle = self

        def __del__(self) -> None:
            if self.page:
                self.page.put()

    Garbage()
    gc.collect(0)


def raise_() -> object:
    raise KeyError("from a callback")


ACTIONS = (
    alloc,
    alloc_and_put,
    alloc_bulk,
    alloc_piece,
    put,
    put_bulk,
    recycle_direct,
    drop,
    look,
    change_node,
    close,
    another_pool,
    collect,
)
CALLBACKS = {"map", "unmap", "sync_for_device", "sync_for_cpu"}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("tracked", [True, False])
def test_a_device_may_do_anything(
    action: Callable[[World], None], order: int, tracked: bool, unraisable: list[BaseException]
) -> None:
    world = World(order=order, track_mappings=tracked)
    world.device.hook = lambda what: action(world)
    world.work()
    late = world.pool.alloc()
    world.pool.close()
    world.pages.append(late)
    assert world.device.called == CALLBACKS
    world.end()
    assert unraisable == []


@pytest.mark.parametrize("action", ACTIONS)
def test_a_device_may_do_anything_in_a_napi(
    action: Callable[[World], None], unraisable: list[BaseException]
) -> None:
    napi = pagepool.Napi()
    world = World(napi=napi)
    world.device.hook = lambda what: action(world)
    with napi:
        world.work()
    world.end()
    assert unraisable == []


def test_a_device_that_always_raises(unraisable: list[BaseException]) -> None:
    world = World()
    world.device.hook = lambda what: None if what == "map" else raise_()
    world.work()
    world.end()
    assert len(unraisable) > 10
    assert {type(e) for e in unraisable} == {KeyError}


def test_a_device_that_raises_now_and_then() -> None:
    world = World()
    count = 0

    def hook(what: str) -> None:
        nonlocal count
        count += 1
        if what == "map" and count % 3:
            raise OSError(what)

    world.device.hook = hook
    world.work()
    assert world.pool.dma_stats.map_errors > 10
    world.end()


# ---- the page that the callback is for ----------------------------------------------------------


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("tracked", [True, False])
def test_a_page_is_put_while_it_is_synced_for_the_cpu(order: int, tracked: bool) -> None:
    world = World(order=order, track_mappings=tracked)
    page = world.pool.alloc()
    view = page.view()[:4] if order else None
    world.device.hook = lambda what: page.put() if what == "sync_for_cpu" else None
    world.pool.dma_sync_for_cpu(page)
    assert not page.held
    assert world.pool.dma_stats.unmaps == order  # viewed: it has left, unmapped
    del view
    again = world.pool.alloc()
    again.put()
    world.end()


def test_the_pieces_of_a_page_are_put_while_one_is_synced() -> None:
    world = World()
    pieces = [world.pool.alloc_frag(2048) for _ in range(2)]
    world.pages.append(world.pool.alloc_frag(2048))  # no more pieces of the first page
    world.device.hook = lambda what: what == "sync_for_cpu" and world.pool.put_bulk(pieces)
    world.pool.dma_sync_for_cpu(pieces[1])
    assert [piece.held for piece in pieces] == [False, False]
    world.end()


@pytest.mark.parametrize("how", ["put", "drop", "collect"])
def test_a_page_is_put_while_close_unmaps_it(how: str) -> None:
    world = World(order=1)
    world.pages.append(world.pool.alloc())
    action = {"put": put, "drop": drop, "collect": collect}[how]
    world.device.hook = lambda what: action(world)
    world.pool.close()
    stats = world.pool.dma_stats
    assert (stats.unmaps, stats.unmaps_destroy, stats.unmaps_skipped) == (0, 1, 1)
    # And is another's at once.
    world.end()


def test_a_page_that_was_put_in_the_middle_is_another_pools_when_the_callback_returns() -> None:
    world = World(order=1)
    page = world.pool.alloc()
    address = page.address
    other = pagepool.PagePool(device=world.device, provider=world.arena, order=1)
    got: list[pagepool.Page] = []

    def hook(what: str) -> None:
        if what == "unmap" and page.held:
            page.put()
            got.append(other.alloc())

    world.device.hook = hook
    world.pool.close()
    assert got[0].address == address
    # That one knows it to be mapped.
    assert got[0].dma in world.device.mapped
    other.close()
    assert other.dma_stats.unmaps_destroy == 1
    got[0].put()
    world.end()


def test_two_pieces_are_begun_at_once() -> None:
    world = World()
    pieces: list[pagepool.Page] = []
    world.device.hook = lambda what: pieces.append(world.pool.alloc_frag(100))
    for size in (100, 4096, 4096, 100):
        pieces.append(world.pool.alloc_frag(size))
    world.device.hook = None
    world.pool.put_bulk(pieces)
    world.end()


# ---- other threads, while a callback has let go of the lock --------------------------------------


@contextlib.contextmanager
def other_threads(*functions: Callable[[], object]) -> Iterator[None]:
    """Each runs over and over in a thread."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def run(function: Callable[[], object]) -> None:
        try:
            while not stop.is_set():
                function()
                time.sleep(0)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []


@pytest.mark.parametrize("tracked", [True, False])
def test_others_put_while_a_callback_sleeps(tracked: bool) -> None:
    world = World(track_mappings=tracked)
    out: queue.Queue[pagepool.Page] = queue.Queue()

    def sleep(what: str) -> None:
        time.sleep(0.0001)

    def put_one() -> None:
        with contextlib.suppress(queue.Empty):
            out.get(timeout=0.01).put()

    def look_at_it() -> None:
        repr(world.pool)
        _ = world.pool.dma_stats

    world.device.hook = sleep
    with other_threads(put_one, put_one, look_at_it):
        for _ in range(10):
            for _ in range(20):
                out.put(world.pool.alloc())
            world.work()
        world.pool.close()
    while not out.empty():
        out.get().put()
    world.end()


def test_others_allocate_while_a_callback_sleeps(plain_pools: None) -> None:
    """The interpreter's lock makes them one consumer, also in the middle of a call."""
    world = World()
    assert not world.pool.checked
    world.device.hook = lambda what: time.sleep(0.0001)

    def allocate() -> None:
        page, piece, batch = (
            world.pool.alloc(),
            world.pool.alloc_frag(999),
            world.pool.alloc_bulk(9),
        )
        page.view()[:4] = b"mine"
        world.pool.recycle_direct(piece)
        batch.put()
        assert bytes(page.view()[:4]) == b"mine"
        world.pool.put(page, allow_direct=True)
        world.pool.update_nid(None)

    with other_threads(allocate, allocate):
        for _ in range(5):
            world.work()
    world.end()


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("call", ["alloc", "alloc_bulk", "alloc_frag", "update_nid"])
def test_no_pool_is_closed_in_the_middle_of_an_allocation(order: int, call: str) -> None:
    world = World(order=order)
    told: list[str] = []

    def close_it() -> None:
        with pytest.raises(pagepool.WrongContext, match="in the middle of an allocation") as e:
            world.pool.close()
        told.append(str(e.value))

    def hook(what: str) -> None:
        thread = threading.Thread(target=close_it)
        thread.start()
        thread.join()

    world.pool.recycle_direct(world.pool.alloc())  # there is something to drain
    if call != "update_nid":
        world.pool.update_nid(None)
    world.device.hook = hook
    if call == "alloc":
        world.pages.append(world.pool.alloc())
    elif call == "alloc_bulk":
        world.batches.append(world.pool.alloc_bulk(3))
    elif call == "alloc_frag":
        world.pages.append(world.pool.alloc_frag(10))
    else:
        world.pool.update_nid(0)
    assert told
    world.end()


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("viewed", [True, False])
def test_a_pool_is_closed_while_another_thread_puts(
    tracked: bool, direct: bool, viewed: bool
) -> None:
    """That does not wait, or hang; and the last page ends the pool."""
    world = World(order=1, track_mappings=tracked)
    page = world.pool.alloc()
    view = page.view()[:4] if viewed else None
    inside, closed = threading.Event(), threading.Event()

    def hook(what: str) -> None:
        if what in ("sync_for_device", "unmap") and not inside.is_set():
            inside.set()
            # A tracked page is waited for.
            closed.wait(0.2 if tracked else 10)

    world.device.hook = hook

    def close_it() -> None:
        inside.wait()
        world.pool.close()
        closed.set()

    thread = threading.Thread(target=close_it)
    thread.start()
    if direct:
        world.pool.recycle_direct(page)
    else:
        world.pool.put(page)
    thread.join()
    assert (world.pool.closed, world.pool.inflight) == (True, 0)
    del view
    pool = weakref.ref(world.pool)
    world.end()
    world.pool = None  # type: ignore[assignment]
    del page
    assert pool() is None


@pytest.mark.parametrize("tracked", [True, False])
def test_the_last_page_is_put_while_it_is_synced(tracked: bool) -> None:
    """By another thread, which would free the pool."""
    world = World(order=1, track_mappings=tracked)
    page = world.pool.alloc()
    if not tracked:
        world.pool.close()

    def hook(what: str) -> None:
        if what == "sync_for_cpu":
            thread = threading.Thread(target=page.put)
            thread.start()
            thread.join(0.1 if tracked else None)
            threads.append(thread)

    threads: list[threading.Thread] = []
    world.device.hook = hook
    world.pool.dma_sync_for_cpu(page)
    threads[0].join()
    assert world.pool.inflight == (1 if tracked else 0)
    world.end()


def test_pools_are_closed_at_random_moments() -> None:
    arena = pagepool.Arena()
    device = Hooked()
    device.hook = lambda what: time.sleep(0)
    for i in range(40):
        pool = pagepool.PagePool(device=device, provider=arena, dma_sync=True, pool_size=4)
        pages = [pool.alloc() for _ in range(60)]
        third = len(pages) // 3
        threads = [
            threading.Thread(
                target=lambda part=pages[k * third : (k + 1) * third], pool=pool: [
                    pool.put(page) for page in part
                ]
            )
            for k in range(3)
        ]
        for thread in threads:
            thread.start()
        time.sleep(i * 0.00005)
        pool.close()
        for thread in threads:
            thread.join()
        assert pool.inflight == 0
        stats = pool.dma_stats
        assert stats.maps == stats.unmaps + stats.unmaps_destroy
        assert stats.unmaps_skipped == stats.unmaps_destroy
    assert (device.mapped, device.wrong, arena.info.out) == ({}, [], 0)


# ---- an IOMMU's faults --------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["put", "alloc", "close", "raise", "unbind", "fault", "sleep"])
def test_on_fault_may_do_anything(what: str, unraisable: list[BaseException]) -> None:
    arena = pagepool.Arena()
    pages: list[pagepool.Page] = []
    depth = 0

    def on_fault(fault: pagepool.Fault) -> None:
        nonlocal depth
        depth += 1
        try:
            if depth > 1:
                return
            if what == "put" and pages:
                pages.pop().put()
            elif what == "alloc" and not pool.closed:
                with contextlib.suppress(pagepool.OutOfPages):
                    pages.append(pool.alloc())
            elif what == "close" and not pool.closed:
                with pytest.raises(pagepool.WrongContext):
                    pool.close()
            elif what == "raise":
                raise KeyError(fault.op)
            elif what == "unbind" and device.bound:
                device.unbind()
            elif what == "fault":
                with pytest.raises(pagepool.DeviceFault, match="of 3 bytes"):
                    device.write(1 << 40, b"123")
            elif what == "sleep":
                time.sleep(0.0005)
        finally:
            depth -= 1

    iommu = pagepool.Iommu(on_fault=on_fault)
    device = iommu.attach("eth0")
    pool = pagepool.PagePool(device=device, provider=arena, dma_sync=True, pool_size=2)
    pages += [pool.alloc() for _ in range(40)]
    for mapping in device.mappings:
        device.unmap(mapping.dma, mapping.length, "from_device")
    pool.dma_sync_for_cpu(pages[0])
    error = pagepool.DeviceGone if what == "unbind" else pagepool.DeviceFault
    with pytest.raises(error, match="of 1 bytes"):
        device.write(pages[0].dma, b"1")
    for _ in range(10):
        pages.pop(0).put()
    view = pages[0].view()[:4]
    pages.pop(0).put()
    del view
    pool.close()
    while pages:
        pages.pop().put()
    assert pool.inflight == 0
    assert arena.info.out == 0
    assert iommu.fault_count > 20
    assert {type(e) for e in unraisable} == ({KeyError} if what == "raise" else set())


def test_on_fault_for_the_page_that_close_unmaps() -> None:
    pages: list[pagepool.Page] = []

    def on_fault(fault: pagepool.Fault) -> None:
        if pages:
            pages.pop().put()

    device = pagepool.Iommu(on_fault=on_fault).attach("eth0")
    pool = pagepool.PagePool(device=device, order=1)
    pages.append(pool.alloc())
    device.unmap(pages[0].dma, 8192, "from_device")
    pool.close()
    assert (pages, pool.inflight) == ([], 0)


def test_a_fault_of_a_fault_of_a_fault(unraisable: list[BaseException]) -> None:
    def on_fault(fault: pagepool.Fault) -> None:
        device.write(4096, b"x")

    iommu = pagepool.Iommu(on_fault=on_fault)
    device = iommu.attach("eth0")
    with pytest.raises(pagepool.DeviceFault):
        device.write(4096, b"x")
    assert iommu.fault_count > 10
    assert {type(e) for e in unraisable} <= {pagepool.DeviceFault, RecursionError}


# ---- handlers of the logger ---------------------------------------------------------------------


class Handler(logging.Handler):
    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__()
        self.function = function
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        if len(self.texts) == 1:
            self.function()


@contextlib.contextmanager
def handled(function: Callable[[], object]) -> Iterator[list[str]]:
    handler = Handler(function)
    logger = logging.getLogger("pagepool")
    logger.addHandler(handler)
    try:
        yield handler.texts
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("what", ["put", "alloc", "piece", "close", "drop", "raise", "threads"])
def test_a_handler_of_a_report_may_do_anything(
    what: str, reports: list[str], unraisable: list[BaseException], plain_pools: None
) -> None:
    arena = pagepool.Arena()
    device = pagepool.Iommu(on_fault=lambda fault: None).attach("eth0")
    pool = pagepool.PagePool(device=device, provider=arena, checked=True)
    pages = [pool.alloc() for _ in range(5)]
    page = pages.pop()
    dma = page.dma
    page.put(allow_direct=True)
    device.write(dma, b"late")

    def act() -> None:
        if what == "put":
            pool.put_bulk(pages)
            pages.clear()
        elif what == "alloc":
            pages.extend(pool.alloc_bulk(70))
        elif what == "piece":
            pages.append(pool.alloc_frag(70))
        elif what == "close":
            with pytest.raises(pagepool.WrongContext, match="in the middle"):
                pool.close()
        elif what == "drop":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                pages.clear()
        elif what == "raise":
            raise KeyError("from a handler")
        elif what == "threads":
            # It is told, too: once the handler is free.
            thread.start()
            time.sleep(0.01)

    refused: list[BaseException] = []

    def allocate() -> None:
        try:
            pool.alloc()
        except pagepool.WrongContext as e:
            refused.append(e)

    thread = threading.Thread(target=allocate)
    with handled(act) as texts:
        again = pool.alloc()
    if what == "threads":
        thread.join()
        assert len(refused) == 1
    assert "use after put" in texts[0]
    assert again.held
    again.put()
    pool.put_bulk(pages)
    pool.close()
    assert (pool.inflight, arena.info.out) == (0, 0)
    assert {type(e) for e in unraisable} == ({KeyError} if what == "raise" else set())
    assert len(reports) >= (what != "raise")


def test_a_handler_of_a_fault_may_do_anything() -> None:
    device = pagepool.Iommu().attach("eth0")
    pool = pagepool.PagePool(device=device, order=1)
    pages = [pool.alloc() for _ in range(3)]
    for page in pages:
        device.unmap(page.dma, 8192, "from_device")

    def act() -> None:
        pages.pop().put()
        pages.append(pool.alloc())

    view = pages[0].view()[:4]
    with handled(act) as texts:
        pages.pop(0).put()
    del view
    assert len(texts) == 1
    pool.put_bulk(pages)
    with handled(lambda: None):
        pool.close()
    assert pool.inflight == 0


# ---- objects that go in the middle --------------------------------------------------------------


@pytest.mark.parametrize("callback", sorted(CALLBACKS))
def test_a_callback_drops_all_that_there_is(callback: str) -> None:
    arena = pagepool.Arena()
    things: dict[str, Any] = {"device": Hooked()}
    things["pool"] = pagepool.PagePool(device=things["device"], provider=arena, dma_sync=True)
    things["nic"] = pagepool.Nic(things["device"])
    things["page"] = things["pool"].alloc()
    things["nic"].post(things["pool"].alloc())
    seen = weakref.ref(things["pool"])

    def hook(what: str, things: dict[str, Any] = things) -> None:
        if what == callback and things:
            things.clear()
            gc.collect()

    things["device"].hook = hook
    del hook
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        if callback == "map":
            things["pool"].alloc_bulk(100)
        elif callback == "unmap":
            view = things["page"].view()[:4]
            things["page"].put()
            del view
        elif callback == "sync_for_device":
            things["page"].put()
        else:
            things["pool"].dma_sync_for_cpu(things["page"])
    assert (things, seen(), arena.info.out) == ({}, None, 0)


def test_on_fault_drops_the_iommu_and_its_devices() -> None:
    things: dict[str, Any] = {}

    def on_fault(fault: pagepool.Fault) -> None:
        things.clear()
        gc.collect()

    things["iommu"] = pagepool.Iommu(on_fault=on_fault)
    things["device"] = things["iommu"].attach("eth0")
    things["nic"] = pagepool.Nic(things["device"])
    gone = [weakref.ref(things["iommu"]), weakref.ref(things["device"])]
    with pytest.raises(pagepool.DeviceFault):
        things["device"].write(4096, b"x")
    assert [ref() for ref in gone] == [None, None]


def test_a_pool_that_is_dropped_unmaps_its_pages() -> None:
    arena = pagepool.Arena()
    device = Hooked()
    pool = pagepool.PagePool(device=device, provider=arena)
    pool.alloc().put()
    ref = weakref.ref(pool)
    seen: list[object] = []
    device.hook = lambda what: seen.append(ref())
    del pool
    assert len(seen) == 64
    assert set(seen) == {None}  # nobody gets it back
    assert (device.mapped, device.wrong, arena.info.out) == ({}, [], 0)


def test_a_device_with_a_name_that_closes_the_pool() -> None:
    class Named(Hooked):
        @property
        def name(self) -> str:
            pool.close()
            return "named"

        def map(self, address: int, length: int, direction: Direction) -> int:
            raise OSError

    pool = pagepool.PagePool(device=Named())
    with pytest.raises(pagepool.OutOfPages, match="for device named, 0 pages"):
        pool.alloc()
    assert pool.closed


def test_devices_in_cycles_are_no_harm() -> None:
    code = """
        import gc, sys
        import pagepool

        class Driver(pagepool.Device):
            def __init__(self, close):
                super().__init__("driver")
                self.pool = pagepool.PagePool(device=self)
                self.iommu = pagepool.Iommu(on_fault=self.fault)
                self.behind = self.iommu.attach("x")
                self.second = pagepool.PagePool(device=self.behind)
                self.pages = [self.pool.alloc(), self.second.alloc()]
                self.nic = pagepool.Nic(self.behind)
                self.nic.post(self.second.alloc())
                if close:
                    self.pool.close()
            def map(self, address, length, direction):
                return address
            def unmap(self, dma, length, direction):
                self.last = dma
            def fault(self, fault):
                self.last = fault

        for i in range(20):
            driver = Driver(i % 2)
            driver.behind.unmap(0, 1, "from_device")
            del driver
            gc.collect()
        kept = Driver(False)
        print("done")
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-X", "faulthandler", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("threads", [True, False])
@pytest.mark.parametrize("checked", ["0", "1", "full"])
def test_the_interpreter_ends_with_pages_out_and_mapped(
    own: bool, threads: bool, checked: str
) -> None:
    code = f"""
        import threading, time
        import pagepool

        class Own(pagepool.Device):
            def map(self, address, length, direction):
                return address
            def unmap(self, dma, length, direction):
                time.sleep(0.0001)
            def sync_for_device(self, *args):
                time.sleep(0.0001)

        device = Own() if {own} else pagepool.Iommu().attach("eth0")
        pool = pagepool.PagePool(device=device, dma_sync=True)
        other = pagepool.PagePool(device=device, dma_sync=True)
        page, piece, batch = pool.alloc(), pool.alloc_frag(10), pool.alloc_bulk(7)
        view = page.view()[:4]
        late = other.alloc()
        other.close()
        nic = pagepool.Nic(device)
        nic.post(pool.alloc())

        def run():
            pool = pagepool.PagePool(device=device, dma_sync=True)
            while True:
                pool.put_bulk([pool.alloc(), pool.alloc()])
                pool.alloc().put()

        if {threads}:
            for _ in range(3):
                threading.Thread(target=run, daemon=True).start()
            time.sleep(0.02)
        print("done", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-X", "faulthandler", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PAGEPOOL_CHECKED": checked},
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
