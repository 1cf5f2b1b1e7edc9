# SPDX-License-Identifier: BSD-2-Clause
"""Files, patterns of files, and builds of files, as people name them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagepool.compare import compare
from pagepool.results import read
from pagepool.results.arguments import Selector, expand, files, natural, parse
from pagepool.results.errors import ResultsError

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to stand in, with files and a directory that match."""
    for name in ("v2.txt", "v10.txt", "V1.txt", "base.txt", "other.log", "b@1.txt"):
        (tmp_path / name).write_bytes((DATA / "x86-before.txt").read_bytes())
    (tmp_path / "v3.txt").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_patterns_are_expanded_in_natural_order(logs: Path) -> None:
    assert files(["[vV]*.txt"]) == ["V1.txt", "v2.txt", "v10.txt"]
    assert files([f"{logs}/v*.txt"]) == [f"{logs}/v2.txt", f"{logs}/v10.txt"]
    assert files(["**/v2.txt", "-", "none"]) == ["v2.txt", "-", "none"]


def test_a_pattern_leaves_out_what_was_named(logs: Path) -> None:
    assert files(["v?.txt", "v10.txt", "./v*"]) == ["v2.txt", "v10.txt"]
    assert files(["v2.txt", "v2.txt"]) == ["v2.txt", "v2.txt"]
    assert expand(["v10.txt", "v*.txt"]) == [[Selector("v10.txt", None)], [("v2.txt", None)]]


def test_a_build_of_each_file_of_a_pattern(logs: Path) -> None:
    assert expand(["v*.txt@2"]) == [[("v2.txt", "2"), ("v10.txt", "2")]]
    assert expand(["b*@1.txt"]) == [[("b@1.txt", None)]]  # the whole name goes first
    assert expand(["b@1.txt", "v2.txt@[x]"]) == [[("b@1.txt", None)], [("v2.txt", "[x]")]]
    assert str(parse("v2.txt@before")) == "v2.txt@before"


def test_a_file_may_be_named_like_a_pattern(logs: Path) -> None:
    (logs / "a[1]*.txt").write_text("x")
    assert files(["a[1]*.txt"]) == ["a[1]*.txt"]


@pytest.mark.parametrize("pattern", ["none*", "x*.txt@2", "[a", "*\0", "v3*"])
def test_a_pattern_that_nothing_matches(logs: Path, pattern: str) -> None:
    for expanded in (files, expand):
        with pytest.raises(ResultsError) as caught:
            expanded([pattern])
        assert "no file matches this pattern; check the directory" in str(caught.value)


def test_the_python_api_takes_patterns(logs: Path) -> None:
    assert [it.file for it in read("v*.txt").sources] == ["v2.txt", "v10.txt"]
    assert [it.file for it in read(Path("v*.txt"), "base.txt").sources][2:] == ["base.txt"]
    report = compare("base.txt", "v*.txt")
    assert [side.file for side in report.sides] == ["base.txt", "v2.txt", "v10.txt"]
    mixed = compare(read("base.txt").builds[0], "v*.txt@1")
    assert [side.file for side in mixed.sides] == ["base.txt", "v2.txt", "v10.txt"]


def test_numbers_in_names_go_by_their_value() -> None:
    names = ["a10", "a9", "A1", "a", "10", "9"]
    assert sorted(names, key=natural) == ["9", "10", "a", "A1", "a9", "a10"]


@given(st.lists(st.text(), max_size=6), st.randoms())
def test_any_names_have_one_order(names: list[str], random: Random) -> None:
    shuffled = list(names)
    random.shuffle(shuffled)
    assert sorted(names, key=natural) == sorted(shuffled, key=natural)
