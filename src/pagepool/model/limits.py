# SPDX-License-Identifier: BSD-2-Clause
"""The fixed numbers, and what parameters may be."""

from __future__ import annotations

import os
from typing import SupportsIndex

from pagepool import errors

PAGE_SHIFT = 12
PAGE_SIZE = 1 << PAGE_SHIFT  # bytes
MAX_ORDER = 10
CHUNK_PAGES = 1 << MAX_ORDER  # an arena grows by so many
CACHE_SIZE = 128
CACHE_REFILL = 64  # so a poll's worth of direct returns, 64, fits on top
BULK = 64  # pages that enter a ring at once
DEFAULT_POOL_SIZE = 1024
MAX_POOL_SIZE = 16384  # a larger ring is clamped, as in Linux 6.17
MAX_NODES = 1024
CACHE_LINE = 64  # bytes; pieces start on one
FRAG_BIAS = 1 << 24  # users of a page that is being cut up: more than it can have pieces

#: Names of designs; see ``designs.py``.
DESIGNS = ("ring", "list", "ours", "list-ring", "list-batch", "list-cache", "list-ring-cache")


def check_design(design: str | None) -> str:
    """The name of a design. Raises InvalidParameter, TypeError."""
    if design is None:
        design = os.environ.get("PAGEPOOL_DESIGN", "") or "ring"
    if not isinstance(design, str):
        raise TypeError(f"design must be a str, not {type(design).__name__}")
    if design not in DESIGNS:
        raise errors.InvalidParameter(
            f"design '{design:.40}': must be ring, list, ours, or, for steps of list, list-ring, "
            "list-batch, list-cache or list-ring-cache"
        )
    return design


def unsigned(value: SupportsIndex, what: str, most: int) -> int:
    """An integer from 0 to most. Raises InvalidParameter, TypeError."""
    try:
        number = value.__index__()
    except AttributeError:
        raise TypeError(f"{what} must be an integer, not {type(value).__name__}") from None
    if number < 0 or number > most:
        raise errors.InvalidParameter(f"{what} is {number}: must be from 0 to {most}")
    return number


def node_number(node: SupportsIndex | None) -> int | None:
    """A NUMA node that can be written; see ``check_node``. Raises InvalidParameter, TypeError."""
    return None if node is None else unsigned(node, "node", 0x7FFF)


def check_node(node: int | None) -> int | None:
    """A NUMA node, or None for none asked for. Raises InvalidParameter."""
    if node is not None and node >= MAX_NODES:
        raise errors.InvalidParameter(
            f"NUMA node {node}: must be from 0 to {MAX_NODES - 1}, or -1 for none"
        )
    return node


def check_seconds(seconds: float, what: str) -> None:
    """A time that counts in milliseconds. Raises InvalidParameter, TypeError."""
    if not 1 <= float(seconds) * 1000 <= 0x7FFFFFFF:
        raise errors.InvalidParameter(
            f"{what} is {seconds} seconds: must be from 0.001 to {0x7FFFFFFF // 1000}"
        )
