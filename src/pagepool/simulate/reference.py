# SPDX-License-Identifier: BSD-2-Clause
"""How well the simulation has the shape of what was measured with more than two CPUs.

The figures are those of the kernel's ring design, as posted in January 2020: "Created
benchmarks modules for page_pool", bench_page_pool_cross_cpu, two runs. Another machine, another
lock (the kernel's waiters queue), so only the shape can be compared: one factor for all is fitted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from pagepool.simulate.run import Prediction

#: Returning CPUs -> nanoseconds a page, the least and the most.
MEASURED = {
    1: (30.709, 30.709),
    2: (128.502, 274.861),
    3: (553.507, 580.530),
    4: (645.389, 649.984),
}
SOURCE = "kernel, January 2020"


@dataclasses.dataclass(frozen=True)
class Shape:
    """Predictions beside measurements."""

    factor: float  # all predictions are multiplied by it
    scaled: dict[int, float]  # nanoseconds
    off: dict[int, float]  # scaled / the nearest that was measured; 1: between them
    same_order: bool

    @property
    def worst(self) -> float:
        """By which factor the worst is off, up or down."""
        return max(max(off, 1 / off) for off in self.off.values())


def compare(predictions: Sequence[Prediction]) -> Shape:
    """For 1 to 4 returning CPUs each. Raises ValueError."""
    ns = {prediction.cpus: prediction.ns for prediction in predictions}
    if set(ns) != set(MEASURED):
        raise ValueError(f"predictions for {sorted(MEASURED)} CPUs are needed, not {sorted(ns)}")
    logs = [
        (math.log(least) + math.log(most)) / 2 - math.log(ns[cpus])
        for cpus, (least, most) in MEASURED.items()
    ]
    factor = math.exp(sum(logs) / len(logs))
    scaled = {cpus: ns[cpus] * factor for cpus in MEASURED}
    off = {
        cpus: scaled[cpus] / min(max(scaled[cpus], least), most)
        for cpus, (least, most) in MEASURED.items()
    }
    in_order = [ns[cpus] for cpus in sorted(MEASURED)]
    return Shape(factor, scaled, off, in_order == sorted(in_order))
