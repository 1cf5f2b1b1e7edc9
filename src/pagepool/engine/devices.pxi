# SPDX-License-Identifier: BSD-2-Clause
# Devices: part of _core.pyx. Documented in _core.pyi.
#
# A device's callbacks, and an IOMMU's, are Python code in the middle of a call of the C core: a page is
# on its way in or out, and the pool is in order, so that this code may use it. What it must not do is
# wait for itself: close a pool, which waits for the pages that are being unmapped.

cdef extern from *:
    """
    /* Python code of a device's or an IOMMU's that is running in this thread. */
    static _Thread_local int pp_in_callback;
    static inline void pp_enter_callback(void) { pp_in_callback++; }
    static inline void pp_leave_callback(void) { pp_in_callback--; }
    """
    int _in_callback "pp_in_callback"
    void _enter_callback "pp_enter_callback"() noexcept
    void _leave_callback "pp_leave_callback"() noexcept
    void PyErr_SetObject(object, object)
    void PyErr_WriteUnraisable(object)


cdef void _show(object error, object where) noexcept:
    """What was raised where nobody can be told."""
    PyErr_SetObject(type(error), error)
    PyErr_WriteUnraisable(where)


cdef void _wait() noexcept with gil:
    # Who is waited for may need the lock of the interpreter to get on.
    with nogil:
        sched_yield()


page_pool_set_wait(&_wait)

_DIRECTIONS = ("bidirectional", "to_device", "from_device")  # by the kernel's numbers


cdef int _direction(object direction) except -1:
    if direction not in _DIRECTIONS:
        raise errors.InvalidParameter(
            f"direction is {direction!r}: must be one of {', '.join(_DIRECTIONS)}"
        )
    return _DIRECTIONS.index(direction)


cdef int _device_map(
    void *ctx, void *memory, size_t length, pp_dma_direction dir, uint64_t *dma
) noexcept with gil:
    cdef Device device = <Device>ctx

    _enter_callback()
    try:
        address = device.map(<size_t>memory, length, _DIRECTIONS[<int>dir])
        dma[0] = _unsigned(address, "an address that map() gives", 0xffffffffffffffff)
        return 0
    except BaseException as e:
        # Who allocates is told.
        device.refusal = e
        return -EIO
    finally:
        _leave_callback()


cdef void _device_unmap(void *ctx, uint64_t dma, size_t length, pp_dma_direction dir) noexcept with gil:
    _enter_callback()
    try:
        (<Device>ctx).unmap(dma, length, _DIRECTIONS[<int>dir])
    except BaseException as e:
        _show(e, <Device>ctx)
    finally:
        _leave_callback()


cdef void _device_sync_for_device(
    void *ctx, uint64_t dma, size_t offset, size_t length, pp_dma_direction dir
) noexcept with gil:
    _enter_callback()
    try:
        (<Device>ctx).sync_for_device(dma, offset, length, _DIRECTIONS[<int>dir])
    except BaseException as e:
        _show(e, <Device>ctx)
    finally:
        _leave_callback()


cdef void _device_sync_for_cpu(
    void *ctx, uint64_t dma, size_t offset, size_t length, pp_dma_direction dir
) noexcept with gil:
    _enter_callback()
    try:
        (<Device>ctx).sync_for_cpu(dma, offset, length, _DIRECTIONS[<int>dir])
    except BaseException as e:
        _show(e, <Device>ctx)
    finally:
        _leave_callback()


@cython.no_gc_clear
cdef class Device:
    cdef pp_device *device    # NULL: not made; pools keep the object, and so what it points to
    cdef unsigned born
    cdef object refusal       # what map() raised last
    cdef object __weakref__

    def __init__(self, name="device"):
        cdef pp_device_params params
        cdef bytes encoded

        if not isinstance(name, str):
            raise TypeError(f"a device's name must be a str, not {type(name).__name__}")
        if isinstance(self, (NoDevice, IommuDevice)):
            raise TypeError(f"a {type(self).__name__} is not made by hand")
        encoded = _device_name(name)
        cls = type(self)
        if cls.map is Device.map or cls.unmap is Device.unmap:
            raise errors.InvalidParameter(f"device {name}: a device needs map and unmap")
        params.size = sizeof(params)
        params.name = encoded
        params.ctx = <void *>self
        params.map = &_device_map
        params.unmap = &_device_unmap
        params.sync_for_device = NULL
        params.sync_for_cpu = NULL
        if cls.sync_for_device is not Device.sync_for_device:
            params.sync_for_device = &_device_sync_for_device
        if cls.sync_for_cpu is not Device.sync_for_cpu:
            params.sync_for_cpu = &_device_sync_for_cpu
        params.write = NULL
        params.read = NULL
        params.release = NULL
        # After the arguments, whose own code may have made it meanwhile.
        if self.device is not NULL:
            raise TypeError("a device is made once")
        self.born = generation
        err = pp_device_create(&params, &self.device)
        if err:
            raise _error(err)

    def __dealloc__(self):
        if self.device is not NULL and self.born == generation:
            pp_device_put(self.device)

    cdef int check(self) except -1:
        if self.device is NULL:
            raise errors.InvalidParameter(f"this {type(self).__name__} was never made")
        # NO_DEVICE is nobody's.
        if self.born != generation and not isinstance(self, NoDevice):
            _forked("device")
        return 0

    cdef object refused(self):
        """The mapping error that the C core was the last to have in this thread."""
        text = page_pool_last_error().decode("utf-8", "replace")
        if isinstance(self, IommuDevice) and not (<IommuDevice>self).bound_:
            return errors.DeviceGone(text)
        return errors.NoMemory(text) if "no memory" in text else errors.NoDescriptor(text)

    @property
    def name(self):
        if self.device is NULL:
            return "device"
        return pp_device_name(self.device).decode()

    @property
    def identity(self):
        return isinstance(self, NoDevice)

    def map(self, address, length, direction):
        raise NotImplementedError

    def unmap(self, dma, length, direction):
        raise NotImplementedError

    def sync_for_device(self, dma, offset, length, direction):
        pass

    def sync_for_cpu(self, dma, offset, length, direction):
        pass

    def write(self, dma, data):
        raise errors.NotSupported(f"device {self.name} was made without write")

    def read(self, dma, length):
        raise errors.NotSupported(f"device {self.name} was made without read")

    def __repr__(self):
        return f"<pagepool.{type(self).__name__} {self.name}>"


cdef bytes _device_name(object name):
    """What the C core keeps of a str: 31 bytes, and no half of a character."""
    return str.encode(name, "utf-8", "replace").replace(b"\0", b"?")[:31].decode("utf-8", "ignore").encode()


@cython.final
cdef class NoDevice(Device):
    def __init__(self):
        raise TypeError("there is one: NO_DEVICE")

    def map(self, address, length, direction):
        _direction(direction)
        return address

    def unmap(self, dma, length, direction):
        pass


cdef Device _no_device():
    cdef NoDevice device = NoDevice.__new__(NoDevice)

    device.device = pp_device_none()
    return device


NO_DEVICE = _no_device()


# ---- IOMMU -------------------------------------------------------------------------------------------

_OPS = ("write", "read", "sync", "unmap", "map")
_WHY = ("device gone", "unmapped", "never mapped", "length", "direction")


cdef void _iommu_fault(void *ctx, const pp_iommu_fault *c) noexcept with gil:
    cdef Iommu iommu = <Iommu>ctx

    _enter_callback()
    try:
        fault = Fault(
            _OPS[<int>c.op],
            _WHY[<int>c.why],
            c.device.decode("utf-8", "replace"),
            c.dma,
            c.length,
            <size_t>c.memory if c.memory is not NULL else None,
            c.text.decode("utf-8", "replace"),
        )
        iommu.faults_.append(fault)
        if iommu.on_fault is not None:
            iommu.on_fault(fault)
        else:
            _logger.warning("%s", fault.text)
    except BaseException as e:
        _show(e, iommu)
    finally:
        _leave_callback()


@cython.final
@cython.no_gc_clear
cdef class Iommu:
    cdef pp_iommu *iommu      # devices keep the object
    cdef unsigned born
    cdef object faults_       # a deque
    cdef object on_fault
    cdef object __weakref__

    def __cinit__(self, *, bits=48, on_fault=None):
        cdef pp_iommu_params params

        if on_fault is not None and not callable(on_fault):
            raise TypeError(f"on_fault must be callable, not {type(on_fault).__name__}")
        self.born = generation
        self.on_fault = on_fault
        self.faults_ = collections.deque(maxlen=1000)
        params.size = sizeof(params)
        params.bits = _unsigned(bits, "bits", 0xffffffff)
        params.fault = &_iommu_fault
        params.ctx = <void *>self
        err = pp_iommu_create(&params, &self.iommu)
        if err:
            raise _error(err)

    def __dealloc__(self):
        if self.iommu is not NULL and self.born == generation:
            pp_iommu_put(self.iommu)

    cdef int check(self) except -1:
        if self.born != generation:
            _forked("IOMMU")
        return 0

    def attach(self, name):
        cdef IommuDevice device = IommuDevice.__new__(IommuDevice)
        cdef bytes encoded

        self.check()
        if not isinstance(name, str):
            raise TypeError(f"a device's name must be a str, not {type(name).__name__}")
        encoded = _device_name(name)
        device.iommu = self
        err = pp_iommu_attach(self.iommu, encoded, &device.device)
        if err:
            raise _error(err)
        device.born = generation
        device.bound_ = True
        return device

    @property
    def faults(self):
        return list(self.faults_)

    @property
    def fault_count(self):
        self.check()
        return pp_iommu_faults(self.iommu)

    def __repr__(self):
        if self.born != generation:
            return "<pagepool.Iommu of the parent process>"
        return f"<pagepool.Iommu, {self.fault_count} faults>"


@cython.final
@cython.no_gc_clear
cdef class IommuDevice(Device):
    cdef Iommu iommu
    cdef bint bound_

    def __init__(self):
        raise TypeError("devices come from an IOMMU: iommu.attach(name)")

    def unbind(self):
        self.check()
        left = pp_device_unbind(self.device)
        if left < 0:
            raise _error(left)
        self.bound_ = False
        return left

    @property
    def bound(self):
        return self.bound_

    @property
    def mappings(self):
        cdef pp_iommu_mapping some[64]
        cdef uint64_t dma = 0
        cdef size_t i, n
        cdef list all_ = []

        self.check()
        while True:
            n = pp_iommu_mappings(self.device, dma, 64, some)
            for i in range(n):
                all_.append(
                    Mapping(
                        some[i].dma,
                        <size_t>some[i].memory,
                        some[i].length,
                        _DIRECTIONS[<int>some[i].dir],
                    )
                )
            if n < 64:
                return all_
            dma = some[63].dma + 1

    def map(self, address, length, direction):
        # Any address could be written to through it.
        raise errors.NotSupported(f"device {self.name}: memory is mapped by pools only")

    def unmap(self, dma, length, direction):
        cdef int dir = _direction(direction)
        cdef uint64_t at = _unsigned(dma, "dma", 0xffffffffffffffff)
        cdef size_t size = _unsigned(length, "length", 0xffffffffffffffff)

        self.check()
        pp_device_unmap(self.device, at, size, <pp_dma_direction>dir)

    def sync_for_device(self, dma, offset, length, direction):
        cdef int dir = _direction(direction)
        cdef uint64_t at = _unsigned(dma, "dma", 0xffffffffffffffff)
        cdef size_t start = _unsigned(offset, "offset", 0xffffffffffffffff)
        cdef size_t size = _unsigned(length, "length", 0xffffffffffffffff)

        self.check()
        pp_device_sync_for_device(self.device, at, start, size, <pp_dma_direction>dir)

    def sync_for_cpu(self, dma, offset, length, direction):
        cdef int dir = _direction(direction)
        cdef uint64_t at = _unsigned(dma, "dma", 0xffffffffffffffff)
        cdef size_t start = _unsigned(offset, "offset", 0xffffffffffffffff)
        cdef size_t size = _unsigned(length, "length", 0xffffffffffffffff)

        self.check()
        pp_device_sync_for_cpu(self.device, at, start, size, <pp_dma_direction>dir)

    def write(self, dma, data):
        cdef uint64_t at = _unsigned(dma, "dma", 0xffffffffffffffff)
        cdef Py_buffer view

        self.check()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        # Below, a fault runs Python code; the buffer is held meanwhile.
        err = pp_device_write(self.device, at, view.buf, <size_t>view.len)
        reason = _error(err) if err else None
        PyBuffer_Release(&view)
        if reason is not None:
            raise reason

    def read(self, dma, length):
        cdef uint64_t at = _unsigned(dma, "dma", 0xffffffffffffffff)
        cdef size_t size = _unsigned(length, "length", 1 << 32)
        cdef bytes data = PyBytes_FromStringAndSize(NULL, size)

        self.check()
        err = pp_device_read(self.device, at, PyBytes_AS_STRING(data), size)
        if err:
            raise _error(err)
        return data

    def __repr__(self):
        return f"<pagepool.IommuDevice {self.name}{'' if self.bound_ else ', unbound'}>"
