# SPDX-License-Identifier: BSD-2-Clause
"""Engine and model agree; and the comparison finds what is planted.

PAGEPOOL_ORACLE_SEQUENCES=n runs n sequences instead of a few hundred; PAGEPOOL_ORACLE_SEED=n
others than the same each time: of each 1000 the seed is one more.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test

from oracle.machine import SideBySide
from pagepool.model import cache, checked, context, device, dma, iommu, provider, ring, rules, way
from pagepool.model.counters import DmaCounters
from pagepool.model.frame import Frame
from pagepool.model.iommu import REASONS
from pagepool.snapshot import PoolStats

FEW = 250
SEQUENCES = int(os.environ.get("PAGEPOOL_ORACLE_SEQUENCES", FEW))
SEED = os.environ.get("PAGEPOOL_ORACLE_SEED")
CALLS = 40
ROUND = 1000  # hypothesis keeps what it has tried, 200 KB of each sequence

EVERYTHING = {
    *(field.name for field in dataclasses.fields(PoolStats)),
    *(field.name for field in dataclasses.fields(DmaCounters)),
    *("OutOfPages", "WrongContext", "PoolClosed", "PageGone", "ForeignPage", "InvalidParameter"),
    *("DeviceGone", "DeviceFault", "NotSupported", "NoDescriptor", "Refused"),
}
#: A sync and an unmap have no direction, and a pool's pages may always be written to.
FAULTS = {
    *(f"{op}: {why}" for op in ("write", "read", "sync", "unmap") for why in REASONS),
    *("map: device gone", "use after put"),
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
            report_multiple_bugs=shrink,
        ),
    )
    return Machine.sequences, Machine.met


def alone(call: str) -> str:
    """What a function of this module returns, as JSON, in a process of its own.

    What hypothesis draws depends on the modules that are loaded: there it is always the same.
    """
    code = f"import json; import {__name__} as here; print(json.dumps(here.{call}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={key: value for key, value in os.environ.items() if key != "PAGEPOOL_CHECKED"},
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if SEQUENCES <= ROUND else None,
        text=True,
        timeout=600 if SEQUENCES <= ROUND else None,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def agree() -> tuple[int, dict[str, int]]:
    """How many sequences ran, and what they met."""
    ran, met = 0, Counter[str]()
    for i, done in enumerate(range(0, SEQUENCES, ROUND)):
        seed = None if SEED is None and SEQUENCES <= ROUND else int(SEED or 0) + i
        more, also = compare(min(ROUND, SEQUENCES - done), seed=seed, shrink=True)
        ran, met = ran + more, met + also
        if SEQUENCES > ROUND:
            print(f"seed {seed}: {more} sequences", file=sys.stderr)
    return ran, met


def test_engine_and_model_agree(capsys: pytest.CaptureFixture[str]) -> None:
    ran, met = json.loads(alone("agree()"))
    with capsys.disabled():
        print(f" {ran} sequences of up to {CALLS} calls ", end="")
        if SEQUENCES > FEW:
            print("met", ", ".join(f"{name} {n}" for name, n in sorted(met.items())))
    assert ran >= SEQUENCES
    # They get to the corners: every statistic and every error was met, and given time every fault.
    wanted = EVERYTHING | FAULTS if SEQUENCES >= 2000 else EVERYTHING if SEQUENCES >= FEW else set()
    assert wanted - {name for name, n in met.items() if n} == set()


def oldest_first(self: cache.Cache) -> Frame:
    return self.pages.pop(0)


def clear_one_by_one(self: ring.Ring, size: int) -> None:
    original_ring(self, size)
    self.batch = 1


def waive_and_go_on(self: rules.Pool) -> None:
    wrong: Frame | None
    while len(self.cache) < 64:
        frames, wrong = self.way.take(64 - len(self.cache), self.node)
        for frame in frames:
            self.cache.push(frame)
        if wrong is None:
            break
        self.count.alloc_waive += 1
        self._leave(wrong)
    if not len(self.cache):
        self.count.alloc_empty += 1


def full_by_page(self: way.Locked, pages: int) -> None:
    self.recycle_ring_full += pages


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


def unmapped_twice(self: dma.Dma) -> None:
    for frame in sorted(self.mapped, key=lambda frame: frame.number):
        assert frame.dma is not None
        self.count.unmaps_destroy += 1
        self.device.unmap(frame.dma, frame.size, self.direction)


def everything_tracked(
    self: dma.Dma, which: device.Device, to: device.Direction, sync: bool, part: range, _: bool
) -> None:
    original_dma(self, which, to, sync, part, True)


def newest_first(self: dma.Dma) -> None:
    for frame in sorted(self.mapped, key=lambda frame: -frame.number):
        assert frame.dma is not None
        self.count.unmaps_destroy += 1
        self._unmap(frame, frame.dma)


def late_sync_not_counted(self: dma.Dma, frame: Frame, size: int) -> None:
    if frame.dma is not None:
        original_sync(self, frame, size)


def sync_beyond_the_part(self: dma.Dma, frame: Frame, size: int) -> None:
    part, self.part = self.part, range(self.part.start, frame.size)
    original_sync(self, frame, size)
    self.part = part


def not_synced_when_reused(self: rules.Pool, frame: Frame, size: int) -> None:
    if self.frag is not frame and self.dma is not None:
        self.dma.sync_for_device(frame, size)


def unmappable_page_is_lost(self: rules.Pool, frame: Frame) -> bool:
    entered = original_enter(self, frame)
    if not entered:
        frame.get()
    return entered


def first_free_address(self: iommu.Table, entry: Any) -> None:
    original_table(self, entry)
    self.cursor = iommu.FIRST


def all_forgotten(self: iommu.IommuDevice) -> int:
    left = original_unbind(self)
    self._table.leaves.clear()
    return left


def sync_for_all(self: device.Device) -> bool:
    return True


def poison_at_the_start(self: checked.Poison, full: bool, offset: int, page_size: int) -> None:
    original_poison(self, full, 0, page_size)


original_ring = ring.Ring.__init__
original_dma = dma.Dma.__init__
original_sync = dma.Dma.sync_for_device
original_enter = rules.Pool._enter
original_table = iommu.Table.enter
original_unbind = iommu.IommuDevice.unbind
original_poison = checked.Poison.__init__
original_rest = rules.Pool._drop_rest
original_cache = rules.Pool._recycle_in_cache

PLANTED: dict[str, tuple[type, str, Any]] = {
    "the oldest page of the cache first": (cache.Cache, "pop", oldest_first),
    "slots cleared one by one": (ring.Ring, "__init__", clear_one_by_one),
    "a refill goes on after a waive": (rules.Pool, "_refill", waive_and_go_on),
    "ring_full counts pages": (way.Locked, "_count_full", full_by_page),
    "reuse in place is not cached": (rules.Pool, "_drop_rest", reuse_not_cached),
    "cache_full is not counted": (rules.Pool, "_recycle_in_cache", full_not_counted),
    "a page that is cut up and held counts as put": (rules.Pool, "_drop_rest", held_frag_counted),
    "a view is nobody": (provider.Provider, "watch", views_do_not_count),
    "free buddies do not merge": (provider.Buddy, "free", no_merge),
    "unmapped by destroy and when it comes back": (dma.Dma, "unmap_all", unmapped_twice),
    "the old rule knows its pages": (dma.Dma, "__init__", everything_tracked),
    "destroy unmaps the last page first": (dma.Dma, "unmap_all", newest_first),
    "a late sync is not counted": (dma.Dma, "sync_for_device", late_sync_not_counted),
    "a sync beyond the device's part": (dma.Dma, "sync_for_device", sync_beyond_the_part),
    "a page reused in place is not synced": (rules.Pool, "_sync", not_synced_when_reused),
    "a page that cannot be mapped is lost": (rules.Pool, "_enter", unmappable_page_is_lost),
    "an address is used again at once": (iommu.Table, "enter", first_free_address),
    "unbind forgets what was mapped": (iommu.IommuDevice, "unbind", all_forgotten),
    "a device that needs no sync is asked": (
        device.Device,
        "_syncs_device",
        property(sync_for_all),
    ),
    "poison not where the device writes": (checked.Poison, "__init__", poison_at_the_start),
}

#: Seeds with which rare ones are met within seconds.
SOON = {
    "destroy unmaps the last page first": 3,
    "a late sync is not counted": 3,
    "a page reused in place is not synced": 2,
    "an address is used again at once": 2,
    "unbind forgets what was mapped": 3,
    "poison not where the device writes": 3,
}


def found(name: str, seed: int) -> bool:
    """Plants it for the rest of this process, and looks for it."""
    cls, attribute, bug = PLANTED[name]
    setattr(cls, attribute, bug)
    try:
        compare(600, seed=seed, shrink=False)
    except AssertionError:
        assert context.STEP._depth == 0
        return True
    return False


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    assert json.loads(alone(f"found({name!r}, {SOON.get(name, 1)})")) is True
