"""``vivavoce bundle``: checkpoint folders of CosyVoice, checked, made at random, converted."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..tts_engine.bundles import (
    CheckedBundle,
    CheckedFile,
    check_bundle,
    convert_bundle,
    random_bundle_bytes,
    write_random_bundle,
)
from ..tts_engine.errors import BundleError


def check(folder: Path, *, as_json: bool) -> None:
    """Show what is in a bundle and what was compared; raises BundleError with every fault."""
    with Console(stderr=True).status("reading"):
        bundle = _checked(folder)
    if as_json:
        print(json.dumps(asdict(bundle), indent=2))
        return
    console = Console()
    console.print(_title(bundle), highlight=False)
    console.print(_table(bundle.files))


def _checked(folder: Path) -> CheckedBundle:
    try:
        return check_bundle(folder)
    except BundleError as error:
        faults = str(error).splitlines()
        if len(faults) == 1:
            raise
        raise BundleError("\n  ".join([f"{folder} has {len(faults)} faults:", *faults])) from error


def random(folder: Path, *, version: int, size: str, seed: int) -> None:
    """Write a bundle of random weights; raises BadRequest for a folder in use, and BundleError."""
    console = Console(stderr=True)
    columns = (TextColumn("writing"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=random_bundle_bytes(version, size))
        write_random_bundle(folder, version, size, seed, lambda count: progress.advance(bar, count))
    console.print(f"{folder}: CosyVoice {version}, {size}, seed {seed}; it speaks noise", highlight=False)


def convert(folder: Path) -> None:
    """Write .safetensors files beside a bundle's weights; raises BundleError."""
    console = Console(stderr=True)
    with console.status("converting"):
        files = list(convert_bundle(folder))
    Console().print(_table(files))
    console.print("These are used from now on; the .pt files may go.", highlight=False)


def _title(bundle: CheckedBundle) -> str:
    size = sum(file.size_bytes for file in bundle.files)
    return f"CosyVoice {bundle.version}; {_size(size)}; speaks {', '.join(bundle.languages)}"


def _table(files: Iterable[CheckedFile]) -> Table:
    table = Table("file", "size", "checked")
    table.columns[1].justify = "right"
    for file in files:
        table.add_row(file.name, _size(file.size_bytes), file.checked)
    return table


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.2f} GB"
