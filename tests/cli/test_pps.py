# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool pps``: rates to nanoseconds and back, with what rounding leaves open."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagepool.cli.pps import command
from pagepool.results import rates


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    command.main(list(arguments), standalone_mode=False)
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        command.main(list(arguments), standalone_mode=False)
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "--before", "49.3M", "--after", "40.9Mpps").splitlines()
    # 10^9 / 49.3e6 = 20.2840, / 40.9e6 = 24.4499.
    assert lines[1].split() == [
        *("before", "49,300,000", "49,250,000..49,350,000", "20.284", "20.263..20.305")
    ]
    assert lines[2].split()[3] == "24.450"
    assert lines[3].split()[:2] == ["change", "-8,400,000"]
    assert lines[3].split()[3:] == ["+4.166", "+4.115..+4.216"]
    assert lines[4].split()[:2] == ["-17.04", "%"]


def test_a_difference_and_its_rounded_percentage(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(capsys, "--diff", "-8387677", "--percent", "17", "--format", "json"))
    change = document["change"]
    # 8387677 / 0.17, of 0.175 and 0.165.
    assert change["before"]["value"] == pytest.approx(49_339_276, abs=1)
    assert change["before"]["least"] == pytest.approx(47_929_580, rel=1e-6)
    assert change["before"]["most"] == pytest.approx(50_834_409, rel=1e-6)
    assert change["after"]["value"] == pytest.approx(40_951_599, abs=1)
    assert change["ns"]["value"] == pytest.approx(4.1513, abs=1e-3)
    assert 3.8 < change["ns"]["least"] < change["ns"]["value"] < change["ns"]["most"] < 4.5
    assert change["rate_percent"]["value"] == -17


def test_the_wire(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--link", "100G") == (
        "wire speed, 100G and 64-byte frames: 148,809,523 packets/s, 6.720 ns a packet\n"
    )
    assert "67.200 ns" in run(capsys, "--link", "10G")
    assert "812,743 packets/s" in run(capsys, "--link", "10G", "--frame", "1518")
    assert run(capsys, "74404762", "--link", "100G").splitlines()[1].endswith("50.0 %")


def test_there_and_back(capsys: pytest.CaptureFixture[str]) -> None:
    rows = run(capsys, "67.2ns", "14,880,952").splitlines()[1:]
    assert rows[0].split()[1] == "14,880,952"
    assert rows[1].split()[3:] == ["67.200", "67.200..67.200"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "nothing to convert"),
        (("fast",), "no number"),
        (("10 furlongs",), "no unit"),
        (("0",), "nothing at all"),
        (("0.4",), ""),
        (("--before", "1M"), "--before and --after, or --diff and --percent"),
        (("--before", "1M", "--after", "2M", "--diff", "1"), "or --diff and --percent"),
        (("--diff", "0", "--percent", "3"), "no percentage"),
        (("--diff", "5", "--percent", "-3"), "positive and its percentage negative"),
        (("--diff", "5", "--percent", "0"), "the rate may be any"),
        (("--diff", "-5", "--percent", "100"), "100 % or more"),
        (("--link", "fast"), "--link"),
        (("--link", "10G", "--frame", "60"), "64 to 65535"),
    ],
)
def test_what_it_refuses(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    if said:
        assert said in refused(capsys, *arguments)
    else:
        assert "0.400" not in run(capsys, *arguments)


figures = st.fractions(min_value=Fraction(1, 1000), max_value=10**12).map(
    lambda it: rates.Range(it, it * Fraction(99, 100), it * Fraction(101, 100))
)


@given(figures, figures)
def test_ranges_hold_what_they_were_made_of(before: rates.Range, after: rates.Range) -> None:
    moved = rates.change(before, after)
    for figure in moved:
        assert figure.least <= figure.value <= figure.most
    ns = 10**9 / after.least - 10**9 / before.most
    assert moved.ns.most == ns
    assert rates.invert(rates.invert(before)) == before


@given(
    st.integers(10**6, 10**10),
    st.integers(-90, 400).filter(lambda percent: abs(percent) >= 2),
)
def test_a_difference_finds_its_rates_again(before: int, percent: int) -> None:
    """Whatever was rounded to whole per cent: the true rates are within what is said."""
    diff = before * percent // 100 or 1
    true = Fraction(diff * 100, before)
    if abs(round(true)) < 1:
        return
    moved = rates.change_of(*(rates.parse(str(it))[0] for it in (diff, round(true))))
    assert moved.before.least <= before <= moved.before.most
    assert moved.after.least <= before + diff <= moved.after.most
    cost = Fraction(10**9, before + diff) - Fraction(10**9, before)
    assert moved.ns.least <= cost <= moved.ns.most
