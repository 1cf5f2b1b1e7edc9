# SPDX-License-Identifier: BSD-2-Clause
"""Forms of the output; the tables of published mails must come out digit for digit."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from compare.made import build, record
from pagepool.compare.formats import FORMATS, Format, grid, render, to_csv, to_json
from pagepool.compare.report import Metric, Report, compare
from pagepool.compare.selection import choose_all
from pagepool.results.arguments import parse
from pagepool.results.reader import read

DATA = Path(__file__).parents[1] / "data"
ORG = (DATA / "org-document.txt").read_text().splitlines()


def report(
    *names: str, tests: tuple[str, ...] = (), metrics: tuple[Metric, ...] = ("cycles", "ns")
) -> Report:
    selectors = [parse(name) for name in names]
    results = [(one.file, read(str(DATA / one.file))) for one in selectors]
    return compare(choose_all(results, selectors), metrics, tests)


def published(number: int) -> list[str]:
    """A table of the org document, with its formula line."""
    starts = [index for index, line in enumerate(ORG) if line.startswith("| Test name")]
    return ORG[starts[number] : starts[number] + 7]


def test_the_first_published_table() -> None:
    text = render(report("x86-before.txt", "x86-v7.txt", tests=("tasklet*",)), "org")
    assert text.splitlines()[:7] == published(0)


def test_the_second_published_table() -> None:
    lines = render(
        report("x86-before.txt", "x86-v7-p1-5.txt", tests=("tasklet*",)), "org"
    ).splitlines()
    # Its author wrote "1-5" over the columns by hand.
    assert lines[1:7] == published(1)[1:]


def test_the_orgs_own_runs_give_its_tables() -> None:
    parts = render(report("org-document.txt", tests=("tasklet*",)), "org").split("\n\n")
    caption, *table = parts[0].splitlines()
    assert caption == "#+CAPTION: Before this patchset -> 6.13.0-rc6-pp01-DMA-fix-v7+"
    assert table == published(0)


@pytest.mark.parametrize("form", ["table", "org", "markdown"])
@pytest.mark.parametrize("metrics", [("cycles",), ("ns",), ("cycles", "ns")])
def test_every_cell_stands_in_a_grid(form: Format, metrics: tuple[Metric, ...]) -> None:
    found = report("arm64-patch-by-patch.txt", metrics=metrics)
    text = render(found, form)
    for comparison in found.comparisons:
        for row in (table := grid(comparison, found)).rows + table.controls:
            pattern = r"[\s|]+".join(re.escape(cell) for cell in row)
            assert re.search(pattern, text), row


def test_org_rows_have_one_width_and_the_formula_names_the_columns() -> None:
    found = report("arm64-patch-by-patch.txt", metrics=("ns",))
    lines = render(found, "org").splitlines()
    table = lines[1 : next(i for i, line in enumerate(lines) if line.startswith("#+TBLFM"))]
    assert len({len(line) for line in table}) == 1
    assert "#+TBLFM: $4=$3-$2::$5=(($4/$2)*100);%.1f" in lines


def _number(cell: str) -> float:
    return float(cell) if re.fullmatch(r"-?[0-9.]+", cell) else 0.0


@pytest.mark.parametrize("metrics", [("cycles",), ("ns",), ("cycles", "ns")])
def test_the_formula_line_computes_what_stands_there(metrics: tuple[Metric, ...]) -> None:
    found = report("x86-before.txt", "x86-v7.txt", metrics=metrics)
    table = grid(found.comparisons[0], found)
    for formula in table.formula.removeprefix("#+TBLFM: ").split("::"):
        target, expression = formula.split("=")
        expression, _, form = expression.partition(";")
        for row in table.rows + table.controls:
            if row[int(target[1:]) - 1] == "-":
                continue
            code = re.sub(r"\$(\d)", r"number(\1)", expression)
            value = eval(code, {"number": [0.0, *map(_number, row)].__getitem__})
            shown = form % value if form else str(round(value, 3))
            assert float(shown) == float(row[int(target[1:]) - 1])


def test_csv_is_a_rectangle_of_plain_numbers() -> None:
    lines = list(csv.reader(io.StringIO(to_csv(report("arm64-patch-by-patch.txt")))))
    assert len(lines) == 1 + 7 * 10
    assert {len(line) for line in lines} == {len(lines[0])}
    row = dict(zip(lines[0], lines[8], strict=True))
    assert (row["test"], row["ns_before"], row["ns_after"]) == ("atomic_inc", "13.467", "13.467")
    assert row["ns_before_n"] == "5"


def test_json_has_printed_and_exact_figures() -> None:
    document = json.loads(to_json(report("x86-before.txt", "x86-v7.txt")))
    assert document["schema"] == "pagepool.compare/1"
    rows = document["comparisons"][0]["rows"]
    ns = {row["test"]: row["metrics"]["ns"] for row in rows}["tasklet_page_pool03_slow"]
    assert ns["before"]["printed"] == 66.134
    assert ns["before"]["exact"] == 66.13430605
    assert ns["diff"] == 17.164
    assert document["comparisons"][0]["warnings"][0]["code"] == "controls"


def test_a_zero_before_has_no_percentage() -> None:
    text = render(report("arm64-patch-by-patch.txt", metrics=("cycles",)), "table")
    assert re.search(r"^for_loop \(control\) +0 +0 +0 +- ", text, re.MULTILINE)


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_ends_with_one_newline_and_has_no_control_characters(form: Format) -> None:
    text = render(report("control-and-test.txt"), form)
    assert text.endswith("\n") and not text.endswith("\n\n")
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", text)


def test_names_are_no_markup_in_the_notes_of_markdown() -> None:
    name = "_a_ *b* `c` [d](e) x|y <i> & a_b"
    runs = [record("x", 10**9)]
    text = render(compare([build(name, runs), build("other", runs)]), "markdown")
    (line,) = [line for line in text.splitlines() if line.startswith("- before: ")]
    shown = r"\_a\_ \*b\* \`c\` \[d\](e) x\|y \<i> &amp; a_b"
    assert line.startswith(f"- before: {shown} ")
