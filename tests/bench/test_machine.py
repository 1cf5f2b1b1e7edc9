# SPDX-License-Identifier: BSD-2-Clause
"""The description of a machine, from file trees that are made up."""

from __future__ import annotations

import gzip
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
            f"{CPU}/cpu2/cpufreq/scaling_driver": "amd-pstate-epp\n",
            f"{CPU}/smt/active": "1\n",
            "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 mitigations=off quiet nosmt\n",
        },
    )
    assert machine.transparent_huge_pages(root) == "madvise"
    assert machine.governor(2, root) == "performance"
    assert machine.governor(None, root) == "none"
    assert machine.frequency_driver(2, root) == "amd-pstate-epp"
    assert machine.smt(root) == "on"
    assert machine.boot_options(root) == "mitigations=off nosmt"
    nothing = tmp_path / "nothing"
    assert machine.smt(nothing) == machine.boot_options(nothing) == "not known"
    quiet = make(tmp_path / "quiet", {"proc/cmdline": "root=/dev/sda1 quiet\n"})
    assert machine.boot_options(quiet) == "none"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "not known"),
        ({"proc/cpuinfo": "flags\t\t: fpu lahf_lm\n"}, "no"),
        ({"proc/cpuinfo": "flags\t\t: fpu hypervisor lahf_lm\n"}, "yes"),
        ({"proc/cpuinfo": "flags\t\t: fpu hypervisor\n",
          "sys/class/dmi/id/sys_vendor": "QEMU\n"}, "QEMU"),
        # No flag on arm64, but firmware.
        ({"sys/class/dmi/id/product_name": "KVM Virtual Machine\n"}, "KVM"),
        ({"proc/cpuinfo": "Features\t: fp asimd\n",
          "sys/class/dmi/id/sys_vendor": "Ampere\n"}, "not known"),
        # A bare machine of a maker of hypervisors is bare.
        ({"proc/cpuinfo": "flags\t\t: fpu\n",
          "sys/class/dmi/id/sys_vendor": "Google Compute Engine\n"}, "no"),
    ],
)  # fmt: skip
def test_virtual_machines(tmp_path: Path, files: dict[str, str], said: str) -> None:
    assert machine.virtual_machine(make(tmp_path, files)) == said


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "not known"),
        ({f"{CPU}/intel_pstate/no_turbo": "1\n"}, "off"),
        ({f"{CPU}/intel_pstate/no_turbo": "0\n"}, "on"),
        ({f"{CPU}/cpufreq/boost": "1\n"}, "on"),
        ({f"{CPU}/cpufreq/boost": "1\n", f"{CPU}/cpu3/cpufreq/boost": "0\n"}, "off"),
    ],
)
def test_boost(tmp_path: Path, files: dict[str, str], said: str) -> None:
    assert machine.boost(3, make(tmp_path, files)) == said


CONFIG = "# CONFIG_KASAN is not set\nCONFIG_DEBUG_PREEMPT=y\nCONFIG_PROVE_LOCKING=y\nCONFIG_NET=y\n"


def test_options_for_debugging(tmp_path: Path) -> None:
    said = "PROVE_LOCKING, DEBUG_PREEMPT"
    assert machine.debugging("6.1", make(tmp_path / "boot", {"boot/config-6.1": CONFIG})) == said
    packed = tmp_path / "packed"
    (packed / "proc").mkdir(parents=True)
    (packed / "proc/config.gz").write_bytes(gzip.compress(CONFIG.encode()))
    assert machine.debugging("6.1", packed) == said
    # What cannot be unpacked is not all that there is.
    (packed / "proc/config.gz").write_bytes(b"nothing")
    assert machine.debugging("6.1", packed).startswith("not known")
    make(packed, {"boot/config-6.1": "CONFIG_NET=y\n"})
    assert machine.debugging("6.1", packed) == "none"
    # The configuration of another kernel says nothing of this one.
    assert machine.debugging("6.2", packed).startswith("not known")


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
    always = ["virtual machine", "governor", "frequency driver", "boost", "smt", "thp"]
    assert {*always, "mitigations", "debugging", "boot options"} <= facts.keys()
    for line, (key, value) in zip(fact_lines(facts), facts.items(), strict=True):
        assert fact(line) == (key, value)


def test_control_characters_stay_out() -> None:
    assert machine.one_line("a\nb\x1b[31m\tc ") == "a b [31m c"
