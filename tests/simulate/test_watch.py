# SPDX-License-Identifier: BSD-2-Clause
"""The accesses are the model's own: which lines each operation of each design touches."""

from __future__ import annotations

import pytest

from pagepool.model.arena import Arena
from pagepool.model.frame import Frame
from pagepool.model.limits import DESIGNS
from pagepool.model.rules import ALL, Pool
from pagepool.simulate import watch
from pagepool.simulate.machine import LineName, Machine
from pagepool.simulate.mesi import Access
from pagepool.simulate.watch import NoLine, Watch


class Recorder(Machine):
    """Takes down what is accessed."""

    def __init__(self) -> None:
        super().__init__(1, 1.0)
        self.seen: list[tuple[LineName, Access]] = []

    def access(self, name: LineName, how: Access) -> None:
        self.seen.append((name, how))

    def take(self) -> list[tuple[str, str]]:
        """Kind of line and what was done, in order, since the last time."""
        seen, self.seen = self.seen, []
        return [(kind, how.value) for (kind, _), how in seen]


def watched(design: str) -> tuple[Recorder, Pool, list[Frame]]:
    """A pool and 64 pages of it that are out; nothing seen yet."""
    machine = Recorder()
    watch = Watch(machine)
    pool = watch.pool(Pool(1024, 0, None, Arena(), None, design))
    frames = pool.alloc_bulk(64)
    for frame in frames:
        watch.of(frame)
    # Now a lane is there, which was watched when it was made.
    pool.put(frames.pop(), False, ALL)
    machine.take()
    return machine, pool, frames


def test_a_put_into_the_ring() -> None:
    machine, pool, frames = watched("ring")
    pool.put(frames[0], False, ALL)
    seen = machine.take()
    lock = (watch.PRODUCERS, "read-modify-write")
    assert seen.count(lock) == 1
    under = seen[seen.index(lock) :]
    assert under[-1] == (watch.PRODUCERS, "write")  # the lock is left
    assert (watch.HELD, "write") in under
    assert under.count((watch.SLOTS, "write")) == under.count((watch.SLOTS, "read")) == 1
    assert {kind for kind, _ in seen} == {
        watch.PRODUCERS,
        watch.SLOTS,
        watch.HELD,
        watch.METADATA,
    }


def test_a_put_into_a_lane_writes_two_lines_that_are_the_threads() -> None:
    machine, pool, frames = watched("ours")
    pool.put(frames[0], False, ALL)
    seen = machine.take()
    assert {kind for kind, how in seen if how != "read"} == {watch.LANE_TAIL, watch.LANE_ENTRIES}
    # Reads what the consumer writes: the held word.
    assert {kind for kind, how in seen if how == "read"} == {
        watch.METADATA,
        watch.HELD,
        watch.LANE_TAIL,
    }
    # And a third one with every batch.
    for frame in frames[1:31]:
        pool.put(frame, False, ALL)
    assert [kind for kind, how in machine.take() if kind == watch.LANE_PUBLISHED] == [
        watch.LANE_PUBLISHED
    ]


@pytest.mark.parametrize("design", DESIGNS)
def test_which_consumers_touch_a_pages_metadata(design: str) -> None:
    machine, pool, frames = watched(design)
    for frame in frames[:40]:
        pool.put(frame, False, ALL)
    machine.take()
    assert len(pool.alloc_bulk(40)) == 40
    touched = watch.METADATA in {kind for kind, _ in machine.take()}
    assert touched == design.startswith("list")


@pytest.mark.parametrize(
    ("design", "locks"),
    [
        ("ring", 0),
        ("list-cache", 0),
        ("ours", 0),
        ("list-batch", 1),
        ("list", 1),
        ("list-ring", 41),
    ],
)
def test_how_often_the_consumer_takes_the_lock(design: str, locks: int) -> None:
    machine, pool, frames = watched(design)
    for frame in frames[:40]:
        pool.put(frame, False, ALL)
    machine.take()
    pool.alloc()
    assert machine.take().count((watch.PRODUCERS, "read-modify-write")) == locks


def test_lines_are_shared_as_in_the_c_core() -> None:
    machine, pool, frames = watched("ours")
    for frame in frames[:16]:
        pool.put(frame, False, ALL)
    lines = {name for name, _ in machine.seen}
    assert len({name for name in lines if name[0] == watch.LANE_ENTRIES}) == 3  # 16, from 1 on
    numbers = {frame.number for frame in frames[:16]}
    assert {which for kind, which in lines if kind == watch.HELD} == {n // 32 for n in numbers}
    assert {which for kind, which in lines if kind == watch.METADATA} == numbers


@pytest.mark.parametrize("design", DESIGNS)
def test_what_the_model_gets_needs_a_line(design: str) -> None:
    pool = Pool(64, 0, None, Arena(), None, design)
    pool.way.shared_by_all = 0  # type: ignore[attr-defined]
    with pytest.raises(NoLine, match="shared_by_all: say in LAYOUT"):
        Watch(Recorder()).pool(pool)


def test_a_design_that_is_not_in_the_layout() -> None:
    class Other(Frame):
        pass

    with pytest.raises(NoLine, match="Other: all of it"):
        Watch(Recorder()).of(Other(0, 0))
