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


@pytest.mark.parametrize("sides", [(1, 20), (2, 2), (3, 3), (5, 5), (6, 6), (10, 10), (4, 20)])
def test_no_change_is_rarely_called_one(sides: tuple[int, int]) -> None:
    """Of 400 rows without a change 5 % are 20."""
    rng = random.Random(sides[0] * 100 + sides[1])
    called = sum(verdict.report(rng, sides, [0.0])[0] in ("slower", "faster") for _ in range(400))
    assert called <= 20


def test_two_nanoseconds_of_a_hundred_are_found_with_ten_runs() -> None:
    rng = random.Random(7)
    found = sum(verdict.report(rng, (10, 10), [2.0]) == ["slower"] for _ in range(300))
    assert found > 0.9 * 300


def test_the_table(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    done = CliRunner().invoke(verdict.main, ["--trials", "3", "--json", str(file)])
    assert done.exit_code == 0
    assert len(done.output.splitlines()) == 3 + len(verdict.SIDES)
    table = json.loads(file.read_text())["table"]
    assert [(row["before"], row["after"]) for row in table] == verdict.SIDES
    assert all(0 <= row["false_rows"] <= 100 for row in table)
