# SPDX-License-Identifier: BSD-2-Clause
"""Devices: who else reads and writes the pages, and by what address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

from pagepool import errors
from pagepool.model.context import STEP
from pagepool.model.frame import address_of
from pagepool.model.provider import page_at

if TYPE_CHECKING:
    from typing_extensions import Buffer

Direction = Literal["bidirectional", "to_device", "from_device"]
DIRECTIONS = ("bidirectional", "to_device", "from_device")
NAME_BYTES = 31


def check_direction(direction: str) -> str:
    """One of the three. Raises InvalidParameter."""
    if direction not in DIRECTIONS:
        raise errors.InvalidParameter(
            f"direction is {direction!r}: must be one of {', '.join(DIRECTIONS)}"
        )
    return direction


class Device:
    """What pages are mapped for: to be subclassed, with ``map`` and ``unmap``.

    A class without ``sync_for_device`` and ``sync_for_cpu`` needs no sync: CPU and device see the
    same memory at any time. A pool calls all of these from whatever thread a page enters or leaves
    it in; they must not use the pool. What ``unmap`` and a sync raise is shown, no more.
    """

    _name = "device"

    def __init__(self, name: str = "device") -> None:
        """name: for messages."""
        if not isinstance(name, str):
            raise TypeError(f"a device's name must be a str, not {type(name).__name__}")
        # Rule: 31 bytes of it are kept.
        self._name = name.encode()[:NAME_BYTES].decode(errors="ignore")

    @property
    def name(self) -> str:
        """For messages."""
        return self._name

    # -- what its driver does

    def map(self, memory: memoryview, direction: Direction) -> int:
        """The address by which the device knows the memory from now on.

        The view is the device's to keep until the unmap: it does not count as a holder of the page.
        Whatever this raises is a mapping error: the pool does without the page.
        """
        raise NotImplementedError

    def unmap(self, dma: int, length: int, direction: Direction) -> None:
        """The device knows it no more."""
        raise NotImplementedError

    def sync_for_device(self, dma: int, offset: int, length: int, direction: Direction) -> None:
        """What the CPU wrote into length bytes at offset of the mapping is the device's to see."""

    def sync_for_cpu(self, dma: int, offset: int, length: int, direction: Direction) -> None:
        """What the device wrote there is the CPU's to see."""

    # -- what the device does

    def write(self, dma: int, data: Buffer) -> None:
        """The device writes memory. Raises DeviceFault, DeviceGone; NotSupported: it cannot."""
        raise errors.NotSupported(f"device {self.name} was made without write")

    def read(self, dma: int, length: int) -> bytes:
        """The device reads memory. Raises as ``write``."""
        raise errors.NotSupported(f"device {self.name} was made without read")

    # -- what pools ask

    def _check(self) -> None:
        cls = type(self)
        if cls.map is Device.map or cls.unmap is Device.unmap:
            raise errors.InvalidParameter(f"device {self.name}: a device needs map and unmap")

    @property
    def _syncs_device(self) -> bool:
        return type(self).sync_for_device is not Device.sync_for_device

    @property
    def _syncs_cpu(self) -> bool:
        return type(self).sync_for_cpu is not Device.sync_for_cpu

    def __repr__(self) -> str:
        """Its name."""
        return f"<pagepool.{type(self).__name__} {self.name}>"


@final
class NoDevice(Device):
    """The device without an IOMMU: an address is what the CPU has, and nothing needs a sync.

    Nor is anything refused that is a page's which some pool, or a view, has.
    """

    def map(self, memory: memoryview, direction: Direction) -> int:
        """The address of the memory."""
        check_direction(direction)
        return address_of(memory)

    def unmap(self, dma: int, length: int, direction: Direction) -> None:
        """Nothing: it can be written to all the same."""

    def write(self, dma: int, data: Buffer) -> None:
        """Raises DeviceFault where no page is (the engine's writes to whatever is there)."""
        given = memoryview(data).tobytes()
        with STEP:
            for part in _memory_at(dma, len(given)):
                part[:], given = given[: len(part)], given[len(part) :]

    def read(self, dma: int, length: int) -> bytes:
        """Raises as ``write``."""
        with STEP:
            return b"".join(_memory_at(dma, length))


def _memory_at(address: int, length: int) -> list[memoryview]:
    """Length bytes at an address, in one page or in several that lie together."""
    parts = []
    while length:
        frame = page_at(address)
        if frame is None:
            raise errors.DeviceFault(f"device none: no page is out at {address:#x}")
        start = address - frame.address
        parts.append(memoryview(frame.bytes)[start : start + length])
        address += len(parts[-1])
        length -= len(parts[-1])
    return parts


NO_DEVICE: Device = NoDevice("none")
