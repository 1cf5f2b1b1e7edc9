# SPDX-License-Identifier: BSD-2-Clause
"""What is predicted: the shape for the ring, and that a lane costs the same with 64 CPUs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pagepool.model import lanes
from pagepool.model.limits import DESIGNS
from pagepool.simulate import Prediction, compare, reference, simulate, watch


def test_ours_costs_the_same_with_64_cpus_as_with_one() -> None:
    one, many = simulate("ours", 1), simulate("ours", 64)
    assert many.transfers <= 1.2 * one.transfers
    assert many.ns <= 1.2 * one.ns
    assert many.lines.get(watch.PRODUCERS, 0) == 0
    assert one.lines.get(watch.METADATA, 0) == many.lines.get(watch.METADATA, 0) == 0
    # The accounts add up, and each entry goes over once there and once back in eight pages.
    assert sum(many.lines.values()) == pytest.approx(many.transfers)
    assert many.lines[watch.LANE_ENTRIES] == pytest.approx(2 / 8, rel=0.2)


def test_a_false_sharing_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes whose tails are on one line: what is predicted is what the layout says."""
    before = simulate("ours", 16)
    original = watch._which

    def which(kind: str, it: Any) -> Any:
        return 0 if kind == watch.LANE_TAIL else original(kind, it)

    monkeypatch.setattr(watch, "_which", which)
    after = simulate("ours", 16)
    assert after.transfers > 2 * before.transfers


def test_a_model_that_publishes_each_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    before = simulate("ours", 4).lines[watch.LANE_PUBLISHED]
    monkeypatch.setattr(lanes, "LANE_BATCH", 1)
    assert simulate("ours", 4).lines[watch.LANE_PUBLISHED] > 2 * before


def test_pages_that_are_scattered_share_their_held_words() -> None:
    together, scattered = simulate("ours", 16), simulate("ours", 16, hand_over=1)
    assert scattered.lines[watch.HELD] > 5 * together.lines[watch.HELD]


@pytest.mark.parametrize("design", [name for name in DESIGNS if name != "ours"])
def test_a_lock_moves_more_the_more_cpus_there_are(design: str) -> None:
    moved = [simulate(design, n) for n in (1, 2, 4)]
    assert 1.2 * moved[0].transfers < moved[1].transfers
    assert 1.2 * moved[1].transfers < moved[2].transfers
    assert moved[0].ns < moved[1].ns < moved[2].ns


@pytest.mark.parametrize("design", ["ring", "list", "ours"])
def test_nobody_allocates_in_a_storm(design: str) -> None:
    one, two = (simulate(design, n, scenario="storm") for n in (1, 2))
    assert one.transfers == one.returning
    assert two.transfers == two.returning
    assert sum(two.lines.values()) == pytest.approx(two.transfers)
    if design == "ours":
        assert two.transfers <= 1.05 * one.transfers
        assert two.ns <= 1.05 * one.ns
    else:
        assert two.ns > 3 * one.ns
        # One alone leaves the lock to nobody.
        assert one.lines.get(watch.PRODUCERS, 0) < 0.1 < two.lines[watch.PRODUCERS]


def test_who_still_waits_for_the_lock_counts() -> None:
    """With 64 CPUs few puts come to their end, and those that do are not the long ones."""
    some, many = (simulate("ring", n, scenario="storm").ns for n in (16, 64))
    assert many > 4 * some


def test_the_shape_for_the_ring_is_that_of_the_kernels_figures() -> None:
    shape = compare([simulate("ring", n) for n in reference.MEASURED])
    assert shape.same_order
    assert shape.worst < 2


def test_how_the_shape_is_compared() -> None:
    some = simulate("ring", 1)

    def with_ns(*ns: float) -> list[Prediction]:
        return [dataclasses.replace(some, cpus=i + 1, ns=x) for i, x in enumerate(ns)]

    exact = compare(with_ns(3.0709, 18.8, 56.7, 64.7))
    assert exact.factor == pytest.approx(10, rel=0.01)
    assert exact.worst == pytest.approx(1, abs=0.01)
    assert exact.off[2] == 1  # between the two that were measured
    wrong = compare(with_ns(30, 200, 700, 600))
    assert not wrong.same_order
    flat = compare(with_ns(100, 100, 100, 100))
    assert flat.worst > 5
    with pytest.raises(ValueError, match="are needed"):
        compare(with_ns(1, 2))


def test_the_same_seed_the_same_prediction() -> None:
    first, again, other = (simulate("ring", 3, seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert first != dataclasses.replace(other, seed=7)


def test_a_transfer_that_takes_longer() -> None:
    short, long = (simulate("ours", 2, transfer_ns=ns) for ns in (20, 200))
    # As many, and all of the difference is theirs.
    assert long.transfers == pytest.approx(short.transfers, rel=0.5)
    assert long.ns - short.ns == pytest.approx(180 * long.returning, rel=0.5)


@pytest.mark.parametrize("design", ["ring", "list", "ours"])
def test_128_cpus(design: str) -> None:
    prediction = simulate(design, 128, pages=32)
    assert prediction.returns > 500
    assert prediction.cpus == 128


def test_more_pages_than_a_ring_holds_are_refused() -> None:
    with pytest.raises(ValueError, match="are 25600 pages"):
        simulate("ring", 128, pages=200)
