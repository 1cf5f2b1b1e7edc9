# SPDX-License-Identifier: BSD-2-Clause
"""A cache line: what has to come from another CPU."""

from __future__ import annotations

import pytest

from pagepool.simulate.mesi import Access, Line

R, W, X = Access.READ, Access.WRITE, Access.RMW


def moves(line: Line, *accesses: tuple[int, Access]) -> list[bool]:
    """Of each access: was it a transfer?"""
    moved = []
    for cpu, how in accesses:
        moved.append(line.moves(cpu, how))
        line.access(cpu, how)
    return moved


@pytest.mark.parametrize("write", [W, X])
def test_one_cpu_alone_moves_nothing(write: Access) -> None:
    assert moves(Line(), (1, R), (1, write), (1, R), (1, write)) == [False] * 4


@pytest.mark.parametrize("write", [W, X])
def test_two_that_write_in_turn_move_it_each_time(write: Access) -> None:
    turns = [(i % 2, write) for i in range(6)]
    assert moves(Line(), *turns) == [False] + [True] * 5


def test_a_writer_and_a_reader() -> None:
    # Modified -> Shared, and back; reading again costs nothing, nor does writing again.
    line = Line()
    assert moves(line, (0, W), (1, R), (1, R), (0, R)) == [False, True, False, False]
    assert moves(line, (0, W), (0, W), (1, R)) == [True, False, True]


def test_readers_share_it() -> None:
    assert moves(Line(), (0, R), (1, R), (2, R), (0, R)) == [False] * 4


def test_all_readers_lose_it_to_a_writer() -> None:
    line = Line()
    assert moves(line, (0, W), (1, R), (2, R)) == [False, True, False]
    # The third never had it: it was clean when it came, which a cache of its size spares. But now
    # both lose it.
    assert moves(line, (0, W), (1, R), (2, R), (1, R)) == [True, True, True, False]


def test_a_copy_that_was_taken_away_has_to_come_back_though_it_is_clean() -> None:
    line = Line({0, 1})
    assert moves(line, (2, W), (2, R), (0, R), (1, R)) == [True, False, True, True]


def test_a_line_that_somebody_left_dirty() -> None:
    assert moves(Line({0}, dirty=True), (1, R)) == [True]
    assert moves(Line({0}), (1, R)) == [False]
    assert moves(Line({0}), (1, W)) == [True]
