# SPDX-License-Identifier: BSD-2-Clause
"""Predictions as a table, as lines of text, as JSON: each says that it is one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from pagepool.results.words import align
from pagepool.simulate.reference import MEASURED, SOURCE, Shape
from pagepool.simulate.run import Prediction

FORMS = ("table", "text", "json")
#: What stands above a table and in every other form.
NOTICE = "predicted by simulation, not measured"

_COLUMNS = ("design", "CPUs", "transfers", "by returner", "predicted ns", "x of 1st")


def _first_of(predictions: Sequence[Prediction], design: str) -> Prediction:
    return next(it for it in predictions if it.design == design)


def _table(predictions: Sequence[Prediction], with_lines: bool, how: str) -> list[str]:
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for it in predictions:
        first = _first_of(predictions, it.design)
        rows.append(
            (
                it.design,
                str(it.cpus),
                f"{it.transfers:.2f}",
                f"{it.returning:.2f}",
                f"{it.ns:.1f}",
                f"{it.transfers / first.transfers:.2f}",
            )
        )
    lines = [f"{NOTICE}: cache-line transfers per returned page", "", *align(rows)]
    if with_lines:
        rows = [("transfers per returned page, predicted", "design", "CPUs", "transfers")]
        rows += [
            (kind, it.design, str(it.cpus), f"{times:.2f}")
            for it in predictions
            for kind, times in it.lines.items()
        ]
        lines += ["", *align(rows)]
    some = predictions[0]
    lines += [
        "",
        f"transfer: {some.transfer_ns:.1f} ns, {how}",
        f"pages handed over {some.hand_over} at a time, {some.pages} for each returning CPU"
        + (", all of them before any is put" if some.scenario == "storm" else ""),
    ]
    return lines


def _text(predictions: Sequence[Prediction], with_lines: bool, how: str) -> list[str]:
    some = predictions[0]
    lines = [f"# {NOTICE}", f"# transfer_ns: {some.transfer_ns:.1f}, {how}"]
    lines.append(f"# scenario: {some.scenario}")
    for it in predictions:
        lines.append(
            f"predicted: design:{it.design} returning_cpus:{it.cpus} "
            f"transfers:{it.transfers:.3f} by_returner:{it.returning:.3f} ns:{it.ns:.3f} "
            f"returns:{it.returns} seed:{it.seed}"
        )
        if with_lines:
            lines += [
                f"predicted: design:{it.design} returning_cpus:{it.cpus} line:{kind!r} "
                f"transfers:{times:.3f}"
                for kind, times in it.lines.items()
            ]
    return lines


def _shape_lines(shape: Shape) -> list[str]:
    rows: list[tuple[str, ...]] = [("design ring", "CPUs", "predicted ns", "measured ns", "off by")]
    for cpus, (least, most) in MEASURED.items():
        measured = f"{least:.0f}" if least == most else f"{least:.0f}..{most:.0f}"
        rows.append(
            ("", str(cpus), f"{shape.scaled[cpus]:.0f}", measured, f"x {shape.off[cpus]:.2f}")
        )
    return [
        "",
        f"Shape: predicted, times {shape.factor:.2f}, beside measured ({SOURCE})",
        *align(rows),
        f"order: {'the same' if shape.same_order else 'NOT the same'}; "
        f"the worst is off by a factor of {shape.worst:.2f}",
    ]


def _shape_json(shape: Shape) -> dict[str, object]:
    return {
        "measured": {
            "source": SOURCE,
            "ns": {str(cpus): list(ns) for cpus, ns in MEASURED.items()},
        },
        "predicted": {
            "factor": shape.factor,
            "ns": {str(cpus): ns for cpus, ns in shape.scaled.items()},
            "off": {str(cpus): off for cpus, off in shape.off.items()},
            "same order": shape.same_order,
            "worst": shape.worst,
        },
    }


def render(
    predictions: Sequence[Prediction],
    form: str,
    *,
    how: str,
    with_lines: bool = False,
    shape: Shape | None = None,
) -> str:
    """All of it in one of `FORMS`; how: where the time of a transfer comes from."""
    if form == "json":
        document: dict[str, object] = {
            "what": NOTICE,
            "transfer_ns": predictions[0].transfer_ns,
            "transfer_ns from": how,
            "predicted": [dataclasses.asdict(it) for it in predictions],
        }
        if shape is not None:
            document["check"] = _shape_json(shape)
        return json.dumps(document, indent=2) + "\n"
    make = _table if form == "table" else _text
    lines = make(predictions, with_lines, how)
    if shape is not None:
        shown = _shape_lines(shape)
        lines += shown if form == "table" else [f"# {line}" for line in shown if line]
    return "\n".join(lines) + "\n"
