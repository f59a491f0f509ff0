"""Options that several commands have, and what they take."""

import click

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
DEVICE = click.option("--device", metavar="auto|cpu|cuda[:N]", help="Of CosyVoice.  [default: auto]")
PRECISIONS = click.Choice(["fp32", "bf16", "fp16", "int8"])
