# SPDX-License-Identifier: BSD-2-Clause
"""Peeling lines, and reading them with bounded memory."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagepool.results.lines import Line, RawLine, Skipped, peel, read_blocks, read_lines


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("time_bench: x\n", Line(0, False, False, None, "time_bench: x")),
        ("[  157.475084] x", Line(0, False, True, 157.475084, "x")),
        ("[268960.684603]", Line(0, False, True, 268960.684603, "")),
        ("157.475084] x", Line(0, False, True, 157.475084, "x")),
        ("> >> [ 1.5] x", Line(3, False, True, 1.5, "x")),
        ("> | x", Line(1, True, False, None, "x")),
        ("| ", Line(0, True, False, None, "")),
        ("|x", Line(0, False, False, None, "|x")),
        ("Aug 31 19:19:07 host kernel: [2.5] x", Line(0, False, True, 2.5, "x")),
        ("Aug 31 19:19:07 host kernel: x", Line(0, False, True, None, "x")),
        ("[Tue Jan  7 15:15:18 2025] x", Line(0, False, True, None, "x")),
        ("[  157.475084] host1 kernel: x", Line(0, False, True, 157.475084, "x")),
        ("[  157.475084 <    0.000012>] x", Line(0, False, True, 157.475084, "x")),
        ("[  +0.000012] x", Line(0, False, True, None, "x")),
        ("[Jan  7 15:15] x", Line(0, False, True, None, "x")),
        ("6,1234,157475084,-;x", Line(0, False, True, None, "x")),
        ("Mon 2024-01-01 00:00:00 CET host1 kernel: x", Line(0, False, True, None, "x")),
        ("kernel: time_bench: x", Line(0, False, True, None, "time_bench: x")),
        ("\x1b[32m[    1.5] \x1b[0mx\x07", Line(0, False, True, 1.5, "x")),
        (
            "<6>1 2026-01-02T03:04:05.678901+00:00 host kernel - - - [  12.345678] time_bench: x",
            Line(0, False, True, 12.345678, "time_bench: x"),
        ),
        (
            "<6>1 2026-01-02T03:04:05Z host kernel 12 ID [a@1 b='c'][d] [1234.5] x",
            Line(0, False, True, 1234.5, "x"),
        ),
        (">\xa0>\xa0time_bench:\xa0x", Line(2, False, False, None, "time_bench: x")),
        # No stamps: prose, a heading, a ratio.
        ("The kernel: what it does", Line(0, False, False, None, "The kernel: what it does")),
        ("Control kernel: built", Line(0, False, False, None, "Control kernel: built")),
        ("0.284 ns (step:0)", Line(0, False, False, None, "0.284 ns (step:0)")),
        ("16 - 4 a b c - x", Line(0, False, False, None, "16 - 4 a b c - x")),
        ("[1] see below", Line(0, False, False, None, "[1] see below")),
    ],
)
def test_peel(raw: str, expected: Line) -> None:
    assert peel(raw) == expected


@given(st.text(max_size=200))
def test_peel_takes_any_text(text: str) -> None:
    line = peel(text)
    assert line.text == line.text.strip()
    assert "\x1b" not in line.text


def test_peel_takes_linear_time_for_hostile_lines() -> None:
    for text in ("a" * 16_000, " a" * 8_000, "> " * 8_000, "[" * 16_000, "Jan 1 " * 3_000):
        peel(text + "!")  # would take hours if the expression could backtrack


@given(st.binary(max_size=300), st.integers(1, 40))
def test_lines_are_those_of_the_stream_cut_at_the_limit(data: bytes, limit: int) -> None:
    expected = []
    for number, line in enumerate(io.BytesIO(data), 1):
        text = line.removesuffix(b"\n")
        expected.append(RawLine(number, line[:limit], len(text) > limit))
    assert list(read_lines(io.BytesIO(data), limit)) == expected


@given(st.lists(st.binary(max_size=60), max_size=30), st.integers(2, 40), st.booleans())
def test_blocks_are_the_same_lines(parts: list[bytes], limit: int, dull: bool) -> None:
    """Whatever is skipped, the numbers of the lines that are not, and all that is said of them."""
    data = b"\n".join(parts)
    every = list(read_lines(io.BytesIO(data), limit))
    number = size = 0
    for line in read_blocks(io.BytesIO(data), lambda block: dull and b"\1" not in block, limit):
        if isinstance(line, Skipped):
            assert dull
            number, size = number + line.lines, size + line.size
            tail = [it.data.removesuffix(b"\n") for it in every[number - len(line.tail) : number]]
            assert [part[:limit] for part in line.tail] == tail
        else:
            assert line == every[number]
            number, size = number + 1, size + len(line.data)
    assert number == len(every)
    assert size == len(data) or any(len(part) >= limit for part in parts)
