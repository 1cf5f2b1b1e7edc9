# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's line: written with the kernel's arithmetic, read back from whatever mails do."""

from __future__ import annotations

import io
import random
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagepool.results.errors import ResultsError
from pagepool.results.lines import read_lines
from pagepool.results.model import Record, ResultSet
from pagepool.results.reader import read_stream
from pagepool.results.text import TextReader
from pagepool.results.time_bench import RecordParser, format_record

FOR_LOOP = (
    "time_bench: Type:for_loop Per elem: 1 cycles(tsc) 0.284 ns (step:0) - (measurement period "
    "time:0.284327440 sec time_interval:284327440) - (invoke count:1000000000 "
    "tsc_interval:1023590451)"
)


def read(text: str) -> ResultSet:
    return TextReader("log").read(read_lines(io.BytesIO(text.encode())))


def test_the_line_of_a_real_log_is_written_again() -> None:
    record = Record(
        name="for_loop",
        step=0,
        time_interval_ns=284327440,
        invoke_count=1000000000,
        tsc_interval=1023590451,
    )
    assert format_record(record) == FOR_LOOP


def test_figures_are_cut_and_not_rounded() -> None:
    record = Record(name="x", time_interval_ns=1999999, invoke_count=1000, tsc_interval=1999)
    assert format_record(record).startswith("time_bench: Type:x Per elem: 1 cycles(tsc) 1999.999")
    record = Record(name="x", time_interval_ns=59_999, invoke_count=10_000, tsc_interval=0)
    assert record.ns_printed == Decimal("5.999")


def test_decimals_are_right_for_a_count_that_is_no_multiple_of_1000() -> None:
    # The kernel prints "5.1000" here: the remainder by count / 1000, an integer division.
    count, interval = 10_000_999, 10_000_999 * 6 - 1
    assert interval % count // (count // 1000) == 1000
    record = Record(name="x", time_interval_ns=interval, invoke_count=count, tsc_interval=1)
    assert " 5.999 ns" in format_record(record)


def test_a_cpu_line_and_a_sum_line() -> None:
    cpu = Record(name="p", kind="cpu", cpu=3, step=2, printed_cycles=1795, printed_ns="782.567")
    assert format_record(cpu) == "time_bench: Type:p CPU(3) 1795 cycles(tsc) 782.567 ns (step:2)"
    total = Record(name="p", kind="sum", cpus=3, step=2, printed_cycles=1558)
    assert format_record(total) == (
        "time_bench: Sum Type:p Average: 1558 cycles(tsc) CPUs:3 step:2"
    )


def test_a_record_without_figures_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="no cycles"):
        format_record(Record(name="x"))
    with pytest.raises(ValueError, match="no nanoseconds"):
        format_record(Record(name="x", printed_cycles=1))


def test_exact_values_come_from_the_intervals() -> None:
    record = Record(
        name="x",
        printed_cycles=1,
        printed_ns="0.284",
        time_interval_ns=284327440,
        invoke_count=1000000000,
        tsc_interval=1023590451,
    )
    assert record.ns == pytest.approx(0.28432744)
    assert record.cycles == pytest.approx(1.023590451)
    assert record.tsc_ghz == pytest.approx(3.6000, abs=1e-3)
    assert record.instructions_per_elem is None
    assert msgspec.structs.replace(record, invoke_count=None).ns == 0.284


@pytest.mark.parametrize(
    ("printed", "expected"),
    [("5.1000", "5.999"), ("5.1003", "5.999"), ("5.12", "5.120"), ("5.1239", "5.123")],
)
def test_printed_fractions_of_any_length(printed: str, expected: str) -> None:
    assert Record(name="x", printed_ns=printed).ns_printed == Decimal(expected)


def test_the_kernels_own_overflowing_decimals_are_no_contradiction() -> None:
    text = (
        "Type:x Per elem: 0 cycles(tsc) 5.1000 ns (step:0) - (measurement period time:0.060005993 "
        "sec time_interval:60005993) - (invoke count:10000999 tsc_interval:1)"
    )
    results = read(text)
    (record,) = results.builds[0].records
    assert record.oddities == ("long-fraction",)
    assert record.ns_printed == Decimal("5.999")
    assert results.oddities[0].line == 1


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("0.284 ns", "0.285 ns", "contradiction"),
        (": 1 cycles", ": 2 cycles", "contradiction"),
        ("time:0.284327440", "time:0.284327441", "contradiction"),
        ("count:1000000000", "count:0", "zero-loops"),
        ("time_interval:284327440", "time_interval:0", "zero-time"),
    ],
)
def test_impossible_values_are_kept_and_marked(before: str, after: str, code: str) -> None:
    results = read(FOR_LOOP.replace(before, after))
    (record,) = results.builds[0].records
    assert code in record.oddities
    assert record.is_usable == (code == "contradiction")
    assert any("for_loop" in oddity.text for oddity in results.oddities)


def test_a_parser_takes_a_line_at_a_time() -> None:
    parser = RecordParser()
    assert parser.feed("Type:x Per") == "open"
    assert parser.feed("elem: 5 cycles(tsc) 2.000") == "open"
    assert parser.feed("ns") == "enough"
    assert parser.feed("(step:0) - (measurement period") == "enough"
    assert parser.is_cut
    assert parser.feed("something else") == "misfit"


def test_instructions_follow_their_record() -> None:
    pmu = "time_bench: Type:for_loop PMU inst/clock4000000000/1023 = 3.000 IPC (inst per cycle)"
    (record,) = read(f"{FOR_LOOP}\n{pmu}\n").builds[0].records
    assert record.instructions == 4_000_000_000
    assert record.instructions_per_elem == 4.0
    (record,) = read(f"{FOR_LOOP}\n{pmu.replace('for_loop', 'lock')}\n").builds[0].records
    assert record.instructions is None


# Whatever a mailer does to a line, the record stays the same.

NAMES = st.one_of(
    st.sampled_from(["for_loop", "tasklet_page_pool01_fast_path", "kmem alloc+free N-pattern"]),
    st.from_regex(r"[a-z][a-z0-9_+-]{0,20}", fullmatch=True).filter(lambda n: n != "inst"),
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    count = draw(st.integers(1000, 2**32 - 1))
    record = Record(
        name=draw(NAMES),
        kind=draw(st.sampled_from(["elem", "cpu"])),
        step=draw(st.none() | st.integers(0, 256)),
        time_interval_ns=draw(st.integers(1, 10**14)),
        invoke_count=count,
        tsc_interval=draw(st.integers(0, 10**15)),
    )
    if record.kind == "cpu":
        record = msgspec.structs.replace(record, cpu=draw(st.integers(0, 8191)))
    return record


PREFIXES = [
    "",
    "[  157.475084] ",
    "[268960.684603] ",
    "[  157.475084][ T1234] ",
    "<6>[    9.000001] ",
    "kern  :info  : [  157.475084] ",
    "[Tue Jan  7 15:15:18 2025] ",
    "Aug 31 19:19:07 host kernel: [200872.810587] ",
    "Jan 07 15:15:18 host kernel: ",
    "2025-01-07T15:15:18+0100 host kernel: ",
    "2025-01-07T15:15:18,123456+01:00 ",
    "Tue Nov 19 20:26:36 2024 kern.warn kernel: [1228581.247516] ",
]


@settings(max_examples=300, deadline=None)
@given(
    record=records(),
    seed=st.integers(0, 2**32),
    prefix=st.sampled_from(PREFIXES),
    quote=st.sampled_from(["", "> ", ">", ">> ", "> > > ", "| ", "> | ", "  "]),
    breaks=st.floats(0, 1),
    trailing=st.booleans(),
    noise=st.booleans(),
)
def test_a_mangled_record_is_the_same_record(
    record: Record,
    seed: int,
    prefix: str,
    quote: str,
    breaks: float,
    trailing: bool,
    noise: bool,
) -> None:
    rng = random.Random(seed)
    line = format_record(record)
    if rng.random() < 0.3:
        line = line.removeprefix("time_bench: ")
    elif rng.random() < 0.2:
        line = line.replace("time_bench:", "bench_page_pool:", 1)
    words = line.split(" ")
    text = prefix + words[0]
    for word in words[1:]:
        text += ((" \n" if trailing else "\n") if rng.random() < breaks else " ") + word
    if noise:
        text = f"a line before\n\n{text}\nbench_page_pool_simple: f(): Cannot use\n and more"
    mangled = "\n".join(quote + part for part in text.split("\n"))
    (read_back,) = read(mangled).builds[0].records
    assert read_back.key == record.key
    assert read_back.step == record.step
    assert read_back.time_interval_ns == record.time_interval_ns
    assert read_back.invoke_count == record.invoke_count
    assert read_back.tsc_interval == record.tsc_interval
    assert read_back.ns_printed == record.ns_printed
    assert read_back.cycles_printed == record.cycles_printed
    assert read_back.oddities == ()


@settings(max_examples=200, deadline=None)
@given(record=records(), at=st.integers(2, 12), breaker=st.integers(0, 4))
def test_nothing_is_joined_across_what_ends_a_record(record: Record, at: int, breaker: int) -> None:
    words = format_record(record).split(" ")
    at = min(at, len(words) - 1)
    head, tail = " ".join(words[:at]), " ".join(words[at:])
    between = ["\n\n", "\n> ", "\n[  158.000000] ", "\n| ", f"\n{FOR_LOOP}\n"][breaker]
    try:
        found = read(f"[  157.475084] {head}{between}{tail}").builds
    except ResultsError as error:
        assert "no results" in str(error)
        return
    for other in (other for build in found for other in build.records):
        if other.key == record.key and other.time_interval_ns != 284327440:
            assert other.tsc_interval is None


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for sample in (data, FOR_LOOP.encode() + data, data + b"\n" + FOR_LOOP.encode()):
        try:
            read_stream(io.BytesIO(sample), "x")
        except ResultsError as error:
            assert "\n" not in str(error)


def test_wherever_a_file_ends_the_last_record_is_whole_or_said_to_be_cut_short() -> None:
    line = FOR_LOOP.removesuffix("\n")
    tails = {line.index(" (step") + 1, line.index(" - (meas") + 1}
    for end in range(line.index("0.284 ns") + len("0.284 ns"), len(line) + 1):
        results = read(line[:end])
        # Whole are a line that has all, and those that mails leave without their tails.
        whole = len(line[:end].rstrip()) + 1 in tails or end == len(line)
        assert ("cut-short" in [oddity.code for oddity in results.oddities]) is not whole, end
        (record,) = results.builds[0].records
        assert ("cut-short" in record.oddities) is not whole
