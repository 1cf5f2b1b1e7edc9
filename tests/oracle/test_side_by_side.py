# SPDX-License-Identifier: BSD-2-Clause
"""Engine and model agree; and the comparison finds what is planted.

PAGEPOOL_ORACLE_SEQUENCES=n runs n sequences instead of a few; PAGEPOOL_ORACLE_SEED=n others than
the same each time.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test

from oracle.machine import SideBySide
from pagepool.model import cache, context, provider, ring, rules
from pagepool.model.counters import Counters, DmaCounters
from pagepool.model.frame import Frame
from pagepool.model.iommu import REASONS

FEW = 150
SEQUENCES = int(os.environ.get("PAGEPOOL_ORACLE_SEQUENCES", FEW))
SEED = os.environ.get("PAGEPOOL_ORACLE_SEED")
CALLS = 40

EVERYTHING = {
    *(field.name for field in dataclasses.fields(Counters)),
    *(field.name for field in dataclasses.fields(DmaCounters)),
    *("OutOfPages", "WrongContext", "PoolClosed", "PageGone", "ForeignPage", "InvalidParameter"),
    *("DeviceGone", "DeviceFault", "NotSupported", "NoDescriptor", "Refused", "use after put"),
}
#: A sync and an unmap have no direction, and a pool's pages may always be written to.
FAULTS = {
    *(f"{op}: {why}" for op in ("write", "read", "sync", "unmap") for why in REASONS),
    "map: device gone",
} - {"write: direction", "sync: direction", "unmap: direction"}


def compare(sequences: int, *, seed: int | None, shrink: bool) -> tuple[int, Counter[str]]:
    """How many sequences ran, and what they met. Raises AssertionError at a difference."""

    class Machine(SideBySide):
        met: ClassVar[Counter[str]] = Counter()

    run_state_machine_as_test(
        hypothesis.seed(seed)(Machine) if seed is not None else Machine,
        settings=hypothesis.settings(
            max_examples=sequences,
            stateful_step_count=CALLS,
            derandomize=seed is None,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        ),
    )
    return Machine.sequences, Machine.met


@pytest.mark.usefixtures("plain_pools", "reports")
def test_engine_and_model_agree(capsys: pytest.CaptureFixture[str]) -> None:
    seed = None if SEED is None else int(SEED)
    ran, met = compare(SEQUENCES, seed=seed, shrink=True)
    with capsys.disabled():
        print(f" {ran} sequences of up to {CALLS} calls ", end="")
        if SEQUENCES > FEW:
            print("met", ", ".join(f"{name} {n}" for name, n in sorted(met.items())))
    assert ran >= SEQUENCES
    # They get to the corners: every statistic and every error was met, and given time every fault.
    wanted = EVERYTHING | FAULTS if SEQUENCES >= 2000 else EVERYTHING
    assert wanted - {name for name, n in met.items() if n} == set()


def oldest_first(self: cache.Cache) -> Frame:
    return self.pages.pop(0)


def clear_one_by_one(self: ring.Ring, size: int) -> None:
    original_ring(self, size)
    self.batch = 1


def waive_and_go_on(self: rules.Pool) -> None:
    while len(self.cache) < 64 and (frame := self.ring.peek()) is not None:
        self.ring.discard()
        if self._wrong_node(frame):
            self.count.alloc_waive += 1
            self._leave(frame)
        else:
            self.cache.push(frame)


def full_by_page(self: rules.Pool, pages: int) -> None:
    self.count.recycle_ring_full += pages


def reuse_not_cached(self: rules.Pool, frame: Frame) -> bool:
    back = original_rest(self, frame)
    if back and not self.dying:
        self.count.recycle_cached -= 1
    return back


def held_frag_counted(self: rules.Pool, frame: Frame) -> bool:
    before = self.in_flight.released
    back = original_rest(self, frame)
    self.count.recycle_released_refcnt += self.in_flight.released - before
    return back


def full_not_counted(self: rules.Pool, frame: Frame) -> bool:
    if self.dying or self.cache.full:
        return False
    return original_cache(self, frame)


def views_do_not_count(self: provider.Provider, frame: Frame, memory: object) -> None:
    pass


def no_merge(self: provider.Buddy, first: int, order: int) -> None:
    self._free[order][first] = None


original_ring = ring.Ring.__init__
original_rest = rules.Pool._drop_rest
original_cache = rules.Pool._recycle_in_cache

PLANTED: dict[str, tuple[type, str, Callable[..., object]]] = {
    "the oldest page of the cache first": (cache.Cache, "pop", oldest_first),
    "slots cleared one by one": (ring.Ring, "__init__", clear_one_by_one),
    "a refill goes on after a waive": (rules.Pool, "_refill", waive_and_go_on),
    "ring_full counts pages": (rules.Pool, "_count_ring_full", full_by_page),
    "reuse in place is not cached": (rules.Pool, "_drop_rest", reuse_not_cached),
    "cache_full is not counted": (rules.Pool, "_recycle_in_cache", full_not_counted),
    "a page that is cut up and held counts as put": (rules.Pool, "_drop_rest", held_frag_counted),
    "a view is nobody": (provider.Provider, "watch", views_do_not_count),
    "free buddies do not merge": (provider.Buddy, "free", no_merge),
}


@pytest.mark.usefixtures("plain_pools", "reports")
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cls, attribute, bug = PLANTED[name]
    monkeypatch.setattr(cls, attribute, bug)
    with pytest.raises(AssertionError):
        compare(600, seed=None, shrink=False)
    assert context.STEP._depth == 0
