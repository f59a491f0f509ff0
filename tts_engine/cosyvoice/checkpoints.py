"""Checks, converts, exports and generates checkpoint folders of CosyVoice, for code without torch imports."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from ..backends.voice_kind import CheckedBundle, CheckedFile
from ..errors import BadRequest, BundleError, MissingExtra
from ..voice_kit.loading import translated_errors, writing_errors
from ..voice_kit.policy import card_name_of

if TYPE_CHECKING:
    from ..voices.enrollable import EnrollableVoices


def bundle_errors() -> AbstractContextManager[None]:
    """Translate faults of a folder or device to BundleError; raises MissingExtra without a package."""
    return translated_errors("CosyVoice", "cosyvoice", _import_faults)


def _import_faults() -> tuple[type[Exception], ...]:
    from ...models.cosyvoice.checkpoint.bundle import InvalidBundleError

    return (InvalidBundleError,)


class CosyVoiceCheckpoints:
    """``Checkpoints`` of CosyVoice."""

    errors = staticmethod(bundle_errors)
    card_name = staticmethod(card_name_of)
    versions: tuple[int, ...] = (2, 3)

    def require_networks(self, folder: Path) -> None:
        """As ``Checkpoints.require_networks``: torch, unless the folder has exported graphs."""
        has_graphs = (folder / "onnx" / "bundle.json").is_file()
        if importlib.util.find_spec("torch") is None and not has_graphs:
            raise MissingExtra(f"the bundle {str(folder)!r}", "cosyvoice")

    def check(self, folder: Path) -> CheckedBundle:
        """As ``Checkpoints.check``."""
        with bundle_errors():
            from ...models.cosyvoice.checkpoint.bundle import open_bundle
            from ...models.cosyvoice.checkpoint.inventory import list_bundle_files

            bundle = open_bundle(folder)
            files = tuple(
                CheckedFile(item.name, item.size_bytes, item.checked) for item in list_bundle_files(bundle)
            )
            return CheckedBundle(bundle.version.value, bundle.languages, files, "CosyVoice")

    def convert(self, folder: Path) -> Iterator[CheckedFile]:
        """As ``Checkpoints.convert``."""
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

    def export(self, folder: Path, target: str, precision: str, device: str) -> Iterator[CheckedFile]:
        """As ``Checkpoints.export``: graphs in the folder ``onnx``, or engines of flow and vocoder."""
        if target == "tensorrt":
            return _build_engines(folder, precision, device)
        return _export(folder, precision)

    def random_bytes(self, version: int, size: str) -> int:
        """As ``Checkpoints.random_bytes``."""
        with bundle_errors():
            from ...models.bundle_files import BundleSize
            from ...models.cosyvoice.checkpoint.random_bundle import weight_bytes
            from ...models.cosyvoice.config import CosyVoiceVersion

            return weight_bytes(CosyVoiceVersion(version), BundleSize(size))

    def write_random(
        self,
        folder: Path,
        version: int,
        size: str,
        seed: int,
        on_bytes_written: Callable[[int], None] = lambda count: None,
    ) -> None:
        """As ``Checkpoints.write_random``."""
        with bundle_errors(), writing_errors(folder):
            from ...models.bundle_files import BundleSize
            from ...models.cosyvoice.checkpoint import random_bundle
            from ...models.cosyvoice.config import CosyVoiceVersion

            random_bundle.write_random_bundle(
                folder, CosyVoiceVersion(version), BundleSize(size), seed, on_bytes_written
            )

    def open_encoders(self, folder: Path) -> "EnrollableVoices":
        """As ``Checkpoints.open_encoders``."""
        with bundle_errors():
            from .enrolment import open_encoders

            return open_encoders(folder)


def _export(folder: Path, precision: str) -> Iterator[CheckedFile]:
    with bundle_errors():
        from ...models.cosyvoice.checkpoint.bundle import open_bundle
        from ...models.cosyvoice.onnx_graphs.export import MATRIX_FORMATS, export_bundle
        from ...models.devices.execution import Precision

        if precision not in list(MATRIX_FORMATS):
            raise BadRequest(f"precision is {precision!r}; it must be {', '.join(MATRIX_FORMATS)}")
        for graph in export_bundle(open_bundle(folder), Precision(precision)):
            data = graph.with_name(f"{graph.name}.data")
            size = sum(file.stat().st_size for file in (graph, data) if file.exists())
            yield CheckedFile(f"{graph.parent.name}/{graph.name}", size, "exported")


def _build_engines(folder: Path, precision: str, device: str) -> Iterator[CheckedFile]:
    with bundle_errors():
        from ...models.cosyvoice.checkpoint.bundle import open_bundle
        from ...models.cosyvoice.onnx_graphs.export import export_rendering
        from ...models.cosyvoice.tensorrt_engines.engine_builder import import_tensorrt
        from ...models.cosyvoice.tensorrt_engines.networks import EngineLoader
        from ...models.devices.torch_devices import find_device
        from .policy import parse_precision

        module, card, bundle = import_tensorrt(), find_device(device), open_bundle(folder)
        list(export_rendering(bundle))
        loader = EngineLoader(module, bundle, parse_precision(precision), card)
        loader.load_flow()
        loader.load_vocoder()
        for engine in loader.engine_files():
            yield CheckedFile(str(engine.relative_to(folder)), engine.stat().st_size, "built")
