# SPDX-License-Identifier: BSD-2-Clause
"""The arithmetic on several runs."""

from __future__ import annotations

import statistics as reference

from hypothesis import given
from hypothesis import strategies as st

from pagepool.compare.statistics import change_percent, has_modes, median_index, ranges_overlap

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
