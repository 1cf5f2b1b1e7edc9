# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool mail``: the comparison as text for a reply."""

from __future__ import annotations

import shlex

import click

from pagepool.cli._comparison import Compared, compares
from pagepool.cli._output import write
from pagepool.compare import mail


@click.command(short_help="Compare builds in 76 columns of plain text, for a reply.")
@compares
def command(compared: Compared, output: str | None) -> None:
    """Compare builds in 76 columns of plain text, for a reply.

    Reads what 'pagepool compare' reads, in the same way. What moved comes first; then the table,
    machine, kernels, settings and everything to beware of, and how to reproduce it. What the
    inputs do not say is said not to be given. Files are called by their base names.

    Exit status: 0, 1 if --fail-on found a row, or 2 if something could not be read, chosen or
    written.
    """
    builds = [one.build for one in compared.chosen]
    short = mail.short_files(one.file for one in compared.files)
    words = ["pagepool", "mail", *map(shlex.quote, compared.words(short))]
    write(mail.render(compared.report, builds, words), output)
    compared.end()
