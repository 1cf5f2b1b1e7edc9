# SPDX-License-Identifier: BSD-2-Clause
"""What can go wrong with a pool, and the one table from the C core's codes to it."""

from __future__ import annotations

import errno


class PoolError(Exception):
    """Base of all errors of a pool."""


class InvalidParameter(PoolError, ValueError):
    """A parameter is outside of what a pool, arena or napi can be."""


class NoMemory(PoolError, MemoryError):
    """The system has no memory for the pool's own needs; pages are another matter."""


class OutOfPages(PoolError, MemoryError):
    """No page to be had: the provider is at its limit, or the system out of memory."""


class WrongContext(PoolError, RuntimeError):
    """The calling thread is not where it would have to be: in, or not in, the pool's napi."""


class NotSupported(PoolError, RuntimeError):
    """The pool was made without what is asked for."""


class PoolClosed(PoolError, ValueError):
    """The pool was closed: nothing is allocated from it any more."""


class PageGone(PoolError, ValueError):
    """The page was put already: it is not the caller's any more."""


class ForeignPage(PoolError, ValueError):
    """The page belongs to another pool."""


class Forked(PoolError, RuntimeError):
    """The object belongs to the parent process; a child of fork has to make its own."""


class DeviceGone(PoolError, RuntimeError):
    """The device has no driver any more, or the page no mapping: nothing goes through it."""


class DeviceFault(PoolError, RuntimeError):
    """The device may not: there is no such mapping, or not all of it, or not in that direction."""


class NoDescriptor(PoolError, RuntimeError):
    """No descriptor of the NIC is free, or no address of the device."""


#: errno of the C core -> exception. Every code that the core returns stands here (tested).
EXCEPTIONS: dict[int, type[PoolError]] = {
    errno.EINVAL: InvalidParameter,
    errno.ENOMEM: NoMemory,
    errno.EAGAIN: NoMemory,
    errno.EBUSY: WrongContext,
    errno.EPERM: WrongContext,
    errno.EOPNOTSUPP: NotSupported,
    errno.ENODEV: DeviceGone,
    errno.EFAULT: DeviceFault,
    errno.ENOSPC: NoDescriptor,
    errno.ENOBUFS: NoDescriptor,
    errno.EMSGSIZE: InvalidParameter,
}


def from_code(code: int, message: str) -> PoolError:
    """The exception for a negative errno of the C core, with the core's own words."""
    return EXCEPTIONS.get(-code, PoolError)(message)
