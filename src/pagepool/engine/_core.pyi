# SPDX-License-Identifier: BSD-2-Clause
"""The pool's Python objects. Sizes are bytes, counts are pages, times are seconds."""

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Literal, NamedTuple, Self, SupportsIndex, final

from typing_extensions import Buffer

from pagepool.snapshot import DmaStats, Fault, Holder, Mapping, PoolStats

Direction = Literal["bidirectional", "to_device", "from_device"]

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

class Device:
    """What pages are mapped for: to be subclassed, with ``map`` and ``unmap``.

    A class without ``sync_for_device`` and ``sync_for_cpu`` needs no sync: CPU and device see the
    same memory at any time. A pool calls all of these from whatever thread a page enters or leaves
    it in; a pool cannot be closed from within. What ``unmap`` and a sync raise is shown, no more.
    """

    def __init__(self, name: str = "device") -> None:
        """name: for messages; 31 bytes of it are kept."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def identity(self) -> bool:
        """Is it NO_DEVICE, by which an address is what the CPU has?"""

    def map(self, address: int, length: int, direction: Direction) -> int:
        """The address by which the device knows the memory from now on.

        address: of the page in this process. Whatever this raises is a mapping error: the pool does
        without the page.
        """

    def unmap(self, dma: int, length: int, direction: Direction) -> None:
        """The device knows it no more."""

    def sync_for_device(self, dma: int, offset: int, length: int, direction: Direction) -> None:
        """What the CPU wrote into length bytes at offset of the mapping is the device's to see."""

    def sync_for_cpu(self, dma: int, offset: int, length: int, direction: Direction) -> None:
        """What the device wrote there is the CPU's to see."""

    def write(self, dma: int, data: Buffer) -> None:
        """The device writes memory. Raises DeviceFault, DeviceGone; NotSupported: it cannot."""

    def read(self, dma: int, length: int) -> bytes:
        """The device reads memory. Raises as ``write``."""

NO_DEVICE: Device
"""The device without an IOMMU: an address is what the CPU has, and nothing needs a sync."""

@final
class Iommu:
    """A software IOMMU. Each device behind it has an address space and a page table of its own.

    It refuses and reports what goes through a mapping, or a device, that is gone.
    """

    def __init__(
        self, *, bits: SupportsIndex = 48, on_fault: Callable[[Fault], object] | None = None
    ) -> None:
        """bits: of an address, 16 to 56; 0: 48.

        on_fault: is told of each refusal; ``None``: the logger ``pagepool`` is.

        Raises InvalidParameter, NoMemory.
        """

    def attach(self, name: str) -> IommuDevice:
        """A device behind it. name: for messages. Raises NoMemory."""

    @property
    def faults(self) -> list[Fault]:
        """The newest 1000 refusals, the oldest first."""

    @property
    def fault_count(self) -> int:
        """Refusals so far, of all its devices."""

@final
class IommuDevice(Device):
    """A device behind an IOMMU. Pools map their pages by it; unmap and sync may be called by hand.

    What it refuses of these is reported, and nothing is raised; ``write`` and ``read`` raise.
    """

    def __init__(self) -> None:
        """Raises TypeError: made by ``iommu.attach(name)``."""

    def unbind(self) -> int:
        """The driver is gone: all mappings with it, and nothing goes through it any more.

        How many mappings it left behind. Raises DeviceGone: it was unbound already.
        """

    @property
    def bound(self) -> bool:
        """Has it a driver?"""

    @property
    def mappings(self) -> list[Mapping]:
        """Its page table, by address."""

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
    def piece(self) -> bool:
        """Is it a piece of a page (``alloc_frag``)?"""

    @property
    def dma(self) -> int:
        """By which address the pool's device knows its first byte.

        Raises NotSupported (the pool has no device), DeviceGone (the pool was closed, and has
        unmapped it), PageGone.
        """

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
        device: Device | None = None,
        dma_sync: bool = False,
        dma_dir: Literal["from_device", "bidirectional"] = "from_device",
        offset: SupportsIndex = 0,
        max_len: SupportsIndex | None = None,
        track_mappings: bool = True,
        design: str | None = None,
        checked: bool | Literal["full"] = False,
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
        device: pages are mapped for it while they are in the pool.
        dma_sync: and synced for it when they enter and when they are recycled.
        dma_dir: who writes to them: the device, or both.
        offset, max_len: which part of a page is the device's; ``None``, and without dma_sync 0:
        all behind offset.
        track_mappings: ``False``: the rule up to Linux 6.15, which does not know at the end which
        pages are mapped: one that comes back later is unmapped through a device that may be gone.
        design: what sits between those who return pages and the consumer: ``ring`` (the kernel's),
        ``list``, ``ours``; see ``docs/designs.md``. ``None``: what ``PAGEPOOL_DESIGN`` in the
        environment says, or ``ring``.
        checked: remember who has which page since when (``holders()``), say in the errors where a
        page was allocated and put, and find what is written to a page after it was put: 64 bytes of
        it are overwritten while it is in the pool. ``"full"``: all of it, and it cannot be
        read then, so that whoever has its address ends the process. ``PAGEPOOL_CHECKED=1``, or
        ``full``, in the environment sets it for all pools. What is found that no call can raise
        goes to the logger ``pagepool`` as an error.
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
        dma_sync_size: bytes of the device's part that it may have to see; -1: all.

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

    def dma_sync_for_cpu(
        self, page: Page, /, offset: SupportsIndex = 0, size: SupportsIndex | None = None
    ) -> None:
        """What the device wrote into the page is the caller's to see; before it is looked at.

        size bytes, from offset bytes into the device's part of the page, or into the piece;
        ``None``: all behind offset. What goes beyond the device's part is left out. Raises
        PageGone, ForeignPage, NotSupported (no device), InvalidParameter.
        """

    def _count_from(self, n: int, /) -> None:
        """For tests, on a new pool: as if n pages had come and gone; so the 32-bit counts wrap."""

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
        while another thread is in its napi, and from within a callback of a device or in the middle
        of an allocation.
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

    def holders(self) -> list[Holder]:
        """The pages and pieces that are out, the oldest first, with who allocated them where.

        Raises NotSupported: the pool is not checked.
        """

    @property
    def checked(self) -> bool | Literal["full"]:
        """In checked mode, also by the environment."""

    def flush(self) -> None:
        """What the calling thread has put can be had by the consumer at once.

        For the design ``ours``, where that is so after 32 pages, or when the consumer finds nothing
        else: for a thread that goes to sleep. Other designs: nothing happens.
        """

    @property
    def held_back(self) -> int:
        """Pages put and held back so, of all threads."""

    @property
    def design(self) -> str:
        """What sits between those who return pages and the consumer."""

    @property
    def dma_stats(self) -> DmaStats:
        """What the pool asked of its device so far. Raises NotSupported (it has none)."""

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
    def device(self) -> Device | None:
        """The device that its pages are mapped for."""

    @property
    def dma_dir(self) -> str:
        """Who writes to its pages: ``"from_device"`` or ``"bidirectional"``."""

    @property
    def offset(self) -> int:
        """Where in a page the device's part starts, bytes."""

    @property
    def max_len(self) -> int:
        """Bytes of that part."""

    @property
    def closed(self) -> bool:
        """Was it closed?"""
