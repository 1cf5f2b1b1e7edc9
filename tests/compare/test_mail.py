# SPDX-License-Identifier: BSD-2-Clause
"""A report as a mail: what is in it, and that it survives any name."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.made import build, record
from pagepool.compare import formats, mail
from pagepool.compare.report import Report, compare
from pagepool.compare.selection import Chosen, choose_all
from pagepool.results.arguments import parse
from pagepool.results.lines import clean
from pagepool.results.model import Build, Record, Run
from pagepool.results.reader import read

DATA = Path(__file__).parents[1] / "data"
FORBIDDEN = re.compile(r"From |>|--")


def report(
    *names: str, series: bool = False, tests: tuple[str, ...] = ()
) -> tuple[Report, list[Build]]:
    selectors = [parse(name) for name in names]
    results = [(one.file, read(str(DATA / one.file))) for one in selectors]
    chosen = choose_all(list(dict(results).items()), selectors)
    sets = list(dict(results).values())
    found = compare(chosen, tests=tests, results=sets, series=series)
    return found, [one.build for one in chosen]


def made(*chosen: Chosen, series: bool = False, controls: tuple[str, ...] = ()) -> str:
    found = compare(chosen, series=series, controls=controls)
    return mail.render(found, [one.build for one in chosen])


def said(text: str) -> str:
    """A text without its line breaks."""
    return " ".join(text.split())


def test_what_moved_comes_first_with_its_interval() -> None:
    runs = [[record("lock"), record("x", 10**9 + 10**6 * i)] for i in range(7)]
    slow = [[record("lock"), record("x", 11 * 10**8 + 10**6 * i)] for i in range(7)]
    text = made(build("a", *runs), build("b", *slow))
    first = said(text.split("\n\n")[0])
    # 1.00..1.06 s become 1.10..1.16 s of 10^8 loops.
    match = re.fullmatch(
        r"a -> b: slower: x \(\+1.0 ns, \+([\d.]+) %; 95 %: \+([\d.]+)..\+([\d.]+) %\)\.",
        first,
    )
    assert match is not None, first
    effect, low, high = map(float, match.groups())
    assert low < effect < high and abs(effect - 10) < 0.3
    assert re.search(r"^x .* slower$", text, re.MULTILINE)
    assert "Runs:        7 a side\n" in text
    assert "verdicts of 1 row at 95 % by Holm's rule" in said(text)


def test_nothing_moved_and_nothing_decided() -> None:
    runs = [[record("x", 10**9 + 10**5 * i), record("y", 10**9)] for i in range(7)]
    text = made(build("a", *runs), build("b", *runs[::-1]))
    assert text.startswith("a -> b: nothing moved: same: all 2 rows.\n")
    one = made(build("a", [record("x", 10**9)]), build("b", [record("x", 2 * 10**9)]))
    assert said(one.split("\n\n")[0]) == (
        "a -> b: nothing is decided: one run a side: these differences carry no verdict; with 6 "
        "runs a side ranks decide."
    )


def test_unlike_machines_and_not_more_runs_are_what_hinders() -> None:
    text = made(
        build("a", [record("x", 10**9)], cpu="one"), build("b", [record("x", 10**9)], cpu="other")
    )
    assert said(text.split("\n\n")[0]) == (
        "a -> b: nothing is decided: inconclusive: x (unlike machines)."
    )
    assert "Machine:     before: one; after: other\n" in text
    assert "- unlike machines: cpu (one and other); no verdict, unless with --anyway\n" in text


def test_each_row_says_what_would_decide_it() -> None:
    def runs(noise: int) -> list[list[Record]]:
        steps = (0, 3, -2, 4, -4, 1)
        return [
            [record("x", 10**9 + noise * step), record("y", 10**9 + 2 * noise * step)]
            for step in steps
        ]

    text = made(build("a", *runs(10**7)), build("b", *runs(10**7)))
    first = said(text.split("\n\n")[0])
    asked = re.fullmatch(
        r"a -> b: nothing is decided: inconclusive: x \((\d+) more runs a side would decide\), "
        r"y \((\d+) more runs a side would decide\)\.",
        first,
    )
    assert asked is not None, first
    # Twice the noise takes four times the runs.
    assert int(asked[2]) > 3 * int(asked[1])


def test_instructions_stand_below_and_the_verdict_beside_the_times() -> None:
    runs = [[record("x", 10**9 + 10**6 * i, instructions=10**9)] for i in range(2)]
    chosen = [build("a", *runs), build("b", *runs)]
    found = compare(chosen, ("cycles", "ns", "instructions"))
    lines = mail.render(found, [one.build for one in chosen]).splitlines()
    times, counts = [line.split() for line in lines if line.startswith("x ")][:2]
    assert times[-1] == "same"
    assert counts[:4] == ["x", "10.000", "10.000", "0.000"]


def test_only_controls() -> None:
    text = made(build("a", [record("lock")]), build("b", [record("lock", 2 * 10**9)]))
    assert text.startswith("a -> b: only controls were compared, which have no verdict.\n")


@pytest.mark.parametrize(
    "names",
    [
        ("x86-before.txt", "x86-v7.txt"),
        ("arm64-patch-by-patch.txt@07ea", "arm64-patch-by-patch.txt@e8e4"),
        ("control-and-test.txt",),
        ("org-document.txt",),
        ("dmesg-time-stamps.txt", "x86-before.txt"),
        ("bar-prefix.txt",),
    ],
)
def test_every_figure_and_every_warning_of_the_table_is_there(names: tuple[str, ...]) -> None:
    found, builds = report(*names)
    text = mail.render(found, builds)
    whole = said(text)
    for comparison in found.comparisons:
        for row in comparison.rows:
            for pair in row.metrics.values():
                for cell in (pair.before, pair.after):
                    assert cell is None or str(cell.printed) in text
        for warning in comparison.warnings:
            assert warning.text.removeprefix("controls") in whole
        for open_row in formats.open_rows(comparison):
            assert open_row in whole
    for warning in found.warnings:
        assert warning.text in whole
    for oddity in found.oddities:
        assert oddity.text in whole
    check_page(text)


def test_a_series_has_a_table_of_its_moves() -> None:
    found, builds = report("arm64-patch-by-patch.txt", series=True, tests=("tasklet*",))
    text = mail.render(found, builds)
    for move in formats.moves(found):
        assert move in said(text)
    lines = text.splitlines()
    assert "bd05af7e28d2  unstable   slower +68.0 %  slower +7.2 %" in lines
    for warning in [*formats.beware_of_builds(found), *formats.beware_of_steps(found)]:
        assert warning.removeprefix(f"{DATA}/") in said(text)
    assert "07ea810753bd: 6.13.0-rc6-00905-g07ea810753bd\n" in text
    check_page(text)


def test_what_the_input_does_not_say_is_said_not_to_be_given() -> None:
    text = made(build("a", [record("x")]), build("b", [record("x", 2 * 10**9)]))
    assert "Machine:     not given in the input\nKernel:      not given in the input\n" in text
    assert "how the runs were started is not given in the input" in text
    assert "Settings" not in text and "Mitigations" not in text


def test_machine_and_settings_without_hosts_and_builders() -> None:
    facts = {"cpu": "EPYC", "governor": "performance", "hostname": "secret", "load": "0.5"}
    facts["mitigations"] = "none needed"
    one, other = (build(label, [record("x")], **facts) for label in "ab")
    kernel = "Linux version 6.13.0 (me@secret) (gcc 12) #4 SMP"
    both = [
        chosen._replace(
            build=Build(chosen.build.label, chosen.build.runs, kernel, machine=chosen.build.machine)
        )
        for chosen in (one, other)
    ]
    text = made(*both)
    assert "Machine:     EPYC\nKernel:      6.13.0 (gcc 12) #4 SMP\n" in text
    assert "Mitigations: none needed\nSettings:    governor performance\n" in text
    assert "secret" not in text and "0.5" not in text


def run(name: str, settings: dict[str, str]) -> Run:
    return Run((record(name),), settings)


def how(*builds: Build) -> list[str]:
    chosen = [Chosen(f"{one.label}.txt", one) for one in builds]
    text = made(*chosen)
    return text[text.index("How to reproduce:") :].splitlines()[1:]


def test_modules_are_loaded_with_their_parameters_as_often_as_they_were() -> None:
    simple = run("tasklet_page_pool01_fast_path", {"run_flags": "4"})
    cross = run("page_pool_cross_cpu", {"returning_cpus": "8", "loops": "7"})
    lines = [
        "    modprobe bench_page_pool_simple run_flags=4 loops=100000000",
        "    rmmod bench_page_pool_simple",
    ]
    builds = Build("a", (simple, simple)), Build("b", (simple,))
    assert how(*builds) == ["  on each kernel, 2 times before and once after:", *lines]
    assert how(Build("a", (simple, cross)), Build("b", (simple, cross))) == [
        "  on each kernel, once a side:",
        *lines,
        "    modprobe bench_page_pool_cross_cpu returning_cpus=8 loops=7",
        "    rmmod bench_page_pool_cross_cpu",
    ]


def test_sides_that_were_run_otherwise_are_told_apart() -> None:
    lines = how(
        Build("a", (run("tasklet_page_pool03_slow", {"loops": "5"}),)),
        Build("b", (run("tasklet_page_pool03_slow", {"command": "./x --tests 'a b'"}),)),
    )
    assert lines == [
        "  before, once:",
        "    modprobe bench_page_pool_simple loops=5",
        "    rmmod bench_page_pool_simple",
        "  after, as recorded, once:",
        "    ./x --tests 'a b'",
    ]


def test_own_runs_say_how_they_were_run() -> None:
    command = "pagepool bench storm --producers 1,2 --spread round-robin --vary bulk=1,32"
    settings = {"suite": "storm", "loops": "1000", "command": f"{command} --x 'it'\"'\"'s'"}
    machine = {"pagepool": "0.1.0"}
    builds = [Build(label, (run("x", settings),) * 3, machine=machine) for label in "ab"]
    assert how(*builds) == [
        "  as recorded:",
        "    pagepool bench storm --producers 1,2 --spread round-robin \\",
        "        --vary bulk=1,32 --x 'it'\"'\"'s'",
    ]


def test_own_runs_that_do_not_say_it_are_not_guessed() -> None:
    settings = {"suite": "simple", "loops": "1000"}
    machine = {"pagepool": "0.1.0", "dma": "mapped without an IOMMU, tracked"}
    name = "tasklet_page_pool03_slow"
    builds = [Build(label, (run(name, settings),) * 3, machine=machine) for label in "ab"]
    assert how(*builds) == ["  how the runs were started is not given in the input"]


def test_files_are_called_by_what_tells_them_apart() -> None:
    files = ["/home/me/old/run.txt", "/home/me/new/run.txt", "x/y.txt", "-"]
    assert list(mail.short_files(files).values()) == ["old/run.txt", "new/run.txt", "y.txt", "-"]


def test_directories_are_nobodys_business() -> None:
    bad = Record(name="y", printed_cycles=1, printed_ns="1.000", oddities=("zero-loops",))
    one, other = (build(label, [record("x"), bad]) for label in "aa")
    text = made(one._replace(file="/home/me/b.txt"), other._replace(file="/home/me/c.txt"))
    assert "home" not in text
    assert "b.txt@a -> c.txt@a: " in text


# Whatever goes in


def width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def check_page(text: str) -> None:
    """76 columns, no trailing blank, nothing that a mail program acts on."""
    assert text.endswith("\n") and not text.endswith("\n\n")
    lines = text.removesuffix("\n").split("\n")
    assert text.splitlines() == lines
    for line in lines:
        assert width(line) <= 76, line
        assert line == line.rstrip()
        assert not FORBIDDEN.match(line)
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", line)


def packed(text: str) -> str:
    """A text as it is found however it was wrapped."""
    return "".join(clean(text).split())


NASTY = st.sampled_from(["From ", "> ", "-- ", "---", "\t", "a" * 150, "页" * 90, "\x1b[1m", "@ "])
TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=200),
    st.builds(lambda head, tail: head + tail, NASTY, st.text("ab -_/>", max_size=50)),
    st.from_regex(r"(tasklet_page_pool0\d_|no-softirq-page_pool0)\w{1,60}", fullmatch=True),
)
TIMES = st.integers(1, 2**63 - 1)


@st.composite
def chosens(draw: st.DrawFn) -> list[Chosen]:
    names = draw(st.lists(TEXTS, min_size=1, max_size=4, unique=True))
    steps = draw(st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True))
    times = draw(st.sampled_from([TIMES, st.integers(10**9, 10**9 + 10**7)]))
    builds = []
    for number in range(draw(st.integers(2, 4))):
        label = draw(TEXTS)
        runs = tuple(
            Run(
                tuple(
                    Record(
                        name=name,
                        step=step,
                        time_interval_ns=(time := draw(times)),
                        invoke_count=draw(st.sampled_from([1, 10**8])),
                        tsc_interval=time,
                    )
                    for name in names
                    for step in steps
                ),
                draw(st.dictionaries(st.sampled_from(["loops", "command", "suite"]), TEXTS)),
            )
            for _ in range(draw(st.sampled_from([1, 1, 2, 3, 7])))
        )
        kernel = draw(st.none() | TEXTS)
        facts = st.sampled_from(["cpu", "governor", "mitigations"]) | TEXTS
        machine = draw(st.dictionaries(facts, TEXTS, max_size=3))
        built = Build(label, runs, kernel, machine=machine)
        builds.append(Chosen(f"{number}/{draw(TEXTS).replace('/', '')}", built))
    return builds


@pytest.mark.parametrize("series", [False, True])
@pytest.mark.parametrize("length", [*range(8, 48), *range(60, 80), 200])
def test_names_of_any_length(length: int, series: bool) -> None:
    names = ["tasklet_page_pool01_" + "x" * length, "y" * length, "z " * (length // 2)]
    runs = [[record(name, 10**9 + 10**7 * i) for name in names] for i in range(2)]
    text = made(*(build(letter * length, *runs) for letter in "abc"), series=series)
    check_page(text)
    for name in (letter * length for letter in "xyabc"):
        assert name in packed(text)
    assert Counter(text.split())["same"] + Counter(text.split())["inconclusive"] >= 2 * len(names)


@given(chosens(), st.booleans(), st.lists(TEXTS, max_size=3))
def test_any_name_fits_and_nothing_is_lost(
    chosen: list[Chosen], series: bool, words: list[str]
) -> None:
    found = compare(chosen, series=series)
    text = mail.render(found, [one.build for one in chosen], ["pagepool", *map(repr, words)])
    check_page(text)
    whole = packed(text)
    for one in chosen:
        assert packed(one.build.label) in whole
    there = Counter(text.split())
    kinds: Counter[str] = Counter()
    for comparison in found.comparisons:
        for row in comparison.rows:
            assert row.verdict is not None
            kinds[row.verdict.kind] += 1
            if not re.match("tasklet|no-softirq", row.test):
                assert packed(row.test) in whole
    assert all(there[kind] >= number for kind, number in kinds.items())
