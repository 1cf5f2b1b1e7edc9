# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool show``: what a reader makes of files."""

from __future__ import annotations

import sys

import click

from pagepool.cli import _inputs
from pagepool.cli._output import FAILURE, complain, fail, write
from pagepool.results import arguments, jsonio
from pagepool.results.errors import ResultsError
from pagepool.results.listing import listing
from pagepool.results.model import ResultSet


@click.command(short_help="List the results that files contain, and every oddity.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Write everything as one JSON document.")
@_inputs.label_options
@click.option("--output", metavar="FILE", help="Write to a file instead of standard output.")
def command(
    files: tuple[str, ...],
    as_json: bool,
    label_options: tuple[str, ...],
    label_files: tuple[str, ...],
    output: str | None,
) -> None:
    """List the results that files contain, and every oddity.

    A FILE is a kernel log, a mail, this program's own output or its JSON, that of pyperf or of
    Google Benchmark; a pattern like 'logs/*.txt' is all files that match; '-' is standard
    input. Figures are cycles/nanoseconds per element, as printed; '!' marks a record with an
    oddity. --json converts any of these forms to this program's own.

    Exit status: 0, or 2 if a file could not be read or has no results.
    """
    try:
        rules = _inputs.rules(label_options, label_files)
        named = arguments.files(files)
        _inputs.check_output(output, (*named, *label_files))
        results, errors = _inputs.read(named, rules)
    except ResultsError as error:
        fail(error)
    for failed in errors:
        complain(failed)
    status = FAILURE if errors else 0
    if _inputs.cut_short(oddity for _, result in results for oddity in result.oddities):
        status = FAILURE
    if as_json and results:
        together = ResultSet()
        for _, result in results:
            together = together.merge(result)
        write(jsonio.dumps(together), output)
    elif results:
        write("\n".join(listing(file, result) for file, result in results), output)
    sys.exit(status)
