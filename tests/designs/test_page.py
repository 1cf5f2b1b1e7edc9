# SPDX-License-Identifier: BSD-2-Clause
"""The page says what the survey says, and chooses by it."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from pagepool import designs
from pagepool.cli.designs import command as cli
from pagepool.designs import pictures
from pagepool.designs.page import page, rows
from pagepool.designs.survey import CrossCpu, Figure, Predicted, Storm, Survey, Work
from pagepool.designs.survey import Path as OnePath


def figure(ns: float, spread: float = 0.0) -> Figure:
    """Five runs that drift together, as a machine does."""
    return Figure(tuple(ns + spread * step / 2 for step in (0, -2, 1, 2, -1)))


def work(design: str, pages: int | None, left: int, ns: float | None = None) -> Work:
    return Work(
        workload="tcp-stream",
        pages=pages,
        design=design,
        counts={"allocated": 1000, "left": left},
        statistics={
            "alloc_fast": 900,
            "alloc_slow": 10,
            "alloc_refill": 3,
            "recycle_cached": 600,
            "recycle_ring": 400 - left,
            "recycle_ring_full": left,
        },
        figure=None if ns is None else figure(ns),
    )


def survey() -> Survey:
    fast = "tasklet_page_pool01_fast_path"
    return Survey(
        machine={"cpu": "a CPU", "kernel": "Linux 6.1"},
        command="pagepool designs --runs 3",
        designs=("ring", "ours"),
        paths=(
            OnePath(test=fast, design="ring", figure=figure(5.0, 0.2), instructions=52.0),
            OnePath(test=fast, design="ours", figure=Figure((5.6, 5.1, 5.4, 5.0, 5.3))),
        ),
        storms=(
            Storm(producers=1, bulk=1, design="ring", figure=figure(8.0, 0.1)),
            Storm(producers=1, bulk=1, design="ours", figure=figure(4.0, 0.1)),
            Storm(producers=2, bulk=1, design="ring", figure=figure(220.0, 9.0)),
            Storm(producers=2, bulk=1, design="ours", figure=figure(4.2, 0.1)),
        ),
        cross_cpu=(
            CrossCpu(
                returning=1, design="ring", figure=figure(9.0), handover=2.0, net=figure(7.0, 0.1)
            ),
            CrossCpu(
                returning=1, design="ours", figure=figure(12.5), handover=2.0, net=figure(10.5, 0.1)
            ),
        ),
        work=(
            work("ring", None, 50, 300.0),
            work("ours", None, 0, 310.0),
            work("ring", 1, 0),
            work("ours", 1, 0),
            work("ring", 18, 400),
            work("ours", 18, 100),
        ),
        predicted=tuple(
            Predicted(scenario=scenario, cpus=n, design=design, transfers=n * 0.5, ns=n * 16.0)
            for scenario in ("cross-cpu", "storm")
            for design in ("ring", "ours")
            for n in (1, 2, 64)
        ),
        transfer_ns=30.0,
    )


def cells(text: str, start: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_best_are_those_that_are_not_slower_in_each_run() -> None:
    asked = {row.what: row.best for row in rows(survey())}
    assert asked == {
        "one CPU, through the cache: alloc and put": ("ring", "ours"),
        "one CPU puts, one by one: put": ("ours",),
        "2 CPUs put at once, one by one: put": ("ours",),
        "one CPU allocates, one returns: put, net of hand-over": ("ring",),
        "`tcp-stream`: a packet": ("ring",),
    }


def test_the_answer() -> None:
    text = page(survey())
    assert "**`ring`** is the fastest, or as fast as the fastest, in 3 of the 5 rows" in text
    assert "alone at the front in 2 of them; `ours` in 3 and 2." in text
    assert "- 2 CPUs put at once, one by one: put: `ours`; `ring` takes 52.38 times as" in text
    assert cells(text, "one CPU, through the cache")[1:] == ["**5.00**", "**5.30**"]
    assert cells(text, "2 CPUs put at once")[1:] == ["220.0", "**4.20**"]
    assert "too few" not in text


def test_tables() -> None:
    text = page(survey())
    fast = cells(text, "`tasklet_page_pool01_fast_path`")
    assert fast[1:] == ["4.80..5.20", "52", "5.00..5.60", "-"]
    assert cells(text, "2 | 1 ")[2:] == ["211.00..229.00", "27.50", "4.10..4.30", "1.05"]
    assert cells(text, "1 | `ours`")[2:] == ["12.50..12.50", "2.00", "10.40..10.60", "-"]
    assert cells(text, "storm | 64")[2:] == ["32.00", "1024", "32.00", "1024"]
    assert cells(text, "storm, 2 CPUs | `ring`")[2:] == ["32", "220.0", "x 0.15"]
    assert "95.00 %" in cells(text, "`tcp-stream` | `ring`")
    assert "Predicted by simulation, not measured" in text


def test_one_run_is_said_to_be_one() -> None:
    one = survey()
    path = msgspec.structs.replace(one.paths[0], figure=Figure((5.0,)))
    text = page(msgspec.structs.replace(one, paths=(path, *one.paths[1:])))
    assert "**1 run: too few to tell a difference from noise; 5 can.**" in text


@pytest.mark.parametrize(
    ("slow", "fast", "more"),
    [
        ((2.0, 3.0, 4.0, 5.0, 6.0), (1.0, 2.0, 3.0, 4.0, 5.0), True),
        ((2.0, 3.0, 4.0, 5.0, 5.0), (1.0, 2.0, 3.0, 4.0, 5.0), False),
        ((2.0, 3.0, 4.0, 5.0), (1.0, 2.0, 3.0, 4.0), False),
        ((2.0, 3.0, 4.0, 5.0, 6.0, 7.0), (1.0, 2.0, 3.0, 4.0, 5.0), False),
    ],
)
def test_more_in_each_run(slow: tuple[float, ...], fast: tuple[float, ...], more: bool) -> None:
    assert Figure(slow).is_more_than(Figure(fast)) is more
    assert not Figure(fast).is_more_than(Figure(slow))


def test_pictures_are_the_same_each_time_and_named_on_the_page() -> None:
    for name, (draw, caption) in pictures.PICTURES.items():
        text = draw(survey())
        assert text == draw(survey())
        ET.fromstring(text)
        assert "ours" in text
        shown = page(survey(), [(f"which-{name}.svg", caption)])
        assert f"![{caption}](which-{name}.svg)" in shown
    assert "predicted" in pictures.cpus(survey())


def test_a_document_and_back() -> None:
    text = designs.dumps(survey())
    assert designs.loads(text.encode(), "x.json") == survey()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"{", "x.json: not what --json of this command writes: "),
        (b"\xff", "x.json: not what --json"),
        (b'{"schema": "pagepool.designs/1"}', "missing required field"),
    ],
)
def test_what_is_no_document(data: bytes, what: str) -> None:
    with pytest.raises(designs.SurveyError, match=what):
        designs.loads(data, "x.json")


def test_another_schema() -> None:
    document = json.loads(designs.dumps(survey())) | {"schema": "pagepool.designs/9"}
    with pytest.raises(designs.SurveyError, match="this version reads"):
        designs.loads(json.dumps(document).encode(), "x.json")


def run(*arguments: str) -> object:
    try:
        return cli.main(list(arguments), standalone_mode=False)
    except SystemExit as end:
        return end.code


def test_the_command_writes_it_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "survey.json"
    source.write_text(designs.dumps(survey()))
    out = tmp_path / "page.md"
    assert run("--from", str(source), "--output", str(out)) is None
    assert sorted(it.name for it in tmp_path.iterdir()) == [
        "page-cpus.svg",
        "page-paths.svg",
        "page-workloads.svg",
        "page.md",
        "survey.json",
    ]
    assert "](page-cpus.svg)" in out.read_text()
    assert run("--from", str(source)) is None
    assert capsys.readouterr().out == page(survey())


def test_what_the_command_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none.json")
    for arguments, said in (
        (("--from", missing), "No such file"),
        (("--from", missing, "--json", missing), "nothing to write"),
    ):
        assert run(*arguments) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
    with pytest.raises(Exception, match="design"):
        cli.main(["--design", "rings"], standalone_mode=False)


def test_all_of_it_is_measured() -> None:
    plan = designs.Plan(("ring", "ours"), runs=1, loops=1000, polls=100, predicted_cpus=(1, 2))
    events = designs.measure(plan, "pagepool designs")
    parts = []
    while True:
        try:
            event = next(events)
        except StopIteration as over:
            measured = over.value
            break
        if isinstance(event, designs.Part):
            parts.append(event.text)
    cpus = len(os.sched_getaffinity(0))
    assert len({it.test for it in measured.paths}) == 3
    assert {it.bulk for it in measured.storms} == {1, 16}
    assert {it.producers for it in measured.storms} == {1, cpus}
    assert {it.returning for it in measured.cross_cpu} == set(range(1, cpus))
    assert {it.pages for it in measured.work} == {None, *range(1, 19)}
    assert {it.scenario for it in measured.predicted} == {"storm", "cross-cpu"}
    for kind in (measured.paths, measured.storms, measured.predicted, measured.work):
        assert {it.design for it in kind} == {"ring", "ours"}
    assert len(parts) == len(set(parts)) >= 11
    for workload in ("tcp-stream", "mixed"):
        (one, other) = (
            it
            for it in measured.work
            if (it.workload, it.variant, it.pages) == (workload, "", None)
        )
        assert one.figure is not None
        assert one.counts["allocated"] == other.counts["allocated"]
    page(measured)
