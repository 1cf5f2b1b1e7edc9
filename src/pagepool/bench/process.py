# SPDX-License-Identifier: BSD-2-Clause
"""The parent's side of a worker process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

import msgspec

from pagepool.bench.errors import BenchError, WorkerDied
from pagepool.bench.protocol import PROTOCOL, Answer, Greeting, Request, Setup

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Answer)
_GREETING = msgspec.json.Decoder(Greeting)


class Worker:
    """A worker process; ends with its ``with`` block, whatever it does at that moment."""

    def __init__(self, module: str = "pagepool.bench.worker", *, python: str | None = None) -> None:
        """Start it: of this pagepool, or of the one that an interpreter ``python`` has.

        Raises `BenchError`.
        """
        program = python or sys.executable
        if not program:
            raise BenchError("cannot start a worker: this Python does not know its own path")
        self._python = python
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (close() closes it)
        # Where the parent found its modules the worker finds them too, and nowhere else: not in
        # the current directory (-P). Another interpreter finds its own, and none of ours.
        environment = dict(os.environ)
        if python is None:
            path = [entry or str(Path.cwd()) for entry in sys.path if os.pathsep not in entry]
            environment["PYTHONPATH"] = os.pathsep.join(path)
        else:
            for name in ("PYTHONPATH", "PYTHONHOME"):
                environment.pop(name, None)
        # Ctrl-C goes to all processes of the terminal. The worker inherits the signal blocked,
        # from its first instruction on: what happens to it is the parent's decision alone.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(
                [program, "-P", "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=environment,
            )
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._errors.close()
            which = f" with {python}" if python else ""
            raise BenchError(f"cannot start a worker{which}: {error.strerror or error}") from None
        try:
            # A Ctrl-C that came meanwhile is raised here, when nobody has the worker yet.
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        """Ends a worker that no ``with`` block got hold of: Ctrl-C came in between."""
        if hasattr(self, "_process") and self._process.returncode is None:
            self.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ask(self, request: Request, doing: str) -> Answer:
        """Send a request and wait for its answer. Raises `WorkerDied`, which says ``doing``."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(_ENCODER.encode(request) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died(doing) from None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._died(doing)
        if isinstance(request, Setup):
            self._check_protocol(line)
        try:
            return _DECODER.decode(line)
        except msgspec.DecodeError as error:
            raise WorkerDied(f"the worker answered nonsense {doing}: {error}") from None

    def _check_protocol(self, line: bytes) -> None:
        """Raises `BenchError`: what answered is not of our time."""
        try:
            greeting = _GREETING.decode(line)
        except msgspec.DecodeError:
            return  # whoever decodes all of it says what is wrong
        if greeting.protocol != PROTOCOL:
            raise BenchError(
                f"{self._python or sys.executable}: its pagepool {greeting.version} speaks version "
                f"{greeting.protocol} of the workers' protocol, this one version {PROTOCOL}: the "
                "two cannot be measured together"
            )

    def _died(self, doing: str) -> WorkerDied:
        self._process.kill()
        status = self._process.wait()
        how = f"exit status {status}"
        if status < 0:
            try:
                how = f"killed by {signal.Signals(-status).name}"
            except ValueError:
                how = f"killed by signal {-status}"
            if -status == signal.SIGKILL:
                how += " (out of memory?)"
        words = self.complaints()
        last = f": {words[-1]}" if words else ""
        which = f" of {self._python}" if self._python else ""
        return WorkerDied(f"the worker{which} died {doing}: {how}{last}")

    def complaints(self) -> list[str]:
        """What it wrote to standard error so far, without empty lines."""
        self._errors.seek(0)
        text = self._errors.read(1 << 16).decode("utf-8", "replace")
        lines = (" ".join(line.split()) for line in text.splitlines())
        return [line[:300] for line in lines if line]

    def close(self) -> None:
        """End it, now."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # a request that it never read
                stream.close()
        self._errors.close()

    def __enter__(self) -> Worker:
        """The worker itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()
