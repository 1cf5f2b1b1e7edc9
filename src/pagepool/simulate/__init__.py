# SPDX-License-Identifier: BSD-2-Clause
"""Beyond the CPUs of this machine: what a return costs with up to 128 CPUs, predicted.

The model's own code runs on simulated CPUs (``machine``), each access to what they share is an
access to a cache line (``watch``, ``mesi``), and what is counted is how often a line has to come
from another CPU. ``run`` is the scenario, ``reference`` what the outcome is compared with. See
docs/simulate.md. Everything here is plain Python, and nothing here is measured.
"""

from pagepool.simulate.reference import Shape, compare
from pagepool.simulate.report import FORMS, render
from pagepool.simulate.run import (
    HAND_OVER,
    MAX_CPUS,
    PAGES,
    SCENARIOS,
    TRANSFER_NS,
    Prediction,
    Scenario,
    simulate,
)

__all__ = [
    "FORMS",
    "HAND_OVER",
    "MAX_CPUS",
    "PAGES",
    "TRANSFER_NS",
    "Prediction",
    "SCENARIOS",
    "Scenario",
    "Shape",
    "compare",
    "render",
    "simulate",
]
