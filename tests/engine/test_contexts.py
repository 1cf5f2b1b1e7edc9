# SPDX-License-Identifier: BSD-2-Clause
"""Who may do what where: napi, threads, fork."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import pagepool


def in_thread(function: Callable[[], object]) -> object:
    """The function's result, or raises its exception, from another thread."""
    result: list[object] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            result.append(function())
        except BaseException as e:
            error.append(e)

    thread = threading.Thread(target=run, name="other")
    thread.start()
    thread.join()
    if error:
        raise error[0]
    return result[0]


def test_only_the_thread_inside_the_napi_allocates() -> None:
    napi = pagepool.Napi()
    with pagepool.PagePool(napi=napi) as pool:
        for allocate in (pool.alloc, lambda: pool.alloc_bulk(2), lambda: pool.update_nid(0)):
            with pytest.raises(pagepool.WrongContext, match="not in it"):
                allocate()
        with napi:
            page = pool.alloc()
            with pytest.raises(pagepool.WrongContext, match="allocate inside"):
                in_thread(pool.alloc)
        page.put()


def test_direct_recycling_is_known_inside_and_refused_outside() -> None:
    napi = pagepool.Napi()
    with pagepool.PagePool(napi=napi) as pool:
        with napi:
            pages = [pool.alloc() for _ in range(4)]
            pool.put(pages[0])
            assert (pool.stats.recycle_cached, pool.stats.recycle_ring) == (1, 0)
        pool.put(pages[1])
        assert (pool.stats.recycle_cached, pool.stats.recycle_ring) == (1, 1)
        promises: list[Callable[[], None]] = [
            lambda: pool.put(pages[2], allow_direct=True),
            lambda: pool.put_full(pages[2], allow_direct=True),
            lambda: pool.recycle_direct(pages[2]),
            lambda: pages[2].put(allow_direct=True),
        ]
        for promise in promises:
            with pytest.raises(pagepool.WrongContext, match="cannot be kept"):
                promise()
        assert pages[2].held
        in_thread(pages[2].put)
        pool.put_bulk(pages[3:])
        assert (pool.stats.recycle_cached, pool.stats.recycle_ring) == (1, 3)


def test_bulk_is_direct_for_the_pool_whose_napi_it_is_in() -> None:
    napi = pagepool.Napi()
    with pagepool.PagePool(napi=napi) as mine, pagepool.PagePool() as other, napi:
        mine.put_bulk([mine.alloc(), other.alloc(), mine.alloc()])
        assert (mine.stats.recycle_cached, other.stats.recycle_ring) == (2, 1)


def test_one_thread_is_inside_a_napi() -> None:
    napi = pagepool.Napi()
    with napi:
        assert napi.entered
        assert not in_thread(lambda: napi.entered)
        with pytest.raises(pagepool.WrongContext, match="'MainThread' is in this napi"):
            in_thread(napi.enter)
        with pytest.raises(pagepool.WrongContext, match="thread 'MainThread' is"):
            in_thread(napi.exit)
        with napi:
            assert napi.entered
        assert napi.entered
        assert "MainThread" in repr(napi)
    assert not napi.entered
    with pytest.raises(pagepool.WrongContext, match="not in this napi"):
        napi.exit()
    in_thread(lambda: (napi.enter(), napi.exit()))
    assert "nobody" in repr(napi)


def test_a_napi_moves_between_threads() -> None:
    napi = pagepool.Napi()
    with pagepool.PagePool(napi=napi) as pool:

        def poll() -> None:
            with napi:
                pool.put(pool.alloc())

        for _ in range(50):
            poll()
            in_thread(poll)
        assert pool.stats.recycle_cached == 100


def test_binding_and_unbinding() -> None:
    one, two = pagepool.Napi(), pagepool.Napi()
    with pagepool.PagePool(napi=one) as pool:
        assert pool.napi is one
        pool.enable_direct_recycling(one)
        with pytest.raises(pagepool.WrongContext, match="bound to another"):
            pool.enable_direct_recycling(two)
        with one, pytest.raises(pagepool.WrongContext, match="let it leave"):
            pool.disable_direct_recycling()
        pool.disable_direct_recycling()
        assert pool.napi is None
        pool.recycle_direct(pool.alloc())  # nobody is bound: the promise holds
        pool.enable_direct_recycling(two)
        with one, pytest.raises(pagepool.WrongContext):
            pool.alloc()
        with two:
            pool.put(pool.alloc())
        pool.disable_direct_recycling()
        pool.enable_direct_recycling(one)


def test_a_pool_is_not_closed_under_another_threads_poll() -> None:
    napi = pagepool.Napi()
    pool = pagepool.PagePool(napi=napi)
    with napi:
        page = pool.alloc()
        with pytest.raises(pagepool.WrongContext, match="before the pool is closed"):
            in_thread(pool.close)
        pool.put(page)
        pool.close()  # the consumer itself may


def test_a_napi_may_go_before_its_pool_and_a_pool_before_its_napi() -> None:
    napi = pagepool.Napi()
    pool = pagepool.PagePool(napi=napi)
    del napi
    with pytest.raises(pagepool.WrongContext):
        pool.alloc()
    del pool
    napi = pagepool.Napi()
    napi.enter()
    pool = pagepool.PagePool(napi=napi)
    pool.alloc().put()
    del napi, pool


def test_producers_on_many_threads() -> None:
    napi = pagepool.Napi()
    with pagepool.PagePool(napi=napi, pool_size=64) as pool:

        def give_back(pages: list[pagepool.Page]) -> None:
            for page in pages:
                page.view()[:8] = b"producer"
                page.put()

        for _ in range(20):
            with napi:
                pages = [pool.alloc() for _ in range(64)]
            threads = [threading.Thread(target=give_back, args=(pages[i::4],)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        stats = pool.stats
        assert stats.allocated == 20 * 64
        assert stats.recycle_ring + stats.recycle_ring_full == 20 * 64


def test_the_child_of_a_fork_is_told_and_can_make_its_own(
    in_child: Callable[[Callable[[], object]], None],
) -> None:
    arena, napi = pagepool.Arena(), pagepool.Napi()
    pool = pagepool.PagePool(provider=arena, napi=napi)
    with napi:
        page, batch = pool.alloc(), pool.alloc_bulk(5)
    page.view()[:6] = b"parent"
    view = memoryview(page)
    before = pool.stats

    def child() -> None:
        for use in (
            pool.alloc,
            lambda: pool.stats,
            lambda: pool.inflight,
            lambda: pool.id,
            pool.close,
            page.put,
            page.view,
            lambda: memoryview(page),
            lambda: pool.put_bulk([page]),
            batch.put,
            lambda: batch[0],
            napi.enter,
            lambda: napi.entered,
            lambda: arena.info,
            lambda: pagepool.PagePool(provider=arena),
            lambda: pagepool.PagePool(napi=napi),
        ):
            with pytest.raises(pagepool.Forked, match="belongs to the parent process"):
                use()
        assert bytes(view[:6]) == b"parent"
        assert "parent" in repr(pool) + repr(arena)
        with pagepool.PagePool() as own:
            own.alloc().put()
            assert own.inflight == 64

    in_child(child)
    assert pool.stats == before
    assert bytes(view[:6]) == b"parent"
    view.release()
    page.put()
    batch.put()
    pool.close()
    assert arena.info.out == 0


def test_objects_dropped_in_the_child_stay_the_parents(
    in_child: Callable[[Callable[[], object]], None],
) -> None:
    arena = pagepool.Arena()
    pool = pagepool.PagePool(provider=arena)
    things: list[object] = [pool.alloc(), pool.alloc_bulk(3), memoryview(pool.alloc())]
    in_child(things.clear)
    assert pool.inflight == 64
    with pytest.warns(ResourceWarning):
        things.clear()
    pool.close()
    assert arena.info.out == 0
