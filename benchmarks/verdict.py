# SPDX-License-Identifier: BSD-2-Clause
"""How often `pagepool compare` calls a change where there is none, and finds one that there is.

Simulated loads of a module: 100 ns, log-normal(0, 0.6) ns on top, and with a probability of 5 % an
exponential of mean 15 ns. What is judged is judged by the code of the command.

The second table is `pagepool bench --until-decided`: runs are added to the rows that are open, by
the looks and the rule of the command; beside it fixed numbers of runs, and the same looks where
each is judged as if it were the only one.

The third table has loads after the change that scatter twice as much around the same median.

    python benchmarks/verdict.py [--trials 2000] [--seed 1] [--json FILE] [--only TABLE]
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import NormalDist, fmean, median
from typing import NamedTuple

import click

from pagepool.compare import looks, verdict
from pagepool.compare.looks import Looks

#: Rows of a report.
ROWS = 50
#: (runs before, runs after)
SIDES = [
    *[(n, n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20)],
    *[(1, 20), (2, 20), (3, 10), (5, 20), (6, 20), (10, 20)],
]
#: The same where the runs after scatter more.
UNEQUAL = [
    (3, 3),
    (6, 6),
    (10, 10),
    (20, 20),
    (3, 10),
    (10, 3),
    (6, 20),
    (20, 6),
    (10, 20),
    (20, 10),
]
#: So many times as far from the median are these.
SCATTER = 2.0
#: Of all loads one half is faster than this, ns: exp(0.6 z) above 100, where the part of 0.95 that
#: is below z is one half (those that were disturbed are all above).
MIDDLE = 100.0 + math.exp(0.6 * NormalDist().inv_cdf(0.5 / 0.95))
#: A true change, ns.
CHANGE = 2.0
#: Of the second table so many times fewer reports of `ROWS` rows than single rows: they take long.
FEWER = 4
#: What is no change: that of the command; and next to nothing, where the level alone protects.
USUAL, NONE = verdict.Margin(), verdict.Margin(1e-9, 0.0)
#: A change that nobody overlooks, ns.
LARGE = 5.0
#: A change just above the margin, which is 1 % of 101 ns: no row with it is the same.
ABOVE_MARGIN = 1.05


def load(rng: random.Random, scatter: float = 1.0) -> float:
    """Nanoseconds of one load, ``scatter`` times as far from the median as usual."""
    time = 100.0 + rng.lognormvariate(0.0, 0.6)
    time = time + rng.expovariate(1 / 15.0) if rng.random() < 0.05 else time
    return MIDDLE + scatter * (time - MIDDLE) if scatter != 1.0 else time


def report(
    rng: random.Random,
    sides: tuple[int, int],
    changes: list[float],
    scatter: float = 1.0,
    margin: verdict.Margin = USUAL,
) -> list[str]:
    """The kinds of all rows of one report, a row for each change in ns.

    ``scatter`` is that of the runs after the change.
    """
    cases = []
    for change in changes:
        before = [load(rng) for _ in range(sides[0])]
        after = [load(rng, scatter) + change for _ in range(sides[1])]
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


def unequal_shares(trials: int, seed: int, sides: tuple[int, int]) -> dict[str, float]:
    """Per cent, where the runs after scatter more: rows and reports called, changes found."""
    rng = random.Random(f"{seed} {sides} unequal")
    called = {"slower", "faster"}

    def rows(change: float, margin: verdict.Margin = USUAL) -> list[str]:
        return [report(rng, sides, [change], SCATTER, margin)[0] for _ in range(trials)]

    def reports() -> Iterator[set[str]]:
        for _ in range(reports_of(trials)):
            yield {*report(rng, sides, [0.0] * ROWS, SCATTER)}

    return {
        "false_rows_no_margin": fmean(kind in called for kind in rows(0.0, NONE)) * 100,
        "false_rows": fmean(kind in called for kind in rows(0.0)) * 100,
        "false_reports": fmean(bool(called & kinds) for kinds in reports()) * 100,
        "found": fmean(kind == "slower" for kind in rows(CHANGE)) * 100,
        "found_large": fmean(kind == "slower" for kind in rows(LARGE)) * 100,
    }


class Procedure(NamedTuple):
    """When rows are judged, and at what part of the level."""

    name: str
    looks: Callable[[int], Looks]
    share: float | None = None

    def of(self, rows: int) -> tuple[Looks, float]:
        """The looks for so many rows, and what each may spend."""
        at = self.looks(rows)
        return at, at.share if self.share is None else self.share


def until(most: int) -> Procedure:
    return Procedure(f"until decided, at most {most}", lambda rows: looks.plan(rows, most))


def uncorrected(most: int) -> Procedure:
    return Procedure(f"the same looks, at most {most}, each at 5 %", until(most).looks, share=1.0)


def fixed(runs: int) -> Procedure:
    return Procedure(f"{runs} runs", lambda rows: Looks((runs,)))


PROCEDURES = [
    *(fixed(runs) for runs in (10, 20, 40)),
    *(until(most) for most in (20, 40, 100)),
    uncorrected(40),
]


class Ended(NamedTuple):
    """What a row was said to be in the end, and after how many runs a side."""

    kind: str
    runs: int


def sequential(
    rng: random.Random,
    procedure: Procedure,
    changes: list[float],
    margin: verdict.Margin = USUAL,
) -> list[Ended]:
    """One report whose open rows are run again: all its rows, a row for each change in ns."""
    plan, share = procedure.of(len(changes))
    sides: list[tuple[list[float], list[float]]] = [([], []) for _ in changes]
    cases: dict[int, verdict.Case] = {}
    undecided = looks.Undecided[int]()
    again = list(range(len(changes)))
    kinds: list[verdict.Kind] = []
    for runs in plan.at:
        for row in again:
            before, after = sides[row]
            more = runs - len(before)
            before += [load(rng) for _ in range(more)]
            after += [load(rng) + changes[row] for _ in range(more)]
            pooled = verdict.noise([before, after])
            it = verdict.judge(before, after, pooled, share)
            cases[row] = verdict.Case(it, pooled, margin.log(median(before)))
        decisions, _ = verdict.decide_all([cases[row] for row in range(len(changes))])
        kinds = [decision.kind for decision in decisions]
        still = set(undecided.look(dict(enumerate(kinds))))
        again = [row for row in again if row in still]
    return [Ended(kind, len(side[0])) for kind, side in zip(kinds, sides, strict=True)]


def reports_of(trials: int) -> int:
    """So many reports of `ROWS` rows for so many single rows."""
    return max(trials // FEWER, 1)


def until_shares(trials: int, seed: int, procedure: Procedure) -> dict[str, float]:
    """Per cent of rows or reports, and mean numbers of runs a side."""
    rng = random.Random(f"{seed} {procedure.name}")
    called = {"slower", "faster"}

    def one(change: float) -> list[Ended]:
        return [sequential(rng, procedure, [change])[0] for _ in range(trials)]

    def share(rows: list[Ended], *kinds: str) -> float:
        return fmean(row.kind in kinds for row in rows) * 100

    none, small, large, above = map(one, (0.0, CHANGE, LARGE, ABOVE_MARGIN))
    fewer = range(reports_of(trials))
    reports = [sequential(rng, procedure, [0.0] * ROWS) for _ in fewer]
    mixed = [sequential(rng, procedure, [CHANGE] + [0.0] * (ROWS - 1)) for _ in fewer]
    # Numbers of their own, so that what stands beside them does not depend on them.
    other = random.Random(f"{seed} {procedure.name} no margin")
    bare = [sequential(other, procedure, [0.0], NONE)[0] for _ in range(trials)]
    return {
        "false_rows_no_margin": share(bare, *called),
        "false_rows": share(none, *called),
        "false_reports": fmean(any(row.kind in called for row in rows) for rows in reports) * 100,
        "false_same": share(above, "same"),
        "same": share(none, "same"),
        "same_runs": fmean(row.runs for row in none),
        "found": share(small, "slower"),
        "found_runs": fmean(row.runs for row in small),
        "found_large": share(large, "slower"),
        "found_large_runs": fmean(row.runs for row in large),
        "found_among_50": share([rows[0] for rows in mixed], "slower"),
        "found_among_50_runs": fmean(rows[0].runs for rows in mixed),
        "others_runs": fmean(row.runs for rows in mixed for row in rows[1:]),
    }


#: Columns of the second table: their heads, the share, and the mean number of runs beside it.
COLUMNS = [
    (("called, no", "change, margin 0"), "false_rows_no_margin", None),
    (("called, no", "change"), "false_rows", None),
    (("any called of", "50, no change"), "false_reports", None),
    (("+1.05 ns", "same"), "false_same", None),
    (("no change", "same (runs)"), "same", "same_runs"),
    (("+2 ns", "found (runs)"), "found", "found_runs"),
    (("+5 ns", "found (runs)"), "found_large", "found_large_runs"),
    (("+2 ns, 1 of 50", "found (runs)"), "found_among_50", "found_among_50_runs"),
]


def print_until(name: str, it: dict[str, float] | None = None) -> None:
    """One procedure as a line of the second table; without figures its head."""
    if it is None:
        for line in (0, 1):
            heads = "".join(f"{head[line]:>18}" for head, _, _ in COLUMNS)
            click.echo(f"{name if line else '':40}{heads}{('others', '(runs)')[line]:>9}")
        return
    cells = (
        f"{it[share]:.2f}" if runs is None else f"{it[share]:.1f} ({it[runs]:.1f})"
        for _, share, runs in COLUMNS
    )
    click.echo(f"{name:40}{''.join(f'{cell:>18}' for cell in cells)}{it['others_runs']:>9.1f}")


def first_table(trials: int, seed: int) -> list[dict[str, float]]:
    """Numbers of runs: prints the table, and returns it."""
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
    return table


def second_table(trials: int, seed: int) -> list[dict[str, object]]:
    """Runs that are added: prints the table, and returns it."""
    click.echo(
        f"\nper cent of, and (mean runs a side); {reports_of(trials)} reports of {ROWS} rows"
    )
    print_until("procedure")
    table: list[dict[str, object]] = []
    for procedure in PROCEDURES:
        found = until_shares(trials, seed, procedure)
        print_until(procedure.name, found)
        table.append({"procedure": procedure.name, **found})
    return table


def third_table(trials: int, seed: int) -> list[dict[str, float]]:
    """Unequal noise: prints the table, and returns it."""
    click.echo(
        f"\nruns after the change scatter {SCATTER:g} times as much; {trials} trials, seed {seed}; "
        f"per cent of\n{'runs':10}{'called, no':>18}{'called, no':>12}{'any called of':>16}"
        f"{'+2 ns':>9}{'+5 ns':>9}\n"
        f"{'a side':10}{'change, margin 0':>18}{'change':>12}{'50, no change':>16}"
        f"{'found':>9}{'found':>9}"
    )
    table: list[dict[str, float]] = []
    for sides in UNEQUAL:
        row = unequal_shares(trials, seed, sides)
        cells = (
            f"{value:{width}.2f}"
            for value, width in zip(row.values(), (18, 12, 16, 9, 9), strict=True)
        )
        click.echo(f"{sides[0]:2} and {sides[1]:2} {''.join(cells)}")
        table.append({"before": sides[0], "after": sides[1], **row})
    return table


TABLES: dict[str, Callable[[int, int], object]] = {
    "table": first_table,
    "until_decided": second_table,
    "unequal_noise": third_table,
}


@click.command()
@click.option("--trials", default=2000, show_default=True, help="Reports of each kind.")
@click.option("--seed", default=1, show_default=True, help="Seed of all random numbers.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write the tables there too.")
@click.option("--only", type=click.Choice(list(TABLES)), multiple=True, help="Not all tables.")
def main(trials: int, seed: int, file: Path | None, only: tuple[str, ...]) -> None:
    """How often a change is called where there is none, and found where there is one."""
    tables = {name: TABLES[name](trials, seed) for name in TABLES if name in (only or TABLES)}
    if file:
        file.write_text(json.dumps({"trials": trials, "seed": seed, **tables}, indent=2))


if __name__ == "__main__":
    main()
