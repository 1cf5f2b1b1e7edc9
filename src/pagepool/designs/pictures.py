# SPDX-License-Identifier: BSD-2-Clause
"""The pictures of the page, as SVG. Needs matplotlib: ``pip install 'pagepool[plot]'``."""

from __future__ import annotations

import io
from collections.abc import Callable

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pagepool.designs.page import PATHS
from pagepool.designs.survey import Survey

matplotlib.use("svg")

#: Colours that differ in brightness too, and to those who see no red or green.
_COLOURS = ("#1b6ca8", "#d98a00", "#2a2a2a", "#8a4fa3", "#6b8e23", "#a33b3b")


def _colour(survey: Survey, design: str) -> str:
    return _COLOURS[survey.designs.index(design) % len(_COLOURS)]


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    # The same survey, the same file: neither a date nor random names in it.
    with matplotlib.rc_context({"svg.hashsalt": "pagepool", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None}, facecolor="white")
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def _bars(
    axes: Axes,
    survey: Survey,
    names: list[str],
    values: dict[str, list[tuple[float, float, float]]],
) -> None:
    """A group a name, a bar a design: median, and a whisker from least to most."""
    width = 0.8 / len(survey.designs)
    for place, design in enumerate(survey.designs):
        at = [index - 0.4 + width * (place + 0.5) for index in range(len(names))]
        middle = [ns for ns, _, _ in values[design]]
        below = [ns - least for ns, least, _ in values[design]]
        above = [most - ns for ns, _, most in values[design]]
        axes.bar(
            at,
            middle,
            width * 0.9,
            color=_colour(survey, design),
            label=design,
            yerr=[below, above],
            ecolor="#777777",
            capsize=2,
        )
        for x, ns in zip(at, middle, strict=True):
            axes.annotate(
                f"{ns:.1f}", (x, ns), (0, 3), textcoords="offset points", ha="center", fontsize=7
            )
    axes.set_xticks(range(len(names)), names)
    axes.spines[["top", "right"]].set_visible(False)


def paths(survey: Survey) -> str:
    """Nanoseconds of allocate and put on one CPU, by path and design."""
    tests = list(dict.fromkeys(it.test for it in survey.paths))
    by = {(it.test, it.design): it.figure for it in survey.paths}
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.add_subplot()
    values = {
        design: [
            (it.ns, it.least, it.most) if it else (0.0, 0.0, 0.0)
            for it in (by.get((test, design)) for test in tests)
        ]
        for design in survey.designs
    }
    _bars(axes, survey, [PATHS.get(test, test) for test in tests], values)
    axes.set_ylabel("ns, alloc and put")
    axes.legend(frameon=False, loc="upper left")
    return _svg(figure)


def cpus(survey: Survey) -> str:
    """Nanoseconds of a put by CPUs that return: measured, and predicted."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, scenario, title in (
        (left, "storm", "all at once, nobody allocates"),
        (right, "cross-cpu", "while one CPU allocates"),
    ):
        for design in survey.designs:
            colour = _colour(survey, design)
            said = [it for it in survey.predicted if (it.scenario, it.design) == (scenario, design)]
            axes.plot(
                [it.cpus for it in said],
                [it.ns for it in said],
                "--",
                color=colour,
                linewidth=1,
                marker="o",
                markersize=3,
                markerfacecolor="white",
                label=f"{design}, predicted",
            )
            seen = (
                [
                    (it.producers, it.figure.ns)
                    for it in survey.storms
                    if it.design == design and it.bulk == 1
                ]
                if scenario == "storm"
                else [(it.returning, it.net.ns) for it in survey.cross_cpu if it.design == design]
            )
            axes.plot(
                [x for x, _ in seen],
                [ns for _, ns in seen],
                "-",
                color=colour,
                linewidth=2,
                marker="o",
                markersize=6,
                label=f"{design}, measured",
            )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        ticks = sorted({it.cpus for it in survey.predicted})
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("CPUs that return pages")
        axes.spines[["top", "right"]].set_visible(False)
    left.set_ylabel("ns a put")
    right.legend(frameon=False, fontsize=7)
    return _svg(figure)


def workloads(survey: Survey) -> str:
    """tcp-stream: which part of the pages is recycled, by pages of a packet."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    variants = list(dict.fromkeys(it.variant for it in survey.work if it.pages is not None))
    all_axes = figure.subplots(1, max(len(variants), 1), sharey=True, squeeze=False)[0]
    for axes, variant in zip(all_axes, variants, strict=False):
        for place, design in enumerate(survey.designs):
            points = [
                (it.pages or 0, 100 * it.recycled)
                for it in survey.work
                if it.pages is not None and (it.variant, it.design) == (variant, design)
            ]
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                color=_colour(survey, design),
                # Where they are the same all can be seen.
                linewidth=5 - 4 * place / max(len(survey.designs) - 1, 1),
                alpha=0.9,
                label=design,
            )
        axes.set_title(f"tcp-stream{', ' if variant else ''}{variant}", fontsize=10)
        axes.set_xlabel("pages of a packet")
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[0].set_ylabel("recycled, %")
    all_axes[0].set_ylim(0, 105)
    all_axes[0].legend(frameon=False)
    return _svg(figure)


#: Picture -> how it is drawn, and its caption.
PICTURES: dict[str, tuple[Callable[[Survey], str], str]] = {
    "paths": (paths, "ns of alloc and put on one CPU, by path and design"),
    "cpus": (cpus, "ns of a put by CPUs that return pages: measured, and predicted"),
    "workloads": (workloads, "tcp-stream: recycled pages by pages of a packet"),
}
