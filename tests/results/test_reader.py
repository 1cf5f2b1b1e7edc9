# SPDX-License-Identifier: BSD-2-Clause
"""Opening files: what fails says why in one line; what is huge stays out of memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pagepool.results import jsonio
from pagepool.results.errors import ResultsError
from pagepool.results.reader import read, read_all, read_stream, same_file

DATA = Path(__file__).parents[1] / "data"
LOG = DATA / "x86-before.txt"


def refused(path: Path | str) -> str:
    with pytest.raises(ResultsError) as caught:
        read(str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"\n\n", "no results in 2 lines"),
        (b"\0\1\2" * 9999, "binary data"),
        (gzip.compress(b"", mtime=0), "empty"),
        (gzip.compress(LOG.read_bytes(), mtime=0)[:40], "gzip data, cut short from here on"),
        (
            lzma.compress(LOG.read_bytes()).replace(b"\x21\x01", b"\x21\x02", 1),
            "xz data, broken from here on",
        ),
        (gzip.compress(gzip.compress(LOG.read_bytes(), mtime=0), mtime=0), "binary data"),
        (b"\x28\xb5\x2f\xfd" + bytes(99), "unpack it with unzstd"),
        (LOG.read_bytes()[:100], "nanoseconds are"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_useless_files(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    assert message in refused(path)


@pytest.mark.parametrize(
    ("suffix", "pack"), [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)]
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_packed_files(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes], form: str
) -> None:
    plain = tmp_path / "log.txt"
    plain.write_bytes(LOG.read_bytes() if form == "text" else jsonio.dumps(read(str(LOG))).encode())
    packed = tmp_path / f"log.txt.{suffix}"
    packed.write_bytes(pack(plain.read_bytes()))
    whole, unpacked = read(str(plain)), read(str(packed))
    assert [build.label for build in unpacked.builds] == [build.label for build in whole.builds]
    assert [r.time_interval_ns for b in unpacked.builds for r in b.records] == [
        r.time_interval_ns for b in whole.builds for r in b.records
    ]
    assert all(
        record.source is None or record.source.file in (str(packed), str(LOG))
        for build in unpacked.builds
        for record in build.records
    )


def test_what_comes_before_the_break_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    text = LOG.read_bytes()
    path.write_bytes(gzip.compress(text * 40)[:-30])
    results = read(str(path))
    assert results.builds
    (odd,) = (it for it in results.oddities if it.code == "packed")
    assert str(odd).endswith(": error: gzip data, cut short from here on")
    assert odd.line > 0
    # Two in one file are one.
    half = text[: text.index(b"\n", len(text) // 2) + 1]
    path.write_bytes(gzip.compress(half) + gzip.compress(text[len(half) :]))
    assert len(read(str(path)).builds[0].records) == len(read(str(LOG)).builds[0].records)


def test_an_error_of_the_file_is_no_broken_packing(tmp_path: Path) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 4000:
                raise OSError(5, "Input/output error")
            return super().read(size)

    noise = bytes(random.Random(1).randbytes(1 << 16))
    with pytest.raises(ResultsError, match="Input/output error"):
        read_stream(Failing(gzip.compress(noise)), "x")


def test_names_that_cannot_be_read(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "none")
    assert "is a directory" in refused(tmp_path)
    assert "no such file" in refused("")
    assert "null" in refused("a\0b")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "symbolic links" in refused(tmp_path / "loop")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("x")
    path.chmod(0)
    assert "permission denied" in refused(path)


def test_a_truncated_file_gives_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(LOG.read_bytes()[:-700])
    records = read(str(path)).builds[0].records
    assert 3 <= len(records) < 9


def test_nuls_of_a_serial_console_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\0\0\0\n" + LOG.read_bytes())
    assert len(read(str(path)).builds[0].records) == 9


def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    thread = threading.Thread(target=lambda: path.write_bytes(LOG.read_bytes()))
    thread.start()
    assert len(read(str(path)).builds[0].records) == 9
    thread.join()


def test_several_files_are_read_once_each_and_failures_stand_beside() -> None:
    results, errors = read_all([str(LOG), "none", str(LOG), str(DATA / "x86-v7.txt")])
    assert [Path(name).name for name, _ in results] == ["x86-before.txt", "x86-v7.txt"]
    assert [error.where for error in errors] == ["none"]


def test_same_file(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to(LOG)
    assert same_file(str(tmp_path / "x"), str(LOG))
    assert not same_file(str(tmp_path / "none"), str(LOG))


def test_the_name_of_a_file_may_be_anything(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\x1b[31m\n"
    Path(os.fsdecode(path)).write_bytes(LOG.read_bytes())
    results = read(os.fsdecode(path))
    assert results.sources[0].file.endswith("/\ufffd[31m")


@pytest.mark.parametrize("one_line", [False, True])
def test_a_huge_file_stays_out_of_memory(tmp_path: Path, one_line: bool) -> None:
    path = tmp_path / "huge"
    noise = b"[   12.345678] mlx5_core 0000:08:00.0 eth0: Link up, and so on\n" * 16_000
    with path.open("wb") as stream:
        for _ in range(64):
            stream.write(b"x" * 1_000_000 if one_line else noise)
        stream.write(b"\n" + LOG.read_bytes())
    program = (
        "import resource, sys; from pagepool.results.reader import read\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "assert len(read(sys.argv[1]).builds[0].records) == 9\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 12 * 1024  # KiB
    # 64 MB: some 3 s; quadratic time would take hours.
    assert time.monotonic() - start < 60
