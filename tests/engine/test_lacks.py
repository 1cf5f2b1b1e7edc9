# SPDX-License-Identifier: BSD-2-Clause
"""What an arena asked the system for and could not have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pagepool

NUMA_MAPS = Path("/proc/self/numa_maps")


def policy(address: int) -> str:
    """The system's own word for where the memory at this address comes from."""
    found = ""
    for line in NUMA_MAPS.read_text().splitlines():
        start, word, *_ = line.split()
        if int(start, 16) <= address:
            found = word
    return found


def test_who_asks_for_nothing_lacks_nothing() -> None:
    assert pagepool.Arena(limit=4 << 20).info.lacks == ()
    assert pagepool.Region(bytearray(16384), node=1000).info.lacks == ()


@pytest.mark.parametrize("node", [0, 1, 1023])
def test_a_node_is_where_the_memory_comes_from_or_is_lacking(node: int) -> None:
    if not NUMA_MAPS.exists():
        pytest.skip("a kernel without NUMA")
    arena = pagepool.Arena(limit=4 << 20, node=node)
    sentence = (
        f"the memory is not bound to NUMA node {node}: the machine has no such node, or does not "
        "let the process ask for one"
    )
    with pagepool.PagePool(provider=arena) as pool, pool.alloc() as page:
        page.view()[:] = bytes(4096)
        assert page.node == node
        bound = policy(page.address) == f"prefer:{node}"
    assert arena.info.lacks == (() if bound else (sentence,))
    assert bound or not Path(f"/sys/devices/system/node/node{node}").exists() or refused()


def refused() -> bool:
    """Does a sandbox keep its processes from choosing a node?"""
    status = Path("/proc/self/status").read_text()
    return "Seccomp:\t0" not in status


def test_transparent_huge_pages_that_are_switched_off_are_lacking() -> None:
    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("a kernel without transparent huge pages")
    code = (
        "import ctypes, pagepool\n"
        "assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0  # PR_SET_THP_DISABLE\n"
        "print(pagepool.Arena(limit=4 << 20, huge='thp', node=1023).info.lacks[1:])\n"
        "print(pagepool.Arena(limit=4 << 20).info.lacks)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout == ("('no transparent huge pages: the system has them switched off',)\n()\n")
