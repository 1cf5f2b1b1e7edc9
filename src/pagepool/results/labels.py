# SPDX-License-Identifier: BSD-2-Clause
"""Overrules what a reader found about builds and runs: who knows better says so.

A rule picks records, by file, build and lines, and puts them into the build that it names, with
the facts that it gives. A build that loses all its records is gone, the remainder of one stays.
What a rule does not say stays as it was found. A rule that finds nothing is an error, since a
typing mistake would otherwise compare what nobody meant.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from pagepool.results import arguments
from pagepool.results.errors import ResultsError
from pagepool.results.model import Build, Machine, Record, ResultSet, Run, Source, Text

#: A file of rules is written by hand.
MAX_BYTES = 1 << 20

USAGE = "give NAME=FILE[@BUILD][:FIRST-LAST]"

#: ``10-80`` or ``17``: lines of a file, from 1.
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_OPTION = re.compile(rf"(?P<file>.+):(?P<lines>{_RANGE.pattern})")


class Lines(NamedTuple):
    """A range of lines, both ends in it."""

    first: int
    last: int

    def __str__(self) -> str:
        """As it is written."""
        return f"{self.first}-{self.last}"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Records to pick, and what is so about them.

    ``file`` is a name or a pattern, that of the whole path or of its end; ``build`` is chosen as
    ``FILE@BUILD`` is. ``lines``: only records that begin in them; ``runs``: of these only what
    begins in one of the ranges, each of which is a run. ``machine`` and ``settings`` are added to
    what was found. ``place`` is where the rule stands, for messages.
    """

    label: str
    file: str
    build: str | None = None
    lines: Lines | None = None
    runs: tuple[Lines, ...] = ()
    machine: Machine = field(default_factory=dict)
    settings: Machine = field(default_factory=dict)
    kernel: str | None = None
    place: str = "a label"


Rules: TypeAlias = Sequence[Rule]

_Word = Annotated[Text, msgspec.Meta(min_length=1)]


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    label: _Word
    file: _Word
    build: _Word | None = None
    lines: str | None = None
    runs: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None
    machine: Machine = {}
    settings: Machine = {}
    kernel: Text | None = None


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    build: Annotated[tuple[_Entry, ...], msgspec.Meta(min_length=1)]


def load(path: str | os.PathLike[str]) -> tuple[Rule, ...]:
    """The rules of a TOML file, its tables ``[[build]]``. Raises `ResultsError`."""
    name = os.fspath(path)
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ResultsError(name, "is too big for a file of labels")
        document = msgspec.toml.decode(data, type=_Document)
    except OSError as error:
        raise ResultsError(name, error.strerror or str(error)) from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ResultsError(name, " ".join(str(error).split())[:300]) from None
    return tuple(
        _rule(entry, f"{name}: build {number} ({entry.label})")
        for number, entry in enumerate(document.build, 1)
    )


def rules_of(labels: str | os.PathLike[str] | Rules) -> Rules:
    """The rules themselves, or those of a TOML file. Raises `ResultsError`."""
    return load(labels) if isinstance(labels, (str, os.PathLike)) else labels


def _rule(entry: _Entry, place: str) -> Rule:
    return Rule(
        label=entry.label,
        file=entry.file,
        build=entry.build,
        lines=None if entry.lines is None else _lines(entry.lines, place),
        runs=_apart(tuple(_lines(text, place) for text in entry.runs or ()), place),
        machine=entry.machine,
        settings=entry.settings,
        kernel=entry.kernel,
        place=place,
    )


def parse(option: str) -> Rule:
    """``NAME=FILE[@BUILD][:FIRST-LAST]``, as ``--label`` has it. Raises `ResultsError`."""
    place = f"--label {option}"
    label, _, rest = option.partition("=")
    if not label or not rest:
        raise ResultsError(place, "is no label", USAGE)
    try:
        msgspec.convert(label, _Word)
    except (msgspec.ValidationError, UnicodeError):
        raise ResultsError(place, "a label is one short line of text") from None
    lines = None
    match = None if arguments.exists(rest) else _OPTION.fullmatch(rest)
    if match is not None:
        rest, lines = match["file"], _lines(match["lines"], place)
    file, build = arguments.parse(rest)
    return Rule(label=label, file=file, build=build, lines=lines, place=place)


def _lines(text: str, place: str) -> Lines:
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise ResultsError(place, f"{text[:80]!r} are no lines", "give them as 10-80")
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= last:
        raise ResultsError(place, f"{text[:80]!r} has no line in it", "lines count from 1")
    return Lines(first, last)


def _apart(runs: tuple[Lines, ...], place: str) -> tuple[Lines, ...]:
    ordered = sorted(runs)
    for one, other in pairwise(ordered):
        if other.first <= one.last:
            raise ResultsError(place, f"runs {one} and {other} share a line", "take them apart")
    return runs


def relabel(results: ResultSet, rules: Rules, file: str = "") -> ResultSet:
    """A set as the rules have it. Raises `ResultsError` for a rule that cannot be followed.

    ``file``: its name, if that is not the one that stands in its records.
    """
    ((_, relabelled),) = relabel_all([(file, results)], rules)
    return relabelled


def relabel_all(
    read: Sequence[tuple[str, ResultSet]], rules: Rules, unread: Iterable[str] = ()
) -> list[tuple[str, ResultSet]]:
    """Several files, each under its name, as the rules have them.

    A rule must find something in one of them. ``unread``: files that could not be read, which may
    be those that a rule is about. Raises `ResultsError`.
    """
    if not rules:
        return list(read)
    finders = [_Finder(rule) for rule in rules]
    relabelled = [(file, _relabel(results, finders, file)) for file, results in read]
    lost = tuple(unread)
    for finder in finders:
        finder.check([file for file, _ in read], lost)
    return relabelled


class _Finder:
    """A rule, and what it has found so far."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._files: dict[str, bool] = {}
        self._hits: set[Lines | None] = set()
        self._seen: list[int] = []
        self._builds: list[Build] = []

    def is_about(self, file: str, build: Build, builds: Sequence[Build]) -> bool:
        """Whether records of a build may be meant. Raises `ResultsError`: it is not clear."""
        rule = self.rule
        about = [*dict.fromkeys([file, *_files(build)])]
        if not any(map(self._is_file, about)):
            return False
        self._builds.append(build)
        if rule.build is None:
            return True
        found = arguments.find(builds, rule.build)
        if len(found) > 1:
            arguments.choose(builds, rule.build, rule.place)
        return any(build is one for one in found)

    def take(self, file: str, record: Record) -> tuple[bool, Lines | None]:
        """Whether a record is meant, and in which of the rule's runs it is."""
        rule = self.rule
        source = record.source
        named = self._is_file(file) or (source is not None and self._is_file(source.file))
        if not named:
            return False, None
        line = source.line if source else 0
        if rule.lines is None and not rule.runs:
            self._hits.add(None)
            return True, None
        self._seen.append(line)
        if rule.lines is not None and not rule.lines.first <= line <= rule.lines.last:
            return False, None
        if not rule.runs:
            self._hits.add(None)
            return True, None
        for run in rule.runs:
            if run.first <= line <= run.last:
                self._hits.add(run)
                return True, run
        return False, None

    def check(self, given: Sequence[str], unread: Sequence[str]) -> None:
        """Raises `ResultsError` that says what of the rule found nothing."""
        rule = self.rule
        missing = [run for run in rule.runs or (None,) if run not in self._hits]
        if not missing or any(map(self._is_file, unread)):
            return
        if not self._builds:
            files = ", ".join(given[:6]) + (", ..." if len(given) > 6 else "")
            raise ResultsError(rule.place, f"{rule.file!r} is no file here", f"given: {files}")
        if not self._seen:
            arguments.choose(self._builds, rule.build or "", rule.place)
        if not any(self._seen):
            raise ResultsError(rule.place, "what was read has no lines", "leave them out")
        lines = missing[0] or rule.lines
        within = f" within {rule.lines}" if missing[0] and rule.lines else ""
        where = f"records begin in lines {Lines(min(self._seen), max(self._seen))}"
        raise ResultsError(rule.place, f"no record begins in lines {lines}{within}", where)

    def _is_file(self, name: str) -> bool:
        if name not in self._files:
            self._files[name] = _is(name, self.rule.file)
        return self._files[name]


def _is(name: str, pattern: str) -> bool:
    """Whether a file is meant: by its name, by a pattern for the end of it, or by another name."""
    try:
        return (
            name == pattern
            or PurePath(name).match(pattern)
            or (name not in ("", "-") and Path(name).samefile(pattern))
        )
    except (OSError, ValueError):
        return False


def _files(build: Build) -> Iterator[str]:
    for record in build.records:
        if record.source:
            yield record.source.file


# The builds that come out


@dataclass(slots=True)
class _NewRun:
    of: list[Run] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    settings: Machine = field(default_factory=dict)


@dataclass(slots=True)
class _NewBuild:
    label: str
    of: list[Build] = field(default_factory=list)
    runs: dict[object, _NewRun] = field(default_factory=dict)
    machine: Machine = field(default_factory=dict)
    kernel: str | None = None


def _relabel(results: ResultSet, finders: Sequence[_Finder], file: str) -> ResultSet:
    """One set. New builds stand where the first of their records stood."""
    found = {build.label: at for at, build in reversed(list(enumerate(results.builds)))}
    made: dict[object, _NewBuild] = {}
    for at, build in enumerate(results.builds):
        about = [finder for finder in finders if finder.is_about(file, build, results.builds)]
        for number, run in enumerate(build.runs):
            for record in run.records:
                finder, part = _claim(about, file, record)
                label = finder.rule.label if finder else build.label
                key: object = found.get(label, label) if finder else at
                new = made.setdefault(key, _NewBuild(label))
                new_run = new.runs.setdefault((finder, part) if part else (at, number), _NewRun())
                new_run.records.append(record)
                _remember(new.of, build)
                _remember(new_run.of, run)
                if finder:
                    new.machine |= finder.rule.machine
                    new.kernel = finder.rule.kernel or new.kernel
                    new_run.settings |= finder.rule.settings
    builds = tuple(map(_build, made.values()))
    return msgspec.structs.replace(results, builds=builds)


def _claim(
    finders: Sequence[_Finder], file: str, record: Record
) -> tuple[_Finder | None, Lines | None]:
    """Who takes a record, and for which of its runs. Raises `ResultsError` if two do."""
    taker, part = None, None
    for finder in finders:
        takes, run = finder.take(file, record)
        if takes and taker:
            what = f"{record.source or file}: {record.name} is taken already"
            raise ResultsError(finder.rule.place, what, f"by {taker.rule.place}")
        if takes:
            taker, part = finder, run
    return taker, part


_Kept: TypeAlias = Build | Run


def _remember(them: list[Build] | list[Run], one: _Kept) -> None:
    if not them or them[-1] is not one:
        them.append(one)  # type: ignore[arg-type]


def _build(new: _NewBuild) -> Build:
    runs = tuple(map(_run, new.runs.values()))
    records = [record for run in runs for record in run.records]
    first = new.of[0]
    kernel = first.kernel if all(build.kernel == first.kernel for build in new.of) else None
    heading = first.heading if all(build.heading == first.heading for build in new.of) else None
    build = Build(
        label=new.label,
        runs=runs,
        kernel=new.kernel or kernel,
        heading=heading,
        machine=_shared([build.machine for build in new.of]) | new.machine,
        source=_source(records, first.source),
    )
    # What no rule is about stays what it is, to the line that its heading stands in.
    untouched = msgspec.structs.replace(build, source=first.source)
    return first if untouched == first and build.records == first.records else build


def _run(new: _NewRun) -> Run:
    first = new.of[0]
    if len(new.of) == 1 and tuple(new.records) == first.records and not new.settings:
        return first
    settings = _shared([run.settings for run in new.of]) | new.settings
    return Run(tuple(new.records), settings, _source(new.records, first.source))


def _shared(facts: list[Machine]) -> Machine:
    """The facts that are the same everywhere."""
    first = facts[0]
    return {key: value for key, value in first.items() if all(f.get(key) == value for f in facts)}


def _source(records: Sequence[Record], other: Source | None) -> Source | None:
    """Where records stand: their file, and from which line to which; ``other``: nobody knows."""
    sources = [record.source for record in records if record.source]
    if not sources or any(source.file != sources[0].file for source in sources):
        return other if not sources else None
    lines = min(source.line for source in sources), max(source.last_line for source in sources)
    return Source(sources[0].file, *lines)
