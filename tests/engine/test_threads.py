# SPDX-License-Identifier: BSD-2-Clause
"""Many threads with random calls, seeded; forks and signals in the middle of them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

import pagepool

#: More threads, more calls with PAGEPOOL_TEST_PROFILE=thorough.
THOROUGH = os.environ.get("PAGEPOOL_TEST_PROFILE") == "thorough"
SEEDS = range(30 if THOROUGH else 3)
THREADS = 8 if THOROUGH else 4
CALLS = 10000 if THOROUGH else 5000


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    """The interpreter goes on to another thread whenever it can."""
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(old)


def take(things: list[Any]) -> Any:
    """The oldest of them, or None; another thread may be quicker."""
    try:
        return things.pop(0)
    except IndexError:
        return None


class Traffic:
    """What the threads share: pools, pages and views on their way from one to another."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.arena = pagepool.Arena(limit=4 << 20)
        self.napis = [pagepool.Napi(), pagepool.Napi()]
        self.pools = [self.pool(i) for i in range(4)]
        #: (what, what the first bytes must be)
        self.pages: list[tuple[pagepool.Page, bytes]] = []
        self.batches: list[pagepool.PageBatch] = []
        self.views: list[tuple[Any, bytes]] = []
        self.errors: list[BaseException] = []

    def pool(self, i: int) -> pagepool.PagePool:
        return pagepool.PagePool(
            napi=self.napis[i] if i < 2 else None,
            order=1 if i == 3 else 0,
            pool_size=(1024, 16, 1, 64)[i],
            provider=self.arena,
        )

    def run(self, number: int) -> None:
        dice = random.Random(self.seed * 1000 + number)
        try:
            for i in range(CALLS):
                if self.errors:
                    break
                self.step(dice, number << 32 | i)
        except BaseException as e:
            self.errors.append(e)

    def step(self, dice: random.Random, number: int) -> None:
        pool = dice.choice(self.pools)
        napi: Any = pool.napi
        stamp = number.to_bytes(8, "little")
        poll: Any = napi if napi is not None and dice.random() < 0.9 else contextlib.nullcontext()
        match dice.randrange(12):
            case 0 | 1 | 2:
                # Another thread may be in it, the arena may be empty, somebody may close the pool.
                with contextlib.suppress(
                    pagepool.WrongContext, pagepool.OutOfPages, pagepool.PoolClosed
                ):
                    with poll:
                        page = pool.alloc()
                        page.view()[:8] = stamp
                    self.pages.append((page, stamp))
            case 3:
                with contextlib.suppress(
                    pagepool.WrongContext, pagepool.OutOfPages, pagepool.PoolClosed
                ):
                    with poll:
                        batch = pool.alloc_bulk(dice.randrange(1, 100))
                    for at in range(0, len(batch), 7):
                        batch[at].view()[:8] = stamp
                        assert batch[at].view()[:8] == stamp
                    self.batches.append(batch)
            case 4 | 5 | 6 if taken := take(self.pages):
                self.put(dice, poll, *taken)
            case 7:
                some = [taken for _ in range(5) if (taken := take(self.pages))]
                for page, expected in some:
                    assert page.view()[:8] == expected
                with contextlib.suppress(pagepool.WrongContext), poll:
                    pagepool.PagePool.put_bulk(page for page, _ in some)
                    return
                pagepool.PagePool.put_bulk([page for page, _ in some])
            case 8 if batch := take(self.batches):
                with contextlib.suppress(pagepool.WrongContext), poll:
                    batch.put()
                if batch.held:
                    batch.put()
            case 9 if taken := take(self.views):
                view, expected = taken
                assert bytes(view[:8]) == expected
            case 10:
                assert pool.stats.allocated >= 0
                assert pool.inflight >= 0
                assert repr(pool)
            case 11 if dice.random() < 0.05:
                # ValueError: another thread has closed and replaced it.
                with contextlib.suppress(pagepool.WrongContext, ValueError):
                    pool.close()
                    at = self.pools.index(pool)
                    self.pools[at] = self.pool(at)

    def put(self, dice: random.Random, poll: Any, page: pagepool.Page, stamp: bytes) -> None:
        assert page.view()[:8] == stamp
        if dice.random() < 0.3:
            view: Any = memoryview(page)[:100] if dice.random() < 0.5 else page.view()
            assert view[:8] == stamp
            self.views.append((view, stamp))
            del view
        with contextlib.suppress(pagepool.WrongContext), poll:
            page.put()
            return
        page.put()

    def end(self) -> None:
        for batch in self.batches:
            batch.put()
        self.batches.clear()
        for page, stamp in self.pages:
            assert page.view()[:8] == stamp
        pagepool.PagePool.put_bulk(page for page, _ in self.pages)
        for view, stamp in self.views:
            assert bytes(view[:8]) == stamp
        self.views.clear()
        for pool in self.pools:
            pool.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_traffic_between_threads(seed: int) -> None:
    traffic = Traffic(seed)
    threads = [threading.Thread(target=traffic.run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if traffic.errors:
        raise traffic.errors[0]
    traffic.end()
    assert traffic.arena.info.out == 0


def test_forks_in_the_middle_of_traffic() -> None:
    traffic = Traffic(99)
    threads = [threading.Thread(target=traffic.run, args=(i,)) for i in range(2)]
    page = traffic.pools[3].alloc()
    view = page.view()[:6]
    view[:] = b"parent"
    for thread in threads:
        thread.start()
    for _ in range(5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of fork with threads, from 3.12
            pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with pytest.raises(pagepool.Forked):
                    page.put()
                for pool in traffic.pools:
                    with pytest.raises(pagepool.Forked):
                        pool.alloc()
                view[:] = b"childs"
                traffic.pages.clear()
                traffic.batches.clear()
                traffic.views.clear()
                own = Traffic(7)
                own.step(random.Random(1), 1)
                own.end()
                status = 0 if own.arena.info.out == 0 else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    for thread in threads:
        thread.join()
    if traffic.errors:
        raise traffic.errors[0]
    assert bytes(view) == b"parent"
    page.put()
    del view
    traffic.end()
    assert traffic.arena.info.out == 0


def test_signal_handlers_that_use_the_pool() -> None:
    napi = pagepool.Napi()
    arena = pagepool.Arena()
    pool = pagepool.PagePool(napi=napi, provider=arena, pool_size=16)
    pages: list[pagepool.Page] = []
    heard = 0

    def handler(_: int, __: FrameType | None) -> None:
        nonlocal heard
        heard += 1
        with napi:
            page = pool.alloc()
            page.view()[:4] = b"hand"
            if pages:
                pages.pop().put()
            pool.recycle_direct(page)

    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    try:
        calls = 0
        while heard < 50:
            with napi:
                page = pool.alloc()
                page.view()[:4] = b"main"
                assert bytes(page.view()[:4]) == b"main"
                calls += 1
                if calls % 3:
                    page.put()
                else:
                    pages.append(page)
                if len(pages) > 20:
                    pool.put_bulk([pages.pop() for _ in range(5)])
                pool.alloc_bulk(3).put()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    del page
    pool.put_bulk(pages)
    pool.close()
    assert arena.info.out == 0
