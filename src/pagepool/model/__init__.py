# SPDX-License-Identifier: BSD-2-Clause
"""The pool in plain Python: the executable specification, and the oracle of the tests.

To be read in this order: ``rules`` (where a page comes from and goes to; the rest serves it),
``ring``, ``cache``, ``frame``, ``counters``, ``napi``, ``arena``; ``handles`` and ``pool`` are the
Python objects, with the engine's interface. ``PAGEPOOL_ENGINE=model`` makes ``import pagepool``
hand these out; nothing has to be compiled.

Same as the engine: operations, exceptions and their words, statistics, and which page is handed
out, by its number in its arena. Different:

- every call is one step under one lock; a destructor's put waits for the end of the step;
- a view that is dropped after the put frees its page at the next call, not at once;
- ``memoryview(page)`` needs Python 3.12 (``page.view()`` does not);
- a page in pieces has no bytes in common with its pieces, and a view of a piece does not keep the
  piece from being dropped;
- an address is the page's number in its arena, not where its bytes are;
- no ``Region``: pages have bytes of their own;
- no clock: nobody is told of stalled pools; no huge pages; no check after ``fork``.
"""

from pagepool.errors import (
    ForeignPage,
    Forked,
    InvalidParameter,
    NoMemory,
    NotSupported,
    OutOfPages,
    PageGone,
    PoolClosed,
    PoolError,
    WrongContext,
)
from pagepool.model.arena import Arena, ArenaInfo
from pagepool.model.handles import Page, PageBatch
from pagepool.model.napi import Napi
from pagepool.model.pool import PagePool
from pagepool.snapshot import PoolStats

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
    "WrongContext",
]
