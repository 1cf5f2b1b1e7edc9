# SPDX-License-Identifier: BSD-2-Clause
"""Result sets as JSON, schema ``pagepool.results/1``.

The document is the model, field by field, with a ``schema`` in front. Fields with their default
value are left out. A reader of a later version 1 may meet fields that it does not know: they
are ignored; a change that would break a reader gets another number.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

import msgspec

from pagepool.results.errors import ResultsError
from pagepool.results.model import Build, Input, Oddity, ResultSet

SCHEMA = "pagepool.results/1"

#: A document is read as a whole, so its size is bounded: some 300,000 records.
MAX_BYTES = 128 << 20


class _Header(msgspec.Struct):
    schema: str


class _Document(msgspec.Struct, omit_defaults=True):
    schema: str
    builds: tuple[Build, ...] = ()
    oddities: tuple[Oddity, ...] = ()
    sources: tuple[Input, ...] = ()


def dumps(results: ResultSet) -> str:
    """The document as text: indented, ending with a newline."""
    document = _Document(SCHEMA, results.builds, results.oddities, results.sources)
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def dump(results: ResultSet, target: str | Path | IO[str]) -> None:
    """Write the document to a path or to a text stream. Raises ``OSError``."""
    text = dumps(results)
    if isinstance(target, (str, Path)):
        Path(target).write_text(text, encoding="utf-8")
    else:
        target.write(text)


def loads(data: bytes | str, name: str = "<json>") -> ResultSet:
    """Read a document. Raises `ResultsError` that names the place inside the document."""
    try:
        header = msgspec.json.decode(data, type=_Header)
    except msgspec.ValidationError as error:
        raise ResultsError(name, f"not a pagepool result: {error}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ResultsError(name, f"broken JSON: {_one_line(error)}", "is it complete?") from None
    if header.schema != SCHEMA:
        raise ResultsError(
            name, f"schema {header.schema[:80]!r} is unknown", f"this version reads {SCHEMA!r}"
        )
    try:
        document = msgspec.json.decode(data, type=_Document)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ResultsError(name, f"bad result: {_one_line(error)}") from None
    return ResultSet(document.builds, document.oddities, document.sources)


def load(source: str | Path | IO[bytes] | IO[str], name: str | None = None) -> ResultSet:
    """Read a document from a path or a stream. Raises `ResultsError`."""
    if isinstance(source, (str, Path)):
        name = name or str(source)
        try:
            with Path(source).open("rb") as stream:
                data: bytes | str = stream.read(MAX_BYTES + 1)
        except OSError as error:
            raise ResultsError(name, error.strerror or str(error)) from None
    else:
        name = name or str(getattr(source, "name", "<stream>"))
        data = source.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ResultsError(name, f"JSON of more than {MAX_BYTES >> 20} MiB", "split it")
    return loads(data, name)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
