# SPDX-License-Identifier: BSD-2-Clause
"""The model's own objects, watched: every access to what CPUs share is an access to a cache line.

``LAYOUT`` says on which line an attribute of the model lies in the C core (``types.h``). An object
with an attribute that is not in it is refused: so the model cannot get a field, or a design another
one, without a line being named for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, SupportsIndex, TypeVar

from pagepool.model.cache import Cache
from pagepool.model.counters import Counters
from pagepool.model.frame import Frame
from pagepool.model.lanes import Lane, Lanes
from pagepool.model.list import LinkedCache, LinkedRing
from pagepool.model.ring import Ring
from pagepool.model.rules import Pool
from pagepool.simulate.machine import LineName, Machine, SpinLock
from pagepool.simulate.mesi import Access

SLOTS_A_LINE = 8  # pointers, or entries of a lane
HELD_A_LINE = 32  # words of 16 bits

# Kinds of lines.
PRODUCERS = "lock and producer index"
SLOTS = "ring slots"
RING_CONSUMER = "ring consumer index"
LIST = "list ends"
METADATA = "page metadata"
HELD = "held words"
POOL = "pool: cache counters"
LANE_TAIL = "lane tail"
LANE_ENTRIES = "lane entries"
LANE_PUBLISHED = "lane published"
LANE_HEAD = "lane head"

_WAY = {"size": None, "refused": None}
_LOCKED = {
    **_WAY,
    "closed": PRODUCERS,
    "lock": None,  # itself an access to PRODUCERS
    "recycle_ring": PRODUCERS,
    "recycle_ring_full": PRODUCERS,
}

#: Attribute -> its kind of line; None: nobody writes it while pages go round, or only the consumer
#: ever looks at it.
LAYOUT: dict[type, dict[str, str | None]] = {
    Ring: {
        **_LOCKED,
        "slots": SLOTS,
        "batch": None,
        "producer": PRODUCERS,
        "consumer": RING_CONSUMER,
        "uncleared": RING_CONSUMER,
    },
    LinkedRing: {**_LOCKED, "batch": None, "first": LIST, "last": LIST, "listed": LIST},
    Lanes: {
        **_WAY,
        "closed": None,  # what a producer looks at is in its lane
        "lanes": None,
        "ring": None,
        "cursor": None,
        "_of_thread": None,  # thread-local
    },
    Lane: {
        "size": None,
        "entries": LANE_ENTRIES,
        "tail": LANE_TAIL,
        "head_seen": LANE_TAIL,
        "ring_full": LANE_TAIL,
        "published": LANE_PUBLISHED,
        "head": LANE_HEAD,
        "seen": LANE_HEAD,
        "refused": LANE_HEAD,
        "thread": None,
    },
    Cache: {"pages": None, "size": None},
    LinkedCache: {"pages": None, "size": None, "top": None, "cached": None},
    Counters: {
        "alloc_fast": POOL,
        "recycle_cached": POOL,
        "alloc_slow": None,
        "alloc_slow_high_order": None,
        "alloc_empty": None,
        "alloc_refill": None,
        "alloc_waive": None,
        "recycle_cache_full": None,
        "recycle_released_refcnt": None,
    },
    Pool: {
        "napi": None,  # on a line that is only read
        **dict.fromkeys(["id", "order", "node", "provider", "dma", "poison", "dying", "cache"]),
        **dict.fromkeys(["way", "frag", "frag_offset", "frag_users", "count", "in_flight"]),
        **dict.fromkeys(["allocations", "refused_in_cache", "refill_to"]),
    },
    Frame: {
        **dict.fromkeys(["order", "node", "pfmemalloc", "holders", "users", "pool"], METADATA),
        **dict.fromkeys(["dma", "link"], METADATA),
        "held": HELD,
        **dict.fromkeys(["number", "address", "provider", "poisoned", "_bytes", "_memory"]),
    },
}

_PER_LINE = {SLOTS: SLOTS_A_LINE, LANE_ENTRIES: SLOTS_A_LINE}

T = TypeVar("T")


class NoLine(Exception):
    """The model has something of which ``LAYOUT`` does not say where it lies."""


def _which(kind: str, it: Any) -> Hashable:
    """Which line of its kind an object's attributes are on."""
    if kind == METADATA:
        number: int = it.number
        return number
    if kind == HELD:
        return int(it.number) // HELD_A_LINE
    return id(it) if isinstance(it, Lane) else 0


class _Slots(list[T]):
    """A list of which so many items share a line."""

    machine: Machine
    kind: str
    which: Hashable

    def _see(self, i: Any, how: Access) -> None:
        line = int(i) // _PER_LINE[self.kind]
        self.machine.access((self.kind, (self.which, line)), how)

    def __getitem__(self, i: SupportsIndex) -> T:  # type: ignore[override]
        self._see(i, Access.READ)
        return super().__getitem__(i)

    def __setitem__(self, i: SupportsIndex, value: T) -> None:  # type: ignore[override]
        self._see(i, Access.WRITE)
        super().__setitem__(i, value)


def _watched_attribute(machine: Machine, name: str, kind: str) -> property:
    def get(it: Any) -> Any:
        machine.access((kind, _which(kind, it)), Access.READ)
        return it.__dict__[name]

    def put(it: Any, value: Any) -> None:
        machine.access((kind, _which(kind, it)), Access.WRITE)
        it.__dict__[name] = value

    return property(get, put)


class Watch:
    """Makes objects of the model tell a machine what is done to them."""

    def __init__(self, machine: Machine) -> None:
        """The accesses are those of the CPU that runs."""
        self.machine = machine
        self._classes = {cls: self._watched(cls) for cls in LAYOUT}

    def _watched(self, cls: type) -> type:
        layout = LAYOUT[cls]
        members: dict[str, Any] = {
            name: _watched_attribute(self.machine, name, kind)
            for name, kind in layout.items()
            if kind is not None and kind not in _PER_LINE
        }
        if cls is Lanes:
            make: Callable[[Lanes], Lane] = Lanes._new_lane
            members["_new_lane"] = lambda lanes: self.of(make(lanes))
        return type(cls.__name__, (cls,), members)

    def of(self, it: T) -> T:
        """The same object, watched from now on. Raises NoLine."""
        cls = type(it)
        layout = LAYOUT.get(cls)
        missing = None if layout is None else set(vars(it)) ^ set(layout)
        if layout is None or missing:
            what = ", ".join(sorted(missing)) if missing else "all of it"
            raise NoLine(f"{cls.__name__}: {what}: say in LAYOUT on which line it lies")
        for name, kind in layout.items():
            if kind in _PER_LINE:
                slots: _Slots[Any] = _Slots(vars(it)[name])
                slots.machine, slots.kind, slots.which = self.machine, str(kind), _which(kind, it)
                vars(it)[name] = slots
        if "lock" in layout:
            line: LineName = (PRODUCERS, 0)
            vars(it)["lock"] = SpinLock(self.machine, line)
        it.__class__ = self._classes[cls]
        if isinstance(it, Lanes):
            self.of(it.ring)
        return it

    def pool(self, pool: Pool) -> Pool:
        """It, and its parts."""
        for part in (pool.cache, pool.way, pool.count):
            self.of(part)
        return self.of(pool)
