# SPDX-License-Identifier: BSD-2-Clause
"""How often a verdict errs: the benchmark runs, and its figures are what they are to be."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import verdict  # noqa: E402
from pagepool.compare import looks  # noqa: E402


@pytest.mark.parametrize("sides", [(1, 20), (2, 2), (3, 3), (5, 5), (6, 6), (10, 10), (4, 20)])
def test_no_change_is_rarely_called_one(sides: tuple[int, int]) -> None:
    """Of 400 rows without a change 5 % are 20."""
    rng = random.Random(sides[0] * 100 + sides[1])
    called = sum(verdict.report(rng, sides, [0.0])[0] in ("slower", "faster") for _ in range(400))
    assert called <= 20


@pytest.mark.parametrize("sides", [(3, 3), (6, 6), (10, 10), (6, 20)])
def test_unequal_noise_is_no_change(sides: tuple[int, int]) -> None:
    """With the usual margin: of 400 rows 5 % are 20."""
    rng = random.Random(sides[0] * 100 + sides[1])
    kinds = [verdict.report(rng, sides, [0.0], verdict.SCATTER)[0] for _ in range(400)]
    assert sum(kind in ("slower", "faster") for kind in kinds) <= 20


def test_what_scatters_more_has_the_same_median() -> None:
    rng = random.Random(1)
    usual, more = (sorted(verdict.load(rng, by) for _ in range(4001)) for by in (1.0, 2.0))
    assert usual[2000] == pytest.approx(verdict.MIDDLE, abs=0.03)
    assert more[2000] == pytest.approx(verdict.MIDDLE, abs=0.06)
    assert more[3000] - more[1000] == pytest.approx(2 * (usual[3000] - usual[1000]), rel=0.1)


def test_two_nanoseconds_of_a_hundred_are_found_with_ten_runs() -> None:
    rng = random.Random(7)
    found = sum(verdict.report(rng, (10, 10), [2.0]) == ["slower"] for _ in range(300))
    assert found > 0.9 * 300


def test_runs_that_are_added_err_as_rarely() -> None:
    """Of 300 rows without a change 5 % are 15; so with one just above the margin, and ``same``."""
    rng = random.Random(5)

    def ended(procedure: verdict.Procedure, change: float) -> list[verdict.Ended]:
        return [verdict.sequential(rng, procedure, [change])[0] for _ in range(300)]

    until = verdict.until(20)
    none, above, small, large = (
        ended(until, change) for change in (0.0, verdict.ABOVE_MARGIN, 2.0, 5.0)
    )
    assert sum(row.kind in ("slower", "faster") for row in none) <= 15
    assert sum(row.kind == "same" for row in above) <= 15
    assert sum(row.kind == "slower" for row in small) > 0.9 * 300
    assert sum(row.kind == "slower" for row in large) > 0.95 * 300
    # A large change takes the fewest runs that there can be, or little more.
    runs = [sum(row.runs for row in rows) / 300 for rows in (large, small, none)]
    assert 6 <= runs[0] < 8 and runs[0] < runs[1] < runs[2] < 20


def test_rows_that_are_decided_are_not_run_again() -> None:
    rows = verdict.sequential(random.Random(3), verdict.until(40), [5.0, 0.0, 1.0])
    plan = looks.plan(3, 40).at
    assert all(row.runs in plan for row in rows)
    assert rows[0] == verdict.Ended("slower", plan[0])
    assert rows[1].kind == "same" and plan[0] < rows[1].runs
    # At the margin nothing is ever decided.
    assert rows[2] == verdict.Ended("inconclusive", 40)


def test_looks_that_are_not_paid_for_err_more_often() -> None:
    """Without a margin: it is the price of the looks that keeps them at 5 %."""
    called = []
    for procedure in (verdict.until(40), verdict.uncorrected(40)):
        rng = random.Random(11)
        rows = [verdict.sequential(rng, procedure, [0.0], verdict.NONE)[0] for _ in range(300)]
        called.append(sum(row.kind in ("slower", "faster") for row in rows))
    assert called[0] <= 15 and 2 * called[0] < called[1]


def test_the_table(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    done = CliRunner().invoke(verdict.main, ["--trials", "3", "--json", str(file)])
    assert done.exit_code == 0
    tables = 3 + len(verdict.SIDES), 4 + len(verdict.PROCEDURES), 4 + len(verdict.UNEQUAL)
    assert len(done.output.splitlines()) == sum(tables)
    second = json.loads(file.read_text())["until_decided"]
    assert [row["procedure"] for row in second] == [it.name for it in verdict.PROCEDURES]
    table = json.loads(file.read_text())["table"]
    assert [(row["before"], row["after"]) for row in table] == verdict.SIDES
    assert all(0 <= row["false_rows"] <= 100 for row in table)
    third = json.loads(file.read_text())["unequal_noise"]
    assert [(row["before"], row["after"]) for row in third] == verdict.UNEQUAL
    alone = CliRunner().invoke(verdict.main, ["--trials", "3", "--only", "unequal_noise"])
    assert alone.output.splitlines()[1:] == done.output.splitlines()[-3 - len(third) :]
