# SPDX-License-Identifier: BSD-2-Clause
"""Benchmark results: one typed model, readers of every text form, writers of every form.

`read` is the way in. `pagepool.results.model` is the model, `pagepool.results.reader` opens files,
`pagepool.results.time_bench` is the kernel's text, `pagepool.results.jsonio` the JSON.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pagepool.results.labels import Rule
    from pagepool.results.model import ResultSet

__all__ = ["read"]


def read(
    *files: str | os.PathLike[str], labels: str | os.PathLike[str] | Sequence[Rule] = ()
) -> ResultSet:
    """Read kernel logs, mails, this program's own output or its JSON, packed or not.

    files: names, or patterns like ``logs/*.txt`` (which stand for each file that matches, ``v2``
    before ``v10``); ``-`` is standard input. JSON of pyperf and Google Benchmark is read, too.
    labels: a TOML file, or rules of `pagepool.results.labels`, that overrule what was found.

    The builds of all files, in order, with their runs and records (times in nanoseconds), and
    what was odd about them. Raises `pagepool.results.errors.ResultsError` for the first file that
    cannot be read, or that has no results in it, for a pattern that matches no file, and for
    labels that match nothing.
    """
    from pagepool.results import arguments, reader
    from pagepool.results.labels import relabel_all, rules_of
    from pagepool.results.model import ResultSet

    found = [(file, reader.read(file)) for file in arguments.files([os.fspath(it) for it in files])]
    result = ResultSet()
    for _, results in relabel_all(found, rules_of(labels)):
        result = result.merge(results)
    return result
