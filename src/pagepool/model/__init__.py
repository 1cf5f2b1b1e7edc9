# SPDX-License-Identifier: BSD-2-Clause
"""The pool in plain Python: the executable specification, and the oracle of the tests.

To be read in this order: ``rules`` (where a page comes from and goes to; the rest serves it),
``dma`` (what it asks of its device), the designs (``way``, what each of them has, ``ring``,
``list``, ``lanes``, ``designs``), ``cache``, ``frame``, ``counters``, ``napi``, ``provider``,
``arena``, ``region``, ``device``, ``iommu``, ``checked``; ``handles`` and ``pool`` are the Python
objects, with the engine's interface.
``PAGEPOOL_ENGINE=model`` makes ``import pagepool`` hand these out; nothing has to be compiled.

Same as the engine: operations, exceptions and their words, statistics, and which page is handed
out, by its number in its arena. Different:

- every call is one step under one lock; a destructor's put waits for the end of the step;
- ``memoryview(page)`` needs Python 3.12 (``page.view()`` does not);
- an arena's page has bytes of its own, and its address is its number in the arena, not where the
  bytes are; a region's page is where its bytes are;
- an IOMMU's ``on_fault`` is called at the end of the call that was refused, under the one lock;
- the file of ``Region.shared`` is closed with the last page, not with the last reference;
- ``checked="full"`` overwrites all of a page that was put, but it can be read;
- no clock: nobody is told of stalled pools; no huge pages; no check after ``fork``.
"""

from pagepool.errors import (
    DeviceFault,
    DeviceGone,
    ForeignPage,
    Forked,
    InvalidParameter,
    NoDescriptor,
    NoMemory,
    NotSupported,
    OutOfPages,
    PageGone,
    PoolClosed,
    PoolError,
    WrongContext,
)
from pagepool.model.arena import Arena
from pagepool.model.device import NO_DEVICE, Device
from pagepool.model.handles import Page, PageBatch
from pagepool.model.iommu import Iommu, IommuDevice
from pagepool.model.napi import Napi
from pagepool.model.pool import PagePool
from pagepool.model.provider import ArenaInfo, Provider
from pagepool.model.region import Region
from pagepool.nic import Nic
from pagepool.snapshot import DmaStats, Fault, Holder, Mapping, PoolStats

__all__ = [
    "NO_DEVICE",
    "Arena",
    "ArenaInfo",
    "Device",
    "DeviceFault",
    "DeviceGone",
    "DmaStats",
    "Fault",
    "ForeignPage",
    "Forked",
    "Holder",
    "InvalidParameter",
    "Iommu",
    "IommuDevice",
    "Mapping",
    "Napi",
    "Nic",
    "NoDescriptor",
    "NoMemory",
    "NotSupported",
    "OutOfPages",
    "Page",
    "PageBatch",
    "PageGone",
    "PagePool",
    "PoolClosed",
    "PoolError",
    "PoolStats",
    "Provider",
    "Region",
    "WrongContext",
]
