# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool simulate`` from outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "simulate.md"


def run(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command; code: before it is imported."""
    start = f"import sys; sys.argv[0] = 'pagepool'; {code}\nfrom pagepool.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", start, "simulate", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def failed(*arguments: str) -> str:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


FEW = ("--cpus", "1,3", "--design", "ours,ring")


def test_a_table() -> None:
    done = run(*FEW)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("predicted by simulation, not measured")
    assert "predicted ns" in lines[2]
    rows = [line.split() for line in lines[3:7]]
    assert [row[:2] for row in rows] == [["ours", "1"], ["ours", "3"], ["ring", "1"], ["ring", "3"]]
    assert [row[-1] for row in rows[::2]] == ["1.00", "1.00"]
    assert float(rows[3][2]) > 3 * float(rows[1][2])
    assert "transfer: 30.0 ns, assumed; see --measure" in lines


def test_text_says_in_every_line_that_it_is_a_prediction() -> None:
    done = run(*FEW, "--format", "text", "--lines", "--transfer-ns", "45.5")
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "# predicted by simulation, not measured",
        "# transfer_ns: 45.5, as given",
        "# scenario: cross-cpu",
    ]
    assert all(line.startswith("predicted: design:") for line in lines[3:])
    lock = "predicted: design:ring returning_cpus:3 line:'lock and producer index' transfers:"
    assert sum(line.startswith(lock) for line in lines) == 1
    assert sum(" by_returner:" in line for line in lines) == 4
    assert sum(" line:" in line for line in lines) > 8


def test_json() -> None:
    done = run(*FEW, "--format", "json", "--check", "--transfer-ns", "50", "--seed", "3")
    document = json.loads(done.stdout)
    assert document["what"] == "predicted by simulation, not measured"
    assert document["transfer_ns"] == 50
    assert [(it["design"], it["cpus"], it["seed"]) for it in document["predicted"]] == [
        ("ours", 1, 3),
        ("ours", 3, 3),
        ("ring", 1, 3),
        ("ring", 3, 3),
    ]
    check = document["check"]
    assert check["measured"]["ns"]["2"] == [128.502, 274.861]
    assert check["predicted"]["same order"] is True
    # The ring's predictions are those of the check, times one factor.
    ring = {it["cpus"]: it["ns"] for it in document["predicted"] if it["design"] == "ring"}
    for cpus, ns in ring.items():
        scaled = ns * check["predicted"]["factor"]
        assert check["predicted"]["ns"][str(cpus)] == pytest.approx(scaled)


def test_the_check_is_shown_beside_what_was_measured() -> None:
    done = run("--cpus", "1", "--design", "ours", "--check")
    assert "129..275" in done.stdout
    assert re.search(r"order: the same; the worst is off by a factor of \d\.\d\d", done.stdout)


def test_lines_of_a_table() -> None:
    done = run("--cpus", "2", "--design", "ring", "--lines")
    assert re.search(r"^lock and producer index +ring +2 +\d+\.\d\d$", done.stdout, re.M)
    assert "transfers per returned page, predicted" in done.stdout


def test_output_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    done = run("--cpus", "1", "--design", "ours", "--format", "json", "--output", str(file))
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads(file.read_text())["predicted"][0]["design"] == "ours"


@pytest.mark.parametrize("cpus", ["0", "129", "1,x", "", "1,,2", "²"])
def test_cpus_that_cannot_be(cpus: str) -> None:
    assert "give numbers from 1 to 128" in failed("--cpus", cpus)


def test_other_things_that_cannot_be() -> None:
    assert "--design 'rings'" in failed("--design", "rings")
    assert "give one of them" in failed("--measure", "--transfer-ns", "10")
    assert "at most 16320" in failed("--cpus", "128", "--pages", "1000")
    assert "--transfer-ns" in failed("--transfer-ns", "0")
    assert "not with --scenario storm" in failed("--scenario", "storm", "--check")


def test_a_storm() -> None:
    done = run("--scenario", "storm", "--cpus", "1,2", "--design", "ring")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(", all of them before any is put\n")


NO_C = "sys.modules['pagepool.bench._lines'] = sys.modules['pagepool.engine._core'] = None"


def test_without_the_c_code() -> None:
    done = run("--cpus", "1", "--design", "ours", "--transfer-ns", "60", code=NO_C)
    assert (done.returncode, done.stderr) == (0, "")
    assert "transfer: 60.0 ns, as given" in done.stdout
    done = run("--measure", code=NO_C)
    assert done.returncode == 2
    assert "use --transfer-ns" in done.stderr


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_measure() -> None:
    done = run("--measure", "--cpus", "1", "--design", "ours")
    assert (done.returncode, done.stderr) == (0, "")
    found = re.search(r"transfer: (\d+\.\d) ns, measured between CPU \d+ and CPU \d+", done.stdout)
    assert found is not None
    assert 0.5 < float(found[1]) < 1e6


def test_measure_with_one_cpu() -> None:
    one = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])"
    done = run("--measure", code=one)
    assert done.returncode == 2
    assert "needs two CPUs" in done.stderr


def test_a_line_needs_two_cpus_of_the_process() -> None:
    lines = pytest.importorskip("pagepool.bench._lines")
    here = min(os.sched_getaffinity(0))
    for first, second, turns in ((here, here, 10), (here, 1 << 20, 10), (1 << 20, here, 10)):
        with pytest.raises(OSError, match="Invalid argument"):
            lines.transfer_ns(first, second, turns)


BLOCKS = re.findall(
    r"^```console\n\$ pagepool simulate([^\n]*)\n(.*?)^```", DOCS.read_text(), re.M | re.S
)


@pytest.mark.parametrize(("arguments", "expected"), BLOCKS)
def test_the_documentation_says_what_the_command_says(arguments: str, expected: str) -> None:
    done = run(*arguments.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected


def test_there_is_something_to_say() -> None:
    assert len(BLOCKS) >= 3
