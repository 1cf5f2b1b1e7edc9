# SPDX-License-Identifier: BSD-2-Clause
"""The page: whole, quiet, harmless, small; and as a browser shows it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from compare import browser
from compare.made import build, record
from pagepool.compare import compare as compare_files
from pagepool.compare import formats, html
from pagepool.compare.report import METRICS, Report, compare
from pagepool.compare.selection import Chosen
from pagepool.results.model import Record

DATA = Path(__file__).parents[1] / "data"
ARM64 = DATA / "arm64-patch-by-patch.txt"

VOID = {"meta", "link", "br", "hr", "img", "input", "col"}
#: HTML knows where these end: at the next of them, or with what they are in.
OPTIONAL = {"tr", "td", "th"}


class Parser(HTMLParser):
    """Checks that everything that is opened is closed, and collects elements and text."""

    def __init__(self, optional: set[str]) -> None:
        super().__init__()
        self.optional = optional
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), (tag, attrs)
        self.elements.append((tag, dict(attrs)))
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if self.optional and tag in OPTIONAL:
            ends = {"td", "th"} if tag != "tr" else OPTIONAL
            while self.open[-1] in ends:
                self.open.pop()
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open, tag
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open[-1] in self.optional and self.open[-1] != tag:
            self.open.pop()
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    @property
    def text(self) -> str:
        """All text of the page, with single spaces."""
        return " ".join(" ".join(self.texts).split())


def parse(text: str, optional: bool = False) -> Parser:
    """A page that is whole and asks for nothing."""
    assert text.startswith("<!DOCTYPE html>\n") and text.endswith("</html>\n")
    parser = Parser(OPTIONAL if optional else set())
    parser.feed(text)
    parser.close()
    assert parser.open == []
    assert len(set(parser.ids)) == len(parser.ids)
    tags = {tag for tag, _ in parser.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    for tag, attributes in parser.elements:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        for name in ("src", "srcset", "data", "action", "xlink:href"):
            assert name not in attributes
        if "href" in attributes:
            target = attributes["href"] or ""
            assert target.startswith("#") and target[1:] in parser.ids
        if tag == "th":
            assert attributes.get("scope") in ("col", "row", "colgroup")
        if tag == "svg" and "aria-label" in attributes:
            assert attributes["role"] == "img"
    assert parser.count("table") == parser.count("caption")
    assert not re.search(r"https?:|@import|url\(|javascript:", text)
    assert ("meta", {"charset": "utf-8"}) in parser.elements
    assert parser.count("title") >= 1 and parser.count("h1") == 1
    return parser


def series() -> Report:
    return compare_files(ARM64, series=True)


def pair() -> Report:
    return compare_files(DATA / "x86-before.txt", DATA / "x86-v7.txt")


def spread() -> Report:
    return compare_files(f"{ARM64}@07ea", f"{ARM64}@d8de")


def several() -> Report:
    return compare_files(f"{ARM64}@07ea", f"{ARM64}@d8de", f"{ARM64}@b538")


def many() -> Report:
    return compare_files(ARM64)


def eight_runs() -> Report:
    """Rows that are decided by ranks: slower, faster, the same."""
    return compare(noisy(2, 8, {"lock": 1, "a": 1.1, "b": 0.9, "c": 1}, noise=0.002))


def noisy(builds: int, runs: int, tests: dict[str, float], noise: float = 0.01) -> list[Chosen]:
    """Builds of which each takes so many times as long as the one before."""
    source = random.Random(1)

    def one(name: str, at: int) -> Record:
        time = 100e7 * tests[name] ** at * source.lognormvariate(0, noise)
        return record(name, int(time), 10**7)

    return [
        build(f"b{at:02}", *([one(name, at) for name in tests] for _ in range(runs)))
        for at in range(builds)
    ]


REPORTS = [pair, spread, several, many, series, eight_runs]


@pytest.mark.parametrize("make", REPORTS)
def test_a_page_is_whole_and_asks_for_nothing(make: Callable[[], Report]) -> None:
    report = make()
    text = html.render(report)
    parser = parse(text)
    assert text == html.render(report)
    assert len(text.encode()) < 200_000
    assert "leaves out" not in parser.text
    assert "<!-- " not in text and "None" not in parser.text


@pytest.mark.parametrize("make", REPORTS)
def test_every_run_is_a_point(make: Callable[[], Report]) -> None:
    report = make()
    parser = parse(html.render(report))
    keys = {row.key for comparison in report.comparisons for row in comparison.rows}
    records = [
        one
        for build in report.builds
        for one in build.records
        if one.is_usable and one.key in keys and one.ns_printed is not None
    ]
    assert parser.count("circle") == len(records) > 0
    titles = [text for text in parser.texts if text.startswith("run ")]
    assert len(titles) == len(records)
    for one in records:
        where = f", {one.source}" if one.source else ""
        assert any(title.endswith(f": {one.ns_printed} ns{where}") for title in titles)
    for tag, attributes in parser.elements:
        if tag == "circle":
            assert 0 <= float((attributes["cx"] or "").removesuffix("%")) <= 100
            assert 0 < float(attributes["cy"] or "") < 230


@pytest.mark.parametrize("make", REPORTS)
def test_nothing_that_the_table_says_is_missing(make: Callable[[], Report]) -> None:
    report = make()
    shown = parse(html.render(report)).text
    missing = []
    for line in formats.render(report, "table").splitlines():
        # Cells, and sentences: a caption has an arrow, and a sentence may begin with a capital.
        for cell in re.split(r"  +", line.strip()):
            ways = (cell, cell.replace(" -> ", " → "), cell[:1].upper() + cell[1:])
            if not any(way in shown for way in ways) and not _in_parts(cell, shown):
                missing.append(cell)
    assert missing == []


def _in_parts(said: str, shown: str) -> bool:
    """What the page has in its summary, where each test and build has its own line."""
    name, _, rest = said.partition(": ")
    if re.match(r"(inconclusive|unstable)(: |,)", rest) or ": inconclusive: " in said:
        reason = re.sub(r".*?(inconclusive|unstable)(: |, )", "", said, count=1)
        parts = reason.removesuffix("; no verdict for any build").split("; ")
        return all(part in shown for part in parts) and name in shown
    if rest.startswith(("slower", "faster")):
        # A move: where it was, by how much.
        moves = re.findall(r"(\w+) at (\S+) \((\S+ ns), (\S+ %)\)", rest)
        return len(moves) == rest.count(" at ") and all(
            re.search(rf"{kind} at {where}: {re.escape(ns)} .*?, {re.escape(by)}", shown)
            for kind, where, ns, by in moves
        )
    # A test that did not move: its verdicts are on the page.
    return (rest == "no move" or rest.startswith("undecided at ")) and name in shown


def test_the_figures_are_those_of_the_table() -> None:
    report = eight_runs()
    text = html.render(report)
    grid = formats.grid(report.comparisons[0], report)
    for row in grid.rows + grid.controls:
        cells = re.search(rf'scope="row"><a[^>]*>{re.escape(row[0])}</a></th>(.*?)</tr>', text)
        assert cells
        assert [re.sub("<.*?>", "", one) for one in cells[1].split("</td>")[:-1]] == row[1:]


def test_the_summary_says_what_moved_and_by_how_much() -> None:
    shown = parse(html.render(eight_runs())).text
    assert re.search(
        r"slower a 1\d\d\.\d{3} → 1\d\d\.\d{3} ns: \+\d+\.\d ns \(95 % interval", shown
    )
    assert re.search(r"faster b .*?, -\d+\.\d % \(-\d+\.\d\.\.-\d+\.\d %\)", shown)
    assert re.search(r"same c \([+-]0\.\d\.\.[+-]0\.\d %\)", shown)
    assert "Verdicts of 3 rows at 95 % by Holm's rule" in shown
    assert "controls, which do not touch the pool, moved: lock" in shown
    assert "1 slower 1 faster 1 same" in shown


def test_a_series_says_where_it_moved_and_has_a_line() -> None:
    report = series()
    text = html.render(report)
    parser = parse(text)
    assert (
        "slower at bd05af7e28d2: +36.6 ns (95 % interval +35.7..+37.5 ns), +68.0 %" in parser.text
    )
    assert "unstable at every build: runs of one build are 119 % apart" in parser.text
    # A line and a band for each test and control, over all builds.
    lines = [dict(it)["points"] or "" for tag, it in parser.elements if tag == "polyline"]
    assert [len(line.split()) for line in lines] == [8] * 10
    assert parser.count("polygon") == 10
    kinds = [
        row.verdict.kind
        for comparison in report.comparisons
        for row in comparison.rows
        if comparison.against == "previous" and row.verdict
    ]
    assert kinds.count("slower") >= 3
    assert text.count("▲ slower</text>") == kinds.count("slower")
    assert text.count("▼ faster</text>") == kinds.count("faster")


def test_the_line_of_a_test_that_a_build_lacks_has_a_gap() -> None:
    builds = noisy(5, 2, {"a": 1, "b": 1})
    records = [[run.records[0]] for run in builds[2].build.runs]
    builds[2] = build("b02", *map(list, records))
    parser = parse(html.render(compare(builds, series=True)))
    lines = [dict(it)["points"] or "" for tag, it in parser.elements if tag == "polyline"]
    assert [len(line.split()) for line in lines] == [5, 2, 2]


@pytest.mark.parametrize("is_series", [False, True])
def test_what_comes_from_a_file_is_harmless(is_series: bool) -> None:
    bad = "<script>alert(1)</script>\"'&<b onload=x>"
    builds = [
        Chosen(f"{bad}.txt", made.build)
        for made in (
            build(f"{bad}{at}", [record(f"{bad}t")], [record(f"{bad}t", 1010101010)], cpu=bad)
            for at in range(3)
        )
    ]
    parser = parse(html.render(compare(builds, series=is_series)))
    assert f"{bad}0" in parser.text and f"{bad}t" in parser.text
    assert parser.count("b") == sum(
        (it.get("class") or "").startswith("w ") for tag, it in parser.elements if tag == "b"
    )


def test_instructions_are_shown_where_they_were_counted() -> None:
    def made(label: str, count: int) -> Chosen:
        runs = [[record("a", 10**9 + at, instructions=count)] for at in range(2)]
        return build(label, *runs)

    builds = [made("one", 5_000_000_000), made("two", 5_100_000_000), made("three", 10**9)]
    for is_series in (False, True):
        shown = parse(html.render(compare(builds, METRICS, series=is_series))).text
        assert "Instr" in shown and "50.000" in shown and "51.000" in shown
    only = parse(html.render(compare(builds, ("instructions",))))
    assert "+2.0 %, counted, not measured" in only.text and only.count("circle") == 6


def test_a_test_of_which_only_cycles_were_posted_has_its_picture_in_cycles() -> None:
    def made(label: str, cycles: int) -> Chosen:
        return build(label, [Record(name="a", printed_cycles=cycles), record("b")])

    parser = parse(html.render(compare([made("one", 20), made("two", 24)])))
    assert "a: 20 → 24 cycles (+20.0 %)" in parser.text
    assert parser.count("circle") == 4
    assert "run 1: 24 cycles" in parser.text


def test_a_test_is_called_the_same_in_the_whole_series() -> None:
    """Only the last two builds have two steps of it."""

    def made(label: str, *steps: int) -> Chosen:
        records = [msgspec.structs.replace(record("a"), step=step) for step in steps]
        return build(label, records, records)

    report = compare([made("x", 0), made("y", 0), made("z", 0, 1), made("w", 0, 1)], series=True)
    parser = parse(html.render(report))
    names = [one[0] for one in formats.series(report).rows if one[0]]
    assert names == ["a step:0", "a step:1"]
    assert [line.partition(": ")[0] for line in formats.moves(report)] == names
    assert parser.count("polyline") == 2 and parser.count("circle") == 12
    assert {"a-step-0", "a-step-1"} <= set(parser.ids)


def test_what_could_not_be_compared_is_said() -> None:
    report = compare([build("a", [record()]), build("b", [record()]), build("c", [record("x")])])
    assert "not compared: a and c: share no test" in parse(html.render(report)).text


def test_unusable_records_are_no_points() -> None:
    report = compare([build("a", [record("x")]), build("b", [record("x")], [record("x", 0, 0)])])
    assert parse(html.render(report)).count("circle") == 2


# Size


@pytest.fixture(scope="module")
def large() -> dict[bool, Report]:
    """60 builds with 50 tests in 10 runs each, against the first and as a series."""
    builds = noisy(60, 10, {f"tasklet_page_pool{at:02}_some_path": 1 for at in range(50)})
    return {is_series: compare(builds, series=is_series) for is_series in (False, True)}


@pytest.mark.parametrize("is_series", [False, True])
def test_of_a_large_report_the_pictures_give_way(
    large: dict[bool, Report], is_series: bool
) -> None:
    report = large[is_series]
    text = html.render(report)
    assert len(text.encode()) <= html.LIMIT
    parser = parse(text, optional=True)
    left = "single runs (pictures have the range" if is_series else "the pictures"
    assert f"this page leaves out {left}" in parser.text
    # The tables do not: every cell of the text is there.
    cells = {cell.strip() for cell in re.findall(r"<td[^>]*>([^<]*)", text)}
    grids = (
        [formats.series(report)]
        if is_series
        else [formats.grid(one, report) for one in report.comparisons]
    )
    for grid in grids:
        for row in grid.rows:
            assert set(row[2 if is_series else 1 :]) <= cells


def test_points_of_a_page_that_has_many() -> None:
    report = compare(noisy(2, 40, {f"t{at}": 1 for at in range(150)}))
    text = html.render(report)
    assert len(text.encode()) <= html.LIMIT
    assert "this page leaves out which run a point is" in parse(text).text
    assert text.count("h0") == 2 * 40 * 150


# In a browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    path = browser.find()
    if path is None:
        pytest.skip("there is no chromium, chromium-browser or google-chrome")
    started = browser.Browser(path, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.mark.parametrize("make", [series, eight_runs])
def test_in_a_browser(
    make: Callable[[], Report], chromium: browser.Browser, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text(html.render(make()), encoding="utf-8")
    shots = {}
    for width, scheme, scripts in (
        (390, "light", False),
        (1280, "light", True),
        (1280, "dark", False),
    ):
        chromium.open(page, width, scheme, scripts)
        assert chromium.width() == width
        assert chromium.requests() == [page.as_uri()]
        assert chromium.complaints() == []
        shots[width, scheme] = chromium.screenshot()
    assert len(set(shots.values())) == 3


def test_points_stand_where_the_axis_says(chromium: browser.Browser, tmp_path: Path) -> None:
    """The picture is as wide as its card, and nothing of it is outside."""
    page = tmp_path / "page.html"
    page.write_text(html.render(eight_runs()), encoding="utf-8")
    chromium.open(page, 390, scripts=True)
    boxes = chromium.evaluate(
        "[...document.querySelectorAll('circle, .axis text')].map(one => {"
        "const box = one.getBoundingClientRect();"
        "const card = one.closest('figure').getBoundingClientRect();"
        "return [box.left >= card.left - 1, box.right <= card.right + 1, box.width > 1]})"
    )
    assert len(boxes) > 2 * 8 * 4 and all(all(box) for box in boxes)


def test_the_browser_tells_of_what_a_page_must_not_do(
    chromium: browser.Browser, tmp_path: Path
) -> None:
    """The checks above can fail."""
    page = tmp_path / "page.html"
    page.write_text("<img src=no.png><p style='width:2000px'>x<script>throw 1</script>")
    chromium.open(page, 390, scripts=True)
    assert chromium.width() > 390
    assert len(chromium.requests()) == 2
    assert chromium.complaints()
