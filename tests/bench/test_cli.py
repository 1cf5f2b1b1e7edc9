# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool bench`` from outside: text, tables, files, exit statuses, interrupts, deaths."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pagepool.bench import list_tests
from pagepool.cli._bench import parse_count
from pagepool.compare import reproduce
from pagepool.results.model import Record
from pagepool.results.reader import read

from .conftest import COMMAND, PATIENCE, Result, children, is_running, on_terminal, wait_for

Bench = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]

GOLDEN = Path(__file__).parent / "golden"
NAMES = [test.name for test in list_tests()]


def masked(text: str) -> list[str]:
    """Lines of the kernel's text with the figures masked; facts and the PMU's lines left out."""
    lines = []
    for line in text.splitlines():
        if line.startswith("# ") or " PMU inst/clock" in line:
            continue
        line = re.sub(r"\b\d+ cycles", "C cycles", line)
        line = re.sub(r"\b\d+\.\d{3} ns", "N.NNN ns", line)
        line = re.sub(r" time:\d+\.\d{9} sec", " time:T.TTTTTTTTT sec", line)
        line = re.sub(r"time_interval:\d+", "time_interval:I", line)
        line = re.sub(r"tsc_interval:\d+", "tsc_interval:C", line)
        lines.append(line)
    return lines


def figures(records: tuple[Record, ...]) -> list[tuple[object, ...]]:
    return [
        (r.key, r.time_interval_ns, r.invoke_count, r.tsc_interval, r.instructions) for r in records
    ]


def test_on_a_pipe_it_prints_what_the_kernel_prints(bench: Bench) -> None:
    result = bench("simple", "--loops", "20k", "--runs", "2")
    assert result.status == 0, result.err
    assert masked(result.out) == (GOLDEN / "pipe.txt").read_text().splitlines() * 2


def test_the_machine_stands_in_front(bench: Bench) -> None:
    result = bench("--loops", "1000", "--runs", "1", "--tests", "lock", "--label", "one two")
    lines = result.out.splitlines()
    facts = [line for line in lines if line.startswith("# ")]
    assert lines[: len(facts)] == facts
    keys = [re.match(r"# ([\w ]+): \S", line).group(1) for line in facts]  # type: ignore[union-attr]
    for key in (
        "cpu",
        "pinned cpu",
        "kernel",
        "mitigations",
        "governor",
        "boost",
        "smt",
        "debugging",
        "boot options",
        "core build",
        "python",
        "pagepool",
        "compiler",
        "counter",
        "loops",
        "statistics",
        "dma",
        "checked mode",
        "rcu",
    ):
        assert keys.count(key) == 1, key
    assert "# loops: 1000" in facts
    assert "# statistics: on" in facts
    assert "# dma: off" in facts
    assert "# checked mode: off" in facts
    assert "# label: one two" in facts


def test_reading_it_again_gives_the_same_records(bench: Bench, tmp_path: Path) -> None:
    saved, text = tmp_path / "new.json", tmp_path / "new.txt"
    result = bench("--loops", "20k", "--runs", "2", "--json", str(saved))
    assert result.status == 0, result.err
    text.write_text(result.out)
    from_json, from_text = read(str(saved)), read(str(text))
    assert not from_json.oddities and not from_text.oddities
    (one,), (other,) = from_json.builds, from_text.builds
    assert one.label == other.label == "new"
    assert one.machine == other.machine
    assert one.kernel == other.kernel and one.kernel
    assert len(one.runs) == len(other.runs) == 2
    for first, second in zip(one.runs, other.runs, strict=True):
        assert [record.name for record in first.records] == NAMES
        assert figures(first.records) == figures(second.records)
        assert [r.ns_printed for r in first.records] == [r.ns_printed for r in second.records]
        assert [r.cycles_printed for r in first.records] == [
            r.cycles_printed for r in second.records
        ]
        assert first.loops == 20_000
        assert (
            first.settings
            == second.settings
            == {
                "suite": "simple",
                "loops": "20000",
                "command": "pagepool bench simple --loops 20k --runs 2",
            }
        )


def test_json_alone(bench: Bench) -> None:
    result = bench("--loops", "2k", "--runs", "1", "--json", "-", "--label", "x")
    document = json.loads(result.out)
    assert document["schema"] == "pagepool.results/1"
    assert document["builds"][0]["label"] == "x"
    assert len(document["builds"][0]["runs"][0]["records"]) == len(NAMES)


def test_statistics_off_is_said(bench: Bench) -> None:
    result = bench("--loops", "2k", "--runs", "1", "--no-stats")
    assert result.status == 0
    assert "# statistics: off" in result.out.splitlines()
    assert result.out.count(" Per elem: ") == len(NAMES)


@pytest.mark.parametrize(
    ("args", "dma", "checked"),
    [
        (["--dma", "none"], "mapped without an IOMMU, tracked", "off"),
        (["--dma", "none", "--no-tracking"], "mapped without an IOMMU, not tracked", "off"),
        (["--dma", "iommu"], "mapped by a software IOMMU, tracked", "off"),
        (
            ["--dma", "iommu", "--no-tracking", "--checked"],
            "mapped by a software IOMMU, not tracked",
            "on: these are not the pool's figures",
        ),
    ],
)
def test_what_the_pools_are_is_said(
    bench: Bench, tmp_path: Path, args: list[str], dma: str, checked: str
) -> None:
    saved = tmp_path / "new.json"
    result = bench("--loops", "2k", "--runs", "1", "--json", str(saved), *args)
    assert result.status == 0
    assert f"# dma: {dma}" in result.out.splitlines()
    assert f"# checked mode: {checked}" in result.out.splitlines()
    assert result.out.count(" Per elem: ") == len(NAMES)
    (build,) = read(str(saved)).builds
    assert build.machine["dma"] == dma
    assert build.machine["checked mode"] == checked


@pytest.mark.parametrize(("value", "text"), [("1", "on"), ("full", "full")])
def test_the_environments_checked_mode_is_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, value: str, text: str
) -> None:
    monkeypatch.setenv("PAGEPOOL_CHECKED", value)
    result = bench("--loops", "2k", "--runs", "1", "--tests", "tasklet*")
    assert result.status == 0
    assert f"# checked mode: {text}: these are not the pool's figures" in result.out.splitlines()
    said = "pagepool bench: warning: PAGEPOOL_CHECKED is set: these are not the pool's figures"
    assert result.err.splitlines().count(said) == 1
    # Who asks for it knows.
    assert said not in bench("--loops", "2k", "--runs", "1", "--tests", "lock", "--checked").err


def test_how_it_was_run_is_recorded(bench: Bench, tmp_path: Path) -> None:
    """In one way of writing it, and without what is about the output, or nobody's business."""
    saved = tmp_path / "new.json"
    result = bench(
        "--loops=2k", "--runs", "1", "--json", str(saved), "--tests", "tasklet*02*,lock",
        "--tests", "for_loop", "--label", "x", "--dma", "none", "--vary", "checked=on,off",
        "--against", f"a={sys.executable}",
    )  # fmt: skip
    assert result.status == 0, result.err
    python = "/".join(Path(sys.executable).parts[-3:])
    assert python.endswith("/bin/" + Path(sys.executable).name)
    command = (
        "pagepool bench simple --loops 2k --runs 1 --tests 'tasklet*02*,lock' --tests for_loop "
        f"--dma none --vary checked=on,off --against a={python}"
    )
    assert result.out.splitlines().count(f"# command: {command}") == 4
    text = tmp_path / "new.txt"
    text.write_text(result.out)
    for file in (saved, text):
        builds = read(str(file)).builds
        assert len(builds) == 4
        for build in builds:
            found = reproduce.commands(build)
            assert found is not None and found.is_recorded and found.has_runs
            assert [" ".join(words) for words in found.lines] == [command]


def test_an_argument_stands_first_in_the_record(bench: Bench, tmp_path: Path) -> None:
    result = bench("workload", "--polls", "50", "xdp-tx", "--read-data", "--runs", "1")
    assert result.status == 0
    line = "# command: pagepool bench workload xdp-tx --polls 50 --read-data --runs 1"
    assert line in result.out.splitlines()


def test_unlike_pools_are_not_compared_silently(bench: Bench, tmp_path: Path) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    settings = ["--loops", "2k", "--runs", "1", "--tests", "lock"]
    bench(*settings, "--json", str(before))
    bench(*settings, "--json", str(after), "--dma", "iommu", "--checked")
    done = subprocess.run(
        [*COMMAND[:-1], "compare", str(before), str(after)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    said = " ".join((done.stdout + done.stderr).split())
    assert "dma (off and mapped by a software IOMMU, tracked)" in said
    assert "checked mode (off and on: these are not the pool's figures)" in said


def test_tests_are_chosen(bench: Bench) -> None:
    result = bench(
        "--loops", "2k", "--runs", "1", "--tests", "*02*", "--tests", "for_loop", "--tests", "*02"
    )
    names = re.findall(r"Type:(\S+) Per", result.out)
    assert names == ["for_loop", "no-softirq-page_pool02", "tasklet_page_pool02_ptr_ring"]
    assert result.out.count("pp_tasklet_handler()") == 1
    result = bench("--loops", "2k", "--runs", "1", "--tests", "no-softirq*")
    assert "pp_tasklet_handler()" not in result.out


def test_list(bench: Bench) -> None:
    result = bench("--list")
    assert [line.split()[0] for line in result.out.splitlines()] == NAMES
    assert bench("simple", "--list", "--tests", "lock").out.split()[0] == "lock"


def test_baselines_run_ten_times(bench: Bench) -> None:
    out = bench("--loops", "1000", "--runs", "1").out
    counts = dict(re.findall(r"Type:(\S+) .*\(invoke count:(\d+) ", out))
    tenfold = {"for_loop", "atomic_inc"}
    assert counts == {name: "10000" if name in tenfold else "1000" for name in NAMES}


def test_a_short_period_is_warned_of_once(bench: Bench) -> None:
    result = bench("--loops", "2k", "--runs", "2")
    (line,) = [line for line in result.err.splitlines() if "too short" in line]
    assert re.search(
        r"warning: \S+ and 8 more ran for less than 0\.01 s .*--loops \d+[kMG]?$", line
    )


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--loops", "999"], "999 loops: can be 1000 to 4294967295"),
        (["--loops", "4294967296"], "4294967296 loops: can be 1000 to 4294967295"),
        (["--loops", "many"], "--loops 'many' is no count: use 1000000, 1_000_000, 10M or 1e7"),
        (["--loops", "-5"], "--loops '-5' is no count: use 1000000, 1_000_000, 10M or 1e7"),
        (["--runs", "0"], "0 runs: can be 1 to 1000"),
        (["--no-tracking"], "no tracking has no meaning without dma none or iommu"),
        (["--tests", "nothing"], "no test matches 'nothing'; --list shows all 9"),
        (["--tests", "lock,nothing"], "no test matches 'nothing'; --list shows all 9"),
        (["--tests", ""], "--tests: an empty pattern matches no test"),
        (["--cpu", "99999"], r"CPU 99999 is not one that this process may use: [\d,-]+"),
        (["--label", " "], "--label must be printable and not empty"),
        (["--json", "/nowhere/x.json"], "--json /nowhere/x.json: No such file or directory"),
        (["--json", "/"], "--json /: Is a directory"),
    ],
)
def test_wrong_settings_are_one_line_and_2(bench: Bench, args: list[str], text: str) -> None:
    result = bench(*args)
    assert result.status == 2
    assert result.out == ""
    (line,) = result.err.splitlines()
    assert line.startswith("pagepool bench: ")
    what = line.removeprefix("pagepool bench: ")
    assert what == text or re.fullmatch(text, what)


def test_a_full_disk_is_said(bench: Bench) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    result = bench("--loops", "2k", "--runs", "1", "--tests", "lock", "--json", "/dev/full")
    assert result.status == 1
    assert "pagepool bench: --json /dev/full: No space left on device" in result.err.splitlines()
    assert result.out.count("Type:lock Per") == 1


def test_a_full_disk_behind_the_output(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "--loops", "2k", "--runs", "1", "--tests", "lock"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "pagepool bench: standard output: No space left on device\n"


def test_without_standard_output(tmp_path: Path) -> None:
    saved = tmp_path / "x.json"
    command = " ".join([*COMMAND, "--loops", "2k", "--runs", "1", "--json", str(saved), ">&-"])
    done = subprocess.run(
        ["sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert len(read(str(saved)).builds[0].records) == len(NAMES)


def test_json_replaces_a_longer_file(bench: Bench, tmp_path: Path) -> None:
    saved = tmp_path / "x.json"
    saved.write_text("x" * 100_000)
    assert bench("--loops", "2k", "--runs", "1", "--json", str(saved)).status == 0
    assert len(read(str(saved)).builds[0].records) == len(NAMES)


def test_a_reader_that_leaves(tmp_path: Path) -> None:
    saved = tmp_path / "x.json"
    arguments = ["--loops", "20k", "--runs", "500", "--json", str(saved)]
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    for line in process.stdout:
        if line.startswith("time_bench: Type:tasklet_page_pool03_slow"):
            break
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=PATIENCE) == 141
    assert err == ""
    assert len(read(str(saved)).builds[0].records) >= len(NAMES)


def test_ctrl_c_keeps_what_was_measured(start_saved: tuple[Start, Path]) -> None:
    start, saved = start_saved
    process = start("--loops", "20k", "--runs", "1000", "--tests", "lock", "--json", str(saved))
    assert process.stdout is not None
    seen = 0
    lines = []
    for line in process.stdout:
        lines.append(line)
        seen += " Per elem: " in line
        if seen == 3:
            break
    # To everybody, as a terminal does it.
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    records = read(str(saved)).builds[0].records
    assert 3 <= len(records) < 1000
    assert ("".join(lines) + out).count("Type:lock Per") == len(records)
    assert f"pagepool bench: interrupted: {len(records)} records were kept" in err.splitlines()
    assert "Traceback" not in err
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_ctrl_c_in_a_long_loop(start_saved: tuple[Start, Path]) -> None:
    start, saved = start_saved
    process = start("--loops", "4294967295", "--tests", "atomic_inc", "--json", str(saved))
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith(": Loaded\n"):
            break
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert out == ""
    assert err == "pagepool bench: interrupted: nothing was measured\n"
    assert not saved.exists()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_nothing_measured_leaves_the_old_file(start_saved: tuple[Start, Path]) -> None:
    start, saved = start_saved
    saved.write_text("old")
    process = start("--loops", "4294967295", "--tests", "atomic_inc", "--json", str(saved))
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith(": Loaded\n"):
            break
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert saved.read_text() == "old"


def test_a_killed_worker_is_one_line_and_1(start_saved: tuple[Start, Path]) -> None:
    start, saved = start_saved
    process = start(
        "--loops", "200M", "--runs", "1", "--tests", "lock", "--tests", "for_loop",
        "--tests", "atomic_inc", "--json", str(saved),
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("time_bench: Type:for_loop "):
            break
    (worker,) = children(process.pid)
    os.kill(worker, signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert " Per elem: " not in out
    lines = [line for line in err.splitlines() if "warning" not in line]
    assert lines == [
        "pagepool bench: the worker died in atomic_inc, run 1: killed by SIGKILL (out of memory?)"
    ]
    assert [record.name for record in read(str(saved)).builds[0].records] == ["for_loop"]


def test_a_killed_parent_takes_the_worker_along(started: Start) -> None:
    process = started("--loops", "4294967295", "--tests", "atomic_inc")
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith(": Loaded\n"):
            break
    (worker,) = children(process.pid)
    process.kill()
    process.wait()
    assert wait_for(lambda: not is_running(worker))


def test_on_a_terminal_it_shows_a_table() -> None:
    status, text = on_terminal(["--loops", "20k", "--runs", "3"])
    assert status == 0
    assert "Type:" not in text
    assert "bench_page_pool_simple, 3 runs" in text
    rows = {
        line.split()[0]: line.split()[1:]
        for line in text.splitlines()
        if line.split() and line.split()[0] in NAMES
    }
    assert list(rows) == NAMES
    for cells in rows.values():
        ns, ns_range, cycles, cycles_range = cells[:4]
        low, high = map(float, ns_range.split(".."))
        assert low <= float(ns) <= high
        low, high = map(float, cycles_range.split(".."))
        assert low <= float(cycles) <= high
    assert "pinned cpu: " in text


def test_a_narrow_terminal_cuts_no_figure() -> None:
    status, text = on_terminal(["--loops", "20k", "--runs", "2"], columns=40)
    assert status == 0
    assert "…" not in text.rpartition("bench_page_pool_simple, 2 runs")[2]
    assert re.search(r"tasklet_page_pool01_fast_path +\d+\.\d{3}", text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1000000", 1_000_000),
        ("1_000_000", 1_000_000),
        ("10M", 10_000_000),
        ("10m", 10_000_000),
        ("1.5k", 1500),
        ("4G", 4_000_000_000),
        ("1e7", 10_000_000),
        ("2.5E+3", 2500),
        ("0", 0),
    ],
)
def test_counts(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    "text",
    ["", " ", "M", "1__0", "_1", "1_", "-1", "+1", "0x10", "1e", "1e-3", "1.5", "1.0001k", "1 0",
     "10MM", "1e7M", "nan", "inf", "1e100", "١٠٠٠", "9" * 50],
)  # fmt: skip
def test_no_counts(text: str) -> None:
    with pytest.raises(ValueError, match=r"no count|no whole number"):
        parse_count(text)


@pytest.fixture
def start_saved(started: Start, tmp_path: Path) -> tuple[Start, Path]:
    return started, tmp_path / "kept.json"


def test_until_decided_with_two_interpreters(bench: Bench, tmp_path: Path) -> None:
    """A against A, for real: nobody knows the figures, so what is held is who was run how often."""
    saved = tmp_path / "x.json"
    result = bench(
        "simple", "--loops", "20k", "--tests", "tasklet*,lock", "--until-decided",
        "--max-runs", "7", "--against", f"a={sys.executable}", "--json", str(saved),
        "--margin", "1000",
    )  # fmt: skip
    assert result.status == 0, result.err
    one, other = read(str(saved)).builds
    assert (one.label, other.label) == ("a", one.machine["pagepool"])
    assert one.machine["interpreter"] == sys.executable and "interpreter" not in other.machine
    assert len(one.runs) == len(other.runs) == 7
    assert result.out.startswith(f"a -> {other.label}\n")
    assert "round 7 of at most 7, look 1 of 1" in result.err


def test_until_decided_on_a_terminal() -> None:
    args = ["simple", "--loops", "2k", "--tests", "tasklet*01*", "--design", "ring,ours"]
    status, text = on_terminal([*args, "--until-decided", "--max-runs", "6"], columns=200)
    assert status == 0
    assert "look 1 of 1: 1 more decided, none is open" in text or "open: tasklet" in text
    assert "│ Verdict" in text or "┃ Verdict" in text
    assert "Per elem" not in text


@pytest.mark.parametrize(("output", "status"), [("/dev/full", 1), ("&-", 0)])
def test_until_decided_when_nobody_takes_the_table(
    tmp_path: Path, output: str, status: int
) -> None:
    saved = tmp_path / "x.json"
    args = ["simple", "--loops", "2k", "--tests", "tasklet*01*", "--design", "ring,ours"]
    args += ["--until-decided", "--max-runs", "6", "--json", str(saved)]
    done = subprocess.run(
        ["sh", "-c", f'"$@" >{output}', "sh", *COMMAND, *args],
        stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert ("standard output: No space left on device" in done.stderr) == bool(status)
    assert [len(build.runs) for build in read(str(saved)).builds] == [6, 6]
