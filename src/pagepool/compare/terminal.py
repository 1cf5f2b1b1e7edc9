# SPDX-License-Identifier: BSD-2-Clause
"""The table on a terminal: the same cells as the plain one, with rules and dimmed controls.

Differences have no colour: whether one means anything is not said by its sign.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pagepool.compare import formats
from pagepool.compare.report import Report


def show(report: Report) -> bool:
    """Print the report; ``False``, and nothing printed, if the terminal is too narrow for it."""
    console = Console(highlight=False)
    grids = [formats.grid(comparison, report) for comparison in report.comparisons]
    if any(sum(width + 3 for width in formats.widths(one)) >= console.width for one in grids):
        return False
    tables = [
        _table(one, comparison.before.name, comparison.after.name)
        for one, comparison in zip(grids, report.comparisons, strict=True)
    ]
    for table, comparison in zip(tables, report.comparisons, strict=True):
        console.print(table)
        for note in formats.notes(comparison):
            console.print(Text(note), soft_wrap=True)
        console.print()
    for note in formats.notes_below(report):
        console.print(Text(note, style="yellow"), soft_wrap=True)
    return True


def _table(grid: formats.Grid, before: str, after: str) -> Table:
    table = Table(title=Text(f"{before} -> {after}"), title_justify="left")
    for column in grid.columns:
        head = Text(f"{column.top}\n{column.bottom}")
        table.add_column(head, justify="right" if column.is_number else "left", no_wrap=True)
    for row in grid.rows:
        table.add_row(*map(Text, row))
    if grid.rows and grid.controls:
        table.add_section()
    for row in grid.controls:
        table.add_row(*map(Text, row), style="dim")
    return table
