# SPDX-License-Identifier: BSD-2-Clause
"""Devices: who else reads and writes the pages, and by what address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

from pagepool import errors

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from pagepool.model.frame import Frame

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
    _made = False

    def __init__(self, name: str = "device") -> None:
        """name: for messages."""
        if not isinstance(name, str):
            raise TypeError(f"a device's name must be a str, not {type(name).__name__}")
        self._refuse_to_be_incomplete(name)
        if self._made:
            raise TypeError("a device is made once")
        # Rule: 31 bytes of it are kept, and no half of a character.
        kept = str.encode(name, "utf-8", "replace").replace(b"\0", b"?")[:NAME_BYTES]
        self._name = kept.decode("utf-8", "ignore")
        self._made = True

    @property
    def name(self) -> str:
        """For messages."""
        return self._name

    # -- what its driver does

    @property
    def identity(self) -> bool:
        """Is it NO_DEVICE, by which an address is what the CPU has?"""
        return False

    def map(self, address: int, length: int, direction: Direction) -> int:
        """The address by which the device knows the memory from now on.

        address: of the page. Whatever this raises is a mapping error: the pool does without the
        page.
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

    def _map_frame(self, frame: Frame, direction: Direction) -> int:
        return self.map(frame.address, frame.size, direction)

    def _refuse_to_be_incomplete(self, name: str) -> None:
        cls = type(self)
        if cls.map is Device.map or cls.unmap is Device.unmap:
            raise errors.InvalidParameter(f"device {name}: a device needs map and unmap")

    def _check(self) -> None:
        if not self._made:
            raise errors.InvalidParameter(f"this {type(self).__name__} was never made")

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
    """The device without an IOMMU: an address is what the CPU has, and nothing needs a sync."""

    @property
    def identity(self) -> bool:
        """It is."""
        return True

    def map(self, address: int, length: int, direction: Direction) -> int:
        """The address of the memory."""
        check_direction(direction)
        return address

    def unmap(self, dma: int, length: int, direction: Direction) -> None:
        """Nothing: it can be written to all the same."""


NO_DEVICE: Device = NoDevice("none")
