# SPDX-License-Identifier: BSD-2-Clause
"""Comparison of builds: statistics, verdicts, tables, output formats.

`compare` is the way in. Knows records, and nothing of how they were measured. `statistics` has all
arithmetic on several runs, `verdict` judges one row by it, `report` pairs the builds and collects
what to beware of, `unlike` says which builds do not compare, `decisions` gives the rows their
verdicts, `formats` writes it, `html` with `charts` as a page.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pagepool.compare.report import Metric, Report
    from pagepool.compare.verdict import Margin
    from pagepool.results.labels import Rule
    from pagepool.results.model import Build

__all__ = ["compare"]


def compare(
    *builds: str | os.PathLike[str] | Build,
    series: bool = False,
    tests: Sequence[str] = (),
    controls: Sequence[str] = (),
    margin: Margin | None = None,
    metrics: Sequence[Metric] | None = None,
    labels: str | os.PathLike[str] | Sequence[Rule] = (),
    anyway: bool = False,
) -> Report:
    """Compare every build with the first, as ``pagepool compare`` does.

    builds: files, ``FILE@BUILD``, patterns of files, or builds of `pagepool.results.read`; one
    single file has its builds compared in order. series: with the build before as well. tests,
    controls: globs on names. margin: what is no change (default 1 % or 0.2 ns). metrics: some of
    ``cycles``, ``ns``, ``instructions``; if not given those that there are, as ``--metric both``
    has them. labels: as `pagepool.results.read` takes them, for the files. anyway: verdicts also
    where machines, clocks, loops or DMA settings are unlike.

    The report has ``comparisons`` of ``rows``, each with its ``metrics`` (ns, cycles) and its
    ``verdict``; it is a table in a notebook, and ``to_dicts()`` is for data frames. Raises
    `pagepool.results.errors.ResultsError` for what cannot be read, chosen or compared.
    """
    from pagepool.compare import report, selection
    from pagepool.compare.selection import Chosen
    from pagepool.results import arguments, reader
    from pagepool.results.labels import relabel_all, rules_of
    from pagepool.results.model import Build

    named = [os.fspath(one) for one in builds if not isinstance(one, Build)]
    expanded = iter(arguments.expand(named))
    wanted = [one for it in builds for one in ([it] if isinstance(it, Build) else next(expanded))]
    selectors = [one for one in wanted if not isinstance(one, Build)]
    files = dict.fromkeys(one.file for one in selectors)
    found = relabel_all([(file, reader.read(file)) for file in files], rules_of(labels))
    read = dict(found)
    if len(wanted) == len(selectors) == 1:
        chosen = selection.choose_all(found, selectors)
    else:
        chosen = [
            Chosen(one.source.file if one.source else one.label, one)
            if isinstance(one, Build)
            else selection.choose(read[one.file], one)
            for one in wanted
        ]
    chosen = selection.two_at_least(chosen)
    return report.compare(
        chosen,
        report.metrics_of(chosen, tests) if metrics is None else metrics,
        tests,
        list(read.values()),
        series=series,
        margin=margin,
        controls=controls,
        anyway=anyway,
    )
