# SPDX-License-Identifier: BSD-2-Clause
"""The command line of a benchmark among the settings of its runs, so that others can repeat it."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

if TYPE_CHECKING:
    from pagepool.bench import Event, WorkloadEvent

#: The setting of a run.
SETTING = "command"
_META = "pagepool.command"
#: What becomes of the figures, and not how they come about.
_LEFT_OUT = frozenset({"json_path", "label", "fail_on"})

E = TypeVar("E", bound="Event | WorkloadEvent")


class RecordedCommand(click.Command):
    """A command that remembers what was typed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; raises what it raises."""
        ctx.meta[_META] = shlex.join([*ctx.command_path.split(), *_words(self, ctx, args)])
        return super().parse_args(ctx, args)


def _words(command: click.Command, ctx: click.Context, args: list[str]) -> list[str]:
    """What was given, in one way of writing it, without what is about the output only."""
    values, _, order = command.make_parser(ctx).parse_args(list(args))
    words = []
    # Arguments first, as people write them.
    given_ones = sorted(dict.fromkeys(order), key=lambda it: it.param_type_name != "argument")
    for parameter in given_ones:
        given = values.get(str(parameter.name))
        if parameter.name in _LEFT_OUT or given is None:
            continue
        option = max(parameter.opts, key=len)
        for value in given if isinstance(given, (list, tuple)) else [given]:
            if isinstance(parameter, click.Argument):
                words += [value] if isinstance(value, str) else []  # else it was not given
            elif isinstance(value, str):
                words += [option, _without_directories(value)]
            else:  # a flag
                words.append(option)
    return words


def _without_directories(value: str) -> str:
    """Of an absolute path what is nobody's business is left out: ``a=/x/old/bin/python``."""
    match = re.fullmatch(r"([^=/]*=)?(/.*)", value)
    if match is None:
        return value
    parts = PurePath(match[2]).parts
    kept = parts[-3:] if len(parts) > 3 and parts[-2] == "bin" else parts[-1:]
    return (match[1] or "") + "/".join(kept)


def recorded(event: E) -> E:
    """The first event of a benchmark with the command among its settings; others as they are."""
    from pagepool.bench import Started

    context = click.get_current_context(silent=True)
    command = context.meta.get(_META) if context else None
    if command is None or not isinstance(event, Started):
        return event
    # A line is all that the text form has room for.
    line = " ".join(command.splitlines())
    return msgspec.structs.replace(event, settings={**event.settings, SETTING: line})
