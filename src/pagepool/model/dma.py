# SPDX-License-Identifier: BSD-2-Clause
"""The rules of DMA: what a pool asks of its device as pages come, go round and leave."""

from __future__ import annotations

from pagepool.model.context import show
from pagepool.model.counters import DmaCounters
from pagepool.model.device import Device, Direction
from pagepool.model.frame import Frame
from pagepool.model.limits import unsigned


class Dma:
    """A pool's pages are mapped for this device while they are in the pool."""

    def __init__(
        self, device: Device, direction: Direction, sync: bool, part: range, tracking: bool
    ) -> None:
        """sync: ask for it; part: of each page that is the device's; tracking: know them all."""
        self.device = device
        self.direction: Direction = direction
        # Rule: a device that sees what the CPU writes at any time is not asked.
        self.sync = sync and device._syncs_device
        self.part = part
        self.tracking = tracking
        self.mapped: set[Frame] = set()  # with tracking: every page that is
        self.refusal: BaseException | None = None  # the last mapping error
        self.count = DmaCounters()

    def map(self, frame: Frame) -> bool:
        """The page enters the pool. False: it could not be mapped."""
        try:
            dma = self.device._map_frame(frame, self.direction)
            frame.dma = unsigned(dma, "an address that map() gives", 0xFFFFFFFFFFFFFFFF)
        except BaseException as e:
            self.refusal = e
            self.count.map_errors += 1
            return False
        self.count.maps += 1
        if self.tracking:
            self.mapped.add(frame)
        # Rule: what the CPU wrote into it before is the device's to see.
        self.sync_for_device(frame, len(self.part))
        return True

    def take_refusal(self) -> BaseException | None:
        """Why the last page could not be mapped; the pages before it that were are used up."""
        refusal, self.refusal = self.refusal, None
        return refusal

    def sync_for_device(self, frame: Frame, size: int) -> None:
        """The page is about to be given to the device: the first size bytes of its part."""
        size = min(size, len(self.part))
        # Rule: not asked for, not needed, or nothing to be synced.
        if not self.sync or size == 0:
            return
        # Rule: destroy has unmapped it: nobody will give it to the device again.
        if frame.dma is None:
            self.count.syncs_skipped += 1
            return
        self.count.syncs += 1
        self.count.sync_bytes += size
        show(self.device.sync_for_device, frame.dma, self.part.start, size, self.direction)

    def sync_for_cpu(self, frame: Frame, offset: int, size: int) -> None:
        """The CPU is about to look at what the device wrote there in the page."""
        # Rule: nothing through a mapping that destroy took away; a sync for the CPU counts nothing.
        if self.device._syncs_cpu and frame.dma is not None and size:
            show(self.device.sync_for_cpu, frame.dma, offset, size, self.direction)

    def unmap(self, frame: Frame) -> None:
        """The page leaves the pool."""
        # Rule: destroy has unmapped it: only one of the two does.
        if frame.dma is None:
            self.count.unmaps_skipped += 1
            return
        self.count.unmaps += 1
        self._unmap(frame, frame.dma)

    def unmap_all(self) -> None:
        """The pool was destroyed: its driver, and the device's mappings, may be gone next."""
        # Rule: every page that is still mapped, wherever it is, by its number. The old rule
        # (no tracking) does not know them: they are synced and unmapped when they come back,
        # through whatever is left of the device by then.
        for frame in sorted(self.mapped, key=lambda frame: frame.number):
            assert frame.dma is not None, "what is tracked is mapped"
            self.count.unmaps_destroy += 1
            self._unmap(frame, frame.dma)

    def _unmap(self, frame: Frame, dma: int) -> None:
        frame.dma = None
        self.mapped.discard(frame)
        show(self.device.unmap, dma, frame.size, self.direction)
