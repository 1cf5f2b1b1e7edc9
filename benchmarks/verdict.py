# SPDX-License-Identifier: BSD-2-Clause
"""How often `pagepool compare` calls a change where there is none, and finds one that there is.

Simulated loads of a module: 100 ns, log-normal(0, 0.6) ns on top, and with a probability of 5 % an
exponential of mean 15 ns. What is judged is judged by the code of the command.

    python benchmarks/verdict.py [--trials 2000] [--seed 1] [--json FILE]
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from statistics import median

import click

from pagepool.compare import verdict

#: Rows of a report.
ROWS = 50
#: (runs before, runs after)
SIDES = [
    *[(n, n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20)],
    *[(1, 20), (2, 20), (3, 10), (5, 20), (6, 20), (10, 20)],
]
#: A true change, ns.
CHANGE = 2.0


def load(rng: random.Random) -> float:
    """Nanoseconds of one load."""
    time = 100.0 + rng.lognormvariate(0.0, 0.6)
    return time + rng.expovariate(1 / 15.0) if rng.random() < 0.05 else time


def report(rng: random.Random, sides: tuple[int, int], changes: list[float]) -> list[str]:
    """The kinds of all rows of one report, a row for each change in ns."""
    margin = verdict.Margin()
    cases = []
    for change in changes:
        before = [load(rng) for _ in range(sides[0])]
        after = [load(rng) + change for _ in range(sides[1])]
        pooled = verdict.noise([before, after])
        it = verdict.judge(before, after, pooled)
        cases.append(verdict.Case(it, pooled, margin.log(median(before))))
    decisions, _ = verdict.decide_all(cases)
    return [decision.kind for decision in decisions]


def shares(trials: int, seed: int, sides: tuple[int, int]) -> dict[str, float]:
    """Per cent: rows called, reports with any called, +2 ns found alone and among others."""
    rng = random.Random(f"{seed} {sides}")
    called = {"slower", "faster"}

    def share(once: Callable[[], bool]) -> float:
        return sum(once() for _ in range(trials)) / trials * 100

    many = [0.0] * (ROWS - 1)
    return {
        "false_rows": share(lambda: bool(called & {*report(rng, sides, [0.0])})),
        "false_reports": share(lambda: bool(called & {*report(rng, sides, [0.0, *many])})),
        "found": share(lambda: report(rng, sides, [CHANGE]) == ["slower"]),
        "found_among_50": share(lambda: report(rng, sides, [CHANGE, *many])[0] == "slower"),
    }


@click.command()
@click.option("--trials", default=2000, show_default=True, help="Reports of each kind.")
@click.option("--seed", default=1, show_default=True, help="Seed of all random numbers.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write the table there too.")
def main(trials: int, seed: int, file: Path | None) -> None:
    """How often a change is called where there is none, and found where there is one."""
    table: list[dict[str, float]] = []
    click.echo(f"{trials} trials, seed {seed}; per cent of")
    click.echo("runs       rows called   reports of 50 rows      +2 ns found,   +2 ns found,")
    click.echo("a side     (no change)   with any (no change)    a single row   one row of 50")
    for sides in SIDES:
        row = shares(trials, seed, sides)
        first, any_, alone, among = row.values()
        click.echo(
            f"{sides[0]:2} and {sides[1]:2}  {first:11.2f}   {any_:20.2f}    {alone:12.2f}"
            f"   {among:13.2f}"
        )
        table.append({"before": sides[0], "after": sides[1], **row})
    if file:
        file.write_text(json.dumps({"trials": trials, "seed": seed, "table": table}, indent=2))


if __name__ == "__main__":
    main()
