# SPDX-License-Identifier: BSD-2-Clause
"""Which kind of JSON a document is, and what reads it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pagepool.results import by_design, google_benchmark, jsonio, pyperf
from pagepool.results.errors import ResultsError
from pagepool.results.foreign import decode
from pagepool.results.model import ResultSet

#: By the ``schema`` that this project's own documents have.
_OWN: dict[str, Callable[[bytes, str], ResultSet]] = {
    jsonio.SCHEMA: jsonio.loads,
    by_design.WORKLOAD: by_design.workload,
    by_design.DESIGNS: by_design.designs,
}
#: For messages.
UNDERSTOOD = f"understood are {', '.join(_OWN)}, pyperf's and Google Benchmark's"


class _Header(msgspec.Struct):
    """Whatever tells them apart, and whether it is there."""

    schema: object = None
    context: object = None
    benchmarks: object = None
    version: object = None


def loads(data: bytes, file: str) -> ResultSet:
    """Read a document of any kind. Raises `ResultsError` that names the place inside of it."""
    header = decode(data, _Header, file, "result")
    if isinstance(header.schema, str):
        if read := _OWN.get(header.schema):
            return read(data, file)
        raise ResultsError(file, f"schema {header.schema[:80]!r} is unknown", UNDERSTOOD)
    if header.benchmarks is not None and header.context is not None:
        return google_benchmark.loads(data, file)
    if header.benchmarks is not None and header.version is not None:
        return pyperf.loads(data, file)
    raise ResultsError(file, "JSON of an unknown kind", UNDERSTOOD)
