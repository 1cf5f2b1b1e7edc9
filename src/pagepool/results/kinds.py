# SPDX-License-Identifier: BSD-2-Clause
"""What each recorded fact is about: the one table that readers, benchmarks and comparison share.

A fact of a kind is compared as that kind is (`pagepool.compare.unlike`). What is in no table is a
setting. Words of the kernel's command line and options of its configuration are facts too; the
benchmarks write them in one line each (``boot options``, ``debugging``), logs have them singly.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from pagepool.results.model import Build, Machine

Kind: TypeAlias = Literal[
    "machine", "clock", "dma", "loops", "debugging", "mitigations", "frequency", "virtual",
    "preemption", "settings", "free",
]  # fmt: skip

#: Keys of facts. ``free``: what is compared, when, and what no figure depends on.
KINDS: dict[str, Kind] = {
    "cpu": "machine",
    "counter": "clock",
    "tsc": "clock",
    "dma": "dma",
    "iommu": "dma",
    "iommu invalidation": "dma",
    "swiotlb": "dma",
    "loops": "loops",
    "checked mode": "debugging",
    "core build": "debugging",
    "trace_printk": "debugging",
    "governor": "frequency",
    "frequency driver": "frequency",
    "boost": "frequency",
    "smt": "frequency",
    "virtual machine": "virtual",
    "smp": "preemption",
    "preemption": "preemption",
    "preemption mode": "preemption",
    **dict.fromkeys(
        ("kernel", "version", "commit", "pagepool", "build", "label", "date", "time", "started",
         "finished", "load", "cpu freq", "uptime", "run", "command", "hostname", "host", "design",
         "python", "instructions", "interpreter"),
        "free",
    ),
}  # fmt: skip

#: Words of the kernel's command line that figures may depend on.
BOOT: dict[str, Kind] = {
    **dict.fromkeys(
        ("mitigations", "spec_rstack_overflow", "spectre_v2", "spectre_v2_user", "spectre_bhi",
         "retbleed", "pti", "nopti", "kpti", "nospectre_v1", "nospectre_v2", "nospectre_bhb",
         "spec_store_bypass_disable", "ssbd", "l1tf", "mds", "tsx_async_abort", "mmio_stale_data",
         "reg_file_data_sampling", "gather_data_sampling", "srbds",
         "indirect_target_selection", "tsa", "vmscape"),
        "mitigations",
    ),
    **dict.fromkeys(
        ("iommu", "iommu.passthrough", "iommu.strict", "intel_iommu", "amd_iommu", "arm-smmu",
         "swiotlb"),
        "dma",
    ),
    **dict.fromkeys(
        ("intel_pstate", "amd_pstate", "cpufreq.default_governor", "cpufreq.off", "idle",
         "processor.max_cstate", "intel_idle.max_cstate", "cpuidle.off", "nosmt"),
        "frequency",
    ),
    **dict.fromkeys(
        ("debug_pagealloc", "page_owner", "page_poison", "slub_debug", "slab_debug", "kmemleak",
         "kasan", "kasan.mode", "kcsan", "debug_objects", "page_table_check"),
        "debugging",
    ),
    **dict.fromkeys(("preempt", "threadirqs"), "preemption"),
    **dict.fromkeys(
        ("init_on_alloc", "init_on_free", "isolcpus", "nohz_full", "rcu_nocbs", "maxcpus", "nosmp",
         "tsc", "clocksource", "transparent_hugepage", "nokaslr", "numa"),
        "settings",
    ),
}  # fmt: skip

#: Options of a kernel configuration that make locks, preemption, or the page allocator dearer.
DEBUGGING = (
    "LOCKDEP", "PROVE_LOCKING", "LOCK_STAT", "DEBUG_LOCK_ALLOC", "DEBUG_SPINLOCK",
    "DEBUG_MUTEXES", "DEBUG_RT_MUTEXES", "DEBUG_ATOMIC_SLEEP", "DEBUG_PREEMPT", "DEBUG_IRQFLAGS",
    "PROVE_RCU", "TRACE_IRQFLAGS", "TRACE_PREEMPT_TOGGLE", "KASAN", "KCSAN", "KMSAN",
    "DEBUG_KMEMLEAK", "DEBUG_PAGEALLOC", "DEBUG_OBJECTS", "DEBUG_VM", "DEBUG_NET",
    "SLUB_DEBUG_ON", "KCOV", "GCOV_KERNEL",
)  # fmt: skip
CONFIG: dict[str, Kind] = {
    **dict.fromkeys(DEBUGGING, "debugging"),
    **dict.fromkeys(
        ("PREEMPT", "PREEMPT_NONE", "PREEMPT_VOLUNTARY", "PREEMPT_LAZY", "PREEMPT_RT",
         "PREEMPT_DYNAMIC", "SMP"),
        "preemption",
    ),
    **dict.fromkeys(
        ("PAGE_POOL_STATS", "INIT_ON_ALLOC_DEFAULT_ON", "INIT_ON_FREE_DEFAULT_ON", "HZ"),
        "settings",
    ),
}  # fmt: skip

#: In the keys of facts that are read singly.
CONFIG_KEY = "config_"
MITIGATION_KEY = "mitigation "
#: A value that says that nothing is known.
UNKNOWN = "not known"

_OPTION = "CONFIG_"
_BOOT = "boot option "
_VERSION = re.compile(r"#\d+\S*((?: (?:SMP|PREEMPT\S*))*)(?: |$)")


def kind(name: str) -> Kind:
    """What a fact is about; ``name`` as `of` gives it."""
    if name.startswith(_OPTION):
        return CONFIG.get(name.removeprefix(_OPTION), "settings")
    if name.startswith(_BOOT):
        return BOOT.get(name.removeprefix(_BOOT), "settings")
    if name.startswith(MITIGATION_KEY):
        return "mitigations"
    return KINDS.get(name, "settings")


def boot_options(line: str) -> str:
    """The words of a kernel command line that are in `BOOT`, or ``none``."""
    words = [word for word in line.split() if word.partition("=")[0] in BOOT]
    return " ".join(words) or "none"


def of(build: Build) -> Machine:
    """Every fact about a build, one by one; what is not known is not in it.

    Options of a kernel configuration are ``CONFIG_NAME`` (``y``, ``n``), mitigations ``mitigation
    spectre_v2``, words of the command line ``boot option NAME``. What a line lists is all that
    there is of it: the rest is ``n``, or ``not given``.
    """
    facts: Machine = dict(_of_kernel(build.kernel or ""))
    settings = [run.settings for run in build.runs]
    for key, value in settings[0].items() if settings else ():
        if kind(key) == "dma" and all(one.get(key) == value for one in settings):
            facts[key] = value
    for key, value in build.machine.items():
        if value.startswith(UNKNOWN):
            continue
        if key == "debugging":
            listed = value.replace(",", " ").split()
            facts |= {_OPTION + name: "y" if name in listed else "n" for name in DEBUGGING}
        elif key == "mitigations":
            parts = (part.partition("=") for part in value.split(";"))
            facts |= {
                MITIGATION_KEY + name.strip(): what.strip() for name, _, what in parts if what
            }
        elif key == "boot options":
            given = dict((word.partition("=")[::2]) for word in value.split())
            facts |= {_BOOT + name: given.get(name, "not given") or "given" for name in BOOT}
        elif key.startswith(CONFIG_KEY):
            facts[key.upper()] = value
        elif key == "paravirtualized":
            facts.setdefault("virtual machine", "no" if value == "bare hardware" else value)
        else:
            facts[key] = value
    return facts


def shown(name: str) -> str:
    """How a fact of `of` is called in a sentence."""
    return name.removeprefix(MITIGATION_KEY).removeprefix(_BOOT)


def debugging(facts: Machine) -> list[str]:
    """What of a kernel's debugging is switched on; ``facts`` as `of` gives them."""
    found = []
    for name, value in facts.items():
        if name.startswith(_OPTION):
            if value == "y" and kind(name) == "debugging":
                found.append(name.removeprefix(_OPTION))
        elif name.startswith(_BOOT):
            if kind(name) == "debugging" and value not in ("not given", "off", "0", "n"):
                found.append(shown(name) if value == "given" else f"{shown(name)}={value}")
        elif name == "trace_printk":
            found.append(name)
    return found


def tells_debugging(facts: Machine) -> bool:
    """Whether it is known which options for debugging a kernel was built with."""
    return any(name.startswith(_OPTION) and kind(name) == "debugging" for name in facts)


def slow_core(facts: Machine) -> list[str]:
    """What makes the figures of this project's own core none of a pool in use."""
    build = facts.get("core build", "")
    slow = "sanitized" in build or build.partition(",")[0] == "debug"
    found = [f"core build: {build}"] if slow else []
    return found + (["checked mode"] if facts.get("checked mode", "off") != "off" else [])


def _of_kernel(text: str) -> dict[str, str]:
    """What a version line says behind the number of the build: ``#3 SMP PREEMPT_DYNAMIC``."""
    match = _VERSION.search(text)
    if match is None:
        return {}
    words = match.group(1).split()
    return {
        "smp": "yes" if "SMP" in words else "no",
        "preemption": next((word for word in words if word != "SMP"), "none"),
    }
