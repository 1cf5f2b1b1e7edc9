# SPDX-License-Identifier: BSD-2-Clause
"""What a benchmark compares: designs, settings (``--vary``), builds of the library (``--against``).

Each combination is a side. The first is what all others are compared with.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from pagepool.cli._bench import Wrong, count, parse_count
from pagepool.cli._verdicts import fail_on_option, margin_option
from pagepool.compare.verdict import RANK_RUNS, Margin

if TYPE_CHECKING:
    from pagepool.bench import Side

#: Rounds of ``--until-decided``, if nothing is said.
MAX_RUNS = 40


class Asked(NamedTuple):
    """What the options of `options` said."""

    until_decided: bool
    max_runs: int | None
    margin: Margin
    fail_on: dict[str, float]
    vary: tuple[str, ...] = ()
    against: tuple[str, ...] = ()

    @property
    def most(self) -> int:
        """Rounds at most."""
        return MAX_RUNS if self.max_runs is None else self.max_runs


def options(function: Callable[..., None]) -> Callable[..., None]:
    """The options about sides, for a command that takes them as ``**asked``."""
    for option in (
        until_options,
        click.option(
            "--against",
            multiple=True,
            metavar="[NAME=]PYTHON",
            help="Compare with the pagepool of another interpreter or virtual environment.",
        ),
        click.option(
            "--vary",
            multiple=True,
            metavar="NAME=A,B",
            help="Compare settings: stats=on,off, checked=on,off, ...; repeat it for all "
            "combinations.",
        ),
    ):
        function = option(function)
    return function


def until_options(function: Callable[..., None]) -> Callable[..., None]:
    """Those of them that are about when it is decided."""
    for option in (
        fail_on_option,
        margin_option,
        click.option(
            "--max-runs",
            callback=lambda ctx, param, value: None if value is None else count(ctx, param, value),
            metavar="N",
            help=f"Runs of a test at most, with --until-decided.  [default: {MAX_RUNS}]",
        ),
        click.option(
            "--until-decided",
            is_flag=True,
            help="Compare, and run again what is open: until each test has a verdict.",
        ),
    ):
        function = option(function)
    return function


def check(asked: Asked) -> None:
    """Raises `Wrong`: options that have no meaning beside each other."""
    from pagepool.bench import MAX_RUNS as LIMIT

    context = click.get_current_context()

    def is_given(name: str) -> bool:
        return context.get_parameter_source(name) == ParameterSource.COMMANDLINE

    if asked.until_decided:
        if is_given("runs"):
            raise Wrong("--runs and --until-decided: the runs are added as needed; see --max-runs")
        if not RANK_RUNS <= asked.most <= LIMIT:
            raise Wrong(
                f"--max-runs {asked.most}: can be {RANK_RUNS}, from where ranks decide, to {LIMIT}"
            )
        return
    for name in ("max_runs", "margin", "fail_on"):
        if is_given(name):
            raise Wrong(f"--{name.replace('_', '-')} has no meaning without --until-decided")


# Settings


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError("can be on or off")
    return text == "on"


_POOLS: dict[str, Callable[[str], Any]] = {"stats": _switch, "checked": _switch}
#: What a suite can vary, and how its values are read; the suite itself says what they may be.
VARIED: dict[str, dict[str, Callable[[str], Any]]] = {
    "simple": {**_POOLS, "dma": str, "tracking": _switch},
    "cross-cpu": _POOLS,
    "storm": {**_POOLS, "spread": str, "pages": parse_count, "bulk": parse_count},
}


def parse_vary(suite: str, texts: Iterable[str]) -> list[list[tuple[str, str, Any]]]:
    """For each ``NAME=A,B`` its values: name, text, and what the suite takes. Raises `Wrong`."""
    known = VARIED[suite]
    varied: dict[str, list[tuple[str, str, Any]]] = {}
    for text in texts:
        name, _, listed = (part.strip() for part in text.partition("="))
        values = [value.strip() for value in listed.split(",")]
        if name not in known:
            raise Wrong(f"--vary {text}: {suite} can vary {', '.join(known)}, as in stats=on,off")
        if name in varied:
            raise Wrong(f"--vary {text}: {name} is varied twice")
        if len(values) < 2 or len(set(values)) < len(values):
            raise Wrong(f"--vary {text}: give two or more values, each once, as in stats=on,off")
        try:
            varied[name] = [(name, value, known[name](value)) for value in values]
        except ValueError as error:
            raise Wrong(f"--vary {text}: {error}") from None
    return list(varied.values())


def _check_varied(varied: Iterable[Sequence[tuple[str, str, Any]]]) -> None:
    context = click.get_current_context()
    for (name, _, _), *_rest in varied:
        option = name if name in context.params else f"no_{name}"
        if context.get_parameter_source(option) == ParameterSource.COMMANDLINE:
            raise Wrong(f"--{option.replace('_', '-')} and --vary {name}=...: give one of them")


# Builds of the library


class _Library(NamedTuple):
    name: str
    python: str | None


def _libraries(texts: Sequence[str]) -> list[_Library]:
    """The others in their order, and this one as the last. Raises `Wrong`."""
    if not texts:
        return [_Library("", None)]
    found = [_library(text) for text in texts]
    taken = [name for name, _, _ in found if name]
    for name in taken:
        if taken.count(name) > 1:
            raise Wrong(f"--against: two builds are called {name!r}")
    libraries = []
    # This one has its version first: the others can be told from it by where they are.
    own = _unique(_version(None), "this", taken)
    for name, python, version in found:
        libraries.append(_Library(name or _unique(version, _place(python), taken), python))
    return [*libraries, _Library(own, None)]


def _library(text: str) -> tuple[str, str, str]:
    """Name (empty: none given), interpreter and version of one ``[NAME=]PYTHON``."""
    match = re.fullmatch(r"(?:([^=/]*)=)?(.*)", text)
    assert match is not None
    name, python = match.groups()
    if name is not None and not (name.strip() and name.isprintable()):
        raise Wrong(f"--against {text!r}: the name before '=' must be printable and not empty")
    inside = Path(python) / "bin" / "python"
    if python and inside.is_file():
        python = str(inside)
    if not python:
        raise Wrong("--against: give an interpreter, as in old/bin/python or old=old/bin/python")
    return (name or "").strip(), python, _version(python)


def _version(python: str | None) -> str:
    """Also whether it can be measured at all, before anything is."""
    from pagepool import bench

    try:
        return bench.greet(python).version
    except bench.BenchError as error:
        raise Wrong(f"--against: {error}" if python else str(error)) from None


def _place(python: str) -> str:
    """The virtual environment's name; the interpreter's own outside of one."""
    path = Path(os.path.abspath(python))  # noqa: PTH100  (a venv's python is a link: stay there)
    return path.parent.parent.name if path.parent.name == "bin" else path.name


def _unique(name: str, other: str, taken: list[str]) -> str:
    """``name``, or with more behind it if that is taken; notes it as taken."""
    longer = f"{name}-{other}"
    numbered = (f"{longer}-{number}" for number in itertools.count(2))
    chosen = next(one for one in itertools.chain((name, longer), numbered) if one not in taken)
    taken.append(chosen)
    return chosen


# All together


def sides(suite: str, designs: Sequence[str], asked: Asked) -> list[Side]:
    """All combinations: builds, in each the designs, of each the settings. Raises `Wrong`."""
    from pagepool.bench import Side

    varied = parse_vary(suite, asked.vary)
    _check_varied(varied)
    libraries = _libraries(asked.against)
    made = []
    for library, design, *values in itertools.product(libraries, designs, *varied):
        parts = [library.name] if len(libraries) > 1 else []
        parts += [design] if len(designs) > 1 else []
        parts += [f"{name}={text}" for name, text, _ in values]
        settings: dict[str, Any] = {name: value for name, _, value in values}
        settings |= {"designs": [design], "python": library.python}
        made.append(Side("-".join(parts), settings))
    return made
