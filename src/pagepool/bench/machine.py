# SPDX-License-Identifier: BSD-2-Clause
"""The machine that a benchmark runs on: what a reader must know to compare two figures.

Everything comes from files that may be missing; what cannot be known is left out, never guessed.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
from datetime import datetime
from pathlib import Path

from pagepool.results.model import Machine

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
        files = sorted((root / "sys/devices/system/cpu/vulnerabilities").iterdir())
    except OSError:
        return ""
    for file in files:
        state = _text(file).split(";")[0].strip()
        if state and state != "Not affected":
            found.append(f"{file.name}={state.removeprefix('Mitigation: ')}")
    return "; ".join(found) or "none needed"


def transparent_huge_pages(root: Path = Path("/")) -> str:
    """The chosen one of ``always [madvise] never``."""
    text = _text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    match = re.search(r"\[(\w+)\]", text)
    return match.group(1) if match else ""


def is_virtual(root: Path = Path("/")) -> bool:
    """Whether the CPU says that a hypervisor is below it (x86 only)."""
    return bool(re.search(r"^flags\s*:.*\bhypervisor\b", _text(root / "proc/cpuinfo"), re.M))


def governor(cpu: int | None, root: Path = Path("/")) -> str:
    """The frequency governor of a CPU (of CPU 0 for ``None``); empty where there is none."""
    return _text(root / f"sys/devices/system/cpu/cpu{cpu or 0}/cpufreq/scaling_governor")


def choose_cpu(allowed: set[int], root: Path = Path("/")) -> int:
    """The CPU to measure on: isolated before fast before any but CPU 0 before a high number.

    CPU 0 takes most interrupts; on machines with two sorts of cores the high numbers are the
    slow ones, so speed is asked for first.
    """
    return order_cpus(allowed, root)[0]


def order_cpus(allowed: set[int], root: Path = Path("/")) -> list[int]:
    """The CPUs to measure on, best first: by the rule of `choose_cpu`."""
    base = root / "sys/devices/system/cpu"
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
    facts = {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "cpu": cpu_model(root),
        "online cpus": str(os.cpu_count() or ""),
        "pinned cpu": "none" if pinned is None else str(pinned),
        "kernel": f"{system.sysname} {system.release} {system.machine}",
        "virtual machine": "yes" if is_virtual(root) else "",
        "governor": governor(pinned, root),
        "thp": transparent_huge_pages(root),
        "mitigations": mitigations(root),
        "load": load,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    return {key: one_line(value) for key, value in facts.items() if value}


def one_line(text: str) -> str:
    """``text`` as the value of a ``# key: value`` line: no control characters, no edges."""
    return _CONTROL.sub(" ", text).strip()
