# SPDX-License-Identifier: BSD-2-Clause
"""``pagepool designs``: measure all that there is about designs, and write the page."""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pagepool.cli._bench import JsonFile, Progress, Wrong, count, say
from pagepool.cli._output import INTERRUPTED, fail, write

if TYPE_CHECKING:
    from pagepool.designs import Plan, Survey


@click.command(short_help="Answer 'which design?': a page with pictures, from what is measured.")
@click.option(
    "--design",
    "designs",
    default="ring,list,ours",
    show_default=True,
    metavar="A,B",
    help="The designs; the others are compared with the first.",
)
@click.option(
    "--runs",
    callback=count,
    default="5",
    show_default=True,
    metavar="N",
    help="All of it so often, each time in a fresh process.",
)
@click.option(
    "--loops",
    callback=count,
    default="5M",
    show_default=True,
    metavar="N",
    help="Rounds, or pages, of each test.",
)
@click.option(
    "--polls",
    callback=count,
    default="20k",
    show_default=True,
    metavar="N",
    help="Polls of each workload.",
)
@click.option(
    "--from",
    "source",
    metavar="FILE",
    help="Measure nothing: what --json wrote before.",
)
@click.option("--json", "json_path", metavar="FILE", help="Write what was measured there as well.")
@click.option(
    "--output",
    metavar="FILE",
    help="Write the page there, and its pictures beside it; else only the page, to the output.",
)
def command(
    designs: str,
    runs: int,
    loops: int,
    polls: int,
    source: str | None,
    json_path: str | None,
    output: str | None,
) -> None:
    """Answer 'which design?': a page with pictures, from what is measured.

    It runs bench simple, storm, cross-cpu and all workloads with each design, interleaved, and
    the simulation beyond this machine's CPUs; with the standard settings that takes minutes.
    Pictures need matplotlib: pip install 'pagepool[plot]'.
    """
    from pagepool import designs as room

    if output not in (None, "-"):
        _can_draw()
    if source is not None:
        if json_path is not None:
            fail("--from measures nothing: there is nothing to write to --json")
        try:
            survey = room.loads(Path(source).read_bytes(), source)
        except OSError as error:
            fail(f"--from {source}: {error.strerror or error}")
        except room.SurveyError as error:
            fail(error)
    else:
        names = tuple(dict.fromkeys(name.strip() for name in designs.split(",")))
        survey = _measure(room.Plan(names, runs, loops, polls), json_path)
    if output in (None, "-"):
        write(room.page(survey))
    else:
        _write(survey, str(output))


def _can_draw() -> None:
    try:
        import pagepool.designs.pictures  # noqa: F401
    except ImportError as error:
        fail(f"pictures need matplotlib ({error}): pip install 'pagepool[plot]'")


def _command(plan: Plan) -> str:
    words = ["pagepool", "designs", "--design", ",".join(plan.designs)]
    words += ["--runs", str(plan.runs), "--loops", str(plan.loops), "--polls", str(plan.polls)]
    return shlex.join(words)


def _measure(plan: Plan, json_path: str | None) -> Survey:
    from pagepool import bench
    from pagepool import designs as room

    file = None if json_path is None else JsonFile(json_path)
    survey: Survey | None = None
    try:
        events = room.measure(plan, _command(plan))
        with contextlib.closing(events), Progress() as bar:
            while True:
                try:
                    event = next(events)
                except StopIteration as over:
                    survey = over.value
                    break
                if isinstance(event, room.Part):
                    say(event.text, bar)
                    continue
                bar.show(event)
                if isinstance(event, bench.Warned):
                    say(f"warning: {event.text}", bar)
                elif isinstance(event, bench.TestFailed):
                    raise bench.BenchError(event.text)
    except bench.SettingsError as error:
        raise Wrong(str(error)) from None
    except bench.BenchError as error:
        say(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        say("interrupted: no page was written")
        sys.exit(INTERRUPTED)
    finally:
        if survey is None and file is not None:
            file.abandon()
    assert survey is not None, "it came to its end"
    if file is not None and not file.write(room.dumps(survey)):
        sys.exit(1)
    return survey


def _write(survey: Survey, output: str) -> None:
    from pagepool.designs import page
    from pagepool.designs.pictures import PICTURES

    target = Path(output)
    made = []
    for name, (draw, caption) in PICTURES.items():
        picture = target.with_name(f"{target.stem}-{name}.svg")
        write(draw(survey), str(picture))
        made.append((picture.name, caption))
    write(page(survey, made), output)
