# SPDX-License-Identifier: BSD-2-Clause
"""A NIC, as far as memory goes: a ring of receive descriptors over a device."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, SupportsIndex, final

from pagepool import errors
from pagepool.model.context import STEP
from pagepool.model.device import NO_DEVICE, Device
from pagepool.model.handles import Page
from pagepool.model.limits import unsigned

if TYPE_CHECKING:
    from typing_extensions import Buffer

DEFAULT_SLOTS = 256
MAX_SLOTS = 65536


class Descriptor(NamedTuple):
    """A buffer that the NIC may write to."""

    page: Page
    dma: int
    length: int


@final
class Nic:
    """Writes the frames that arrive through its device into the pages that it was given."""

    def __init__(self, device: Device | None = None, *, slots: SupportsIndex = DEFAULT_SLOTS):
        """device: ``None``: NO_DEVICE. slots: descriptors, a power of two; 0: 256.

        Raises InvalidParameter, TypeError.
        """
        if device is not None and not isinstance(device, Device):
            raise TypeError(f"device must be a Device, not {type(device).__name__}")
        self._device = NO_DEVICE if device is None else device
        self._slots = unsigned(slots, "slots", 0xFFFFFFFF) or DEFAULT_SLOTS
        if self._slots & (self._slots - 1) or self._slots > MAX_SLOTS:
            raise errors.InvalidParameter(
                f"a NIC of {self._slots} descriptors: must be a power of two, {MAX_SLOTS} at most"
            )
        self._posted: deque[Descriptor] = deque()
        self._completed: deque[tuple[Page, int]] = deque()
        self._dropped = 0

    # -- the driver

    def post(self, page: Page) -> None:
        """A frame may be written to the device's part of the page, or to all of a piece.

        The NIC keeps the Page until it is polled or taken. Raises NoDescriptor, PageGone,
        NotSupported and DeviceGone (the page is not mapped).
        """
        if not isinstance(page, Page):
            raise TypeError(f"page must be a Page, not {type(page).__name__}")
        with STEP:
            dma, length = page.dma, len(page)
            # Rule: of a page the device's part, of a piece all.
            if not page._piece:
                dma, length = dma + page.pool.offset, page.pool.max_len
            if len(self._posted) + len(self._completed) == self._slots:
                raise errors.NoDescriptor(
                    f"all {self._slots} descriptors of the NIC are in use: poll first"
                )
            self._posted.append(Descriptor(page, dma, length))

    def poll(self) -> tuple[Page, int] | None:
        """The next completed page and the frame's length; -1: the device refused the write."""
        with STEP:
            return self._completed.popleft() if self._completed else None

    def take(self) -> Page | None:
        """With the wire silent: the next page that was posted and not used."""
        with STEP:
            return self._posted.popleft().page if self._posted else None

    # -- the wire

    def receive(self, frame: Buffer) -> bool:
        """A frame arrives, and goes into the next posted page.

        False: it was dropped, since no page was posted, it is longer than the page's part, or the
        device refused the write.
        """
        data = memoryview(frame).tobytes()
        with STEP:
            # Rule: no buffer: dropped.
            if not self._posted:
                self._dropped += 1
                return False
            page, dma, length = self._posted[0]
            # Rule: longer than the buffer: dropped, the buffer stays.
            if len(data) > length:
                self._dropped += 1
                return False
            self._posted.popleft()
            # Rule: refused: dropped, and the driver is told with the page.
            written = -1
            try:
                self._device.write(dma, data)
                written = len(data)
            except errors.PoolError:
                return False
            finally:
                self._dropped += written < 0
                self._completed.append((page, written))
            return True

    # -- facts

    @property
    def dropped(self) -> int:
        """Frames."""
        return self._dropped

    def __repr__(self) -> str:
        """How many pages it has."""
        return (
            f"<pagepool.Nic over {self._device.name}: {len(self._posted)} pages posted, "
            f"{len(self._completed)} to be polled, {self._dropped} frames dropped>"
        )
