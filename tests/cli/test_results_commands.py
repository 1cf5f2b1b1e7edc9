# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool show``, ``compare`` and ``mail`` as users run them, and their docs' examples."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import IO

import pytest

import pagepool.cli

DATA = Path(__file__).parents[1] / "data"
GOLDEN = DATA / "golden"
DOCS = Path(__file__).parents[2] / "docs"
PAIR = ("x86-before.txt", "x86-v7.txt")
TASKLET = ("--tests", "tasklet*")


def pagepool_command(
    *arguments: str, stdin: str = "", cwd: Path = DATA
) -> subprocess.CompletedProcess[str]:
    """Run the command; text in, text out, never raises for its exit status."""
    return subprocess.run(
        [sys.executable, "-m", "pagepool", *arguments],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        cwd=cwd,
        env=environment(),
        timeout=120,
        check=False,
    )


def environment() -> dict[str, str]:
    """The environment, with the package that is tested in front."""
    package = str(Path(pagepool.cli.__file__).resolve().parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "LC_ALL": "C"}


def failed(result: subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr of a command that failed as promised."""
    assert result.returncode == 2, result
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("pagepool: ")
    return lines[0]


def check_golden(name: str, text: str) -> None:
    """Compare with a golden file; ``PAGEPOOL_UPDATE_GOLDEN=1`` writes it, to look at the diff."""
    path = GOLDEN / name
    if os.environ.get("PAGEPOOL_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


# show


@pytest.mark.parametrize(
    "name", ["arm64-patch-by-patch", "control-and-test", "org-document", "x86-v7-p1-5"]
)
def test_show_golden(name: str) -> None:
    result = pagepool_command("show", f"{name}.txt")
    assert (result.returncode, result.stderr) == (0, "")
    check_golden(f"show-{name}.txt", result.stdout)


def test_show_golden_json() -> None:
    result = pagepool_command("show", "--json", "x86-before.txt")
    assert (result.returncode, result.stderr) == (0, "")
    check_golden("show-x86-before.json", result.stdout)


def test_show_json_can_be_read_again_and_says_the_same(tmp_path: Path) -> None:
    target = tmp_path / "all.json"
    names = ["x86-before.txt", "bar-prefix.txt", "script-summary.txt"]
    assert pagepool_command("show", "--json", *names, "--output", str(target)).returncode == 0
    again = pagepool_command("show", "--json", str(target))
    assert again.stdout == target.read_text()
    shown = pagepool_command("show", str(target)).stdout
    assert "5 builds, 5 runs, 35 records" in shown


def test_show_what_can_be_read_is_shown_beside_what_cannot() -> None:
    result = pagepool_command("show", "none.txt", "x86-v7-p1-5.txt")
    assert failed(result) == "pagepool: none.txt: no such file; check the name"
    assert result.stdout == (DATA / "golden" / "show-x86-v7-p1-5.txt").read_text()


def test_show_standard_input() -> None:
    result = pagepool_command("show", "-", stdin=(DATA / "x86-before.txt").read_text())
    assert result.stdout.startswith("-: 1 build, 1 run, 9 records\n\nstdin: 1 run, 9 records")
    assert failed(pagepool_command("show", "-")) == "pagepool: -: empty"


def test_show_a_file_without_results() -> None:
    assert "stalled-pool.txt: no results in 27 lines" in failed(
        pagepool_command("show", "stalled-pool.txt")
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show"], "show: Missing argument 'FILE...'; try 'pagepool show --help'"),
        (["--nonsense"], "No such option '--nonsense'"),
        (["nonsense"], "No such command 'nonsense'; try 'pagepool --help'"),
        (["compare", "a", "b", "--format", "xml"], "compare: Invalid value for '--format': 'xml'"),
        (["compare", "a", "b", "--output"], "Option '--output' requires an argument"),
        (["bench", "nonsense"], "bench: No such command 'nonsense'"),
        (["bench", "simple", "--cpu", "x"], "bench simple: Invalid value for '--cpu': 'x'"),
    ],
)
def test_a_wrong_option_is_one_line_too(arguments: list[str], says: str) -> None:
    # click before 8.2 has other quotes.
    line = failed(pagepool_command(*arguments)).replace(": --nonsense", " '--nonsense'")
    assert line.startswith(f"pagepool: {says}")


def test_no_command_gives_the_help() -> None:
    result = pagepool_command()
    assert (result.returncode, result.stdout) == (2, "")
    assert "compare" in result.stderr


def test_ctrl_c_while_a_file_is_read() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "pagepool", "show", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"nothing\n" * 100_000)  # more than a pipe holds: it is reading
        process.stdin.flush()
        # All of it read, and asleep until there is more.
        stat = Path(f"/proc/{process.pid}/stat")
        while _unread(process.stdin) or stat.read_text().rpartition(")")[2].split()[0] != "S":
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().split() == [b"pagepool:", b"interrupted"]
        assert process.wait() == 130


def _unread(pipe: IO[bytes]) -> int:
    """Bytes that wait in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_help_on_a_full_disk() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        result = subprocess.run(
            [sys.executable, "-m", "pagepool", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
    assert result.returncode == 2
    assert result.stderr == "pagepool: standard output: cannot write: No space left on device\n"


# compare


@pytest.mark.parametrize("form", ["table", "org", "markdown", "csv", "json", "html"])
def test_compare_golden_of_a_pair(form: str) -> None:
    result = pagepool_command("compare", *PAIR, "--format", form)
    assert result.returncode == 0
    assert bool(result.stderr) == (form == "csv")
    check_golden(f"compare-pair-{form}.txt", result.stdout)


@pytest.mark.parametrize("form", ["table", "org", "markdown"])
def test_compare_golden_of_a_series_with_spread(form: str) -> None:
    result = pagepool_command(
        "compare", "arm64-patch-by-patch.txt", *TASKLET, "--metric", "ns", "--format", form
    )
    assert (result.returncode, result.stderr) == (0, "")
    check_golden(f"compare-series-{form}.txt", result.stdout)


ARM64 = ("arm64-patch-by-patch.txt", *TASKLET, "--metric", "ns")


def test_compare_a_series_names_the_build_where_a_row_moved() -> None:
    result = pagepool_command("compare", "--series", *ARM64)
    assert (result.returncode, result.stderr) == (0, "")
    fast, ring, slow, empty = result.stdout.splitlines()[:4]
    assert fast.startswith("tasklet_page_pool01_fast_path: unstable")
    assert fast.endswith("no verdict for any build")
    assert ring == (
        "tasklet_page_pool02_ptr_ring: slower at bd05af7e28d2 (+36.6 ns, +68.0 %), "
        "faster at e8e4ef65fd4b (-24.6 ns, -27.2 %)"
    )
    assert slow.startswith("tasklet_page_pool03_slow: slower at d8de0484ad23 (+35.7 ns, +21.7 %)")
    assert empty == ""
    assert "moved by at most: for_loop 0.0 %, atomic_inc 0.0 %, lock 0.0 %" in result.stdout


def test_compare_a_series_with_all_of_its_tests() -> None:
    """Twice as many rows share the 5 %; what moved by much is still found."""
    result = pagepool_command("compare", "--series", "arm64-patch-by-patch.txt")
    said = dict(line.split(": ", 1) for line in result.stdout.split("\n\n")[0].splitlines())
    assert said["tasklet_page_pool01_fast_path"].endswith("no verdict for any build")
    assert said["tasklet_page_pool02_ptr_ring"] == (
        "slower at bd05af7e28d2 (+36.6 ns, +68.0 %), faster at e8e4ef65fd4b (-24.6 ns, -27.2 %)"
    )
    assert "slower at d8de0484ad23 (+35.7 ns, +21.7 %)" in said["tasklet_page_pool03_slow"]


@pytest.mark.parametrize("form", ["org", "markdown", "html"])
def test_compare_a_series_in_every_form(form: str) -> None:
    result = pagepool_command("compare", "--series", *ARM64, "--format", form)
    check_golden(f"compare-series-steps-{form}.txt", result.stdout)


def test_compare_a_series_for_programs() -> None:
    document = json.loads(
        pagepool_command("compare", "--series", *ARM64, "--format", "json").stdout
    )
    steps = [(one["against"], one["after"]["label"]) for one in document["comparisons"]]
    assert steps[:2] == [("previous", "c8cd65aea46f"), ("previous", "d8de0484ad23")]
    assert len(steps) == 7 + 6
    assert document["margin"] == {"percent": 1.0, "ns": 0.2}
    (slow,) = (
        row["verdict"]
        for row in document["comparisons"][1]["rows"]
        if row["test"] == "tasklet_page_pool03_slow"
    )
    assert (slow["kind"], slow["method"]) == ("slower", "pooled")
    assert slow["ns"][0] < 35.8 < slow["ns"][2]
    assert slow["p"] <= slow["p_adjusted"] <= 0.05


def test_compare_fails_on_what_it_is_asked_to() -> None:
    pair = ("arm64-patch-by-patch.txt@07ea", "arm64-patch-by-patch.txt@d8de", *TASKLET)
    result = pagepool_command("compare", *pair, "--fail-on", "slower")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line == (
        "pagepool: --fail-on: 07ea810753bd -> d8de0484ad23: tasklet_page_pool03_slow: slower "
        "(+35.8 ns, +21.7 %)"
    )
    assert result.stdout == pagepool_command("compare", *pair).stdout
    assert pagepool_command("compare", *pair, "--fail-on", "slower:25").returncode == 0
    assert pagepool_command("compare", *pair, "--fail-on", "faster,inconclusive").returncode == 0
    assert pagepool_command("compare", *pair, "--fail-on", "unstable").returncode == 1
    # One run a side is no failure unless it is asked for.
    assert pagepool_command("compare", *PAIR, "--fail-on", "slower").returncode == 0
    assert pagepool_command("compare", *PAIR, "--fail-on", "slower,inconclusive").returncode == 1


def test_compare_with_another_margin_and_more_controls() -> None:
    pair = ("arm64-patch-by-patch.txt@07ea", "arm64-patch-by-patch.txt@d8de", *TASKLET)

    def words(*options: str) -> list[str]:
        text = pagepool_command("compare", *pair, "--format", "json", *options).stdout
        rows = json.loads(text)["comparisons"][0]["rows"]
        return [row["verdict"]["kind"] for row in rows if row["verdict"]]

    assert words() == ["unstable", "unstable", "slower"]
    assert words("--margin", "30")[2] == "same"
    # A row that is a control has no verdict, and bounds the others.
    assert words("--control", "*slow") == ["unstable", "unstable"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--margin", "x"), "--margin x: give per cent"),
        (("--margin", "1,2,3"), "--margin 1,2,3: give per cent"),
        (("--margin", "-1"), "--margin -1: give per cent"),
        (("--fail-on", "slow"), "--fail-on slow: give some of slower"),
        (("--fail-on", "slower:x"), "--fail-on slower:x: give some of slower"),
        (("--fail-on", ""), "--fail-on : give some of slower"),
        (("--control", "nothing*"), "--control nothing*: matches no test"),
    ],
)
def test_compare_what_is_wrong_with_an_option_is_one_line(
    options: tuple[str, ...], said: str
) -> None:
    assert said in failed(pagepool_command("compare", *PAIR, *options))


def test_compare_the_published_rows() -> None:
    first = pagepool_command("compare", *PAIR, *TASKLET, "--format", "org").stdout
    assert "| fast_path   |     19 |    24 |    5 |   5.399 |  6.928 |  1.529 |   28.3 |" in first
    assert "| ptr_ring    |     54 |    79 |   25 |  15.090 | 21.976 |  6.886 |   45.6 |" in first
    assert "| slow        |    238 |   299 |   61 |  66.134 | 83.298 | 17.164 |   26.0 |" in first
    second = pagepool_command(
        "compare", "x86-before.txt", "x86-v7-p1-5.txt", *TASKLET, "--format", "org"
    ).stdout
    assert "| fast_path   |     19 |    19 |    0 |   5.399 |  5.492 |  0.093 |    1.7 |" in second
    assert "| ptr_ring    |     54 |    57 |    3 |  15.090 | 15.849 |  0.759 |    5.0 |" in second
    assert "| slow        |    238 |   284 |   46 |  66.134 | 78.909 | 12.775 |   19.3 |" in second


def test_compare_several_against_the_first() -> None:
    text = pagepool_command("compare", *PAIR, "x86-v7-p1-5.txt", *TASKLET).stdout
    assert "x86-before -> x86-v7\n" in text
    assert "x86-before -> 6.13.0-rc6-pp01-DMA-fix-v7-p1-5+\n" in text


def test_compare_builds_of_one_file() -> None:
    result = pagepool_command("compare", "bar-prefix.txt@before", "bar-prefix.txt@2")
    assert result.returncode == 0
    assert result.stdout.startswith("before -> after\n")


def test_compare_standard_input() -> None:
    text = (DATA / "x86-before.txt").read_text()
    result = pagepool_command("compare", "-", "x86-v7.txt", stdin=text)
    assert result.stdout.startswith("stdin -> x86-v7\n")
    text = (DATA / "arm64-patch-by-patch.txt").read_text()
    result = pagepool_command("compare", "--", "-@1", "-@2", stdin=text)
    assert result.stdout.startswith("07ea810753bd -> c8cd65aea46f\n")


def test_compare_globs_may_be_repeated_or_have_commas() -> None:
    one = pagepool_command("compare", *PAIR, "--tests", "lock, *slow").stdout
    two = pagepool_command("compare", *PAIR, "--tests", "lock", "--tests", "*slow").stdout
    assert one == two
    assert "\nlock (control)" in one and "\ntasklet_page_pool03_slow" in one


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.txt", "x86-v7.txt"], None),
        (["x86-before.txt"], "holds one build only"),
        (["x86-before.txt", "x86-before.txt"], "given twice"),
        (["x86-before.txt", "./x86-before.txt"], "given twice"),
        (["x86-before.txt@1", "x86-before.txt@x86"], "chosen twice"),
        (["x86-before.txt", "arm64-patch-by-patch.txt"], "holds 8 builds: 07ea810753bd, c8cd"),
        (["x86-before.txt", "broken-by-hand.txt"], "share no test"),
        (["arm64-patch-by-patch.txt@99", "x86-v7.txt"], "there is no build '99'"),
        ([*PAIR, "--tests", "nothing"], "matches no test; there are for_loop"),
        ([*PAIR, "--tests", "["], "matches no test"),
        ([*PAIR, "--tests", ","], "matches no test"),
        ([*PAIR, "--metric", "instructions"], "no selected test has such figures"),
        ([*PAIR, "--output", "."], "cannot write: Is a directory"),
        ([*PAIR, "--output", "none/x"], "cannot write: No such file or directory"),
    ],
)
def test_compare_what_cannot_be_done_is_said_in_one_line(
    arguments: list[str], message: str
) -> None:
    result = pagepool_command("compare", *arguments)
    assert result.stdout == ""
    if message is None:
        # The file, and what that means for the comparison.
        assert result.returncode == 2
        assert len(result.stderr.splitlines()) == 2
    else:
        assert message in failed(result)


def test_compare_one_of_three_missing_shows_the_others() -> None:
    result = pagepool_command("compare", "x86-before.txt", "none.txt", "x86-v7.txt")
    assert "none.txt: no such file" in failed(result)
    assert result.stdout == (DATA / "golden" / "compare-pair-table.txt").read_text()


def test_compare_output_goes_to_a_file(tmp_path: Path) -> None:
    target = tmp_path / "x"
    result = pagepool_command("compare", *PAIR, "--output", str(target))
    assert (result.returncode, result.stdout) == (0, "")
    assert target.read_text() == (DATA / "golden" / "compare-pair-table.txt").read_text()


def test_compare_a_copy_of_the_same_log_is_said() -> None:
    text = pagepool_command("compare", "x86-before.txt", "dmesg-time-stamps.txt").stdout
    assert "the very same measurement on both sides" in text


def test_compare_instructions_of_our_own_json(tmp_path: Path) -> None:
    for name, count in (("a", 5_000_000_000), ("b", 6_000_000_000)):
        record = {
            "name": "lock",
            "time_interval_ns": 10**9 + count,
            "invoke_count": 10**8,
            "tsc_interval": 36 * 10**8,
            "instructions": count,
        }
        build = {"label": name, "runs": [{"records": [record]}]}
        document = {"schema": "pagepool.results/1", "builds": [build]}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    text = pagepool_command("compare", "a.json", "b.json", cwd=tmp_path).stdout
    assert "50.000  60.000  10.000" in text


@pytest.mark.parametrize("command", ["show", "compare", "mail"])
def test_compare_a_reader_that_went_away_is_no_error(command: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pagepool", command, "arm64-patch-by-patch.txt"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=DATA,
        env=environment(),
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    # As shells have a death by SIGPIPE; 1 is --fail-on's.
    assert process.wait() == 141


@pytest.mark.parametrize(
    ("redirect", "message"),
    [("> /dev/full", "No space left on device"), (">&-", "standard output is closed")],
)
def test_compare_output_that_cannot_be_written(redirect: str, message: str) -> None:
    result = subprocess.run(
        f'"{sys.executable}" -m pagepool compare x86-before.txt x86-v7.txt {redirect}',
        shell=True,
        capture_output=True,
        text=True,
        cwd=DATA,
        env=environment(),
        check=False,
    )
    assert message in failed(result)


def on_a_terminal(columns: int) -> str:
    """What a terminal of that width gets."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pagepool", "compare", *PAIR],
        stdout=theirs,
        stdin=subprocess.DEVNULL,
        cwd=DATA,
        env={**environment(), "COLUMNS": str(columns), "TERM": "xterm"},
    )
    os.close(theirs)
    data = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # Linux's way to say that the other side is closed
            break
        data += part
    os.close(ours)
    assert process.wait() == 0
    return data.decode().replace("\r\n", "\n")


def test_compare_rules_on_a_terminal_and_plain_text_where_they_do_not_fit() -> None:
    wide = on_a_terminal(120)
    assert "\x1b[" in wide and "66.134" in wide and "carry no verdict" in wide
    narrow = on_a_terminal(60)
    assert narrow == (DATA / "golden" / "compare-pair-table.txt").read_text()


def imported(*arguments: str) -> set[str]:
    """The modules that a command imports."""
    program = f"import sys; sys.argv = ['pagepool', *{arguments!r}]\n"
    program += "import atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    program += "from pagepool.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=DATA,
        env=environment(),
        check=True,
    )
    assert "compare" in result.stdout
    return set(result.stderr.split())


def test_help_imports_no_reader() -> None:
    modules = imported("--help")
    assert not modules & {"msgspec", "rich", "pagepool.results.reader", "pagepool.compare"}


def test_only_a_page_imports_a_template_library() -> None:
    assert "jinja2" not in imported("compare", *PAIR, "--format", "json")
    assert "jinja2" in imported("compare", *PAIR, "--format", "html")


# mail


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("pair", PAIR),
        ("runs", ("arm64-patch-by-patch.txt@07ea", "arm64-patch-by-patch.txt@e8e4")),
        ("series", ("--series", "arm64-patch-by-patch.txt", *TASKLET)),
        ("several", ("org-document.txt", *TASKLET)),
    ],
)
def test_mail_golden(name: str, arguments: tuple[str, ...]) -> None:
    result = pagepool_command("mail", *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert max(map(len, result.stdout.splitlines())) <= 76
    check_golden(f"mail-{name}.txt", result.stdout)


def test_mail_says_how_it_was_made_and_that_makes_it_again(tmp_path: Path) -> None:
    """Its last lines, in a shell, and with the files by their base names."""
    target = tmp_path / "mail.txt"
    arguments = (
        *("--metric", "ns", "--margin", "2", "--control", "*01*", "--control", "lock,*02"),
        *("--fail-on", "faster", "--output", str(target), "--tests", "no-soft*,*page*,lo?k"),
    )
    files = [str(DATA / f"arm64-patch-by-patch.txt@{build}") for build in ("07ea", "e8e4")]
    result = pagepool_command("mail", *files, *arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    text = target.read_text()
    assert str(DATA) not in text and str(DATA.parent.name + "/") not in text
    command = text.split("  the text above:\n")[1]
    assert command.startswith("    pagepool mail arm64-patch-by-patch.txt@07ea \\\n")
    assert "--output" not in command and "--fail-on" not in command
    script = command.replace("pagepool", f"{shlex.quote(sys.executable)} -m pagepool", 1)
    again = subprocess.run(
        ["sh", "-c", script], cwd=DATA, env=environment(), capture_output=True, text=True
    )
    assert (again.stdout, again.stderr) == (text, "")


def test_mail_standard_input_and_files_like_options(tmp_path: Path) -> None:
    text = (DATA / "arm64-patch-by-patch.txt").read_text()
    result = pagepool_command("mail", "--series", *TASKLET, "--", "-@1", "-@2", stdin=text)
    assert result.stdout.endswith("    pagepool mail --tests 'tasklet*' --series -- -@1 -@2\n")
    (tmp_path / "-x").write_text((DATA / "x86-before.txt").read_text())
    result = pagepool_command("mail", "./-x", str(DATA / "x86-v7.txt"), cwd=tmp_path)
    assert result.stdout.endswith("    pagepool mail -- -x x86-v7.txt\n")
    assert result.returncode == 0


def test_mail_fails_on_what_it_is_asked_to() -> None:
    pair = ("arm64-patch-by-patch.txt@07ea", "arm64-patch-by-patch.txt@d8de", *TASKLET)
    result = pagepool_command("mail", *pair, "--fail-on", "slower")
    assert result.returncode == 1
    assert result.stdout == pagepool_command("mail", *pair).stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("pagepool: --fail-on: 07ea810753bd -> d8de0484ad23: tasklet_page_pool03")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x86-before.txt"], "holds one build only"),
        (["x86-before.txt", "./x86-before.txt"], "given twice"),
        (["x86-before.txt", "arm64-patch-by-patch.txt"], "holds 8 builds: 07ea810753bd, c8cd"),
        (["x86-before.txt", "broken-by-hand.txt"], "share no test"),
        ([*PAIR, "--tests", "nothing"], "matches no test; there are for_loop"),
        ([*PAIR, "--margin", "x"], "--margin x: give per cent"),
        ([*PAIR, "--metric", "instructions"], "no selected test has such figures"),
        ([*PAIR, "--output", "none/x"], "cannot write: No such file or directory"),
        ([*PAIR, "--format", "org"], "mail: No such option"),
        ([], "mail: Missing argument"),
    ],
)
def test_mail_what_cannot_be_done_is_said_in_one_line(arguments: list[str], message: str) -> None:
    result = pagepool_command("mail", *arguments)
    assert result.stdout == ""
    assert message in failed(result)


def test_mail_one_of_three_missing_shows_the_others() -> None:
    result = pagepool_command("mail", "x86-before.txt", "../data/none.txt", "x86-v7.txt")
    assert "none.txt: no such file" in failed(result)
    shown = (GOLDEN / "mail-pair.txt").read_text()
    said = "\nBeware:\n- not read: none.txt: no such file; check the name\n"
    assert result.stdout.replace(said, "") == shown.replace(
        "-before.txt x86", "-before.txt none.txt x86"
    )
    assert said in result.stdout


# patterns and labels


def test_a_pattern_is_all_files_in_natural_order(tmp_path: Path) -> None:
    for name in ("v10", "v2", "base"):
        (tmp_path / f"{name}.txt").write_bytes((DATA / "x86-v7.txt").read_bytes())
    shown = pagepool_command("show", "v*.txt", cwd=tmp_path).stdout
    assert re.findall(r"^\S+\.txt", shown, re.MULTILINE) == ["v2.txt", "v10.txt"]
    compared = pagepool_command("compare", "base.txt", "*.txt@1", cwd=tmp_path)
    assert failed(compared).endswith("the build 'base' is chosen twice; choose another")
    compared = pagepool_command("compare", "base.txt", "*.txt", cwd=tmp_path)
    assert re.findall(r"^\S+ -> \S+$", compared.stdout, re.MULTILINE) == [
        "base -> v2",
        "base -> v10",
    ]


@pytest.mark.parametrize("command", ["show", "compare"])
def test_a_pattern_that_nothing_matches(command: str) -> None:
    line = failed(pagepool_command(command, "x86-before.txt", "none-*.txt"))
    assert line == "pagepool: none-*.txt: no file matches this pattern; check the directory"


def test_labels_choose_builds_to_compare() -> None:
    pair = ("arm64-patch-by-patch.txt@first", "arm64-patch-by-patch.txt@last")
    options = (
        *("--label", "first=arm64-patch-by-patch.txt:1-45"),
        *("--label", "last=arm64-patch-by-patch.txt@5760"),
    )
    result = pagepool_command("compare", *pair, *options, *TASKLET)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("first -> last\n")
    assert "before: first (arm64-patch-by-patch.txt), 2 runs" in result.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--label", "x"), "--label x: is no label; give NAME=FILE[@BUILD][:FIRST-LAST]"),
        (("--label", "x=none.txt"), "--label x=none.txt: 'none.txt' is no file here; given: "),
        (("--label", "x=x86-v7.txt:99"), "no record begins in lines 99-99; records begin in li"),
        (("--labels", "none.toml"), "none.toml: No such file or directory"),
        (("--labels", "labels.toml"), "labels.toml: build 1 (boot 1): 'arm64-patch-by-patch.tx"),
        (("--labels", "x86-v7.txt"), "x86-v7.txt: "),
    ],
)
@pytest.mark.parametrize("command", ["show", "compare"])
def test_labels_that_cannot_be_followed(command: str, options: tuple[str, ...], said: str) -> None:
    assert said in failed(pagepool_command(command, *PAIR, *options))


# the documentation


def examples() -> list[tuple[str, str]]:
    """Every ``$ pagepool ...`` in a console block of the docs, with the output that it shows."""
    found = []
    for path in sorted(DOCS.glob("*.md")):
        if path.name not in ("results.md", "compare.md"):
            continue
        for block in re.findall(
            r"^```console\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE
        ):
            for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                found.append((command, shown))
    return found


def test_the_docs_have_examples() -> None:
    assert len(examples()) >= 6


def test_the_labels_of_the_docs_are_those_of_its_examples() -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```", (DOCS / "results.md").read_text(), re.S | re.M)
    _, _, entries = (DATA / "labels.toml").read_text().partition("\n\n")
    assert block == entries


@pytest.mark.parametrize(("command", "shown"), examples())
def test_an_example_of_the_docs_gives_what_it_shows(command: str, shown: str) -> None:
    words = shlex.split(command)
    assert words[0] == "pagepool"
    result = pagepool_command(*words[1:])
    output = result.stdout + result.stderr
    if shown.endswith("...\n"):
        assert output.startswith(shown.removesuffix("...\n"))
    else:
        assert output == shown


def test_an_input_is_not_overwritten(tmp_path: Path) -> None:
    copy = tmp_path / "in.txt"
    text = (DATA / "x86-before.txt").read_text()
    copy.write_text(text)
    result = pagepool_command("compare", str(copy), "x86-v7.txt", "--output", str(copy))
    assert "is one of the inputs" in failed(result)
    assert copy.read_text() == text


def test_show_does_not_overwrite_an_input(tmp_path: Path) -> None:
    text = (DATA / "x86-before.txt").read_text()
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.txt").symlink_to("a.txt")
    for output in ("a.txt", "b.txt", str(tmp_path / "a.txt")):
        result = pagepool_command("show", "a.txt", "--output", output, cwd=tmp_path)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr == (
            f"pagepool: --output {output}: is one of the inputs; choose another file\n"
        )
    assert (tmp_path / "a.txt").read_text() == text


def test_the_help_of_bench_has_the_status_of_fail_on() -> None:
    for words in (["bench", "--help"], ["bench", "simple", "--help"]):
        text = " ".join(pagepool_command(*words).stdout.split())
        assert "1 when something gave no figure or --fail-on found a row" in text


def test_what_is_missing_is_said_in_every_report(tmp_path: Path) -> None:
    for name in ("x86-before.txt", "x86-v7.txt"):
        (tmp_path / name).write_text((DATA / name).read_text())
    (tmp_path / "other.txt").write_text(
        "time_bench: Type:unheard_of Per elem: 4 cycles(tsc) 1.713 ns (step:0)\n" * 2
    )
    files = ["x86-before.txt", f"{tmp_path}/gone.txt", "x86-v7.txt", "other.txt"]
    result = pagepool_command("compare", *files, "--format", "json", cwd=tmp_path)
    assert result.returncode == 2
    document = json.loads(result.stdout)
    inputs = {one["file"]: one for one in document["inputs"]}
    assert inputs["x86-v7.txt"] == {"file": "x86-v7.txt", "builds": ["x86-v7"], "error": None}
    gone = inputs[f"{tmp_path}/gone.txt"]
    assert gone["builds"] == [] and "no such file" in gone["error"]
    problems = document["problems"]
    assert [one["code"] for one in problems] == ["not-read", "not-compared"]
    # The very lines of stderr.
    for problem in problems:
        assert problem["text"].partition(": ")[2] in result.stderr

    mail = " ".join(pagepool_command("mail", *files, cwd=tmp_path).stdout.split())
    assert "- not read: gone.txt: no such file" in mail
    assert "- not compared: x86-before and other: share no test" in mail
    assert str(tmp_path) not in mail
    page = pagepool_command("compare", *files, "--format", "html", cwd=tmp_path).stdout
    assert "not read: " in page and "not compared: x86-before and other" in page
