# SPDX-License-Identifier: BSD-2-Clause
"""Benchmark results: one typed model, readers of every text form, writers of every form.

`read` is the way in. `pagepool.results.model` is the model, `pagepool.results.reader` opens files,
`pagepool.results.time_bench` is the kernel's text, `pagepool.results.jsonio` the JSON.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagepool.results.model import ResultSet

__all__ = ["read"]


def read(*files: str | os.PathLike[str]) -> ResultSet:
    """Read kernel logs, mails, this program's own output or its JSON, packed or not.

    The builds of all files, in order, with their runs and records (times in nanoseconds), and
    what was odd about them. ``-`` is standard input. Raises
    `pagepool.results.errors.ResultsError` for the first file that cannot be read, or that has no
    results in it.
    """
    from pagepool.results import reader
    from pagepool.results.model import ResultSet

    result = ResultSet()
    for file in files:
        result = result.merge(reader.read(os.fspath(file)))
    return result
