# SPDX-License-Identifier: BSD-2-Clause
"""Cache lines as the MESI protocol has them: who has a copy, and what an access has to move."""

from __future__ import annotations

from enum import Enum


class Access(Enum):
    """What a CPU does to a line."""

    READ = "read"
    WRITE = "write"
    RMW = "read-modify-write"


class Line:
    """One cache line.

    Every CPU has room for every line it ever used: what is counted is what CPUs take from each
    other, not what does not fit.
    """

    __slots__ = ("busy", "dirty", "lost", "sharers", "spinners")

    def __init__(self, sharers: set[int] | None = None, dirty: bool = False) -> None:
        """sharers: CPUs that have a copy; dirty: that it is newer than memory."""
        self.sharers: set[int] = sharers or set()
        self.dirty = dirty
        self.lost: set[int] = set()  # CPUs whose copy was taken away
        self.busy = 0.0  # until then it is on its way, in the machine's nanoseconds
        self.spinners: list[object] = []  # who waits for a write to it

    def moves(self, cpu: int, how: Access) -> bool:
        """Has the line, or the right to write it, to come from other CPUs?"""
        if how is Access.READ:
            # A clean line that this CPU never had comes from memory: it did so once, long ago.
            return cpu not in self.sharers and (self.dirty or cpu in self.lost)
        return bool(self.sharers - {cpu}) or cpu in self.lost

    def access(self, cpu: int, how: Access) -> None:
        """It is done."""
        if how is Access.READ:
            if cpu not in self.sharers:
                self.sharers.add(cpu)
                self.dirty = False  # it was Modified elsewhere, and is Shared now
        else:
            self.lost |= self.sharers - {cpu}  # Invalid from now on
            self.sharers = {cpu}
            self.dirty = True
        self.lost.discard(cpu)
