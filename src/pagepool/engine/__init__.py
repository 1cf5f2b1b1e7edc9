# SPDX-License-Identifier: BSD-2-Clause
"""The pool in Python: what people hold in their hands, over the C core."""

from pagepool.engine._core import (
    Arena,
    ArenaInfo,
    Napi,
    Page,
    PageBatch,
    PagePool,
    Provider,
    Region,
)
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
from pagepool.snapshot import DmaStats, PoolStats

__all__ = [
    "Arena",
    "ArenaInfo",
    "DeviceFault",
    "DeviceGone",
    "DmaStats",
    "ForeignPage",
    "Forked",
    "InvalidParameter",
    "Napi",
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
