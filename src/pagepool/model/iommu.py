# SPDX-License-Identifier: BSD-2-Clause
"""A software IOMMU: refuses and reports what goes through a mapping, or device, that is gone."""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, SupportsIndex, final

from pagepool import errors
from pagepool.model.context import STEP, show
from pagepool.model.device import Device, Direction, check_direction
from pagepool.model.limits import PAGE_SHIFT, PAGE_SIZE, unsigned
from pagepool.snapshot import Fault, Mapping

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from pagepool.model.frame import Frame

DEFAULT_BITS = 48
FIRST = PAGE_SIZE  # 0 is no address
LEAF_SHIFT = 9  # a leaf of the page table has 512 entries
LEAVES_KEPT = 64  # with nothing mapped in them
FAULTS_KEPT = 1000
MAX_ADDRESS = 0xFFFFFFFFFFFFFFFF
MAX_READ = 1 << 32

_logger = logging.getLogger("pagepool")

REASONS = {
    "device gone": "the device is gone",
    "unmapped": "it was unmapped",
    "never mapped": "nothing known was ever mapped there",
    "length": "it goes beyond the mapping",
    "direction": "the mapping is for the other direction",
}


@dataclasses.dataclass(slots=True)
class _Entry:
    """A mapping, or what is remembered of one."""

    mapping: Mapping
    memory: memoryview | None  # None: it is not mapped any more

    @property
    def pages(self) -> range:
        first, size = self.mapping.dma, _rounded(self.mapping.length)
        return range(first >> PAGE_SHIFT, first + size >> PAGE_SHIFT)


class _Leaf:
    """512 pages of an address space."""

    def __init__(self) -> None:
        self.entries: dict[int, _Entry] = {}
        self.mapped = 0  # pages


class Table:
    """A device's address space: which addresses are used, and what was there.

    A radix tree, of which only the leaves matter for what can be seen.
    """

    def __init__(self, bits: int) -> None:
        """Nothing is mapped."""
        self.end = 1 << bits
        self.cursor = FIRST
        self.leaves: dict[int, _Leaf] = {}
        self.idle: dict[int, None] = {}  # leaves with nothing mapped, the first to go first

    def find(self, dma: int) -> _Entry | None:
        """What is mapped there, or was last."""
        leaf = self.leaves.get(dma >> PAGE_SHIFT + LEAF_SHIFT)
        return leaf.entries.get(dma >> PAGE_SHIFT) if leaf else None

    def place(self, length: int) -> int | None:
        """Where so many bytes go; None: the address space is used up."""
        # Rule: a mapping takes its size, rounded up to a power of two pages, and lies at the next
        # multiple of that.
        size = _rounded(length)
        again = False
        dma = -(-self.cursor // size) * size
        while True:
            # Rule: the end is reached: once more from the start.
            if dma + size > self.end:
                if again:
                    return None
                again, dma = True, -(-FIRST // size) * size
            # Rule: what is still mapped is skipped.
            elif any(
                self._mapped(page) for page in range(dma >> PAGE_SHIFT, dma + size >> PAGE_SHIFT)
            ):
                dma += size
            else:
                return dma

    def _mapped(self, page: int) -> bool:
        entry = self.find(page << PAGE_SHIFT)
        return entry is not None and entry.memory is not None

    def enter(self, entry: _Entry) -> None:
        """It is mapped. Rule: the next mapping comes behind it."""
        for page in entry.pages:
            leaf = self.leaves.setdefault(page >> LEAF_SHIFT, _Leaf())
            leaf.entries[page] = entry
            leaf.mapped += 1
            self.idle.pop(page >> LEAF_SHIFT, None)
        left = self._leaf_of_cursor
        self.cursor = entry.mapping.dma + _rounded(entry.mapping.length)
        self._forget([left])

    def leave(self, entry: _Entry) -> None:
        """It is not mapped any more. Rule: what was there is remembered."""
        entry.memory = None
        for page in entry.pages:
            self.leaves[page >> LEAF_SHIFT].mapped -= 1
        self._forget(dict.fromkeys(page >> LEAF_SHIFT for page in entry.pages))

    @property
    def _leaf_of_cursor(self) -> int:
        return self.cursor >> PAGE_SHIFT + LEAF_SHIFT

    def _forget(self, leaves: Iterable[int]) -> None:
        """Rule: but not for ever. Leaves with nothing mapped, which the cursor has left, are kept,
        64 of them, and then forgotten, the first that was kept first."""
        for number in leaves:
            leaf = self.leaves.get(number)
            if leaf and not leaf.mapped and number != self._leaf_of_cursor:
                self.idle.setdefault(number)
        while len(self.idle) > LEAVES_KEPT:
            oldest = next(iter(self.idle))
            del self.idle[oldest], self.leaves[oldest]

    @property
    def mapped(self) -> list[_Entry]:
        """What is mapped, by address."""
        entries = {
            entry.mapping.dma: entry
            for leaf in self.leaves.values()
            for entry in leaf.entries.values()
            if entry.memory is not None
        }
        return [entries[dma] for dma in sorted(entries)]


def _rounded(length: int) -> int:
    return max(1 << (length - 1).bit_length(), PAGE_SIZE)


@final
class Iommu:
    """A software IOMMU. Each device behind it has an address space and a page table of its own."""

    def __init__(
        self,
        *,
        bits: SupportsIndex = DEFAULT_BITS,
        on_fault: Callable[[Fault], object] | None = None,
    ) -> None:
        """bits: of an address, 16 to 56; 0: 48.

        on_fault: is told of each refusal; ``None``: the logger ``pagepool`` is. Here it is called
        at the end of the step, and what it raises is shown.

        Raises InvalidParameter.
        """
        self._bits = unsigned(bits, "bits", 0xFFFFFFFF) or DEFAULT_BITS
        if not 16 <= self._bits <= 56:
            raise errors.InvalidParameter(
                f"an IOMMU's addresses of {self._bits} bits: must be 16 to 56"
            )
        if on_fault is not None and not callable(on_fault):
            raise TypeError(f"on_fault must be callable, not {type(on_fault).__name__}")
        self._on_fault = on_fault
        self._faults: deque[Fault] = deque(maxlen=FAULTS_KEPT)
        self._fault_count = 0

    def attach(self, name: str) -> IommuDevice:
        """A device behind it. name: for messages."""
        return IommuDevice._of(self, name, Table(self._bits))

    @property
    def faults(self) -> list[Fault]:
        """The newest 1000 refusals, the oldest first."""
        with STEP:
            return list(self._faults)

    @property
    def fault_count(self) -> int:
        """Refusals so far, of all its devices."""
        return self._fault_count

    def _report(self, fault: Fault) -> None:
        self._faults.append(fault)
        self._fault_count += 1
        STEP.later(lambda: show(self._tell, fault))

    def _tell(self, fault: Fault) -> None:
        if self._on_fault is not None:
            self._on_fault(fault)
        else:
            _logger.warning("%s", fault.text)

    def __repr__(self) -> str:
        """What it refused."""
        return f"<pagepool.Iommu, {self.fault_count} faults>"


@final
class IommuDevice(Device):
    """A device behind an IOMMU. Pools map their pages by it; unmap and sync may be called by hand.

    What it refuses of these is reported, and nothing is raised; ``write`` and ``read`` raise.
    """

    _iommu: Iommu
    _table: Table
    _bound: bool

    def __init__(self) -> None:
        """Raises TypeError."""
        raise TypeError("devices come from an IOMMU: iommu.attach(name)")

    @classmethod
    def _of(cls, iommu: Iommu, name: str, table: Table) -> IommuDevice:
        device = cls.__new__(cls)
        Device.__init__(device, name)
        device._iommu, device._table, device._bound = iommu, table, True
        return device

    def _refused(
        self, op: str, why: str, dma: int, length: int, address: int | None
    ) -> errors.PoolError:
        """Report it; the exception for who is to be told."""
        reason = REASONS[why]
        if why == "length" and op == "unmap":
            reason = "that is not all of the mapping"
        if address is not None:
            past = why in ("device gone", "unmapped") and op != "map"
            reason += f"; it {'was' if past else 'is'} memory {address:#x}"
        where = "" if op == "map" else f" at {dma:#x}"
        text = f"iommu: {self.name}: {op} of {length} bytes{where} refused: {reason}"
        self._iommu._report(Fault(op, why, self.name, dma, length, address, text))
        # Rule: who comes through a device that is gone is told so, anybody else of a fault.
        return (errors.DeviceGone if why == "device gone" else errors.DeviceFault)(text)

    def _lookup(self, op: str, dma: int, offset: int, length: int) -> _Entry | errors.PoolError:
        """The mapping at dma that has length bytes at offset from there, or why it is refused."""
        entry = self._table.find(dma)
        at, left, address = 0, -1, None
        if entry is not None:
            at = dma - entry.mapping.dma + offset
            left = entry.mapping.length - at
            address = entry.mapping.address + at if left > 0 else None
        dma = dma + offset & MAX_ADDRESS
        # Rule: the driver is gone: nothing goes through the device any more.
        if not self._bound:
            return self._refused(op, "device gone", dma, length, address)
        # Rule: nothing known was ever mapped there.
        if entry is None:
            return self._refused(op, "never mapped", dma, length, None)
        # Rule: what was mapped there is gone.
        if entry.memory is None:
            return self._refused(op, "unmapped", dma, length, address)
        # Rule: not all of it lies in the mapping, whatever follows there; and an unmap is of all.
        if length > left or (op == "unmap" and (at or length != left)):
            return self._refused(op, "length", dma, length, address)
        # Rule: the device goes only in the direction that it was mapped for.
        against = {"write": "to_device", "read": "from_device"}.get(op)
        if entry.mapping.direction == against:
            return self._refused(op, "direction", dma, length, address)
        return entry

    # -- what its driver does

    def map(self, address: int, length: int, direction: Direction) -> int:
        """Raises NotSupported: memory is mapped by pools only."""
        raise errors.NotSupported(f"device {self.name}: memory is mapped by pools only")

    def _map_frame(self, frame: Frame, direction: Direction) -> int:
        return self._map(memoryview(frame.bytes), frame.address, direction)

    def _map(self, memory: memoryview, address: int, direction: Direction) -> int:
        """Raises DeviceGone, and NoDescriptor if the address space is used up."""
        check_direction(direction)
        length = memory.nbytes
        if not length:
            raise errors.InvalidParameter(f"iommu: {self.name}: a mapping of no bytes")
        with STEP:
            if not self._bound:
                raise self._refused("map", "device gone", 0, length, address)
            dma = self._table.place(length)
            if dma is None:
                raise errors.NoDescriptor(
                    f"iommu: {self.name}: address space of {self._iommu._bits} bits is used up: "
                    f"no room for {length} bytes"
                )
            entry = _Entry(Mapping(dma, address, length, direction), memory.cast("B"))
            self._table.enter(entry)
            return dma

    def unmap(self, dma: int, length: int, direction: Direction) -> None:
        """The device knows it no more; refused and reported if it does not already."""
        check_direction(direction)
        dma, length = _place(dma, length)
        with STEP:
            entry = self._lookup("unmap", dma, 0, length)
            if isinstance(entry, _Entry):
                self._table.leave(entry)

    def sync_for_device(self, dma: int, offset: int, length: int, direction: Direction) -> None:
        """What the CPU wrote is the device's to see; refused and reported if it may not."""
        self._sync(dma, offset, length, direction)

    def sync_for_cpu(self, dma: int, offset: int, length: int, direction: Direction) -> None:
        """What the device wrote is the CPU's to see; likewise."""
        self._sync(dma, offset, length, direction)

    def _sync(self, dma: int, offset: int, length: int, direction: str) -> None:
        check_direction(direction)
        dma, length = _place(dma, length)
        with STEP:
            self._lookup("sync", dma, unsigned(offset, "offset", MAX_ADDRESS), length)

    # -- what the device does

    def write(self, dma: int, data: Buffer) -> None:
        """Raises DeviceFault, DeviceGone; it is reported, and nothing was written."""
        view = memoryview(data)
        if not view.c_contiguous:
            raise BufferError("what a device writes must be contiguous")
        given = view.tobytes()
        with STEP:
            self._access("write", dma, len(given))[:] = given

    def read(self, dma: int, length: int) -> bytes:
        """Raises as ``write``."""
        length = unsigned(length, "length", MAX_READ)
        with STEP:
            return bytes(self._access("read", dma, length))

    def _access(self, op: str, dma: int, length: int) -> memoryview:
        dma, length = _place(dma, length)
        entry = self._lookup(op, dma, 0, length)
        if not isinstance(entry, _Entry):
            raise entry
        assert entry.memory is not None, "what is mapped has memory"
        at = dma - entry.mapping.dma
        return entry.memory[at : at + length]

    # -- its driver is gone

    def unbind(self) -> int:
        """The driver is gone: all mappings with it, and nothing goes through it any more.

        How many mappings it left behind. Raises DeviceGone: it was unbound already.
        """
        with STEP:
            if not self._bound:
                raise errors.DeviceGone(f"device {self.name} was unbound already")
            self._bound = False
            left = self._table.mapped
            # Rule: all of them are remembered, so that who comes late can be reported.
            for entry in left:
                entry.memory = None
            return len(left)

    @property
    def bound(self) -> bool:
        """Has it a driver?"""
        return self._bound

    @property
    def mappings(self) -> list[Mapping]:
        """Its page table, by address."""
        with STEP:
            return [entry.mapping for entry in self._table.mapped]

    def __repr__(self) -> str:
        """Its name, and whether it has a driver."""
        return f"<pagepool.IommuDevice {self.name}{'' if self.bound else ', unbound'}>"


def _place(dma: SupportsIndex, length: SupportsIndex) -> tuple[int, int]:
    return unsigned(dma, "dma", MAX_ADDRESS), unsigned(length, "length", MAX_ADDRESS)
