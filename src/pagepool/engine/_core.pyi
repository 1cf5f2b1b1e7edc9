# SPDX-License-Identifier: BSD-2-Clause
"""The pool's Python objects. Sizes are bytes, counts are pages, times are seconds."""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Literal, NamedTuple, Self, SupportsIndex, final

from typing_extensions import Buffer

from pagepool.snapshot.stats import PoolStats

__version__: str
"""Version of the C core."""

@final
class Napi:
    """The context of a consumer: a thread that has entered it allocates and recycles directly.

    Stands for a NAPI poll in softirq. Enter it with ``with napi:``; entries of one thread nest.
    Pools bound to it (``PagePool(napi=...)``) recycle directly by themselves when a page is put
    from inside, and refuse to allocate from elsewhere.
    """

    def __init__(self) -> None:
        """Make one; nobody is in it. Raises NoMemory."""

    def enter(self) -> None:
        """The calling thread becomes the consumer. Raises WrongContext if another thread is."""

    def exit(self) -> None:
        """Undo one ``enter``. Raises WrongContext if the calling thread is not inside."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    @property
    def entered(self) -> bool:
        """Is the calling thread inside?"""

class ArenaInfo(NamedTuple):
    """What an arena has and gave out, in bytes, and how often it had nothing to give."""

    limit: int
    """It never maps more."""
    mapped: int
    """Got from the system so far, by chunks of 4 MiB."""
    out: int
    """Handed out to pools and not yet back, whether in use, in a cache or in a ring."""
    failed: int
    """Requests that ended with no page at all."""
    node: int | None
    """NUMA node of all its pages; ``None``: a page is on the node of the pool that asked for it."""
    huge: str
    """``"none"``, ``"thp"`` or ``"hugetlb"``."""
    lacks: tuple[str, ...]
    """What was asked for and is not to be had here, a sentence each; ``()``: nothing."""

class Provider:
    """Where pages come from: an Arena or a Region. May serve several pools."""

    @property
    def info(self) -> ArenaInfo:
        """Figures of this moment."""

@final
class Arena(Provider):
    """Where pages come from: anonymous memory that grows by 4 MiB up to a limit.

    May serve several pools, from several threads. Its memory goes when it, its pools and all of
    its pages are gone.
    """

    def __init__(
        self,
        *,
        limit: SupportsIndex = 0,
        reserve: SupportsIndex = 0,
        node: SupportsIndex | None = None,
        huge: Literal["none", "thp", "hugetlb"] = "none",
    ) -> None:
        """Reserve address space for all of it; memory comes as it is needed.

        limit: bytes, rounded up to 4 MiB; 0: the machine's memory, 64 GiB at most.
        reserve: the last so many bytes below the limit are handed out marked ``pfmemalloc``.
        node: NUMA node that the memory is taken from, as long as it has some.
        huge: ask for transparent huge pages, or take reserved ones (and fail without).

        Raises InvalidParameter, NoMemory.
        """

@final
class Region(Provider):
    """Pages out of memory that somebody has: any writable buffer, a file mapping, shared memory.

    The buffer is held until the region, its pools and all of its pages are gone. Pages are aligned
    to 4096 bytes, so an unaligned buffer loses its beginning, and what is left over at its end.
    """

    def __init__(
        self, buffer: Buffer, *, reserve: SupportsIndex = 0, node: SupportsIndex | None = None
    ) -> None:
        """Pages out of a writable, contiguous buffer of at least one aligned page.

        reserve: as an Arena's.
        node: NUMA node that the pages count as being on; the memory stays where it is.

        Raises InvalidParameter, NoMemory, BufferError (read-only).
        """

    @staticmethod
    def shared(
        size: SupportsIndex, *, reserve: SupportsIndex = 0, node: SupportsIndex | None = None
    ) -> Region:
        """Memory of its own, of ``size`` bytes, that another process can map: a memfd.

        ``fileno()`` is to be handed over (``pass_fds``, ``socket.send_fds``), and ``offset(page)``
        says where in it a page is. Raises InvalidParameter, NoMemory.
        """

    def fileno(self) -> int:
        """Of the shared memory; closed when the region goes. Raises ValueError: it has none."""

    def offset(self, page: Page, /) -> int:
        """Bytes from the start of the buffer to the page. Raises ForeignPage, PageGone."""

@final
class Page:
    """A page that the caller holds: ``page_size`` writable bytes, a buffer and a context manager.

    ``memoryview(page)`` and ``numpy.frombuffer(page, ...)`` work without a copy; ``page.view()`` is
    the same for less than half of the time (not for a piece, ``alloc_frag``). Leaving
    ``with page:`` puts it.

    Putting a page while a view of it exists is allowed: the page then leaves its pool
    (``recycle_released_refcnt``) and its memory lives until the last view is gone. A page that is
    dropped without a put goes back to its pool and gives a ResourceWarning that says where it was
    allocated.
    """

    def view(self) -> memoryview:
        """All of it as writable bytes: the same object as long as the page stays in its pool.

        Drop it (and slices of it, and weak references to it) before the put, or the page leaves
        the pool:
        ``page.view()[:14] = header`` leaves nothing behind.
        """

    def put(self, *, allow_direct: bool = False) -> None:
        """``page.pool.put(page)``."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int:
        """Bytes."""

    @property
    def pool(self) -> PagePool:
        """The pool that it was allocated from."""

    @property
    def held(self) -> bool:
        """Is it still the caller's, not put?"""

    @property
    def address(self) -> int:
        """Of its first byte, in this process. Raises PageGone."""

    @property
    def order(self) -> int:
        """It is ``4096 << order`` bytes. Raises PageGone."""

    @property
    def node(self) -> int:
        """Its NUMA node. Raises PageGone."""

    @property
    def pfmemalloc(self) -> bool:
        """From emergency reserves: it will leave the pool when put. Raises PageGone."""

    @property
    def offset(self) -> int:
        """Bytes from the start of the page: 0, unless it is a piece. Raises PageGone."""

    @property
    def users(self) -> int:
        """Pieces of the page that are out, and those that the pool may still hand out; 1: the page
        is not in pieces. Raises PageGone."""

    @property
    def ref_count(self) -> int:
        """Holders that the C core knows of; views count only after the put. Raises PageGone."""

    @property
    def allocated_at(self) -> str:
        """File and line of the allocation."""

@final
class PageBatch:
    """Pages that were allocated together: a sequence of pages, put together.

    As long as nobody looks at its pages it is one Python object, however many they are.
    ``batch[i]`` makes the Page, the same one each time.
    """

    def put(self) -> None:
        """Put all that were not put one by one. Raises PageGone the second time."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> Page: ...
    def __iter__(self) -> Iterator[Page]: ...
    @property
    def pool(self) -> PagePool:
        """The pool that they were allocated from."""

    @property
    def held(self) -> bool:
        """Was it not put yet?"""

@final
class PagePool:
    """The kernel's page_pool: pages that come back are handed out again.

    One consumer allocates: the thread inside the pool's napi, or without a napi any one thread at
    a time. Pages come back from any thread, also after the pool was closed. A context manager;
    leaving it closes it.
    """

    def __init__(
        self,
        *,
        pool_size: SupportsIndex = 0,
        order: SupportsIndex = 0,
        node: SupportsIndex | None = None,
        napi: Napi | None = None,
        provider: Provider | None = None,
        statistics: bool = True,
        retry: float = 1.0,
        warn: float = 60.0,
    ) -> None:
        """Make a pool; pages come when the first is allocated.

        pool_size: slots of the ring, in pages; 0: 1024; over 16384: clamped, as in Linux 6.17.
        order: a page is ``4096 << order`` bytes; 10 at most.
        node: NUMA node that pages should be on; others are given back (``alloc_waive``).
        napi: the consumer's context.
        provider: where pages come from; ``None``: an arena of its own.
        statistics: ``False``: none are kept, and ``stats`` raises NotSupported.
        retry, warn: how often a closed pool with pages out is looked at, and how often the logger
        ``pagepool`` is told that it is stalled. The defaults are the kernel's.

        Raises InvalidParameter, NoMemory.
        """

    def alloc(self) -> Page:
        """One page; its content is what the last user left.

        Raises OutOfPages, WrongContext (bound to a napi, and the calling thread is not in it),
        PoolClosed.
        """

    def alloc_frag(self, size: int, /) -> Page:
        """A piece of a page, for a small buffer: a Page of exactly ``size`` bytes.

        Pieces of one page follow each other on cache lines of 64 bytes until the next does not fit;
        each is put by itself, from anywhere, and the last one gives the page back. What the page
        counts is in ``docs/pool.md``. Raises as ``alloc``, and InvalidParameter for a size below 1
        or over ``page_size``.
        """

    def alloc_bulk(self, n: int, /) -> PageBatch:
        """Up to n pages, at least one. Raises as ``alloc``, and InvalidParameter for n < 1."""

    def put(self, page: Page, /, *, allow_direct: bool = False, dma_sync_size: int = -1) -> None:
        """Give a page back; from any thread.

        allow_direct: the promise that the caller runs where the consumer runs, so that the page
        may go into the cache. True by itself inside the pool's napi. Raises WrongContext where the
        pool knows better.
        dma_sync_size: bytes that the device may have to see; -1: all. There is no device yet.

        Raises PageGone (put already), ForeignPage (of another pool), InvalidParameter; the page
        then stays what it was.
        """

    def put_full(self, page: Page, /, *, allow_direct: bool = False) -> None:
        """``put`` with all of the page to be synced for the device."""

    def recycle_direct(self, page: Page, /) -> None:
        """``put_full`` with ``allow_direct``."""

    @staticmethod
    def put_bulk(pages: PageBatch | Iterable[Page], /) -> None:
        """Give many pages back, possibly of several pools, with one lock a ring and 64 pages.

        Direct for pools whose napi the calling thread is in. Nothing is put if one of them cannot
        be: raises PageGone, TypeError.
        """

    def update_nid(self, node: SupportsIndex | None, /) -> None:
        """Pages should be on another NUMA node now: the cache goes back to the provider.

        The consumer's call. Raises WrongContext, PoolClosed, InvalidParameter.
        """

    def enable_direct_recycling(self, napi: Napi, /) -> None:
        """Bind the pool to a napi. Raises WrongContext if it is bound to another."""

    def disable_direct_recycling(self) -> None:
        """Unbind it. Raises WrongContext while a thread is in the napi."""

    def close(self) -> None:
        """Destroy the pool; again: nothing happens.

        Cache and ring go back to the provider. With pages out it lives on until the last one is
        put, and the logger ``pagepool`` hears every 60 s that it is stalled. Raises WrongContext
        while another thread is in its napi.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    @property
    def stats(self) -> PoolStats:
        """The counters of this moment; never stops the pool. Raises NotSupported."""

    @property
    def inflight(self) -> int:
        """Pages handed out or in cache or ring: held minus released, 32 bits, signed."""

    @property
    def id(self) -> int:
        """From 1, unique in the process."""

    @property
    def order(self) -> int:
        """Of its pages."""

    @property
    def pool_size(self) -> int:
        """Slots of the ring, in pages."""

    @property
    def page_size(self) -> int:
        """Bytes of a page: ``4096 << order``."""

    @property
    def node(self) -> int | None:
        """NUMA node asked for."""

    @property
    def napi(self) -> Napi | None:
        """The napi that it is bound to."""

    @property
    def provider(self) -> Provider | None:
        """The provider that was given; ``None``: one of its own."""

    @property
    def closed(self) -> bool:
        """Was it closed?"""
