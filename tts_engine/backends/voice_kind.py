"""The record of a kind of voice: how its bundles are found and loaded, and how its checkpoints are handled.

A record is imported to find a bundle's kind, so it imports networks and packages of its own only when one of
its functions runs.

It also has the names of devices, for code that may not import the networks.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...models.device_names import DEVICE_NAMES, DEVICE_PATTERN
from ..voices.voices import Voice
from .base import Backend
from .divided_stages import RemoteStage, RenderTransport, StageHost
from .hosted_backend import BackendParts

if TYPE_CHECKING:
    from ..voices.enrollable import EnrollableVoices

__all__ = ["DEVICE_NAMES", "DEVICE_PATTERN"]

# A caller's choice of the precision for the device: "fp32-fp16" where torch computes CosyVoice on a card.
AUTO_PRECISION: Final = "auto"


@dataclass(frozen=True, slots=True)
class KeptSpeechConfig:
    """How much rendered speech is kept for streams that say the same; by default, none is."""

    max_bytes: int = 0  # in memory; 0: nothing is kept, on file neither
    folder: Path | None = None  # of files that are there after a restart; None: in memory only
    max_file_bytes: int = 1_000_000_000  # in the folder


NOTHING_KEPT: Final = KeptSpeechConfig()


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """A bundle, and what of ``Engine.open`` decides how it is loaded."""

    folder: Path  # not used by the packaged voice
    voice_store: Path | None = None
    precision: str = AUTO_PRECISION
    device: str = "auto"
    executor: str = "auto"
    kept_speech: KeptSpeechConfig = NOTHING_KEPT


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file of a bundle, and what was checked in it."""

    name: str
    size_bytes: int
    checked: str


@dataclass(frozen=True, slots=True)
class CheckedBundle:
    """A complete bundle."""

    version: int  # 2 or 3
    languages: tuple[str, ...]  # codes of the training data, ISO 639-1, but for "zh-cn" of XTTS
    files: tuple[CheckedFile, ...]
    family: str  # name of its kind
    notice: str = ""  # one line about the licence of the weights, where it forbids a use


@dataclass(frozen=True, slots=True)
class DeviceFigure:
    """One measured number; its target is for weights of the released size."""

    name: str
    value: float
    unit: str
    at_most: float | None = None  # upper target
    at_least: float | None = None  # lower target


class Checkpoints(Protocol):
    """What can be done with a folder of weights of one kind.

    Each method raises MissingExtra without the packages that it needs, and BundleError with the faults of the
    folder, one on each line.

    Attributes:
        versions: of the networks; the first one is made of random weights unless another is asked for.
    """

    versions: tuple[int, ...]

    def require_networks(self, folder: Path) -> None:
        """Check that a package is installed that can compute the networks."""

    def check(self, folder: Path) -> CheckedBundle:
        """Check every file, key, shape and type without loading weights."""
        ...

    def convert(self, folder: Path) -> Iterator[CheckedFile]:
        """Write each file of weights as .safetensors beside it; yields every file when it is written.

        Each is read back and compared with its source.
        """
        ...

    def export(self, folder: Path, target: str, precision: str, device: str) -> Iterator[CheckedFile]:
        """Write graphs ("onnx") or engines for a device ("tensorrt"); yields each. Raises BadRequest too."""
        ...

    def random_bytes(self, version: int, size: str) -> int:
        """Bytes on disk of the weights of a random bundle, "tiny" or "full"."""
        ...

    def write_random(
        self,
        folder: Path,
        version: int,
        size: str,
        seed: int,
        on_bytes_written: Callable[[int], None] = lambda count: None,
    ) -> None:
        """Write random weights in the released layout; on_bytes_written: called after each write.

        Raises BadRequest if the folder is not empty.
        """

    def open_encoders(self, folder: Path) -> "EnrollableVoices":
        """The voices of a bundle without its speakers and networks: they encode recordings."""
        ...

    def card_name(self, device: str) -> str:
        """Name of the graphics card ``device``, empty for a CPU. Raises BundleError if it is absent."""
        ...

    def errors(self) -> contextlib.AbstractContextManager[None]:
        """Translates what its networks raise for a folder or a device, for the body of a ``with``."""
        ...


@dataclass(frozen=True, slots=True)
class DividedStages:
    """What makes the two sides. Loading raises BundleError, BadRequest and MissingExtra."""

    open_stage: Callable[[RenderTransport, str, str], RemoteStage]  # of a bundle's digest, for a decoder's id
    load_decoder: Callable[[LoadSettings, Any], Backend]  # over a stage of ``open_stage``
    load_host: Callable[[LoadSettings, str, str], StageHost]  # of a replica's id and the bundle's digest


@dataclass(frozen=True, slots=True)
class VoiceKind:
    """A kind of voice.

    load, parts and measure raise BundleError, BadRequest and MissingExtra. parts loads for a child process;
    measure times the networks of a folder on a device with a precision.
    """

    name: str
    looked_for: str  # the files by which a folder is found, for an error
    matches: Callable[[str], bool]  # whether the setting ``bundle.folder`` names one; needs no package
    load: Callable[[LoadSettings], Backend]
    list_voices: Callable[[Path], tuple[Voice, ...]] = lambda folder: ()  # without loading networks
    checkpoints: Checkpoints | None = None
    parts: Callable[[LoadSettings], BackendParts] | None = None  # None: it renders in this process only
    renders_apart: bool = False  # whether a server gives it a process: its networks hold the interpreter
    stages: DividedStages | None = None  # None: a replica of a cluster has the whole voice
    measure: Callable[[Path, str, str], tuple[DeviceFigure, ...]] | None = None
    measured_on_cpu: bool = False  # whether ``measure`` is meant for a CPU too
    keeps_speech: bool = False  # whether its backend heeds ``LoadSettings.kept_speech``
