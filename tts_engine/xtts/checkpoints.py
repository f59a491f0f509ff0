"""Checks, converts and generates checkpoint folders of XTTS, for code without torch imports."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..backends.voice_kind import CheckedBundle, CheckedFile
from ..errors import BadRequest, BundleError, MissingExtra
from ..voice_kit.loading import translated_errors, writing_errors
from ..voice_kit.policy import card_name_of

if TYPE_CHECKING:
    from ..voices.enrollable import EnrollableVoices


def bundle_errors() -> AbstractContextManager[None]:
    """Translate faults of a folder or device to BundleError; raises MissingExtra without torch."""
    return translated_errors("XTTS", "cosyvoice", _import_faults)


def _import_faults() -> tuple[type[Exception], ...]:
    from ...models.xtts.checkpoint.bundle import InvalidXttsBundleError

    return (InvalidXttsBundleError,)


class XttsCheckpoints:
    """``Checkpoints`` of XTTS."""

    errors = staticmethod(bundle_errors)
    card_name = staticmethod(card_name_of)
    versions: tuple[int, ...] = (2,)

    def require_networks(self, folder: Path) -> None:
        """As ``Checkpoints.require_networks``."""
        if importlib.util.find_spec("torch") is None:
            raise MissingExtra(f"the bundle {str(folder)!r}", "cosyvoice")

    def check(self, folder: Path) -> CheckedBundle:
        """As ``Checkpoints.check``."""
        with bundle_errors():
            from ...models.xtts.checkpoint.bundle import LICENSE_NOTICE, list_bundle_files, open_bundle

            bundle = open_bundle(folder)
            files = tuple(
                CheckedFile(item.name, item.size_bytes, item.checked) for item in list_bundle_files(bundle)
            )
            return CheckedBundle(2, bundle.settings.languages, files, "XTTS", LICENSE_NOTICE)

    def convert(self, folder: Path) -> Iterator[CheckedFile]:
        """As ``Checkpoints.convert``."""
        with bundle_errors():
            from ...models.xtts.checkpoint.bundle import open_bundle
            from ...models.xtts.checkpoint.weight_file import MODEL_FILE, convert_model

            open_bundle(folder)
            if not (folder / MODEL_FILE).exists():
                raise BundleError(f"{folder}: no .pth file is left to convert")
            target = convert_model(folder)
            yield CheckedFile(target.name, target.stat().st_size, f"equal to {MODEL_FILE}")

    def export(self, folder: Path, target: str, precision: str, device: str) -> NoReturn:
        """Not supported: raises BadRequest."""
        raise BadRequest(
            f"{folder}: XTTS is not exported; with precision int8 its language model is made a graph at load"
        )

    def random_bytes(self, version: int, size: str) -> int:
        """As ``Checkpoints.random_bytes``."""
        with bundle_errors():
            from ...models.bundle_files import BundleSize
            from ...models.xtts.checkpoint.random_bundle import weight_bytes

            return weight_bytes(BundleSize(size))

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
            from ...models.xtts.checkpoint import random_bundle

            random_bundle.write_random_bundle(folder, BundleSize(size), seed, on_bytes_written)

    def open_encoders(self, folder: Path) -> "EnrollableVoices":
        """As ``Checkpoints.open_encoders``."""
        with bundle_errors():
            from .bundle_voices import open_encoders

            return open_encoders(folder)
