# SPDX-License-Identifier: BSD-2-Clause
"""What makes builds unlike, and what follows of it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest
from click.testing import CliRunner

from compare.made import build, record
from pagepool.cli.compare import command
from pagepool.compare import compare as compare_files
from pagepool.compare import unlike
from pagepool.compare.formats import FORMATS, render
from pagepool.compare.report import Report, compare
from pagepool.compare.selection import Chosen
from pagepool.results import kinds
from pagepool.results.jsonio import dumps
from pagepool.results.model import Record, ResultSet

DATA = Path(__file__).parents[1] / "data"
TIMES = [100.0, 100.4, 99.7, 100.1, 99.8, 100.3, 100.2, 99.9]


def side(
    label: str, machine: dict[str, str] | None = None, by: float = 1.0, loops: int = 10**8
) -> Chosen:
    """A build that ran eight times."""
    made = build(label, *([record("x", int(time * by * loops), loops)] for time in TIMES))
    return with_facts(made, machine or {})


def with_facts(one: Chosen, machine: dict[str, str]) -> Chosen:
    return one._replace(build=msgspec.structs.replace(one.build, machine=machine))


def warned(report: Report) -> dict[str, str]:
    pairs = [warning for one in report.comparisons for warning in one.warnings]
    return {
        warning.code: warning.text
        for warning in (*pairs, *report.warnings)
        if warning.code not in ("controls", "one-run", "overlap")
    }


def verdict(report: Report) -> tuple[str, str]:
    it = report.comparisons[0].rows[0].verdict
    assert it is not None
    return it.kind, it.why


def test_every_kind_has_its_place() -> None:
    assert set(unlike.HOW) == set(get_args(kinds.Kind)) - {"free"}
    assert set(kinds.KINDS.values()) | set(kinds.BOOT.values()) | set(kinds.CONFIG.values()) <= set(
        get_args(kinds.Kind)
    )
    codes = [how.code for how in unlike.HOW.values()]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize(
    ("before", "after", "code", "part", "withheld"),
    [
        ({"cpu": "A"}, {"cpu": "B"}, "machines", "cpu (A and B)", "unlike machines"),
        ({"dma": "off"}, {"dma": "mapped"}, "dma", "dma (off and mapped)", "unlike DMA settings"),
        ({"iommu": "Translated"}, {"iommu": "Passthrough"}, "dma",
         "iommu (Translated and Passthrough)", "unlike DMA settings"),
        ({"boot options": "none"}, {"boot options": "iommu=pt"}, "dma",
         "iommu (not given and pt)", "unlike DMA settings"),
        ({"boot options": "none"}, {"boot options": "mitigations=off"}, "mitigations",
         "mitigations (not given and off)", ""),
        ({"mitigations": "spectre_v2=Retpolines"}, {"mitigations": "spectre_v2=IBRS"},
         "mitigations", "spectre_v2 (Retpolines and IBRS)", ""),
        ({"mitigation spec_rstack_overflow": "Safe RET"},
         {"mitigation spec_rstack_overflow": "IBPB"},
         "mitigations", "spec_rstack_overflow (Safe RET and IBPB)", ""),
        ({"governor": "performance"}, {"governor": "powersave"}, "frequency",
         "governor (performance and powersave)", ""),
        ({"virtual machine": "no"}, {"virtual machine": "KVM"}, "virtual-machine",
         "virtual machine (no and KVM)", ""),
        ({"debugging": "none"}, {"debugging": "LOCKDEP, KASAN"}, "debugging",
         "after has LOCKDEP, KASAN", ""),
        ({"config_debug_preempt": "y"}, {}, "debugging",
         "before has DEBUG_PREEMPT; the other side does not tell", ""),
        ({"core build": "release"}, {"core build": "debug, sanitized: address"}, "debugging",
         "core build (release and debug, sanitized: address)", ""),
        ({"statistics": "on"}, {"statistics": "off"}, "settings", "statistics (on and off)", ""),
        ({"preemption mode": "full"}, {"preemption mode": "none"}, "preemption",
         "preemption mode (full and none)", ""),
    ],
)  # fmt: skip
def test_what_differs_is_said(
    before: dict[str, str], after: dict[str, str], code: str, part: str, withheld: str
) -> None:
    sides = [side("a", before), side("b", after, 1.05)]
    report = compare(sides)
    found = warned(report)
    found.pop("debug", None)
    assert list(found) == [code]
    assert part in found[code]
    assert ("--anyway" in found[code]) == bool(withheld)
    assert verdict(report) == (("inconclusive", withheld) if withheld else ("slower", ""))
    forced = compare(sides, anyway=True)
    assert verdict(forced) == ("slower", "")
    assert "--anyway" not in warned(forced)[code]
    for form in FORMATS:
        assert part in render(report, form) or form == "csv"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"cpu": "Intel(R) Xeon(R) CPU E5-1650 v4 @ 3.60GHz"}, {"cpu": "CPU E5-1650 v4 @ 3.60GHz"}),
        ({"cpu": "2 x Intel(R) Xeon(R) Gold 6140 CPU @ 2.30GHz"},
         {"cpu": "Intel Xeon Gold 6140"}),
        ({"cpu": "A"}, {}),
        ({"dma": "off"}, {}),
        ({"kernel": "6.1", "python": "3.11", "load": "1"},
         {"kernel": "6.2", "python": "3.12", "load": "2"}),
        ({"counter": "rdtsc at 2.45 GHz, measured"}, {"counter": "rdtsc at 2.44 GHz, measured"}),
        ({"governor": "not known"}, {"governor": "performance"}),
        ({"virtual machine": "KVM"}, {"virtual machine": "yes"}),
        ({"virtual machine": "KVM"}, {}),
        ({"debugging": "none"}, {"debugging": "not known, no file"}),
        ({"boot options": "none"}, {}),
        ({"mitigations": "tsa=Safe RET"}, {"mitigations": "tsa=safe RET"}),
    ],
)  # fmt: skip
def test_what_does_not_differ_is_not_said(before: dict[str, str], after: dict[str, str]) -> None:
    report = compare([side("a", before), side("b", after, 1.05)])
    assert warned(report) == {}
    assert verdict(report) == ("slower", "")


def test_cpus_of_other_names_are_others() -> None:
    assert not unlike.same_cpu("AMD EPYC 7763 64-Core Processor", "AMD EPYC 9684X")
    assert not unlike.same_cpu("Intel Xeon E5-1650 v4", "Intel Xeon E5-1650 v3")
    assert unlike.same_cpu("AMD EPYC 7763 64-Core Processor", "EPYC 7763")


def test_unlike_loops_have_no_verdict_and_say_so() -> None:
    sides = [side("a"), side("b", by=1.05, loops=10**7)]
    report = compare(sides)
    (text,) = warned(report).values()
    assert text.startswith("unlike loops: x 100000000 and 10000000")
    assert verdict(report) == ("inconclusive", "unlike loops")
    assert verdict(compare(sides, anyway=True)) == ("slower", "")
    # Bulk tests end near the number that was asked for; twice as many is no other measurement.
    for loops in (99_999_978, 2 * 10**8):
        near = compare([side("a"), side("b", by=1.05, loops=loops)])
        assert warned(near) == {}
        assert verdict(near) == ("slower", "")


def test_only_the_tests_with_unlike_loops_have_none() -> None:
    def both(label: str, by: float, loops: int) -> Chosen:
        return build(
            label,
            *(
                [record("x", int(t * by * 10**8)), record("y", int(t * by * loops), loops)]
                for t in TIMES
            ),
        )

    report = compare([both("a", 1.0, 10**8), both("b", 1.05, 10**6)])
    said = {row.test: row.verdict and row.verdict.why for row in report.comparisons[0].rows}
    assert said == {"x": "", "y": "unlike loops"}


def test_noise_is_not_lent_to_unlike_builds_unless_anyway() -> None:
    one = with_facts(build("a", [record("x", 10**10)]), {"dma": "off"})
    two = with_facts(build("b", [record("x", 15 * 10**9)]), {"dma": "mapped"})
    sides, results = [one, two], [ResultSet((side("c", {"dma": "mapped"}).build,))]
    for anyway, method in ((False, "none"), (True, "pooled")):
        it = compare(sides, results=results, anyway=anyway).comparisons[0].rows[0].verdict
        assert it is not None and it.method == method


def test_a_series_says_where_it_has_no_verdict() -> None:
    on, off = {"dma": "mapped"}, {"dma": "off"}
    none = render(compare([side("a", on), side("b", off, 1.05)], series=True), "table")
    assert none.startswith("x: no verdict, unlike DMA settings\n")
    some = [side("a", on), side("b", off, 1.05), side("c", off, 1.0501)]
    assert render(compare(some, series=True), "table").startswith(
        "x: no move where there is a verdict; elsewhere unlike DMA settings\n"
    )


def test_debugging_on_both_sides_is_said_once() -> None:
    report = compare([side(name, {"debugging": "LOCKDEP"}, ord(name) / 97) for name in "abc"])
    assert warned(report) == {
        "debug": "debugging is on in all builds (LOCKDEP): these are not the figures of production"
    }
    some = compare([side("a", {"debugging": "none"}), side("b", {"checked mode": "on: slow"})])
    assert warned(some)["debug"].startswith("debugging is on in b (checked mode)")


FAST, RING = "tasklet_page_pool01_fast_path", "tasklet_page_pool02_ptr_ring"
OUTSIDE = "no-softirq-page_pool02"


def times(**ns: float) -> list[Record]:
    names = {"fast": FAST, "ring": RING, "outside": OUTSIDE, "direct": "no-softirq-page_pool01"}
    return [record(names[name], int(value * 10**8)) for name, value in ns.items()]


@pytest.mark.parametrize(
    ("ns", "is_said"),
    [
        ({"fast": 15.1, "ring": 15.0}, True),
        ({"fast": 19.6, "outside": 19.66}, True),
        ({"fast": 5.4, "ring": 15.1, "outside": 15.6}, False),
        # Newer kernels go the fast way outside of softirqs as well.
        ({"fast": 29.632, "direct": 29.633, "ring": 79.5}, False),
    ],
)
def test_a_fast_path_that_was_none(ns: dict[str, float], is_said: bool) -> None:
    sides = [build("a", times(**ns)), build("b", times(fast=5.0, ring=15.0))]
    text = warned(compare(sides)).get("no-cache")
    assert (text is not None) == is_said
    if text:
        assert text.startswith("a: ") and text.endswith("did not reach the cache")
    mine = with_facts(sides[0], {"pagepool": "0.1.0"})
    assert "no-cache" not in warned(compare([mine, sides[1]]))


def test_one_short_run_is_warned_of_where_several_are_not() -> None:
    short = [record("x", 5 * 10**7, 10**7)]
    assert warned(compare([build("a", short), build("b", short)]))["short"] == (
        "measured once, for less than 0.1 s: x (0.0500 s); use more loops"
    )
    several = [build("a", short, short), build("b", short, short)]
    assert "short" not in warned(compare(several))


def test_the_real_inputs_are_unlike_where_they_are() -> None:
    report = compare_files(str(DATA / "x86-before.txt"), str(DATA / "arm64-patch-by-patch.txt@1"))
    found = warned(report)
    assert "machines" not in found
    assert found["clocks"].startswith("the counters run at 3.60 GHz and 100 MHz: unlike clocks")
    codes = [warning.code for warning in report.comparisons[0].warnings]
    assert "one-run" not in codes  # more runs would not help
    same = compare_files(str(DATA / "x86-before.txt"), str(DATA / "x86-v7-p1-5.txt"))
    assert not {how.code for how in unlike.HOW.values()} & warned(same).keys()


def quoted(one: Chosen, depth: int = 1, **changes: str) -> Chosen:
    """As somebody else's, without its intervals unless ``clock`` is kept."""
    runs = one.build.runs
    if not changes.get("clock"):
        runs = tuple(
            msgspec.structs.replace(
                run,
                records=tuple(
                    msgspec.structs.replace(it, printed_ns=str(it.ns_printed), tsc_interval=None)
                    for it in run.records
                ),
            )
            for run in runs
        )
    return one._replace(build=msgspec.structs.replace(one.build, quoted=depth, runs=runs))


def test_what_is_quoted_is_somebody_elses() -> None:
    report = compare([side("a"), quoted(side("b", by=1.05))], ["ns"])
    assert verdict(report)[0] == "inconclusive"
    assert "one side is quoted" in warned(report)["machines"]
    assert (
        verdict(compare([side("a"), quoted(side("b", by=1.05))], ["ns"], anyway=True))[0]
        == "slower"
    )
    # Unless the counters or the CPUs say that it is the same machine; or both are quoted.
    for before, after in (
        (side("a"), quoted(side("b", by=1.05), clock="kept")),
        (side("a", {"cpu": "X 1"}), quoted(side("b", {"cpu": "X 1"}, by=1.05))),
        (quoted(side("a")), quoted(side("b", by=1.05))),
    ):
        report = compare([before, after], ["ns"])
        assert verdict(report)[0] == "slower"
        assert "machines" not in warned(report)
    real = compare_files(str(DATA / "hand-tables.txt@1"), str(DATA / "hand-tables.txt@3"))
    assert "one side is quoted" in warned(real)["machines"]


def test_the_command_judges_anyway(tmp_path: Path) -> None:
    names = []
    for one in (side("a", {"dma": "off"}), side("b", {"dma": "mapped"}, 1.05)):
        names.append(str(tmp_path / f"{one.build.label}.json"))
        Path(names[-1]).write_text(dumps(ResultSet((one.build,))))
    runner = CliRunner()
    plain = runner.invoke(command, [*names, "--fail-on", "slower"])
    assert plain.exit_code == 0
    assert "unlike DMA settings: dma (off and mapped); no verdict, unless with --anyway" in (
        plain.output
    )
    forced = runner.invoke(command, [*names, "--fail-on", "slower", "--anyway"])
    assert forced.exit_code == 1
    assert "no verdict" not in forced.output


def test_a_third_machine_lends_no_noise_to_two_that_are_unlike_it() -> None:
    """A build without facts is like any; what is unlike one of a pair says nothing of both."""
    pair = [side("a"), side("b", {"cpu": "Some CPU"}, by=1.01)]
    few = [
        one._replace(build=msgspec.structs.replace(one.build, runs=one.build.runs[:2]))
        for one in pair
    ]
    quiet = build("c", *([record("x", 10**10)] for _ in range(8)))
    results = [ResultSet((with_facts(quiet, {"cpu": "Other CPU"}).build,))]
    with_it = compare(few, ["ns"], results=results).comparisons[0].rows[0].verdict
    without = compare(few, ["ns"]).comparisons[0].rows[0].verdict
    assert with_it == without


def test_counted_instructions_of_unlike_machines_have_no_verdict() -> None:
    def counted(label: str, cpu: str, number: int) -> Chosen:
        made = build(
            label, [msgspec.structs.replace(record("x", 10**10), instructions=number * 10**8)]
        )
        return with_facts(made, {"cpu": cpu})

    unlike_ones = [counted("a", "One CPU", 30), counted("b", "Another CPU", 31)]
    assert verdict(compare(unlike_ones, ["instructions"]))[0] == "inconclusive"
    one = [counted("a", "One CPU", 30), counted("b", "One CPU", 31)]
    report = compare(one, ["instructions"])
    if (it := report.comparisons[0].rows[0].verdict) is not None and it.method == "exact":
        assert it.kind == "slower"
