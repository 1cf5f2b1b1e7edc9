# SPDX-License-Identifier: BSD-2-Clause
"""A machine of any number of CPUs that runs Python code, one memory access at a time.

A CPU is a thread, of which only one runs: before each access to a line that it shares it waits
until no other CPU's clock is behind its own. So calls of the model, which are one step each
everywhere else, overlap here as they would on CPUs, in an order that a seed decides.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path

from pagepool.simulate.mesi import Access, Line

#: Nanoseconds of an access to a line that the CPU has, and what is done between two of them.
HIT_NS = 1.0
#: Times vary by so much up and down, evenly: no two runs of a loop take the same time.
JITTER = 0.25

LineName = tuple[str, Hashable]  # what kind of line it is, and which


@contextlib.contextmanager
def _on_one_cpu() -> Iterator[None]:
    """Threads that are started here stay on one CPU: that where the caller is.

    Only one of them runs at a time, and to go on with another one takes 2.5 times as long if that
    has to be woken on another CPU (measured, 128 of them on two).
    """
    try:
        before = os.sched_getaffinity(0)
        stat = Path("/proc/thread-self/stat").read_text(encoding="utf-8", errors="replace")
        here = int(stat.rpartition(")")[2].split()[36])  # proc_pid_stat(5): processor
        os.sched_setaffinity(0, {here})
    except (AttributeError, OSError, ValueError, IndexError):  # it is only about speed
        yield
        return
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class _Stop(BaseException):
    """The end of a simulated CPU."""


class Cpu:
    """One CPU and the code that it runs."""

    def __init__(self, number: int, body: Callable[[], None]) -> None:
        """It starts when the machine does."""
        self.number = number
        self.clock = 0.0  # nanoseconds
        self.body = body
        self.transfers = 0  # that it had to wait for
        self.parked = False
        self.baton = threading.Lock()
        self.baton.acquire()


class Machine:
    """CPUs, their lines and their time. Deterministic for a seed."""

    def __init__(self, seed: int, transfer_ns: float) -> None:
        """transfer_ns: how long a line takes from one CPU to another."""
        self.transfer_ns = transfer_ns
        self.cpus: list[Cpu] = []
        self.running: Cpu | None = None  # None: nobody, accesses count nothing
        self.counting = False
        self.counted: Counter[str] = Counter()  # transfers by kind of line
        self.transfers = 0  # all, since the start
        self.new_line: Callable[[LineName], Line] = lambda _: Line()
        self._lines: dict[LineName, Line] = {}
        self._random = random.Random(seed)
        self._events: list[tuple[float, float, int, Cpu, Callable[[], None] | None]] = []
        self._serial = 0
        self._stopping = False
        self._error: BaseException | None = None
        self._over = threading.Event()

    # -- time

    def _vary(self, ns: float) -> float:
        return ns * (1 - JITTER + 2 * JITTER * self._random.random())

    def _at(self, cpu: Cpu, action: Callable[[], None] | None) -> None:
        """At its clock; None: its code goes on."""
        self._serial += 1
        event = (cpu.clock, self._random.random(), self._serial, cpu, action)
        heapq.heappush(self._events, event)

    def _next(self) -> Cpu | None:
        """Whose code goes on; None: nobody's."""
        while self._events and not self._stopping:
            _, _, _, cpu, action = heapq.heappop(self._events)
            self.running = cpu
            if action is None:
                return cpu
            action()
        if not self._stopping:
            self._fail(RuntimeError("every simulated CPU waits for another one"))
        return None

    def _pass_on(self, cpu: Cpu) -> None:
        """Another CPU's code goes on, until it is this one's turn."""
        following = self._next()
        if following is not cpu:
            if following is not None:
                following.baton.release()
            cpu.baton.acquire()
        if self._stopping:
            raise _Stop
        self.running = cpu

    # -- what runs on a CPU calls these

    def access(self, name: LineName, how: Access) -> None:
        """The CPU that runs does this to that line."""
        cpu = self.running
        if cpu is None or self._stopping:
            return
        self._in_order(cpu)
        line = self._line(name)
        done = self._request(cpu, line, how)
        if done is not None:
            self._in_order(cpu)
        self._have(cpu, name, line, how, done)

    def _in_order(self, cpu: Cpu) -> None:
        """Those whose clocks are behind go first."""
        if self._events and self._events[0][0] < cpu.clock:
            self._at(cpu, None)
            self._pass_on(cpu)

    def _line(self, name: LineName) -> Line:
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = self.new_line(name)
        return line

    def _request(self, cpu: Cpu, line: Line, how: Access) -> float | None:
        """When the access will be done; None: at once, with what the CPU has.

        The CPU's clock is then when the request arrives where the line is. Until then who has the
        line goes on using it.
        """
        if not line.moves(cpu.number, how):
            return None
        # One after the other: a line that is written to is in one place at a time. Of a clean one
        # all who ask get a copy at the same time.
        start = max(cpu.clock, line.busy)
        there, back = self._vary(self.transfer_ns / 2), self._vary(self.transfer_ns / 2)
        cpu.clock = start + there
        done = cpu.clock + back
        if how is not Access.READ or line.dirty:
            line.busy = done
        return done

    def _have(self, cpu: Cpu, name: LineName, line: Line, how: Access, done: float | None) -> None:
        """The request has arrived: the access is done, as far as others are concerned."""
        if done is not None:
            self.transfers += 1
            if self.counting:
                cpu.transfers += 1
                self.counted[name[0]] += 1
        line.access(cpu.number, how)
        cpu.clock = cpu.clock + self._vary(HIT_NS) if done is None else done
        if how is not Access.READ and line.spinners:
            spinners, line.spinners = line.spinners, []
            for waiting in spinners:
                assert isinstance(waiting, _Waiting)
                waiting.cpu.clock = max(waiting.cpu.clock, cpu.clock) + self._vary(HIT_NS)
                self._at(waiting.cpu, waiting.look)

    def park(self) -> None:
        """The CPU that runs waits for ``wake``; that is not counted as anything."""
        cpu = self.running
        assert cpu is not None, "a CPU runs"
        cpu.parked = True
        self._pass_on(cpu)

    def wake(self, cpu: Cpu) -> None:
        """If it is parked, it goes on."""
        if cpu.parked and self.running is not None:
            cpu.parked = False
            cpu.clock = max(cpu.clock, self.running.clock)
            self._at(cpu, None)

    def think(self, ns: float) -> None:
        """The CPU that runs does something else."""
        assert self.running is not None, "a CPU runs"
        self.running.clock += self._vary(ns)

    def stop(self) -> None:
        """The CPU that runs has seen enough. Does not return."""
        self._stopping = True
        raise _Stop

    # -- run

    def add(self, body: Callable[[], None]) -> Cpu:
        """One more CPU; its code is called when the machine runs."""
        cpu = Cpu(len(self.cpus), body)
        self.cpus.append(cpu)
        return cpu

    def run(self) -> None:
        """Until one of them stops it. Raises what a CPU's code raises."""
        threads = [
            threading.Thread(target=self._run_cpu, args=(cpu,), daemon=True) for cpu in self.cpus
        ]
        for cpu in self.cpus:
            cpu.clock = self._vary(HIT_NS)
            self._at(cpu, None)
        with _on_one_cpu():
            for thread in threads:
                thread.start()
        first = self._next()
        assert first is not None, "there are CPUs"
        first.baton.release()
        self._over.wait()
        for cpu in self.cpus:
            if cpu.baton.locked():
                cpu.baton.release()
        for thread in threads:
            thread.join()
        self.running = None
        if self._error is not None:
            raise self._error

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._stopping = True
        self._over.set()

    def _run_cpu(self, cpu: Cpu) -> None:
        cpu.baton.acquire()
        try:
            if not self._stopping:
                cpu.body()
        except _Stop:
            pass
        except BaseException as error:
            self._error = self._error or error
        # A body ends only because the machine is to stop, or by mistake.
        self._stopping = True
        self._over.set()


class SpinLock:
    """The C core's lock: an exchange, and while that finds it taken, reads until it is free.

    All who wait read the line again whenever somebody has written to it, be it the lock or what
    stands beside it; all who find it free try the exchange, one gets it.
    """

    def __init__(self, machine: Machine, line: LineName) -> None:
        """On that line."""
        self._machine = machine
        self._line = line
        self._locked = False

    def __enter__(self) -> None:
        """Take it; wait for it."""
        machine = self._machine
        machine.access(self._line, Access.RMW)
        if not self._locked:
            self._locked = True
            return
        cpu = machine.running
        assert cpu is not None, "a CPU runs"
        machine._at(cpu, _Waiting(self, cpu).look)
        machine._pass_on(cpu)

    def __exit__(self, *exc: object) -> None:
        """Leave it."""
        self._machine.access(self._line, Access.WRITE)
        self._locked = False


class _Waiting:
    """A CPU in the lock's loop; its code goes on when it has the lock."""

    def __init__(self, lock: SpinLock, cpu: Cpu) -> None:
        self.lock = lock
        self.cpu = cpu

    def _access(self, how: Access, then: Callable[[], None]) -> None:
        machine, name = self.lock._machine, self.lock._line
        line = machine._line(name)
        done = machine._request(self.cpu, line, how)

        def arrived() -> None:
            machine._have(self.cpu, name, line, how, done)
            then()

        if done is None:
            arrived()
        else:
            machine._at(self.cpu, arrived)

    def look(self) -> None:
        """Read it."""
        self._access(Access.READ, self._looked)

    def _looked(self) -> None:
        # Taken: read the copy until that is taken away. Free: try.
        if self.lock._locked:
            self.lock._machine._line(self.lock._line).spinners.append(self)
        else:
            self.lock._machine._at(self.cpu, self._attempt)

    def _attempt(self) -> None:
        self._access(Access.RMW, self._attempted)

    def _attempted(self) -> None:
        machine = self.lock._machine
        if self.lock._locked:
            machine._at(self.cpu, self.look)
        else:
            self.lock._locked = True
            machine._at(self.cpu, None)
