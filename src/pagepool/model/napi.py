# SPDX-License-Identifier: BSD-2-Clause
"""The consumer's context: which thread is in it."""

from __future__ import annotations

import threading
from typing import Self, final

from pagepool import errors
from pagepool.model.context import STEP, this_thread


@final
class Napi:
    """The context of a consumer: a thread that has entered it allocates and recycles directly.

    Stands for a NAPI poll in softirq. Enter it with ``with napi:``; entries of one thread nest.
    """

    def __init__(self) -> None:
        """Make one; nobody is in it."""
        self._owner: object = None  # token of the thread inside; None: nobody
        self._name = ""  # of that thread, for messages
        self._depth = 0

    def enter(self) -> None:
        """The calling thread becomes the consumer. Raises WrongContext if another thread is."""
        with STEP:
            # Rule: one thread at a time.
            if self._owner not in (None, this_thread()):
                raise errors.WrongContext(f"thread {self._name!r} is in this napi")
            self._owner = this_thread()
            self._depth += 1
            if self._depth == 1:
                self._name = threading.current_thread().name

    def exit(self) -> None:
        """Undo one ``enter``. Raises WrongContext if the calling thread is not inside."""
        with STEP:
            # Rule: only who is inside can leave.
            if not self.entered:
                raise errors.WrongContext(
                    "the calling thread is not in this napi"
                    + (f", thread {self._name!r} is" if self._owner else "")
                )
            self._depth -= 1
            # Rule: entries nest, the last exit leaves.
            if self._depth == 0:
                self._owner = None

    def __enter__(self) -> Self:
        """``enter``."""
        self.enter()
        return self

    def __exit__(self, *exc: object) -> None:
        """``exit``."""
        self.exit()

    @property
    def entered(self) -> bool:
        """Is the calling thread inside?"""
        return self._owner is this_thread()

    @property
    def taken(self) -> bool:
        """Is any thread inside?"""
        return self._owner is not None

    def __repr__(self) -> str:
        """Who is inside."""
        inside = f"thread {self._name!r} inside" if self._owner else "nobody inside"
        return f"<pagepool.Napi, {inside}>"
