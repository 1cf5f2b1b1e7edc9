# SPDX-License-Identifier: BSD-2-Clause
"""Recognisers of lines that say what a machine or a kernel is like, and so what figures depend on.

Lines of a boot (``Command line:``, ``Lock dependency validator:``, ``Spectre V2 : Mitigation:``),
of the benchmark modules, and of what people paste beside their figures: ``lscpu``,
``/proc/cpuinfo``, ``cpupower frequency-info``, files of ``/sys`` with their names in front, lines
of a kernel configuration. A further line is one more rule here; what it is about stands in
`pagepool.results.kinds`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from pagepool.results import kinds
from pagepool.results.model import Machine

#: Every line that `read` takes has one of these in it, or has less than 24 bytes.
NEEDLES = (
    b"CONFIG_", b"ommand line: ", b"BOOT_IMAGE=", b"itigation", b"ulnerable", b"odel name",
    b"achine model", b"CPU0: ", b"physical CPU", b"GHz", b"tsc: ", b"ypervisor", b"virtualiz",
    b"DMI: QEMU", b"SWIOTLB", b"omain type", b"invalidation pol", b"Lock depend", b"Sanitizer",
    b"csan: en", b"leak detector", b"being used.", b"Dynamic Pre", b"-init: stack", b"governor",
    b"_pstate", b"scaling_driver", b"no_turbo", b"/boost:", b"Thread(s)", b"tables isol",
    b"rstack_over", b"iommu=",
)  # fmt: skip

#: How the boot calls a vulnerability -> its file in ``/sys``. lscpu's names are the files'.
_BOOT_NAMES = {
    "speculative return stack overflow": "spec_rstack_overflow",
    "speculative store bypass": "spec_store_bypass",
    "taa": "tsx_async_abort",
    "register file data sampling": "reg_file_data_sampling",
    "gds": "gather_data_sampling",
    "its": "indirect_target_selection",
    "transient scheduler attacks": "tsa",
}
_VULNERABILITIES = frozenset(
    {"gather_data_sampling", "ghostwrite", "indirect_target_selection", "itlb_multihit", "l1tf",
     "mds", "meltdown", "mmio_stale_data", "old_microcode", "reg_file_data_sampling", "retbleed",
     "spec_rstack_overflow", "spec_store_bypass", "spectre_v1", "spectre_v2", "srbds", "tsa",
     "tsx_async_abort", "vmscape"}
)  # fmt: skip

_Found: TypeAlias = dict[str, str] | None


def _config(match: re.Match[str]) -> _Found:
    option = match["option"]
    if option not in kinds.CONFIG:
        return {}
    value = {None: "n", "enabled": "y"}.get(match["value"], match["value"])
    return {kinds.CONFIG_KEY + option.lower(): value}


def _mitigation(match: re.Match[str]) -> _Found:
    name = match["name"].strip().lower()
    name = _BOOT_NAMES.get(name, name.replace(" ", "_"))
    if name not in _VULNERABILITIES:
        return None
    state = mitigation(match["state"])
    return {kinds.MITIGATION_KEY + name: state} if state else {}


def mitigation(state: str) -> str:
    """A state in ``/sys`` or of lscpu: its first clause; empty if the CPU is not affected."""
    state = re.sub(r"^Mitigation[:;] ?", "", state.strip()).split(";")[0].strip()
    return "" if state == "Not affected" else state


def _switch(key: str, on: str) -> Callable[[re.Match[str]], _Found]:
    return lambda match: {key: "on" if match[1] == on else "off"}


def _value(key: str) -> Callable[[re.Match[str]], _Found]:
    return lambda match: {key: match[1].strip()}


def _is(key: str, value: str) -> Callable[[re.Match[str]], _Found]:
    return lambda match: {key: value}


def _midr(match: re.Match[str]) -> _Found:
    """The identification register of an arm64 CPU, as /proc/cpuinfo takes it apart."""
    midr = int(match[1], 16)
    return {"cpu": f"implementer {midr >> 24:#04x} part {midr >> 4 & 0xFFF:#05x}"}


def _boot_words(match: re.Match[str]) -> _Found:
    """A line of words of a command line and nothing else."""
    words = match[0].split()
    if "=" not in match[0] or not all(word.partition("=")[0] in kinds.BOOT for word in words):
        return None
    return {"boot options": " ".join(words)}


_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], _Found]], ...] = tuple(
    (re.compile(pattern), take)
    for pattern, take in (
        # The CPU that an oops ran on is none that somebody describes.
        (r"CPU: \d+ (?:UID|PID|Comm): .*", lambda match: {}),
        (r".*\bWARN: CONFIG_(?P<option>\w+) is (?P<value>enabled): this affects? results?",
         _config),
        (r"(?:[\w./-]*config[\w.+-]*:)?(?:[-*#] ?)?CONFIG_(?P<option>\w+)"
         r"(?:=(?P<value>\w+)| is not set)", _config),
        (r"Lock dependency validator: Copyright.*", _is("config_lockdep", "y")),
        (r"(?:kasan: )?KernelAddressSanitizer initialized.*", _is("config_kasan", "y")),
        (r"(?:kmsan: )?Starting KernelMemorySanitizer", _is("config_kmsan", "y")),
        (r"kcsan: enabled early", _is("config_kcsan", "y")),
        (r"kmemleak: Kernel memory leak detector initialized.*",
         _is("config_debug_kmemleak", "y")),
        (r"kmemleak: Kernel memory leak detector disabled", _is("config_debug_kmemleak", "n")),
        (r"\** *trace_printk\(\) being used\. .*", _is("trace_printk", "used")),
        (r"mem auto-init: stack:\S+ (heap alloc:\w+, heap free:\w+).*", _value("page contents")),
        (r"Dynamic Preempt: (\w+)", _value("preemption mode")),
        (r"(?:(?:Kernel )?[cC]ommand line: |BOOT_IMAGE=)(.*)",
         lambda match: {"boot options": kinds.boot_options(match[1])}),
        (r"[a-z_.0-9]+(?:=\S+)?(?: [a-z_.0-9]+(?:=\S+)?)*", _boot_words),
        (r"(?:\S*/vulnerabilities/|Vulnerability )?(?P<name>[A-Za-z][A-Za-z0-9_ ]{1,40}?) ?:\s*"
         r"(?P<state>(?:Mitigation[:;]|Vulnerable|Not affected).*)", _mitigation),
        (r"Kernel/User page tables isolation: enabled", _is("mitigation meltdown", "PTI")),
        (r"(?:[\w/]*/)?scaling_governor ?[:=] ?(\w+)", _value("governor")),
        (r"(?:[-*] )?(?:CPU |cpufreq |cpu frequency )?[gG]overnor ?: ?(\w+)", _value("governor")),
        (r'The governor "(\w+)" may decide which speed to use.*', _value("governor")),
        (r"(?:[\w/]*/)?scaling_driver ?[:=] ?([\w-]+)", _value("frequency driver")),
        (r"driver: ((?:intel|amd)_?[\w-]*pstate[\w-]*|acpi-cpufreq|pcc-cpufreq|cppc_cpufreq)",
         _value("frequency driver")),
        (r"intel_pstate: Intel P-state driver initializing.*",
         _is("frequency driver", "intel_pstate")),
        (r"(?:[\w/]*/)?no_turbo ?[:=] ?([01])", _switch("boost", "0")),
        (r"[\w/]*cpufreq/boost ?[:=] ?([01])", _switch("boost", "1")),
        (r"Thread\(s\) per core: +(\d+)",
         lambda match: {"smt": "off" if match[1] == "1" else "on"}),
        (r"(?:smpboot: )?CPU0: (.*?) (?:\(fam|stepping ).*", _value("cpu")),
        (r"Model name: +(\S.*)|model name ?: +(\S.*)",
         lambda match: {"cpu": match[1] or match[2]}),
        (r"Machine model: (\S.*)", _value("cpu")),
        (r"Booting Linux on physical CPU 0x[0-9a-f]+ \[0x([0-9a-f]{8})\]", _midr),
        (r"(?:[-*] )?((?:\d+ ?x )?(?:Intel|AMD|CPU)\b[^:]{3,60}@ ?\d+\.\d+ ?GHz)", _value("cpu")),
        (r"Hypervisor (?:detected|vendor): +(\S.*)", _value("virtual machine")),
        (r"(?:systemd\[1\]: )?Detected virtualization '?([\w-]+)'?\.?", _value("virtual machine")),
        (r"DMI: (QEMU) .*", _value("virtual machine")),
        (r"Booting paravirtualized kernel on (.*)", _value("paravirtualized")),
        (r"iommu: Default domain type: (\w+).*", _value("iommu")),
        (r"iommu: DMA domain TLB invalidation policy: (\w+).*", _value("iommu invalidation")),
        (r"PCI-DMA: Using software bounce buffering for IO \(SWIOTLB\)", _is("swiotlb", "used")),
        (r"tsc: Detected ([\d.]+ MHz) (?:TSC|processor)", _value("tsc")),
    )
)  # fmt: skip
#: What a boot says, and the next one says anew or not at all.
_OF_A_BOOT = frozenset(
    {"boot options", "trace_printk", "page contents", "preemption mode", "iommu", "swiotlb",
     "iommu invalidation", "tsc", "virtual machine", "paravirtualized", "frequency driver"}
)  # fmt: skip


def read(text: str, known: Machine) -> bool:
    """Whether a peeled line is about the machine or its kernel; what it says goes into ``known``.

    A line that is about them and says nothing that figures depend on is taken, too.
    """
    for pattern, take in _RULES:
        if (match := pattern.fullmatch(text)) and (found := take(match)) is not None:
            known.update(found)
            return True
    return False


def reboot(known: Machine) -> None:
    """Another kernel boots: what the one before it said, and nothing was measured on, is void."""
    for key in list(known):
        if key in _OF_A_BOOT or key.startswith((kinds.CONFIG_KEY, kinds.MITIGATION_KEY)):
            del known[key]
