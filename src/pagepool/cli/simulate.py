# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool simulate``: what a return costs with more CPUs than there are, predicted."""

from __future__ import annotations

import os

import click

from pagepool.cli._output import fail, write
from pagepool.model.limits import DESIGNS
from pagepool.simulate import (
    FORMS,
    HAND_OVER,
    MAX_CPUS,
    PAGES,
    SCENARIOS,
    TRANSFER_NS,
    Prediction,
    Scenario,
    compare,
    render,
    simulate,
)
from pagepool.simulate.reference import MEASURED

#: Of so many runs of `--measure` the fastest counts: the others were disturbed.
_RUNS = 9


def _cpus(text: str) -> list[int]:
    counts: list[int] = []
    for part in text.split(","):
        word = part.strip()
        if not (word.isascii() and word.isdigit() and 1 <= int(word) <= MAX_CPUS):
            fail(f"--cpus {text!r}: give numbers from 1 to {MAX_CPUS}, like 1,2,4,64")
        if int(word) not in counts:
            counts.append(int(word))
    return counts


def _designs(text: str) -> list[str]:
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in DESIGNS:
            fail(f"--design {name!r}: must be one of {', '.join(DESIGNS)}")
    return list(dict.fromkeys(names))


def _measure() -> tuple[float, str]:
    """Nanoseconds of a transfer between two CPUs of this machine, and how it was got."""
    try:
        from pagepool.bench._lines import transfer_ns
    except ImportError as error:
        fail(f"--measure needs the C code, which cannot be imported ({error}); use --transfer-ns")
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        fail("--measure needs two CPUs that this process may run on; use --transfer-ns")
    first, second = allowed[:2]
    try:
        best = min(transfer_ns(first, second) for _ in range(_RUNS))
    except OSError as error:
        fail(f"--measure: {error.strerror}")
    return best, f"measured between CPU {first} and CPU {second} of this machine"


@click.command(short_help="Predict what a return costs with up to 128 CPUs.")
@click.option(
    "--design",
    "designs",
    default="ring,list,ours",
    show_default=True,
    metavar="NAMES",
    help="Designs, with commas; the steps of list: list-ring, list-batch, list-cache, ...",
)
@click.option(
    "--cpus",
    default="1,2,3,4,16,64",
    show_default=True,
    metavar="NUMBERS",
    help=f"CPUs that return pages, 1 to {MAX_CPUS} each, with commas; one more allocates.",
)
@click.option(
    "--scenario",
    type=click.Choice(SCENARIOS),
    default="cross-cpu",
    show_default=True,
    help="Pages are put while another CPU allocates, or all at once after it has.",
)
@click.option(
    "--transfer-ns",
    type=click.FloatRange(min=0.1, max=100_000),
    metavar="NS",
    help=f"How long a cache line takes from one CPU to another.  [default: {TRANSFER_NS:g}]",
)
@click.option("--measure", is_flag=True, help="Measure that on two CPUs of this machine.")
@click.option(
    "--hand-over",
    type=click.IntRange(1, 1024),
    default=HAND_OVER,
    show_default=True,
    metavar="N",
    help="Pages that a returning CPU gets, and puts, in a row.",
)
@click.option(
    "--pages",
    type=click.IntRange(1, 4096),
    default=PAGES,
    show_default=True,
    metavar="N",
    help="Pages that go round for each returning CPU.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the order of accesses.")
@click.option("--lines", is_flag=True, help="Show which lines the transfers are.")
@click.option(
    "--check",
    is_flag=True,
    help="Compare the shape for ring with what was measured with 1 to 4 returning CPUs.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    default="table",
    show_default=True,
    help="Form of the output.",
)
@click.option("--output", metavar="FILE", help="Write to a file instead of standard output.")
def command(
    designs: str,
    cpus: str,
    scenario: Scenario,
    transfer_ns: float | None,
    measure: bool,
    hand_over: int,
    pages: int,
    seed: int,
    lines: bool,
    check: bool,
    form: str,
    output: str | None,
) -> None:
    """Predict what a return costs with up to 128 returning CPUs.

    The pool's model runs on simulated CPUs; counted is how often a cache line has to come from
    another CPU, for each page that is returned. Nothing of the outcome is measured, and all of it
    is marked as predicted.
    """
    names, counts = _designs(designs), _cpus(cpus)
    if check and scenario != "cross-cpu":
        fail("--check compares with figures of cross-cpu: not with --scenario storm")
    if measure and transfer_ns is not None:
        fail("--measure and --transfer-ns: give one of them")
    if measure:
        ns, how = _measure()
    elif transfer_ns is not None:
        ns, how = transfer_ns, "as given"
    else:
        ns, how = TRANSFER_NS, "assumed; see --measure"

    def predict(design: str, n: int) -> Prediction:
        try:
            return simulate(
                design,
                n,
                transfer_ns=ns,
                hand_over=hand_over,
                pages=pages,
                seed=seed,
                scenario=scenario,
            )
        except ValueError as error:
            fail(error)

    predictions = [predict(design, n) for design in names for n in counts]
    shape = None
    if check:
        known = {it.cpus: it for it in predictions if it.design == "ring"}
        shape = compare([known.get(n) or predict("ring", n) for n in MEASURED])
    write(render(predictions, form, how=how, with_lines=lines, shape=shape), output)
