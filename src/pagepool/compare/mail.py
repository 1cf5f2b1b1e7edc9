# SPDX-License-Identifier: BSD-2-Clause
"""A report as a mail: what moved, the table, how it was measured, how to reproduce it.

The sections stand in the order in which a maintainer asks. What the inputs do not say (a machine, a
kernel) is said not to be given; nothing is guessed. The words are those of `formats`, the layout
is that of `narrow`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from pagepool.compare import formats, narrow, reproduce
from pagepool.compare.formats import Column
from pagepool.compare.report import Comparison, Report, Row, Side
from pagepool.compare.verdict import Verdict
from pagepool.results.model import Build
from pagepool.results.reader import printable
from pagepool.results.words import counter_text

#: Wider names of tests are called [1], [2] in tables, and told below.
_TEST = 70
#: The same above a column.
_HEAD = 30
#: Wider names of builds are told above the tables, and A, B or before, after in them.
_BUILD = 40
#: The same where builds are rows.
_ROW = 20
#: Cells that are wider have their numbers shortened: six digits and an exponent.
_CELL = 42
#: Rows that a sentence names, the furthest from zero first; the table has all.
_NAMED = 6
#: Facts of several builds that are no longer stand behind each other.
_SHORT = 12

#: Facts that are no setting, have a section of their own, or are nobody's business.
_NO_SETTING = frozenset(
    {"kernel", "cpu", "counter", "mitigations", "date", "time", "started", "finished"}
    | {"load", "uptime", "run", "hostname", "host"}
)
_UNKNOWN = "not given in the input"

#: Names in tables: what tests share, and what tells them apart.
_FAMILIES = (
    re.compile(r"(?P<family>tasklet)_page_pool\d\d_(?P<member>\w+)"),
    re.compile(r"(?P<family>no-softirq)-(?P<member>page_pool\d\d\w*)"),
)


def render(report: Report, builds: Sequence[Build], command: Sequence[str] = ()) -> str:
    """The report as plain text of at most 76 columns, ending with a newline.

    builds: what was compared, in the order of ``report.sides``. command: the words of the command
    that wrote this; none leaves it out. Files are called by their base names.
    """
    return "\n".join(_Mail(report, builds, command).lines()) + "\n"


def short_files(files: Iterable[str]) -> dict[str, str]:
    """Base names, or as much of a path as tells one file from another."""
    parts = {file: PurePath(printable(file)).parts or (file,) for file in files}
    short = {}
    for file, path in parts.items():
        for length in range(1, len(path) + 1):
            name = path[-length:]
            if not any(other[-length:] == name for other in parts.values() if other != path):
                break
        short[file] = str(PurePath(*name))
    return short


class _Names:
    """Short names for tests that do not fit into their column, and what they stand for."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, name: str, room: int = _TEST) -> str:
        if narrow.columns(name) <= room:
            return name
        return self._known.setdefault(name, f"[{len(self._known) + 1}]")

    def legend(self) -> Iterator[str]:
        """What was called otherwise, in lines."""
        for name, short in self._known.items():
            yield from narrow.wrap(name, f"{short}  ")


def _letters(number: int) -> str:
    """1 is A, 27 is AA."""
    text = ""
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(ord("A") + digit) + text
    return text


class _Mail:
    def __init__(self, report: Report, builds: Sequence[Build], command: Sequence[str]) -> None:
        self._report = report
        self._builds = builds
        self._command = command
        self._files = {
            printable(long): short
            for long, short in short_files(
                [side.file for side in report.sides] + [it.file for it in report.inputs]
            ).items()
            if printable(long) != short
        }
        self._tests = _Names()
        self._names = self._short_names()
        self._each = " a side" if len(report.sides) == 2 else " each"

    def _short_names(self) -> list[str]:
        """What builds are called in tables: as they are if there is room, or by their place."""
        names = [self._plain(side.name) for side in self._report.sides]
        room = _ROW if self._report.series else _BUILD
        if all(narrow.columns(name) <= room for name in names):
            return names
        pair = len(names) == 2
        return ["before", "after"] if pair else [_letters(i + 1) for i in range(len(names))]

    def _name(self, side: Side) -> str:
        return self._names[self._report.sides.index(side)]

    def _plain(self, text: str) -> str:
        """Without the directories of files: they are nobody's business."""
        for long in sorted(self._files, key=len, reverse=True):
            whole = rf"(?<![\w/.-]){re.escape(long)}(?![\w/-])"
            text = re.sub(whole, lambda found: self._files[found[0]], text)
        return text

    def _say(self, text: str, lead: str = "", hang: str | None = None) -> list[str]:
        return narrow.wrap(self._plain(text), lead, hang)

    def lines(self) -> Iterator[str]:
        """All lines, without their newlines."""
        sections = [self._findings()]
        sides = self._report.sides
        builds = self._fact("Build", [f"{side.label} ({side.file})" for side in sides])
        has_letters = self._names != [self._plain(side.name) for side in sides]
        if has_letters:
            sections.append(builds)
        if self._report.series:
            sections += [self._moves(), self._steps()]
        else:
            sections += [self._table(comparison) for comparison in self._report.comparisons]
        sections.append(list(self._tests.legend()))
        sections.append(self._controls())
        facts = [line for fact in self._facts() for line in fact]
        sections.append(facts if has_letters else builds + facts)
        sections.append(self._warnings())
        sections.append(self._statistics())
        sections.append(self._how())
        for number, section in enumerate(filter(None, sections)):
            if number:
                yield ""
            yield from section

    # What moved

    def _findings(self) -> list[str]:
        if self._report.series:
            return [
                line for text in formats.moves(self._report) for line in self._say(text, "", "  ")
            ]
        return [
            line
            for comparison in self._report.comparisons
            for line in self._say(f"{self._caption(comparison)}: {finding(comparison)}.")
        ]

    def _caption(self, comparison: Comparison) -> str:
        return f"{self._name(comparison.before)} -> {self._name(comparison.after)}"

    # Tables

    def _table(self, comparison: Comparison) -> list[str]:
        table = formats.grid(comparison, self._report, verdicts=True)
        tested = [row for row in comparison.rows if not row.is_control]
        head, lines = self._grouped(tested, table.rows)
        controls = [row for row in comparison.rows if row.is_control]
        if controls:
            indent = "  " if tested else ""
            lines += ["controls"] if tested else []
            lines += [
                [indent + self._tests(row.name), *cells[1:]]
                for row, cells in zip(controls, table.controls, strict=True)
            ]
        columns = [Column("Test name", head, False), *table.columns[1:]]
        text = _narrow_table(columns, lines)
        if len(self._report.comparisons) > 1:
            text = [*self._say(self._caption(comparison)), "", *text]
        return text

    def _grouped(
        self, rows: Sequence[Row], cells: Sequence[list[str]]
    ) -> tuple[str, list[list[str] | str]]:
        """Rows below the name that they share; if that is all of them, it is the head's."""
        families: dict[str, list[tuple[str, str, list[str]]]] = {}
        for row, figures in zip(rows, cells, strict=True):
            family, member = _family(row)
            families.setdefault(family, []).append((row.name, member, figures[1:]))
        lines: list[list[str] | str] = []
        if len(families) == 1 and "" not in families:
            ((family, members),) = families.items()
            if narrow.columns(family) <= narrow.LEAST_NAME:
                lines += [[self._tests(member), *figures] for _, member, figures in members]
                return f"({family})", lines
        for family, members in families.items():
            if not family or len(members) == 1:
                lines += [[self._tests(name), *figures] for name, _, figures in members]
                continue
            lines.append(self._tests(family))
            lines += [[f"  {self._tests(member)}", *figures] for _, member, figures in members]
        return "", lines

    def _moves(self) -> list[str]:
        """A row for each build: what moved there, against the one before."""
        report = self._report
        said: dict[str, dict[str, Verdict]] = {}
        rows: dict[str, Row] = {}
        for comparison in report.comparisons:
            if comparison.against == "previous":
                for row in comparison.rows:
                    if row.verdict:
                        rows.setdefault(row.name, row)
                        said.setdefault(comparison.after.name, {})[row.name] = row.verdict
        if not rows:
            return []
        heads = [Column("Against the", "one before", False)]
        for name, row in rows.items():
            family, member = _family(row)
            member = self._tests(member if family else name, _HEAD)
            heads.append(Column(self._tests(family, _HEAD), member, False, name))
        lines: list[list[str] | str] = [
            [self._name(side), *(_move(said.get(side.name, {}).get(name)) for name in rows)]
            for side in report.sides[1:]
        ]
        return _narrow_table(heads, lines)

    def _steps(self) -> list[str]:
        """The figures of each test, build by build."""
        table = formats.series(self._report)
        lines: list[list[str] | str] = []
        names = {side.name: self._name(side) for side in self._report.sides}
        for test, build, *cells in table.rows:
            if test:
                lines.append(self._tests(test))
            lines.append([f"  {names[build]}", *cells])
        columns = [Column("Test, build", "", False), *table.columns[2:]]
        titles = {"previous": "The one before", "first": "The first"}
        columns = [
            column._replace(top=titles[column.block])
            if column.top and column.block in titles
            else column
            for column in columns
        ]
        return _narrow_table(columns, lines)

    def _controls(self) -> list[str]:
        if self._report.series:
            text = formats.series_controls(self._report)
            return self._say(_upper(text), "", "  ") if text else []
        several = len(self._report.comparisons) > 1
        return [
            line
            for comparison in self._report.comparisons
            for warning in comparison.warnings
            if warning.code == "controls"
            for line in self._say(
                f"{self._caption(comparison)}: {warning.text}" if several else _upper(warning.text),
                "",
                "  ",
            )
        ]

    # How it was measured

    def _facts(self) -> Iterator[list[str]]:
        machines = [build.machine for build in self._builds]
        yield self._fact("Machine", [machine.get("cpu") for machine in machines])
        kernels = [
            build.kernel or machine.get("kernel")
            for build, machine in zip(self._builds, machines, strict=True)
        ]
        if len(kernels) > 2:
            # Whole lines of all of them are a page.
            kernels = [kernel and formats.release(kernel) for kernel in kernels]
        yield self._fact("Kernel", [kernel and _without_builder(kernel) for kernel in kernels])
        yield self._fact("Counter", [counter_text(build) for build in self._builds])
        yield self._fact("Loops", [_loops(build) for build in self._builds])
        yield self._fact("Runs", [_range(_runs(build)) for build in self._builds], each=self._each)
        if any("mitigations" in machine for machine in machines):
            yield self._fact("Mitigations", [machine.get("mitigations") for machine in machines])
        settings = [
            "; ".join(f"{key} {value}" for key, value in machine.items() if key not in _NO_SETTING)
            for machine in machines
        ]
        if any(settings):
            yield self._fact("Settings", [text or None for text in settings])

    def _fact(self, name: str, values: Sequence[str | None], each: str = "") -> list[str]:
        """What all builds have in common in one line, or a line for each."""
        lead = f"{name + ':':13}"
        known = [_UNKNOWN if value is None else value for value in values]
        if len(set(known)) == 1:
            return self._say(known[0] + ("" if known[0] == _UNKNOWN else each), lead)
        roles = ["before", "after"] if len(known) == 2 else self._names
        said = [
            # A build's own name is not said twice.
            value if name == "Build" and value.startswith(f"{role} (") else f"{role}: {value}"
            for role, value in zip(roles, known, strict=True)
        ]
        together = self._say("; ".join(said), lead)
        if len(together) == 1 or max(map(len, known)) <= _SHORT:
            return together
        lines = []
        for text in said:
            lines += self._say(text, lead, " " * (len(lead) + 2))
            lead = " " * len(lead)
        return lines

    def _warnings(self) -> list[str]:
        report = self._report
        several = len(report.comparisons) > 1
        texts = [problem.text for problem in report.problems]
        if report.series:
            texts += formats.beware_of_steps(report)
        else:
            for comparison in report.comparisons:
                # The controls have a section; that more runs are needed is what was found.
                said = [one.text for one in comparison.warnings if one.code == "controls"]
                if needs := needs_runs(comparison):
                    said.append(needs)
                where = f"{self._caption(comparison)}: " if several else ""
                texts += [where + text for text in formats.beware(comparison) if text not in said]
        texts += formats.beware_of_builds(report)
        if not texts:
            return []
        return [
            "Beware:",
            *(line for text in texts for line in self._say(text, "- ", "  ")),
        ]

    def _statistics(self) -> list[str]:
        medians = any(comparison.has_spread for comparison in self._report.comparisons)
        texts = [f"figures are {formats.MEDIANS}"] if medians else []
        texts += [text] if (text := formats.summary(self._report)) else []
        return self._say("; ".join(texts), "Statistics: ", "  ") if texts else []

    def _how(self) -> list[str]:
        lines = ["How to reproduce:"]
        known = [reproduce.commands(build) for build in self._builds]
        first = known[0]
        if first and all(one and one.lines == first.lines for one in known):
            lines += self._runs(first, [one.times for one in known if one])
        elif not any(known):
            lines += self._say(f"how the runs were started is {_UNKNOWN}", "  ")
        else:
            roles = ["before", "after"] if len(known) == 2 else self._names
            for role, commands in zip(roles, known, strict=True):
                if commands:
                    lines += self._runs(commands, [commands.times], role)
                else:
                    lines += self._say(f"{role}: how it was started is {_UNKNOWN}", "  ")
        if self._command:
            lines += ["  the text above:", *narrow.command(self._command, "    ")]
        return lines

    def _runs(
        self, commands: reproduce.Commands, times: Sequence[Sequence[int]], who: str = ""
    ) -> list[str]:
        """The commands of one build, or those that all of several were run with."""
        # Whose they are says where, unless they are the very ones.
        where = [who] if who else []
        where += [commands.where] if commands.is_recorded or not who else []
        if not commands.has_runs:
            if len(times) == 2 and times[0] != times[1]:
                often = f"{_times(times[0])} before and {_times(times[1])} after"
            else:
                often = _times([n for of_one in times for n in of_one])
                often += self._each if len(times) > 1 else ""
            where.append(often)
        lines = self._say(f"{', '.join(where)}:", "  ")
        for words in commands.lines:
            lines += narrow.command(words, "    ")
        return lines


# Findings


def finding(comparison: Comparison) -> str:
    """What moved, by how much, and what is open and why; in a sentence without its full stop."""
    verdicts = [(row, row.verdict) for row in comparison.rows if row.verdict]
    if not verdicts:
        return "only controls were compared, which have no verdict"
    parts = []
    for kind in ("slower", "faster"):
        moved = [(row, it) for row, it in verdicts if it.kind == kind]
        moved.sort(key=lambda one: -abs(one[1].percent.estimate) if one[1].percent else 0.0)
        if moved:
            parts.append(f"{kind}: {_list([f'{row.name}{_by(it)}' for row, it in moved])}")
    same = [row.name for row, it in verdicts if it.kind == "same"]
    if len(same) == len(verdicts):
        return f"nothing moved: same: {_which(same, len(verdicts))}"
    if same:
        parts.append(f"same: {_list(same)}")
    nothing = "" if parts else "nothing is decided: "
    if needs := needs_runs(comparison):
        return nothing + needs
    said: dict[str, list[str]] = {}
    for row, it in verdicts:
        if it.kind == "inconclusive":
            why = formats.reason(it).removeprefix("inconclusive: ")
            said.setdefault(f" ({why})" if why else "", []).append(row.name)
    if said:
        whys = [f"{_which(names, len(verdicts))}{why}" for why, names in said.items()]
        parts.append(f"inconclusive: {', '.join(whys)}")
    if unstable := [row.name for row, it in verdicts if it.kind == "unstable"]:
        # By what it means: the distances themselves are below.
        why = " (runs of one build are further apart than the builds)" if nothing else ""
        parts.append(f"unstable: {_which(unstable, len(verdicts))}{why}")
    return nothing + "; ".join(parts)


def needs_runs(comparison: Comparison) -> str:
    """What is said where nothing but more runs is wanting; empty if something else is."""
    verdicts = [row.verdict for row in comparison.rows if row.verdict]
    if any(it.method != "none" or it.more_runs is None for it in verdicts):
        return ""
    return next((one.text for one in comparison.warnings if one.code == "one-run"), "")


def _by(it: Verdict) -> str:
    """The effect, and its interval unless it was counted exactly."""
    if it.percent is None or it.method == "exact":
        return formats.by(it)
    effect = formats.by(it).removesuffix(")")
    return f"{effect}; 95 %: {_shortened(formats.interval(it.percent))})"


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _which(names: Sequence[str], rows: int) -> str:
    return f"all {rows} rows" if len(names) == rows > 1 else _list(names)


# Cells


def _narrow_table(columns: Sequence[Column], lines: Sequence[list[str] | str]) -> list[str]:
    """A table without columns that say nothing: its verdicts stand before its ranges."""
    rows = [line for line in lines if not isinstance(line, str)]
    blocks = {column.block for column in columns}
    below = {"spread"} | ({"instructions"} if blocks & {"cycles", "ns"} else set())
    order = [
        index
        for index, column in enumerate(columns)
        if column.block != "spread" or any(row[index] != "-" for row in rows)
    ]
    order.sort(key=lambda index: columns[index].block in below)
    table = narrow.Table(
        [columns[index] for index in order],
        [
            line if isinstance(line, str) else [_shortened(line[index]) for index in order]
            for line in lines
        ],
        below,
    )
    return table.text()


def _shortened(cell: str) -> str:
    if len(cell) <= _CELL:
        return cell
    return re.sub(r"([+-]?)(\d{7,}(?:\.\d+)?)", lambda it: f"{it[1]}{float(it[2]):.6g}", cell)


def _move(it: Verdict | None) -> str:
    if it is None:
        return "-"
    if it.kind in ("slower", "faster") and it.percent:
        return _shortened(f"{it.kind} {it.percent.estimate:+.1f} %")
    return it.kind


def _family(row: Row) -> tuple[str, str]:
    """What tests share, as a glob, and the rest of the name; both together are all of it."""
    for pattern in _FAMILIES:
        if match := pattern.fullmatch(row.name):
            separator = row.name[match.end("family")]
            return f"{match['family']}{separator}*", match["member"]
    if row.name != row.test and row.name.startswith(row.test):
        return row.test, row.name.removeprefix(row.test).strip()
    return "", row.name


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


# Facts


def _loops(build: Build) -> str | None:
    loops = sorted({run.loops for run in build.runs if run.loops})
    return "/".join(map(str, loops)) or None


def _runs(build: Build) -> list[int]:
    """How often its tests were run."""
    return sorted(set(Counter(record.key for record in build.records).values()))


def _range(numbers: Sequence[int]) -> str:
    return f"{min(numbers)}..{max(numbers)}" if min(numbers) < max(numbers) else f"{numbers[0]}"


def _times(numbers: Sequence[int]) -> str:
    often = _range(numbers)
    return "once" if often == "1" else f"{often} times"


def _without_builder(kernel: str) -> str:
    """A version line without who compiled it where."""
    kernel = kernel.removeprefix("Linux version ")
    return re.sub(r" \([^\s()]+@[^\s()]+\)", "", kernel)
