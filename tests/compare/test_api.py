# SPDX-License-Identifier: BSD-2-Clause
"""`pagepool.results.read` and `pagepool.compare.compare`, as a notebook uses them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from pagepool.compare import compare
from pagepool.compare.formats import render
from pagepool.results import read
from pagepool.results.errors import ResultsError

DATA = Path(__file__).parents[1] / "data"
ARM64 = DATA / "arm64-patch-by-patch.txt"
PAIR = DATA / "x86-before.txt", DATA / "x86-v7.txt"


def test_read_several_files() -> None:
    results = read(*PAIR)
    assert [build.label for build in results.builds] == ["x86-before", "x86-v7"]
    assert [source.file for source in results.sources] == [str(path) for path in PAIR]
    assert read().builds == ()


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ResultsError, match="no such file"):
        read(DATA / "nothing.txt")
    with pytest.raises(ResultsError, match="no such file"):
        compare(DATA / "nothing.txt", PAIR[0])


def test_compare_files_and_builds() -> None:
    by_name = compare(*PAIR)
    assert compare(*read(*PAIR).builds).comparisons[0].rows == by_name.comparisons[0].rows
    mixed = compare(PAIR[0], read(PAIR[1]).builds[0])
    assert mixed.comparisons[0].rows == by_name.comparisons[0].rows
    chosen = compare(f"{ARM64}@07ea", f"{ARM64}@d8de", tests=["*slow"])
    assert chosen.comparisons[0].rows[-1].test == "tasklet_page_pool03_slow"


def test_one_file_has_its_builds_compared() -> None:
    report = compare(ARM64, series=True, metrics=["ns"])
    assert len(report.comparisons) == 7 + 6


def test_what_cannot_be_compared() -> None:
    one = read(PAIR[0]).builds[0]
    with pytest.raises(ResultsError, match="is alone"):
        compare()
    with pytest.raises(ResultsError, match="holds one build only"):
        compare(PAIR[0])
    with pytest.raises(ResultsError, match="is alone"):
        compare(one)
    with pytest.raises(ResultsError, match="chosen twice"):
        compare(one, one)


def test_a_report_in_a_notebook_and_as_rows() -> None:
    report = compare(*PAIR)
    assert str(report) == render(report, "table")
    assert report._repr_markdown_() == render(report, "markdown")
    rows = report.to_dicts()
    lines = list(csv.DictReader(io.StringIO(render(report, "csv"))))
    assert [list(row) for row in rows] == [list(line) for line in lines]
    assert rows[0]["test"] == "no-softirq-page_pool01"
    assert rows[0]["ns_exact_before"] == 5.71357387
    assert rows[0]["percent"] is None
