"""Compares CosyVoice or XTTS networks with reference vectors: ``make check-golden DATA=FOLDER``."""

import sys
from importlib.util import find_spec
from pathlib import Path

import click

from vivavoce.gateway.cli.options import AS_JSON
from vivavoce.tts_engine.errors import MissingExtra

# Checked before the first line of the table: some cases import theirs when they run.
_PACKAGES = ("torch", "inflect", "wetext", "unicode_rbnf", "tokenizers", "safetensors", "yaml", "onnx")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@AS_JSON
def check_golden(folder: Path, as_json: bool) -> None:
    """Compare the CosyVoice networks with the reference vectors in FOLDER.

    Prints a line a case. The exit code is 1 if a case fails or has no check, or if the folder has none.
    """
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        raise click.ClickException(
            str(MissingExtra(f"the golden check (here without {', '.join(missing)})", "cosyvoice"))
        )
    from golden.reference.golden_config import UnsupportedGoldenConfigError
    from golden.report import print_report

    try:
        passed = print_report(folder, as_json=as_json, show=click.echo)
    except (FileNotFoundError, UnsupportedGoldenConfigError) as error:
        raise click.ClickException(str(error)) from error
    if not passed:
        sys.exit(1)


if __name__ == "__main__":
    check_golden(prog_name="python -m golden")
