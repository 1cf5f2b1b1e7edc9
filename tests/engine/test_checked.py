# SPDX-License-Identifier: BSD-2-Clause
"""Checked mode: who has which page, what the errors say, and what is found."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, Literal

import pytest

import pagepool

Checked = bool | Literal["full"]
BOTH: tuple[Checked, ...] = (True, "full")
HERE = __file__.rsplit("/", 1)[1]


def line() -> int:
    """Of the caller."""
    return sys._getframe(1).f_lineno


def in_thread(name: str, function: Callable[[], Any]) -> Any:
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(function()), name=name)
    thread.start()
    thread.join()
    return result[0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What time it is."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


# ---- holders ------------------------------------------------------------------------------------


@pytest.mark.parametrize("checked", BOTH)
def test_holders_are_listed_the_oldest_first(checked: Checked, clock: list[float]) -> None:
    pool = pagepool.PagePool(checked=checked, order=1)
    assert pool.holders() == []
    pages, lines = [], []
    for _ in range(3):
        pages.append(pool.alloc())
        lines.append(line() - 1)
        clock[0] += 1.5
    holders = pool.holders()
    assert [h.address for h in holders] == [p.address for p in pages]
    assert [h.age for h in holders] == [4.5, 3.0, 1.5]
    assert {h.length for h in holders} == {8192}
    assert {h.thread for h in holders} == {"MainThread"}
    assert [h.allocated_at for h in holders] == [f"{__file__}:{n}" for n in lines]
    assert [h.allocated_at for h in holders] == [p.allocated_at for p in pages]
    pages[1].put()
    assert [h.address for h in pool.holders()] == [pages[0].address, pages[2].address]
    address = pages[0].address
    with pytest.warns(ResourceWarning):
        del pages[0]
    assert [h.address for h in pool.holders()] == [pages[1].address]
    pool.close()
    assert [h.address for h in pool.holders()] == [pages[1].address]  # still somebody's
    assert address != pages[1].address
    pages[1].put()
    assert pool.holders() == []


def test_of_the_same_age_the_lower_address_comes_first(clock: list[float]) -> None:
    with pagepool.PagePool(checked=True) as pool:
        batch = pool.alloc_bulk(100)
        assert [h.address for h in pool.holders()] == sorted(p.address for p in batch)
        batch.put()


def test_holders_of_a_batch() -> None:
    with pagepool.PagePool(checked=True) as pool:
        batch = pool.alloc_bulk(5)
        at = line() - 1
        assert len(pool.holders()) == 5
        assert {h.allocated_at for h in pool.holders()} == {f"{__file__}:{at}"}
        addresses = {h.address for h in pool.holders()}
        batch[3].put()
        assert addresses - {h.address for h in pool.holders()} == addresses - {
            p.address for i, p in enumerate(batch) if i != 3
        }
        assert len(pool.holders()) == 4
        batch.put()
        assert pool.holders() == []
        batch = pool.alloc_bulk(3)
        with pytest.warns(ResourceWarning):
            del batch
        assert pool.holders() == []


def test_holders_of_pieces() -> None:
    with pagepool.PagePool(checked=True) as pool:
        pieces = [pool.alloc_frag(size) for size in (100, 200, 300)]
        assert [(h.address, h.length) for h in pool.holders()] == [
            (p.address, len(p)) for p in pieces
        ]
        pieces[1].put()
        assert [h.length for h in pool.holders()] == [100, 300]
        pieces[0].put()
        pieces[2].put()
        assert pool.holders() == []


def test_put_bulk_and_views_end_a_holding() -> None:
    with pagepool.PagePool(checked=True) as pool:
        pages = [pool.alloc() for _ in range(3)]
        view = pages[0].view()[:4]
        kept = memoryview(pages[1])
        pool.put_bulk(pages)
        # The views keep memory, and are no holders of the pool's.
        assert (pool.holders(), pool.stats.recycle_released_refcnt) == ([], 2)
        del view, kept


def test_the_traceback_ends_where_it_was_allocated() -> None:
    with pagepool.PagePool(checked=True) as pool:

        def receive() -> pagepool.Page:
            return pool.alloc()

        def deep(n: int) -> pagepool.Page:
            return deep(n - 1) if n else receive()

        page = deep(20)
        (holder,) = pool.holders()
        calls = re.findall(r'File ".*", line \d+, in (\w+)', holder.traceback)
        assert calls == ["deep"] * 3 + ["receive"]
        assert "[Previous line repeated 6 more times]" in holder.traceback  # ten at most
        assert "return pool.alloc()" in holder.traceback
        page.put()


def test_the_thread_is_named_also_when_it_has_ended() -> None:
    with pagepool.PagePool(checked=True) as pool:
        first = in_thread("rx-0", pool.alloc)
        # Threads that come later may get its identity.
        threads = [threading.Thread(target=lambda: None, name=f"later {i}") for i in range(20)]
        for thread in threads:
            thread.start()
            thread.join()
        second = in_thread("rx-1", pool.alloc)
        assert [h.thread for h in pool.holders()] == ["rx-0", "rx-1"]
        in_thread("tx", first.put)
        with pytest.raises(pagepool.PageGone, match="by thread 'tx'") as e:
            first.put()
        assert e.value.__notes__[0].startswith("Allocated by thread 'rx-0':")
        assert e.value.__notes__[1].startswith("Put by thread 'tx':")
        second.put()


def test_a_threads_name_of_the_moment() -> None:
    with pagepool.PagePool(checked=True) as pool:

        def renamed() -> list[pagepool.Page]:
            one = pool.alloc()
            threading.current_thread().name = "after"
            return [one, pool.alloc()]

        pages = in_thread("before", renamed)
        assert [h.thread for h in pool.holders()] == ["before", "after"]
        pool.put_bulk(pages)


def test_holders_cost_the_same_for_each(clock: list[float]) -> None:
    """However many pages and threads there are."""
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(20)]

    def calls(n: int) -> int:
        with pagepool.PagePool(checked=True) as pool:
            batch = pool.alloc_bulk(n)
            count = 0

            def hook(*_: object) -> None:
                nonlocal count
                count += 1

            sys.setprofile(hook)
            try:
                held = pool.holders()
            finally:
                sys.setprofile(None)
            assert len(held) == n
            batch.put()
            return count

    calls(1)
    small, large = calls(100), calls(1000)
    assert large <= 11 * small
    for thread in threads:
        thread.start()
    try:
        assert calls(1000) <= large + 10
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_pool_that_is_not_checked_knows_no_holders(plain_pools: None) -> None:
    with pagepool.PagePool() as pool:
        assert pool.checked is False
        page = pool.alloc()
        with pytest.raises(pagepool.NotSupported, match=r"is not checked: make it with checked"):
            pool.holders()
        page.put()
        with pytest.raises(pagepool.PageGone) as e:
            page.put()
        assert str(e.value).endswith("was put already")
        assert not hasattr(e.value, "__notes__")


# ---- what the errors say ------------------------------------------------------------------------


@pytest.mark.parametrize("checked", BOTH)
def test_a_second_put_says_where_the_first_was(checked: Checked) -> None:
    with pagepool.PagePool(checked=checked) as pool:
        pages = [pool.alloc() for _ in range(5)]
        pieces = [pool.alloc_frag(10)]
        batch = pool.alloc_bulk(3)
        of_batch = batch[1]
        puts: list[tuple[pagepool.Page, Callable[[pagepool.Page], None]]] = [
            (pages[0], lambda page: page.put()),
            (pages[1], pool.put),
            (pages[2], pool.put_full),
            (pages[3], pool.recycle_direct),
            (pages[4], lambda page: pool.put_bulk([page])),
            (pieces[0], pool.put),
            (of_batch, lambda page: batch.put()),
        ]
        for page, put in puts:
            put(page)
            uses: list[Callable[[], object]] = [
                page.put,
                page.view,
                page.__enter__,
                lambda page=page: memoryview(page),  # type: ignore[misc]
                lambda page=page: pool.put_bulk([page]),  # type: ignore[misc]
                lambda page=page: page.address,  # type: ignore[misc]
            ]
            for use in uses:
                with pytest.raises(pagepool.PageGone, match="was put already, at ") as e:
                    use()
                assert str(e.value).count(HERE) == 2
                allocated, was_put = e.value.__notes__
                assert allocated.startswith("Allocated by thread 'MainThread':\n")
                assert was_put.startswith("Put by thread 'MainThread':\n")
                assert was_put.count("test_a_second_put_says_where") == 1
        with pytest.raises(pagepool.PageGone) as e:
            batch.put()
        assert len(e.value.__notes__) == 2


def test_where_a_destructor_has_put_it() -> None:
    class Owner:
        def __init__(self, pool: pagepool.PagePool) -> None:
            self.page = pool.alloc()

        def __del__(self) -> None:
            self.page.put()

    with pagepool.PagePool(checked=True) as pool:
        owner = Owner(pool)
        page = owner.page
        del owner
        with pytest.raises(pagepool.PageGone) as e:
            page.view()
        assert "in __init__" in e.value.__notes__[0]
        assert "in __del__" in e.value.__notes__[1]


def test_other_errors_change_nothing() -> None:
    with pagepool.PagePool(checked=True) as pool, pagepool.PagePool(checked=True) as other:
        page = pool.alloc()
        with pytest.raises(pagepool.ForeignPage, match="belongs to pool"):
            other.put(page)
        with pytest.raises(pagepool.PageGone, match="in this put_bulk twice"):
            pool.put_bulk([page, page])
        assert [h.address for h in pool.holders()] == [page.address]
        page.put()
        with pytest.raises(pagepool.PageGone):
            other.put(page)


# ---- use after put ------------------------------------------------------------------------------


def late_writer(**parameters: Any) -> tuple[pagepool.PagePool, Callable[[int, bytes], None]]:
    """A pool, and a device that writes to its pages wherever they are."""
    device = pagepool.Iommu(on_fault=lambda fault: None).attach("eth0")
    pool = pagepool.PagePool(device=device, dma_dir="bidirectional", **parameters)
    return pool, device.write


@pytest.mark.parametrize("offset", [0, 256, 4000, 4096])
def test_a_late_write_of_a_device_is_found_at_the_next_allocation(
    offset: int, reports: list[str], plain_pools: None
) -> None:
    pool, write = late_writer(checked=True, offset=offset)
    page = pool.alloc()
    at = line() - 1
    dma, address = page.dma, page.address
    start = min(offset, 4096 - 64)

    def done() -> None:
        in_thread("tx", lambda: pool.put(page))

    page.view()[start + 5] = 1  # its user's, before the put
    done()
    write(dma + start + 64 if start + 73 < 4096 else dma + start - 9, b"beside it")
    assert reports == []
    write(dma + start + 40, b"late")
    held = [pool.alloc() for _ in range(64)]
    again = next(p for p in held if p.address == address)
    (report,) = reports
    assert f"use after put (byte {start + 40} was written) of the page at {address:#x}" in report
    assert f"in Python allocated at {__file__}:{at} by thread 'MainThread', put at " in report
    assert report.endswith("by thread 'tx'")
    reports.clear()
    # Once: it has a new user now.
    again.put()
    pool.put_bulk([p for p in held if p is not again])
    pool.alloc().put()
    assert reports == []
    pool.close()


def test_what_a_page_shows_after_it_was_in_the_pool(plain_pools: None) -> None:
    with pagepool.PagePool(checked=True, order=1, device=pagepool.NO_DEVICE, offset=100) as pool:
        page = pool.alloc()
        page.view()[:] = b"u" * 8192
        page.put()
        with pool.alloc() as page:
            assert bytes(page.view()) == b"u" * 96 + b"Z" * 64 + b"u" * (8192 - 160)
    with pagepool.PagePool(checked="full", order=1) as pool:
        page = pool.alloc()
        page.view()[:] = b"u" * 8192
        page.put()
        with pool.alloc() as page:
            assert bytes(page.view()) == b"Z" * 8192
            page.view()[:] = b"v" * 8192


def test_a_view_keeps_its_page_out_of_the_pool_and_readable() -> None:
    pool = pagepool.PagePool(checked="full")
    pages = [pool.alloc() for _ in range(4)]
    holders: list[Any] = [
        pages[0].view(),
        pages[1].view()[10:20],
        memoryview(pages[2]),
        pages[3].view().obj,
    ]
    pool.put_bulk(pages)
    batch = pool.alloc_bulk(300)
    for it in holders:
        memoryview(it).cast("B")[0] = 7
        assert memoryview(it).cast("B")[0] == 7
    batch.put()
    pool.close()
    for it in holders:
        memoryview(it).cast("B")[0] = 8


def test_pages_that_leave_a_full_pool_are_memory_as_any_other() -> None:
    arena = pagepool.Arena(limit=4 << 20)
    with pagepool.PagePool(checked="full", provider=arena, pool_size=1) as pool:
        batch = pool.alloc_bulk(1024)
        batch.put()  # most of them leave, unreadable or not
    with pagepool.PagePool(checked=False, provider=arena) as pool:
        batch = pool.alloc_bulk(1024)
        for page in batch:
            page.view()[:] = bytes(4096)
        batch.put()


SEGFAULT = """
    import ctypes, resource
    import pagepool
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    device = pagepool.Iommu().attach("eth0")
    pool = pagepool.PagePool(device=device, dma_dir="bidirectional", checked="full")
    page = pool.alloc()
    dma, address = page.dma, page.address
    device.write(dma, b"in time")
    assert device.read(dma, 7) == ctypes.string_at(address, 7) == b"in time"
    page.put()
    print("put", flush=True)
    {use}
    print("alive", flush=True)
"""


@pytest.mark.parametrize(
    "use", ['device.write(dma, b"late")', "device.read(dma, 1)", "ctypes.string_at(address, 1)"]
)
def test_a_page_in_a_full_pool_cannot_be_touched(use: str) -> None:
    sanitizer = os.environ.get("ASAN_OPTIONS", "")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SEGFAULT).format(use=use)],
        capture_output=True,
        text=True,
        env={**os.environ, "ASAN_OPTIONS": f"{sanitizer}:handle_segv=0"},
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "put\n"), done.stderr


# ---- contexts -----------------------------------------------------------------------------------


class Slow(pagepool.Device):
    """Lets another thread do something in the middle of a map."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.meanwhile: Callable[[], object] | None = None

    def map(self, address: int, length: int, direction: object) -> int:
        if self.meanwhile:
            meanwhile, self.meanwhile = self.meanwhile, None
            in_thread("other", meanwhile)
        return address

    def unmap(self, dma: int, length: int, direction: object) -> None:
        pass


@pytest.mark.parametrize("checked", BOTH)
def test_a_consumers_call_while_another_thread_is_in_one(
    checked: Checked, reports: list[str]
) -> None:
    device = Slow()
    pool = pagepool.PagePool(device=device, checked=checked)
    told: list[str] = []

    def meanwhile() -> None:
        for use in (
            pool.alloc,
            lambda: pool.alloc_bulk(2),
            lambda: pool.alloc_frag(3),
            lambda: pool.update_nid(0),
        ):
            with pytest.raises(pagepool.WrongContext) as e:
                use()
            told.append(str(e.value))

    device.meanwhile = meanwhile
    page = pool.alloc()
    assert all("a consumer's call while thread" in text for text in told[:3])
    assert "not the consumer" in told[3]
    assert len(reports) == 4
    assert pool.inflight == 64
    page.put()
    pool.close()


def test_a_refusal_is_not_told_twice(reports: list[str]) -> None:
    arena = pagepool.Arena(limit=4 << 20)
    device = Slow()
    pool = pagepool.PagePool(device=device, provider=arena, checked=True)
    other = pagepool.PagePool(provider=arena, checked=True)

    def meanwhile() -> None:
        with pytest.raises(pagepool.WrongContext):
            pool.update_nid(0)
        batch = other.alloc_bulk(2000)
        with pytest.raises(pagepool.OutOfPages, match="at its limit"):
            other.alloc()
        batch.put()

    device.meanwhile = meanwhile
    pool.alloc().put()
    other.close()
    pool.close()
    assert len(reports) == 1


def test_direct_recycling_while_another_thread_is_in_a_consumers_call(
    reports: list[str],
) -> None:
    device = Slow()
    pool = pagepool.PagePool(device=device, checked=True, order=1)
    page = pool.alloc()
    device.meanwhile = lambda: pool.recycle_direct(page)
    pool.alloc().put()
    (report,) = reports
    assert "direct recycling, while thread" in report
    assert f"in Python allocated at {page.allocated_at}" in report
    assert pool.stats.recycle_cached == 0  # it went into the ring
    pool.close()
    assert pool.inflight == 0


# ---- asking for it ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "given", "checked"),
    [
        (None, False, False),
        (None, True, True),
        (None, "full", "full"),
        ("", False, False),
        ("0", False, False),
        ("0", True, True),
        ("1", False, True),
        ("1", "full", "full"),
        ("yes", False, True),
        ("full", False, "full"),
        ("full", True, "full"),
    ],
)
def test_the_environment(
    value: str | None, given: Checked, checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is None:
        monkeypatch.delenv("PAGEPOOL_CHECKED", raising=False)
    else:
        monkeypatch.setenv("PAGEPOOL_CHECKED", value)
    with pagepool.PagePool(checked=given) as pool:
        assert pool.checked == checked
        assert type(pool.checked) is type(checked)
        page = pool.alloc()
        if checked:
            assert len(pool.holders()) == 1
        page.put()


@pytest.mark.parametrize("value", [1, 0, None, "half", "", b"full", [], 1.0])
def test_values_that_are_not_known(value: Any) -> None:
    with pytest.raises(pagepool.InvalidParameter, match="True, False or 'full'"):
        pagepool.PagePool(checked=value)


# ---- what it costs ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["page", "piece", "batch", "view"])
def test_records_do_not_grow_with_use(kind: str) -> None:
    arena = pagepool.Arena(limit=4 << 20)
    pool = pagepool.PagePool(checked=True, provider=arena, pool_size=8)

    def use() -> None:
        if kind == "batch":
            batch = pool.alloc_bulk(700)
            assert batch[3].held
            batch.put()
            return
        for i in range(300):
            page = pool.alloc_frag(1 + 37 * i % 4096) if kind == "piece" else pool.alloc()
            if kind == "view":
                page.view()[:1] = b"x"
            page.put(allow_direct=i % 2 == 0)

    for _ in range(20):
        use()
    tracemalloc.start()
    try:
        for _ in range(5):
            use()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(20):
            use()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000  # 20 rounds; a record has a few hundred bytes
    pool.close()
