# SPDX-License-Identifier: BSD-2-Clause
"""What people name: a file, a pattern of files, one build of a file.

``FILE@BUILD``: ``BUILD`` is a label, the number of the build in its file (from 1), or the beginning
of a label if only one build begins so; case does not matter. A pattern is expanded as shells do
it, for who quotes it or has no shell, and in natural order: ``v2`` before ``v10``. Whatever
exists under the whole name is taken by its name first.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pagepool.results.errors import ResultsError
from pagepool.results.model import Build


class Selector(NamedTuple):
    """One argument: the file, and which build of it (``None``: its only one)."""

    file: str
    build: str | None

    def __str__(self) -> str:
        """As it is written."""
        return self.file if self.build is None else f"{self.file}@{self.build}"


def parse(argument: str) -> Selector:
    """Split ``FILE@BUILD``; an existing file named like that goes first."""
    file, at, build = argument.rpartition("@")
    if not at or not file or not build or exists(argument):
        return Selector(argument, None)
    return Selector(file, build)


def expand(arguments: Iterable[str], with_builds: bool = True) -> list[list[Selector]]:
    """What each argument stands for: itself, or for a pattern each file, with its ``@BUILD``.

    A pattern leaves out what was named without one, or by a pattern before it: ``base.txt
    '*.txt'`` is every file once. ``with_builds=False``: an ``@`` is part of a name. Raises
    `ResultsError` for a pattern that nothing matches.
    """
    split = parse if with_builds else _whole
    given = [(split(argument), _matches(argument, with_builds)) for argument in arguments]
    named = {_name(selector) for selector, found in given if found is None}
    result = []
    for selector, found in given:
        new = [one for one in found or () if _name(one) not in named]
        named.update(map(_name, new))
        result.append([selector] if found is None else new)
    return result


def files(arguments: Iterable[str]) -> list[str]:
    """Arguments that are files or patterns of files, expanded as `expand` does it."""
    return [selector.file for group in expand(arguments, False) for selector in group]


def find(builds: Sequence[Build], wanted: str) -> list[Build]:
    """The builds that ``BUILD`` means: one, if it is clear."""
    found = [build for build in builds if build.label == wanted]
    if not found and wanted.isdecimal() and 1 <= int(wanted[:9]) <= len(builds):
        # Before beginnings: otherwise 2 would be the commit 249fa431270c.
        found = [builds[int(wanted[:9]) - 1]]
    return (
        found
        or [build for build in builds if build.label.lower() == wanted.lower()]
        or [build for build in builds if build.label.lower().startswith(wanted.lower())]
    )


def choose(builds: Sequence[Build], wanted: str, where: str) -> Build:
    """The one build that ``BUILD`` means. Raises `ResultsError` that names the builds."""
    found = find(builds, wanted)
    if len(found) == 1:
        return found[0]
    problem = f"{len(found)} builds begin with" if found else "there is no build"
    raise ResultsError(where, f"{problem} {wanted!r}", f"it holds {names(found or builds)}")


def names(builds: Sequence[Build]) -> str:
    """Labels for a message, at most a dozen."""
    shown = ", ".join(build.label for build in builds[:12])
    return shown if len(builds) <= 12 else f"{shown} and {len(builds) - 12} more"


def natural(name: str) -> tuple[list[str | int], str]:
    """A key to sort by: numbers in a name by their value, letters in any case."""
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if at % 2 else part.casefold() for at, part in enumerate(parts)], name


def exists(name: str) -> bool:
    """Whether there is such a file."""
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def _matches(argument: str, with_builds: bool) -> list[Selector] | None:
    """What a pattern stands for; ``None``: it is none. Raises `ResultsError`."""
    if _is_name(argument):
        return None
    if found := _glob(argument):
        return [Selector(file, None) for file in found]
    file, build = parse(argument) if with_builds else _whole(argument)
    if build is not None and _is_name(file):
        return None
    found = [] if build is None else _glob(file)
    if not found:
        raise ResultsError(file, "no file matches this pattern", "check the directory")
    return [Selector(name, build) for name in found]


def _whole(argument: str) -> Selector:
    return Selector(argument, None)


def _is_name(argument: str) -> bool:
    return not glob.has_magic(argument) or exists(argument)


def _glob(pattern: str) -> list[str]:
    try:
        found = glob.glob(pattern, recursive=True)  # noqa: PTH207  (names as they were given)
    except (OSError, ValueError, re.error):
        return []
    return sorted((name for name in found if not Path(name).is_dir()), key=natural)


def _name(selector: Selector) -> tuple[str, str | None]:
    try:
        return str(Path(selector.file).resolve()), selector.build
    except (OSError, ValueError, RuntimeError):
        return selector.file, selector.build
