# SPDX-License-Identifier: BSD-2-Clause
"""Text that is no UTF-8, nor bytes that mean the same in it line by line: UTF-16, ISO-2022-JP."""

from __future__ import annotations

import codecs
import io

#: How a text begins -> its codec. UTF-16's mark is the beginning of UTF-32's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: In these a byte means what the bytes before it make of it, so lines cannot be cut out.
_STATEFUL = ("utf-16", "utf-32", "utf-7", "utf_16", "utf_32", "utf_7", "iso2022", "hz")
_BLOCK = 64 << 10


def marked(head: bytes) -> str | None:
    """The codec that the first bytes of a text name."""
    return next((codec for mark, codec in _MARKS if head.startswith(mark)), None)


def stateful(charset: str) -> codecs.IncrementalDecoder | None:
    """A decoder for a mail's ``charset`` that takes bytes as they come; ``None``: it needs none."""
    try:
        info = codecs.lookup(charset)
    except (LookupError, ValueError):
        return None
    return info.incrementaldecoder("replace") if info.name.startswith(_STATEFUL) else None


class Recoded(io.RawIOBase):
    """A stream of text in another codec, as UTF-8. What cannot be decoded is replaced."""

    def __init__(self, stream: io.RawIOBase, codec: str) -> None:
        """``codec``: as `marked` gives it."""
        self._stream = stream
        self._decoder = codecs.lookup(codec).incrementaldecoder("replace")
        self._data = b""
        self._is_over = False

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """As streams have it."""
        while not self._data and not self._is_over:
            data = self._stream.read(_BLOCK) or b""
            self._is_over = not data
            self._data = self._decoder.decode(data, self._is_over).encode("utf-8", "replace")
        size = min(len(self._data), len(buffer))
        buffer[:size] = self._data[:size]
        self._data = self._data[size:]
        return size
