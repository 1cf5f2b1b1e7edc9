# SPDX-License-Identifier: BSD-2-Clause
"""76 columns, and nothing in front that a mail program would act on."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagepool.compare import narrow
from pagepool.compare.formats import Column
from pagepool.results.lines import clean

WORDS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200), max_size=8
)


def read_by_a_shell(lines: list[str]) -> list[str]:
    """What a shell makes of a command: its words."""
    script = "\n".join([f"printf '%s\\0' {lines[0].lstrip()}", *lines[1:]])
    shell = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    assert shell.stderr == b""
    return shell.stdout.decode().split("\0")[:-1]


@given(WORDS)
@settings(max_examples=60)
def test_a_shell_reads_the_words_of_a_command(words: list[str]) -> None:
    words = ["pagepool", *map(clean, words)]
    lines = narrow.command([shlex.quote(word) for word in words], "    ")
    assert all(narrow.columns(line) <= narrow.WIDTH for line in lines)
    assert all(narrow.guard(line) == line == line.rstrip() for line in lines)
    assert read_by_a_shell(lines) == words


def test_a_command_is_broken_between_words_and_a_long_word_in_the_first_column() -> None:
    assert narrow.command(["a", "b" * 50, "c" * 30], "  ") == [
        f"  a {'b' * 50} \\",
        f"      {'c' * 30}",
    ]
    assert narrow.command(["a", "b" * 55, "--option", "c" * 10], "") == [
        f"a {'b' * 55} \\",
        f"    --option {'c' * 10}",
    ]
    first, second = narrow.command(["d" * 100], "  ")
    assert (first[:4], first[-2:], second[0]) == ("  'd", "'\\", "'")


@given(st.text(max_size=300), st.sampled_from(["", "- ", "Statistics: "]))
def test_a_paragraph_loses_nothing_but_blanks(text: str, lead: str) -> None:
    hang = "" if not lead else "  "
    lines = narrow.wrap(text, lead, hang)
    assert "".join("".join(lines).split()) == "".join(f"{lead}{clean(text)}".split())
    for line in lines:
        assert narrow.columns(line) <= narrow.WIDTH
        assert narrow.guard(line) == line == line.rstrip()


@pytest.mark.parametrize(
    "text", ["From here", ">", "--", "-- ", "---", "diff -u", "Index: x", "# x", "--- a/net"]
)
def test_what_ends_a_mail_is_moved_to_the_right(text: str) -> None:
    assert narrow.wrap(text) == [f" {text.rstrip()}"]
    heads = [Column("Test", "", False), Column("ns", "")]
    row, title = narrow.Table(heads, [[text, "1"], text]).text()[1:]
    assert row.split(" 1")[0].rstrip() == title == f" {text.rstrip()}"


def test_a_figure_keeps_its_unit() -> None:
    text = f"{'x' * 64} +25.7 ns, +15.6 %"
    assert narrow.wrap(text) == [f"{'x' * 64} +25.7 ns,", "+15.6 %"]


def test_wide_letters_take_two_columns() -> None:
    assert narrow.columns("页池") == 4
    lines = narrow.wrap("页" * 100)
    assert [len(line) for line in lines] == [37, 37, 26]


def test_a_wide_table_goes_on_below_with_its_first_column() -> None:
    heads = [Column("Test", "", False)]
    heads += [Column(f"c{block}", "", True, str(block)) for block in range(4) for _ in range(2)]
    table = narrow.Table(heads, [["a", *["1" * 12] * 8], "title"]).text()
    blank = table.index("")
    first, second = table[:blank], table[blank + 1 :]
    # Two columns of a block stay together.
    assert first[0].split() == ["Test", "c0", "c0", "c1", "c1"]
    assert second[0].split() == ["Test", "c2", "c2", "c3", "c3"]
    assert first[2] == second[2] == "title"
    assert first[1].startswith("a ") and second[1].startswith("a ")
