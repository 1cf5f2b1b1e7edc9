# SPDX-License-Identifier: BSD-2-Clause
"""One peer: a process that runs timed loops on request, one line a request, one line of JSON back.

The protocol is described in ``peers/peer.h``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_TIMEOUT = 30.0
RUN_TIMEOUT = 120.0


class PeerError(Exception):
    """A peer did not start, died, or said that something was wrong."""


@dataclass(frozen=True)
class Slice:
    """One timed loop: what came back for one ``run``."""

    loops: int
    ns: int
    tsc: int
    cpu_ns: int  # of ns, how long the peer had the CPU

    @property
    def disturbed(self) -> bool:
        """Did somebody else have the CPU for more than a hundredth of the time?"""
        return self.cpu_ns < 0.99 * self.ns

    @property
    def _share(self) -> float:
        # Undisturbed, the wall clock is the better clock: it has no share of the scheduler's.
        return self.cpu_ns / self.ns if self.disturbed else 1.0

    @property
    def ns_each(self) -> float:
        return self.ns * self._share / self.loops

    @property
    def cycles_each(self) -> float:
        return self.tsc * self._share / self.loops


class Peer:
    """A started peer. A context manager; leaving it ends the process."""

    def __init__(
        self, name: str, command: Sequence[str], environ: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._buffer = b""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115, closed in close()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env={**os.environ, **(environ or {})},
                # An interrupt from the terminal is the driver's: it asks the peers to end.
                start_new_session=True,
            )
        except OSError as error:
            self._stderr.close()
            raise PeerError(f"{name}: {error}") from error
        try:
            hello = self._receive(START_TIMEOUT)
            self.version = str(hello.get("version", ""))
            self.detail = str(hello.get("detail", ""))
            self.tests: frozenset[str] = frozenset(self._ask("list", START_TIMEOUT)["tests"])
        except (PeerError, KeyError, TypeError) as error:
            self.close()
            if isinstance(error, PeerError):
                raise
            raise PeerError(f"{name}: an answer without {error}") from error

    def run(self, test: str, loops: int) -> Slice:
        answer = self._ask(f"run {test} {loops}", RUN_TIMEOUT)
        try:
            done = Slice(*(int(answer[key]) for key in ("loops", "ns", "tsc", "cpu_ns")))
        except (KeyError, TypeError, ValueError) as error:
            raise PeerError(f"{self.name}: not an answer to run: {answer}") from error
        if done.loops < loops or done.ns <= 0:
            raise PeerError(f"{self.name}: {test}: {done.loops} loops in {done.ns} ns")
        return done

    def close(self) -> None:
        if self._stderr.closed:
            return
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(OSError):  # it may be gone already
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._stderr.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, line: str, timeout: float) -> dict[str, Any]:
        assert self._process.stdin
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise PeerError(self._last_words()) from None
        return self._receive(timeout)

    def _receive(self, timeout: float) -> dict[str, Any]:
        assert self._process.stdout
        fd = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            if not select.select([fd], [], [], timeout)[0]:
                raise PeerError(f"{self.name}: no answer for {timeout:g} s")
            data = os.read(fd, 65536)
            if not data:
                raise PeerError(self._last_words())
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise PeerError(f"{self.name}: not an answer: {line.decode(errors='replace')[:200]}")
        if "error" in answer:
            raise PeerError(f"{self.name}: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        try:
            status: int | str = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            status = "still running"
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{self.name}: ended ({status}){': ' + said if said else ''}"


def executable(directory: Path, name: str) -> Path | None:
    """The built peer of that name; None when it was not built."""
    path = directory / name
    return path if os.access(path, os.X_OK) and path.is_file() else None
