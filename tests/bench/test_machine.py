# SPDX-License-Identifier: BSD-2-Clause
"""The description of a machine, from file trees that are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagepool.bench import machine
from pagepool.cli._bench import fact_lines
from pagepool.results.headings import fact


def make(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


CPU = "sys/devices/system/cpu"


def test_cpu_models(tmp_path: Path) -> None:
    x86 = make(tmp_path / "x86", {"proc/cpuinfo": "processor\t: 0\nmodel name\t: A B @ 3 GHz\n"})
    assert machine.cpu_model(x86) == "A B @ 3 GHz"
    tree = {"proc/cpuinfo": "processor: 0\n", "proc/device-tree/model": "Board 4\0"}
    assert machine.cpu_model(make(tmp_path / "board", tree)) == "Board 4"
    arm = {"proc/cpuinfo": "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"}
    assert machine.cpu_model(make(tmp_path / "arm", arm)) == "implementer 0x41 part 0xd0c"
    assert machine.cpu_model(tmp_path / "nothing") != ""


def test_mitigations(tmp_path: Path) -> None:
    folder = f"{CPU}/vulnerabilities"
    files = {
        f"{folder}/meltdown": "Not affected\n",
        f"{folder}/retbleed": "Vulnerable\n",
        f"{folder}/spec_rstack_overflow": "Mitigation: IBPB; SMT disabled\n",
        f"{folder}/spectre_v2": "Mitigation: Retpolines; IBPB: conditional; RSB filling\n",
    }
    found = machine.mitigations(make(tmp_path, files))
    assert found == "retbleed=Vulnerable; spec_rstack_overflow=IBPB; spectre_v2=Retpolines"
    assert machine.mitigations(tmp_path / "nothing") == ""
    none = make(tmp_path / "new", {f"{folder}/meltdown": "Not affected\n"})
    assert machine.mitigations(none) == "none needed"


def test_small_facts(tmp_path: Path) -> None:
    root = make(
        tmp_path,
        {
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            f"{CPU}/cpu2/cpufreq/scaling_governor": "performance\n",
            "proc/cpuinfo": "flags\t\t: fpu hypervisor lahf_lm\n",
        },
    )
    assert machine.transparent_huge_pages(root) == "madvise"
    assert machine.governor(2, root) == "performance"
    assert machine.governor(None, root) == ""
    assert machine.is_virtual(root)
    assert not machine.is_virtual(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("files", "allowed", "chosen"),
    [
        ({}, {0}, 0),
        ({}, {0, 1, 2, 3}, 3),
        ({f"{CPU}/isolated": "1-2\n"}, {0, 1, 3}, 1),
        ({f"{CPU}/isolated": "\n"}, {0, 1}, 1),
        # Fast cores first: the high numbers are the slow ones.
        ({f"{CPU}/cpu{n}/cpu_capacity": str(1024 if n < 2 else 400) for n in range(4)},
         {0, 1, 2, 3}, 1),
        ({f"{CPU}/cpu{n}/cpufreq/cpuinfo_max_freq": "5000" if n == 0 else "3000"
          for n in range(4)}, {0, 1, 2, 3}, 0),
        ({f"{CPU}/isolated": "3", f"{CPU}/cpu1/cpu_capacity": "1024"}, {1, 3}, 3),
    ],
)  # fmt: skip
def test_choice_of_a_cpu(
    tmp_path: Path, files: dict[str, str], allowed: set[int], chosen: int
) -> None:
    assert machine.choose_cpu(allowed, make(tmp_path, files)) == chosen


def test_cpu_lists() -> None:
    assert machine.parse_cpu_list("0-3,8") == {0, 1, 2, 3, 8}
    assert machine.parse_cpu_list("") == machine.parse_cpu_list("a,b-c,1-") == set()
    for cpus in ({0}, {0, 1, 2, 8}, {1, 3, 5}, set(range(64))):
        assert machine.parse_cpu_list(machine.format_cpu_list(cpus)) == cpus
    assert machine.format_cpu_list({0, 1, 2, 8}) == "0-2,8"


def test_every_fact_is_a_line_that_the_reader_takes() -> None:
    facts = machine.describe(None)
    assert facts["pinned cpu"] == "none"
    for line, (key, value) in zip(fact_lines(facts), facts.items(), strict=True):
        assert fact(line) == (key, value)


def test_control_characters_stay_out() -> None:
    assert machine.one_line("a\nb\x1b[31m\tc ") == "a b [31m c"
