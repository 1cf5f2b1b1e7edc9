# SPDX-License-Identifier: BSD-2-Clause
"""Checked mode: who has which page since when, and what is written to a page after it was put."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from types import CodeType
from typing import Literal, TypeVar

from pagepool import errors
from pagepool.model.frame import Frame

Checked = bool | Literal["full"]
E = TypeVar("E", bound=BaseException)

POISON = 0x5A
QUICK = 64  # bytes that are poisoned, at the pool's offset
DEPTH = 10  # calls of a traceback that are kept

_logger = logging.getLogger("pagepool")


def how_checked(asked: object) -> Checked:
    """As asked, or more if the environment says so. Raises InvalidParameter."""
    if asked is not True and asked is not False and asked != "full":
        raise errors.InvalidParameter(f"checked is {asked!r}: must be True, False or 'full'")
    everywhere = os.environ.get("PAGEPOOL_CHECKED", "")
    if "full" in (asked, everywhere):
        return "full"
    return bool(asked) or everywhere not in ("", "0")


Trace = list[tuple[CodeType, int]]


def _trace() -> Trace:
    """Who is calling, from the innermost; not the model itself."""
    frame = sys._getframe()
    calls: Trace = []
    while frame is not None and len(calls) < DEPTH:
        name = frame.f_globals.get("__name__", "")
        if calls or not name.startswith("pagepool.model."):
            calls.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    return calls


def _site(trace: Trace) -> str:
    return f"{trace[0][0].co_filename}:{trace[0][1]}" if trace else "C code"


def _format(trace: Trace) -> str:
    calls = [(code.co_filename, line, code.co_name, None) for code, line in reversed(trace)]
    return "".join(traceback.StackSummary.from_list(calls).format())


class Record:
    """Where a page, a piece or the pages of a batch were allocated, and put."""

    def __init__(self, length: int) -> None:
        """Allocated here and now; length in bytes."""
        self.length = length
        self.at = time.monotonic()
        self.allocated = _trace()
        # Rule: a thread's name of that moment; it may end, or get another.
        self.thread = threading.current_thread().name
        self.put: Trace | None = None  # None: not put
        self.put_thread = ""

    def copy(self) -> Record:
        """Of one page of a batch."""
        record = Record.__new__(Record)
        record.__dict__.update(self.__dict__)
        return record

    def was_put(self) -> None:
        """Put here and now."""
        self.put = _trace()
        self.put_thread = threading.current_thread().name

    @property
    def site(self) -> str:
        """Where it was allocated."""
        return _site(self.allocated)

    @property
    def put_by(self) -> str:
        """Where and by whom; empty: it was not put."""
        if self.put is None:
            return ""
        return f"at {_site(self.put)} by thread {self.put_thread!r}"

    @property
    def traceback(self) -> str:
        """Of the allocation."""
        return _format(self.allocated)

    def describe(self) -> str:
        """Both, in one line."""
        text = f"allocated at {self.site} by thread {self.thread!r}"
        return text + f", put {self.put_by}" if self.put is not None else text

    def add_to(self, error: E) -> E:
        """The exception, with both tracebacks."""
        error.add_note(f"Allocated by thread {self.thread!r}:\n{self.traceback.rstrip()}")
        if self.put is not None:
            error.add_note(f"Put by thread {self.put_thread!r}:\n{_format(self.put).rstrip()}")
        return error


class Poison:
    """What a page of the pool has in it while nobody has the page."""

    def __init__(self, full: bool, offset: int, page_size: int) -> None:
        """offset: of the device's part. full: all of the page."""
        start = min(offset & ~7, page_size - QUICK)
        self._part = slice(0, page_size) if full else slice(start, start + QUICK)

    def spread(self, frame: Frame) -> None:
        """Rule: the page was put and stays in the pool: what its last user left is gone."""
        length = self._part.stop - self._part.start
        memoryview(frame.bytes)[self._part] = bytes([POISON]) * length
        frame.poisoned = True

    def written(self, frame: Frame) -> int | None:
        """Rule: the page is handed out again: the first byte that somebody wrote meanwhile."""
        if not frame.poisoned:
            return None
        frame.poisoned = False
        found = bytes(memoryview(frame.bytes)[self._part])
        clean = len(found) - len(found.lstrip(bytes([POISON])))
        return None if clean == len(found) else self._part.start + clean


def report_written(pool_id: int, frame: Frame, byte: int, record: Record | None) -> None:
    """No call can raise it: who wrote is elsewhere, or a device."""
    _logger.error(
        "%s",
        f"page_pool: pool {pool_id}: use after put (byte {byte} was written) of the page at "
        f"{frame.address:#x}" + (f"; in Python {record.describe()}" if record else ""),
    )
