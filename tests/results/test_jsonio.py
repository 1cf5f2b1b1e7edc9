# SPDX-License-Identifier: BSD-2-Clause
"""The project's JSON: everything comes back, and broken documents say where."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagepool.results import jsonio
from pagepool.results.errors import ResultsError
from pagepool.results.model import (
    Build,
    Input,
    Oddity,
    Record,
    ResultSet,
    Run,
    Source,
)
from pagepool.results.reader import read

DATA = Path(__file__).parents[1] / "data"
COUNTS = st.none() | st.integers(0, 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20)

RECORDS = st.builds(
    Record,
    name=TEXTS,
    kind=st.sampled_from(["elem", "cpu", "sum"]),
    step=st.none() | st.integers(0, 1000),
    cpu=st.none() | st.integers(0, 1000),
    cpus=COUNTS,
    printed_cycles=COUNTS,
    printed_ns=st.none() | st.from_regex(r"\A[0-9]{1,9}\.[0-9]{3}\Z"),
    time_interval_ns=COUNTS,
    invoke_count=COUNTS,
    tsc_interval=COUNTS,
    instructions=COUNTS,
    uptime=st.none() | st.floats(0, 1e9),
    source=st.none() | st.builds(Source, file=TEXTS, line=st.integers(0, 10**9)),
    oddities=st.lists(TEXTS, max_size=2).map(tuple),
)
MACHINES = st.dictionaries(TEXTS, TEXTS, max_size=3)
RESULTS = st.builds(
    ResultSet,
    builds=st.lists(
        st.builds(
            Build,
            label=TEXTS,
            runs=st.lists(
                st.builds(Run, records=st.lists(RECORDS, max_size=3).map(tuple), settings=MACHINES),
                max_size=2,
            ).map(tuple),
            kernel=st.none() | TEXTS,
            heading=st.none() | TEXTS,
            machine=MACHINES,
        ),
        max_size=2,
    ).map(tuple),
    oddities=st.lists(
        st.builds(Oddity, file=TEXTS, line=st.integers(0, 10**6), text=TEXTS), max_size=2
    ).map(tuple),
    sources=st.lists(st.builds(Input, file=TEXTS), max_size=2).map(tuple),
)


@given(RESULTS)
def test_everything_comes_back(results: ResultSet) -> None:
    assert jsonio.loads(jsonio.dumps(results)) == results


LOGS = [path for path in sorted(DATA.glob("*.txt")) if path.stem != "stalled-pool"]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_real_logs_come_back(path: Path, tmp_path: Path) -> None:
    results = read(str(path))
    document = tmp_path / "results.json"
    jsonio.dump(results, document)
    assert jsonio.load(document) == results
    again = read(str(document))
    assert again.builds == results.builds
    assert again.oddities == results.oddities


def test_streams_and_paths() -> None:
    results = ResultSet(builds=(Build("a"),))
    stream = io.StringIO()
    jsonio.dump(results, stream)
    assert json.loads(stream.getvalue())["schema"] == "pagepool.results/1"
    assert jsonio.load(io.StringIO(stream.getvalue())) == results
    assert jsonio.load(io.BytesIO(stream.getvalue().encode())) == results


def document(**record: object) -> str:
    runs = [{"records": [{"name": "x", **record}]}]
    return json.dumps({"schema": jsonio.SCHEMA, "builds": [{"label": "a", "runs": runs}]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "broken JSON"),
        ("{", "broken JSON"),
        ('{"schema": "pagepool.results/1", "builds": [', "broken JSON"),
        ("[]", "not a pagepool result"),
        ("{}", "missing required field `schema`"),
        ('{"schema": "other/1"}', "'other/1' is unknown; this version reads"),
        ('{"schema": "pagepool.results/1", "builds": 3}', "at `$.builds`"),
        (document(step="a"), "at `$.builds[0].runs[0].records[0].step`"),
        (document(printed_ns="1e5"), "records[0].printed_ns`"),
        (document(invoke_count=-1), "records[0].invoke_count`"),
        (document(kind="other"), "records[0].kind`"),
        (document(name="\x1b[31m"), "records[0].name`"),
        (document(name="a\u202eb"), "records[0].name`"),
        (document(name="a\u2066b"), "records[0].name`"),
        (document(printed_ns="5.000\n"), "records[0].printed_ns`"),
        ("[" * 100_000, "result"),
        ('{"schema": "pagepool.results/1", "builds": ' + "[" * 100_000, "JSON"),
    ],
)
def test_broken_documents_say_where(text: str, message: str) -> None:
    with pytest.raises(ResultsError) as caught:
        jsonio.loads(text, "file.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith("file.json: ")
    assert "\n" not in str(caught.value)


def test_a_later_minor_version_may_have_more_fields() -> None:
    assert jsonio.loads(document(colour="red")).builds[0].records[0].name == "x"


def test_impossible_records_are_marked_as_in_text(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(document(printed_ns="5.000", invoke_count=0, time_interval_ns=5))
    (record,) = read(str(path)).builds[0].records
    assert record.oddities == ("zero-loops",)


def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jsonio, "MAX_BYTES", 10)
    path = tmp_path / "x.json"
    path.write_text(document())
    for reader in (jsonio.load, lambda name: read(str(name))):
        with pytest.raises(ResultsError, match="JSON of more than"):
            reader(path)
