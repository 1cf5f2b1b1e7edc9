# SPDX-License-Identifier: BSD-2-Clause
"""The pool from Python: what every call gives, and every error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pagepool
from pagepool import errors


def test_a_page_is_a_writable_buffer() -> None:
    with pagepool.PagePool() as pool, pool.alloc() as page:
        view = memoryview(page)
        assert (view.nbytes, view.format, view.readonly, len(page)) == (4096, "B", False, 4096)
        view[:5] = b"hello"
        assert bytes(page.view()[:6])[:5] == b"hello"
        del view


def test_numpy_sees_the_page_without_a_copy() -> None:
    numpy = pytest.importorskip("numpy")
    with pagepool.PagePool() as pool, pool.alloc() as page:
        array = numpy.frombuffer(page, dtype="<u4")
        array[0] = 0x01020304
        assert bytes(page.view()[:4]) == b"\x04\x03\x02\x01"
        assert array.ctypes.data == page.address
        del array


def test_the_newest_page_in_the_cache_comes_first() -> None:
    with pagepool.PagePool() as pool:
        first, second = pool.alloc(), pool.alloc()
        addresses = first.address, second.address
        pool.recycle_direct(first)
        pool.recycle_direct(second)
        again = [pool.alloc(), pool.alloc()]
        assert (again[0].address, again[1].address) == (addresses[1], addresses[0])
        pool.put_bulk(again)


def test_statistics_have_the_kernels_names_and_meaning() -> None:
    with pagepool.PagePool() as pool:
        page = pool.alloc()  # empty ring, 64 pages from the provider
        pool.recycle_direct(page)  # cached
        page = pool.alloc()  # fast
        pool.put(page)  # ring
        assert pool.stats == pagepool.PoolStats(
            alloc_fast=1,
            alloc_slow=1,
            alloc_slow_high_order=0,
            alloc_empty=1,
            alloc_refill=0,
            alloc_waive=0,
            recycle_cached=1,
            recycle_cache_full=0,
            recycle_ring=1,
            recycle_ring_full=0,
            recycle_released_refcnt=0,
        )
        assert pool.inflight == 64
        assert pool.stats.recycle_rate == 1.0


def test_the_names_of_the_statistics_are_those_of_the_header() -> None:
    header = Path(__file__).parents[2] / "include" / "pagepool.h"
    text = header.read_text().split("#define PAGE_POOL_STATS(X)")[1].split("struct")[0]
    names = [f"{group}_{name}" for group, name in re.findall(r"X\((\w+), (\w+)\)", text)]
    assert names == list(pagepool.PoolStats.__dataclass_fields__)


def test_statistics_subtract() -> None:
    with pagepool.PagePool() as pool:
        before = pool.stats
        pool.put_bulk([pool.alloc() for _ in range(10)])
        delta = pool.stats - before
        assert (delta.allocated, delta.recycled, delta.alloc_slow) == (10, 10, 1)
        assert (before - before).recycle_rate is None
        with pytest.raises(TypeError):
            _ = before - 1  # type: ignore[operator]


def test_a_pool_without_statistics_says_so() -> None:
    with pagepool.PagePool(statistics=False) as pool:
        pool.alloc().put()
        assert pool.inflight == 64
        with pytest.raises(pagepool.NotSupported, match="without statistics"):
            _ = pool.stats
    with pytest.raises(pagepool.NotSupported, match="without statistics"):
        _ = pool.stats


@pytest.mark.parametrize("order", [0, 1, 5, 10])
def test_orders(order: int) -> None:
    with pagepool.PagePool(order=order) as pool:
        page = pool.alloc()
        assert len(page) == pool.page_size == 4096 << order
        assert (page.order, pool.order) == (order, order)
        page.view()[-1] = 7
        page.put()
        slow = (pool.stats.alloc_slow, pool.stats.alloc_slow_high_order)
        assert slow == ((1, 0) if order == 0 else (0, 1))


def test_bulk_is_lazy_and_a_page_of_it_is_one_object() -> None:
    with pagepool.PagePool() as pool:
        batch = pool.alloc_bulk(100)
        assert len(batch) == 100
        assert batch[3] is batch[3]
        assert batch[-1] is batch[99]
        assert len({page.address for page in batch}) == 100
        with pytest.raises(IndexError, match="no page 100"):
            batch[100]
        batch[5].put()  # one by itself, the rest together
        pool.put_bulk(batch)
        assert not batch.held
        assert pool.stats.recycle_ring == 100
        with pytest.raises(pagepool.PageGone):
            batch.put()
        with pytest.raises(pagepool.PageGone):
            batch[0]


def test_put_bulk_takes_pages_of_several_pools() -> None:
    with pagepool.PagePool() as a, pagepool.PagePool() as b:
        pages = [pool.alloc() for _ in range(20) for pool in (a, b)]
        a.put_bulk(pages)
        assert (a.stats.recycle_ring, b.stats.recycle_ring) == (20, 20)


def test_put_bulk_puts_all_or_nothing() -> None:
    with pagepool.PagePool() as pool:
        one, two = pool.alloc(), pool.alloc()
        for bad, error in (([one, two, one], pagepool.PageGone), ([one, "x"], TypeError)):
            with pytest.raises(error):
                pool.put_bulk(bad)  # type: ignore[arg-type]
            assert one.held
            assert two.held
            assert pool.stats.recycle_ring == 0
        pool.put_bulk(iter([one, two]))
        assert pool.stats.recycle_ring == 2
        pool.put_bulk([])


def test_a_page_is_put_once() -> None:
    with pagepool.PagePool() as pool:
        page = pool.alloc()
        page.put()
        for use in (
            page.put,
            page.view,
            lambda: pool.put(page),
            lambda: pool.put_bulk([page]),
            lambda: page.address,
            lambda: page.order,
            lambda: page.node,
            lambda: page.pfmemalloc,
            lambda: page.ref_count,
            lambda: memoryview(page),
            page.__enter__,
        ):
            with pytest.raises(pagepool.PageGone, match=r"test_pool\.py:\d+ was put already"):
                use()
        assert not page.held
        assert pool.stats.recycle_ring == 1
        assert "put; allocated at" in repr(page)


def test_a_foreign_page_is_refused_and_stays_what_it_was() -> None:
    with pagepool.PagePool() as mine, pagepool.PagePool() as other:
        page = other.alloc()
        with pytest.raises(pagepool.ForeignPage, match=f"belongs to pool {other.id}"):
            mine.put(page)
        assert page.held
        page.put()


def test_leaving_the_with_block_puts_the_page_also_on_an_error() -> None:
    with pagepool.PagePool() as pool:
        with pytest.raises(ZeroDivisionError), pool.alloc():
            _ = 1 / 0
        with pool.alloc() as page:
            page.put()  # by hand is fine too
        with pool.alloc_bulk(3) as batch:
            batch[1].put()
        assert pool.stats.recycle_ring == 5


def test_a_dropped_page_is_reported_and_not_lost() -> None:
    with pagepool.PagePool() as pool:
        with pytest.warns(ResourceWarning, match=r"test_pool\.py:\d+, was dropped without a put"):
            pool.alloc()
        with pytest.warns(ResourceWarning, match=r"7 pages of pool .*were dropped"):
            pool.alloc_bulk(7)
        assert pool.stats.recycle_ring == 8


def test_a_batch_reports_only_what_was_not_put() -> None:
    with pagepool.PagePool() as pool:
        batch = pool.alloc_bulk(4)
        batch[0].put()
        with pytest.warns(ResourceWarning) as seen:
            del batch
        assert [str(w.message).split(" of pool")[0] for w in seen] == ["3 pages"]


def test_out_of_pages() -> None:
    arena = pagepool.Arena(limit=4 << 20)
    with pagepool.PagePool(provider=arena) as pool:
        batch = pool.alloc_bulk(5000)
        assert len(batch) == 1024
        with pytest.raises(pagepool.OutOfPages, match="1024 pages in flight"):
            pool.alloc()
        with pytest.raises(MemoryError):
            pool.alloc_bulk(1)
        assert arena.info.failed >= 2
        batch[0].put()
        page = pool.alloc()
        pool.put_bulk([page])
        batch.put()


def test_emergency_reserves_are_marked_and_leave_the_pool() -> None:
    arena = pagepool.Arena(limit=4 << 20, reserve=16 << 12)
    with pagepool.PagePool(provider=arena) as pool:
        batch = pool.alloc_bulk(1024)
        assert sum(page.pfmemalloc for page in batch) == 16
        pool.put_bulk(batch)
        assert pool.stats.recycle_released_refcnt == 16


def test_nodes() -> None:
    with pagepool.PagePool(node=0) as pool:
        batch = pool.alloc_bulk(64)
        assert {page.node for page in batch} == {0}
        pool.put_bulk(batch)
        pool.update_nid(1)
        page = pool.alloc()
        assert (pool.node, page.node) == (1, 1)
        assert (pool.stats.alloc_waive, pool.stats.alloc_slow) == (1, 2)
        page.put()
        pool.update_nid(None)
        assert pool.node is None


def test_an_arena_serves_several_pools_and_says_what_it_has() -> None:
    arena = pagepool.Arena(limit=8 << 20, node=3)
    a, b = pagepool.PagePool(provider=arena), pagepool.PagePool(provider=arena, order=2)
    page = b.alloc()
    assert page.node == 3
    assert a.provider is arena
    a.alloc().put()
    info = arena.info
    assert info[:6] == (8 << 20, 4 << 20, (64 + 4) << 12, 0, 3, "none")
    page.put()
    a.close()
    b.close()
    assert arena.info.out == 0
    assert "limit 8388608" in repr(arena)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: pagepool.PagePool(order=11), "order 11: a page is at most of order 10"),
        (lambda: pagepool.PagePool(order=-1), "order is -1: must be from 0"),
        (lambda: pagepool.PagePool(node=5000), "NUMA node 5000"),
        (lambda: pagepool.PagePool(pool_size=1 << 32), "pool_size is 4294967296"),
        (lambda: pagepool.PagePool(retry=0), "retry is 0 seconds"),
        (lambda: pagepool.PagePool(warn=-1), "warn is -1 seconds"),
        (lambda: pagepool.Arena(reserve=4 << 20, limit=4 << 20), "leaves nothing"),
        (lambda: pagepool.Arena(limit=1 << 62), "more than the largest"),
        (lambda: pagepool.Arena(huge="giant"), "huge is 'giant': must be one of none, thp"),  # type: ignore[arg-type]
    ],
)
def test_bad_parameters(make: object, text: str) -> None:
    assert callable(make)
    with pytest.raises(pagepool.InvalidParameter, match=re.escape(text)):
        make()


@pytest.mark.parametrize("args", [{"order": "1"}, {"napi": 1}, {"provider": object()}, {"x": 1}])
def test_bad_types(args: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        pagepool.PagePool(**args)  # type: ignore[arg-type]


@pytest.mark.parametrize("cls", [pagepool.Page, pagepool.PageBatch])
def test_pages_come_only_from_pools(cls: type) -> None:
    with pytest.raises(TypeError, match="come from a pool"):
        cls()


def test_a_large_ring_is_clamped() -> None:
    with pagepool.PagePool(pool_size=40000) as pool:
        assert pool.pool_size == 16384
    assert pagepool.PagePool().pool_size == 1024


def test_a_closed_pool_keeps_its_facts() -> None:
    pool = pagepool.PagePool(pool_size=32, order=1, node=2)
    pool.alloc().put()
    pool.close()
    pool.close()
    assert pool.closed
    assert (pool.pool_size, pool.order, pool.node, pool.inflight) == (32, 1, 2, 0)
    assert pool.stats.alloc_slow_high_order == 1
    assert "closed" in repr(pool)
    for use in (pool.alloc, lambda: pool.alloc_bulk(1), lambda: pool.update_nid(0), pool.__enter__):
        with pytest.raises(pagepool.PoolClosed):
            use()


def test_stragglers_of_a_closed_pool() -> None:
    arena = pagepool.Arena()
    pool = pagepool.PagePool(provider=arena)
    pages = [pool.alloc() for _ in range(3)]
    pool.close()
    assert pool.inflight == 3
    assert arena.info.out == 3 << 12
    pages[0].view()[:4] = b"late"  # the memory is the holder's as before
    pages[0].put()
    pool.put(pages[1])
    assert pool.inflight == 1
    pool.put_bulk(pages[2:])
    assert (pool.inflight, arena.info.out) == (0, 0)
    # They passed the ring, as in the kernel.
    assert pool.stats.recycle_ring == 3


def test_every_code_of_the_core_has_its_exception() -> None:
    core = Path(__file__).parents[2] / "csrc"
    import errno

    codes = set()
    for path in [*core.glob("core/*.c"), *core.glob("base/*.c")]:
        codes |= set(re.findall(r"-(E[A-Z]{3,})\b", path.read_text()))
    assert codes
    assert {getattr(errno, code) for code in codes} <= set(errors.EXCEPTIONS)
    for code, cls in errors.EXCEPTIONS.items():
        assert issubclass(cls, errors.PoolError)
        assert type(errors.from_code(-code, "why")) is cls
    assert str(errors.from_code(-9999, "unheard of")) == "unheard of"


def test_a_negative_size_to_sync_is_refused_and_the_page_stays() -> None:
    with pagepool.PagePool() as pool, pool.alloc() as page:
        with pytest.raises(pagepool.InvalidParameter, match="dma_sync_size is -2"):
            pool.put(page, dma_sync_size=-2)
        assert page.held
