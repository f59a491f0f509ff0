"""Click options shared by several commands, and their groups."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class CommandGroup(click.Group):
    """A group of commands that prints its help if none is named, and each command's whole summary."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help and exit with 0 if there are no arguments."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with summaries of any length, which click would cut to one line."""
        rows = [(name, _summary(self.commands[name])) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _summary(command: click.Command) -> str:
    return command.get_short_help_str(limit=1000)


BUNDLE_HELP = "A folder of Piper, Kokoro, CosyVoice or XTTS.  [default: the packaged voice]"
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
VERSION = click.option("--version", type=click.Choice(["2", "3"]), default="2", show_default=True)
PRECISIONS = click.Choice(["auto", "fp32", "fp32-fp16", "bf16", "fp16", "int8", "int4", "int4-int8"])


def device_option(name: str = "device") -> Callable[[Command], Command]:
    """An option of that name for the device of the networks."""
    return click.option(
        "--device",
        name,
        metavar="auto|cpu|cuda[:N]|openvino|...",
        help="Where the networks compute; tts_engine/backends/README.md lists the names.  [default: auto]",
    )


def executor_option(name: str = "executor") -> Callable[[Command], Command]:
    """An option of that name for what computes the networks."""
    return click.option(
        "--executor",
        name,
        metavar="auto|torch|onnxruntime|tensorrt|ray[:HOST:PORT]",
        help="What computes CosyVoice's networks; ray: the replicas of a cluster.  [default: auto]",
    )


DEVICE = device_option()
