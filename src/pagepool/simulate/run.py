# SPDX-License-Identifier: BSD-2-Clause
"""The scenarios: CPUs put pages while another one allocates, or after it has handed out all."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Literal

from pagepool.model.arena import Arena
from pagepool.model.frame import Frame
from pagepool.model.limits import MAX_POOL_SIZE
from pagepool.model.rules import ALL, Pool
from pagepool.simulate.machine import Cpu, LineName, Machine
from pagepool.simulate.mesi import Line
from pagepool.simulate.watch import LANE_ENTRIES, SLOTS, Watch

MAX_CPUS = 128
#: Nanoseconds of a transfer where nobody says or measures: 29 to 32 on two CPUs of a 2-CPU Intel
#: Xeon virtual machine, by ``pagepool simulate --measure``.
TRANSFER_NS = 30.0
HAND_OVER = 32  # pages that a returning CPU gets at once, as in bench cross-cpu
PAGES = 96  # that go round for each returning CPU
WARM_UP = 192  # pages that each CPU puts before anything is counted: all have gone round twice
COUNTED = 96  # and that it then puts; more if the CPUs are few
AT_LEAST = 2048
#: Transfers after which a run ends all the same: where all wait for one lock, its state of every
#: day is reached at once.
EFFORT = 160_000
THINK_NS = 2.0  # what a returning CPU does besides, for each page
CONSUMER = 0
#: ``cross-cpu``: one CPU allocates and hands pages to others, which put them meanwhile.
#: ``storm``: it hands out all pages first; counted is only what happens while all others put.
Scenario = Literal["cross-cpu", "storm"]
SCENARIOS: tuple[Scenario, ...] = ("cross-cpu", "storm")
MOST_PAGES = MAX_POOL_SIZE - 2 * HAND_OVER  # a ring has up to 15 slots that are not cleared


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What one run gave, per page that was put; nothing of it was measured."""

    design: str
    cpus: int  # that put pages; one more allocates
    returns: int
    transfers: float  # of cache lines, of all CPUs
    returning: float  # of these, those that the CPU waited for that puts the page
    lines: dict[str, float]  # transfers by kind of line
    ns: float  # predicted: how long a put takes on its CPU
    transfer_ns: float
    hand_over: int
    pages: int
    seed: int
    scenario: Scenario


class _Run:
    def __init__(
        self,
        design: str,
        cpus: int,
        transfer_ns: float,
        hand_over: int,
        pages: int,
        seed: int,
        scenario: Scenario,
    ) -> None:
        self.machine = Machine(seed, transfer_ns)
        self.machine.new_line = self._worn_line
        self.watch = Watch(self.machine)
        self.arena = Arena()
        self.pool = self.watch.pool(Pool(MAX_POOL_SIZE, 0, None, self.arena, None, design))
        self.hand_over = hand_over
        self.blocks = -(-pages // hand_over)
        self.full = False  # were all pages handed out once?
        self.warm_up = max(WARM_UP * cpus, AT_LEAST // 2)
        self.last = self.warm_up + max(COUNTED * cpus, AT_LEAST)
        self.put = 0  # pages, by all CPUs
        self.counted = 0
        self.ns = 0.0
        self.since = 0.0  # when the counting began
        self.storm = scenario == "storm"
        self.left = 0  # of a storm's pages
        self.began: dict[int, float] = {}  # puts that are under way, by CPU
        self.known: set[int] = set()  # page numbers
        self.consumer = self.machine.add(self._before_storms if self.storm else self._allocate)
        self.waiting: list[deque[list[Frame]]] = [deque() for _ in range(cpus)]
        self.returning = [self.machine.add(self._body(queue)) for queue in self.waiting]

    def _worn_line(self, name: LineName) -> Line:
        """A line that is met the first time: as when the circle was gone round often."""
        kind, _ = name
        if kind == SLOTS:  # the consumer has cleared them
            return Line({CONSUMER}, dirty=True)
        if kind == LANE_ENTRIES and self.machine.running is not None:
            # The thread wrote them, and the consumer has read them.
            return Line({CONSUMER, self.machine.running.number})
        return Line()

    def _block(self) -> list[Frame]:
        """Allocated by the CPU that runs."""
        block: list[Frame] = []
        while len(block) < self.hand_over:
            frame = self.pool.alloc()
            assert frame is not None, "the arena has no limit that is near"
            block.append(frame)
            if frame.number not in self.known:
                self.known.add(frame.number)
                self.watch.of(frame)
        return block

    def _allocate(self) -> None:
        while True:
            for queue, cpu in zip(self.waiting, self.returning, strict=True):
                if len(queue) >= self.blocks:
                    continue
                queue.append(self._block())
                if self.full:
                    self.machine.wake(cpu)
            if all(len(queue) >= self.blocks for queue in self.waiting):
                self._start()

    def _before_storms(self) -> None:
        while True:
            self.machine.counting = False
            for queue in self.waiting:
                queue.extend(self._block() for _ in range(self.blocks))
                self.left += self.blocks * self.hand_over
            if self.warm:
                self._count()
            self._start()

    def _count(self) -> None:
        running = self.machine.running
        assert running is not None, "a CPU runs"
        self.since = running.clock
        self.machine.counting = True

    def _start(self) -> None:
        """All who put pages may, and the CPU that runs waits for them."""
        self.full = True
        for cpu in self.returning:
            self.machine.wake(cpu)
        self.machine.park()

    @property
    def warm(self) -> bool:
        """Every day's state is reached."""
        return self.put >= self.warm_up or self.machine.transfers >= EFFORT // 4

    def _body(self, queue: deque[list[Frame]]) -> _Returning:
        return _Returning(self, queue)

    def account(self, cpu: Cpu, before: float) -> None:
        """A page was put."""
        machine = self.machine
        if machine.counting:
            self.counted += 1
            self.ns += cpu.clock - max(before, self.since)
        self.put += 1
        if self.storm:
            self.left -= 1
            if not self.left:
                machine.wake(self.consumer)
        elif self.warm and not machine.counting:
            self._count()
        if machine.counting and (self.put >= self.last or machine.transfers >= EFFORT):
            self._end(cpu.clock)

    def _end(self, now: float) -> None:
        """Who is still at it has spent this time all the same: with many CPUs most are."""
        for began in self.began.values():
            self.ns += max(now - max(began, self.since), 0.0)
        self.machine.stop()


class _Returning:
    """What a returning CPU runs."""

    def __init__(self, run: _Run, queue: deque[list[Frame]]) -> None:
        self.run = run
        self.queue = queue

    def __call__(self) -> None:
        run, machine = self.run, self.run.machine
        cpu = machine.running
        assert cpu is not None, "a CPU runs"
        while True:
            while not (run.full and self.queue):
                machine.park()
            block = self.queue.popleft()
            if not run.storm:
                machine.wake(run.consumer)
            for frame in block:
                machine.think(THINK_NS)
                before = run.began[cpu.number] = cpu.clock
                run.pool.put(frame, False, ALL)
                del run.began[cpu.number]
                run.account(cpu, before)


def simulate(
    design: str,
    cpus: int,
    *,
    transfer_ns: float = TRANSFER_NS,
    hand_over: int = HAND_OVER,
    pages: int = PAGES,
    seed: int = 1,
    scenario: Scenario = "cross-cpu",
) -> Prediction:
    """Predict what a return costs with so many CPUs that return pages.

    design: a name of ``pagepool.model.limits.DESIGNS``. cpus: 1 to `MAX_CPUS`. transfer_ns: how
    long a cache line takes from one CPU to another. hand_over: pages that a CPU gets, and puts, in
    a row. pages: that go round for each of these CPUs; with few the consumer waits for each of
    them. scenario: one of `SCENARIOS`; of a ``storm``'s transfers none is the consumer's.

    Raises ValueError: all these pages are more than a ring has room for.
    """
    all_pages = cpus * max(pages, hand_over)
    if all_pages > MOST_PAGES:
        raise ValueError(
            f"{cpus} CPUs with {max(pages, hand_over)} pages each are {all_pages} pages: "
            f"at most {MOST_PAGES}, so that no ring is ever full"
        )
    run = _Run(design, cpus, transfer_ns, hand_over, pages, seed, scenario)
    run.machine.run()
    assert run.pool.stats.recycle_ring_full == 0, "there is room for all pages"
    n = run.counted
    counted = run.machine.counted
    return Prediction(
        design=design,
        cpus=cpus,
        returns=n,
        transfers=counted.total() / n,
        returning=sum(cpu.transfers for cpu in run.returning) / n,
        lines={kind: times / n for kind, times in counted.most_common()},
        ns=run.ns / n,
        transfer_ns=transfer_ns,
        hand_over=hand_over,
        pages=pages,
        seed=seed,
        scenario=scenario,
    )
