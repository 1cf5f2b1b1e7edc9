# SPDX-License-Identifier: BSD-2-Clause
"""Mails and archives of mails, as a stream of the lines that people read.

Headers are parsed by the standard library. Bodies are not, because it holds a whole mail in memory
and does not know where its lines stand: here they pass through one by one, decoded, with their
numbers in the file. Attachments are other files: they are kept, and read after the mail.
"""

from __future__ import annotations

import binascii
import codecs
import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pagepool.results import charsets
from pagepool.results.lines import MAX_LINE, RawLine, Skipped, clean
from pagepool.results.text import Mark

if TYPE_CHECKING:
    from email.message import Message

#: An attachment is held in memory, and unpacked from there.
MAX_ATTACHMENT = 64 << 20
MAX_ATTACHMENTS = 1000
#: More than any mail server lets through.
_MAX_HEADER = 256 << 10
#: Mails in mails in mails.
_MAX_DEPTH = 20

_FROM = re.compile(rb"From \S+\s.*\b\d\d:\d\d(?::\d\d)?\b.* \d{4}\s*$")
_HEADER = re.compile(rb"[!-9;-~]+:[ \t]")
#: Fields of which any mail has some; a log has no such first line.
_FIELDS = re.compile(
    rb"(?:From|To|Cc|Subject|Date|Message-Id|Return-Path|Received|Delivered-To|Mime-Version"
    rb"|Reply-To|Content-Type|In-Reply-To|References|List-Id|Sender|X-[\w-]+|DKIM-Signature"
    rb"|Archived-At):[ \t]",
    re.IGNORECASE,
)
_TAG = re.compile(rb"<[A-Za-z/!?][^<>]*>")
#: A tag that ends in another line.
_OPEN_TAG = re.compile(rb"<[A-Za-z/!?][^<>]*\Z")
_BREAK = re.compile(rb"<br\s*/?>|</(?:p|div|tr|li|h\d)>", re.IGNORECASE)
_SOFT = re.compile(rb"=[ \t]*\r?\n\Z")


class Attachment(NamedTuple):
    """A file in a mail: how to call it in messages, its own name, its bytes."""

    where: str
    name: str
    data: bytes


class _Decoder(Protocol):
    """Takes the lines of a part and gives its text's lines."""

    def feed(self, line: RawLine) -> Iterator[RawLine]: ...
    def close(self) -> Iterator[RawLine]: ...


def is_mail(head: bytes) -> bool:
    """Whether a file that begins so is a mail or an archive of mails."""
    head = head.lstrip(b"\r\n")
    first, _, rest = head.partition(b"\n")
    if _FROM.match(first):
        return _HEADER.match(rest) is not None or rest.startswith(b">From ")
    if _FIELDS.match(first) is None:
        return False
    second = rest.partition(b"\n")[0]
    return second[:1] in (b" ", b"\t") or _HEADER.match(second) is not None


def is_quoted_printable(head: bytes) -> bool:
    """Whether text without headers is what a mail looks like before it is decoded."""
    softs = len(re.findall(rb"=\r?\n", head))
    return softs > 0 and re.search(rb"=(?:3D|20)", head) is not None


def quoted_printable(lines: Iterable[RawLine | Skipped]) -> Iterator[RawLine]:
    """The text of such lines."""
    decoder = _QuotedPrintable()
    for line in lines:
        if isinstance(line, RawLine):
            yield from decoder.feed(line)
    yield from decoder.close()


class Mails:
    """The lines of an archive; `attachments` is complete when they have been read."""

    def __init__(self, file: str, stem: str) -> None:
        """``file``: the archive's name in messages; ``stem``: what its builds are called."""
        self.attachments: list[Attachment] = []
        self.left_out = 0
        self._file = file
        self._stem = stem
        self._mails = 0
        self._header: list[RawLine] = []
        self._header_size = 0
        self._parts: list[_Multipart] = []
        self._decoder: _Decoder | None = None
        self._in_header = False
        self._is_mail = False

    def lines(self, raw: Iterable[RawLine]) -> Iterator[RawLine | Mark]:
        """What to read, of the lines of the file."""
        was_blank, is_archive = True, False
        for line in raw:
            separates = was_blank and line.data.startswith(b"From ") and _FROM.match(line.data)
            if separates and (is_archive or self._mails == 0):
                is_archive = True
                yield from self._close()
                self._begin_mail()
            elif self._mails == 0:
                if line.data.strip():
                    self._begin_mail()
                    yield from self._take(line)
            else:
                yield from self._take(line)
            was_blank = not line.data.strip()
        yield from self._close()

    # A mail

    def _begin_mail(self) -> None:
        self._mails += 1
        self._parts = []
        self._begin_header(is_mail=True)

    def _begin_header(self, is_mail: bool) -> None:
        self._header, self._header_size = [], 0
        self._in_header, self._is_mail = True, is_mail
        self._decoder = None

    def _take(self, line: RawLine) -> Iterator[RawLine | Mark]:
        if self._in_header:
            yield from self._take_header(line)
            return
        if line.data.startswith(b"--") and (at := self._boundary(line.data)) is not None:
            yield from self._end_part()
            part = self._parts[at]
            del self._parts[at + 1 :]
            if line.data.rstrip().endswith(part.boundary + b"--"):
                self._parts.pop()
                self._decoder = _Nothing()
            else:
                self._begin_header(is_mail=False)
            return
        if self._decoder is not None:
            yield from self._decoder.feed(line)

    def _take_header(self, line: RawLine) -> Iterator[RawLine | Mark]:
        if line.data.strip() and self._header_size < _MAX_HEADER:
            # Some archives say From_ twice, or quote it.
            if _HEADER.match(line.data) or line.data[:1] in b" \t" or not self._is_mail:
                self._header.append(line)
                self._header_size += len(line.data)
            return
        self._in_header = False
        yield from self._end_header(line.number)
        yield line._replace(data=b"\n")

    def _boundary(self, data: bytes) -> int | None:
        text = data.rstrip()[2:]
        for at in range(len(self._parts) - 1, -1, -1):
            boundary = self._parts[at].boundary
            if text in (boundary, boundary + b"--"):
                return at
        return None

    def _end_header(self, number: int) -> Iterator[RawLine | Mark]:
        header = _parse(b"".join(line.data for line in self._header))
        if self._is_mail:
            subject = _subject(header)
            stem = self._stem if self._mails == 1 else f"{self._stem}-{self._mails}"
            yield Mark(self._file, stem, f"Subject: {subject}" if subject else None)
        kind = header.get_content_type()
        main, _, sub = kind.partition("/")
        if main == "multipart":
            boundary = (header.get_boundary() or "").rstrip()
            if boundary and len(self._parts) < _MAX_DEPTH:
                self._parts.append(_Multipart(boundary.encode("utf-8", "surrogateescape"), sub))
                self._decoder = _Nothing()  # the preamble
                return
            main = "text"
        if kind == "message/rfc822" and (coding := _coding(header)) in (
            "base64",
            "quoted-printable",
        ):
            name = _file_name(header) or "forwarded.eml"
            self._decoder = _File(self, f"{self._file}!{name}", name, coding)
            return
        if kind == "message/rfc822" and len(self._parts) < _MAX_DEPTH:
            self._begin_header(is_mail=True)
            return
        self._decoder = self._decoder_of(header, main, sub, number)

    def _decoder_of(self, header: Message, main: str, sub: str, number: int) -> _Decoder:
        coding = _coding(header)
        name = _file_name(header)
        is_file = bool(name) or header.get_content_disposition() == "attachment"
        inner: _Decoder
        if main not in ("text", "application") or sub in ("pgp-signature", "pkcs7-signature"):
            return _Nothing()
        if is_file or main == "application":
            name = name or f"part{len(self.attachments) + 1}"
            return _File(self, f"{self._file}!{name}", name, coding)
        inner = _decoded(header.get_content_charset() or "utf-8")
        if sub == "html":
            if self._parts and self._parts[-1].kind == "alternative":
                return _Nothing()  # it says again what the plain text says
            inner = _Chain(inner, _Html())
        if coding == "quoted-printable":
            return _Chain(_QuotedPrintable(), inner)
        if coding == "base64":
            return _Chain(_Base64(), inner)
        return inner

    def keep(self, attachment: Attachment) -> None:
        """Another file; of very many only the first are kept."""
        if len(self.attachments) < MAX_ATTACHMENTS:
            self.attachments.append(attachment)
        else:
            self.left_out += 1

    def _end_part(self) -> Iterator[RawLine]:
        decoder, self._decoder = self._decoder, None
        if decoder is not None:
            yield from decoder.close()

    def _close(self) -> Iterator[RawLine | Mark]:
        if self._in_header and self._header:
            self._in_header = False
            yield from self._end_header(self._header[-1].number)
        yield from self._end_part()


class _Multipart(NamedTuple):
    boundary: bytes
    kind: str


def _parse(data: bytes) -> Message:
    """The header of a mail or a part; one that cannot be read is none."""
    from email.message import Message  # only mails pay for it
    from email.parser import BytesHeaderParser

    header: Message = BytesHeaderParser().parsebytes(data)
    try:
        header.get_content_type(), header.get_content_charset(), header.get_boundary()
        _file_name(header), header.get_content_disposition()
    except (ValueError, LookupError, AttributeError, TypeError):
        # Broken fields raise nearly anything in the library's parser of them.
        return Message()
    return header


def _subject(header: Message) -> str:
    from email.errors import HeaderParseError
    from email.header import decode_header, make_header

    text = str(header.get("subject", ""))
    with contextlib.suppress(HeaderParseError, ValueError, LookupError):
        text = str(make_header(decode_header(text)))  # else as it stands there
    return clean(" ".join(text.split()))[:200]


def _coding(header: Message) -> str:
    return str(header.get("content-transfer-encoding", "")).strip().lower()


def _file_name(header: Message) -> str:
    name = header.get_filename() or ""
    return clean(PurePath(name.replace("\\", "/")).name)[:100]


# Decoders


class _Nothing:
    """A part that nobody reads."""

    def feed(self, line: RawLine) -> Iterator[RawLine]:
        return iter(())

    def close(self) -> Iterator[RawLine]:
        return iter(())


def _decoded(charset: str) -> _Decoder:
    """What makes UTF-8 of a part's text."""
    decoder = charsets.stateful(charset)
    return _Charset(charset) if decoder is None else _Stateful(decoder)


def _unquoted(data: bytes) -> bytes:
    """``>From`` is an archive's way of keeping a line from being a separator."""
    return data[1:] if data.startswith(b">From ") else data


class _Charset:
    """Plain text; bytes that are no UTF-8 in it stay what they are and are replaced later."""

    def __init__(self, charset: str) -> None:
        self._charset = charset.lower()
        try:
            known = "x".encode(self._charset) == b"x"
        except (LookupError, ValueError, UnicodeError):
            known = False
        if not known or self._charset in ("utf-8", "us-ascii", "ascii"):
            self._charset = ""

    def feed(self, line: RawLine) -> Iterator[RawLine]:
        data = _unquoted(line.data)
        if self._charset and not data.isascii():
            data = data.decode(self._charset, "replace").encode()
        yield line._replace(data=data)

    def close(self) -> Iterator[RawLine]:
        return iter(())


class _Html:
    """A page's text, tags taken off; what an archive's web page is. A tag may span lines."""

    #: Nobody writes a longer tag; what looks like one is text.
    _MAX_TAG = 16 << 10

    def __init__(self) -> None:
        self._before: list[bytes] = []
        self._size = 0
        self._first = 0
        self._in_tag = 0

    def feed(self, line: RawLine) -> Iterator[RawLine]:
        data = line.data
        if self._in_tag:
            self._in_tag += len(data)
            _, end, rest = data.partition(b">")
            if not end and self._in_tag <= self._MAX_TAG:
                return
            data = rest if end else data
        if not self._before:
            self._first = line.number
        opened = _OPEN_TAG.search(data)
        self._in_tag = len(data) - opened.start() if opened else 0
        if opened:
            # A tag that divides words or breaks lines is one of these where it begins.
            is_break = _BREAK.match(data[opened.start() :].rstrip() + b">") is not None
            data = data[: opened.start()] + (b"\n" if is_break else b"")
            opened = None if is_break else opened
        if data:
            self._before.append(data)
            self._size += len(data)
        if not opened or self._size > MAX_LINE:
            yield from self._text(line.cut)

    def _text(self, cut: bool) -> Iterator[RawLine]:
        from html import unescape

        data = b"".join(self._before)
        self._before, self._size = [], 0
        for part in _BREAK.sub(b"\n", data).splitlines(keepends=True):
            text = unescape(_TAG.sub(b"", part).decode("utf-8", "replace"))
            yield RawLine(self._first, text.encode("utf-8", "replace"), cut)

    def close(self) -> Iterator[RawLine]:
        if self._before:
            yield from self._text(False)


class _Chain:
    """One decoder behind another."""

    def __init__(self, first: _Decoder, second: _Decoder) -> None:
        self._first = first
        self._second = second

    def feed(self, line: RawLine) -> Iterator[RawLine]:
        for decoded in self._first.feed(line):
            yield from self._second.feed(decoded)

    def close(self) -> Iterator[RawLine]:
        for decoded in self._first.close():
            yield from self._second.feed(decoded)
        yield from self._second.close()


class _QuotedPrintable:
    """Joins what soft breaks divide, inside words too; a line has the number of its first part."""

    #: A body in one line of any length is given on in pieces.
    _MAX = 1 << 20

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._first = 0

    def feed(self, line: RawLine) -> Iterator[RawLine]:
        if not self._pieces:
            self._first = line.number
        soft = _SOFT.search(line.data)
        self._pieces.append(line.data[: soft.start()] if soft else line.data)
        self._size += len(line.data)
        if soft is None or self._size > self._MAX:
            yield from self.close(line.cut)

    def close(self, cut: bool = False) -> Iterator[RawLine]:
        if self._pieces:
            data = binascii.a2b_qp(b"".join(self._pieces))
            self._pieces, self._size = [], 0
            yield from (RawLine(self._first, part, cut) for part in data.splitlines(keepends=True))


class _Joined:
    """Lines of what is decoded as it comes; each has the number of the line in which it begins."""

    #: Text without a newline is given on in pieces.
    _MAX = 64 << 10

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._first = 0

    def add(self, decoded: bytes, line: RawLine) -> Iterator[RawLine]:
        """What a line says; the lines that it ends."""
        if not self._pieces:
            self._first = line.number
        self._pieces.append(decoded)
        self._size += len(decoded)
        if b"\n" not in decoded and self._size < self._MAX:
            return
        *parts, rest = b"".join(self._pieces).split(b"\n")
        first = self._first
        for part in parts:
            yield RawLine(first, part + b"\n", False)
            first = line.number
        if not parts:
            yield RawLine(first, rest, True)
            rest = b""
        self._first = first
        self._pieces, self._size = ([rest] if rest else []), len(rest)

    def close(self) -> Iterator[RawLine]:
        """What is left."""
        if self._size:
            yield RawLine(self._first, b"".join(self._pieces), False)
            self._pieces, self._size = [], 0


class _Base64:
    """Decodes as it comes."""

    def __init__(self) -> None:
        self._coded = b""
        self._lines = _Joined()

    def feed(self, line: RawLine) -> Iterator[RawLine]:
        self._coded += b"".join(line.data.split())
        whole = len(self._coded) // 4 * 4
        coded, self._coded = self._coded[:whole], self._coded[whole:]
        try:
            decoded = binascii.a2b_base64(coded)
        except binascii.Error:
            decoded = b""
        return self._lines.add(decoded, line)

    def close(self) -> Iterator[RawLine]:
        return self._lines.close()


class _Stateful:
    """Text that can only be decoded as it comes, whose newlines may be no bytes of their own."""

    def __init__(self, decoder: codecs.IncrementalDecoder) -> None:
        self._decoder = decoder
        self._lines = _Joined()

    def feed(self, line: RawLine) -> Iterator[RawLine]:
        return self._give(self._decoder.decode(line.data), line)

    def _give(self, text: str, line: RawLine) -> Iterator[RawLine]:
        for it in self._lines.add(text.encode("utf-8", "replace"), line):
            yield it._replace(data=_unquoted(it.data))

    def close(self) -> Iterator[RawLine]:
        return self._lines.close()


class _File:
    """An attachment, decoded into memory; one that is too big is not kept."""

    def __init__(self, mails: Mails, where: str, name: str, coding: str) -> None:
        self._mails = mails
        self._where = where
        self._name = name
        inner: dict[str, type[_Base64 | _QuotedPrintable]]
        inner = {"base64": _Base64, "quoted-printable": _QuotedPrintable}
        kind = inner.get(coding)
        self._inner: _Decoder | None = kind() if kind else None
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, line: RawLine) -> Iterator[RawLine]:
        for part in self._inner.feed(line) if self._inner else (line,):
            self._add(part.data)
        return iter(())

    def _add(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= MAX_ATTACHMENT:
            self._data.append(data)

    def close(self) -> Iterator[RawLine]:
        for part in self._inner.close() if self._inner else ():
            self._add(part.data)
        if self._size <= MAX_ATTACHMENT:
            self._mails.keep(Attachment(self._where, self._name, b"".join(self._data)))
        else:
            self._mails.left_out += 1
        return iter(())
