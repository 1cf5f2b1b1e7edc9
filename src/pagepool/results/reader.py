# SPDX-License-Identifier: BSD-2-Clause
"""Opens files: standard input, text or JSON, and the plain words when that fails."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from pagepool.results import charsets, documents, jsonio
from pagepool.results.errors import ResultsError
from pagepool.results.lines import RawLine, clean, read_blocks, read_lines
from pagepool.results.mails import Mails, is_mail, is_quoted_printable, quoted_printable
from pagepool.results.model import Build, Input, Oddity, Record, ResultSet, Run
from pagepool.results.packed import Unpacked, unpack
from pagepool.results.text import Mark, TextReader, is_dull, stem_of
from pagepool.results.time_bench import judge
from pagepool.results.words import count

_PEEK = 4096

#: First bytes of what people hand over by mistake -> what to do.
_MAGIC = ((b"\x28\xb5\x2f\xfd", "zstd data", "unpack it with unzstd"),)


def read(path: str) -> ResultSet:
    """Read one file, or standard input for ``-``. Raises `ResultsError`."""
    if path == "-":
        if sys.stdin is None:
            raise ResultsError("-", "standard input is closed")
        return read_stream(sys.stdin.buffer, "-")
    name = printable(path)
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):  # noqa: PTH116  (names nothing that is no str)
            raise ResultsError(name, "is a directory", "give the files in it")
        with open(path, "rb", buffering=1 << 20) as stream:  # noqa: PTH123
            return read_stream(stream, name)
    except (OSError, ValueError) as error:
        raise ResultsError(name, *_reason(error)) from None


def read_stream(stream: IO[bytes], name: str) -> ResultSet:
    """Read one binary stream under a name, packed or not. Raises `ResultsError`."""
    try:
        head, whole, unpacked = _opened(stream)
        try:
            results = _read_plain(head, whole, name)
        except ResultsError as error:
            if unpacked is not None and unpacked.broken:
                raise ResultsError(name, unpacked.broken, "get the file again") from error
            raise
        if unpacked is not None and unpacked.broken:
            line = max(source.lines for source in results.sources)
            odd = Oddity(name, line, unpacked.broken, "error", "packed")
            results = msgspec.structs.replace(results, oddities=(*results.oddities, odd))
        return results
    except OSError as error:
        raise ResultsError(name, *_reason(error)) from None


def _opened(stream: IO[bytes]) -> tuple[bytes, _Rejoined, Unpacked | None]:
    """The first bytes of a stream and the whole of it, unpacked if it is packed, and as UTF-8."""
    head = stream.read(_PEEK)
    whole = _Rejoined(head, stream)
    unpacked = unpack(head, whole)
    if unpacked is not None:
        head, whole = _peeked(unpacked)
    if (codec := charsets.marked(head)) is not None:
        head, whole = _peeked(charsets.Recoded(whole, codec))
    return head, whole, unpacked


def _peeked(stream: io.RawIOBase) -> tuple[bytes, _Rejoined]:
    # More than a peek at once: it is unpacked, or decoded, by blocks.
    buffered = io.BufferedReader(stream, 1 << 20)
    head = buffered.read(_PEEK)
    return head, _Rejoined(head, buffered)


def _read_plain(head: bytes, whole: _Rejoined, name: str) -> ResultSet:
    for magic, what, hint in _MAGIC:
        if head.startswith(magic):
            raise ResultsError(name, what, hint)
    if _is_json(head):
        return _read_json(whole, name)
    with io.BufferedReader(whole, 1 << 20) as buffered:
        if is_mail(head):
            return _read_mails(buffered, name)
        if is_quoted_printable(head):
            return TextReader(name).read(quoted_printable(read_lines(buffered)))
        return TextReader(name).read(read_blocks(buffered, is_dull))


def _read_mails(stream: IO[bytes], name: str) -> ResultSet:
    """A mail or an archive of them, and the files in them."""
    documents: list[ResultSet] = []
    oddities: list[Oddity] = []
    lines = size = 0

    def counted() -> Iterator[RawLine]:
        nonlocal lines, size
        for line in read_lines(stream):
            lines, size = line.number, size + len(line.data)
            yield line

    def texts() -> Iterator[RawLine | Mark]:
        mails = Mails(name, stem_of(name))
        yield from mails.lines(counted())
        left_out = mails.left_out
        attachments = deque(mails.attachments)
        while attachments:
            it = attachments.popleft()
            head, rejoined, unpacked = _opened(io.BytesIO(it.data))
            whole = io.BufferedReader(rejoined, 1 << 20)
            if _is_json(head):
                try:
                    documents.append(_read_json(whole, it.where))
                except ResultsError as error:
                    oddities.append(Oddity(it.where, 0, str(error), "note", "attachment"))
            elif is_mail(head):
                mails = Mails(it.where, stem_of(it.name))
                yield from mails.lines(read_lines(whole))
                attachments.extend(mails.attachments)
                left_out += mails.left_out
            else:
                yield Mark(it.where, stem_of(it.name))
                yield from read_lines(whole)
            if unpacked is not None and unpacked.broken:
                oddities.append(Oddity(it.where, 0, unpacked.broken, "error", "packed"))
        if left_out:
            text = f"{count(left_out, 'attachment')} too big, or too many: not read"
            oddities.append(Oddity(name, 0, text, "warning", "attachment"))

    try:
        results = TextReader(name).read(texts())
    except ResultsError:
        if not documents:
            raise
        results = ResultSet()
    results = msgspec.structs.replace(results, sources=(Input(name, "text", lines, size),))
    for document in documents:
        results = results.merge(document)
    return msgspec.structs.replace(results, oddities=results.oddities + tuple(oddities))


def _is_json(head: bytes) -> bool:
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"


def read_all(paths: list[str]) -> tuple[list[tuple[str, ResultSet]], list[ResultsError]]:
    """Read several files; what fails is reported beside what was read. Each is read once."""
    results: list[tuple[str, ResultSet]] = []
    errors: list[ResultsError] = []
    for path in dict.fromkeys(paths):
        try:
            results.append((path, read(path)))
        except ResultsError as error:
            errors.append(error)
    return results, errors


class _Rejoined(io.RawIOBase):
    """A stream with its first bytes, which were read to look at them, back in front."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(data) :]
        buffer[: len(data)] = data
        return len(data)


def _read_json(stream: io.RawIOBase | IO[bytes], name: str) -> ResultSet:
    whole = io.BufferedReader(stream) if isinstance(stream, io.RawIOBase) else stream
    data = whole.read(jsonio.MAX_BYTES + 1).removeprefix(b"\xef\xbb\xbf")
    if len(data) > jsonio.MAX_BYTES:
        raise ResultsError(name, f"JSON of more than {jsonio.MAX_BYTES >> 20} MiB", "split it")
    results = documents.loads(data, name)
    builds = tuple(_judged(build) for build in results.builds if build.records)
    if not builds:
        raise ResultsError(name, "no results in it")
    # What a document was made from stays its source; reading and writing it changes nothing.
    sources = results.sources or (Input(name, "json", data.count(b"\n"), len(data)),)
    return ResultSet(builds, results.oddities, sources)


def _judged(build: Build) -> Build:
    """A build whose impossible records are marked, as the text reader marks them."""
    return msgspec.structs.replace(
        build,
        runs=tuple(
            msgspec.structs.replace(run, records=tuple(map(_judged_record, run.records)))
            for run in build.runs
            if isinstance(run, Run)
        ),
    )


def _judged_record(record: Record) -> Record:
    codes = dict.fromkeys((*record.oddities, *(code for code, _ in judge(record))))
    if len(codes) == len(record.oddities):
        return record
    return msgspec.structs.replace(record, oddities=tuple(codes))


def _reason(error: OSError | ValueError) -> tuple[str, str]:
    if isinstance(error, FileNotFoundError):
        return "no such file", "check the name"
    if isinstance(error, PermissionError):
        return "permission denied", "check its mode, or read it as its owner"
    if isinstance(error, OSError):
        return error.strerror or str(error), ""
    return str(error), "check the name"


def printable(name: str) -> str:
    """A file name that can be printed and put into JSON, whatever its bytes are."""
    return clean(name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


def same_file(one: str, other: str) -> bool:
    """Whether two names are one file."""
    if one == other:
        return True
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        return False
