# SPDX-License-Identifier: BSD-2-Clause
"""Pieces of pages from Python."""

from __future__ import annotations

import random

import pytest

import pagepool


def test_a_piece_is_a_buffer_of_exactly_its_size() -> None:
    with pagepool.PagePool() as pool:
        one, two = pool.alloc_frag(100), pool.alloc_frag(4096 - 128)
        assert (len(one), one.offset, len(two), two.offset) == (100, 0, 3968, 128)
        assert two.address - one.address == 128
        assert memoryview(one).nbytes == one.view().nbytes == 100
        one.view()[:] = b"x" * 100
        with pytest.raises(ValueError, match="different structures"):
            one.view()[:] = b"x" * 101
        assert one.users == two.users > 2
        three = pool.alloc_frag(1)  # the page is used up
        assert (one.users, three.offset) == (2, 0)
        for piece in (one, two, three):
            piece.put()
        assert pool.stats.recycle_ring == 1
        assert pool.inflight == 64


def test_the_page_is_used_again_in_place() -> None:
    with pagepool.PagePool() as pool:
        addresses = set()
        for _ in range(10):
            with pool.alloc_frag(3000) as piece:
                addresses.add(piece.address)
        assert len(addresses) == 1
        stats = pool.stats
        assert (stats.alloc_fast, stats.recycle_cached, stats.alloc_slow) == (9, 9, 1)


@pytest.mark.parametrize("size", [0, -1, 4097, 1 << 62])
def test_sizes_that_are_refused(size: int) -> None:
    with pagepool.PagePool() as pool:
        with pytest.raises(pagepool.InvalidParameter, match=f"a piece of {size} bytes"):
            pool.alloc_frag(size)
        assert pool.inflight == 0


def test_pieces_obey_the_rules_of_pages() -> None:
    napi = pagepool.Napi()
    with pagepool.PagePool(napi=napi) as pool:
        with pytest.raises(pagepool.WrongContext):
            pool.alloc_frag(10)
        with napi:
            piece = pool.alloc_frag(10)
        with pytest.raises(pagepool.WrongContext):
            piece.put(allow_direct=True)
        piece.put()
        with pytest.raises(pagepool.PageGone):
            piece.put()
    with pytest.raises(pagepool.PoolClosed):
        pool.alloc_frag(10)


def test_out_of_pages() -> None:
    with pagepool.PagePool(provider=pagepool.Arena(limit=4 << 20)) as pool:
        pieces = [pool.alloc_frag(4096) for _ in range(1024)]
        with pytest.raises(pagepool.OutOfPages):
            pool.alloc_frag(1)
        pool.put_bulk(pieces)


def test_a_view_of_a_piece_keeps_the_page_when_it_comes_back() -> None:
    arena = pagepool.Arena()
    with pagepool.PagePool(provider=arena) as pool:
        one, two = pool.alloc_frag(2048), pool.alloc_frag(2048)
        view = one.view()[:4]
        view[:] = b"kept"
        one.put()
        pool.alloc_frag(4096).put()  # the page is used up
        assert pool.stats.recycle_released_refcnt == 0
        two.put()  # the last piece finds the view
        assert pool.stats.recycle_released_refcnt == 1
    assert bytes(view) == b"kept"
    assert arena.info.out == 1 << 12
    del view
    assert arena.info.out == 0


def test_a_dropped_piece_is_reported_and_not_lost() -> None:
    with pagepool.PagePool() as pool:
        with pytest.warns(ResourceWarning, match="piece of a page of pool"):
            pool.alloc_frag(4096)
        pool.alloc_frag(4096).put()
        assert pool.stats.recycle_cached == 1  # used again in place


def test_a_closed_pool_waits_for_its_pieces() -> None:
    arena = pagepool.Arena()
    pool = pagepool.PagePool(provider=arena)
    pieces = [pool.alloc_frag(1000) for _ in range(3)]
    pool.close()
    for piece in pieces:
        assert pool.inflight == 1
        piece.put()
    assert pool.inflight == 0
    assert arena.info.out == 0


@pytest.mark.parametrize("seed", range(5))
def test_pieces_and_pages_mixed(seed: int) -> None:
    rnd = random.Random(seed)
    arena = pagepool.Arena()
    with pagepool.PagePool(provider=arena, order=seed % 3, pool_size=16) as pool:
        held: list[tuple[pagepool.Page, bytes]] = []
        for step in range(3000):
            if rnd.random() < 0.51 and len(held) < 300:
                if rnd.random() < 0.2:
                    page = pool.alloc()
                else:
                    page = pool.alloc_frag(rnd.randint(1, pool.page_size))
                stamp = step.to_bytes(2, "little")
                page.view()[-1:] = stamp[:1]
                page.view()[:1] = stamp[:1]
                held.append((page, stamp[:1]))
            elif held:
                page, stamp = held.pop(rnd.randrange(len(held)))
                assert bytes(page.view()[:1]) == bytes(page.view()[-1:]) == stamp
                if rnd.random() < 0.3:
                    pool.put_bulk([page])
                else:
                    pool.put(page, allow_direct=rnd.random() < 0.5)
        pool.put_bulk([page for page, _ in held])
    assert arena.info.out == 0
