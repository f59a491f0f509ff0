"""Checks and reads a folder of XTTS v2, called a bundle.

    bundle = open_bundle(folder)    compares every file, key, shape and type with what the release must hold
    load_networks(bundle)           reads the tensors (networks.py)

    config.json           sizes, sampling, languages (settings)
    model.pth             weights (weight_file, tensor_shapes), or the same as model.safetensors
    vocab.json            tokenizer
    speakers_xtts.pth     optional: studio voices by name (voices_file)

The weights of Coqui are licensed for non-commercial use, speech made with them included; ``LICENSE_NOTICE``
says so in one line, which a loader prints.

Source: idiap/coqui-ai-TTS 0.28.0 TTS/tts/models/xtts.py (load_checkpoint).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ...bundle_files import BundleFile
from ...checkpoint.settings_file import BundleConfigError
from ...checkpoint.weight_files import WeightFileError, list_differences
from ..text.tokenizer import VOCABULARY_FILE, XttsTokenizer
from ..voice import XttsVoice
from .settings import CONFIG_FILE, XttsBundleSettings, read_settings
from .tensor_shapes import model_tensors
from .voices_file import VOICES_FILE, read_voices
from .weight_file import MODEL_FILE, describe_model, model_path

T = TypeVar("T")

LICENSE_NOTICE = (
    "XTTS v2 weights are under the Coqui Public Model License 1.0.0: non-commercial use only, "
    "of the model and of its speech"
)


class InvalidXttsBundleError(ValueError):
    """The folder is no usable bundle; the message has one line a fault."""


@dataclass(frozen=True, slots=True)
class XttsBundle:
    """A checked folder."""

    folder: Path
    settings: XttsBundleSettings

    def tokenizer(self) -> XttsTokenizer:
        """Load the tokenizer."""
        return XttsTokenizer.load(self.folder / VOCABULARY_FILE)

    def voices(self) -> dict[str, XttsVoice]:
        """The studio voices by name; empty without a speakers_xtts.pth."""
        path = self.folder / VOICES_FILE
        return read_voices(path, self.settings.config) if path.exists() else {}


def open_bundle(folder: Path) -> XttsBundle:
    """Check a folder before any weight is allocated. Raises InvalidXttsBundleError that lists every fault."""
    faults: list[str] = []
    settings = _attempt(lambda: read_settings(folder), faults)
    if settings is not None:
        for check in _checks(folder, settings):
            _attempt(check, faults)
    if settings is None or faults:
        raise InvalidXttsBundleError("\n".join(faults))
    return XttsBundle(folder, settings)


def list_bundle_files(bundle: XttsBundle) -> Iterator[BundleFile]:
    """Every file that a bundle uses, with what was checked in it. Reads headers only."""
    path = model_path(bundle.folder)
    checked = f"{len(describe_model(path)):,} tensors: every key, shape and type"
    yield BundleFile(path.name, path.stat().st_size, checked)
    languages = len(bundle.settings.languages)
    for name, checked in (
        (CONFIG_FILE, "sizes of the networks, sampling, languages"),
        (
            VOCABULARY_FILE,
            f"{bundle.tokenizer().vocab_size:,} text ids; a tag for each of {languages} languages",
        ),
    ):
        yield BundleFile(name, (bundle.folder / name).stat().st_size, checked)
    voices = bundle.folder / VOICES_FILE
    if voices.exists():
        count = len(read_voices(voices, bundle.settings.config, "meta"))
        yield BundleFile(VOICES_FILE, voices.stat().st_size, f"{count} {'voice' if count == 1 else 'voices'}")


def _attempt(action: Callable[[], T], faults: list[str]) -> T | None:
    try:
        return action()
    except (BundleConfigError, WeightFileError, InvalidXttsBundleError) as error:
        faults.append(str(error))
    except OSError as error:
        faults.append(f"{Path(error.filename or '').name}: {error.strerror}; download it again")
    return None


def _checks(folder: Path, settings: XttsBundleSettings) -> Iterator[Callable[[], object]]:
    yield lambda: _check_weights(folder, settings)
    yield lambda: _check_vocabulary(folder, settings)
    if (folder / VOICES_FILE).exists():
        yield lambda: read_voices(folder / VOICES_FILE, settings.config, "meta")


def _check_weights(folder: Path, settings: XttsBundleSettings) -> None:
    path = model_path(folder)
    if differences := list_differences(describe_model(path), model_tensors(settings.config)):
        raise InvalidXttsBundleError(
            f"{path.name}: {differences}; is it of the same release as {CONFIG_FILE}?"
        )


def _check_vocabulary(folder: Path, settings: XttsBundleSettings) -> None:
    try:
        tokenizer = XttsTokenizer.load(folder / VOCABULARY_FILE)
    except ValueError as error:
        raise InvalidXttsBundleError(str(error)) from error
    expected = settings.config.gpt.text_vocab_size
    if tokenizer.vocab_size != expected:
        raise InvalidXttsBundleError(
            f"{VOCABULARY_FILE}: {tokenizer.vocab_size:,} text ids, expected {expected:,} "
            f"(gpt_number_text_tokens of {CONFIG_FILE}); use the one of {MODEL_FILE}'s training"
        )
    if untagged := [code for code in settings.languages if not tokenizer.speaks(code)]:
        raise InvalidXttsBundleError(
            f"{VOCABULARY_FILE}: no tag for {', '.join(untagged)}; expected one for each language of "
            f"{CONFIG_FILE}"
        )
