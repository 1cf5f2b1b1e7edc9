# SPDX-License-Identifier: BSD-2-Clause
"""The designs: what each does as the ring does, and what it does differently."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pagepool import model as pagepool
from pagepool.model import designs, lanes, limits, ring, rules
from pagepool.model.frame import Frame

ALL = rules.ALL
LISTS = ("list", "list-ring", "list-batch", "list-cache", "list-ring-cache")

Run = Callable[[Callable[[], object]], None]


@pytest.fixture
def threads() -> Iterator[list[Run]]:
    """Three threads that do what they are told, one at a time."""
    executors = [ThreadPoolExecutor(1, f"returns-{i}") for i in range(3)]

    def runner(executor: ThreadPoolExecutor) -> Run:
        def run(act: Callable[[], object]) -> None:
            executor.submit(act).result()

        return run

    yield [runner(executor) for executor in executors]
    for executor in executors:
        executor.shutdown()


def pool_of(design: str, size: int = 1024, node: int | None = None) -> rules.Pool:
    """The rules alone."""
    return rules.Pool(size, 0, node, pagepool.Arena(), None, design)


def take_out(pool: rules.Pool, n: int) -> list[Frame]:
    """n pages of the provider; the cache and the way back are empty."""
    assert n % 64 == 0
    frames = pool.alloc_bulk(n)
    assert len(frames) == n
    assert len(pool.cache) == 0
    return frames


def put(pool: rules.Pool, frames: list[Frame]) -> None:
    for frame in frames:
        pool.put(frame, False, ALL)


def refill(pool: rules.Pool) -> list[int]:
    """The numbers of the pages of one refill, in the order in which they are taken out."""
    frames, wrong = pool.way.take(64, pool.node)
    assert wrong is None
    return [frame.number for frame in frames]


def numbers(frames: list[Frame]) -> list[int]:
    return [frame.number for frame in frames]


# -- all designs


@pytest.mark.parametrize("design", limits.DESIGNS)
def test_pages_go_round(design: str) -> None:
    arena = pagepool.Arena()
    with pagepool.PagePool(design=design, provider=arena) as pool:
        assert pool.design == design
        batch = pool.alloc_bulk(128)
        first = {page.address for page in batch}
        for page in list(batch):
            pool.put(page)
        assert pool.held_back == 0
        batch = pool.alloc_bulk(128)
        assert {page.address for page in batch} == first
        batch.put()
        stats = pool.stats
        assert (stats.alloc_slow, stats.alloc_refill, stats.alloc_empty) == (2, 2, 2)
        assert (stats.alloc_fast, stats.recycle_ring) == (252, 256)
        pool.flush()
    assert pool.inflight == 0
    assert arena.info.out == 0


@pytest.mark.parametrize("bad", ["list-ours", "", "Ring"])
def test_a_design_that_is_none(bad: str) -> None:
    with pytest.raises(pagepool.InvalidParameter, match="must be ring, list, ours"):
        pagepool.PagePool(design=bad)


@pytest.mark.parametrize("design", limits.DESIGNS)
def test_a_page_on_the_wrong_node_ends_the_refill(design: str) -> None:
    pool = pool_of(design)
    frames = take_out(pool, 64)
    frames[40].node = 1
    put(pool, frames)
    pool.node = 0
    assert pool.alloc() is frames[39]
    assert (pool.count.alloc_waive, pool.count.alloc_refill, pool.count.alloc_empty) == (1, 1, 1)
    assert not frames[40].out
    assert pool.in_flight.pages == 63
    again = [pool.alloc() for _ in range(62)]
    assert set(again) == {*frames[:39], *frames[41:]}


@pytest.mark.parametrize("design", limits.DESIGNS)
def test_a_wrong_page_alone_is_a_waive_and_no_refill(design: str) -> None:
    pool = pool_of(design)
    frames = take_out(pool, 64)
    frames[0].node = 1
    put(pool, frames[:1])
    pool.node = 0
    assert pool.alloc() is not None
    stats = pool.stats
    assert (stats.alloc_waive, stats.alloc_refill, stats.alloc_empty) == (1, 0, 1)
    assert stats.alloc_slow == 2


@pytest.mark.parametrize("design", limits.DESIGNS)
def test_a_second_put_does_nothing(design: str) -> None:
    pool = pool_of(design)
    frames = take_out(pool, 64)
    put(pool, frames)
    put(pool, frames[:3])
    taken = refill(pool)
    # In a lane they are found when they are taken out, which is no refill that takes them.
    assert sorted(taken) == sorted(numbers(frames))
    assert refill(pool) == []
    assert pool.refused == 3
    assert pool.stats.recycle_ring == 64


@pytest.mark.parametrize("design", limits.DESIGNS)
def test_a_second_put_into_the_cache_does_nothing(design: str) -> None:
    pool = pool_of(design)
    frame = take_out(pool, 64)[0]
    pool.put(frame, True, ALL)
    pool.put(frame, True, ALL)
    assert (pool.refused, len(pool.cache), pool.stats.recycle_cached) == (1, 1, 1)


@pytest.mark.parametrize("design", limits.DESIGNS)
def test_pages_put_after_the_end_leave_at_once(design: str, threads: list[Run]) -> None:
    arena = pagepool.Arena()
    pool = pagepool.PagePool(design=design, provider=arena)
    pages = list(pool.alloc_bulk(64))
    for page in pages[:10]:
        pool.put(page)
    pool.close()
    assert (pool.inflight, pool.held_back) == (54, 0)
    threads[0](lambda: pagepool.PagePool.put_bulk(pages[10:50]))
    for page in pages[50:]:
        pool.put(page)
    assert (pool.inflight, arena.info.out, pool.stats.recycle_ring) == (0, 0, 64)


@pytest.mark.parametrize("design", [d for d in limits.DESIGNS if d != "ours"])
def test_lanes_hold_pages_back_and_nothing_else_does(design: str) -> None:
    pool = pool_of(design)
    frames = take_out(pool, 64)
    put(pool, frames[:1])
    assert pool.way.held_back == 0
    assert refill(pool) == numbers(frames[:1])


# -- list


@pytest.mark.parametrize("design", LISTS)
def test_the_same_as_the_ring_after_the_same_calls(design: str) -> None:
    """But for which page it is, which the provider decides: here there is only one chunk."""
    seen = []
    for which in ("ring", design):
        pool, rng = pool_of(which), random.Random(5)
        out: list[Frame] = []
        trace: list[object] = []
        for _ in range(3000):
            n = rng.choice([1, 1, 2, 40, 70])
            if rng.random() < 0.5 or not out:
                got = pool.alloc_bulk(n)
                trace += numbers(got)
                out += got
            else:
                some = [out.pop(rng.randrange(len(out))) for _ in range(min(n, len(out)))]
                direct = rng.random() < 0.5
                if rng.random() < 0.3:
                    rules.Pool.put_bulk(some)
                else:
                    for frame in some:
                        pool.put(frame, direct, ALL)
            trace.append(dataclasses.astuple(pool.stats))
        assert pool.stats.recycle_ring_full == 0
        assert pool.stats.recycle_cached > 500
        seen.append(trace)
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("design", "room"), [("ring", 49), ("list-cache", 49), ("list", 64), ("list-ring", 64)]
)
def test_when_it_is_full(design: str, room: int) -> None:
    """Of 64 slots 15 were emptied and not cleared; a list has no such slots."""
    pool = pool_of(design, size=64)
    frames = take_out(pool, 64) + take_out(pool, 64)
    put(pool, frames[:15])
    assert len(refill(pool)) == 15
    put(pool, frames[15:79])
    assert pool.stats.recycle_ring == 15 + room
    assert pool.stats.recycle_ring_full == 64 - room
    assert pool.in_flight.pages == 128 - (64 - room)
    rules.Pool.put_bulk(frames[79:])
    assert pool.stats.recycle_ring_full == 64 - room + 1  # a call


def test_a_list_that_was_emptied_begins_anew() -> None:
    pool = pool_of("list")
    frames = take_out(pool, 64)
    for part in (frames[:2], frames[2:5]):
        put(pool, part)
        assert refill(pool) == numbers(part)
        assert refill(pool) == []


def test_how_often_the_lock_is_taken() -> None:
    taken = {}
    for design in ("ring", "list-ring", "list-batch"):
        pool = pool_of(design)
        put(pool, take_out(pool, 64))

        class Counting:
            times = 0

            def __enter__(self) -> None:
                type(self).times += 1

            def __exit__(self, *exc: object) -> None:
                pass

        assert hasattr(pool.way, "lock")
        pool.way.lock = Counting()
        refill(pool)
        taken[design] = Counting.times
    assert taken == {"ring": 0, "list-ring": 64, "list-batch": 1}


@pytest.mark.parametrize("design", ["list", "list-cache", "list-ring-cache"])
def test_the_linked_cache_is_emptied_in_the_order_of_the_array(design: str) -> None:
    freed = []
    for which in ("ring", design):
        pool = pool_of(which)
        frames = pool.alloc_bulk(10)
        pool.put(frames[3], True, ALL)
        freed.append([frame.number for frame in pool.cache.pop_all()])
        assert len(pool.cache) == 0
    assert freed[0] == freed[1]
    assert len(freed[0]) == 55


# -- ours


def lanes_of(pool: rules.Pool) -> lanes.Lanes:
    assert isinstance(pool.way, lanes.Lanes)
    return pool.way


def cursor(pool: rules.Pool) -> int | None:
    """Which lane the next refill begins at; None: the ring."""
    way = lanes_of(pool)
    return None if isinstance(way.cursor, ring.Ring) else way.lanes.index(way.cursor)


def test_a_batch_of_32_is_published() -> None:
    pool = pagepool.PagePool(design="ours")
    pages = list(pool.alloc_bulk(64))
    for i, page in enumerate(pages):
        assert pool.held_back == i % 32
        pool.put(page)
        assert pool.stats.recycle_ring == i + 1  # counted when it is put
    assert pool.held_back == 0
    pagepool.PagePool.put_bulk(list(pool.alloc_bulk(40)))
    assert pool.held_back == 8


def test_flush_publishes_what_this_thread_holds_back(threads: list[Run]) -> None:
    pool = pool_of("ours")
    frames = take_out(pool, 64)
    put(pool, frames[:5])
    threads[0](lambda: put(pool, frames[5:8]))
    assert pool.way.held_back == 8
    threads[1](pool.way.flush)  # has no lane, and gets none
    assert len(lanes_of(pool).lanes) == 2
    assert pool.way.held_back == 8
    threads[0](pool.way.flush)
    assert pool.way.held_back == 5
    # What is published is taken, what is held back stays as long as there is any.
    assert refill(pool) == numbers(frames[5:8])
    # A batch is counted from the first entry, not from the flush.
    threads[0](lambda: put(pool, frames[8:37]))
    assert pool.way.held_back == 5
    assert refill(pool) == numbers(frames[8:37])


def test_what_is_held_back_comes_before_the_provider(threads: list[Run]) -> None:
    pool = pool_of("ours")
    frames = take_out(pool, 64)
    put(pool, frames[:3])
    threads[0](lambda: put(pool, frames[3:5]))
    assert pool.alloc() is frames[4]
    assert pool.way.held_back == 0
    assert (pool.count.alloc_refill, pool.count.alloc_empty, pool.count.alloc_slow) == (1, 1, 1)


def test_a_walk_over_what_is_held_back_publishes_what_it_comes_to(threads: list[Run]) -> None:
    pool = pool_of("ours")
    frames = take_out(pool, 64) + take_out(pool, 64)
    parts = [frames[30 * i : 30 * (i + 1)] for i in range(3)]
    for run, part in zip(threads, parts, strict=True):
        run(lambda part=part: put(pool, part))  # type: ignore[misc]
    assert pool.way.held_back == 90
    assert refill(pool) == numbers(frames[:64])  # of the third lane four
    assert pool.way.held_back == 0
    # The rest of the third is published: what another thread holds back since has to wait.
    threads[0](lambda: put(pool, frames[90:91]))
    assert pool.way.held_back == 1
    assert refill(pool) == numbers(frames[64:90])
    assert refill(pool) == numbers(frames[90:91])


def test_lanes_are_taken_in_turn(threads: list[Run]) -> None:
    pool = pool_of("ours")
    frames = [frame for _ in range(8) for frame in take_out(pool, 64)]
    parts = [frames[128 * i : 128 * (i + 1)] for i in range(3)]
    for run, part in zip(threads, parts, strict=True):
        run(lambda part=part: put(pool, part))  # type: ignore[misc]
    way = lanes_of(pool)
    assert cursor(pool) is None  # eight refills found nothing
    way.ring.put(frames[384:394])
    a, b, c = map(numbers, parts)
    # From the ring on, then from each lane on, to the next when there are less than 64.
    assert refill(pool) == numbers(frames[384:394]) + a[:54]
    assert refill(pool) == a[54:118]
    assert refill(pool) == b[:64]
    assert refill(pool) == c[:64]
    assert cursor(pool) is None
    assert refill(pool) == a[118:] + b[64:118]
    assert refill(pool) == b[118:] + c[64:118]
    assert refill(pool) == c[118:]  # begins at the second
    assert cursor(pool) == 2
    threads[1](lambda: put(pool, parts[1][:1]))  # put twice: refused, and nothing was taken
    assert refill(pool) == []
    assert cursor(pool) is None


def test_a_lane_made_later_stands_before_the_ring(threads: list[Run]) -> None:
    pool = pool_of("ours")
    frames = take_out(pool, 64)
    threads[0](lambda: put(pool, frames[:2]))
    refill(pool)
    assert cursor(pool) == 0
    refill(pool)
    assert cursor(pool) is None
    threads[1](lambda: put(pool, frames[2:4]))
    assert cursor(pool) is None
    refill(pool)
    assert cursor(pool) == 0


def test_more_that_was_published_meanwhile_is_taken_in_the_same_refill() -> None:
    pool = pool_of("ours")
    frames = take_out(pool, 64) + take_out(pool, 64)
    put(pool, frames[:96])
    assert refill(pool) == numbers(frames[:64])
    put(pool, frames[96:])
    assert refill(pool) == numbers(frames[64:])


@pytest.mark.parametrize("size", [16, 48])
def test_a_full_lane(size: int, threads: list[Run]) -> None:
    pool = pool_of("ours", size=size)
    assert pool.way.size == size
    frames = take_out(pool, 64) + take_out(pool, 64)
    put(pool, frames[: size + 2])
    assert (pool.stats.recycle_ring, pool.stats.recycle_ring_full) == (size, 2)
    assert [frame.out for frame in frames[: size + 2]] == [True] * size + [False] * 2
    rules.Pool.put_bulk(frames[size + 2 : size + 6])  # one call
    assert (pool.stats.recycle_ring, pool.stats.recycle_ring_full) == (size, 3)
    # Another thread has as much room.
    threads[0](lambda: put(pool, frames[64 : 64 + size]))
    assert (pool.stats.recycle_ring, pool.stats.recycle_ring_full) == (2 * size, 3)
    taken = refill(pool) + refill(pool)
    assert sorted(taken) == sorted(numbers(frames[:size] + frames[64 : 64 + size]))
    # And again after the circle was gone round.
    put(pool, frames[124:])
    assert pool.way.held_back > 0
    assert refill(pool) == numbers(frames[124:])


def test_a_page_put_twice_through_two_lanes(threads: list[Run]) -> None:
    pool = pool_of("ours")
    frames = take_out(pool, 64)
    put(pool, frames[:2])
    threads[0](lambda: put(pool, frames[1:3]))
    assert (pool.refused, pool.stats.recycle_ring) == (0, 4)  # not found yet
    assert refill(pool) == numbers(frames[:3])
    assert (pool.refused, pool.stats.recycle_ring) == (1, 3)
    # At once, when it was taken out.
    threads[0](lambda: put(pool, frames[:1]))
    assert (pool.refused, pool.stats.recycle_ring) == (2, 3)


def test_a_put_of_an_earlier_allocation_is_not_mistaken(threads: list[Run]) -> None:
    pool = pool_of("ours")
    frame = take_out(pool, 64)[0]
    put(pool, [frame])
    pool.put(frame, True, ALL)  # the second time, but the first that arrives
    assert pool.alloc() is frame  # handed out again, while the lane has an entry of it
    assert refill(pool) == []
    assert (pool.refused, frame.out, frame.held != 0) == (1, True, True)


def test_a_thread_that_ends_leaves_its_lane_to_the_next() -> None:
    pool = pool_of("ours")
    frames = take_out(pool, 64)
    way = lanes_of(pool)

    def in_a_thread(some: list[Frame]) -> None:
        thread = threading.Thread(target=put, args=(pool, some))
        thread.start()
        thread.join()

    put(pool, frames[:1])
    in_a_thread(frames[1:4])
    assert (len(way.lanes), way.held_back) == (2, 1)  # published at the end
    in_a_thread(frames[4:6])
    assert (len(way.lanes), way.lanes[1].tail) == (2, 5)
    assert refill(pool) == numbers(frames[1:6])
    assert refill(pool) == numbers(frames[:1])


def test_every_lane_is_emptied_at_the_end(threads: list[Run]) -> None:
    arena = pagepool.Arena()
    pool = pagepool.PagePool(design="ours", provider=arena)
    pages = list(pool.alloc_bulk(64))
    pool.put(pages[0])
    threads[0](lambda: pagepool.PagePool.put_bulk(pages[1:50]))
    pool.close()
    assert (pool.inflight, arena.info.out, pool.held_back) == (14, 14 << 12, 0)
    assert pool.stats.recycle_ring == 50
    pagepool.PagePool.put_bulk(pages[50:])
    assert pool.inflight == 0


def test_the_ways_are_what_the_names_say() -> None:
    kinds = {name: type(designs.make_way(name, 64)).__name__ for name in limits.DESIGNS}
    assert kinds == {
        "ring": "Ring",
        "list": "LinkedRing",
        "ours": "Lanes",
        "list-ring": "LinkedRing",
        "list-batch": "LinkedRing",
        "list-cache": "Ring",
        "list-ring-cache": "LinkedRing",
    }
    assert isinstance(lanes.Lanes(64).ring, ring.Ring)
