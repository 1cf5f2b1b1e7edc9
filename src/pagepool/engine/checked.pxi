# SPDX-License-Identifier: BSD-2-Clause
# Checked mode: part of _core.pyx. Documented in _core.pyi.
#
# The C core checks what happens to the memory and who calls it; here it is remembered where in the Python
# code a page was allocated and put. Only pools that were asked to do it.

cdef extern from "Python.h":
    PyObject *PyFrame_GetBack(PyObject *frame)
    PyObject *PyThreadState_GetDict()
    unsigned long PyThread_get_thread_ident()
    void Py_INCREF(PyObject *)
    void Py_DECREF(PyObject *)

cdef enum:
    DEPTH = 10  # calls of a traceback that are kept


cdef str _thread_name():
    """Of the calling thread. Runs Python code."""
    cdef PyObject *own = PyThreadState_GetDict()
    cdef object thread = None if own is NULL else (<dict>own).get("pagepool.thread")

    if thread is None:
        thread = threading.current_thread()
        if own is not NULL:
            (<dict>own)["pagepool.thread"] = thread
    return str(thread.name)


cdef tuple _trace():
    """Who is calling: thread, and code object, instruction, code object, instruction... from the
    innermost."""
    cdef str name = _thread_name()
    cdef PyObject *frame = PyEval_GetFrame()
    cdef PyObject *back
    cdef PyObject *code
    cdef list calls = [name]
    cdef int i

    if frame is NULL:
        return (name,)
    Py_INCREF(frame)
    for i in range(DEPTH):
        code = PyFrame_GetCode(frame)
        calls.append(<object>code)
        Py_DECREF(code)
        calls.append(PyFrame_GetLasti(frame))
        back = PyFrame_GetBack(frame)
        Py_DECREF(frame)
        frame = back
        if frame is NULL:
            break
    else:
        Py_DECREF(frame)
    return tuple(calls)


cdef str _thread_of(tuple trace):
    return trace[0] if trace else "?"


cdef str _site_of(tuple trace):
    return _where(<PyObject *>trace[1], trace[2]) if len(trace) > 1 else "C code"


cdef str _format_trace(tuple trace):
    """As Python shows a traceback, the innermost call last."""
    import traceback

    cdef list calls = []
    cdef Py_ssize_t i

    for i in range(1, len(trace), 2):
        code = trace[i]
        line = PyCode_Addr2Line(<PyObject *>code, trace[i + 1])
        calls.append((code.co_filename, line, code.co_name, None))
    return "".join(traceback.StackSummary.from_list(reversed(calls)).format())


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Record:
    """Where a page, a piece or the pages of a batch were allocated, and put."""
    cdef tuple allocated
    cdef tuple put            # None: not put
    cdef double at            # time.monotonic()
    cdef Py_ssize_t length

    cdef str describe(self):
        cdef str text = f"allocated at {_site_of(self.allocated)} by thread {_thread_of(self.allocated)!r}"

        if self.put is not None:
            text += f", put at {_site_of(self.put)} by thread {_thread_of(self.put)!r}"
        return text

    cdef object add_to(self, object error):
        """The exception, with both tracebacks."""
        error.add_note(f"Allocated by thread {_thread_of(self.allocated)!r}:\n"
                       + _format_trace(self.allocated).rstrip())
        if self.put is not None:
            error.add_note(f"Put by thread {_thread_of(self.put)!r}:\n"
                           + _format_trace(self.put).rstrip())
        return error


cdef Record _record(Py_ssize_t length):
    cdef Record record = Record.__new__(Record)

    record.allocated = _trace()
    record.put = None
    record.at = time.monotonic()
    record.length = length
    return record


cdef Record _copy(Record other):
    """Of one page of a batch."""
    cdef Record record = Record.__new__(Record)

    record.allocated = other.allocated
    record.put = other.put
    record.at = other.at
    record.length = other.length
    return record


cdef tuple _put_trace(Record record):
    """For _was_put(). Runs Python code (the collector): before it is looked at what is to be put."""
    return None if record is None else _trace()


cdef tuple _last_trace(Record record) noexcept:
    """The same for a destructor."""
    try:
        return _put_trace(record)
    except BaseException:
        # Without memory the page is put all the same; it only is not known where.
        return None


cdef void _was_put(Record record, tuple trace) noexcept:
    """Runs no Python code."""
    if record is not None:
        record.put = () if trace is None else trace


# Checked pools that live, by number: the C core's reports have only that.
_checked = weakref.WeakValueDictionary()
# What was refused, by thread: told by who called.
_refused = {}


cdef void _report(void *ctx, const pp_report *r) noexcept with gil:
    cdef PagePool pool
    cdef Record record

    try:
        text = r.text.decode("utf-8", "replace")
        pool = _checked.get(r.pool)
        if pool is not None and r.address is not NULL:
            record = pool.records.get(<size_t>r.address)
            if record is not None:
                text += f"; in Python {record.describe()}"
        if r.kind in (PP_REPORT_WRONG_CONTEXT, PP_REPORT_DEAD_POOL) and r.address is NULL:
            _refused[PyThread_get_thread_ident()] = text
        _logger.error("%s", text)
    except BaseException as e:
        _show(e, None)


page_pool_set_report(&_report, NULL)
