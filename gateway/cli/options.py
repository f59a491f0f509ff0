"""Click options shared by several commands."""

from pathlib import Path

import click

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
DEVICE = click.option(
    "--device", metavar="auto|cpu|cuda[:N]", help="Where CosyVoice computes.  [default: auto]"
)
SIZE = click.option("--size", type=click.Choice(["tiny", "full"]), default="full", show_default=True)
VERSION = click.option("--version", type=click.Choice(["2", "3"]), default="2", show_default=True)
WEIGHTS = click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A checkpoint, instead of random weights.",
)
PRECISIONS = click.Choice(["fp32", "bf16", "fp16", "int8"])
