# SPDX-License-Identifier: BSD-2-Clause
"""Which thread is calling, and one call after the other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import ParamSpec

_local = threading.local()
P = ParamSpec("P")


class Thread:
    """A token of a thread, compared with ``is``; it goes when the thread ends."""


def this_thread() -> Thread:
    """The calling thread's.

    Rule: a thread that died inside a napi leaves it taken, and nobody is mistaken for it. So this
    is not ``threading.get_ident()``, whose numbers are used again.
    """
    if not hasattr(_local, "token"):
        _local.token = Thread()
    token: Thread = _local.token
    return token


class _Shown:
    """Goes at once, and its destructor raises: so Python shows it (``sys.unraisablehook``)."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __del__(self) -> None:
        try:
            raise self.error
        finally:
            del self.error  # its traceback has this call, and with it all that the callers have


def show(call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call what has nobody to raise to: an error is shown."""
    try:
        call(*args, **kwargs)
    except BaseException as e:
        _Shown(e)


class Step:
    """``with STEP:`` every call of the model is one step; no other thread sees the middle of it.

    What a step means is the specification; how the engine lets steps overlap is its own business.
    The lock of the whole model, since a bulk put touches several pools.
    """

    def __init__(self) -> None:
        """Nobody is in a step."""
        self._lock = threading.RLock()
        self._depth = 0
        self._later: deque[Callable[[], None]] = deque()

    def __enter__(self) -> None:
        """Wait for the step of another thread; steps of one thread nest."""
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *exc: object) -> None:
        """The outermost ends: now what destructors asked for meanwhile."""
        try:
            while self._depth == 1 and self._later:
                self._later.popleft()()
        finally:
            self._depth -= 1
            self._lock.release()

    def later(self, call: Callable[[], None]) -> None:
        """Run it as a step of its own; for destructors, which may come in the middle of one."""
        self._later.append(call)
        with self:
            pass


STEP = Step()
