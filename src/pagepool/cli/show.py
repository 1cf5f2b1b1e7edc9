# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool show``: what a reader makes of files."""

from __future__ import annotations

import sys

import click

from pagepool.cli._output import FAILURE, complain, write
from pagepool.results import jsonio
from pagepool.results.listing import listing
from pagepool.results.model import ResultSet
from pagepool.results.reader import read_all


@click.command(short_help="List the results that files contain, and every oddity.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Write everything as one JSON document.")
@click.option("--output", metavar="FILE", help="Write to a file instead of standard output.")
def command(files: tuple[str, ...], as_json: bool, output: str | None) -> None:
    """List the results that files contain, and every oddity.

    A FILE is a kernel log, a mail, this program's own output or its JSON; '-' is standard
    input. Figures are cycles/nanoseconds per element, as printed; '!' marks a record with an
    oddity. --json converts any of these forms to this program's own.

    Exit status: 0, or 2 if a file could not be read or has no results.
    """
    results, errors = read_all(list(files))
    for error in errors:
        complain(error)
    status = FAILURE if errors else 0
    for _, result in results:
        for oddity in result.oddities:
            if oddity.code == "too-many":
                complain(oddity)
                status = FAILURE
    if as_json and results:
        together = ResultSet()
        for _, result in results:
            together = together.merge(result)
        write(jsonio.dumps(together), output)
    elif results:
        write("\n".join(listing(file, result) for file, result in results), output)
    sys.exit(status)
