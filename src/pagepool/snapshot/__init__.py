# SPDX-License-Identifier: BSD-2-Clause
"""Statistics of any pool, whoever read them: the kernel's names, the kernel's meaning."""

from pagepool.snapshot.dma import DmaStats
from pagepool.snapshot.stats import PoolStats

__all__ = ["DmaStats", "PoolStats"]
