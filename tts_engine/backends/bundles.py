"""Checks, converts and generates checkpoint folders, of CosyVoice and XTTS, for code without torch imports.

The functions import torch when they run and raise MissingExtra without it. A BundleError lists the faults of
a folder, one on each line.
"""

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadRequest, BundleError, MissingExtra

if TYPE_CHECKING:
    from ...models.cosyvoice.device_benchmark import DeviceBenchmarkSize, DeviceTimings
    from ..voices.enrollable import EnrollableVoices
    from ..voices.recording import Recording
    from ..voices.storable_prompt import StorablePrompt


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file of a bundle, and what was checked in it."""

    name: str
    size_bytes: int
    checked: str


class BundleFamily(StrEnum):
    """Families of checkpoint folders."""

    COSYVOICE = "CosyVoice"
    XTTS = "XTTS"


@dataclass(frozen=True, slots=True)
class CheckedBundle:
    """A complete bundle."""

    version: int  # 2 or 3
    languages: tuple[str, ...]  # codes of the training data, ISO 639-1, but for "zh-cn" of XTTS
    files: tuple[CheckedFile, ...]
    family: BundleFamily = BundleFamily.COSYVOICE
    notice: str = ""  # one line about the licence of the weights, where it forbids a use


def is_xtts_folder(folder: Path) -> bool:
    """Whether a folder has the files by which a bundle of XTTS is told from others. Needs no torch."""
    has_weights = any((folder / name).is_file() for name in ("model.pth", "model.safetensors"))
    return has_weights and (folder / "config.json").is_file()


def has_exported_graphs(folder: Path) -> bool:
    """Whether a CosyVoice bundle can be spoken with without torch. Needs no package."""
    return (folder / "onnx" / "bundle.json").is_file()


def check_bundle(folder: Path) -> CheckedBundle:
    """Check every file, key, shape and type of a folder without loading weights. Raises BundleError."""
    require_folder(folder)
    if is_xtts_folder(folder):
        return _check_xtts_bundle(folder)
    with bundle_errors():
        from ...models.cosyvoice.checkpoint.bundle import open_bundle
        from ...models.cosyvoice.checkpoint.inventory import list_bundle_files

        bundle = open_bundle(folder)
        files = tuple(
            CheckedFile(item.name, item.size_bytes, item.checked) for item in list_bundle_files(bundle)
        )
        return CheckedBundle(bundle.version.value, bundle.languages, files)


def _check_xtts_bundle(folder: Path) -> CheckedBundle:
    with bundle_errors(BundleFamily.XTTS):
        from ...models.xtts.checkpoint.bundle import LICENSE_NOTICE, list_bundle_files, open_bundle

        bundle = open_bundle(folder)
        files = tuple(
            CheckedFile(item.name, item.size_bytes, item.checked) for item in list_bundle_files(bundle)
        )
        return CheckedBundle(2, bundle.settings.languages, files, BundleFamily.XTTS, LICENSE_NOTICE)


def random_xtts_bytes(size: str) -> int:
    """Bytes on disk of the weights of a random bundle of XTTS."""
    with bundle_errors(BundleFamily.XTTS):
        from ...models.checkpoint.bundle_files import BundleSize
        from ...models.xtts.checkpoint.random_bundle import weight_bytes

        return weight_bytes(BundleSize(size))


def write_random_xtts_bundle(
    folder: Path, size: str, seed: int, on_bytes_written: Callable[[int], None] = lambda count: None
) -> None:
    """Write random weights of XTTS v2 to a folder in the released layout; as ``write_random_bundle``."""
    with bundle_errors(BundleFamily.XTTS), _writing_errors(folder):
        from ...models.checkpoint.bundle_files import BundleSize
        from ...models.xtts.checkpoint import random_bundle

        random_bundle.write_random_bundle(folder, BundleSize(size), seed, on_bytes_written)


def random_bundle_bytes(version: int, size: str) -> int:
    """Bytes on disk of the weights of a random bundle."""
    with bundle_errors():
        from ...models.checkpoint.bundle_files import BundleSize
        from ...models.cosyvoice.checkpoint.random_bundle import weight_bytes
        from ...models.cosyvoice.config import CosyVoiceVersion

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
    with bundle_errors(), _writing_errors(folder):
        from ...models.checkpoint.bundle_files import BundleSize
        from ...models.cosyvoice.checkpoint import random_bundle
        from ...models.cosyvoice.config import CosyVoiceVersion

        random_bundle.write_random_bundle(
            folder, CosyVoiceVersion(version), BundleSize(size), seed, on_bytes_written
        )


@contextlib.contextmanager
def _writing_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise BadRequest(f"{folder}: is not an empty folder; give a new one") from error
    except RuntimeError as error:  # torch's error for a full disk
        raise BundleError(f"{folder}: cannot be written: {str(error).splitlines()[0]}") from error


def convert_bundle(folder: Path) -> Iterator[CheckedFile]:
    """Write each .pt file of a bundle as .safetensors beside it; yields every file when it is written.

    Each file is read back and compared with its source. Raises BundleError.
    """
    require_folder(folder)
    if is_xtts_folder(folder):
        yield _convert_xtts_bundle(folder)
        return
    with bundle_errors():
        from ...models.checkpoint.weight_files import convert_to_safetensors
        from ...models.cosyvoice.checkpoint.bundle import open_bundle
        from ...models.cosyvoice.checkpoint.tensor_shapes import WEIGHT_FILES
        from ...models.cosyvoice.config import TIED_KEYS

        open_bundle(folder)
        sources = [folder / name for name in WEIGHT_FILES if (folder / name).exists()]
        if not sources:
            raise BundleError(f"{folder}: no .pt file is left to convert")
        for source in sources:
            target = convert_to_safetensors(source, TIED_KEYS)
            yield CheckedFile(target.name, target.stat().st_size, f"equal to {source.name}")


def _convert_xtts_bundle(folder: Path) -> CheckedFile:
    with bundle_errors(BundleFamily.XTTS):
        from ...models.xtts.checkpoint.bundle import open_bundle
        from ...models.xtts.checkpoint.weight_file import MODEL_FILE, convert_model

        open_bundle(folder)
        if not (folder / MODEL_FILE).exists():
            raise BundleError(f"{folder}: no .pth file is left to convert")
        target = convert_model(folder)
        return CheckedFile(target.name, target.stat().st_size, f"equal to {MODEL_FILE}")


def export_bundle(folder: Path, precision: str) -> Iterator[CheckedFile]:
    """Write the graphs of a bundle to its folder ``onnx``; yields each when it is in place.

    Raises BundleError, and BadRequest for XTTS or a precision that is not exported.
    """
    _require_exportable(folder)
    with bundle_errors():
        from ...models.cosyvoice.checkpoint.bundle import open_bundle
        from ...models.cosyvoice.onnx_graphs.export import MATRIX_FORMATS, export_bundle
        from ...models.networks.execution import Precision

        if precision not in list(MATRIX_FORMATS):
            raise BadRequest(f"precision is {precision!r}; it must be {', '.join(MATRIX_FORMATS)}")
        for graph in export_bundle(open_bundle(folder), Precision(precision)):
            data = graph.with_name(f"{graph.name}.data")
            size = sum(file.stat().st_size for file in (graph, data) if file.exists())
            yield CheckedFile(f"{graph.parent.name}/{graph.name}", size, "exported")


def export_engines(folder: Path, precision: str, device: str) -> Iterator[CheckedFile]:
    """Build the TensorRT engines of a bundle for a card; yields each. Raises BundleError, BadRequest."""
    _require_exportable(folder)
    with bundle_errors():
        from ...models.cosyvoice.checkpoint.bundle import open_bundle
        from ...models.cosyvoice.onnx_graphs.export import export_rendering
        from ...models.cosyvoice.tensorrt_engines.engine_builder import import_tensorrt
        from ...models.cosyvoice.tensorrt_engines.networks import EngineLoader
        from ...models.networks.devices import find_device
        from ..cosyvoice.policy import parse_precision

        module, card, bundle = import_tensorrt(), find_device(device), open_bundle(folder)
        list(export_rendering(bundle))
        loader = EngineLoader(module, bundle, parse_precision(precision), card)
        loader.load_flow()
        loader.load_vocoder()
        for engine in loader.engine_files():
            yield CheckedFile(str(engine.relative_to(folder)), engine.stat().st_size, "built")


def _require_exportable(folder: Path) -> None:
    require_folder(folder)
    if is_xtts_folder(folder):
        raise BadRequest(
            f"{folder}: XTTS is not exported; with precision int8 its language model is made a graph at load"
        )


def card_name_of(device: str) -> str:
    """Name of the graphics card ``device``, empty for a CPU. Raises BundleError if it is absent."""
    with bundle_errors():
        from ...models.networks.devices import card_name, find_device

        return card_name(find_device(device))


def measure_on_device(
    folder: Path, device: str, precision: str, size: "DeviceBenchmarkSize | None" = None
) -> "DeviceTimings":
    """Time language model and flow of a bundle on a device. Raises BundleError, BadRequest."""
    with bundle_errors():
        from ...models.cosyvoice.checkpoint.bundle import open_bundle
        from ...models.cosyvoice.device_benchmark import DeviceBenchmarkSize, measure_device
        from ...models.networks.devices import find_device
        from ..cosyvoice.policy import parse_precision

        found, chosen = find_device(device), parse_precision(precision)
        return measure_device(open_bundle(folder), found, chosen, size or DeviceBenchmarkSize())


def enroll(folder: Path, recordings: Sequence["Recording"], transcript: str = "") -> "StorablePrompt":
    """Make a voice of recordings with the bundle in a folder; takes seconds.

    Raises BundleError for the folder, BadRequest for the recordings, MissingExtra without torch.
    """
    voices = open_encoders(folder)
    with bundle_errors(_family_of(folder)):
        return voices.encode_recordings(recordings, transcript)


def open_encoders(folder: Path) -> "EnrollableVoices":
    """The voices of the bundle in a folder without its speakers and networks: they encode recordings.

    Raises BundleError, and MissingExtra without torch.
    """
    family = _family_of(folder)
    with bundle_errors(family):
        if family is BundleFamily.XTTS:
            from ..xtts.enrolment import open_encoders as open_xtts_encoders

            return open_xtts_encoders(folder)
        from ..cosyvoice.enrolment import open_encoders as open_cosyvoice_encoders

        return open_cosyvoice_encoders(folder)


def _family_of(folder: Path) -> BundleFamily:
    return BundleFamily.XTTS if is_xtts_folder(folder) else BundleFamily.COSYVOICE


def require_folder(folder: Path) -> None:
    """Raise BundleError if a folder is missing. Needs no torch, which may be missing as well."""
    if not folder.is_dir():
        raise BundleError(
            f"{folder}: no such folder; give the folder that holds cosyvoice2.yaml or cosyvoice3.yaml"
        )


def require_networks(folder: Path) -> None:
    """Raise MissingExtra if neither torch nor exported graphs can compute a CosyVoice bundle."""
    if importlib.util.find_spec("torch") is None and not has_exported_graphs(folder):
        raise MissingExtra(f"the bundle {str(folder)!r}", "cosyvoice")


@contextlib.contextmanager
def bundle_errors(family: BundleFamily = BundleFamily.COSYVOICE) -> Iterator[None]:
    """Translate faults of a folder or device to BundleError. Raises MissingExtra without torch."""
    try:
        from ...models.checkpoint.bundle_files import WeightFileError
        from ...models.cosyvoice.checkpoint.bundle import InvalidBundleError
        from ...models.networks.execution import DeviceError, is_torch_installed

        faults: tuple[type[Exception], ...] = (InvalidBundleError, WeightFileError, DeviceError)
        if is_torch_installed():
            from ...models.xtts.checkpoint.bundle import InvalidXttsBundleError

            faults = (*faults, InvalidXttsBundleError)
    except ImportError as error:
        raise MissingExtra(family, "cosyvoice") from error
    try:
        yield
    except faults as error:
        raise BundleError(str(error)) from error
    except ModuleNotFoundError as error:
        raise MissingExtra(family, "cosyvoice") from error
    except OSError as error:
        raise BundleError(f"{error.filename or 'the bundle'}: {error.strerror or error}") from error
