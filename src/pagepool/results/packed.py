# SPDX-License-Identifier: BSD-2-Clause
"""Packed files: logs that logrotate has packed, and archives of mailing lists."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import IO


def _gunzip(stream: IO[bytes]) -> gzip.GzipFile:
    return gzip.GzipFile(fileobj=stream)


#: First bytes -> what it is, and what reads it.
_KINDS: tuple[tuple[bytes, str, Callable[[IO[bytes]], io.BufferedIOBase]], ...] = (
    (b"\x1f\x8b", "gzip data", _gunzip),
    (b"\xfd7zXZ\x00", "xz data", lzma.LZMAFile),
    (b"BZh", "bzip2 data", bz2.BZ2File),
)
_SUFFIXES = (".gz", ".xz", ".bz2")


class Unpacked(io.RawIOBase):
    """What is in a packed stream, as far as it can be unpacked.

    Where it is cut short or broken it ends, and ``broken`` says so; what came before is read.
    """

    def __init__(self, what: str, stream: io.BufferedIOBase) -> None:
        """``what``: the kind of data, for messages."""
        self.broken = ""
        self._what = what
        self._stream = stream

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """As streams have it."""
        if self.broken:
            return 0
        try:
            # Not read(): what it had unpacked before a break it would not give.
            data = self._stream.read1(len(buffer))
        except EOFError:
            return self._ends("cut short")
        except (zlib.error, lzma.LZMAError, gzip.BadGzipFile):
            return self._ends("broken")
        except OSError as error:
            if error.errno is not None:
                raise  # of the file itself
            return self._ends("broken")
        buffer[: len(data)] = data
        return len(data)

    def _ends(self, how: str) -> int:
        self.broken = f"{self._what}, {how} from here on"
        return 0


def unpack(head: bytes, stream: io.RawIOBase) -> Unpacked | None:
    """The stream, which begins with ``head``, unpacked; ``None``: it is not packed."""
    for magic, what, read in _KINDS:
        if head.startswith(magic):
            return Unpacked(what, read(io.BufferedReader(stream, 1 << 20)))
    return None


def unpacked_name(name: str) -> str:
    """A file's name without the suffix that packing gave it."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and len(name) > len(suffix):
            return name.removesuffix(suffix)
    return name
