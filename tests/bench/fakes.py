# SPDX-License-Identifier: BSD-2-Clause
"""A worker whose figures are made up, and a machine of four CPUs that is always the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pagepool.bench import machine
from pagepool.bench.protocol import (
    Answer,
    CpuDone,
    CpusDone,
    CrossCpuJob,
    Failed,
    Ready,
    Request,
    Setup,
    StormJob,
)

GOLDEN = Path(__file__).parent / "golden"
READY = Ready(
    cpu=3,
    pin_error="",
    counter="rdtsc",
    counter_khz=3_000_000,
    compiler="gcc 12.2.0",
    build="release",
    version="0.1.0",
    pmu_error=2,
    dma="off",
    checked="off",
)
#: Nanoseconds a page of each design by the number of returning CPUs or producers, and of a queue.
PRICES = {
    "ring": {1: 40, 2: 100, 3: 130},
    "ours": {1: 20, 2: 21, 3: 21},
    "list": {1: 50, 2: 160, 3: 300},
}
HANDOVER = 15


class FakeWorker:
    """Answers as a worker does; remembers what it was asked."""

    asked: ClassVar[list[Request]] = []
    fails: ClassVar[str] = ""

    def __init__(self, *, python: str | None = None) -> None:
        self.python = python

    def __enter__(self) -> FakeWorker:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def complaints(self) -> list[str]:
        return []

    def ask(self, request: Request, doing: str) -> Answer:
        FakeWorker.asked.append(request)
        if isinstance(request, Setup):
            return READY
        assert isinstance(request, (CrossCpuJob, StormJob))
        if request.design == FakeWorker.fails:
            return Failed("no pool: there is none such", 95)
        return cross_cpu(request) if isinstance(request, CrossCpuJob) else storm(request)


def done(cpu: int, name: str, step: int, pages: int, ns: int, counts: dict[str, int]) -> CpuDone:
    # A reader takes what is alike to the digit for a copy; so no two are.
    ns += len(FakeWorker.asked)
    return CpuDone(
        cpu=cpu,
        name=name,
        step=step,
        invoke_count=pages,
        time_interval_ns=ns,
        tsc_interval=3 * ns,
        instructions=None,
        pmu_line="",
        cpu_share=1.0,
        counts=counts,
    )


def cross_cpu(job: CrossCpuJob) -> CpusDone:
    n = job.returning
    price = HANDOVER if job.handover else PRICES[job.design][n]
    name = "page_pool_cross_cpu" + ("_handover" if job.handover else "")
    cpus = job.cpus or tuple(range(n + 1))
    # One after the other a little slower, and the consumer is as fast as all together.
    returning = [
        done(
            cpu,
            name,
            n,
            job.loops,
            (price + i + 3) * job.loops,
            {"queue empty": 7 + i, "pages": 4096, "median ns": (price + i) * 4096},
        )
        for i, cpu in enumerate(cpus[:-1])
    ]
    last = done(cpus[-1], name, n, n * job.loops, price * job.loops, {"queue full": 1234})
    counts = {} if job.handover else {"pool size": 16384, "pages": 1344, "ring full": 5, "slow": 2}
    return CpusDone((*returning, last), counts)


def storm(job: StormJob) -> CpusDone:
    n, pages = job.producers, job.pages
    price = PRICES[job.design][min(n, 2)]
    rounds = -(-job.loops // pages)
    name = "page_pool_storm" + ("_bulk" if job.bulk else "")
    cpus = job.cpus or tuple(range(n))
    return CpusDone(
        tuple(
            done(
                cpu,
                name,
                n,
                rounds * pages,
                (price + 3) * rounds * pages,
                {
                    "rounds": rounds,
                    "pages": pages,
                    "median ns": (price + i) * pages,
                    "median tsc": 3 * (price + i) * pages,
                    "low ns": (price - 1) * pages,
                    "high ns": (price + 9) * pages,
                },
            )
            for i, cpu in enumerate(cpus)
        ),
        {},
    )


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeWorker]:
    """All suites on several CPUs ask this worker, on this machine."""

    def describe(pinned: int | None, root: Path = Path("/")) -> dict[str, str]:
        return {"cpu": "Some CPU", "kernel": "Linux 6.18 x86_64", "pinned cpu": str(pinned)}

    monkeypatch.setattr("pagepool.bench.cross_cpu.Worker", FakeWorker)
    monkeypatch.setattr("pagepool.bench.storm.Worker", FakeWorker)
    monkeypatch.setattr(machine, "describe", describe)
    monkeypatch.setattr(machine, "order_cpus", lambda allowed, root=None: sorted(allowed)[::-1])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(FakeWorker, "asked", [])
    monkeypatch.setattr(FakeWorker, "fails", "")
    return FakeWorker


def golden(name: str, text: str) -> None:
    """Hold text against a file; PAGEPOOL_GOLDEN=write makes the file."""
    path = GOLDEN / name
    if os.environ.get("PAGEPOOL_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


def shown(capsys: pytest.CaptureFixture[str], table: Callable[[Any], None], collector: Any) -> str:
    """What a table prints, without blanks at the ends of lines."""
    capsys.readouterr()
    table(collector)
    return "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())
