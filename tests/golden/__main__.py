"""Compares the CosyVoice networks with the reference vectors in a folder: ``make check-golden DATA=FOLDER``.

Prints a line a case and exits with 1 when a case failed or the folder holds none.
"""

import sys
from pathlib import Path

import click

from golden.report import print_report
from vivavoce.gateway.cli.options import AS_JSON


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@AS_JSON
def _check_golden(folder: Path, as_json: bool) -> None:
    """Compare the CosyVoice networks with the reference vectors in FOLDER."""
    if not print_report(folder, as_json=as_json, show=click.echo):
        sys.exit(1)


if __name__ == "__main__":
    _check_golden(prog_name="python -m golden")
