# SPDX-License-Identifier: BSD-2-Clause
"""The arithmetic on several runs."""

from __future__ import annotations

import statistics as reference

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagepool.compare.statistics import (
    change_percent,
    chi_square_tail,
    has_modes,
    median_index,
    ranges_overlap,
)

VALUES = st.lists(st.floats(0, 1e9), min_size=1, max_size=20)


@given(VALUES)
def test_the_median_is_a_value_that_was_measured(values: list[float]) -> None:
    assert values[median_index(values)] == reference.median_low(values)


@given(VALUES, VALUES)
def test_ranges_overlap(one: list[float], other: list[float]) -> None:
    apart = max(one) < min(other) or max(other) < min(one)
    assert ranges_overlap(one, other) == (not apart)
    assert ranges_overlap(one, other) == ranges_overlap(other, one)


def test_modes() -> None:
    assert has_modes([31.171, 31.172, 28.824, 19.581, 14.236])
    assert not has_modes([31.171, 31.172, 28.824])
    assert not has_modes([5.0])
    assert not has_modes([0.0, 5.0])  # zero cycles of a slow counter


def test_change() -> None:
    assert change_percent(4, 5) == 25
    assert change_percent(4, 3) == -25
    assert change_percent(0, 3) is None


@pytest.mark.parametrize(
    ("square", "df", "tail"),
    [
        (3.841, 1, 0.05),
        (5.991, 2, 0.05),
        (7.815, 3, 0.05),
        (6.635, 1, 0.01),
        (18.475, 7, 0.01),
        (0, 4, 1),
    ],
)
def test_chi_square(square: float, df: int, tail: float) -> None:
    """Figures of any table."""
    assert chi_square_tail(square, df) == pytest.approx(tail, rel=1e-3)
