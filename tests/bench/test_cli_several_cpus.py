# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool bench cross-cpu``, ``storm`` and ``--design``, as people run them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pagepool.bench import list_tests
from pagepool.results.reader import read

from .conftest import COMMAND, PATIENCE, Result, on_terminal

Bench = Callable[..., Result]
CPUS = len(os.sched_getaffinity(0))
two_cpus = pytest.mark.skipif(CPUS < 2, reason="needs two CPUs")
DESIGNS = ["ring", "list", "ours", "list-ring", "list-batch", "list-cache", "list-ring-cache"]


def compare(*files: str) -> str:
    done = subprocess.run(
        [*COMMAND[:-1], "compare", *files],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_cross_cpu_with_every_design(bench: Bench, tmp_path: Path) -> None:
    text, saved = tmp_path / "x.txt", tmp_path / "x.json"
    result = bench(
        "cross-cpu", "--oversubscribe", "--returning-cpus", "2", "--loops", "2k", "--runs", "1",
        "--design", ",".join(DESIGNS), "--json", str(saved),
    )  # fmt: skip
    assert result.status == 0, result.err
    text.write_text(result.out)
    from_text, from_json = read(str(text)), read(str(saved))
    assert not from_text.oddities
    for results in (from_text, from_json):
        assert [build.label for build in results.builds] == DESIGNS
        for build in results.builds:
            assert build.machine["design"] == build.label
            assert build.machine["oversubscribed"].startswith("yes" if CPUS < 3 else "no")
            (run,) = build.runs
            assert run.settings["suite"] == "cross-cpu"
            assert run.settings["returning_cpus"] == "2"
            for name in ("page_pool_cross_cpu_handover", "page_pool_cross_cpu"):
                records = [record for record in run.records if record.name == name]
                assert [record.kind for record in records] == ["cpu", "cpu", "cpu", "sum"]
                assert [record.invoke_count for record in records] == [2000, 2000, 4000, None]
    for one, other in zip(from_text.builds, from_json.builds, strict=True):
        assert one.machine == other.machine
    assert "page_pool_cross_cpu average" in compare(f"{text}@ring", f"{text}@ours")


@two_cpus
def test_each_cpu_has_its_thread(bench: Bench) -> None:
    result = bench("cross-cpu", "--loops", "5k", "--runs", "1")
    assert result.status == 0, result.err
    found = re.findall(r"Type:page_pool_cross_cpu CPU\((\d+)\) ", result.out)
    assert len(set(found)) == 2
    assert {int(cpu) for cpu in found} <= os.sched_getaffinity(0)
    assert "# oversubscribed: no" in result.out.splitlines()
    assert re.search(r"CPU\(\d+\): returned 5000, queue empty \d+$", result.out, re.M)
    assert re.search(r"CPU\(\d+\): handed out 5000, queue full \d+$", result.out, re.M)
    assert re.search(r": 0 pages fell out of the pool of 16384", result.out)
    assert re.search(
        r": median \S+ ns a page, \S+ of it the hand-over: net \S+ ns$", result.out, re.M
    )


def test_storm_with_every_design(bench: Bench, tmp_path: Path) -> None:
    text, saved = tmp_path / "x.txt", tmp_path / "x.json"
    result = bench(
        "storm", "--oversubscribe", "--producers", "1,3", "--loops", "2k", "--runs", "2",
        "--pages", "64", "--design", ",".join(DESIGNS), "--json", str(saved),
    )  # fmt: skip
    assert result.status == 0, result.err
    text.write_text(result.out)
    from_text, from_json = read(str(text)), read(str(saved))
    assert not from_text.oddities
    for results in (from_text, from_json):
        assert [build.label for build in results.builds] == DESIGNS
        for build in results.builds:
            assert len(build.runs) == 2
            for run in build.runs:
                shape = [(record.kind, record.step, record.invoke_count) for record in run.records]
                # 32 rounds of 64 are the first not below 2000.
                one, three = [("cpu", 1, 2048)], 3 * [("cpu", 3, 2048)]
                assert shape == [*one, ("sum", 1, None), *three, ("sum", 3, None)]
    for record in from_json.builds[0].records:
        if record.kind == "cpu":
            counts = record.counts
            assert counts["rounds"] == 32 and counts["pages"] == 64
            assert 0 < counts["low ns"] <= counts["median ns"] <= counts["high ns"]


def test_storm_in_bulk_has_its_own_name(bench: Bench) -> None:
    settings = ["--producers", "1", "--loops", "5k", "--runs", "1", "--spread", "round-robin"]
    result = bench("storm", *settings, "--bulk", "16")
    assert result.status == 0, result.err
    lines = result.out.splitlines()
    assert "# puts: in bulk, 16 at once" in lines and "# spread: page by page" in lines
    assert re.findall(r"Type:(\S+) CPU", result.out) == ["page_pool_storm_bulk"]
    lines = bench("storm", *settings[:-2]).out.splitlines()
    assert "# puts: one by one" in lines and "# spread: in blocks of 32" in lines


def test_simple_with_several_designs(bench: Bench, tmp_path: Path) -> None:
    text, saved = tmp_path / "x.txt", tmp_path / "x.json"
    result = bench(
        "simple", "--design", "ring,ours", "--loops", "20k", "--runs", "2", "--label", "v2",
        "--json", str(saved),
    )  # fmt: skip
    assert result.status == 0, result.err
    text.write_text(result.out)
    names = [test.name for test in list_tests()]
    for results in (read(str(text)), read(str(saved))):
        assert [build.label for build in results.builds] == ["v2-ring", "v2-ours"]
        assert [build.machine["design"] for build in results.builds] == ["ring", "ours"]
        for build in results.builds:
            assert [[r.name for r in run.records] for run in build.runs] == [names, names]
    # The second run begins with the second design.
    assert re.findall(r"^# design: (\w+)", result.out, re.M) == ["ring", "ours", "ours", "ring"]
    said = compare(str(text))
    assert "v2-ring -> v2-ours" in said and "unlike machines or settings" not in said


@pytest.mark.parametrize("design", DESIGNS)
def test_every_design_takes_the_named_roads(bench: Bench, design: str) -> None:
    result = bench("simple", "--design", design, "--loops", "5k", "--runs", "1")
    assert result.status == 0, result.err
    assert result.out.count(" Per elem: ") == len(list_tests())


@two_cpus
def test_tables_on_a_terminal() -> None:
    status, text = on_terminal(["cross-cpu", "--loops", "20k", "--design", "ring,ours"])
    assert status == 0, text
    assert "bench_page_pool_cross_cpu, 1 returning CPU, 3 runs" in text
    assert re.search(r"^ ours +\d+\.\d{3} ", text, re.M)
    status, text = on_terminal(["storm", "--loops", "20k", "--design", "ring,ours"], columns=40)
    assert status == 0, text
    assert "…" not in text.partition("bench_page_pool_storm, 3 runs")[2]
    assert re.search(r"^ 2 +ours +\d+\.\d{3} ", text, re.M)
    status, text = on_terminal(["simple", "--loops", "5k", "--design", "ring,ours"])
    assert status == 0, text
    assert "designs beside each other, median ns" in text


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (
            ["cross-cpu", "--returning-cpus", str(CPUS)],
            f"{CPUS} returning CPUs? and the consumer need {CPUS + 1} CPUs, and this process may "
            r"use \d+ CPUs? \([\d,-]+\); --oversubscribe runs them all the same, and marks the "
            "result",
        ),
        (
            ["storm", "--producers", f"1,{CPUS + 1}"],
            rf"{CPUS + 1} producers need {CPUS + 1} CPUs, and this process may use .*",
        ),
        (["storm", "--producers", "1,x"], "--producers 'x' is no count: use .*"),
        (["storm", "--producers", ""], "--producers '' is no count: use .*"),
        (["storm", "--bulk", "65"], "bulk of 65: can be 2 to 64"),
        (["storm", "--pages", "y"], "--pages 'y' is no count: use .*"),
        (["cross-cpu", "--loops", "10"], "10 loops: can be 1000 to 4294967295"),
        (["simple", "--design", "ring,x"], "design 'x': must be ring, list, ours, .*"),
        (["simple", "--design", ""], "design '': must be ring, list, ours, .*"),
        (["cross-cpu", "--design", "ours,ours"], "design 'ours' is given twice"),
        (["cross-cpu", "--label", ""], "--label must be printable and not empty"),
        (["storm", "--producers", "1", "--json", "/"], "--json /: Is a directory"),
    ],
)
def test_wrong_settings_are_one_line_and_2(bench: Bench, args: list[str], text: str) -> None:
    result = bench(*args)
    assert result.status == 2
    assert result.out == ""
    (line,) = result.err.splitlines()
    assert re.fullmatch(f"pagepool bench: {text}", line)
