# SPDX-License-Identifier: BSD-2-Clause
"""What running a benchmark raises."""

from __future__ import annotations


class BenchError(Exception):
    """A benchmark that could not be run; the text is one line."""


class SettingsError(BenchError, ValueError):
    """Settings that cannot be: an unknown test, too few loops, a CPU that is not allowed."""


class WorkerDied(BenchError):
    """The process that measures ended early; what it measured before is good."""
