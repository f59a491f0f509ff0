"""Checkpoint folders of CosyVoice for those who may not import a network: checked, converted, made at random.

Torch is imported when a function runs; without it they raise MissingExtra. What is wrong with a folder is
BundleError, a line a fault.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import BadRequest, BundleError, MissingExtra


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """One file of a bundle and what was compared in it."""

    name: str
    size_bytes: int
    checked: str


@dataclass(frozen=True, slots=True)
class CheckedBundle:
    """A whole bundle. version: of CosyVoice. languages: that it was trained to speak, ISO 639-1."""

    version: int
    languages: tuple[str, ...]
    files: tuple[CheckedFile, ...]


def check_bundle(folder: Path) -> CheckedBundle:
    """Look at every file, key, shape and type of a folder, allocating none; raises BundleError."""
    with bundle_errors():
        from ..models.cosyvoice.checkpoint.bundle import open_bundle
        from ..models.cosyvoice.checkpoint.inventory import list_bundle_files

        bundle = open_bundle(folder)
        files = tuple(
            CheckedFile(item.name, item.size_bytes, item.checked) for item in list_bundle_files(bundle)
        )
        return CheckedBundle(bundle.version.value, bundle.languages, files)


def random_bundle_bytes(version: int, size: str) -> int:
    """What the weights of a random bundle take on the disk."""
    with bundle_errors():
        from ..models.cosyvoice.checkpoint.random_bundle import BundleSize, weight_bytes
        from ..models.cosyvoice.config import CosyVoiceVersion

        return weight_bytes(CosyVoiceVersion(version), BundleSize(size))


def write_random_bundle(
    folder: Path,
    version: int,
    size: str,
    seed: int,
    on_bytes_written: Callable[[int], None] = lambda numbers: None,
) -> None:
    """Write a folder in the released layout with random weights; ``written`` is told of bytes as they come.

    Raises BadRequest for a folder in use, BundleError where it cannot be written.
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
        except RuntimeError as error:  # how torch says that a disk is full
            raise BundleError(f"{folder}: cannot be written: {str(error).splitlines()[0]}") from error


def convert_bundle(folder: Path) -> Iterator[CheckedFile]:
    """Write the weights of a whole bundle as .safetensors beside the .pt files; each file as it is done.

    Each is read again and compared, number by number. Raises BundleError.
    """
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


@contextlib.contextmanager
def bundle_errors() -> Iterator[None]:
    """What is wrong with a folder or the device it is for as BundleError; MissingExtra without torch."""
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
