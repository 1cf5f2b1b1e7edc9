# SPDX-License-Identifier: BSD-2-Clause
"""Labels overrule what was found: nothing is lost, nothing is guessed, mistakes are named."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagepool.compare import compare
from pagepool.results import jsonio, labels
from pagepool.results import read as read_files
from pagepool.results.errors import ResultsError
from pagepool.results.labels import Lines, Rule, load, parse, relabel, relabel_all
from pagepool.results.model import Build, Record, ResultSet, Run
from pagepool.results.reader import read

DATA = Path(__file__).parents[1] / "data"
ARM64 = DATA / "arm64-patch-by-patch.txt"
FOUND = read(str(ARM64))
FIRST, SECOND = (build.label for build in FOUND.builds[:2])


def lines(*ranges: tuple[int, int]) -> tuple[Lines, ...]:
    return tuple(Lines(*it) for it in ranges)


def rule(label: str, first: int = 0, last: int = 0, **more: object) -> Rule:
    within = Lines(first, last) if first else None
    return Rule(label=label, file=ARM64.name, lines=within, **more)  # type: ignore[arg-type]


def failing(*rules: Rule) -> str:
    with pytest.raises(ResultsError) as caught:
        relabel(FOUND, rules)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_build_is_called_otherwise() -> None:
    results = relabel(FOUND, [rule("base", build=FIRST[:5])])
    assert results.builds[0].label == "base"
    assert results.builds[0].runs == FOUND.builds[0].runs
    assert results.builds[0].kernel == FOUND.builds[0].kernel
    assert all(a is b for a, b in zip(results.builds[1:], FOUND.builds[1:], strict=True))
    assert results.oddities == FOUND.oddities and results.sources == FOUND.sources


def test_lines_are_taken_out_and_the_remainder_stays() -> None:
    results = relabel(FOUND, [rule("boot 1", 1, 45)])
    boot, rest = results.builds[:2]
    assert (boot.label, rest.label) == ("boot 1", FIRST)
    assert boot.runs == FOUND.builds[0].runs[:2]
    assert rest.runs == FOUND.builds[0].runs[2:]
    assert boot.source is not None and (boot.source.line, boot.source.last_line) == (4, 43)
    assert rest.source is not None and rest.source.line == 48


def test_a_run_may_be_cut_in_two() -> None:
    source = FOUND.builds[0].runs[0].records[5].source
    assert source is not None
    results = relabel(FOUND, [rule("head", 1, source.line - 1)])
    assert [len(run.records) for run in results.builds[0].runs] == [5]
    assert [len(run.records) for run in results.builds[1].runs] == [5, 10, 10, 10, 10]


def test_runs_are_made_of_lines() -> None:
    together = rule("x", 1, 64, runs=lines((1, 45), (47, 64)))
    build, rest = relabel(FOUND, [together]).builds[:2]
    assert [len(run.records) for run in build.runs] == [20, 10]
    assert [len(run.records) for run in rest.runs] == [10, 10]
    # What lies in no run stays where it was.
    build, rest = relabel(FOUND, [rule("x", 1, 64, runs=lines((47, 64)))]).builds[:2]
    assert (build.label, len(build.runs), rest.label, len(rest.runs)) == (FIRST, 4, "x", 1)


def test_builds_are_put_together() -> None:
    both = relabel(FOUND, [rule("both", build=FIRST), rule("both", build=SECOND)])
    assert both.builds[0].runs == FOUND.builds[0].runs + FOUND.builds[1].runs
    assert (both.builds[0].kernel, both.builds[0].heading) == (None, None)  # they differ
    # A label that was found is that build.
    moved = relabel(FOUND, [rule(FIRST, build=SECOND)])
    assert [build.label for build in moved.builds] == [
        build.label for build in FOUND.builds if build.label != SECOND
    ]
    assert len(moved.builds[0].runs) == 7


def test_facts_are_added_to_what_was_found() -> None:
    results = relabel(
        FOUND,
        [rule("x", build=FIRST, machine={"cpu": "y"}, settings={"loops": "9"}, kernel="6.1")],
    )
    build = results.builds[0]
    assert build.machine == FOUND.builds[0].machine | {"cpu": "y"}
    assert {run.settings["loops"] for run in build.runs} == {"9"}
    assert build.kernel == "6.1"
    assert results.builds[1] is FOUND.builds[1]
    same = relabel(FOUND, [rule(FIRST, build=FIRST, machine={"cpu": "y"})])
    assert [build.label for build in same.builds] == [build.label for build in FOUND.builds]
    assert same.builds[0].machine["cpu"] == "y"


def test_files_by_pattern_and_by_any_of_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [str(DATA / name) for name in ("x86-before.txt", "x86-v7.txt")]
    found = [(name, read(name)) for name in names]
    for pattern, number in [("x86-*.txt", 2), ("data/x86-v7.txt", 1), (names[0], 1)]:
        relabelled = relabel_all(found, [Rule(label="x", file=pattern)])
        assert sum(results.builds[0].label == "x" for _, results in relabelled) == number
    monkeypatch.chdir(DATA)
    relabelled = relabel_all([("./x86-v7.txt", read("./x86-v7.txt"))], [parse("x=x86-v7.txt")])
    assert relabelled[0][1].builds[0].label == "x"
    other = str(DATA / ".." / "data" / "x86-v7.txt")
    assert (
        relabel_all([(other, read(other))], [parse(f"x={names[1]}")])[0][1].builds[0].label == "x"
    )


def test_a_conversion_still_has_its_lines(tmp_path: Path) -> None:
    document = tmp_path / "all.json"
    jsonio.dump(read_files(ARM64, DATA / "x86-v7.txt"), document)
    builds = read_files(document, labels=[rule("boot 1", 1, 45)]).builds
    assert builds[0].label == "boot 1" and len(builds[0].runs) == 2
    assert builds[-1].label == "x86-v7"


def test_what_is_wrong_with_a_rule_is_said() -> None:
    assert failing(Rule(label="x", file="none.txt", place="p")).startswith(
        "p: 'none.txt' is no file here"
    )
    assert "there is no build 'none'; it holds 07ea810753bd" in failing(rule("x", build="none"))
    assert "builds begin with 'b'; it holds b53806ee8b03, bd05af7e28d2" in failing(
        rule("x", build="b")
    )
    assert "no record begins in lines 9000-9001; records begin in lines 4-" in failing(
        rule("x", 9000, 9001)
    )
    assert "no record begins in lines 70-90 within 1-45" in failing(
        rule("x", 1, 45, runs=lines((1, 10), (70, 90)))
    )
    taken = failing(rule("x", build=FIRST, place="one"), rule("y", 40, 50, place="other"))
    assert taken.startswith("other: ") and taken.endswith("is taken already; by one")
    assert ":41: tasklet_page_pool02_ptr_ring" in taken
    workload = read(str(DATA / "workload.json"))
    with pytest.raises(ResultsError, match="what was read has no lines; leave them out"):
        relabel(workload, [Rule(label="x", file="workload.json", lines=Lines(1, 2))])


def test_a_rule_about_a_file_that_could_not_be_read_is_no_mistake() -> None:
    found = [(str(ARM64), FOUND)]
    rules = [Rule(label="x", file="lost.txt")]
    assert relabel_all(found, rules, ["logs/lost.txt"]) == found
    with pytest.raises(ResultsError):
        relabel_all(found, rules, ["other.txt"])


def test_no_rule_changes_nothing() -> None:
    assert relabel(FOUND, []) is FOUND


@given(st.data())
def test_no_record_is_lost_or_changed(data: st.DataObject) -> None:
    """Whatever the rules are, as long as they can be followed."""
    ends = data.draw(st.lists(st.integers(1, 560), min_size=2, max_size=6, unique=True).map(sorted))
    made = []
    for first, last in zip(ends[::2], ends[1::2], strict=False):
        middle = data.draw(st.integers(first, last))
        runs = data.draw(st.sampled_from([(), lines((first, middle)), lines((middle, last))]))
        label = data.draw(st.sampled_from(["x", "y", FIRST, SECOND]))
        made.append(rule(label, first, last, runs=runs))
    try:
        results = relabel(FOUND, made)
    except ResultsError as error:
        assert "no record begins" in str(error)
        return
    before = [record for build in FOUND.builds for record in build.records]
    after = [record for build in results.builds for record in build.records]
    assert Counter(map(id, after)) == Counter(map(id, before))
    assert all(build.runs and all(run.records for run in build.runs) for build in results.builds)
    assert len({build.label for build in results.builds}) == len(results.builds)
    for record in after:
        line = record.source.line if record.source else 0
        holder = next(it for it in results.builds if any(r is record for r in it.records))
        takers = [
            it
            for it in made
            if it.lines
            and it.lines.first <= line <= it.lines.last
            and (not it.runs or it.runs[0].first <= line <= it.runs[0].last)
        ]
        if takers:
            assert holder.label == takers[0].label
        else:
            found = next(it for it in FOUND.builds if any(r is record for r in it.records))
            assert holder.label == found.label


def test_builds_that_share_a_label_stay_apart() -> None:
    runs = (Run((Record(name="a", printed_ns="1.000"),)),)
    found = ResultSet((Build("a", runs), Build("a", runs), Build("b", runs)))
    results = relabel(found, [Rule(label="c", file="f", build="b")], "f")
    assert [build.label for build in results.builds] == ["a", "a", "c"]


# The two forms of a rule


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("v7=x.txt", ("v7", "x.txt", None, None)),
        ("a b=x.txt@2:10-80", ("a b", "x.txt", "2", (10, 80))),
        ("v7=-:17", ("v7", "-", None, (17, 17))),
        ("v7=x=y:z.txt", ("v7", "x=y:z.txt", None, None)),
        ("v7=x.txt@c8cd", ("v7", "x.txt", "c8cd", None)),
    ],
)
def test_label_options(option: str, expected: tuple[object, ...]) -> None:
    found = parse(option)
    assert (found.label, found.file, found.build, found.lines) == expected
    assert found.place == f"--label {option}"


def test_a_file_with_colons_goes_first(tmp_path: Path) -> None:
    path = tmp_path / "log:1-2"
    path.touch()
    assert parse(f"x={path}").file == str(path)
    assert parse(f"x={path}:3-4").lines == (3, 4)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("v7", "is no label; give NAME=FILE"),
        ("=x", "is no label; give NAME=FILE"),
        ("v7=", "is no label; give NAME=FILE"),
        ("v7=x:9-8", "'9-8' has no line in it"),
        ("v7=x:0", "'0' has no line in it"),
        ("\x1b=x", "a label is one short line of text"),
    ],
)
def test_label_options_that_are_none(option: str, said: str) -> None:
    with pytest.raises(ResultsError) as caught:
        parse(option)
    assert said in str(caught.value)


def test_a_file_of_rules(tmp_path: Path) -> None:
    path = tmp_path / "l.toml"
    path.write_text(
        '[[build]]\nlabel = "v7"\nfile = "x86-*.txt"\nbuild = "before"\nlines = "10-80"\n'
        'runs = ["10-40", "41-80"]\nmachine = {cpu = "y"}\nkernel = "6.1"\n'
        '[build.settings]\nloops = "9"\n'
    )
    assert load(path) == (
        Rule(
            label="v7",
            file="x86-*.txt",
            build="before",
            lines=Lines(10, 80),
            runs=lines((10, 40), (41, 80)),
            machine={"cpu": "y"},
            settings={"loops": "9"},
            kernel="6.1",
            place=f"{path}: build 1 (v7)",
        ),
    )


ENTRY = '[[build]]\nlabel = "v7"\nfile = "x"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "missing required field `build`"),
        ("build = []", "length >= 1 - at `$.build`"),
        ("x = [", "Invalid value"),
        ("a = 1\n" + ENTRY, "unknown field `a`"),
        (ENTRY + 'line = "1"', "unknown field `line` - at `$.build[0]`"),
        (ENTRY + "[[build]]\nfile = 'y'", "missing required field `label` - at `$.build[1]`"),
        (ENTRY + "lines = 10", "Expected `str | null`, got `int` - at `$.build[0].lines`"),
        (ENTRY + "lines = '10-'", "build 1 (v7): '10-' are no lines; give them as 10-80"),
        (ENTRY + "lines = '0-3'", "build 1 (v7): '0-3' has no line in it"),
        (ENTRY + "runs = []", "length >= 1 - at `$.build[0].runs`"),
        (ENTRY + "runs = ['1-5', '5-9']", "runs 1-5 and 5-9 share a line; take them apart"),
        (ENTRY + "machine = {cpu = 3}", "at `$.build[0].machine"),
        (ENTRY + 'kernel = "\\u001b"', "at `$.build[0].kernel`"),
        (ENTRY + "x = " + "[" * 100_000, ""),
        ("\x80", ""),
        ("#" * (1 << 20) + "\n", "is too big for a file of labels"),
    ],
)
def test_a_file_of_rules_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "l.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ResultsError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_rules_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(data)
    with pytest.raises(ResultsError):
        load(path)


# From Python


def test_read_and_compare_with_labels() -> None:
    path = DATA / "labels.toml"
    builds = read_files(ARM64, labels=path).builds
    assert [build.label for build in builds[:2]] == ["boot 1", "boot 2"]
    assert builds[-1].label == "last"
    assert read_files(ARM64, labels=labels.load(path)).builds == builds
    report = compare(f"{ARM64}@boot 1", f"{ARM64}@boot 2", labels=path)
    assert [side.runs for side in report.sides] == [2, 3]
    with pytest.raises(ResultsError, match="is no file here"):
        read_files(DATA / "x86-v7.txt", labels=path)
