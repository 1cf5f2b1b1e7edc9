# SPDX-License-Identifier: BSD-2-Clause
# cython: language_level=3, binding=False
"""The pool's Python objects over the C core. Documented in _core.pyi.

Why nothing here can corrupt memory:

- The global interpreter lock is held in every call of the C core (but for the wait of
  ``page_pool_set_log``, and of one thread for another's callback of a device), so two Python threads are never inside at once. A promise of direct
  recycling on a pool without a napi is thereby kept, and a pool with a napi is held against the
  thread that is in it.
- A Page is HELD, or GONE, or, if it was put while views of it existed, VIEWED: then it left its pool
  and this object keeps one reference of its own to the memory until the last view is gone.
- ``page.view()`` is made once per page of memory and kept by the pool, because making one costs more
  than all the rest. Before the page goes back it is looked at: if anybody but the pool has it, or what
  it is a view of, or a slice of it, or a buffer through it, or a weak reference to it, the page leaves
  its pool as above and the pool forgets the view.
- Whatever may run Python code (the garbage collector, that up to 3.11 runs when an object is made; the
  callback of a weak reference, when one goes; a warning) finds the objects in a state that it may use,
  and what was looked at before it is looked at again.
- What needs memory is made before a page is taken from the C pool, so that none is lost without.
- A page in flight keeps its C pool alive, and a Page keeps its PagePool. A PagePool lets go of its
  C pool when it is closed and nothing is in flight.
- After fork every object knows that it is the parent's.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.number cimport PyIndex_Check, PyNumber_Index
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8, PyUnicode_FromString
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EIO
from libc.stdint cimport UINT32_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, getenv
from posix.unistd cimport close

from pagepool.engine.pagepool cimport (
    PP_FLAG_CHECKED,
    PP_FLAG_CHECKED_FULL,
    PP_FLAG_DMA_MAP,
    PP_FLAG_DMA_SYNC_DEV,
    PP_FLAG_NO_STATS,
    PP_FLAG_NO_TRACKING,
    PP_HUGE_HUGETLB,
    PP_HUGE_NONE,
    PP_HUGE_THP,
    PP_LACKS_NODE,
    PP_LACKS_THP,
    PP_NUMA_NO_NODE,
    PP_REPORT_DEAD_POOL,
    PP_REPORT_WRONG_CONTEXT,
    page_pool,
    page_pool_alloc_frag,
    page_pool_alloc_pages,
    page_pool_alloc_pages_bulk,
    page_pool_create,
    page_pool_destroy,
    page_pool_disable_direct_recycling,
    page_pool_dma_stats,
    page_pool_dma_sync_for_cpu,
    page_pool_enable_direct_recycling,
    page_pool_get_dma_addr,
    page_pool_get_dma_stats,
    page_pool_get_stats,
    page_pool_design,
    page_pool_flags,
    page_pool_flush,
    page_pool_held_back,
    page_pool_id,
    page_pool_inflight,
    page_pool_last_error,
    page_pool_nid,
    page_pool_order,
    page_pool_params,
    page_pool_provider,
    page_pool_put_page,
    page_pool_put_page_bulk,
    page_pool_ref,
    page_pool_set_log,
    page_pool_set_report,
    page_pool_set_wait,
    page_pool_size,
    page_pool_stats,
    page_pool_unref,
    page_pool_update_nid,
    page_pool_version,
    pp_arena_create,
    pp_arena_params,
    pp_design_name,
    pp_design_parse,
    pp_device,
    pp_device_create,
    pp_device_name,
    pp_device_none,
    pp_device_params,
    pp_device_put,
    pp_device_read,
    pp_device_sync_for_cpu,
    pp_device_sync_for_device,
    pp_device_unbind,
    pp_device_unmap,
    pp_device_write,
    pp_dma_direction,
    pp_iommu,
    pp_iommu_attach,
    pp_iommu_create,
    pp_iommu_fault,
    pp_iommu_faults,
    pp_iommu_mapping,
    pp_iommu_mappings,
    pp_iommu_params,
    pp_iommu_put,
    pp_napi,
    pp_napi_create,
    pp_napi_destroy,
    pp_napi_enter,
    pp_napi_entered,
    pp_napi_exit,
    pp_page,
    pp_page_address,
    pp_page_get,
    pp_page_is_pfmemalloc,
    pp_page_nid,
    pp_page_order,
    pp_page_private,
    pp_page_put,
    pp_page_ref_count,
    pp_page_set_private,
    pp_page_users,
    pp_pool_count_from,
    pp_provider,
    pp_provider_get,
    pp_provider_get_info,
    pp_provider_info,
    pp_provider_put,
    pp_region_create,
    pp_region_params,
    pp_report,
)

import atexit
import collections
import logging
import os
import threading
import time
import typing
import warnings
import weakref

from pagepool import errors
from pagepool.snapshot import DmaStats, Fault, Holder, Mapping, PoolStats

cdef extern from "sched.h" nogil:
    int sched_yield()

cdef extern from "Python.h":
    PyObject *PyEval_GetFrame()
    PyObject *PyFrame_GetCode(PyObject *frame)
    int PyFrame_GetLasti(PyObject *frame)
    int PyCode_Addr2Line(PyObject *code, int lasti)
    PyObject *PyDict_GetItemWithError(object, object)
    int PyDict_DelItem(object, object) noexcept
    void PyErr_Clear()
    void PyObject_GC_UnTrack(object)
    void Py_XDECREF(PyObject *)

__version__ = page_pool_version().decode()

# ---- fork: the child is told, not harmed ----------------------------------------------------------

cdef extern from *:
    """
    #include <pthread.h>

    /* Counted by the C library's fork: before any Python code runs in the child, also code of
       os.register_at_fork(). */
    static unsigned pp_generation;
    static void pp_after_fork(void) { pp_generation++; }
    static int pp_count_forks(void) { return pthread_atfork(NULL, NULL, pp_after_fork); }
    """
    unsigned generation "pp_generation"  # of this process: one more in each child
    int _count_forks "pp_count_forks"()

if _count_forks():
    raise MemoryError("no memory to be told of a fork")


def _after_fork_in_child():
    _set_log()


os.register_at_fork(after_in_child=_after_fork_in_child)


cdef int _forked(object what) except -1:
    raise errors.Forked(
        f"this {what} belongs to the parent process {os.getppid()}: make one in the child, "
        "after the fork"
    )


cdef object _error(int code):
    return errors.from_code(code, page_pool_last_error().decode("utf-8", "replace"))


# ---- log: the C core's messages go to the logger "pagepool" ----------------------------------------

_logger = logging.getLogger("pagepool")


cdef void _log(void *ctx, const char *text) noexcept with gil:
    # Comes from a thread of the library's: nobody there could catch anything.
    try:
        _logger.warning("%s", text.decode("utf-8", "replace"))
    except BaseException:
        pass


def _set_log():
    with nogil:
        page_pool_set_log(&_log, NULL)


def _unset_log():
    # Waits for a message under way, which needs the lock of the interpreter.
    with nogil:
        page_pool_set_log(NULL, NULL)


_set_log()
atexit.register(_unset_log)


# ---- arguments -------------------------------------------------------------------------------------

cdef object _unsigned(object value, str what, object most):
    if not PyIndex_Check(value):
        raise TypeError(f"{what} must be an integer, not {type(value).__name__}")
    value = PyNumber_Index(value)
    if value < 0 or value > most:
        raise errors.InvalidParameter(f"{what} is {value}: must be from 0 to {most}")
    return value


cdef int _node(object node) except -2:
    if node is None:
        return PP_NUMA_NO_NODE
    return _unsigned(node, "node", 0x7fff)


cdef unsigned _milliseconds(object seconds, str what) except? 0xffffffff:
    ms = float(seconds) * 1000
    if not 1 <= ms <= 0x7fffffff:
        raise errors.InvalidParameter(
            f"{what} is {seconds} seconds: must be from 0.001 to {0x7fffffff // 1000}"
        )
    return int(ms)


# ---- napi -------------------------------------------------------------------------------------------

@cython.final
@cython.no_gc
cdef class Napi:
    cdef pp_napi *napi
    cdef unsigned born
    cdef object owner  # name of the thread inside, for messages; None: nobody
    cdef Py_ssize_t depth
    cdef object __weakref__

    def __cinit__(self):
        self.born = generation
        err = pp_napi_create(&self.napi)
        if err:
            raise _error(err)

    def __dealloc__(self):
        # A napi that a thread is in cannot be destroyed: 64 bytes stay.
        if self.napi is not NULL and self.born == generation:
            while pp_napi_entered(self.napi):
                pp_napi_exit(self.napi)
            pp_napi_destroy(self.napi)

    cdef int check(self) except -1:
        if self.born != generation:
            _forked("napi")
        return 0

    def enter(self):
        cdef object name = None

        self.check()
        if not pp_napi_entered(self.napi):
            # Before, since it is Python code: an interrupt there must not leave the napi entered.
            name = threading.current_thread().name
        if pp_napi_enter(self.napi):
            raise errors.WrongContext(f"thread {self.owner!r} is in this napi")
        self.depth += 1
        if self.depth == 1:
            self.owner = name

    def exit(self):
        self.check()
        if pp_napi_exit(self.napi):
            raise errors.WrongContext(
                "the calling thread is not in this napi"
                + (f", thread {self.owner!r} is" if self.owner else "")
            )
        self.depth -= 1
        if self.depth == 0:
            self.owner = None

    def __enter__(self):
        self.enter()
        return self

    def __exit__(self, *exc):
        self.exit()

    @property
    def entered(self):
        self.check()
        return pp_napi_entered(self.napi)

    def __repr__(self):
        return f"<pagepool.Napi, {f'thread {self.owner!r} inside' if self.owner else 'nobody inside'}>"


cdef extern from "pagepool.h":
    size_t PP_PAGE_SIZE_ "PP_PAGE_SIZE"


# ---- providers --------------------------------------------------------------------------------------

class ArenaInfo(typing.NamedTuple):
    limit: int
    mapped: int
    out: int
    failed: int
    node: int | None
    huge: str
    lacks: tuple[str, ...]


_HUGE = {"none": PP_HUGE_NONE, "thp": PP_HUGE_THP, "hugetlb": PP_HUGE_HUGETLB}
_HUGE_NAMES = {number: name for name, number in _HUGE.items()}


@cython.no_gc
cdef class Provider:
    cdef pp_provider *provider
    cdef unsigned born
    cdef object __weakref__

    def __init__(self):
        raise TypeError("a provider is an Arena or a Region")

    def __dealloc__(self):
        if self.provider is not NULL and self.born == generation:
            pp_provider_put(self.provider)

    cdef int check(self) except -1:
        if self.born != generation:
            _forked("provider of pages")
        if self.provider is NULL:
            raise errors.InvalidParameter(f"this {type(self).__name__} was never made")
        return 0

    @property
    def info(self):
        self.check()
        return _info(self.provider)

    def __repr__(self):
        name = type(self).__name__
        if self.born != generation:
            return f"<pagepool.{name} of the parent process>"
        if self.provider is NULL:
            return f"<pagepool.{name}, never made>"
        info = self.info
        return (
            f"<pagepool.{name}, {info.out} bytes out of {info.mapped} mapped, limit {info.limit}>"
        )


@cython.final
@cython.no_gc
cdef class Arena(Provider):
    def __init__(self, *, limit=0, reserve=0, node=None, huge="none"):
        cdef pp_arena_params params

        params.size = sizeof(params)
        params.limit = _unsigned(limit, "limit", 0xffffffffffffffff)
        params.reserve = _unsigned(reserve, "reserve", 0xffffffffffffffff)
        params.nid = _node(node)
        if huge not in _HUGE:
            raise errors.InvalidParameter(f"huge is {huge!r}: must be one of {', '.join(_HUGE)}")
        params.huge = _HUGE[huge]
        # After the arguments, whose own code may have made it meanwhile.
        if self.provider is not NULL:
            raise TypeError("an Arena is made once")
        self.born = generation
        err = pp_arena_create(&params, &self.provider)
        if err:
            raise _error(err)


cdef void _region_released(void *ctx, void *memory, size_t length) noexcept with gil:
    """The last page and the last reference are gone: the buffer is its owner's again. Runs the
    owner's code, and is the last thing that the C core does in the call that brought it here."""
    PyBuffer_Release(<Py_buffer *>ctx)
    free(ctx)


@cython.final
@cython.no_gc
cdef class Region(Provider):
    cdef size_t start         # address of the buffer
    cdef size_t length
    cdef int fd               # of shared memory
    cdef bint has_fd

    def __dealloc__(self):
        if self.has_fd:
            close(self.fd)

    def __init__(self, buffer, *, reserve=0, node=None):
        self.make(buffer, reserve, node)

    cdef int make(self, object buffer, object reserve, object node) except -1:
        cdef pp_region_params params
        cdef Py_buffer *view
        cdef size_t head

        params.size = sizeof(params)
        params.reserve = _unsigned(reserve, "reserve", 0xffffffffffffffff)
        params.nid = _node(node)
        view = <Py_buffer *>calloc(1, sizeof(Py_buffer))
        if view is NULL:
            raise errors.NoMemory("no memory for a region")
        try:
            PyObject_GetBuffer(buffer, view, PyBUF_WRITABLE)
        except BaseException:
            free(view)
            raise
        # After the arguments, whose own code may have made it meanwhile.
        if self.provider is not NULL:
            PyBuffer_Release(view)
            free(view)
            raise TypeError("a Region is made once")
        self.born = generation
        self.start = <size_t>view.buf
        self.length = <size_t>view.len
        # Pages are aligned; what is before the first is not used.
        head = -self.start % PP_PAGE_SIZE_
        params.memory = <void *>(self.start + head)
        params.length = self.length - head if self.length > head else 0
        params.release = &_region_released
        params.ctx = view
        err = pp_region_create(&params, &self.provider)
        if err:
            PyBuffer_Release(view)
            free(view)
            raise _error(err)
        return 0

    @staticmethod
    def shared(size, *, reserve=0, node=None):
        import mmap

        size = _unsigned(size, "size", 1 << 47)
        cdef Region region = Region.__new__(Region)
        region.fd = os.memfd_create("pagepool", os.MFD_CLOEXEC)
        region.has_fd = True  # closed with the region from here on
        try:
            os.ftruncate(region.fd, size)
            memory = mmap.mmap(region.fd, size)
        except (OSError, ValueError) as e:
            raise errors.NoMemory(f"no shared memory of {size} bytes: {e}") from None
        region.make(memory, reserve, node)
        return region

    def fileno(self):
        self.check()
        if not self.has_fd:
            raise ValueError("the region is not shared memory of its own: it has no file")
        return self.fd

    def offset(self, Page page not None):
        self.check()
        page.check()
        if not self.start <= <size_t>page.memory < self.start + self.length:
            raise errors.ForeignPage(f"page allocated at {page.allocated_at} is not of this region")
        return <size_t>page.memory - self.start


cdef object _info(pp_provider *provider):
    cdef pp_provider_info info

    info.size = sizeof(info)
    err = pp_provider_get_info(provider, &info)
    if err:
        raise _error(err)
    return ArenaInfo(
        info.limit,
        info.mapped,
        info.out,
        info.failed,
        None if info.nid == PP_NUMA_NO_NODE else info.nid,
        _HUGE_NAMES[info.huge],
        _lacks(info),
    )


cdef tuple _lacks(pp_provider_info info):
    lacks = []
    if info.lacks & PP_LACKS_NODE:
        lacks.append(
            f"the memory is not bound to NUMA node {info.nid}: the machine has no such node, or "
            "does not let the process ask for one"
        )
    if info.lacks & PP_LACKS_THP:
        lacks.append("no transparent huge pages: the system has them switched off")
    return tuple(lacks)


# ---- devices ----------------------------------------------------------------------------------------

include "devices.pxi"


# ---- checked mode -----------------------------------------------------------------------------------

include "checked.pxi"


# ---- pages ------------------------------------------------------------------------------------------

cdef enum:
    GONE = 0    # put; page is NULL
    HELD = 1    # the caller's
    VIEWED = 2  # put while views existed; the object has one reference to the memory
    GOING = 3   # being gathered by put_bulk


cdef str _where(PyObject *code, int lasti):
    if code is NULL:
        return "C code"
    return f"{(<object>code).co_filename}:{PyCode_Addr2Line(code, lasti)}"


cdef void _warn_dropped(uint32_t pool_id, Py_ssize_t n, PyObject *code, int lasti) noexcept:
    """n: of a batch; 0: one page; -1: a piece of one."""
    # From a destructor: an error (-W error) can only be shown.
    try:
        what = f"{n} pages" if n > 0 else "piece of a page" if n else "page"
        verb, them = ("were", "them") if n > 0 else ("was", "it")
        warnings.warn(
            f"{what} of pool {pool_id}, allocated at {_where(code, lasti)}, {verb} dropped "
            f"without a put; the pool has {them} back",
            ResourceWarning,
            stacklevel=2,
        )
    except BaseException as e:
        _unraisable(e)


cdef void _unraisable(object exc) noexcept:
    try:
        import sys

        sys.excepthook(type(exc), exc, exc.__traceback__)
    except BaseException:
        pass


cdef extern from *:
    """
    /* Has the user called release() on it? */
    static inline int pp_view_is_released(PyObject *view)
    {
        return (((PyMemoryViewObject *)view)->flags & _Py_MEMORYVIEW_RELEASED) != 0;
    }
    /*
     * Does anybody but the pool have this memory, or its view? The pool has one reference to either,
     * and each buffer of the memory has one to it: the view's, unless it was released, and those of
     * released views that slices were made of.
     * Of the view somebody holds the object itself, or a weak reference, that makes one of it at any
     * time; or got a buffer through it (exports of the memoryview), or made another view of it: a
     * slice, a cast (exports of the managed buffer that all of them share; one is its own).
     */
    static inline int pp_memory_is_held(PyObject *memory, PyObject *view)
    {
        PyMemoryViewObject *mv = (PyMemoryViewObject *)view;

        if (pp_view_is_released(view))
            return Py_REFCNT(memory) != 1;
        return Py_REFCNT(memory) != 2 || Py_REFCNT(view) != 1 || mv->weakreflist != NULL ||
               mv->exports != 0 || mv->mbuf->exports != 1;
    }
    static inline void pp_xincref(PyObject *o) { Py_XINCREF(o); }
    """
    bint _view_is_released "pp_view_is_released"(PyObject *)
    bint _memory_is_held "pp_memory_is_held"(PyObject *memory, PyObject *view)
    void _xincref "pp_xincref"(PyObject *)


@cython.final
@cython.no_gc
cdef class Memory:
    """What page.view() is a view of. It keeps the provider; once the page has left its pool because
    the view was held, also the page."""
    cdef void *memory
    cdef Py_ssize_t length
    cdef pp_provider *provider
    cdef pp_page *page
    cdef PyObject *view       # what page.view() gives; the pool has the reference
    cdef object key           # of the pool's dictionary: the address
    cdef unsigned born

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.memory, self.length, 0, flags)

    def __dealloc__(self):
        if self.born != generation:
            return
        if self.page is not NULL:
            pp_page_put(self.page)
        if self.provider is not NULL:
            pp_provider_put(self.provider)


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Page:
    cdef pp_page *page
    cdef void *memory
    cdef Py_ssize_t length
    cdef PagePool pool_
    cdef Py_ssize_t views
    cdef PyObject *code  # where it was allocated: code object and instruction
    cdef int lasti
    cdef int state
    cdef readonly bint piece  # of a page: memory and length are its own
    cdef unsigned born
    cdef Record record   # None: not of a checked pool

    def __init__(self):
        raise TypeError("pages come from a pool: pool.alloc()")

    def __dealloc__(self):
        cdef uint32_t pool_id

        if self.state == HELD and self.born == generation:
            # Not lost: it goes back before anybody is told.
            pool_id = page_pool_id(self.pool_.pool)
            _was_put(self.record, _last_trace(self.record))
            self.give_back(UINT32_MAX, False)
            _warn_dropped(pool_id, -1 if self.piece else 0, self.code, self.lasti)
        Py_XDECREF(self.code)
        self.code = NULL

    cdef int check(self) except -1:
        if self.born != generation:
            _forked("page")
        if self.state != HELD:
            raise self.gone()
        return 0

    cdef object gone(self):
        cdef str text = f"page allocated at {_where(self.code, self.lasti)} was put already"

        if self.record is None:
            return errors.PageGone(text)
        if self.record.put is not None:
            text += (
                f", at {_site_of(self.record.put)} by thread {_thread_of(self.record.put)!r}"
            )
        return self.record.add_to(errors.PageGone(text))

    # -- the buffer protocol

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.state != HELD or self.born != generation:
            self.check()
        PyBuffer_FillInfo(view, self, self.memory, self.length, 0, flags)
        self.views += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.views -= 1
        if self.views == 0 and self.state == VIEWED:
            self.state = GONE
            if self.born == generation:
                pp_page_put(self.page)
            self.page = NULL

    def __len__(self):
        return self.length

    # -- giving it back

    cdef inline void leave(self, unsigned dma_sync_size, bint allow_direct) noexcept:
        cdef PagePool pool = self.pool_

        if self.views:
            # Somebody else holds it: it leaves the pool, and the last view frees it.
            pp_page_get(self.page)
            self.state = VIEWED
            page_pool_put_page(pool.pool, self.page, dma_sync_size, allow_direct)
        else:
            self.state = GONE
            page_pool_put_page(pool.pool, self.page, dma_sync_size, allow_direct)
            self.page = NULL
        if pool.closed_:
            pool.settle()

    cdef bint is_viewed(self) noexcept:
        """Not put yet: does anybody have a view of it?"""
        cdef void *memory = NULL if self.piece else pp_page_private(self.page)

        return self.views or (
            memory is not NULL
            and _memory_is_held(<PyObject *>memory, (<Memory>memory).view)
        )

    cdef void give_back(self, unsigned dma_sync_size, bint allow_direct) noexcept:
        """HELD on entry."""
        cdef void *memory = NULL

        # A piece has no part in the view of its page, which nobody has while it is in pieces.
        if not self.piece:
            memory = pp_page_private(self.page)
        if memory is not NULL and _memory_is_held(<PyObject *>memory, (<Memory>memory).view):
            self.give_back_viewed(dma_sync_size, allow_direct)
        else:
            self.leave(dma_sync_size, allow_direct)

    cdef void give_back_viewed(self, unsigned dma_sync_size, bint allow_direct) noexcept:
        """Somebody has the view: it keeps the page from now on, and the pool has no part in it."""
        cdef PagePool pool = self.pool_
        cdef Memory memory = <Memory>pp_page_private(self.page)
        # Kept to the end of this function: with it the view may go, and the callback of a weak
        # reference to it must find the page put.
        cdef object entry = <object>PyDict_GetItemWithError(pool.views, memory.key)

        memory.page = self.page
        pp_page_get(self.page)
        pp_page_set_private(self.page, NULL)
        if PyDict_DelItem(pool.views, memory.key):
            PyErr_Clear()
        self.leave(dma_sync_size, allow_direct)

    def view(self):
        cdef void *memory

        if self.state != HELD or self.born != generation:
            self.check()
        if self.piece:
            return memoryview(self)
        memory = pp_page_private(self.page)
        if memory is NULL or _view_is_released((<Memory>memory).view):
            return self.pool_.make_view(self)
        return <object>(<Memory>memory).view

    def put(self, *, bint allow_direct=False):
        cdef tuple trace = _put_trace(self.record)

        if self.state != HELD or self.born != generation:
            self.check()
        if allow_direct:
            self.pool_.check_promise()
        _was_put(self.record, trace)
        self.give_back(UINT32_MAX, allow_direct)

    def __enter__(self):
        self.check()
        return self

    def __exit__(self, *exc):
        if self.state == HELD:
            self.pool_.put_page(self, UINT32_MAX, False)

    # -- facts

    @property
    def pool(self):
        return self.pool_

    @property
    def held(self):
        return self.state == HELD

    @property
    def address(self):
        self.check()
        return <size_t>self.memory

    @property
    def dma(self):
        cdef uint64_t dma

        self.check()
        if self.pool_.device_ is None:
            raise self.pool_.no_device()
        dma = page_pool_get_dma_addr(self.page)
        # 0 is also an address that a device may have given, and by the old rule it still is one.
        if dma == 0 and self.pool_.closed_ and self.pool_.tracked:
            raise errors.DeviceGone(
                f"page allocated at {_where(self.code, self.lasti)} was unmapped when its pool "
                "was closed"
            )
        return dma + (<size_t>self.memory - <size_t>pp_page_address(self.page))

    @property
    def order(self):
        self.check()
        return pp_page_order(self.page)

    @property
    def node(self):
        self.check()
        return pp_page_nid(self.page)

    @property
    def pfmemalloc(self):
        self.check()
        return pp_page_is_pfmemalloc(self.page)

    @property
    def offset(self):
        self.check()
        return <size_t>self.memory - <size_t>pp_page_address(self.page)

    @property
    def users(self):
        self.check()
        return pp_page_users(self.page)

    @property
    def ref_count(self):
        self.check()
        return pp_page_ref_count(self.page)

    @property
    def allocated_at(self):
        return _where(self.code, self.lasti)

    def __repr__(self):
        if self.state != HELD or self.born != generation:
            return f"<pagepool.Page, put; allocated at {_where(self.code, self.lasti)}>"
        return (
            f"<pagepool.Page{' in part,' if self.piece else ' of'} {self.length} bytes at {<size_t>self.memory:#x}, "
            f"allocated at {_where(self.code, self.lasti)}>"
        )


cdef inline void _hold(Page page, PagePool pool, pp_page *c, PyObject *code, int lasti) noexcept:
    """The page, new and empty, is this one now. Steals the reference to code."""
    page.page = c
    page.memory = pp_page_address(c)
    page.length = pool.page_size_
    page.pool_ = pool
    page.code = code
    page.lasti = lasti
    page.born = generation
    page.state = HELD


cdef inline PyObject *_site(int *lasti) noexcept:
    """The Python code that is calling, a new reference; NULL: none. The frame object is made once
    per call of that code, so in a loop this costs a few nanoseconds."""
    cdef PyObject *frame = PyEval_GetFrame()

    if frame is NULL:
        lasti[0] = 0
        return NULL
    lasti[0] = PyFrame_GetLasti(frame)
    return PyFrame_GetCode(frame)


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class PageBatch:
    cdef PagePool pool_
    cdef pp_page **raw   # pages nobody has looked at; NULL: a Page was made of it
    cdef list made       # the Page of each index, or None; None altogether: no Page made yet
    cdef Py_ssize_t n
    cdef PyObject *code
    cdef int lasti
    cdef bint held_
    cdef unsigned born
    cdef Record record   # of all its pages; None: not of a checked pool

    def __init__(self):
        raise TypeError("batches come from a pool: pool.alloc_bulk(n)")

    def __dealloc__(self):
        cdef Py_ssize_t n
        cdef uint32_t pool_id

        if self.held_ and self.born == generation:
            pool_id = page_pool_id(self.pool_.pool) if self.pool_.pool is not NULL else 0
            n = self.put_raw(_last_trace(self.record))
            if n:
                self.pool_.settle()
                _warn_dropped(pool_id, n, self.code, self.lasti)
        free(self.raw)
        self.raw = NULL
        Py_XDECREF(self.code)
        self.code = NULL

    cdef int check(self) except -1:
        if self.born != generation:
            _forked("batch of pages")
        if not self.held_:
            error = errors.PageGone(
                f"batch of pages allocated at {_where(self.code, self.lasti)} was put already"
            )
            raise error if self.record is None else self.record.add_to(error)
        return 0

    def __len__(self):
        return self.n

    def __getitem__(self, Py_ssize_t i):
        cdef Page page
        cdef list made
        cdef Record record = None

        self.check()
        if i < 0:
            i += self.n
        if i < 0 or i >= self.n:
            raise IndexError(f"a batch of {self.n} pages has no page {i}")
        if self.made is None:
            made = [None] * self.n
            # The garbage collector may have run, and somebody put the batch or looked at a page.
            self.check()
            if self.made is None:
                self.made = made
        if self.made[i] is None:
            # The same page is the same object, so that a put through either is seen by both.
            if self.record is not None:
                record = _copy(self.record)
                self.check()
                if self.made[i] is not None:
                    return self.made[i]
            page = Page.__new__(Page)
            _xincref(self.code)
            _hold(page, self.pool_, self.raw[i], self.code, self.lasti)
            self.raw[i] = NULL
            self.made[i] = page
            if record is not None:
                page.record = record
                self.pool_.records[<size_t>page.memory] = record
        return self.made[i]

    cdef Py_ssize_t put_raw(self, tuple trace) noexcept:
        """Held on entry. Puts the pages that nobody has looked at; how many."""
        cdef Py_ssize_t i, n = 0

        self.held_ = False
        _was_put(self.record, trace)
        for i in range(self.n):
            if self.raw[i] is not NULL:
                self.raw[n] = self.raw[i]
                n += 1
        if n:
            page_pool_put_page_bulk(self.raw, n)
        return n

    cdef void give_back(self, tuple trace) noexcept:
        """Held on entry."""
        cdef Py_ssize_t i
        cdef PagePool pool = self.pool_
        cdef Page page

        self.put_raw(trace)
        if self.made is not None:
            for i in range(self.n):
                if self.made[i] is not None:
                    page = <Page>self.made[i]
                    if page.state == HELD:
                        _was_put(page.record, trace)
                        page.give_back(UINT32_MAX, False)
        self.made = None
        if pool.closed_:
            pool.settle()

    def put(self):
        cdef tuple trace = _put_trace(self.record)

        self.check()
        self.give_back(trace)

    def __enter__(self):
        self.check()
        return self

    def __exit__(self, *exc):
        if self.held_:
            self.put()

    @property
    def pool(self):
        return self.pool_

    @property
    def held(self):
        return self.held_

    def __repr__(self):
        return (
            f"<pagepool.PageBatch of {self.n} pages{'' if self.held_ else ', put'}; "
            f"allocated at {_where(self.code, self.lasti)}>"
        )


# ---- pools ------------------------------------------------------------------------------------------


cdef unsigned _design(design) except? 0:
    cdef unsigned number = 0
    cdef const char *name

    if design is None:
        name = getenv("PAGEPOOL_DESIGN")
        if name is NULL or not name[0]:
            return 0
    elif isinstance(design, str):
        try:
            name = PyUnicode_AsUTF8(design)
        except UnicodeEncodeError:
            name = "?"
    else:
        raise TypeError(f"design must be a str, not {type(design).__name__}")
    err = pp_design_parse(name, &number)
    if err:
        raise _error(err)
    return number


@cython.final
@cython.no_gc
cdef class PagePool:
    cdef page_pool *pool      # NULL: closed, and the last page is back
    cdef Py_ssize_t page_size_
    cdef Napi napi_           # None: not bound
    cdef pp_napi *cnapi       # its C part, or NULL
    cdef object provider_     # what was given; None: an arena of its own
    cdef Device device_       # None: pages are not mapped
    cdef object dma_dir_
    cdef Py_ssize_t offset_
    cdef Py_ssize_t max_len_
    cdef bint special         # mapped or checked: Python code may run in the middle of a call
    cdef Py_ssize_t inside    # such calls of the consumer's under way: it cannot be closed now
    cdef bint destroyed       # closing is through
    cdef bint tracked         # and then nothing is mapped any more
    cdef dict views           # address -> (Memory, its view), see Page.view
    cdef dict records         # checked: address -> Record of its last use; None: not checked
    cdef object checked_
    cdef object design_
    # Once pool is NULL, what it was:
    cdef page_pool_stats last_stats
    cdef int no_stats         # the error, if it was made without
    cdef page_pool_dma_stats last_dma_stats
    cdef uint32_t id_
    cdef unsigned order_
    cdef unsigned size_
    cdef int nid_
    cdef bint closed_
    cdef unsigned born
    cdef object __weakref__

    def __cinit__(
        self,
        *,
        pool_size=0,
        order=0,
        node=None,
        Napi napi=None,
        Provider provider=None,
        Device device=None,
        bint dma_sync=False,
        dma_dir="from_device",
        offset=0,
        max_len=None,
        bint track_mappings=True,
        design=None,
        checked=False,
        bint statistics=True,
        retry=1.0,
        warn=60.0,
    ):
        cdef page_pool_params params
        cdef object page_size

        self.born = generation
        params.size = sizeof(params)
        params.flags = 0 if statistics else PP_FLAG_NO_STATS
        params.order = _unsigned(order, "order", 0xffff)
        params.pool_size = _unsigned(pool_size, "pool_size", 0xffffffff)
        params.nid = _node(node)
        params.napi = NULL
        params.provider = NULL
        params.retry_ms = _milliseconds(retry, "retry")
        params.warn_ms = _milliseconds(warn, "warn")
        if napi is not None:
            napi.check()
            params.napi = napi.napi
        if provider is not None:
            provider.check()
            params.provider = provider.provider
        params.device = NULL
        params.dma_dir = 0
        params.offset = _unsigned(offset, "offset", 0xffffffff)
        params.max_len = 0
        page_size = PP_PAGE_SIZE_ << min(params.order, 20)
        if max_len is not None:
            params.max_len = _unsigned(max_len, "max_len", 0xffffffff)
        if max_len is None or (params.max_len == 0 and not dma_sync):
            params.max_len = max(page_size - params.offset, 0)
        params.design = _design(design)
        if dma_dir not in ("from_device", "bidirectional"):
            raise errors.InvalidParameter(
                f"dma_dir is {dma_dir!r}: must be one of from_device, bidirectional, "
                "since a pool's pages are for receiving"
            )
        if device is not None:
            device.check()
            params.device = device.device
            params.dma_dir = _direction(dma_dir)
            params.flags |= PP_FLAG_DMA_MAP
            if dma_sync:
                params.flags |= PP_FLAG_DMA_SYNC_DEV
            if not track_mappings:
                params.flags |= PP_FLAG_NO_TRACKING
        elif dma_sync:
            raise errors.InvalidParameter("dma_sync without a device: there is nobody to sync for")
        if dma_sync and params.max_len == 0:
            raise errors.InvalidParameter("dma_sync with max_len 0: there is nothing to sync")
        if checked == "full":
            params.flags |= PP_FLAG_CHECKED_FULL
        elif checked is True:
            params.flags |= PP_FLAG_CHECKED
        elif checked is not False:
            raise errors.InvalidParameter(
                f"checked is {checked!r}: must be True, False or 'full'"
            )
        # Also without a device: a NIC's frame must not go beyond the page. A wrong order is the C core's
        # to refuse.
        if params.order <= 10 and <uint64_t>params.offset + params.max_len > page_size:
            raise errors.InvalidParameter(
                f"offset {params.offset} and max_len {params.max_len} are more than a page of "
                f"{page_size} bytes"
            )
        self.device_ = device
        self.dma_dir_ = dma_dir
        self.tracked = track_mappings
        self.offset_ = params.offset
        self.max_len_ = params.max_len
        err = page_pool_create(&params, &self.pool)
        if err:
            raise _error(err)
        page_pool_ref(self.pool)
        self.napi_ = napi
        self.cnapi = params.napi
        self.provider_ = provider
        self.views = {}
        flags = page_pool_flags(self.pool)
        self.checked_ = "full" if flags & PP_FLAG_CHECKED_FULL else bool(flags & PP_FLAG_CHECKED)
        if self.checked_:
            self.records = {}
            _checked[page_pool_id(self.pool)] = self
        self.special = device is not None or self.records is not None
        self.page_size_ = PP_PAGE_SIZE_ << params.order
        self.design_ = PyUnicode_FromString(pp_design_name(params.design))

    def __dealloc__(self):
        # No Page is left, they hold us; so nothing can be in flight but what is cached.
        if self.pool is not NULL and self.born == generation:
            if not self.closed_:
                page_pool_destroy(self.pool)
            page_pool_unref(self.pool)

    cdef int check(self) except -1:
        """The caller's to use, and not closed."""
        self.check_process()
        if self.closed_:
            raise errors.PoolClosed("the pool is closed: nothing is allocated from it any more")
        return 0

    cdef int check_consumer(self) except -1:
        if self.born != generation or self.closed_:
            self.check()
        if self.cnapi is not NULL and not pp_napi_entered(self.cnapi):
            raise errors.WrongContext(
                f"pool {page_pool_id(self.pool)} is bound to a napi, and this thread is not in it: "
                "allocate inside `with napi:`"
            )
        return 0

    cdef int check_promise(self) except -1:
        if self.cnapi is not NULL and not pp_napi_entered(self.cnapi):
            raise errors.WrongContext(
                f"pool {page_pool_id(self.pool)} is bound to a napi, and this thread is not in it: "
                "the promise of direct recycling cannot be kept"
            )
        return 0

    cdef void settle(self) noexcept:
        """Closed, and the last page is back: let the C pool go."""
        cdef page_pool *pool = self.pool

        if not self.destroyed or pool is NULL or page_pool_inflight(pool) > 0:
            return
        self.id_ = page_pool_id(pool)
        self.order_ = page_pool_order(pool)
        self.size_ = page_pool_size(pool)
        self.nid_ = page_pool_nid(pool)
        self.last_stats.size = sizeof(self.last_stats)
        self.no_stats = page_pool_get_stats(pool, &self.last_stats)
        self.last_dma_stats.size = sizeof(self.last_dma_stats)
        page_pool_get_dma_stats(pool, &self.last_dma_stats)
        self.pool = NULL
        page_pool_unref(pool)
        self.views.clear()

    # -- views: see Page.view

    cdef object make_view(self, Page page):
        cdef object key = <size_t>page.memory
        cdef Memory memory
        cdef object view, entry, made

        while True:
            entry = self.views.get(key)
            if entry is None:
                memory = Memory.__new__(Memory)
                memory.memory = page.memory
                memory.length = self.page_size_
                memory.born = generation
                memory.key = key
                memory.provider = page_pool_provider(self.pool)
                pp_provider_get(memory.provider)
            else:
                memory = <Memory>entry[0]
                if not _view_is_released(memory.view):
                    # From when the page was here before.
                    pp_page_set_private(page.page, <void *>memory)
                    return <object>memory.view
            view = PyMemoryView_FromObject(memory)
            made = (memory, view)
            # The garbage collector may have run, and somebody put the page or made a view of it.
            page.check()
            if self.views.get(key) is entry:
                break
        # The old entry, with a view that was released, lives to the end of this function: see
        # Page.give_back_viewed.
        self.views[key] = made
        # Out of sight of gc.get_objects() and gc.get_referrers(): nobody else may change them.
        PyObject_GC_UnTrack(self.views)
        PyObject_GC_UnTrack(made)
        memory.view = <PyObject *>view
        pp_page_set_private(page.page, <void *>memory)
        return view

    # -- allocate

    cdef uint64_t enter(self) noexcept:
        """A call of the consumer's into a special pool begins; mapping errors so far."""
        cdef page_pool_dma_stats s

        # First, since what goes below may run Python code.
        self.inside += 1
        if self.device_ is None:
            return 0
        self.device_.refusal = None
        s.size = sizeof(s)
        page_pool_get_dma_stats(self.pool, &s)
        return s.map_errors

    cdef int forget_refusal(self) except -1:
        """There is a page: why others could not be mapped is nobody's concern, and the exception
        would keep what the callers have in their variables. Runs Python code."""
        if self.device_ is not None:
            self.device_.refusal = None
        return 0

    def alloc(self):
        cdef pp_page *c
        cdef PyObject *code
        cdef int lasti
        cdef uint64_t errors_before = 0
        cdef Page page = Page.__new__(Page)

        # The usual case without a call; the call finds out what is wrong.
        if (
            self.born != generation
            or self.closed_
            or (self.cnapi is not NULL and not pp_napi_entered(self.cnapi))
        ):
            self.check_consumer()
        if self.special:
            errors_before = self.enter()
        c = page_pool_alloc_pages(self.pool)
        self.inside -= self.special
        if c is NULL:
            raise self.out_of_pages(errors_before)
        code = _site(&lasti)
        _hold(page, self, c, code, lasti)
        if self.records is not None:
            page.record = _record(page.length)
            self.records[<size_t>page.memory] = page.record
        if self.special:
            self.forget_refusal()
        return page

    def alloc_frag(self, Py_ssize_t size):
        cdef size_t offset = 0
        cdef Page piece = Page.__new__(Page)
        cdef pp_page *c
        cdef PyObject *code
        cdef int lasti
        cdef uint64_t errors_before = 0

        self.check_consumer()
        if size < 1 or size > self.page_size_:
            raise errors.InvalidParameter(
                f"a piece of {size} bytes: must be from 1 to {self.page_size_}, the page of this pool"
            )
        if self.special:
            errors_before = self.enter()
        c = page_pool_alloc_frag(self.pool, &offset, size)
        self.inside -= self.special
        if c is NULL:
            raise self.out_of_pages(errors_before)
        code = _site(&lasti)
        _hold(piece, self, c, code, lasti)
        piece.memory = <char *>piece.memory + offset
        piece.length = size
        piece.piece = True
        if self.records is not None:
            piece.record = _record(size)
            self.records[<size_t>piece.memory] = piece.record
        if self.special:
            self.forget_refusal()
        return piece

    def alloc_bulk(self, Py_ssize_t n):
        cdef PageBatch batch
        cdef Py_ssize_t i
        cdef uint64_t errors_before = 0

        self.check_consumer()
        if n < 1:
            raise errors.InvalidParameter(f"alloc_bulk of {n} pages: ask for at least one")
        batch = PageBatch.__new__(PageBatch)
        batch.raw = <pp_page **>calloc(n, sizeof(pp_page *))
        if batch.raw is NULL:
            raise errors.NoMemory(f"no memory for a batch of {n} pages")
        # Making the batch may have run Python code.
        self.check_consumer()
        if self.special:
            errors_before = self.enter()
        batch.n = page_pool_alloc_pages_bulk(self.pool, n, batch.raw)
        self.inside -= self.special
        if batch.n == 0:
            raise self.out_of_pages(errors_before)
        batch.pool_ = self
        batch.born = generation
        batch.code = _site(&batch.lasti)
        batch.held_ = True
        if self.records is not None:
            batch.record = _record(self.page_size_)
            for i in range(batch.n):
                self.records[<size_t>pp_page_address(batch.raw[i])] = batch.record
        if self.special:
            self.forget_refusal()
        return batch

    cdef object no_device(self):
        return errors.NotSupported(f"pool {self.id} was made without a device")

    cdef object out_of_pages(self, uint64_t errors_before):
        """Why there is none: right after the call, with the mapping errors before it."""
        cdef object refusal = _refused.pop(PyThread_get_thread_ident(), None)
        # Before any Python code (a device's own name), that may close the pool.
        cdef uint32_t number = page_pool_id(self.pool)
        cdef int32_t inflight = page_pool_inflight(self.pool)
        cdef page_pool_dma_stats s

        if refusal is not None:
            return errors.WrongContext(refusal)

        if self.device_ is not None:
            s.size = sizeof(s)
            page_pool_get_dma_stats(self.pool, &s)
            if s.map_errors > errors_before:
                refusal, self.device_.refusal = self.device_.refusal, None
                error = errors.OutOfPages(
                    f"pool {number} has no page: none could be mapped for device "
                    f"{self.device_.name}, {inflight} pages in flight"
                )
                error.__cause__ = self.device_.refused() if refusal is None else refusal
                return error
        return errors.OutOfPages(
            f"pool {number} has no page: its provider is at its limit or the "
            f"system is out of memory, {inflight} pages in flight"
        )

    # -- put

    cdef int put_page(self, Page page, unsigned dma_sync_size, bint allow_direct) except -1:
        cdef tuple trace = _put_trace(page.record)

        if page.state != HELD or page.born != generation:
            page.check()
        if page.pool_ is not self:
            raise self.foreign(page)
        if allow_direct:
            self.check_promise()
        _was_put(page.record, trace)
        page.give_back(dma_sync_size, allow_direct)
        return 0

    cdef object foreign(self, Page page):
        return errors.ForeignPage(
            f"page allocated at {page.allocated_at} belongs to pool "
            f"{page_pool_id(page.pool_.pool)}, not to this one"
        )

    def put(self, Page page not None, *, bint allow_direct=False, int dma_sync_size=-1):
        # -1: all of the page.
        if dma_sync_size < -1:
            raise errors.InvalidParameter(
                f"dma_sync_size is {dma_sync_size}: must be a number of bytes, or -1 for all"
            )
        self.put_page(page, <unsigned>dma_sync_size, allow_direct)

    def put_full(self, Page page not None, *, bint allow_direct=False):
        self.put_page(page, UINT32_MAX, allow_direct)

    def recycle_direct(self, Page page not None):
        self.put_page(page, UINT32_MAX, True)

    @staticmethod
    def put_bulk(pages):
        cdef list gathered
        cdef pp_page **raw
        cdef Page page
        cdef tuple trace = None
        cdef Py_ssize_t i, n = 0

        if isinstance(pages, PageBatch):
            (<PageBatch>pages).put()
            return
        # First all are checked and marked, so that an error leaves everything as it was.
        gathered = list(pages)
        try:
            for i in range(len(gathered)):
                if not isinstance(gathered[i], Page):
                    raise TypeError(f"put_bulk takes pages, not {type(gathered[i]).__name__}")
                page = <Page>gathered[i]
                if page.state == GOING:
                    raise errors.PageGone(
                        f"page allocated at {page.allocated_at} is in this put_bulk twice"
                    )
                page.check()
                page.state = GOING
                n += 1
                if trace is None:
                    trace = _put_trace(page.record)
            raw = <pp_page **>calloc(n or 1, sizeof(pp_page *))
            if raw is NULL:
                raise errors.NoMemory(f"no memory to put {n} pages at once")
        except BaseException:
            for i in range(n):
                (<Page>gathered[i]).state = HELD
            raise
        n = 0
        for i in range(len(gathered)):
            page = <Page>gathered[i]
            _was_put(page.record, trace)
            if page.is_viewed():
                page.state = HELD
                page.give_back(UINT32_MAX, False)
            else:
                raw[n] = page.page
                n += 1
                page.page = NULL
                page.state = GONE
        page_pool_put_page_bulk(raw, n)
        free(raw)
        for i in range(len(gathered)):
            page = <Page>gathered[i]
            if page.pool_.closed_:
                page.pool_.settle()

    # -- what the device wrote

    def dma_sync_for_cpu(self, Page page not None, offset=0, size=None):
        cdef Py_ssize_t start = _unsigned(offset, "offset", 0xffffffff)
        cdef Py_ssize_t end = start + (
            0xffffffff if size is None else _unsigned(size, "size", 0xffffffff)
        )
        cdef Py_ssize_t part = self.offset_ + self.max_len_
        cdef Py_ssize_t at
        cdef page_pool *pool

        page.check()
        if page.pool_ is not self:
            raise self.foreign(page)
        if self.device_ is None:
            raise self.no_device()
        if page.piece:
            # From where the piece starts, and not beyond it.
            at = <size_t>page.memory - <size_t>pp_page_address(page.page)
            part = min(part, at + page.length)
        else:
            at = self.offset_
        start = max(start + at, self.offset_)
        end = min(end + at, part)
        if start < end:
            # Meanwhile the page may be put, and be the last of a pool that was closed.
            pool = self.pool
            page_pool_ref(pool)
            page_pool_dma_sync_for_cpu(pool, page.page, start - self.offset_, end - start)
            page_pool_unref(pool)

    # -- settings

    def _count_from(self, n):
        cdef uint64_t count = _unsigned(n, "n", 0xffffffffffffffff)

        if self.inflight or self.closed_:
            raise errors.InvalidParameter("pages have come already: only a new pool counts from n")
        pp_pool_count_from(self.pool, count)

    def update_nid(self, node):
        cdef int nid = _node(node)

        self.check_consumer()
        self.inside += 1
        err = page_pool_update_nid(self.pool, nid)
        self.inside -= 1
        if err:
            _refused.pop(PyThread_get_thread_ident(), None)
            raise _error(err)

    def enable_direct_recycling(self, Napi napi not None):
        self.check()
        napi.check()
        err = page_pool_enable_direct_recycling(self.pool, napi.napi)
        if err:
            raise _error(err)
        self.cnapi = napi.napi
        self.napi_ = napi

    def disable_direct_recycling(self):
        # The napi may go with this function, and the callback of a weak reference to it may do
        # anything: when all is done.
        cdef object napi = self.napi_

        self.check()
        err = page_pool_disable_direct_recycling(self.pool)
        if err:
            raise _error(err)
        self.cnapi = NULL
        self.napi_ = None

    # -- the end

    def close(self):
        cdef object napi = self.napi_  # see disable_direct_recycling

        self.check_process()
        if self.closed_:
            return
        if _in_callback:
            raise errors.WrongContext(
                f"pool {page_pool_id(self.pool)} is closed by a callback of a device: that waits for "
                "the pages that are being unmapped, and so for itself"
            )
        if self.inside:
            raise errors.WrongContext(
                f"pool {page_pool_id(self.pool)} is closed in the middle of an allocation: let it "
                "return first"
            )
        if self.cnapi is not NULL and self.napi_.owner is not None \
                and not pp_napi_entered(self.cnapi):
            raise errors.WrongContext(
                f"thread {self.napi_.owner!r} is in the napi of pool {page_pool_id(self.pool)}: "
                "let it leave before the pool is closed"
            )
        self.closed_ = True
        self.cnapi = NULL
        self.napi_ = None
        page_pool_destroy(self.pool)
        self.destroyed = True
        self.settle()

    def __enter__(self):
        self.check()
        return self

    def __exit__(self, *exc):
        self.close()

    # -- facts

    cdef object read_stats(self):
        cdef page_pool_stats s

        if self.pool is NULL:
            if self.no_stats:
                raise errors.from_code(
                    self.no_stats, f"pool {self.id_} was made without statistics"
                )
            s = self.last_stats
        else:
            s.size = sizeof(s)
            err = page_pool_get_stats(self.pool, &s)
            if err:
                raise _error(err)
        return PoolStats(
            s.alloc_fast,
            s.alloc_slow,
            s.alloc_slow_high_order,
            s.alloc_empty,
            s.alloc_refill,
            s.alloc_waive,
            s.recycle_cached,
            s.recycle_cache_full,
            s.recycle_ring,
            s.recycle_ring_full,
            s.recycle_released_refcnt,
        )

    cdef int check_process(self) except -1:
        if self.born != generation:
            _forked("pool")
        return 0

    @property
    def stats(self):
        self.check_process()
        return self.read_stats()

    @property
    def dma_stats(self):
        cdef page_pool_dma_stats s

        self.check_process()
        if self.device_ is None:
            raise self.no_device()
        if self.pool is NULL:
            s = self.last_dma_stats
        else:
            s.size = sizeof(s)
            err = page_pool_get_dma_stats(self.pool, &s)
            if err:
                raise _error(err)
        return DmaStats(
            s.maps,
            s.map_errors,
            s.unmaps,
            s.unmaps_destroy,
            s.unmaps_skipped,
            s.syncs,
            s.sync_bytes,
            s.syncs_skipped,
        )

    def holders(self):
        cdef Record record
        cdef list found = []
        cdef dict texts = {}  # of a trace, since many pages come from the same place

        self.check_process()
        if self.records is None:
            raise errors.NotSupported(f"pool {self.id} is not checked: make it with checked=True")
        now = time.monotonic()
        # A copy: what is called below may be interrupted by an allocation.
        for address, it in list(self.records.items()):
            record = <Record>it
            if record.put is None:
                text = texts.get(record.allocated)
                if text is None:
                    text = texts[record.allocated] = _format_trace(record.allocated)
                found.append(
                    Holder(
                        address,
                        record.length,
                        now - record.at,
                        _thread_of(record.allocated),
                        _site_of(record.allocated),
                        text,
                    )
                )
        found.sort(key=lambda holder: (-holder.age, holder.address))
        return found

    @property
    def checked(self):
        return self.checked_

    @property
    def design(self):
        return self.design_

    def flush(self):
        self.check_process()
        if self.pool is not NULL:
            page_pool_flush(self.pool)

    @property
    def held_back(self):
        self.check_process()
        return 0 if self.pool is NULL else page_pool_held_back(self.pool)

    @property
    def inflight(self):
        self.check_process()
        return 0 if self.pool is NULL else page_pool_inflight(self.pool)

    @property
    def id(self):
        self.check_process()
        return self.id_ if self.pool is NULL else page_pool_id(self.pool)

    @property
    def order(self):
        self.check_process()
        return self.order_ if self.pool is NULL else page_pool_order(self.pool)

    @property
    def pool_size(self):
        self.check_process()
        return self.size_ if self.pool is NULL else page_pool_size(self.pool)

    @property
    def node(self):
        self.check_process()
        nid = self.nid_ if self.pool is NULL else page_pool_nid(self.pool)
        return None if nid == PP_NUMA_NO_NODE else nid

    @property
    def page_size(self):
        return self.page_size_

    @property
    def napi(self):
        return self.napi_

    @property
    def provider(self):
        return self.provider_

    @property
    def device(self):
        return self.device_

    @property
    def dma_dir(self):
        return self.dma_dir_

    @property
    def offset(self):
        return self.offset_

    @property
    def max_len(self):
        return self.max_len_

    @property
    def closed(self):
        return self.closed_

    def __repr__(self):
        if self.born != generation:
            return "<pagepool.PagePool of the parent process>"
        return (
            f"<pagepool.PagePool {self.id}: pages of {self.page_size_} bytes, "
            f"ring of {self.pool_size}, {self.inflight} in flight"
            f"{', closed' if self.closed_ else ''}>"
        )
