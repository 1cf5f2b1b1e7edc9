# SPDX-License-Identifier: BSD-2-Clause
"""JSON of pyperf, Google Benchmark and this project's suites: figures, facts, what is refused."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagepool.results import documents, jsonio
from pagepool.results.errors import ResultsError
from pagepool.results.foreign import quotient, timed
from pagepool.results.model import Build, Record, ResultSet
from pagepool.results.reader import read, read_stream

DATA = Path(__file__).parents[1] / "data"
SAMPLES = (
    "google-benchmark.json",
    "google-benchmark-medians.json",
    "pyperf-suite.json",
    "survey.json",
    "workload.json",
)
UNDERSTOOD = (
    "understood are pagepool.results/1, pagepool.workload/1, pagepool.designs/1, pyperf's and "
    "Google Benchmark's"
)


def sample(name: str) -> Any:
    return json.loads((DATA / name).read_text())


def loads(document: object, name: str = "x.json") -> ResultSet:
    return documents.loads(json.dumps(document).encode(), name)


def refused(document: object) -> str:
    with pytest.raises(ResultsError) as caught:
        loads(document)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def named(build: Build, name: str) -> list[Record]:
    return [record for record in build.records if record.name == name]


# pyperf


def test_pyperf_a_process_is_a_run_with_the_mean_of_its_values() -> None:
    (build,) = read(str(DATA / "pyperf-suite.json")).builds
    assert build.label == "pyperf-suite"
    assert [len(run.records) for run in build.runs] == [2] * 4
    for benchmark in sample("pyperf-suite.json")["benchmarks"]:
        name = benchmark["metadata"]["name"]
        inner = benchmark["metadata"].get("inner_loops", 1)
        measured = [run["values"] for run in benchmark["runs"] if "values" in run]
        for record, values in zip(named(build, name), measured, strict=True):
            assert record.ns == pytest.approx(sum(values) / len(values) * 1e9, rel=1e-8)
            assert record.invoke_count == benchmark["metadata"]["loops"] * inner * 3
            assert record.exact_ns is None  # the clock counts whole nanoseconds
            assert record.oddities == ()


def test_pyperf_facts_without_names_of_hosts_and_paths() -> None:
    (build,) = read(str(DATA / "pyperf-suite.json")).builds
    assert build.machine["cpu"] == "AMD EPYC"
    assert build.machine["python"] == "cpython 3.11.7 (64-bit)"
    assert build.machine["cpu config"] == "idle:haltpoll"
    assert build.runs[0].settings["load"] == "2.07"
    assert "host" not in [*build.machine.values(), *build.runs[0].settings.values()]


def test_pyperf_a_unit_that_is_no_time() -> None:
    document = sample("pyperf-bytes.json")
    assert "command: its unit is 'byte', no time; not read" in refused(document)
    document["benchmarks"] += sample("pyperf-suite.json")["benchmarks"]
    document["benchmarks"][0]["metadata"] = {"unit": "byte"}
    document["metadata"]["unit"] = "second"
    results = loads(document)
    assert [odd.code for odd in results.oddities] == ["unit"]
    assert {record.name for record in results.builds[0].records} == {
        "alloc_put",
        "alloc_put_bulk32",
    }


def suite(*values: float, **metadata: object) -> dict[str, Any]:
    run = {"values": values, "metadata": metadata}
    return {"version": "1.0", "benchmarks": [{"runs": [run]}], "metadata": {"name": "x"}}


def test_pyperf_without_loops_the_quotient_is_kept_and_no_count_made_up() -> None:
    (record,) = loads(suite(1.23456789e-9)).builds[0].records
    assert (record.invoke_count, record.time_interval_ns) == (None, None)
    assert record.ns == pytest.approx(1.23456789, rel=1e-15)
    assert (record.printed_ns, str(record.ns_printed)) == ("1.234", "1.234")


def test_pyperf_runs_of_unlike_machines_are_said() -> None:
    document = suite(1e-6, cpu_model_name="one", cpu_count=2)
    document["benchmarks"][0]["runs"] += suite(1e-6, cpu_model_name="other", cpu_count=2)[
        "benchmarks"
    ][0]["runs"]
    results = loads(document)
    assert results.builds[0].machine == {"online cpus": "2"}
    assert "unlike machines or settings: cpu" in results.oddities[0].text


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (suite(1e-6) | {"version": "2.0"}, "pyperf's format '2.0'"),
        (suite(1e-6, loops=0), "benchmark 1: bad pyperf result: loops: Expected `int` >= 1"),
        (suite(1e-6, loops="many"), "loops: Expected `int`, got `str`"),
        (suite(1e-6, loops=10**30), "loops"),
        (suite(-1e-6, 1e-6), "x: a time of -1000 ns; not used"),
        (suite(float("nan")), "x: a time of nan ns; not used"),
        (suite(float("inf")), "not used"),
        (suite(1e308, 1e308), "not used"),
        (suite(1e300), "x: a time of inf ns; not used"),
        (suite(), "no results in it"),
        ({"version": "1.0", "benchmarks": [{}]}, "missing required field `runs` - at `$.bench"),
        ({"version": "1.0", "benchmarks": [{"runs": [{"values": ["x"]}]}]}, "values[0]`"),
        ({"version": "1.0", "benchmarks": 3}, "at `$.benchmarks`"),
    ],
)
def test_pyperf_that_cannot_be(document: object, message: str) -> None:
    assert message in refused(document)


# Google Benchmark


def test_google_benchmark_a_repetition_is_a_run_of_wall_time() -> None:
    results = read(str(DATA / "google-benchmark.json"))
    (build,) = results.builds
    assert len(build.runs) == 3
    iterations = [
        it
        for it in sample("google-benchmark.json")["benchmarks"]
        if it["run_type"] == "iteration" and not it.get("error_occurred")
    ]
    assert len(build.records) == len(iterations) == 15
    for it in iterations:
        (record,) = (r for r in build.runs[it["repetition_index"]].records if r.name == it["name"])
        scale = {"ns": 1, "us": 1000}[it["time_unit"]]
        assert record.ns == pytest.approx(it["real_time"] * scale, rel=1e-6)
        assert record.invoke_count == it["iterations"]
    assert [odd.code for odd in results.oddities] == ["debug-library", "failed"]
    assert results.oddities[1].text == "broken: failed: no device"


def test_google_benchmark_facts() -> None:
    (build,) = read(str(DATA / "google-benchmark.json")).builds
    assert build.machine["online cpus"] == "2"
    assert build.machine["cpu freq"] == "2445 MHz"
    assert build.machine["caches"].startswith("L1 Data 32 KiB, L1 Instruction 32 KiB, L2 Unified 5")
    assert not {"host", "./bench"} & set(build.machine.values())


def test_google_benchmark_medians_where_there_is_nothing_else() -> None:
    results = read(str(DATA / "google-benchmark-medians.json"))
    (run,) = results.builds[0].runs
    medians = {
        it["run_name"]: it["real_time"]
        for it in sample("google-benchmark-medians.json")["benchmarks"]
        if it.get("aggregate_name") == "median"
    }
    assert {record.name: record.ns for record in run.records} == medians
    assert all(record.invoke_count is None for record in run.records)
    assert "aggregates" in [odd.code for odd in results.oddities]


def google(*benchmarks: dict[str, Any], **context: object) -> dict[str, Any]:
    usual = {"name": "a", "iterations": 1000, "real_time": 5e3, "time_unit": "ns"}
    return {"context": context, "benchmarks": [usual | it for it in benchmarks]}


@pytest.mark.parametrize(("unit", "ns"), [("ns", 1.5e6), ("us", 1.5e9), ("ms", 1.5e12)])
def test_google_benchmark_units(unit: str, ns: float) -> None:
    (record,) = loads(google({"real_time": 1.5e6, "time_unit": unit})).builds[0].records
    assert record.ns == ns


def test_google_benchmark_of_old_libraries_says_no_run_type() -> None:
    names = ("a", "a", "a_mean", "a_median", "a_stddev", "a_median_of_3")
    (build,) = loads(google(*({"name": name} for name in names))).builds
    assert [record.name for record in build.records] == ["a", "a_median_of_3", "a"]
    assert len(build.runs) == 2


def test_google_benchmark_writes_what_is_no_json() -> None:
    text = json.dumps(google({"per_second": float("nan")}, {"name": "b", "x": float("-inf")}))
    assert "NaN" in text and "-Infinity" in text
    assert len(documents.loads(text.encode(), "x").builds[0].records) == 2


def test_google_benchmark_warnings() -> None:
    results = loads(google({}, library_build_type="release", cpu_scaling_enabled=True))
    assert [odd.code for odd in results.oddities] == ["cpu-scaling"]
    results = loads(google({}, {"name": "b", "skipped": True, "skip_message": "no NIC"}))
    assert str(results.oddities[0]) == "x.json: note: b: was skipped: no NIC"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (google({}, json_schema_version=2), "Google Benchmark's JSON of version 2"),
        (google({"time_unit": "h"}), "Invalid enum value 'h' - at `$.benchmarks[0].time_unit`"),
        (google({"iterations": -1}), "iterations`"),
        (google({"iterations": 10**400}), ""),
        (google({"real_time": "x"}), "real_time`"),
        (google({"real_time": None}), "a: has no real_time; not used"),
        (google({"real_time": float("nan")}), "a: a time of nan ns; not used"),
        (google({"real_time": -5}), "a: a time of -5000 ns; not used"),
        (google({"real_time": 1e300}), "not used"),
        (google({"name": "x" * 1001}), "name`"),
        (google(), "no results in it"),
        ({"context": {}, "benchmarks": [{"real_time": 3}]}, "missing required field `name`"),
        ({"context": 3, "benchmarks": []}, "at `$.context`"),
    ],
)
def test_google_benchmark_that_cannot_be(document: object, message: str) -> None:
    assert message in refused(document)


def test_a_time_of_nothing_is_kept_and_marked() -> None:
    results = loads(google({"real_time": 0}))
    (record,) = results.builds[0].records
    assert (record.oddities, record.is_usable) == (("zero-time",), False)
    assert [odd.code for odd in results.oddities] == ["zero-time"]


def test_a_time_below_a_nanosecond_is_one() -> None:
    (record,) = loads(google({"real_time": 0.0004, "iterations": 1})).builds[0].records
    assert (record.ns, record.invoke_count, record.oddities) == (0.0004, 1, ())
    assert str(record.ns_printed) == "0.000"


def test_half_a_surrogate_pair_is_no_text() -> None:
    for more in ({}, {"x": float("nan")}):
        assert "broken JSON" in refused(google({"name": "\ud800"} | more))


def test_names_do_not_drive_a_terminal() -> None:
    results = loads(google({"name": "a\x1b[31m\n"}, {"name": "\x1b", "error_occurred": True}))
    assert results.builds[0].records[0].name == "a[31m"
    assert jsonio.loads(jsonio.dumps(results)).builds == results.builds


# This project's suites


def test_a_workload_has_a_build_for_each_design() -> None:
    results = read(str(DATA / "workload.json"))
    assert [build.label for build in results.builds] == ["ring", "ours"]
    for build, result in zip(results.builds, sample("workload.json")["results"], strict=True):
        assert [run.records[0].ns for run in build.runs] == result["ns_per_packet"]
        assert {record.name for record in build.records} == {"workload_tcp-stream"}
        assert {run.loops for run in build.runs} == {result["counts"]["packets"]}
        assert build.machine["cpu"] == "AMD EPYC"
        assert build.runs[0].settings["polls"] == "2000"


def test_a_sweep_has_a_test_for_each_case() -> None:
    document = sample("workload.json")
    for at, result in enumerate(document["results"]):
        result["design"], result["point"] = "ring", {"reader-hiccup": at}
    (build,) = loads(document).builds
    assert [record.name for record in build.runs[0].records] == [
        "workload_tcp-stream reader-hiccup=0",
        "workload_tcp-stream reader-hiccup=1",
    ]
    for result in document["results"]:
        result["ns_per_packet"] = []  # as the model writes it
    assert "no results in it" in refused(document)


def test_a_survey_has_a_build_for_each_design_and_nothing_that_was_predicted() -> None:
    results = read(str(DATA / "survey.json"))
    survey = sample("survey.json")
    assert [build.label for build in results.builds] == survey["designs"] == ["ring", "ours"]
    for build in results.builds:
        values = [path for path in survey["paths"] if path["design"] == build.label]
        for path in values:
            found = [record.ns for record in named(build, path["test"])]
            assert found == path["figure"]["values"]
        names = {record.name for record in build.records}
        assert {"storm producers=1 bulk=1", "cross_cpu returning=1"} <= names
        assert len(build.runs) == 7
    document = survey | {"designs": []}
    assert "no design was measured" in refused(document)


# Any


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_survive_a_conversion(name: str, tmp_path: Path) -> None:
    results = read(str(DATA / name))
    jsonio.dump(results, tmp_path / "x.json")
    assert read(str(tmp_path / "x.json")) == results


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
@pytest.mark.parametrize("name", SAMPLES)
def test_samples_may_be_packed(name: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / f"{name}.x"
    data = (DATA / name).read_bytes()
    path.write_bytes(pack(data))
    found, plain = read(str(path)), read(str(DATA / name))
    assert [r.ns for b in found.builds for r in b.records] == [
        r.ns for b in plain.builds for r in b.records
    ]
    path.write_bytes(pack(data)[: len(pack(data)) // 2])
    with pytest.raises(ResultsError, match="cut short"):
        read(str(path))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, f"x.json: JSON of an unknown kind; {UNDERSTOOD}"),
        ({"schema": "pagepool.compare/1"}, f"'pagepool.compare/1' is unknown; {UNDERSTOOD}"),
        ({"schema": 3}, "JSON of an unknown kind"),
        ({"benchmarks": []}, "JSON of an unknown kind"),
        ({"schema": "pagepool.workload/1"}, "missing required field `workload`"),
        ({"schema": "pagepool.designs/1"}, "missing required field `designs`"),
    ],
)
def test_what_is_understood_is_said(document: object, message: str) -> None:
    assert message in refused(document)


@pytest.mark.parametrize(
    "data", [b'{"a": ', b"{" * 100_000, b'{"a": ' * 100_000, b'{"schema": "\xff"}']
)
def test_broken_json(data: bytes) -> None:
    with pytest.raises(ResultsError, match="broken JSON"):
        documents.loads(data, "x")


@given(total=st.floats(0, 1e18), count=st.integers(1, 2**40))
def test_a_time_keeps_its_precision(total: float, count: int) -> None:
    record = timed("x", total, count)
    assert record.invoke_count == count
    assert record.ns == pytest.approx(total / count, rel=1e-6, abs=0)
    whole = record.time_interval_ns
    assert whole is None or abs(whole - total) <= total * 1e-6


@given(st.floats(0, 2**63 - 1024))
def test_a_quotient_is_kept_to_the_last_digit(ns: float) -> None:
    record = quotient("x", ns)
    assert record.ns == ns
    assert record.ns_printed is not None
    assert 0 <= Fraction(ns) - Fraction(record.ns_printed) < Fraction(1, 1000)


# Mutations

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.sampled_from([0, -1, 2**63, 2**64, 10**400, -(10**400)]),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["\ud800", "\x1b[31m", "x" * 30_000]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = document.items() if isinstance(document, dict) else enumerate(document)
    found = []
    for key, value in inner:
        found.append((*path, key))
        if isinstance(value, (dict, list)):
            found += places(value, (*path, key))
    return found


@pytest.mark.parametrize("name", [*SAMPLES, "pyperf-bytes.json"])
@given(data=st.data())
def test_a_mutated_document_is_read_or_refused_in_one_line(name: str, data: st.DataObject) -> None:
    document = sample(name)
    for _ in range(data.draw(st.integers(1, 4))):
        found = places(document)
        if not found:
            break
        *path, last = data.draw(st.sampled_from(found))
        holder = document
        for key in path:
            holder = holder[key]
        if data.draw(st.booleans()):
            del holder[last]
        else:
            holder[last] = data.draw(JUNK)
    text = json.dumps(document).encode()
    cut = data.draw(st.integers(len(text) // 2, len(text)) | st.just(len(text)))
    survives(text[:cut])


@pytest.mark.parametrize("name", SAMPLES)
@given(data=st.data())
def test_mutated_bytes_are_read_or_refused_in_one_line(name: str, data: st.DataObject) -> None:
    text = bytearray((DATA / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        text[data.draw(st.integers(1, len(text) - 1))] = data.draw(st.integers(0, 255))
    survives(bytes(text))


def survives(text: bytes) -> None:
    """Read, and then it is as good as any other set; or refused in one line."""
    try:
        results = read_stream(io.BytesIO(text), "x.json")
    except ResultsError as error:
        assert "\n" not in str(error)
        return
    for build in results.builds:
        for record in build.records:
            assert record.ns is None or 0 <= record.ns < 2**63
            assert str(record.ns_printed)
    assert jsonio.loads(jsonio.dumps(results)) == results
