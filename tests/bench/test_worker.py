# SPDX-License-Identifier: BSD-2-Clause
"""The worker process and the generator over it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pagepool.bench import (
    BenchError,
    Collector,
    Notice,
    Recorded,
    RunStarted,
    SettingsError,
    Started,
    TestFailed,
    WorkerDied,
    greet,
    list_tests,
    run_simple,
)
from pagepool.bench.process import Worker
from pagepool.bench.protocol import PROTOCOL, Done, Failed, Job, Pools, Ready, Setup
from pagepool.results.time_bench import format_record

from .conftest import is_running, wait_for


def test_it_says_where_it_is() -> None:
    cpu = max(os.sched_getaffinity(0))
    with Worker() as worker:
        ready = worker.ask(Setup(cpu), "in a test")
        assert isinstance(ready, Ready)
        assert ready.cpu == cpu and ready.pin_error == ""
        assert os.sched_getaffinity(worker.pid) == {cpu}
        assert ready.counter in ("rdtsc", "cntvct", "none")
        assert (ready.counter_khz > 0) == (ready.counter != "none")
    assert not is_running(worker.pid)


def test_a_cpu_that_cannot_be_had_is_said() -> None:
    with Worker() as worker:
        ready = worker.ask(Setup(100_000), "in a test")
        assert isinstance(ready, Ready)
        assert ready.cpu is None and ready.pin_error == "Invalid argument"
        assert os.sched_getaffinity(worker.pid) == os.sched_getaffinity(0)


def test_it_says_what_its_pools_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with Worker() as worker:
        ready = worker.ask(Setup(), "in a test")
        assert isinstance(ready, Ready)
        assert (ready.dma, ready.checked) == ("off", "off")
        # And the jobs have such pools.
        ready = worker.ask(Setup(pools=Pools(dma="iommu", checked=True)), "in a test")
        assert isinstance(ready, Ready)
        assert ready.dma == "mapped by a software IOMMU, tracked"
        assert ready.checked == "on: these are not the pool's figures"
        assert isinstance(worker.ask(Job("tasklet_page_pool03_slow", 1000), "in a test"), Done)
    monkeypatch.setenv("PAGEPOOL_CHECKED", "full")
    with Worker() as worker:
        ready = worker.ask(Setup(), "in a test")
        assert isinstance(ready, Ready)
        assert ready.checked == "full: these are not the pool's figures"


def test_a_job_that_fails_leaves_the_worker_alive() -> None:
    with Worker() as worker:
        answer = worker.ask(Job("nothing", 1000), "in a test")
        assert answer == Failed("no test is called nothing", 2)
        answer = worker.ask(Job("lock", 999), "in a test")
        assert isinstance(answer, Failed) and "999 loops" in answer.text
        answer = worker.ask(Job("lock", 1000), "in a test")
        assert isinstance(answer, Done) and answer.invoke_count == 1000
        assert 0.0 < answer.cpu_share <= 1.0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_its_death_is_told(number: signal.Signals) -> None:
    with Worker() as worker:
        worker.ask(Setup(), "in a test")
        timer = threading.Timer(0.2, os.kill, (worker.pid, number))
        timer.start()
        with pytest.raises(WorkerDied, match=f"died in a test: killed by {number.name}"):
            worker.ask(Job("atomic_inc", 2**32 - 1), "in a test")
        timer.join()
        # The next one finds it dead already.
        with pytest.raises(WorkerDied, match=number.name):
            worker.ask(Job("lock", 1000), "in a test")


def test_a_worker_that_cannot_start() -> None:
    with (
        Worker("pagepool.bench.no_such_module") as worker,
        pytest.raises(WorkerDied, match=r"exit status 1: .*No module named"),
    ):
        worker.ask(Setup(), "while it started")


def test_a_python_without_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "")
    with pytest.raises(BenchError, match="does not know its own path"):
        Worker()
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(BenchError, match="No such file"):
        Worker()


NOISY = """
import os
from pagepool.bench import _loops, worker
real = _loops.run
def run(*args, **settings):
    os.write(1, f"noise in {args[0]}\\n".encode())
    print("more noise", flush=True)
    return real(*args, **settings)
_loops.run = run
worker.main()
"""


def test_what_a_library_prints_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "noisy_worker.py").write_text(NOISY)
    monkeypatch.syspath_prepend(str(tmp_path))
    with Worker("noisy_worker") as worker:
        worker.ask(Setup(), "in a test")
        assert isinstance(worker.ask(Job("lock", 1000), "in a test"), Done)
        # The first is the worker's own, while it sets itself up.
        assert worker.complaints() == [
            "noise in no-softirq-page_pool01",
            "more noise",
            "noise in lock",
            "more noise",
        ]


def test_a_worker_that_is_not_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "babbler.py").write_text('print(\'{"type": "Other"}\', flush=True)\ninput()\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    with Worker("babbler") as worker, pytest.raises(WorkerDied, match="nonsense in a test"):
        worker.ask(Setup(), "in a test")


def test_the_current_directory_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('a trap')\n")
    monkeypatch.chdir(tmp_path)
    with Worker() as worker:
        assert isinstance(worker.ask(Setup(), "in a test"), Ready)


def test_the_parents_mask_is_as_before() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    with Worker() as worker:
        assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == before
        worker.ask(Setup(), "in a test")
        status = Path(f"/proc/{worker.pid}/status").read_text()
        (blocked,) = [line for line in status.splitlines() if line.startswith("SigBlk:")]
        assert int(blocked.split()[1], 16) >> (signal.SIGINT - 1) & 1
        os.kill(worker.pid, signal.SIGINT)
        assert isinstance(worker.ask(Job("lock", 1000), "in a test"), Done)


def test_ctrl_c_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            pids.append(self.pid)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    with pytest.raises(KeyboardInterrupt):
        Worker()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == before
    assert len(pids) == 1 and not Path(f"/proc/{pids[0]}").exists()


def test_a_worker_that_nobody_holds_ends() -> None:
    worker = Worker()
    pid = worker.pid
    del worker
    assert not Path(f"/proc/{pid}").exists()


def test_events_come_in_order() -> None:
    events = list(run_simple(loops=2000, runs=2, tests=["lock", "tasklet*01*"]))
    assert isinstance(events[0], Started)
    assert events[0].tests == ("lock", "tasklet_page_pool01_fast_path")
    assert events[0].settings == {"suite": "simple", "loops": "2000"}
    prefix = "bench_page_pool_simple: "
    inside = f"{prefix}time_bench_page_pool01_fast_path(): in_serving_softirq fast-path"
    shape: list[object] = []
    for event in events[1:]:
        if isinstance(event, RunStarted):
            shape.append(event.run)
        elif isinstance(event, Notice):
            shape.append(event.text)
        elif isinstance(event, Recorded):
            shape.append(event.record.name)
    run = [
        f"{prefix}Loaded",
        "lock",
        f"{prefix}pp_tasklet_handler(): in_serving_softirq fast-path",
        inside,
        "tasklet_page_pool01_fast_path",
    ]
    assert shape == [1, *run, 2, *run]


def test_each_run_has_a_process_of_its_own_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = []
    start = Worker.__init__

    def remember(self: Worker, **settings: Any) -> None:
        start(self, **settings)
        pids.append(self.pid)

    monkeypatch.setattr(Worker, "__init__", remember)
    for _ in run_simple(loops=1000, runs=3, tests=["lock"]):
        assert len([pid for pid in pids if is_running(pid)]) == 1
    assert len(set(pids)) == 3
    assert not any(map(is_running, pids))


def test_closing_it_early_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = []
    start = Worker.__init__

    def remember(self: Worker, **settings: Any) -> None:
        start(self, **settings)
        pids.append(self.pid)

    monkeypatch.setattr(Worker, "__init__", remember)
    events = run_simple(loops=1000, runs=3)
    assert isinstance(next(events), Started)
    events.close()
    assert len(pids) == 1
    assert wait_for(lambda: not is_running(pids[0]))


def test_a_test_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(self: Worker, request: Setup | Job, doing: str) -> object:
        if isinstance(request, Job) and request.test == "lock":
            return Failed("lock: no wall-clock time passed", 62)
        return real(self, request, doing)

    real = Worker.ask
    monkeypatch.setattr(Worker, "ask", ask)
    collector = Collector()
    for event in run_simple(loops=1000, runs=1, tests=["atomic_inc", "lock", "*01*"]):
        collector.add(event)
    assert collector.failed == [TestFailed(1, "lock", "lock: no wall-clock time passed")]
    assert "lock" not in [record.name for record in collector.records]
    assert len(collector.records) == 3


def test_settings_are_checked_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Worker) -> None:
        raise AssertionError("started a worker")

    monkeypatch.setattr(Worker, "__init__", refuse)
    for settings in (
        {"loops": 999},
        {"loops": 2**32},
        {"runs": 0},
        {"runs": 1001},
        {"tests": ["nothing"]},
        {"cpu": 100_000},
        {"cpu": -1},
        {"dma": "fast"},
        {"tracking": False},
    ):
        with pytest.raises(SettingsError):
            run_simple(**settings)


def test_one_pattern_as_a_plain_string() -> None:
    events = run_simple(loops=1000, runs=1, tests="lock")
    assert [e.record.name for e in events if isinstance(e, Recorded)] == ["lock"]


def test_python_writes_the_line_that_c_writes() -> None:
    from pagepool.bench import _loops
    from pagepool.bench.simple import _record

    for test in list_tests():
        # No multiple of 1000: where a careless division goes wrong.
        timing = _loops.run(test.name, 10_999)
        fields = timing._asdict()
        done = Done(
            **{name: fields[name] for name in Done.__struct_fields__ if name in fields},
            cpu_share=1.0,
        )
        assert format_record(_record(done)) == timing.line
        assert timing.invoke_count == timing.loops == 10_999 * test.times
        assert timing.warning == ""
        assert (timing.pmu_line == "") == (timing.instructions is None)


# Another interpreter's


def interpreter(path: Path, answer: str) -> str:
    """A program that answers the first line, whatever it is called with."""
    path.write_text(f"#!/bin/sh\nread line\necho '{answer}'\ncat > /dev/null\n")
    path.chmod(0o755)
    return str(path)


def test_another_interpreter_has_its_own_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ours, from a place that only this process and PYTHONPATH know.
    (tmp_path / "only_here.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Worker("only_here") as worker, pytest.raises(WorkerDied, match="exit status 0"):
        worker.ask(Setup(), "in a test")
    with (
        Worker("only_here", python=sys.executable) as worker,
        pytest.raises(WorkerDied, match=rf"of {sys.executable} died in a test: .*only_here"),
    ):
        worker.ask(Setup(), "in a test")


def test_this_pagepool_speaks_its_own_protocol() -> None:
    assert greet(None).protocol == greet(sys.executable).protocol == PROTOCOL


@pytest.mark.parametrize(
    "answer",
    [
        '{"type":"Ready","protocol":7,"version":"9.1"}',
        '{"type":"Hello","protocol":7,"version":"9.1","what":[1]}',
    ],
)
def test_another_protocol_is_refused(tmp_path: Path, answer: str) -> None:
    python = interpreter(tmp_path / "python", answer)
    with pytest.raises(BenchError) as raised:
        greet(python)
    assert str(raised.value) == (
        f"{python}: its pagepool 9.1 speaks version 7 of the workers' protocol, this one version "
        f"{PROTOCOL}: the two cannot be measured together"
    )


def test_a_pagepool_that_names_no_protocol_speaks_the_first(tmp_path: Path) -> None:
    import msgspec

    known = msgspec.to_builtins(greet(None))
    del known["protocol"]
    answer = msgspec.json.encode(known | {"type": "Ready", "version": "0.0.9"}).decode()
    ready = greet(interpreter(tmp_path / "python", answer))
    assert (ready.version, ready.protocol) == ("0.0.9", 1)


def test_what_is_no_worker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="with /nothing/python: No such file"):
        greet("/nothing/python")
    with pytest.raises(WorkerDied, match="answered nonsense while it started"):
        greet(interpreter(tmp_path / "python", "Hello"))
