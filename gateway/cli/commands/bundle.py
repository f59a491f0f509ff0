"""``vivavoce bundle check | random | convert | export``: checkpoint folders of CosyVoice and XTTS."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ....tts_engine.backends.kinds import checkpoints_of, kinds_with_checkpoints
from ....tts_engine.backends.voice_kind import CheckedBundle, CheckedFile
from ....tts_engine.errors import BundleError
from ..options import AS_JSON, VERSION, CommandGroup

if TYPE_CHECKING:  # rich is imported where it is used, so that --help is fast
    from rich.table import Table

_FOLDER_ARGUMENT = click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")


@click.group(cls=CommandGroup)
def bundle() -> None:
    """Check and convert CosyVoice and XTTS checkpoint folders, or create random ones."""


@bundle.command(epilog="Example: vivavoce bundle check CosyVoice2-0.5B")
@_FOLDER_ARGUMENT
@AS_JSON
def check(folder: Path, as_json: bool) -> None:
    """Compare every file, key, shape and type in DIR with the release's."""
    from rich.console import Console

    with Console(stderr=True).status("reading"):
        checked = _check_folder(folder)
    if as_json:
        click.echo(json.dumps(asdict(checked), indent=2))
        return
    console = Console()
    console.print(_summary_line(checked), highlight=False)
    console.print(_table(checked.files))
    if checked.notice:
        console.print(checked.notice, highlight=False)


def _check_folder(folder: Path) -> CheckedBundle:
    try:
        return checkpoints_of(folder).check(folder)
    except BundleError as error:
        faults = str(error).splitlines()
        if len(faults) == 1:
            raise
        raise BundleError("\n  ".join([f"{folder} has {len(faults)} faults:", *faults])) from error


@bundle.command(epilog="Example: vivavoce bundle random tiny-bundle --version 3")
@_FOLDER_ARGUMENT
@click.option("--size", type=click.Choice(["tiny", "full"]), default="tiny", show_default=True)
@click.option(
    "--family",
    type=click.Choice(list(kinds_with_checkpoints()), case_sensitive=False),
    default="CosyVoice",
    show_default=True,
    help="XTTS has version 2 only.",
)
@VERSION
@click.option("--seed", type=int, default=0, show_default=True)
def random(folder: Path, size: str, family: str, version: str, seed: int) -> None:
    """Write random weights in the released layout into DIR, for tests and benches."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    checkpoints = kinds_with_checkpoints()[family]
    number = int(version) if int(version) in checkpoints.versions else checkpoints.versions[0]
    console = Console(stderr=True)
    columns = (TextColumn("writing"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=checkpoints.random_bytes(number, size))
        checkpoints.write_random(folder, number, size, seed, lambda count: progress.advance(bar, count))
    console.print(f"{folder}: {family} {number}, {size}, seed {seed}; it speaks noise", highlight=False)


@bundle.command(epilog="Example: vivavoce bundle convert CosyVoice2-0.5B")
@_FOLDER_ARGUMENT
def convert(folder: Path) -> None:
    """Convert the weights in DIR to safetensors and compare both."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("converting"):
        files = list(checkpoints_of(folder).convert(folder))
    Console().print(_table(files))
    console.print("vivavoce now loads these; the files they were made of can be deleted.", highlight=False)


@bundle.command(epilog="Example: vivavoce bundle export CosyVoice2-0.5B --to onnx --precision int8")
@_FOLDER_ARGUMENT
@click.option("--to", "target", type=click.Choice(["onnx", "tensorrt"]), required=True, help="Format.")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "int8", "int4", "int4-int8", "bf16", "fp16"]),
    default="fp32",
    show_default=True,
    help="fp32, int8, int4: the language model's matrices. fp32, bf16, fp16: the engine of the flow. "
    "int4-int8: both, for ONNX Runtime.",
)
def export(folder: Path, target: str, precision: str) -> None:
    """Export the networks in DIR as graphs in DIR/onnx, with the digest of the weights in their metadata.

    ``--to tensorrt`` builds engines of flow and vocoder for the graphics card of this machine.
    """
    from rich.console import Console

    with Console(stderr=True).status("exporting"):
        files = list(checkpoints_of(folder).export(folder, target, precision, "cuda"))
    Console().print(_table(files))


def _summary_line(bundle: CheckedBundle) -> str:
    size = sum(file.size_bytes for file in bundle.files)
    return f"{bundle.family} {bundle.version}; {_format_size(size)}; speaks {', '.join(bundle.languages)}"


def _table(files: Iterable[CheckedFile]) -> "Table":
    from rich.table import Table

    table = Table("file", "size", "checked")
    table.columns[1].justify = "right"
    for file in files:
        table.add_row(file.name, _format_size(file.size_bytes), file.checked)
    return table


def _format_size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.2f} GB"
