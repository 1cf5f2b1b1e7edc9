# SPDX-License-Identifier: BSD-2-Clause
"""Which builds are compared, of those that the files hold."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from pagepool.results import arguments
from pagepool.results.arguments import Selector, names
from pagepool.results.errors import ResultsError
from pagepool.results.model import Build, ResultSet


class Chosen(NamedTuple):
    """A build, and the file that it was read from."""

    file: str
    build: Build


def choose(results: ResultSet, selector: Selector) -> Chosen:
    """The one build that a selector means. Raises `ResultsError` that names the builds."""
    builds, wanted = results.builds, selector.build
    if wanted is None:
        if len(builds) == 1:
            return Chosen(selector.file, builds[0])
        raise ResultsError(
            selector.file,
            f"holds {len(builds)} builds: {names(builds)}",
            f"choose one, like {shlex.quote(f'{selector.file}@{builds[0].label}')}",
        )
    return Chosen(selector.file, arguments.choose(builds, wanted, selector.file))


def choose_all(results: list[tuple[str, ResultSet]], selectors: list[Selector]) -> list[Chosen]:
    """The builds to compare, in order: one of every argument, or all of a single file.

    Files that are not in ``results`` are passed over: they could not be read, and the reader
    said so. Raises `ResultsError`.
    """
    by_file = dict(results)
    if len(selectors) == 1 and selectors[0].build is None and selectors[0].file in by_file:
        file = selectors[0].file
        builds = by_file[file].builds
        if len(builds) < 2:
            raise ResultsError(
                file, f"holds one build only: {names(builds)}", "give a second file to compare"
            )
        return [Chosen(file, build) for build in builds]
    if selectors and selectors[0].file not in by_file:
        raise ResultsError(
            selectors[0].file, "was not read", "all others are compared against the first"
        )
    chosen = [
        choose(by_file[selector.file], selector)
        for selector in selectors
        if selector.file in by_file
    ]
    return two_at_least(chosen)


def two_at_least(chosen: list[Chosen]) -> list[Chosen]:
    """These builds, if they are several and no one is there twice. Raises `ResultsError`."""
    for index, one in enumerate(chosen):
        for other in chosen[:index]:
            if one.build is other.build:
                what = f"the build {one.build.label!r} is chosen twice"
                raise ResultsError(one.file, what, "choose another")
    if len(chosen) < 2:
        where = chosen[0].file if chosen else "nothing"
        raise ResultsError(where, "is alone", "give a second file to compare it with")
    return chosen
