# SPDX-License-Identifier: BSD-2-Clause
"""The readers take anything: results or one line, never an exception, a hang or quadratic time."""

from __future__ import annotations

import contextlib
import io
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pagepool.results import jsonio
from pagepool.results.errors import ResultsError
from pagepool.results.listing import listing
from pagepool.results.model import ResultSet
from pagepool.results.reader import read_stream

DATA = Path(__file__).parents[1] / "data"
FILES = {path.stem: path.read_bytes() for path in sorted(DATA.glob("*.txt"))}
LINES = sorted({line for data in FILES.values() for line in data.splitlines(keepends=True)})
#: Pieces that readers look for.
PIECES = [
    b"time_bench: Type:", b"Type:x Per elem: 1 cycles(tsc) 0.5 ns (step:0)", b" - (measurement ",
    b"Sum Type:", b"Average:", b"CPU(", b"> ", b"| ", b"|--+--|", b"\t", b"    ", b"cycles", b" ns",
    b"Before:", b"after", b"With patch 1-4:", b"---------", b"07ea810753bd ", b"Linux version 6.1 ",
    b"[  1.000000] ", b"Aug 31 19:19:07 host kernel: ", b"# cpu: x", b"# run 2", b"cycles nanosec ",
    b"From: a@b\nSubject: x\n\n", b"From x Thu Jan  1 00:00:00 1970\n", b"--b\n", b"=\n", b"=3D",
    b"Content-Type: multipart/mixed; boundary=b\n", b"cost per elem: 5 cycles(tsc) 1.5 ns",
    b"XDP-RX CPU      total   22,188,213", b"fast_path ptr_ring slow", b"1. 5.0 ns 6.0 ns 7.0 ns",
    b"Ethtool(x) stat: 5 ( 5) <= a /sec", b"9" * 30, b"9.9.9", b"-", b"\0", b"\xff\xfe", b"\r\n",
    b"\n", b"{", b"\x1f\x8b", b"order:0(4096B/x1) 223 cycles per-4096B 223 cycles", b"-> 5 cycles",
    b"| test | a (ns) | b |\n", b" 5.1 ns (-4%) ", b" 19 +- 1", b"\xc2\xb1", b" us ", b"(us)",
    b"| kernel | test | ns |\n", b"\xc2\xa0", b"test,a ns,b\n", b"x,1,2\n", b"cycles/ns", b"5/1.5",
    b" 19 cycles (5.399 ns)", b"test   kernel\tns\n", b'"', b"\xe2\x80\xae", b"+",
    b"time_bench: Type: ", b"9M",
    b"<a\n", b"+---+\n", "│".encode(), b"On the Xeon 6430:\n", b"Machine B:\n",
    b"<6>1 2026-01-02T03:04:05Z host kernel - - - ", "Before:\n".encode("utf-16"),
]  # fmt: skip


def check(data: bytes) -> None:
    """Read it; what comes out can be listed, and written and read again."""
    try:
        results = read_stream(io.BytesIO(data), "fuzz")
    except ResultsError as error:
        assert "\n" not in str(error)
        return
    assert any(build.runs and build.records for build in results.builds)
    assert len({build.label for build in results.builds}) == len(results.builds)
    assert listing("fuzz", results)
    again = jsonio.loads(jsonio.dumps(results))
    assert isinstance(again, ResultSet)
    assert again == results


@settings(max_examples=300)
@given(st.lists(st.sampled_from(LINES) | st.sampled_from(PIECES), max_size=60))
def test_lines_and_pieces_in_any_order(parts: list[bytes]) -> None:
    check(b"".join(parts))


@settings(max_examples=300)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_real_files_with_damage(name: str, data: st.DataObject) -> None:
    raw = bytearray(FILES[name][:20_000])
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(raw)))
        length = data.draw(st.sampled_from([0, 1, 2, 7, 80, 500]))
        piece = data.draw(st.sampled_from([b"", *PIECES]) | st.binary(max_size=8))
        raw[at : at + length] = piece
    check(bytes(raw))


@given(st.binary(max_size=2000))
@example(b"From \n")
@example(b"\xef\xbb\xbf{")
def test_any_bytes(data: bytes) -> None:
    check(data)


#: Text that makes a bad expression or a bad loop try everything again: repeated, it grows.
HOSTILE = {
    "quotes": b"> " * 50,
    "quoted lines": b"> > > a\n",
    "bars": b"|a" * 40,
    "bar rows": b"| a | 1 |\n",
    "bars without an end": b"| " * 40,
    "rules": b"-=" * 40,
    "numbers": b"1 2 3 4 5 6 7 8 9 10 ",
    "rows": b"a 1.000 2.000\n",
    "rows below a head": b"cycles nanosec\na 1 2.000\n",
    "names": b"a_b c(d) e, ",
    "types": b"Type:a Type:b ",
    "records without an end": b"time_bench: Type:a Per elem: 1 cycles(tsc)\n",
    "records": b"Type:a Per elem: 1 cycles(tsc) 5.000 ns (step:0)\n",
    "said": b"a Per elem: 1 cycles(tsc) 5.000 ns\n",
    "costs": b"- cost per elem: 1 cycles(tsc) 5.000 ns\n",
    "bare": b"3 cycles(tsc) 31.171 ns\n",
    "headings": b"Before:\nafter:\n",
    "stamps": b"[ 1.000000] x\n",
    "dates": b"Aug 31 19:19:07 a: ",
    "blanks": b" " * 100,
    "tabs": b"\t" * 100,
    "digits": b"1,234" * 20,
    "samples": b"Summary 1 rx/s\n",
    "boundaries": b"--b\n",
    "mails": b"\nFrom x Thu Jan  1 00:00:00 1970\nSubject: x\n\n",
    "soft breaks": b"=3D=\n",
    "words": b"with patch with patch ",
    "parameters": b"bench_page_pool a=1,a=1,",
    "tags": b"<<<<",
    "tags without an end": b"<a\n",
    "tags in tags": b"<a<a",
    "tags over lines": b"x <a\n>",
    "changes": b"5.1 (-4%, ",
    "brackets": b"a (((((((",
    "spreads": b"5 +- 5 \xc2\xb1 ",
    "parts": b"| a (ns) | 1 | 2 |\n| b (cycles) | 1 | 2 |\n",
    "additions": b"+ + +",
    "hashes": b"# # #",
    "hard blanks": b"\xc2\xa0" * 60,
    "pairs": b"5 cycles (1.5 ns) ",
    "pairs without units": b"5/1.5 (5",
    "commas": b"test,a,5\n",
    "quotes of commas": b'"a,""",',
    "narrow tabs": b"abcdefg\t",
    "syslog": b"1 2026-01-02T03:04:05Z a b c d [a ",
}
HEADS = {
    "boundaries": b"From: a@b\nContent-Type: multipart/mixed; boundary=b\n\n",
    "soft breaks": b"From: a@b\nContent-Transfer-Encoding: quoted-printable\n\n",
    **dict.fromkeys(
        ("tags", "tags without an end", "tags in tags", "tags over lines"),
        b"From: a@b\nContent-Type: text/html\n\n",
    ),
    "parts": b"| test | before | after |\n|-|-|-|\n",
}


def seconds(data: bytes) -> float:
    """The least CPU time of two readings."""
    times = []
    for _ in range(2):
        start = time.process_time()
        with contextlib.suppress(ResultsError):
            read_stream(io.BytesIO(data), "fuzz")
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize("name", HOSTILE)
def test_time_grows_with_the_input_and_not_with_its_square(name: str) -> None:
    """Eight times the text is 8 times the time, and 64 times if something is quadratic."""
    head, piece = HEADS.get(name, b""), HOSTILE[name]
    small = head + piece * (4_000 // len(piece))
    large = head + piece * (8 * 4_000 // len(piece))
    for tail in (b"\n", b" !\n"):
        # The constant keeps a timer's tick and the caches' warming out of a millisecond.
        assert seconds(large + tail) < 30 * (seconds(small + tail) + 0.002), name
