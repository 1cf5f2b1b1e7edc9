# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool compare``: the before/after table of a mail."""

from __future__ import annotations

import click

from pagepool.cli._comparison import Compared, compares
from pagepool.cli._output import complain, is_terminal, write
from pagepool.compare import formats


@click.command(short_help="Compare builds: the before/after table of a mail.")
@click.option(
    "--format",
    "form",
    type=click.Choice(formats.FORMATS),
    default="table",
    show_default=True,
    help="Form of the output.",
)
@compares
def command(compared: Compared, form: formats.Format, output: str | None) -> None:
    """Compare builds: the before/after table of a mail.

    Every file is compared with the first. A file is a kernel log, a mail, this program's own
    output or its JSON, that of pyperf or of Google Benchmark; '-' is standard input. A pattern
    like 'logs/*.txt' is all files that match, v2 before v10. Of a file that holds several builds
    choose one with FILE@BUILD; one single file has its builds compared in order.

    Several runs a side get a verdict: slower, faster, same, inconclusive or unstable.

    Exit status: 0, 1 if --fail-on found a row, or 2 if something could not be read, chosen or
    written.
    """
    found = compared.report
    if form == "table" and not found.series and not output and is_terminal():
        from pagepool.compare import terminal  # rich: only a terminal pays for it

        if terminal.show(found):
            compared.end()
    write(formats.render(found, form), output)
    if form == "csv":
        # A CSV file has no room for sentences.
        for comparison in found.comparisons:
            for text in formats.beware(comparison):
                complain(f"note: {text}")
        for text in formats.notes_below(found):
            complain(f"note: {text}")
    compared.end()
