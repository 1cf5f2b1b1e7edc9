# SPDX-License-Identifier: BSD-2-Clause
"""The ``pagepool`` command: one module per subcommand, imported only when it is asked for."""

from __future__ import annotations

import importlib
import sys
from typing import NoReturn

import click

#: subcommand -> (module, one-line help). The help stands here so that ``pagepool --help``
#: imports no subcommand; tests hold it against the subcommand's own.
COMMANDS = {
    "bench": ("pagepool.cli.bench", "Run the kernel's page_pool benchmarks on this pool."),
    "compare": ("pagepool.cli.compare", "Compare builds: the before/after table of a mail."),
    "designs": (
        "pagepool.cli.designs",
        "Answer 'which design?': a page with pictures, from what is measured.",
    ),
    "mail": ("pagepool.cli.mail", "Compare builds in 76 columns of plain text, for a reply."),
    "pps": ("pagepool.cli.pps", "Turn packets per second into nanoseconds a packet, and back."),
    "simulate": ("pagepool.cli.simulate", "Predict what a return costs with up to 128 CPUs."),
    "show": ("pagepool.cli.show", "List the results that files contain, and every oddity."),
}


class LazyGroup(click.Group):
    """A group whose subcommands are imported when they are run, not when they are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all subcommands, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one subcommand; ``None`` for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import version  # 20 ms that --help need not pay

    click.echo(f"pagepool {version('pagepool')}")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and exit.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """The Linux kernel's page_pool in user space: run it, measure it, judge the figures."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def main() -> NoReturn:
    """Entry point of the ``pagepool`` script. Whatever goes wrong is one line and a status."""
    from pagepool.cli import _output

    try:
        status = cli.main(prog_name="pagepool", standalone_mode=False)
    except click.UsageError as error:
        _output.fail(_usage(error))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _output.complain("interrupted")
        sys.exit(_output.INTERRUPTED)
    except BrokenPipeError:
        _output.leave_quietly()
    except OSError as error:  # commands handle their own: this was a --help
        _output.stdout_failed(error)
    sys.exit(status if isinstance(status, int) else 0)


def _usage(error: click.UsageError) -> str:
    """What is wrong, and where the right usage stands."""
    if error.ctx is None:
        return error.format_message()
    # "pagepool bench simple" -> "bench simple: ..."
    path = error.ctx.command_path
    command = path.removeprefix("pagepool").strip()
    message = error.format_message().rstrip(".")
    return f"{command + ': ' if command else ''}{message}; try '{path} --help'"
