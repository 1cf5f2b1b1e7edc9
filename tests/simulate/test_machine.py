# SPDX-License-Identifier: BSD-2-Clause
"""Simulated CPUs: whose turn it is, what it costs, and the lock."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest

from pagepool.simulate.machine import Machine, SpinLock
from pagepool.simulate.mesi import Access

LINE = ("line", 0)
LOCK = ("lock", 0)


def sharing(seed: int, cpus: int, rounds: int) -> tuple[list[int], list[float]]:
    """CPUs that write to one line: in which order, and their clocks in the end."""
    machine = Machine(seed, 100.0)
    order: list[int] = []

    def body(number: int) -> Callable[[], None]:
        def run() -> None:
            while True:
                machine.access(LINE, Access.RMW)
                order.append(number)
                if len(order) == cpus * rounds:
                    machine.stop()

        return run

    for number in range(cpus):
        machine.add(body(number))
    machine.run()
    return order, [cpu.clock for cpu in machine.cpus]


def test_a_seed_decides_everything() -> None:
    assert sharing(1, 5, 20) == sharing(1, 5, 20)
    assert sharing(1, 5, 20)[0] != sharing(2, 5, 20)[0]


def test_transfers_of_one_line_come_one_after_the_other() -> None:
    order, clocks = sharing(1, 4, 50)
    # It is handed around, and every time takes 100 ns, give or take a quarter.
    moved = sum(a != b for a, b in itertools.pairwise(order))
    assert 75 * moved < max(clocks) < 130 * moved + 200
    assert set(order) == {0, 1, 2, 3}


def test_a_line_of_its_own_costs_next_to_nothing() -> None:
    machine = Machine(1, 100.0)

    def body(number: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(1000):
                machine.access(("own", number), Access.RMW)
            if number:
                machine.park()
            machine.stop()

        return run

    for number in range(2):
        machine.add(body(number))
    machine.counting = True
    machine.run()
    assert machine.counted.total() == 0
    assert 700 < machine.cpus[0].clock < 1300


def contended(cpus: int, rounds: int, seed: int = 1) -> Machine:
    """CPUs that count under a lock; asserts that never two are inside."""
    machine = Machine(seed, 50.0)
    lock = SpinLock(machine, LOCK)
    inside: list[int] = []
    done = [0] * cpus

    def body(number: int) -> Callable[[], None]:
        def run() -> None:
            while True:
                with lock:
                    assert not inside
                    inside.append(number)
                    for which in range(3):
                        machine.access(("data", which), Access.WRITE)
                        assert inside == [number]
                    inside.pop()
                done[number] += 1
                if sum(done) == cpus * rounds:
                    machine.stop()
                machine.think(5)

        return run

    for number in range(cpus):
        machine.add(body(number))
    machine.counting = True
    machine.run()
    assert min(done) > 0
    return machine


@pytest.mark.parametrize("seed", range(5))
def test_one_at_a_time_has_the_lock(seed: int) -> None:
    contended(8, 50, seed)


def test_the_more_wait_the_more_the_lock_moves() -> None:
    moved = {n: contended(n, 60).counted["lock"] / (n * 60) for n in (1, 2, 8)}
    assert moved[1] == 0
    assert 0 < moved[2] < moved[8] / 2


def lock_held_for(accesses: int) -> int:
    """Transfers of the lock's line when one waits for another."""
    machine = Machine(1, 50.0)
    lock = SpinLock(machine, LOCK)
    taken: list[bool] = []

    def first() -> None:
        with lock:
            taken.append(True)
            for _ in range(accesses):
                machine.access(("data", 0), Access.WRITE)
        machine.park()

    def second() -> None:
        while not taken:
            machine.access(("other", 0), Access.READ)
        with lock:
            machine.stop()

    machine.add(first)
    machine.add(second)
    machine.counting = True
    machine.run()
    return machine.counted["lock"]


def test_who_waits_reads_its_own_copy() -> None:
    """However long the lock is held."""
    assert lock_held_for(1000) == lock_held_for(100_000) > 0


def test_an_error_of_a_cpu_is_raised_and_no_thread_is_left() -> None:
    before = threading.active_count()
    machine = Machine(1, 50.0)

    def good() -> None:
        while True:
            machine.access(LINE, Access.RMW)

    def bad() -> None:
        for _ in range(10):
            machine.access(LINE, Access.RMW)
        raise KeyError("mine")

    machine.add(good)
    machine.add(bad)
    with pytest.raises(KeyError, match="mine"):
        machine.run()
    assert threading.active_count() == before


def test_when_all_wait_it_says_so() -> None:
    machine = Machine(1, 50.0)
    machine.add(machine.park)
    machine.add(machine.park)
    with pytest.raises(RuntimeError, match="waits for another"):
        machine.run()
