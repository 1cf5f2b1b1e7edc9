# SPDX-License-Identifier: BSD-2-Clause
"""Python code that runs in the middle of a call, memory that runs out there, and odd objects."""

from __future__ import annotations

import contextlib
import copy
import gc
import importlib.util
import inspect
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import pagepool
from pagepool.engine import _core


@contextlib.contextmanager
def profiled(hook: Callable[[FrameType, str, object], object]) -> Iterator[None]:
    """Call the hook at every call and return that the interpreter sees."""
    old = sys.getprofile()
    sys.setprofile(hook)
    try:
        yield
    finally:
        sys.setprofile(old)


class Collected:
    """Garbage in a cycle: the next run of the collector calls the function."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.cycle = self

    def __del__(self) -> None:
        self.function()


def while_collecting(function: Callable[[], object], call: Callable[[], object]) -> object:
    """The result of the call, within which the function runs in a run of the garbage collector."""
    garbage: list[object] = []
    thresholds = gc.get_threshold()
    gc.collect()
    gc.disable()
    Collected(function)
    try:
        # All that the call makes starts a run of the collector.
        gc.set_threshold(1, 0, 0)
        garbage.append([])
        gc.enable()
        return call()
    finally:
        gc.disable()
        gc.set_threshold(*thresholds)
        gc.enable()
        gc.collect()


# ---- views that nobody counted ------------------------------------------------------------------


def test_a_weak_reference_to_a_view_does_not_bring_it_back() -> None:
    arena = pagepool.Arena()
    with pagepool.PagePool(provider=arena) as pool:
        page = pool.alloc()
        view = weakref.ref(page.view())
        page.put()
        assert view() is None
        assert pool.stats.recycle_released_refcnt == 1
    assert arena.info.out == 0


def test_what_a_view_is_a_view_of_keeps_the_page() -> None:
    arena = pagepool.Arena()
    with pagepool.PagePool(provider=arena) as pool:
        page = pool.alloc()
        address = page.address
        memory = page.view().obj
        pool.recycle_direct(page)
        assert pool.stats.recycle_released_refcnt == 1
        batch = pool.alloc_bulk(200)
        assert address not in {p.address for p in batch}
        memoryview(memory)[:5] = b"still"
        assert bytes(memoryview(memory)[:5]) == b"still"
        batch.put()
    assert arena.info.out == 4096
    del memory
    assert arena.info.out == 0


def test_what_a_released_view_was_a_view_of_keeps_the_page() -> None:
    arena = pagepool.Arena()
    with pagepool.PagePool(provider=arena) as pool:
        page = pool.alloc()
        memory = page.view().obj
        page.view().release()
        page.put()
        assert pool.stats.recycle_released_refcnt == 1
    assert arena.info.out == 4096
    del memory
    assert arena.info.out == 0


def test_the_pools_own_objects_are_not_for_sale() -> None:
    with pagepool.PagePool() as pool, pool.alloc() as page:
        view = page.view()
        assert not [o for o in gc.get_referrers(view) if isinstance(o, tuple)]
        memory = view.obj
        assert not [o for o in gc.get_objects() if isinstance(o, tuple) and memory in o]
        del view, memory


# ---- callbacks of weak references ---------------------------------------------------------------


@pytest.mark.parametrize("how", ["put", "recycle_direct", "put_bulk", "drop", "batch"])
def test_the_callback_of_a_views_weak_reference_finds_the_page_put(how: str) -> None:
    arena = pagepool.Arena()
    seen: list[bool] = []
    with pagepool.PagePool(provider=arena) as pool:
        batch = pool.alloc_bulk(1) if how == "batch" else None
        page = batch[0] if batch else pool.alloc()
        part = page.view()[:4]

        def gone(_: object, held: Callable[[], bool] = lambda: page.held) -> None:
            seen.append(held())

        if how == "drop":
            ref = weakref.ref(page.view(), lambda _: seen.append(False))
            with pytest.warns(ResourceWarning):
                del page, gone
        else:
            ref = weakref.ref(page.view(), gone)
            if how == "put":
                page.put()
            elif how == "recycle_direct":
                pool.recycle_direct(page)
            elif how == "put_bulk":
                pool.put_bulk([pool.alloc(), page])
            elif batch:
                batch.put()
        assert seen == [False]
        assert pool.stats.recycle_released_refcnt == 1
    assert ref() is None
    assert arena.info.out == 4096
    del part
    assert arena.info.out == 0


@pytest.mark.parametrize("end", ["close", "disable_direct_recycling"])
def test_the_callback_of_a_napis_weak_reference_may_do_anything(end: str) -> None:
    napi = pagepool.Napi()
    pool = pagepool.PagePool(napi=napi, order=1)
    with napi:
        page = pool.alloc()
    view = memoryview(page)
    seen: list[object] = []

    def gone(_: object) -> None:
        seen.append(pool.napi)
        page.put()
        pool.close()
        seen.append(pool.inflight)

    ref = weakref.ref(napi, gone)
    del napi
    if end == "close":
        pool.close()
        pool = pagepool.PagePool(order=1)  # lets go of the other, which has kept its napi so far
        pool.close()
    else:
        pool.disable_direct_recycling()
        assert pool.napi is None
    assert ref() is None
    assert seen[0] is None
    view.release()


def test_a_binding_made_by_the_callback_of_the_last_one_stays() -> None:
    napi, other = pagepool.Napi(), pagepool.Napi()
    with pagepool.PagePool(napi=napi) as pool:
        ref = weakref.ref(napi, lambda _: pool.enable_direct_recycling(other))
        del napi
        pool.disable_direct_recycling()
        assert ref() is None
        assert pool.napi is other
        with pytest.raises(pagepool.WrongContext):
            pool.alloc()
        with other:
            pool.put(pool.alloc())
        assert pool.stats.recycle_cached == 1


# ---- the garbage collector ----------------------------------------------------------------------
# Up to 3.11 it runs when an object is made, so in the middle of a call; later between two of them.


def test_a_page_put_by_the_collector_while_its_view_is_made() -> None:
    with pagepool.PagePool() as pool:
        page = pool.alloc()
        try:
            view = while_collecting(page.put, page.view)
        except pagepool.PageGone:
            assert pool.stats.recycle_ring == 1
        else:
            # Between calls: the view was there when the page was put.
            assert isinstance(view, memoryview)
            assert pool.stats.recycle_released_refcnt == 1
        assert not page.held


def test_views_made_by_the_collector_while_a_view_is_made() -> None:
    with pagepool.PagePool() as pool:
        page = pool.alloc()
        views: list[memoryview] = []
        view = while_collecting(lambda: views.append(page.view()), page.view)
        assert view is views[0] is page.view()
        page.put()
        assert pool.stats.recycle_released_refcnt == 1


def test_views_made_and_released_by_the_collector_while_a_view_is_made() -> None:
    arena = pagepool.Arena()
    with pagepool.PagePool(provider=arena) as pool:
        page = pool.alloc()
        parts: list[memoryview] = []

        def look() -> None:
            with page.view() as view:
                parts.append(view[:3])

        while_collecting(look, page.view)
        page.put()
        assert pool.stats.recycle_released_refcnt == 1
    assert arena.info.out == 4096
    parts.clear()
    assert arena.info.out == 0


def test_a_batch_put_by_the_collector_while_it_is_looked_at() -> None:
    with pagepool.PagePool() as pool:
        batch = pool.alloc_bulk(3)
        try:
            page = while_collecting(batch.put, lambda: batch[1])
        except pagepool.PageGone:
            pass
        else:
            assert isinstance(page, pagepool.Page)
            assert not page.held
        assert pool.stats.recycle_ring == 3


def test_a_pool_closed_by_the_collector_while_it_allocates() -> None:
    for call in ("alloc", "alloc_bulk"):
        pool = pagepool.PagePool()

        def allocate(pool: pagepool.PagePool = pool, call: str = call) -> object:
            return pool.alloc() if call == "alloc" else pool.alloc_bulk(2)

        got: Any
        try:
            got = while_collecting(pool.close, allocate)
        except pagepool.PoolClosed:
            continue
        assert pool.inflight == (1 if call == "alloc" else 2)
        got.put()
        assert pool.inflight == 0
        assert pool.stats.allocated == (1 if call == "alloc" else 2)


# ---- warnings, profilers, arguments, signals ----------------------------------------------------


def test_a_warning_that_uses_the_pool_and_raises(capsys: pytest.CaptureFixture[str]) -> None:
    pool = pagepool.PagePool()
    dropped = 0

    def show(message: Warning | str, *rest: object) -> None:
        nonlocal dropped
        dropped += 1
        if dropped < 5:
            pool.alloc()  # dropped, too
        else:
            pool.close()
            raise KeyError("from the warning")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show  # type: ignore[assignment]
        pool.alloc()
    assert dropped == 5
    assert "from the warning" in capsys.readouterr().err
    assert (pool.closed, pool.inflight) == (True, 0)
    # The one whose warning closed the pool was back before.
    assert pool.stats.allocated == 5


def test_a_warning_that_uses_the_pool_a_batch_was_dropped_of() -> None:
    pool = pagepool.PagePool()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *_: pool.close()
        batch = pool.alloc_bulk(7)
        assert len(batch[2]) == 4096
        del batch
    assert (pool.closed, pool.inflight) == (True, 0)


def test_a_profiler_that_puts_what_it_finds() -> None:
    """Wherever a Python function is called, also one of the engine's own."""
    for statistics in (True, False):
        pool = pagepool.PagePool(order=1, statistics=statistics)
        batch = pool.alloc_bulk(1)
        view = memoryview(batch[0])
        batch[0].put()
        view.release()

        def hook(frame: FrameType, event: str, _: object, held: Any = batch) -> None:
            if event == "call" and frame.f_code.co_name == "__init__" and held.held:
                held.put()

        with profiled(hook):
            pool.close()
        assert pool.inflight == 0
        if statistics:
            assert pool.stats.recycle_released_refcnt == 1
        else:
            with pytest.raises(pagepool.NotSupported, match=f"pool {pool.id} was made without"):
                _ = pool.stats


@pytest.mark.parametrize("set_hook", [sys.setprofile, sys.settrace])
def test_a_profiler_that_uses_the_pool(set_hook: Callable[[Any], None]) -> None:
    old = sys.gettrace() if set_hook is sys.settrace else sys.getprofile()
    napi = pagepool.Napi()
    with pagepool.PagePool(napi=napi) as pool, napi:
        busy = False

        def hook(*_: object) -> object:
            nonlocal busy
            if not busy:
                busy = True
                page = pool.alloc()
                page.view()[:1] = b"x"
                pool.recycle_direct(page)
                busy = False
            return hook

        def work() -> None:
            page = pool.alloc()
            page.view()[:1] = b"y"
            assert page.view()[0] == ord("y")
            page.put()

        set_hook(hook)
        try:
            for _ in range(50):
                work()
        finally:
            set_hook(old)
        assert pool.stats.allocated > 50
        assert pool.inflight == 64


def test_a_napi_is_not_left_entered_by_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    napi = pagepool.Napi()

    def interrupted() -> threading.Thread:
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(threading, "current_thread", interrupted)
        with pytest.raises(KeyboardInterrupt):
            napi.enter()
    assert not napi.entered
    with napi:
        assert napi.entered


def test_arguments_that_run_code() -> None:
    pool = pagepool.PagePool()
    page = pool.alloc()

    class PutsIt:
        def __bool__(self) -> bool:
            page.put()
            return True

        def __index__(self) -> int:
            pool.close()
            return 3

    with pytest.raises(pagepool.PageGone):
        pool.put(page, allow_direct=PutsIt())  # type: ignore[arg-type]
    assert pool.stats.recycle_ring == 1
    with pytest.raises(pagepool.PoolClosed):
        pool.alloc_bulk(PutsIt())  # type: ignore[arg-type]
    other = pagepool.PagePool()

    class Liar:
        """Calls itself an integer, and is one that no comparison holds of."""

        def __index__(self) -> Liar:
            return self

        def __lt__(self, _: object) -> bool:
            return False

        __gt__ = __lt__

    for what in ("order", "pool_size", "node"):
        with pytest.raises(TypeError):
            pagepool.PagePool(**{what: Liar()})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        other.update_nid(Liar())  # type: ignore[arg-type]
    other.close()


def test_put_bulk_of_an_iterable_that_puts_them() -> None:
    with pagepool.PagePool() as pool:
        pages = [pool.alloc() for _ in range(3)]

        def them() -> Iterator[pagepool.Page]:
            yield pages[0]
            pages[0].put()
            yield pages[1]

        with pytest.raises(pagepool.PageGone):
            pool.put_bulk(them())
        assert [page.held for page in pages] == [False, True, True]

        class Meta(type):
            @property
            def __name__(cls) -> str:  # type: ignore[override]
                for page in pages[1:]:
                    with pytest.raises(pagepool.PageGone):
                        page.put()
                    with pytest.raises(pagepool.PageGone):
                        page.view()
                return "Odd"

        class Odd(metaclass=Meta):
            pass

        with pytest.raises(TypeError, match="not Odd"):
            pool.put_bulk([pages[1], pages[2], Odd()])  # type: ignore[list-item]
        assert [page.held for page in pages] == [False, True, True]
        pool.put_bulk(pages[1:])


def test_hooks_of_a_fork_that_run_before_ours() -> None:
    code = """
        import os, sys
        os.register_at_fork(after_in_child=lambda: hook())
        import pagepool
        pool = pagepool.PagePool()
        page = pool.alloc()
        told = []
        def hook():
            for use in (pool.alloc, page.put, page.view, lambda: memoryview(page), pool.close):
                try:
                    use()
                except pagepool.Forked:
                    told.append(use)
        pid = os.fork()
        if pid == 0:
            os._exit(len(told))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
        page.put()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()


# ---- objects that did not come from a pool ------------------------------------------------------

TYPES = (
    _core.Page,
    _core.PageBatch,
    _core.PagePool,
    _core.Napi,
    _core.Arena,
)


@pytest.mark.parametrize("type_", TYPES)
def test_the_types_are_closed(type_: type) -> None:
    with pytest.raises(TypeError):
        type("Sub", (type_,), {})
    with pytest.raises(TypeError):
        type_.anything = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        object.__new__(type_)


def test_nothing_is_copied_or_pickled() -> None:
    with pagepool.PagePool() as pool:
        page, batch = pool.alloc(), pool.alloc_bulk(2)
        things = (page, batch, pool, pagepool.Napi(), pagepool.Arena(), page.view().obj)
        for thing in things:
            for way in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError):
                    way(thing)
            for name in ("__setstate_cython__", "__setstate__"):
                if hasattr(thing, name):
                    with pytest.raises(TypeError):
                        getattr(thing, name)(())
        del things, thing
        page.put()
        batch.put()
        assert pool.stats.recycle_released_refcnt == 0


def test_an_empty_page_is_no_page() -> None:
    page = _core.Page.__new__(_core.Page)
    batch = _core.PageBatch.__new__(_core.PageBatch)
    with pagepool.PagePool() as pool:
        uses: list[Callable[[], object]] = [
            page.put,
            page.view,
            lambda: memoryview(page),
            lambda: page.address,
            lambda: pool.put(page),
            lambda: pool.put_bulk([page]),
            batch.put,
            lambda: batch[0],
            lambda: pool.put_bulk(batch),
        ]
        for use in uses:
            with pytest.raises(pagepool.PageGone):
                use()
    assert not page.held
    assert not batch.held
    assert "put" in repr(page) + repr(batch)
    memory: Any = type(_a_memory())
    assert len(memoryview(memory.__new__(memory))) == 0


def _a_memory() -> object:
    with pagepool.PagePool() as pool, pool.alloc() as page:
        return page.view().obj


def test_init_a_second_time_changes_nothing() -> None:
    with pagepool.PagePool() as pool, pool.alloc() as page:
        number = pool.id
        for thing in (pool, pagepool.Napi(), pagepool.Arena()):
            with contextlib.suppress(TypeError):
                thing.__init__()
        with pytest.raises(TypeError):
            page.__init__()
        assert (pool.id, page.held) == (number, True)


def test_constructors_that_fail_half_way() -> None:
    of_pools: tuple[dict[str, Any], ...] = (
        {"order": 11},
        {"node": 40000},
        {"node": 2000},
        {"pool_size": -1},
        {"retry": 0},
        {"warn": float("nan")},
        {"napi": 3},
        {"provider": pagepool.Napi()},
    )
    of_arenas: tuple[dict[str, Any], ...] = (
        {"limit": 1 << 64},
        {"limit": (1 << 64) - 1},
        {"node": 5000},
        {"huge": "x"},
    )
    for arguments in of_pools:
        with pytest.raises((pagepool.InvalidParameter, TypeError)):
            pagepool.PagePool(**arguments)
    for arguments in of_arenas:
        with pytest.raises((pagepool.InvalidParameter, pagepool.NoMemory, OverflowError)):
            pagepool.Arena(**arguments)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a method of 3.12")
def test_release_buffer_called_by_hand() -> None:
    arena = pagepool.Arena()
    with pagepool.PagePool(provider=arena) as pool:
        page: Any = pool.alloc()
        view = memoryview(page)
        page.__release_buffer__(view)
        with pytest.raises(ValueError, match="released"):
            view[0]
        with pytest.raises(ValueError, match="already been released"):
            page.__release_buffer__(view)
        own = page.view()
        page.put()
        memory: Any = own.obj
        if hasattr(memory, "__release_buffer__"):
            memory.__release_buffer__(own)
        del own, memory, page, view
    gc.collect()
    assert arena.info.out == 0


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a method of 3.12")
def test_every_kind_of_buffer_request() -> None:
    with pagepool.PagePool() as pool:
        page: Any = pool.alloc()
        for flags in inspect.BufferFlags:  # type: ignore[attr-defined,unused-ignore]
            try:
                view = page.__buffer__(flags)
            except (SystemError, BufferError):
                continue
            assert view.nbytes == 4096
            view.release()
        pool.put(page)
        assert (pool.stats.recycle_ring, pool.stats.recycle_released_refcnt) == (1, 0)


# ---- memory that runs out -----------------------------------------------------------------------

NO_MEMORY = """
    import _testcapi, gc, sys, warnings
    import pagepool

    # Looked up at once: the first look-up imports, which CPython may not survive without memory.
    from pagepool import Napi, PagePool

    # CPython's own crashes where there is no memory for a frame object.
    warnings.warn = lambda *args, **options: str(args)
    sys.excepthook = sys.unraisablehook = lambda *_: None
    arena = pagepool.Arena()
    gc.disable()


    def failing(call):
        "Each allocation of the call fails, then all from it on; until the call passes."
        for count in (1, 0):
            for first in range(1, 200):
                state = {}
                begin(state)
                _testcapi.set_nomemory(first, first + count if count else 0)
                try:
                    call(state)
                except MemoryError:
                    passed = False
                else:
                    passed = True
                finally:
                    _testcapi.remove_mem_hooks()
                end(state)
                if passed and first > 60:
                    break


    def begin(state):
        pool = state["pool"] = pagepool.PagePool(provider=arena, order=state.get("order", 0))
        state["page"] = pool.alloc()
        state["batch"] = pool.alloc_bulk(5)
        state["viewed"] = pool.alloc()
        state["view"] = state["viewed"].view()[:8]
        state["view"][:] = b"as it is"
        state["twice"] = [pool.alloc(), pool.alloc()]
        state["twice"][0].view()
        state["address"] = state["viewed"].address
        state["got"] = []


    def end(state):
        pool, page, batch, viewed = (state[k] for k in ("pool", "page", "batch", "viewed"))
        view, address = state["view"], state["address"]
        if not pool.closed:
            # The memory of the view that is held is nobody else's.
            more = pool.alloc_bulk(300)
            for p in more:
                assert p.address != address
                p.view()[:8] = b"another!"
            more.put()
        assert bytes(view) == b"as it is"
        state["got"].clear()
        for thing in (page, batch, viewed, *state["twice"]):
            if thing.held:
                thing.put()
        pool.close()
        assert pool.inflight == 0, pool
        assert pool.stats.allocated > 0
        assert arena.info.out == 4096, arena.info
        state.clear()
        del view, viewed, page, batch, pool
        assert arena.info.out == 0, arena.info


    def put(s):
        s["viewed"].put()

    def drop(s):
        s["twice"].clear()

    def drop_batch(s):
        s["batch"] = s["page"]

    calls = [
        lambda s: s["got"].append(s["pool"].alloc()),
        lambda s: s["got"].append(s["pool"].alloc_bulk(9)),
        lambda s: s["page"].view(),
        lambda s: memoryview(s["page"])[3:].cast("B"),
        lambda s: s["batch"][2].view(),
        lambda s: s["batch"].put(),
        lambda s: s["pool"].put_bulk([s["page"], s["viewed"]]),
        lambda s: s["pool"].put_bulk(s["twice"]),
        lambda s: s["pool"].close(),
        lambda s: s["pool"].stats,
        lambda s: repr(s["pool"]) + repr(s["page"]) + repr(s["batch"]),
        lambda s: PagePool(provider=arena, napi=Napi()).alloc,
        put, drop, drop_batch,
    ]
    for call in calls:
        failing(call)
    print("done", len(calls))
"""


def test_every_allocation_of_pythons_fails() -> None:
    if importlib.util.find_spec("_testcapi") is None:
        pytest.skip("this Python has no _testcapi")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(NO_MEMORY)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONMALLOC": "malloc"},
    )
    assert (done.returncode, done.stdout[:4]) == (0, "done"), done.stderr
