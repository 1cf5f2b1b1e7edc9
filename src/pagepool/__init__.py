# SPDX-License-Identifier: BSD-2-Clause
"""pagepool: the Linux kernel's page_pool in user space.

The pool itself is here (``pagepool.PagePool`` and what belongs to it); it is imported when it is
first asked for, because reading and comparing results needs no C code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagepool.engine import (
        Arena,
        ArenaInfo,
        ForeignPage,
        Forked,
        InvalidParameter,
        Napi,
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
    "Arena",
    "ArenaInfo",
    "ForeignPage",
    "Forked",
    "InvalidParameter",
    "Napi",
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


def __getattr__(name: str) -> object:
    if name in __all__:
        from pagepool import engine

        value: object = getattr(engine, name)
        globals()[name] = value  # the next access does not come here
        return value
    raise AttributeError(f"module 'pagepool' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
