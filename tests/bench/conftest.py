# SPDX-License-Identifier: BSD-2-Clause
"""Runs ``pagepool bench`` as people do: on a pipe, on a terminal, in a process group."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

COMMAND = [sys.executable, "-P", "-m", "pagepool", "bench"]

#: Longest that anything here may take (seconds); on a slow machine it takes a tenth.
PATIENCE = 60.0


class Result(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _plain(plain_pools: None) -> None:
    """As people run it: the pools that are measured are not checked, and nothing says so."""


@pytest.fixture
def bench() -> Callable[..., Result]:
    def run(*args: str) -> Result:
        done = subprocess.run(
            [*COMMAND, *args], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a bench in a process group of its own; ends it after the test."""
    running: list[subprocess.Popen[str]] = []

    def start(*args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        process.stderr.close()


def on_terminal(args: list[str], columns: int = 100) -> tuple[int, str]:
    """Run on a pseudo-terminal; exit status, and what it showed without escapes."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(
        [*COMMAND, *args],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env=environment,
    )
    os.close(slave)
    data = b""
    while True:
        try:
            chunk = os.read(master, 1 << 16)
        except OSError as error:  # how Linux says that the other side is closed
            if error.errno != errno.EIO:
                raise
            break
        if not chunk:
            break
        data += chunk
    os.close(master)
    status = process.wait(timeout=PATIENCE)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode()).replace("\r\n", "\n")
    return status, text


def children(pid: int) -> list[int]:
    """Processes whose parent is ``pid``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue  # it ended meanwhile
        state, parent = stat.rpartition(")")[2].split()[:2]
        if int(parent) == pid and state != "Z":
            found.append(int(entry.name))
    return found


def is_running(pid: int) -> bool:
    """Whether there is such a process; one that only waits to be reaped does not count."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_for(condition: Callable[[], object]) -> bool:
    """Whether the condition came true in time."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False
