"""Checks, converts and generates CosyVoice checkpoint folders, for code that does not import torch.

The functions import torch when they run and raise MissingExtra without it. A BundleError lists the faults of
a folder, one on each line.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import BadRequest, BundleError, MissingExtra

if TYPE_CHECKING:
    from ..models.cosyvoice.device_benchmark import DeviceBenchmarkSize, DeviceTimings


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file of a bundle, and what was checked in it."""

    name: str
    size_bytes: int
    checked: str


@dataclass(frozen=True, slots=True)
class CheckedBundle:
    """A complete bundle. version: 2 or 3. languages: ISO 639-1 codes of the training data."""

    version: int
    languages: tuple[str, ...]
    files: tuple[CheckedFile, ...]


def check_bundle(folder: Path) -> CheckedBundle:
    """Check every file, key, shape and type of a folder without loading weights. Raises BundleError."""
    require_folder(folder)
    with bundle_errors():
        from ..models.cosyvoice.checkpoint.bundle import open_bundle
        from ..models.cosyvoice.checkpoint.inventory import list_bundle_files

        bundle = open_bundle(folder)
        files = tuple(
            CheckedFile(item.name, item.size_bytes, item.checked) for item in list_bundle_files(bundle)
        )
        return CheckedBundle(bundle.version.value, bundle.languages, files)


def random_bundle_bytes(version: int, size: str) -> int:
    """Bytes on disk of the weights of a random bundle."""
    with bundle_errors():
        from ..models.cosyvoice.checkpoint.random_bundle import BundleSize, weight_bytes
        from ..models.cosyvoice.config import CosyVoiceVersion

        return weight_bytes(CosyVoiceVersion(version), BundleSize(size))


def write_random_bundle(
    folder: Path,
    version: int,
    size: str,
    seed: int,
    on_bytes_written: Callable[[int], None] = lambda count: None,
) -> None:
    """Write random weights to a folder in the released layout.

    on_bytes_written: called with the number of bytes after each write. Raises BadRequest if the folder is not
    empty, BundleError if it cannot be written.
    """
    with bundle_errors():
        from ..models.cosyvoice.checkpoint import random_bundle
        from ..models.cosyvoice.config import CosyVoiceVersion

        try:
            random_bundle.write_random_bundle(
                folder, CosyVoiceVersion(version), random_bundle.BundleSize(size), seed, on_bytes_written
            )
        except FileExistsError as error:
            raise BadRequest(f"{folder}: is not an empty folder; give a new one") from error
        except RuntimeError as error:  # torch's error for a full disk
            raise BundleError(f"{folder}: cannot be written: {str(error).splitlines()[0]}") from error


def convert_bundle(folder: Path) -> Iterator[CheckedFile]:
    """Write each .pt file of a bundle as .safetensors beside it; yields every file when it is written.

    Each file is read back and compared with its source. Raises BundleError.
    """
    require_folder(folder)
    with bundle_errors():
        from ..models.cosyvoice.checkpoint.bundle import open_bundle
        from ..models.cosyvoice.checkpoint.tensor_shapes import WEIGHT_FILES
        from ..models.cosyvoice.checkpoint.weight_files import convert_to_safetensors

        open_bundle(folder)
        sources = [folder / name for name in WEIGHT_FILES if (folder / name).exists()]
        if not sources:
            raise BundleError(f"{folder}: no .pt file is left to convert")
        for source in sources:
            target = convert_to_safetensors(source)
            yield CheckedFile(target.name, target.stat().st_size, f"equal to {source.name}")


def export_bundle(folder: Path, precision: str) -> Iterator[CheckedFile]:
    """Write the graphs of a bundle to its folder ``onnx``; yields each when it is in place.

    Raises BundleError, and BadRequest for a precision that is not exported.
    """
    require_folder(folder)
    with bundle_errors():
        from ..models.cosyvoice.checkpoint.bundle import open_bundle
        from ..models.cosyvoice.onnx_graphs.export import MATRIX_FORMATS, export_bundle
        from ..models.cosyvoice.precision import Precision

        if precision not in list(MATRIX_FORMATS):
            raise BadRequest(f"precision is {precision!r}; it must be {', '.join(MATRIX_FORMATS)}")
        for graph in export_bundle(open_bundle(folder), Precision(precision)):
            data = graph.with_name(f"{graph.name}.data")
            size = sum(file.stat().st_size for file in (graph, data) if file.exists())
            yield CheckedFile(f"{graph.parent.name}/{graph.name}", size, "exported")


def card_name_of(device: str) -> str:
    """Name of the graphics card ``device``, empty for a CPU. Raises BundleError if it is absent."""
    with bundle_errors():
        from ..models.cosyvoice.devices import card_name, find_device

        return card_name(find_device(device))


def measure_on_device(
    folder: Path, device: str, precision: str, size: "DeviceBenchmarkSize | None" = None
) -> "DeviceTimings":
    """Time language model and flow of a bundle on a device. Raises BundleError, BadRequest."""
    with bundle_errors():
        from ..models.cosyvoice.checkpoint.bundle import open_bundle
        from ..models.cosyvoice.device_benchmark import DeviceBenchmarkSize, measure_device
        from ..models.cosyvoice.devices import find_device
        from .cosyvoice.policy import parse_precision

        found, chosen = find_device(device), parse_precision(precision)
        return measure_device(open_bundle(folder), found, chosen, size or DeviceBenchmarkSize())


def require_folder(folder: Path) -> None:
    """Raise BundleError if a folder is missing. Needs no torch, which may be missing as well."""
    if not folder.is_dir():
        raise BundleError(
            f"{folder}: no such folder; give the folder that holds cosyvoice2.yaml or cosyvoice3.yaml"
        )


@contextlib.contextmanager
def bundle_errors() -> Iterator[None]:
    """Translate faults of a folder or device to BundleError. Raises MissingExtra without torch."""
    try:
        from ..models.cosyvoice.checkpoint.bundle import InvalidBundleError
        from ..models.cosyvoice.checkpoint.weight_files import WeightFileError
        from ..models.cosyvoice.devices import DeviceError
    except ImportError as error:
        raise MissingExtra("CosyVoice", "cosyvoice") from error
    try:
        yield
    except (InvalidBundleError, WeightFileError, DeviceError) as error:
        raise BundleError(str(error)) from error
    except OSError as error:
        raise BundleError(f"{error.filename or 'the bundle'}: {error.strerror or error}") from error
