# SPDX-License-Identifier: BSD-2-Clause
"""What commands share: one line per error, and output that may be a pipe, a file, a terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from pagepool.results.lines import clean

#: Exit status of wrong usage and of input that could not be read.
FAILURE = 2
#: Exit status after Ctrl-C, as shells have it.
INTERRUPTED = 130
#: Exit status when the reader of a pipe went away: what shells make of a death by SIGPIPE.
READER_GONE = 141


def complain(message: object) -> None:
    """One line on stderr."""
    if sys.stderr is not None:
        print(f"pagepool: {clean(' '.join(str(message).split()))}", file=sys.stderr)


def fail(message: object) -> NoReturn:
    """One line on stderr, and exit 2."""
    complain(message)
    sys.exit(FAILURE)


def split_globs(texts: tuple[str, ...]) -> list[str]:
    """What ``--tests`` was given: repeated, or with commas."""
    return [glob for text in texts for part in text.split(",") if (glob := part.strip())]


def is_terminal() -> bool:
    """Whether standard output is a terminal that wants colours."""
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def write(text: str, path: str | None = None) -> None:
    """Write to a file or to standard output. A reader that went away is no error of ours."""
    if path is not None and path != "-":
        try:
            Path(path).write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            fail(f"{path}: cannot write: {reason}; choose another --output")
        return
    if sys.stdout is None:
        fail("standard output is closed; use --output")
    try:
        # Bytes, so that a C locale cannot refuse a heading's letters.
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        leave_quietly()
    except OSError as error:
        stdout_failed(error)


def stdout_failed(error: OSError) -> NoReturn:
    """Standard output takes nothing, and not for want of a reader."""
    silence_stdout()
    fail(f"standard output: cannot write: {error.strerror or error}")


def leave_quietly() -> NoReturn:
    """End as a program whose reader has seen enough: no message, and none at shutdown."""
    silence_stdout()
    sys.exit(READER_GONE)


def silence_stdout() -> None:
    """What is still in the buffer goes nowhere: the interpreter flushes it once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
