# SPDX-License-Identifier: BSD-2-Clause
"""The Python peer: pagepool and what people use instead, behind the protocol of ``peers/peer.h``.

Each loop does the same work: get a buffer, write 64 bytes into it, give it back. The collector
stays on, as it is where people run this.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pagepool

PAGE = 4096
PAYLOAD = bytes(range(64))
# As many buffers as the pool has in its cache after its first allocation.
RESIDENT = 64
BATCH = 32
WARM_UP_PART = 16
WARM_UP_MIN = 1024

# Runs that many turns and returns nothing; made once per test, keeps its buffers.
Loop = Callable[[int], None]


# ---- ours: the one place to change when the API does ------------------------------------------


def consumer() -> pagepool.PagePool:
    """A pool of this thread's, which is in its napi for good: what is put goes straight back."""
    import pagepool

    napi = pagepool.Napi()
    napi.enter()
    return pagepool.PagePool(napi=napi)


def pagepool_view() -> Loop:
    pool = consumer()
    payload = PAYLOAD

    def loop(turns: int) -> None:
        for _ in itertools.repeat(None, turns):
            page = pool.alloc()
            page.view()[:64] = payload
            page.put()

    return loop


def pagepool_slice() -> Loop:
    """The slice as an object, which has to be gone before the page is put."""
    pool = consumer()
    payload = PAYLOAD

    def loop(turns: int) -> None:
        for _ in itertools.repeat(None, turns):
            page = pool.alloc()
            part = page.view()[:64]
            part[:] = payload
            del part
            page.put()

    return loop


def pagepool_memoryview() -> Loop:
    """A view of one's own, made anew each time."""
    pool = consumer()
    payload = PAYLOAD

    def loop(turns: int) -> None:
        for _ in itertools.repeat(None, turns):
            page = pool.alloc()
            with memoryview(page) as view:
                view[:64] = payload
            page.put()

    return loop


def pagepool_ring() -> Loop:
    """No napi: through the ring."""
    import pagepool

    pool = pagepool.PagePool()
    payload = PAYLOAD

    def loop(turns: int) -> None:
        for _ in itertools.repeat(None, turns):
            page = pool.alloc()
            page.view()[:64] = payload
            page.put()

    return loop


def pagepool_bulk32() -> Loop:
    pool = consumer()

    def loop(turns: int) -> None:
        for _ in itertools.repeat(None, turns):
            pool.put_bulk(pool.alloc_bulk(BATCH))

    return loop


def pagepool_bulk32_view() -> Loop:
    """Each page written to, so that each becomes an object."""
    pool = consumer()
    payload = PAYLOAD

    def loop(turns: int) -> None:
        for _ in itertools.repeat(None, turns):
            batch = pool.alloc_bulk(BATCH)
            for page in batch:
                page.view()[:64] = payload
            del page
            pool.put_bulk(batch)

    return loop


# ---- theirs -----------------------------------------------------------------------------------


def deque_view() -> Loop:
    views = deque(memoryview(bytearray(PAGE)) for _ in range(RESIDENT))
    payload = PAYLOAD

    def loop(turns: int) -> None:
        for _ in itertools.repeat(None, turns):
            view = views.popleft()
            part = view[:64]
            part[:] = payload
            views.append(view)

    return loop


def deque_direct() -> Loop:
    """Without an object for the slice."""
    views = deque(memoryview(bytearray(PAGE)) for _ in range(RESIDENT))
    payload = PAYLOAD

    def loop(turns: int) -> None:
        for _ in itertools.repeat(None, turns):
            view = views.popleft()
            view[:64] = payload
            views.append(view)

    return loop


def bytearray_new() -> Loop:
    payload = PAYLOAD

    def loop(turns: int) -> None:
        for _ in itertools.repeat(None, turns):
            buffer = bytearray(PAGE)
            buffer[:64] = payload

    return loop


def numpy_empty() -> Loop:
    import numpy as np

    payload = np.frombuffer(PAYLOAD, np.uint8)

    def loop(turns: int) -> None:
        for _ in itertools.repeat(None, turns):
            array = np.empty(PAGE, np.uint8)
            array[:64] = payload

    return loop


# name: (how to make the loop, buffers that one turn moves)
TESTS: dict[str, tuple[Callable[[], Loop], int]] = {
    "pagepool-view": (pagepool_view, 1),
    "pagepool-slice": (pagepool_slice, 1),
    "pagepool-memoryview": (pagepool_memoryview, 1),
    "pagepool-ring": (pagepool_ring, 1),
    "pagepool-bulk32": (pagepool_bulk32, BATCH),
    "pagepool-bulk32-view": (pagepool_bulk32_view, BATCH),
    "deque-view": (deque_view, 1),
    "deque-direct": (deque_direct, 1),
    "bytearray": (bytearray_new, 1),
    "numpy": (numpy_empty, 1),
}


# ---- the protocol -----------------------------------------------------------------------------


class Server:
    """Answers one line at a time. A test is set up when it is first run, as in the C peers."""

    def __init__(self) -> None:
        self.loops: dict[str, Loop] = {}

    def hello(self) -> dict[str, object]:
        version = f"{sys.implementation.name} {sys.version.split()[0]}"
        return {"peer": "python", "version": version, "detail": ""}

    def answer(self, line: str) -> dict[str, object]:
        match line.split():
            case ["list"]:
                return {"tests": list(TESTS)}
            case ["run", name, _] if name not in TESTS:
                return {"error": f"no test {name}"}
            case ["run", name, count] if count.isdecimal() and int(count):
                try:
                    return self.run(name, int(count))
                except ImportError as error:
                    return {"error": f"{error} (pip install {error.name})"}
                except Exception as error:
                    return {"error": f"{name}: {type(error).__name__}: {error}"}
            case _:
                return {"error": f"not understood: {line[:100]}"}

    def run(self, name: str, count: int) -> dict[str, object]:
        make, batch = TESTS[name]
        loop = self.loops.get(name)
        if loop is None:
            loop = self.loops[name] = make()
        turns = -(-count // batch)
        loop(max(turns // WARM_UP_PART, WARM_UP_MIN))
        cpu = time.thread_time_ns()
        start = time.perf_counter_ns()
        loop(turns)
        ns = time.perf_counter_ns() - start
        cpu = time.thread_time_ns() - cpu
        # Python cannot read the counter: 0, as where there is none.
        return {"test": name, "loops": turns * batch, "ns": ns, "tsc": 0, "cpu_ns": cpu}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--cpu", type=int, required=True)
    os.sched_setaffinity(0, {parser.parse_args().cpu})

    # What a module prints must not get between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = Server()
    print(json.dumps(server.hello()), file=out, flush=True)
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        print(json.dumps(server.answer(line)), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
