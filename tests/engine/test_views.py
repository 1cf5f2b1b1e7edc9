# SPDX-License-Identifier: BSD-2-Clause
"""Views of a page outlive the put, and nothing dangles."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.util
import logging
import queue
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import TypeVar

import pytest

import pagepool

T = TypeVar("T")

#: Ways to hold a page's memory without holding the page.
VIEWS: dict[str, Callable[[pagepool.Page], object]] = {
    "memoryview": lambda page: memoryview(page),
    "slice of it": lambda page: memoryview(page)[10:20],
    "view": lambda page: page.view(),
    "slice of view": lambda page: page.view()[10:20],
    "slice of slice": lambda page: page.view()[:1000][10:20],
    "cast of view": lambda page: page.view().cast("I"),
    "view of view": lambda page: memoryview(page.view()),
    "ctypes over view": lambda page: (ctypes.c_char * 16).from_buffer(page.view()),
    "ctypes over page": lambda page: (ctypes.c_char * 16).from_buffer(page),
    # What a new view can be made of.
    "exporter of view": lambda page: page.view().obj,
    "exporter of released view": lambda page: _released(page.view()).obj,
}


def _released(view: memoryview) -> memoryview:
    """Its exporter, by way of a second view; the first is released."""
    other = view[:]
    view.release()
    return other


@pytest.mark.parametrize("kind", VIEWS)
@pytest.mark.parametrize("how", ["put", "recycle_direct", "put_bulk", "drop", "after close"])
def test_a_view_keeps_the_memory_and_the_page_leaves_its_pool(kind: str, how: str) -> None:
    arena = pagepool.Arena()
    pool = pagepool.PagePool(provider=arena)
    page = pool.alloc()
    page.view()[:20] = b"0123456789abcdefghij"
    address = page.address
    view = VIEWS[kind](page)
    if how == "put":
        page.put()
    elif how == "recycle_direct":
        pool.recycle_direct(page)
    elif how == "put_bulk":
        pool.put_bulk([page, pool.alloc()])
    elif how == "after close":
        pool.close()
        page.put()
    elif kind in ("memoryview", "slice of it", "ctypes over page"):
        # The view holds the page object, so nothing is dropped before it goes.
        page = None  # type: ignore[assignment]
        assert pool.stats.recycle_released_refcnt == 0
        with pytest.warns(ResourceWarning, match="dropped"):
            del view
        pool.close()
        assert arena.info.out == 0
        return
    else:
        with pytest.warns(ResourceWarning, match="dropped"):
            page = None  # type: ignore[assignment]
    assert pool.stats.recycle_released_refcnt == 1
    # Nobody else gets that memory, and it is as it was.
    others = [pagepool.PagePool(provider=arena) for _ in range(2)]
    batches = [other.alloc_bulk(200) for other in others]
    assert address not in {p.address for batch in batches for p in batch}
    if isinstance(view, memoryview) and view.nbytes == 10:
        assert bytes(view) == b"abcdefghij"
    for batch, other in zip(batches, others, strict=True):
        batch.put()
        other.close()
    pool.close()
    assert arena.info.out == 1 << 12
    del page, view
    gc.collect()
    assert arena.info.out == 0


def test_a_view_that_was_dropped_in_time_costs_nothing() -> None:
    with pagepool.PagePool() as pool:
        page = pool.alloc()
        view = memoryview(page)
        other = page.view()
        part = other[4:]
        del view, other, part
        page.put()
        assert (pool.stats.recycle_ring, pool.stats.recycle_released_refcnt) == (1, 0)


def test_view_is_one_object_while_the_page_stays_in_its_pool() -> None:
    with pagepool.PagePool() as pool:
        page = pool.alloc()
        assert page.view() is page.view()
        ident = id(page.view())
        pool.recycle_direct(page)
        again = pool.alloc()
        assert id(again.view()) == ident
        again.put()


def test_a_view_that_the_user_released() -> None:
    arena = pagepool.Arena()
    with pagepool.PagePool(provider=arena) as pool:
        page = pool.alloc()
        with page.view() as view:  # leaving the block releases it
            view[:2] = b"hi"
        assert bytes(page.view()[:2]) == b"hi"
        page.view().release()
        pool.recycle_direct(page)
        assert pool.stats.recycle_released_refcnt == 0
        # Released, but a slice of it is still out, also when there is a new view.
        page = pool.alloc()
        whole = page.view()
        part = whole[:2]
        part[:] = b"hi"
        whole.release()
        page.view()
        page.put()
        assert pool.stats.recycle_released_refcnt == 1
        assert bytes(part) == b"hi"
    del whole
    assert arena.info.out == 1 << 12
    del part
    assert arena.info.out == 0


def test_a_weak_reference_does_not_reach_a_page_that_was_put() -> None:
    with pagepool.PagePool() as pool:
        page = pool.alloc()
        weak = weakref.ref(page.view())
        page.put()
        assert weak() is None
        # It counts as a view, since it could make one of itself at any time; so the page left.
        assert pool.stats.recycle_released_refcnt == 1


@pytest.mark.parametrize("again", ["put", "put_bulk", "view", "close"])
def test_the_callback_of_a_view_that_is_forgotten_by_a_put(again: str) -> None:
    """Dropping the pool's reference to the view runs code in the middle of the put."""
    heard: list[type[Exception] | None] = []

    def callback(_: object) -> None:
        try:
            if again == "put":
                page.put()
            elif again == "put_bulk":
                pool.put_bulk([page])
            elif again == "view":
                page.view()
            else:
                pool.close()
            heard.append(None)
        except pagepool.PoolError as error:
            heard.append(type(error))

    arena = pagepool.Arena()
    with pagepool.PagePool(provider=arena) as pool:
        page = pool.alloc()
        view = page.view()
        weak = weakref.ref(view, callback)
        part = view[:4]
        del view
        page.put()
        assert heard == [None if again == "close" else pagepool.PageGone]
        assert pool.stats.recycle_released_refcnt == 1
    del part, weak
    assert arena.info.out == 0


def _with_a_destructor(action: Callable[[], object], call: Callable[[], T]) -> T | None:
    """``call()``, in whose first allocation of a container the collector runs ``action``.

    That is what Python 3.11 does; later ones collect between instructions, and never in C code.
    """

    class Cycle:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            with contextlib.suppress(pagepool.PoolError):
                action()

    thresholds = gc.get_threshold()
    gc.collect()
    gc.disable()
    Cycle()
    gc.set_threshold(1, 10, 10)
    gc.enable()
    try:
        return call()
    except pagepool.PageGone:
        return None
    finally:
        gc.set_threshold(*thresholds)
        gc.collect()


def test_a_destructor_that_puts_the_batch_while_it_is_looked_at() -> None:
    with pagepool.PagePool() as pool:
        batch = pool.alloc_bulk(4)
        page = _with_a_destructor(batch.put, lambda: batch[0])
        assert page is None or not page.held
        assert not batch.held
        assert pool.stats.recycle_ring == 4


def test_a_destructor_that_puts_the_page_while_its_view_is_made() -> None:
    with pagepool.PagePool() as pool:
        page = pool.alloc()
        view = _with_a_destructor(page.put, page.view)
        assert not page.held
        # No view of a page that the pool has.
        assert view is None or pool.stats.recycle_released_refcnt == 1


def test_a_destructor_that_comes_back_to_a_pool_that_settles() -> None:
    pool = pagepool.PagePool()
    batch = pool.alloc_bulk(1)
    page = batch[0]
    pool.close()
    _with_a_destructor(batch.put, page.put)
    assert (pool.inflight, pool.stats.alloc_slow, pool.pool_size) == (0, 1, 1024)


def test_memory_outlives_page_pool_and_arena() -> None:
    def make() -> list[memoryview]:
        pool = pagepool.PagePool()
        first, second = pool.alloc(), pool.alloc()
        views = [memoryview(first)[:4], second.view()[:4]]
        for view in views:
            view[:] = b"live"
        first.put()
        second.put()
        pool.close()
        return views

    views = make()
    gc.collect()
    assert [bytes(view) for view in views] == [b"live", b"live"]


def test_views_in_a_garbage_cycle() -> None:
    arena = pagepool.Arena()
    with pagepool.PagePool(provider=arena) as pool:
        page = pool.alloc()
        cycle: list[object] = [memoryview(page), page.view(), page]
        cycle.append(cycle)
        page.put()
        del cycle, page
        gc.collect()
    assert arena.info.out == 0


def test_a_page_passed_to_a_buffer_consumer_while_it_is_put() -> None:
    """The consumer of a buffer puts the page in the middle of its work."""
    with pagepool.PagePool() as pool:
        page = pool.alloc()

        class Evil:
            def __index__(self) -> int:
                if page.held:
                    page.put()
                return 65

        view = memoryview(page)
        view[0] = Evil()  # type: ignore[call-overload]
        assert view[0] == 65
        other = pool.alloc()
        assert other.address != ctypes.addressof(ctypes.c_char.from_buffer(view))
        other.put()
        del view


AT_EXIT = {
    "a view in a global": "page = pool.alloc(); view = memoryview(page)[3:]; page.put()",
    "a page in a global": "page = pool.alloc()",
    "a batch in a global": "batch = pool.alloc_bulk(9); page = batch[2]",
    "a closed pool with pages out": "page = pool.alloc(); pool.close()",
    "an entered napi": "napi.enter(); own = pagepool.PagePool(napi=napi); page = own.alloc()",
    "a stalled pool's message": (
        "own = pagepool.PagePool(retry=0.001, warn=0.001); page = own.alloc(); own.close();"
        "import logging; logging.basicConfig(level=0);"
        "import time; time.sleep(0.05)"
    ),
}


@pytest.mark.parametrize("name", AT_EXIT)
def test_interpreter_exit(name: str) -> None:
    code = f"import pagepool; pool = pagepool.PagePool(); napi = pagepool.Napi(); {AT_EXIT[name]}"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Fatal" not in done.stderr


def test_a_subinterpreter_is_refused_or_right() -> None:
    if importlib.util.find_spec("_xxsubinterpreters") is None:
        pytest.skip("this Python has no _xxsubinterpreters")
    code = (
        "import _xxsubinterpreters as i\n"
        "import pagepool; pool = pagepool.PagePool(); page = pool.alloc()\n"
        "s = i.create()\n"
        "try:\n"
        "    i.run_string(s, 'import pagepool; pagepool.PagePool().alloc().put()')\n"
        "except i.RunFailedError as e:\n"
        "    print('refused', e)\n"
        "else:\n"
        "    print('right')\n"
        "i.destroy(s)\n"
        "page.put(); pool.close(); print(pool.stats.recycle_ring)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("refused", "right"))
    assert done.stdout.endswith("1\n")


def test_stalled_pools_are_logged() -> None:
    heard: queue.Queue[str] = queue.Queue()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.put(record.getMessage())

    logger = logging.getLogger("pagepool")
    listener = Listener()
    logger.addHandler(listener)
    try:
        pool = pagepool.PagePool(retry=0.001, warn=0.001)
        page = pool.alloc()
        pool.close()
        message = heard.get(timeout=30)
    finally:
        logger.removeHandler(listener)
    page.put()
    assert pool.inflight == 0
    expected = f"page_pool_release_retry() stalled pool shutdown: id {pool.id}, 1 inflight 0 sec"
    assert message == expected
