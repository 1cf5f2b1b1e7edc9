# SPDX-License-Identifier: BSD-2-Clause
"""pagepool: the Linux kernel's page_pool in user space.

The pool itself is here (``pagepool.PagePool`` and what belongs to it); it is imported when it is
first asked for, because reading and comparing results needs no C code. With
``PAGEPOOL_ENGINE=model`` in the environment it is the pool in plain Python, ``pagepool.model``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagepool.engine import (
        NO_DEVICE,
        Arena,
        ArenaInfo,
        Device,
        DeviceFault,
        DeviceGone,
        DmaStats,
        Fault,
        ForeignPage,
        Forked,
        Holder,
        InvalidParameter,
        Iommu,
        IommuDevice,
        Mapping,
        Napi,
        Nic,
        NoDescriptor,
        NoMemory,
        NotSupported,
        OutOfPages,
        Page,
        PageBatch,
        PageGone,
        PagePool,
        PoolClosed,
        PoolError,
        PoolStats,
        Provider,
        Region,
        WrongContext,
    )

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


def _engine() -> object:
    """The package that has the pool. Raises ImportError."""
    which = os.environ.get("PAGEPOOL_ENGINE", "")
    if which == "model":
        from pagepool import model

        return model
    if which not in ("", "c"):
        raise ImportError(f"PAGEPOOL_ENGINE is {which!r}: must be c (the default) or model")
    try:
        from pagepool import engine
    except ImportError as e:
        raise ImportError(
            f"the pool's C code cannot be imported ({e}); with PAGEPOOL_ENGINE=model in the "
            "environment the pool in plain Python is used instead"
        ) from e
    return engine


def __getattr__(name: str) -> object:
    if name in __all__:
        engine = _engine()
        if not hasattr(engine, name):
            which = engine.__name__  # type: ignore[attr-defined]
            raise AttributeError(f"{which} has no {name}")
        value: object = getattr(engine, name)
        globals()[name] = value  # the next access does not come here
        return value
    raise AttributeError(f"module 'pagepool' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
