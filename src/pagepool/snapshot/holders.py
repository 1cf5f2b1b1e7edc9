# SPDX-License-Identifier: BSD-2-Clause
"""Who has pages of a checked pool."""

from __future__ import annotations

from typing import NamedTuple


class Holder(NamedTuple):
    """A page, or a piece of one, that its user has."""

    address: int
    length: int
    """Bytes."""
    age: float
    """Seconds since it was allocated."""
    thread: str
    """Name of the thread that allocated it."""
    allocated_at: str
    """``file:line``."""
    traceback: str
    """The calls that led there, as Python shows them, the innermost last; ten at most."""
