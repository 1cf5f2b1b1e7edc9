# SPDX-License-Identifier: BSD-2-Clause
"""The peers side by side: runs what was built, in turns, and prints one table.

Every peer is a process that stays alive. A round runs all that one row of the table compares back
to back, 20 ms each, in an order that changes from round to round; the order of the rows is
shuffled in every round. So a machine that gets slower or faster meanwhile does it to everybody.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes.util
import fnmatch
import json
import os
import platform
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from peer_process import Peer, PeerError, Slice, executable
from peer_report import (
    HEADER,
    Comparison,
    Round,
    Row,
    Slot,
    document,
    make_row,
    table,
    text_table,
)

HERE = Path(__file__).resolve().parent
CALIBRATE_LOOPS = 1000
# A slice in which somebody else had the CPU is done again, once.
TRIES = 2


# ---- who takes part ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """How a peer is started, and what to install when it cannot be."""

    name: str
    program: str
    package: str = ""
    preload: str = ""  # the name of a library, as the linker knows it
    threads: bool = False  # with a second thread, which sleeps


RECIPES = (
    Recipe("pagepool", "peer-pagepool"),
    Recipe("control", "peer-pagepool"),  # ours once more: what the harness makes of no difference
    Recipe("dpdk", "peer-dpdk", "libdpdk-dev"),
    Recipe("glibc", "peer-malloc"),
    Recipe("jemalloc", "peer-malloc", "libjemalloc-dev", "jemalloc"),
    Recipe("mimalloc", "peer-malloc", "libmimalloc-dev", "mimalloc"),
    Recipe("python", "peers_python.py"),
    Recipe("pagepool+thread", "peer-pagepool", threads=True),
    Recipe("glibc+thread", "peer-malloc", threads=True),
    Recipe("jemalloc+thread", "peer-malloc", "libjemalloc-dev", "jemalloc", threads=True),
    Recipe("mimalloc+thread", "peer-malloc", "libmimalloc-dev", "mimalloc", threads=True),
)


def start(recipe: Recipe, directory: Path, cpu: int) -> Peer:
    """Start a peer; PeerError says what is missing."""
    environ = {}
    if recipe.program.endswith(".py"):
        command = [sys.executable, str(HERE / recipe.program)]
    else:
        program = executable(directory, recipe.program)
        if program is None:
            hint = f" (install {recipe.package} and build again)" if recipe.package else ""
            raise PeerError(f"{recipe.name}: {recipe.program} is not built{hint}")
        command = [str(program)]
    if recipe.preload:
        library = ctypes.util.find_library(recipe.preload)
        if library is None:
            raise PeerError(
                f"{recipe.name}: no lib{recipe.preload} here (install {recipe.package})"
            )
        environ["LD_PRELOAD"] = library
    elif recipe.program == "peer-malloc":
        environ["LD_PRELOAD"] = ""
    command += ["--cpu", str(cpu)] + ["--threads"] * recipe.threads
    peer = Peer(recipe.name, command, environ)
    if recipe.preload and recipe.preload not in peer.detail:
        # The dynamic linker only warns when it cannot load it.
        peer.close()
        raise PeerError(f"{recipe.name}: aligned_alloc came from {peer.detail}")
    return peer


# ---- what is compared -------------------------------------------------------------------------


def _ours(test: str) -> Slot:
    return Slot("pagepool", test)


def _dpdk(test: str) -> Slot:
    return Slot("dpdk", test)


def _python(test: str) -> Slot:
    return Slot("python", test)


def is_ours(slot: Slot) -> bool:
    return slot.peer in ("pagepool", "pagepool+thread", "control") or slot.test.startswith(
        "pagepool"
    )


def plan() -> list[Comparison]:
    """The rows, in the order of the table."""
    rows: list[Comparison] = []

    def add(path: str, ours: Slot, *theirs: Slot, reach: float | None = None) -> None:
        rows.append(Comparison(path, ours, theirs, reach))

    def statistics_cost(path: str, size: int = 1024) -> None:
        ours, off = _ours(f"{path}@{size}"), _ours(f"{path}-nostats@{size}")
        add(path, ours, off, reach=1.05)

    fast = _ours("fast@1024")
    add("fast", fast, _dpdk("cached@1024"), reach=0.7)
    add("fast", fast, _dpdk("cached-call@1024"))
    add("fast", fast, _dpdk("mbuf@1024"))
    statistics_cost("fast")
    add("fast", fast, Slot("control", "fast@1024"))

    add("direct", _ours("direct@1024"), _dpdk("cached@1024"))
    statistics_cost("direct")

    ring = _ours("ring@1024")
    add("ring", ring, _dpdk("uncached@1024"), reach=1.2)
    add("ring", ring, _dpdk("uncached-call@1024"))
    add("ring", ring, _dpdk("uncached-mpsc@1024"))
    statistics_cost("ring")

    slow = _ours("slow@1024")
    allocators = tuple(Slot(name, "pair") for name in ("glibc", "jemalloc", "mimalloc"))
    add("slow", slow, *allocators, reach=1.0)
    for allocator in allocators:
        add("slow", slow, allocator)
    statistics_cost("slow")
    add("slow-outside", _ours("slow-outside@1024"), *allocators)
    statistics_cost("slow-outside")
    threaded = tuple(Slot(f"{name}+thread", "pair") for name in ("glibc", "jemalloc", "mimalloc"))
    for path in ("slow", "slow-outside"):
        add(f"{path}-threaded", Slot("pagepool+thread", f"{path}@1024"), *threaded)
    for path in ("fast", "ring"):
        add(f"{path}-threaded", Slot("pagepool+thread", f"{path}@1024"), _ours(f"{path}@1024"))

    add("bulk32", _ours("bulk32@1024"), _dpdk("cached-bulk32@1024"))
    add("bulk32", _ours("bulk32@1024"), _dpdk("mbuf-bulk32@1024"))
    statistics_cost("bulk32")
    add("bulk32-ring", _ours("bulk32-ring@1024"), _dpdk("uncached-bulk32@1024"))
    statistics_cost("bulk32-ring")

    # Another CPU gives back what this one gets; `handover` is what lies between the two.
    cross = _dpdk("cross-bulk32@1024")
    add("cross-bulk32", _ours("cross-bulk32-ours@1024"), cross, reach=1.0)
    for design in ("", "-list"):
        add("cross-bulk32", _ours(f"cross-bulk32{design}@1024"), cross)
    add("cross-bulk32", _ours("handover"), cross)

    # Mapping costs when a page enters and leaves; knowing what is mapped: 10 ns a page is the goal.
    add("dma-fast", _ours("fast-dma@1024"), _dpdk("mbuf@1024"), reach=0.8)
    for path in ("fast", "ring", "slow"):
        add(f"dma-{path}", _ours(f"{path}-dma@1024"), _ours(f"{path}@1024"))
        add(f"dma-{path}", _ours(f"{path}-dma@1024"), _ours(f"{path}-dma-untracked@1024"))
    for path in ("fast", "ring", "slow", "bulk32"):
        reach = 5.0 if path == "fast" else None
        add(f"checked-{path}", _ours(f"{path}-checked@1024"), _ours(f"{path}@1024"), reach=reach)

    # Designs: no same-CPU path may pay for what happens between CPUs.
    for design, reach in (("list", None), ("ours", 1.05)):
        for path in ("fast", "direct", "ring", "slow", "bulk32", "bulk32-ring"):
            here = _ours(f"{path}-{design}@1024")
            add(f"{design}-{path}", here, _ours(f"{path}@1024"), reach=reach)
            add(f"{design}-{path}", here, _ours(f"{path}-{design}-nostats@1024"), reach=1.05)

    for path in ("fast", "ring", "ring-full", "slow", "bulk32"):
        for size in (1024, 16384):
            add(f"size-{path}", _ours(f"{path}@{size}"), _ours(f"{path}@64"), reach=1.2)
    for size in (64, 1024, 16384):
        add("size-peer", _ours(f"ring-full@{size}"), _dpdk(f"uncached@{size}"))

    view = _python("pagepool-view")
    add("python-view", view, _python("deque-view"), reach=1.0)
    add("python-view", view, _python("deque-direct"))
    add("python-view", view, _python("bytearray"))
    add("python-view", view, _python("numpy"))
    for name in ("slice", "memoryview", "ring"):
        add(f"python-{name}", _python(f"pagepool-{name}"), _python("deque-view"))
    # 10 ns a page where the pair costs 170.
    add("python-bulk32", _python("pagepool-bulk32"), _python("deque-view"), reach=10 / 170)
    add("python-bulk32-view", _python("pagepool-bulk32-view"), _python("deque-view"))
    return rows


def neighbours(comparisons: Iterable[Comparison]) -> list[tuple[Slot, ...]]:
    """What runs back to back: all the slots of the rows of one path."""
    groups: dict[str, dict[Slot, None]] = {}
    for comparison in comparisons:
        groups.setdefault(comparison.path, {}).update(dict.fromkeys(comparison.slots))
    return [tuple(group) for group in groups.values()]


def turn(slots: Sequence[Slot], number: int) -> list[Slot]:
    """The order in that round: everybody is at each place, and behind each of the others."""
    if not slots:
        return []
    at = number % len(slots)
    order = [*slots[at:], *slots[:at]]
    return order[::-1] if number // len(slots) % 2 else order


# ---- measuring --------------------------------------------------------------------------------


def calibrate(run: Callable[[int], Slice], slice_ns: float) -> int:
    """How many loops take about a slice."""
    loops = CALIBRATE_LOOPS
    done = run(loops)
    while done.ns < slice_ns / 4:
        # Not more than 16 times at once: the first runs are the slowest.
        loops = max(loops + 1, min(loops * 16, int(slice_ns / done.ns_each / 2)))
        done = run(loops)
    return max(CALIBRATE_LOOPS, int(slice_ns / done.ns_each))


class Measurement:
    """The rounds, and why something is not in them. Interrupted, it keeps what it has."""

    def __init__(
        self,
        comparisons: Sequence[Comparison],
        start_peer: Callable[[str], Peer],
        *,
        slice_ms: float,
        seed: int,
    ) -> None:
        self.rounds: list[Round] = []
        self.missing: dict[Slot, str] = {}
        self.peers: dict[str, dict[str, Any]] = {}
        self._groups = neighbours(comparisons)
        self._start_peer = start_peer
        self._slice_ns = slice_ms * 1e6
        self._random = random.Random(seed)
        self._loops: dict[Slot, int] = {}

    def _slots(self) -> Iterator[Slot]:
        for group in self._groups:
            yield from group

    @contextlib.contextmanager
    def _started(self) -> Iterator[dict[str, Peer]]:
        with contextlib.ExitStack() as stack:
            peers: dict[str, Peer] = {}
            for name in dict.fromkeys(slot.peer for slot in self._slots()):
                try:
                    peer = stack.enter_context(self._start_peer(name))
                except PeerError as error:
                    self.peers[name] = {"name": name, "skipped": str(error)}
                    self._miss(name, frozenset(), str(error))
                    continue
                peers[name] = peer
                self.peers[name] = {
                    "name": name,
                    "version": peer.version,
                    "detail": peer.detail,
                    "skipped": None,
                }
                self._miss(name, peer.tests, f"{name}: no such test")
            yield peers

    def _miss(self, name: str, tests: frozenset[str], why: str) -> None:
        """All but these tests of the peer cannot be measured."""
        for slot in self._slots():
            if slot.peer == name and slot.test not in tests:
                self.missing.setdefault(slot, why)

    def _run(self, peers: Mapping[str, Peer], slot: Slot) -> Slice | None:
        if slot in self.missing:
            return None
        peer = peers[slot.peer]
        try:
            if slot not in self._loops:
                self._loops[slot] = calibrate(
                    lambda loops: peer.run(slot.test, loops), self._slice_ns
                )
            for _ in range(TRIES):
                done = peer.run(slot.test, self._loops[slot])
                if not done.disturbed:
                    break
            return done
        except PeerError as error:
            self.missing[slot] = str(error)
            return None

    def measure(self, rounds: int, lives: int, progress: Callable[[int], None]) -> None:
        """Do the rounds, with fresh processes every rounds / lives: each has another layout."""
        done = 0
        for life in range(lives):
            until = rounds * (life + 1) // lives
            with self._started() as peers:
                while done < until:
                    progress(done)
                    self._round(peers, done)
                    done += 1

    def _round(self, peers: Mapping[str, Peer], number: int) -> None:
        groups = list(self._groups)
        self._random.shuffle(groups)
        for group in groups:
            one: dict[Slot, Slice] = {}
            for slot in turn(group, number):
                if (done := self._run(peers, slot)) is not None:
                    one[slot] = done
            if one:
                self.rounds.append(one)


# ---- output -----------------------------------------------------------------------------------


def machine() -> dict[str, str]:
    """What the figures were measured on, as far as the system says."""
    model = ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "cpu_model": model,
        "arch": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()).strip(),
    }


def print_table(rows: Sequence[Row]) -> None:
    if not sys.stdout.isatty():
        sys.stdout.write(text_table(rows))
        return
    # Only a terminal needs it, and measuring does not.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    view = Table(box=None, header_style="bold", pad_edge=False)
    for i, name in enumerate(HEADER):
        view.add_column(name, justify="right" if i in (2, 3, 5, 6, 7, 8) else "left")
    colours = {"reached": "green", "missed": "red"}
    for line in table(rows):
        style = colours.get(line[-1], "dim" if line[-1] else "")
        view.add_row(*(Text(cell) for cell in line[:-1]), Text(line[-1], style=style))
    Console().print(view)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    cpus = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=21, help="default: %(default)s")
    parser.add_argument(
        "--lives",
        type=int,
        default=3,
        help="start the peers anew that often, for other memory layouts; default: %(default)s",
    )
    parser.add_argument(
        "--slice-ms", type=float, default=20.0, help="one timed loop; default: %(default)s"
    )
    parser.add_argument(
        "--cpu", type=int, default=cpus[-1], help="where all of them run; default: %(default)s"
    )
    parser.add_argument("--only", metavar="GLOB", default="*", help="only these paths")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write everything there too")
    parser.add_argument("--seed", type=int, default=1, help="of the order; default: %(default)s")
    parser.add_argument("--check", action="store_true", help="exit status 1 when a reach is missed")
    parser.add_argument("--list", action="store_true", help="print the paths and end")
    parser.add_argument(
        "--build",
        metavar="DIR",
        type=Path,
        default=HERE.parent / "build",
        help="meson's build directory; default: build",
    )
    args = parser.parse_args(argv)
    if args.rounds < 1 or args.lives < 1 or args.slice_ms <= 0:
        parser.error("--rounds, --lives and --slice-ms must be positive")
    if args.cpu not in cpus:
        parser.error(f"--cpu {args.cpu}: may run on {', '.join(map(str, cpus))}")
    args.lives = min(args.lives, args.rounds)
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    comparisons = [c for c in plan() if fnmatch.fnmatch(c.path, args.only)]
    if args.list:
        print("\n".join(dict.fromkeys(c.path for c in comparisons)))
        return 0
    if not comparisons:
        print(f"run_peers: no path matches {args.only}", file=sys.stderr)
        return 2

    # The driver sleeps while a peer runs; when there is room it does so elsewhere.
    if elsewhere := os.sched_getaffinity(0) - {args.cpu}:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, elsewhere)
    else:
        before = set()

    recipes = {recipe.name: recipe for recipe in RECIPES}
    measurement = Measurement(
        comparisons,
        lambda name: start(recipes[name], args.build / "benchmarks", args.cpu),
        slice_ms=args.slice_ms,
        seed=args.seed,
    )

    def progress(number: int) -> None:
        if sys.stderr.isatty():
            print(f"\rround {number + 1} of {args.rounds} ", end="", file=sys.stderr, flush=True)

    interrupted = False
    started = datetime.now(UTC)
    try:
        measurement.measure(args.rounds, args.lives, progress)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        if before:
            os.sched_setaffinity(0, before)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)

    rows = [make_row(c, measurement.rounds, measurement.missing) for c in comparisons]
    print_table(rows)
    for why in dict.fromkeys(measurement.missing.values()):
        print(f"run_peers: {why}", file=sys.stderr)
    slices = [done for one in measurement.rounds for done in one.values()]
    if disturbed := sum(done.disturbed for done in slices):
        print(
            f"run_peers: other programs ran during {disturbed} of {len(slices)} slices; "
            "a machine with nothing else to do gives closer figures",
            file=sys.stderr,
        )
    if interrupted:
        print("run_peers: interrupted; the table has what was measured", file=sys.stderr)
    if args.json:
        run = {
            "started": started.isoformat(timespec="seconds"),
            "cpu": args.cpu,
            "rounds": args.rounds,
            "lives": args.lives,
            "slice_ms": args.slice_ms,
            "seed": args.seed,
            "interrupted": interrupted,
            "machine": machine(),
        }
        written = document(
            rows, measurement.rounds, run=run, peers=list(measurement.peers.values())
        )
        args.json.write_text(json.dumps(written, indent=1) + "\n")

    if interrupted:
        return 130
    wanted = {slot for c in comparisons for slot in c.slots}
    measured = {slot for one in measurement.rounds for slot in one}
    for who, which in (("nothing of ours", is_ours), ("no peer", lambda slot: not is_ours(slot))):
        if any(map(which, wanted)) and not any(map(which, measured)):
            print(f"run_peers: {who} could be measured", file=sys.stderr)
            return 2
    return 1 if args.check and any(row.reached is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
