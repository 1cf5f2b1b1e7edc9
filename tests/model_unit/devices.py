# SPDX-License-Identifier: BSD-2-Clause
"""Devices for tests: they write down what they are asked."""

from __future__ import annotations

from typing import Literal

from pagepool import model as pagepool

Direction = Literal["bidirectional", "to_device", "from_device"]


class Plain(pagepool.Device):
    """Needs no sync; refuses to map where it is told to."""

    def __init__(self, refuse: set[int] | None = None) -> None:
        super().__init__("plain")
        self.refuse = refuse or set()  # calls of map, from 0
        self.calls: list[tuple[object, ...]] = []
        self.memory: dict[int, int] = {}  # dma -> address
        self.asked = 0

    def map(self, address: int, length: int, direction: Direction) -> int:
        self.asked += 1
        if self.asked - 1 in self.refuse:
            raise OSError(f"map {self.asked - 1} refused")
        dma = self.asked << 16
        self.memory[dma] = address
        self.calls.append(("map", dma, length, direction))
        return dma

    def unmap(self, dma: int, length: int, direction: Direction) -> None:
        self.calls.append(("unmap", dma, length, direction))
        del self.memory[dma]

    def take_calls(self, *names: str) -> list[tuple[object, ...]]:
        """Those so far (of these names)."""
        calls, self.calls = self.calls, []
        return [call for call in calls if not names or call[0] in names]


class Synced(Plain):
    """Has to be told."""

    def sync_for_device(self, dma: int, offset: int, length: int, direction: Direction) -> None:
        self.calls.append(("for_device", dma, offset, length, direction))

    def sync_for_cpu(self, dma: int, offset: int, length: int, direction: Direction) -> None:
        self.calls.append(("for_cpu", dma, offset, length, direction))
