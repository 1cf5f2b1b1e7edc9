# SPDX-License-Identifier: BSD-2-Clause
"""Statistics of any pool, whoever read them: the kernel's names, the kernel's meaning."""

from pagepool.snapshot.dma import DmaStats, Fault, Mapping
from pagepool.snapshot.holders import Holder
from pagepool.snapshot.stats import PoolStats

__all__ = ["DmaStats", "Fault", "Holder", "Mapping", "PoolStats"]
