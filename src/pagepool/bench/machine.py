# SPDX-License-Identifier: BSD-2-Clause
"""The machine that a benchmark runs on: what a reader must know to compare two figures.

Everything comes from files that may be missing; what cannot be known is never guessed: it is left
out, or said to be not known where figures depend on it.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import platform
import re
import zlib
from datetime import datetime
from pathlib import Path

from pagepool.results import facts, kinds
from pagepool.results.model import Machine

_CPUS = "sys/devices/system/cpu"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


def _text(path: Path) -> str:
    """A small file's text without the newline; empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\n\0 ")
    except OSError:
        return ""


def cpu_model(root: Path = Path("/")) -> str:
    """The CPU's name as the kernel gives it; the architecture where it gives none."""
    fields: dict[str, str] = {}
    for line in _text(root / "proc/cpuinfo").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    if name := fields.get("model name") or fields.get("Model"):
        return name
    if name := _text(root / "proc/device-tree/model"):
        return name
    if "CPU implementer" in fields:
        return f"implementer {fields['CPU implementer']} part {fields.get('CPU part', '?')}"
    return platform.machine() or "unknown"


def mitigations(root: Path = Path("/")) -> str:
    """What the kernel does about the CPU's vulnerabilities: ``name=what; ...``.

    Those that the CPU does not have are left out, and of each the first clause is kept.
    """
    found = []
    try:
        files = sorted((root / _CPUS / "vulnerabilities").iterdir())
    except OSError:
        return ""
    for file in files:
        if state := facts.mitigation(_text(file)):
            found.append(f"{file.name}={state}")
    return "; ".join(found) or "none needed"


def transparent_huge_pages(root: Path = Path("/")) -> str:
    """The chosen one of ``always [madvise] never``."""
    text = _text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    match = re.search(r"\[(\w+)\]", text)
    return match.group(1) if match else ""


#: Words in the names of a machine's maker and product -> the hypervisor that makes it.
_HYPERVISORS = {
    "QEMU": "QEMU", "KVM": "KVM", "VMware": "VMware", "Xen": "Xen", "VirtualBox": "VirtualBox",
    "Amazon EC2": "Amazon EC2", "Google Compute": "Google Compute", "Virtual Machine": "Hyper-V",
}  # fmt: skip


def virtual_machine(root: Path = Path("/")) -> str:
    """``no``, or the hypervisor below, ``yes`` where it has no name.

    x86 CPUs say whether there is one; elsewhere the firmware's tables may.
    """
    cpuinfo = _text(root / "proc/cpuinfo")
    flags = re.search(r"^flags\s*:.*$", cpuinfo, re.M)
    if flags and not re.search(r"\bhypervisor\b", flags[0]):
        return "no"
    names = [_text(root / "sys/class/dmi/id" / name) for name in ("sys_vendor", "product_name")]
    names.append(_text(root / "sys/hypervisor/type").replace("xen", "Xen"))
    for word, name in _HYPERVISORS.items():
        if any(word in text for text in names):
            return name
    return "yes" if flags else kinds.UNKNOWN


def governor(cpu: int | None, root: Path = Path("/")) -> str:
    """The frequency governor of a CPU (of CPU 0 for ``None``); ``none`` where there is none."""
    return _text(root / f"{_CPUS}/cpu{cpu or 0}/cpufreq/scaling_governor") or "none"


def frequency_driver(cpu: int | None, root: Path = Path("/")) -> str:
    """What sets the frequency of a CPU, ``none`` where nobody does."""
    return _text(root / f"{_CPUS}/cpu{cpu or 0}/cpufreq/scaling_driver") or "none"


def boost(cpu: int | None, root: Path = Path("/")) -> str:
    """``on``, ``off``: whether a CPU may run faster than its nominal frequency."""
    base = root / _CPUS
    for name, on in (
        ("intel_pstate/no_turbo", "0"),
        (f"cpu{cpu or 0}/cpufreq/boost", "1"),
        ("cpufreq/boost", "1"),
    ):
        if (text := _text(base / name)) in ("0", "1"):
            return "on" if text == on else "off"
    return kinds.UNKNOWN


def smt(root: Path = Path("/")) -> str:
    """``on``, ``off``: whether threads share a core."""
    return {"1": "on", "0": "off"}.get(_text(root / _CPUS / "smt/active"), kinds.UNKNOWN)


def boot_options(root: Path = Path("/")) -> str:
    """Those words of the kernel's command line that figures may depend on, or ``none``."""
    line = _text(root / "proc/cmdline")
    return kinds.boot_options(line) if line else kinds.UNKNOWN


def debugging(release: str, root: Path = Path("/")) -> str:
    """The options for debugging that the kernel was built with: ``A, B``, or ``none``."""
    for name in (
        "proc/config.gz",
        f"boot/config-{release}",
        f"lib/modules/{release}/config",
        f"lib/modules/{release}/build/.config",
    ):
        try:
            data = (root / name).read_bytes()
            text = (gzip.decompress(data) if name.endswith(".gz") else data).decode("latin-1")
        except (OSError, EOFError, zlib.error):
            continue
        known: Machine = {}
        for line in text.splitlines():
            if "CONFIG_" in line:
                facts.read(line, known)
        found = [name for name in kinds.DEBUGGING if known.get(f"config_{name.lower()}") == "y"]
        return ", ".join(found) or "none"
    return f"{kinds.UNKNOWN}, there is no configuration of this kernel to read"


def choose_cpu(allowed: set[int], root: Path = Path("/")) -> int:
    """The CPU to measure on: isolated before fast before any but CPU 0 before a high number.

    CPU 0 takes most interrupts; on machines with two sorts of cores the high numbers are the
    slow ones, so speed is asked for first.
    """
    return order_cpus(allowed, root)[0]


def order_cpus(allowed: set[int], root: Path = Path("/")) -> list[int]:
    """The CPUs to measure on, best first: by the rule of `choose_cpu`."""
    base = root / _CPUS
    isolated = parse_cpu_list(_text(base / "isolated"))

    def speed(cpu: int) -> int:
        for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
            text = _text(base / f"cpu{cpu}" / name)
            if text.isdecimal():
                return int(text)
        return 0

    def merit(cpu: int) -> tuple[bool, int, bool, int]:
        return (cpu in isolated, speed(cpu), cpu != 0, cpu)

    return sorted(allowed, key=merit, reverse=True)


def parse_cpu_list(text: str) -> set[int]:
    """The kernel's ``0-3,8``. What is no such list is empty."""
    cpus: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
        if match:
            cpus.update(range(int(match.group(1)), int(match.group(2) or match.group(1)) + 1))
    return cpus


def format_cpu_list(cpus: set[int]) -> str:
    """``{0, 1, 2, 8}`` as ``0-2,8``."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1][1:] = [cpu]
        else:
            parts.append([cpu])
    return ",".join("-".join(map(str, part)) for part in parts)


def describe(pinned: int | None, root: Path = Path("/")) -> Machine:
    """Facts about the machine itself, in the order to print them; the unknown is left out."""
    load = ""
    with contextlib.suppress(OSError):
        load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    system = os.uname()
    found = {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "cpu": cpu_model(root),
        "online cpus": str(os.cpu_count() or ""),
        "pinned cpu": "none" if pinned is None else str(pinned),
        "kernel": f"{system.sysname} {system.release} {system.machine}",
        "virtual machine": virtual_machine(root),
        "governor": governor(pinned, root),
        "frequency driver": frequency_driver(pinned, root),
        "boost": boost(pinned, root),
        "smt": smt(root),
        "thp": transparent_huge_pages(root) or kinds.UNKNOWN,
        "mitigations": mitigations(root) or kinds.UNKNOWN,
        "debugging": debugging(system.release, root),
        "boot options": boot_options(root),
        "load": load,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    return {key: one_line(value) for key, value in found.items() if value}


def one_line(text: str) -> str:
    """``text`` as the value of a ``# key: value`` line: no control characters, no edges."""
    return _CONTROL.sub(" ", text).strip()
