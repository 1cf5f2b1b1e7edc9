# SPDX-License-Identifier: BSD-2-Clause
"""What `show` and `compare` share: the options that overrule what was found in files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import click

from pagepool.cli._output import complain, fail
from pagepool.results import labels
from pagepool.results.errors import ResultsError
from pagepool.results.model import Oddity, ResultSet
from pagepool.results.reader import read_all, same_file

F = TypeVar("F", bound=Callable[..., object])


#: ``--label`` and ``--labels``.
LABEL_OPTIONS = (
    click.option(
        "--label",
        "label_options",
        metavar="NAME=FILE[@BUILD][:FIRST-LAST]",
        multiple=True,
        help="Call a build, or what stands in these lines, so; repeat it for several.",
    ),
    click.option(
        "--labels",
        "label_files",
        metavar="FILE.toml",
        multiple=True,
        help="Builds, runs and facts as this file has them; repeat it for several files.",
    ),
)


def label_options(command: F) -> F:
    """Adds these options."""
    for option in reversed(LABEL_OPTIONS):
        command = option(command)
    return command


def rules(options: Sequence[str], files: Sequence[str]) -> list[labels.Rule]:
    """What the options say. Raises `ResultsError`."""
    found = [rule for file in files for rule in labels.load(file)]
    return found + [labels.parse(option) for option in options]


def cut_short(oddities: Iterable[Oddity]) -> bool:
    """Whether a file had more in it than is read at once, which is then said."""
    found = [oddity for oddity in oddities if oddity.code == "too-many"]
    for oddity in found:
        complain(oddity)
    return bool(found)


def check_output(output: str | None, inputs: Iterable[str]) -> None:
    """Fails if an input would be overwritten by what is made of it."""
    if output is None or output == "-":
        return
    for one in inputs:
        if one != "-" and same_file(output, one):
            fail(f"--output {output}: is one of the inputs; choose another file")


def read(
    files: Sequence[str], wanted: labels.Rules
) -> tuple[list[tuple[str, ResultSet]], list[ResultsError]]:
    """Read files, as the rules have them; what cannot be read stands beside it.

    Raises `ResultsError` for a rule that cannot be followed.
    """
    results, errors = read_all(list(files))
    if wanted and results:
        done = {file for file, _ in results}
        results = labels.relabel_all(results, wanted, [it for it in files if it not in done])
    return results, errors
