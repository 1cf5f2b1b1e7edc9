# SPDX-License-Identifier: BSD-2-Clause
"""Lines that say what a machine and its kernel are like, and the builds that they go to."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from pagepool.results import kinds
from pagepool.results.facts import NEEDLES, read, reboot
from pagepool.results.lines import RawLine, peel
from pagepool.results.model import Build, ResultSet, Run
from pagepool.results.reader import read as read_file
from pagepool.results.reader import read_stream
from pagepool.results.text import TextReader

LINES: list[tuple[str, dict[str, str]]] = [
    # Debugging.
    ("bench_page_pool_simple: WARN: CONFIG_DEBUG_PREEMPT is enabled: this affect results",
     {"config_debug_preempt": "y"}),
    ("[    0.005602] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar",
     {"config_lockdep": "y"}),
    ("[    0.000000] kasan: KernelAddressSanitizer initialized (generic)", {"config_kasan": "y"}),
    ("[    0.711953][    T0] Starting KernelMemorySanitizer", {"config_kmsan": "y"}),
    ("[    0.498246] kcsan: enabled early", {"config_kcsan": "y"}),
    ("[    4.667082] kmemleak: Kernel memory leak detector initialized (mem pool available: 15576)",
     {"config_debug_kmemleak": "y"}),
    ("[    0.000000] kmemleak: Kernel memory leak detector disabled",
     {"config_debug_kmemleak": "n"}),
    ("[  471.689716] ** trace_printk() being used. Allocating extra memory.  **",
     {"trace_printk": "used"}),
    ("CONFIG_PROVE_LOCKING=y", {"config_prove_locking": "y"}),
    ("# CONFIG_DEBUG_LOCK_ALLOC=y", {"config_debug_lock_alloc": "y"}),
    ("# CONFIG_PROVE_LOCKING is not set", {"config_prove_locking": "n"}),
    ("/boot/config-6.1.0-28-amd64:CONFIG_PAGE_POOL_STATS=y", {"config_page_pool_stats": "y"}),
    ("CONFIG_LOCALVERSION_AUTO=y", {}),
    ("[    0.056173] mem auto-init: stack:all(zero), heap alloc:on, heap free:off",
     {"page contents": "heap alloc:on, heap free:off"}),
    ("[    0.079225] Dynamic Preempt: voluntary", {"preemption mode": "voluntary"}),
    # Mitigations, of the boot, lscpu and /sys.
    ("[    0.302077] Speculative Return Stack Overflow: Mitigation: Safe RET",
     {"mitigation spec_rstack_overflow": "Safe RET"}),
    ("Vulnerability Spec rstack overflow:      Mitigation; Safe RET",
     {"mitigation spec_rstack_overflow": "Safe RET"}),
    ("  Spec rstack overflow:    Vulnerable: Safe RET, no microcode",
     {"mitigation spec_rstack_overflow": "Vulnerable: Safe RET, no microcode"}),
    ("/sys/devices/system/cpu/vulnerabilities/spectre_v2:Mitigation: Retpolines; IBPB: conditional",
     {"mitigation spectre_v2": "Retpolines"}),
    ("[    0.120761] Spectre V2 : Mitigation: Enhanced / Automatic IBRS",
     {"mitigation spectre_v2": "Enhanced / Automatic IBRS"}),
    ("[    0.1] Kernel/User page tables isolation: enabled", {"mitigation meltdown": "PTI"}),
    # The command line.
    ("[    0.0] Kernel command line: BOOT_IMAGE=/vmlinuz root=UUID=1 ro mitigations=off iommu=pt",
     {"boot options": "mitigations=off iommu=pt"}),
    ("[    0.000000] Command line: root=/dev/vda1 console=ttyS0 quiet", {"boot options": "none"}),
    ("spec_rstack_overflow=ibpb", {"boot options": "spec_rstack_overflow=ibpb"}),
    # Frequency.
    ("scaling_governor: performance", {"governor": "performance"}),
    ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor:powersave", {"governor": "powersave"}),
    ('                  The governor "ondemand" may decide which speed to use',
     {"governor": "ondemand"}),
    ("  driver: intel_pstate", {"frequency driver": "intel_pstate"}),
    ("[    1.2] intel_pstate: Intel P-state driver initializing",
     {"frequency driver": "intel_pstate"}),
    ("/sys/devices/system/cpu/intel_pstate/no_turbo:1", {"boost": "off"}),
    ("/sys/devices/system/cpu/cpufreq/boost:1", {"boost": "on"}),
    ("Thread(s) per core:                   2", {"smt": "on"}),
    # The machine.
    ("[    0.736688] smpboot: CPU0: AMD Ryzen 9 3900X 12-Core Processor (family: 0x17, model: 0x71,"
     " stepping: 0x0)", {"cpu": "AMD Ryzen 9 3900X 12-Core Processor"}),
    ("Model name:                         Intel(R) Xeon(R) CPU E5-1650 v4 @ 3.60GHz",
     {"cpu": "Intel(R) Xeon(R) CPU E5-1650 v4 @ 3.60GHz"}),
    ("model name\t: AMD EPYC 9684X 96-Core Processor",
     {"cpu": "AMD EPYC 9684X 96-Core Processor"}),
    (" - CPU E5-1650 v4 @ 3.60GHz", {"cpu": "CPU E5-1650 v4 @ 3.60GHz"}),
    (" - 2 x Intel(R) Xeon(R) Gold 6140 CPU @ 2.30GHz",
     {"cpu": "2 x Intel(R) Xeon(R) Gold 6140 CPU @ 2.30GHz"}),
    ("[    0.000000] Booting Linux on physical CPU 0x0000080000 [0x481fd010]",
     {"cpu": "implementer 0x48 part 0xd01"}),
    ("[    0.000000] Hypervisor detected: KVM", {"virtual machine": "KVM"}),
    ("[    0.041426] Booting paravirtualized kernel on bare hardware",
     {"paravirtualized": "bare hardware"}),
    ("[    0.330654] iommu: Default domain type: Passthrough (set via kernel command line)",
     {"iommu": "Passthrough"}),
    ("[    0.331] iommu: DMA domain TLB invalidation policy: lazy mode",
     {"iommu invalidation": "lazy"}),
    ("[    0.000000] tsc: Detected 3600.000 MHz TSC", {"tsc": "3600.000 MHz"}),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "said"), LINES)
def test_a_line_and_what_it_says(raw: str, said: dict[str, str]) -> None:
    known: dict[str, str] = {}
    assert read(peel(raw).text, known)
    assert known == said
    # The reader of text looks at no other line.
    assert len(raw) < 24 or any(needle in raw.encode() for needle in NEEDLES)


@pytest.mark.parametrize(
    "text",
    [
        "I ran it with mitigations=off and saw no change",
        "iommu or not, that is the question",
        "preempt",
        "idle",
        "+CONFIG_PROVE_LOCKING=y",
        "Spectre V2 : User space: Mitigation: STIBP via prctl",
        "This Mitigation: see below",
        "my CPU E5-1650 v4 @ 3.60GHz is old",
        "cpuidle: using governor menu",
        "Dynamic Preempt: unsupported mode: lazy",
        "time_bench: Type:lock Per elem: 1 cycles(tsc) 0.284 ns (step:0)",
    ],
)
def test_what_says_nothing(text: str) -> None:
    known: dict[str, str] = {}
    assert not read(text, known)
    assert known == {}


def test_the_cpu_of_an_oops_is_nobodys_machine() -> None:
    known: dict[str, str] = {}
    assert read("CPU: 3 UID: 0 PID: 1423 Comm: insmod Not tainted 6.13.0 #3", known)
    assert known == {}


BOOT = """\
[    0.000000] Linux version {release} (gcc 12) #{n} SMP {preempt} Mon Jan 13 12:37:00 CET 2025
[    0.000000] Command line: root=/dev/sda1 {options}
[    0.000000] tsc: Detected 3600.0{n}0 MHz TSC
"""
RUN = """\
[  157.475084] bench_page_pool_simple: Loaded
[  157.761534] time_bench: Type:lock Per elem: 31 cycles(tsc) 8.611 ns (step:0) - (measurement \
period time:0.861112{n}01 sec time_interval:861112{n}01) - (invoke count:100000000 \
tsc_interval:31000037{n}0)
"""
LOCKDEP = "[    0.1] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar\n"


def builds(text: str) -> tuple[Build, ...]:
    lines = (RawLine(n, line.encode(), False) for n, line in enumerate(text.splitlines(True), 1))
    results: ResultSet = TextReader("log").read(lines)
    return results.builds


def boot(n: int, release: str = "6.13", options: str = "quiet", preempt: str = "PREEMPT") -> str:
    return BOOT.format(n=n, release=release, options=options, preempt=preempt)


def test_the_lines_of_a_boot_go_to_the_runs_of_that_boot() -> None:
    one, two = builds(boot(1) + LOCKDEP + RUN.format(n=1) + boot(2, "6.14") + RUN.format(n=2))
    assert one.machine["config_lockdep"] == "y"
    assert "config_lockdep" not in two.machine
    assert kinds.of(one)["preemption"] == "PREEMPT"


@pytest.mark.parametrize("stamp", ["[    1.{n:06}] ", "Jan  7 15:15:18 host kernel: "])
def test_a_boot_is_found_among_many_other_lines(stamp: str) -> None:
    """Blocks of a log in which nothing matters are not looked at line by line."""
    many = "".join(
        stamp.format(n=n) + f"pci 0000:c9:00.{n}: enabling Extended Tags\n" for n in range(20_000)
    )
    lockdep = stamp.format(n=1) + LOCKDEP.partition("] ")[2]
    late = "".join(
        f"[{n:5}.000000] usb 1-{n}: new high-speed USB device\n" for n in range(1000, 9000)
    )
    text = many + lockdep + many + late + RUN.format(n=1).replace("157", "9999")
    (one,) = read_stream(io.BytesIO(text.encode()), "log").builds
    assert one.machine == {"config_lockdep": "y"}


def test_a_boot_without_a_run_says_nothing_of_the_next_one() -> None:
    (one,) = builds(boot(1, "6.13-debug") + LOCKDEP + boot(2, "6.13") + RUN.format(n=1))
    assert one.label == "6.13"
    assert "config_lockdep" not in one.machine


def test_one_kernel_booted_otherwise_is_another_build() -> None:
    text = boot(1) + RUN.format(n=1) + boot(2, options="mitigations=off") + RUN.format(n=2)
    assert [build.machine["boot options"] for build in builds(text)] == ["none", "mitigations=off"]
    # Not because its counter was measured anew.
    text = boot(1) + RUN.format(n=1) + boot(2) + RUN.format(n=2)
    assert [len(build.runs) for build in builds(text)] == [2]


def test_what_one_load_warns_of_makes_no_other_build() -> None:
    warning = "[  157.5] time_bench: WARN: CONFIG_DEBUG_PREEMPT is enabled: this affect results\n"
    runs = [RUN.format(n=n).replace("Loaded\n", "Loaded\n" + warning) for n in (1, 2)]
    (one,) = builds(boot(1) + LOCKDEP + "".join(runs))
    assert len(one.runs) == 2
    assert kinds.debugging(kinds.of(one)) == ["LOCKDEP", "DEBUG_PREEMPT"]


def test_reboot_keeps_what_no_boot_says() -> None:
    known = {"cpu": "A", "governor": "performance", "config_kasan": "y", "mitigation mds": "x",
             "boot options": "none"}  # fmt: skip
    reboot(known)
    assert known == {"cpu": "A", "governor": "performance"}


def test_lists_of_our_own_are_taken_apart() -> None:
    machine = {
        "debugging": "LOCKDEP, KASAN",
        "mitigations": "spectre_v2=Retpolines; tsa=Vulnerable: No microcode",
        "boot options": "mitigations=off nosmt",
        "boost": "not known",
    }
    facts = kinds.of(Build("x", machine=machine, kernel="Linux 6.18 x86_64"))
    assert facts["CONFIG_LOCKDEP"] == facts["CONFIG_KASAN"] == "y"
    assert facts["CONFIG_DEBUG_PREEMPT"] == "n"
    assert facts["mitigation spectre_v2"] == "Retpolines"
    assert facts["mitigation tsa"] == "Vulnerable: No microcode"
    assert facts["boot option mitigations"] == "off"
    assert facts["boot option nosmt"] == "given"
    assert facts["boot option iommu"] == "not given"
    assert "boost" not in facts and "preemption" not in facts


def test_the_settings_of_all_runs_are_facts() -> None:
    def of(*settings: str) -> str | None:
        runs = tuple(Run((), {"dma": text} if text else {}) for text in settings)
        return kinds.of(Build("x", runs)).get("dma")

    assert of("map", "map") == "map"
    assert of("map", "sync") is None
    assert of("", "map") is None


@pytest.mark.parametrize(
    ("kernel", "smp", "preemption"),
    [
        ("6.13.0 #3 SMP PREEMPT_DYNAMIC Mon Jan 13 12:37:00 CET 2025", "yes", "PREEMPT_DYNAMIC"),
        ("Linux version 6.12 (gcc 12) #1 SMP PREEMPT_RT Debian", "yes", "PREEMPT_RT"),
        ("Linux version 6.12 (gcc 12) #1 SMP Debian", "yes", "none"),
        ("Linux version 6.12 (gcc 12) #7 PREEMPT Wed Jan 15", "no", "PREEMPT"),
        ("Linux 6.18 x86_64", None, None),
    ],
)
def test_the_version_line_says_how_it_preempts(
    kernel: str, smp: str | None, preemption: str | None
) -> None:
    facts = kinds.of(Build("x", kernel=kernel))
    assert (facts.get("smp"), facts.get("preemption")) == (smp, preemption)


def test_bare_hardware_is_no_virtual_machine_unless_somebody_says_so() -> None:
    bare = {"paravirtualized": "bare hardware"}
    assert kinds.of(Build("x", machine=bare))["virtual machine"] == "no"
    both = {**bare, "virtual machine": "VMware"}
    for machine in (both, dict(reversed(both.items()))):
        assert kinds.of(Build("x", machine=machine))["virtual machine"] == "VMware"


def test_the_real_inputs_have_the_cpus_that_people_write() -> None:
    data = Path(__file__).parents[1] / "data"
    for name, cpu in (
        ("control-and-test.txt", "2 x Intel(R) Xeon(R) Gold 6140 CPU @ 2.30GHz"),
        ("aligned-columns.txt", "CPU E5-1650 v4 @ 3.60GHz"),
    ):
        assert read_file(str(data / name)).builds[0].machine["cpu"] == cpu
