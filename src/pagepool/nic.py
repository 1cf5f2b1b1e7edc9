# SPDX-License-Identifier: BSD-2-Clause
"""A NIC, as far as memory goes: a ring of receive descriptors over a device.

Plain Python over ``Device.write``, the same for the engine's pages and the model's.
"""

from __future__ import annotations

import operator
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, final

from pagepool import errors

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from pagepool.engine import Device, Page

DEFAULT_SLOTS = 256
MAX_SLOTS = 65536


class Descriptor(NamedTuple):
    """A buffer that the NIC may write to."""

    page: Page
    start: int
    """Where in the page, bytes."""
    dma: int | None
    """By which the device knows that place; ``None``: it knows the page itself."""
    length: int


@final
class Nic:
    """Writes the frames that arrive through its device into the pages that it was given.

    One thread is the driver (``post``, ``poll``, ``take``), one the wire (``receive``); they may be
    the same.
    """

    def __init__(self, device: Device | None = None, *, slots: SupportsIndex = DEFAULT_SLOTS):
        """Device: what it writes through; ``None``: without an IOMMU, NO_DEVICE.

        slots: descriptors, a power of two; 0: 256.

        Raises InvalidParameter, TypeError.
        """
        if device is not None and not callable(getattr(device, "write", None)):
            raise TypeError(f"device must be a Device, not {type(device).__name__}")
        self._slots = operator.index(slots) or DEFAULT_SLOTS
        if not 0 < self._slots <= MAX_SLOTS or self._slots & (self._slots - 1):
            raise errors.InvalidParameter(
                f"a NIC of {self._slots} descriptors: must be a power of two, {MAX_SLOTS} at most"
            )
        # Without an IOMMU any address would do: the page is written to through its own buffer,
        # which is there as long as the page is held.
        self._device: Any = None if device is None or device.identity else device
        self._name = "none" if device is None else device.name
        self._posted: deque[Descriptor] = deque()
        self._completed: deque[tuple[Page, int]] = deque()
        self._dropped = 0

    # -- the driver

    def post(self, page: Page) -> None:
        """A frame may be written to the device's part of the page, or to all of a piece.

        The NIC keeps the Page until it is polled or taken. Raises NoDescriptor, PageGone,
        NotSupported and DeviceGone (the page is not mapped).
        """
        try:
            pool, piece, length, _ = page.pool, page.piece, len(page), page.address
        except AttributeError:
            raise TypeError(f"page must be a Page, not {type(page).__name__}") from None
        start = 0 if piece else pool.offset
        # A mapped page has to be so still, also where any address would do.
        dma = None if self._device is None and pool.device is None else page.dma + start
        if len(self._posted) + len(self._completed) >= self._slots:
            raise errors.NoDescriptor(
                f"all {self._slots} descriptors of the NIC are in use: poll first"
            )
        through = None if self._device is None else dma
        self._posted.append(Descriptor(page, start, through, length if piece else pool.max_len))

    def poll(self) -> tuple[Page, int] | None:
        """The next completed page and the frame's length; -1: the device refused the write."""
        try:
            return self._completed.popleft()
        except IndexError:
            return None

    def take(self) -> Page | None:
        """With the wire silent: the next page that was posted and not used."""
        try:
            return self._posted.popleft().page
        except IndexError:
            return None

    # -- the wire

    def receive(self, frame: Buffer) -> bool:
        """A frame arrives, and goes into the next posted page.

        False: it was dropped, since no page was posted, it is longer than the page's part, or the
        device refused the write.
        """
        data = memoryview(frame).cast("B")
        # No buffer, or one that is too short and stays: dropped.
        if not self._posted or len(data) > self._posted[0].length:
            self._dropped += 1
            return False
        page, start, dma, _ = self._posted.popleft()
        length = -1
        try:
            if dma is None:
                page.view()[start : start + len(data)] = data
            else:
                self._device.write(dma, data)
            length = len(data)
        except errors.PoolError:
            return False
        finally:
            # The driver is told with the page; also if the device broke, which is the caller's to
            # hear.
            self._dropped += length < 0
            self._completed.append((page, length))
        return True

    # -- facts

    @property
    def dropped(self) -> int:
        """Frames."""
        return self._dropped

    def __repr__(self) -> str:
        """How many pages it has."""
        return (
            f"<pagepool.Nic over {self._name}: {len(self._posted)} pages posted, "
            f"{len(self._completed)} to be polled, {self._dropped} frames dropped>"
        )
