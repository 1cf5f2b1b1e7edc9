# SPDX-License-Identifier: BSD-2-Clause
"""The page, in Markdown: every figure and every choice in it is read off the survey."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pagepool.designs.survey import ENOUGH_RUNS, Figure, Survey

#: What the tests of bench_page_pool_simple are about.
PATHS = {
    "tasklet_page_pool01_fast_path": "through the cache",
    "tasklet_page_pool02_ptr_ring": "through ring, list or lanes",
    "tasklet_page_pool03_slow": "through the provider",
}
#: Statistics that a design can make a difference in.
_STATISTICS = ("alloc_fast", "alloc_slow", "alloc_refill", "recycle_ring", "recycle_ring_full")


class Row(NamedTuple):
    """A question, and each design's figure, as far as it was measured."""

    what: str
    figures: dict[str, Figure]

    @property
    def best(self) -> tuple[str, ...]:
        """The design with the lowest median, and those that were not slower in each run."""
        first = min(self.figures.values(), key=lambda figure: figure.ns)
        return tuple(name for name, it in self.figures.items() if not it.is_more_than(first))


def rows(survey: Survey) -> list[Row]:
    """All questions whose answer is a time, in the order of the page."""
    made = [
        Row(
            f"one CPU, {PATHS.get(test, test)}: alloc and put",
            {it.design: it.figure for it in survey.paths if it.test == test},
        )
        for test in dict.fromkeys(it.test for it in survey.paths)
    ]
    for producers, bulk in dict.fromkeys((it.producers, it.bulk) for it in survey.storms):
        what = "one CPU puts" if producers == 1 else f"{producers} CPUs put at once"
        made.append(
            Row(
                f"{what}, {f'{bulk} a call' if bulk > 1 else 'one by one'}: put",
                {
                    it.design: it.figure
                    for it in survey.storms
                    if (it.producers, it.bulk) == (producers, bulk)
                },
            )
        )
    for returning in dict.fromkeys(it.returning for it in survey.cross_cpu):
        who = "one returns" if returning == 1 else f"{returning} return"
        made.append(
            Row(
                f"one CPU allocates, {who}: put, net of hand-over",
                {it.design: it.net for it in survey.cross_cpu if it.returning == returning},
            )
        )
    for workload, variant in _works(survey):
        figures = {
            it.design: it.figure
            for it in survey.work
            if (it.workload, it.variant, it.pages) == (workload, variant, None) and it.figure
        }
        if figures:
            made.append(Row(f"{_named(workload, variant)}: a packet", figures))
    return made


def _works(survey: Survey) -> list[tuple[str, str]]:
    return list(dict.fromkeys((it.workload, it.variant) for it in survey.work))


def _named(workload: str, variant: str) -> str:
    return f"`{workload}`" + (f", {variant}" if variant else "")


def _table(head: Sequence[str], body: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "| --- |" + " ---: |" * (len(head) - 1)
    for cells in body:
        yield "| " + " | ".join(cells) + " |"


def _ns(figure: Figure | None, bold: bool = False) -> str:
    if figure is None:
        return "-"
    digits = 0 if figure.ns >= 1000 else 1 if figure.ns >= 100 else 2
    return f"**{figure.ns:.{digits}f}**" if bold else f"{figure.ns:.{digits}f}"


def _range(figure: Figure | None) -> str:
    return "-" if figure is None else f"{figure.least:.2f}..{figure.most:.2f}"


def _answer(survey: Survey, asked: Sequence[Row]) -> Iterator[str]:
    wins = {design: sum(design in row.best for row in asked) for design in survey.designs}
    alone = {design: sum(row.best == (design,) for row in asked) for design in survey.designs}
    order = sorted(survey.designs, key=lambda design: -wins[design])
    yield (
        f"**`{order[0]}`** is the fastest, or as fast as the fastest, in {wins[order[0]]} of the "
        f"{len(asked)} rows below, and alone at the front in {alone[order[0]]} of them"
        + "".join(f"; `{it}` in {wins[it]} and {alone[it]}" for it in order[1:])
        + "."
    )
    lost = [row for row in asked if order[0] not in row.best]
    if lost:
        yield ""
        yield f"Where `{order[0]}` is not the fastest:"
        yield ""
        for row in lost:
            others = " and ".join(f"`{name}`" for name in row.best)
            times = row.figures[order[0]].ns / min(it.ns for it in row.figures.values())
            yield f"- {row.what}: {others}; `{order[0]}` takes {times:.2f} times as long."
    yield ""


def _few_runs(asked: Sequence[Row]) -> Iterator[str]:
    runs = min(len(figure.values) for row in asked for figure in row.figures.values())
    if runs < ENOUGH_RUNS:
        yield (
            f"**{runs} run{'s' if runs != 1 else ''}: too few to tell a difference from noise; "
            f"{ENOUGH_RUNS} can.**"
        )


def page(survey: Survey, pictures: Sequence[tuple[str, str]] = ()) -> str:
    """The page. ``pictures``: file name and caption of each, in the order of `pictures.NAMES`."""
    asked = rows(survey)
    shown = {name.rpartition("-")[2].partition(".")[0]: (name, text) for name, text in pictures}

    def picture(key: str) -> Iterator[str]:
        if key in shown:
            name, text = shown[key]
            yield f"![{text}]({name})"
            yield ""

    lines = [
        "<!-- SPDX-License-Identifier: BSD-2-Clause -->",
        f"<!-- Made by `{survey.command}`; do not edit. -->",
        "# Which design?",
        "",
        *_answer(survey, asked),
        "Rules and statistics of the designs: [designs.md](designs.md). All figures are"
        " nanoseconds, medians; **bold**: the lowest, and those that were not slower than it in"
        " each of the runs.",
        *_few_runs(asked),
        "",
        *_table(
            ["", *(f"`{name}`" for name in survey.designs)],
            (
                [row.what, *(_ns(row.figures.get(d), d in row.best) for d in survey.designs)]
                for row in asked
            ),
        ),
        "",
        *(f"- {key}: {value}" for key, value in survey.machine.items()),
        f"- made by `{survey.command}`",
        "",
        "## By path",
        "",
        *picture("paths"),
        *_paths(survey),
        "",
        "## By CPUs that return pages",
        "",
        *picture("cpus"),
        *_storms(survey),
        "",
        *_cross(survey),
        "",
        *_predicted(survey),
        "",
        "## Workloads",
        "",
        *picture("workloads"),
        *_workloads(survey),
    ]
    return "\n".join(lines) + "\n"


def _paths(survey: Survey) -> Iterator[str]:
    yield "`pagepool bench simple`: allocate and put on one CPU; range over the runs, instructions."
    yield ""
    by = {(it.test, it.design): it for it in survey.paths}
    body = []
    for test in dict.fromkeys(it.test for it in survey.paths):
        cells = [f"`{test}`"]
        for design in survey.designs:
            it = by.get((test, design))
            if it is None:
                cells += ["-", "-"]
                continue
            counted = "-" if it.instructions is None else f"{it.instructions:.0f}"
            cells += [_range(it.figure), counted]
        body.append(cells)
    head = [cell for name in survey.designs for cell in (f"`{name}` ns", "instr")]
    yield from _table(["test", *head], body)


def _storms(survey: Survey) -> Iterator[str]:
    yield "`pagepool bench storm`: all producers put at once, nothing is allocated meanwhile."
    yield ""
    by = {(it.producers, it.bulk, it.design): it.figure for it in survey.storms}
    body = []
    for producers, bulk in dict.fromkeys((it.producers, it.bulk) for it in survey.storms):
        cells = [str(producers), str(bulk)]
        for design in survey.designs:
            figure, one = by.get((producers, bulk, design)), by.get((1, bulk, design))
            cells.append(_range(figure))
            cells.append(f"{figure.ns / one.ns:.2f}" if figure and one else "-")
        body.append(cells)
    head = [cell for name in survey.designs for cell in (f"`{name}` ns", "x of 1")]
    yield from _table(["producers", "a call", *head], body)


def _cross(survey: Survey) -> Iterator[str]:
    if not survey.cross_cpu:
        yield "`pagepool bench cross-cpu` needs two CPUs, which this machine does not have."
        return
    yield (
        "`pagepool bench cross-cpu`: one CPU allocates and hands out. Hand-over: the same loop "
        "without the pool."
    )
    yield ""
    body = [
        [
            f"{it.returning}",
            f"`{it.design}`",
            _range(it.figure),
            f"{it.handover:.2f}",
            _range(it.net),
            "-" if it.fell_out is None else str(it.fell_out),
        ]
        for it in survey.cross_cpu
    ]
    head = ["returning CPUs", "design", "ns", "hand-over", "net", "pages that fell out"]
    yield from _table(head, body)


def _predicted(survey: Survey) -> Iterator[str]:
    yield (
        "**Predicted by simulation, not measured** (`pagepool simulate`, [simulate.md](simulate.md)"
        f"): cache lines that move for each page that is returned, and ns at {survey.transfer_ns:g}"
        ' ns a move. With 16 CPUs and more the figures of designs with a lock say "many", not how'
        " many."
    )
    yield ""
    by = {(it.scenario, it.cpus, it.design): it for it in survey.predicted}
    body = []
    for scenario, cpus in dict.fromkeys((it.scenario, it.cpus) for it in survey.predicted):
        cells = [scenario, str(cpus)]
        for design in survey.designs:
            it = by.get((scenario, cpus, design))
            cells += ["-", "-"] if it is None else [f"{it.transfers:.2f}", f"{it.ns:.0f}"]
        body.append(cells)
    head = [cell for name in survey.designs for cell in (f"`{name}` lines", "ns")]
    yield from _table(["scenario", "CPUs that return", *head], body)
    if held := list(_held_against(survey)):
        yield ""
        yield "The predictions beside what was measured here:"
        yield ""
        yield from _table(["", "design", "predicted ns", "measured ns", "off by"], held)


def _held_against(survey: Survey) -> Iterator[list[str]]:
    predicted = {(it.scenario, it.cpus, it.design): it.ns for it in survey.predicted}
    measured = [
        ("storm", it.producers, it.design, it.figure.ns) for it in survey.storms if it.bulk == 1
    ]
    measured += [("cross-cpu", it.returning, it.design, it.net.ns) for it in survey.cross_cpu]
    for scenario, cpus, design, ns in measured:
        said = predicted.get((scenario, cpus, design))
        if said is not None and ns > 0:
            who = f"{scenario}, {cpus} CPU{'s' if cpus != 1 else ''}"
            yield [who, f"`{design}`", f"{said:.0f}", f"{ns:.1f}", f"x {said / ns:.2f}"]


def _workloads(survey: Survey) -> Iterator[str]:
    yield (
        "`pagepool bench workload`: statistics, the same in each run. Left: pages that fell out of "
        "the pool. Recycled: pages that stayed in it, of those that were allocated."
    )
    yield ""
    body = []
    for workload, variant in _works(survey):
        for it in survey.work:
            if (it.workload, it.variant, it.pages) != (workload, variant, None):
                continue
            body.append(
                [
                    _named(workload, variant),
                    f"`{it.design}`",
                    *(str(it.statistics[key]) for key in _STATISTICS),
                    str(it.counts["left"]),
                    f"{100 * it.recycled:.2f} %",
                    _ns(it.figure),
                    _range(it.figure),
                ]
            )
    head = ["workload", "design", *(f"`{key}`" for key in _STATISTICS)]
    yield from _table([*head, "left", "recycled", "ns a packet", "range"], body)
