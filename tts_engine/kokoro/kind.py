"""Kokoro: a folder with the graph ``kokoro*.onnx`` and the voices ``voices*.bin``."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from ...models.phonemes.english_ipa import EnglishPhonemizer
from ..backends.base import Backend
from ..backends.voice_kind import LoadSettings, VoiceKind
from ..voice_kit.loading import load_on_device, require_default_networks, require_onnx_device
from ..voices.voices import Voice


def _matches(bundle: str) -> bool:
    folder = Path(bundle)
    has_graph_and_voices = any(folder.glob("voices*.bin")) and any(folder.glob("*.onnx"))
    return any(folder.glob("kokoro*.onnx")) or has_graph_and_voices


def _load(load_english: Callable[[], EnglishPhonemizer], settings: LoadSettings) -> Backend:
    require_default_networks(settings)
    device = require_onnx_device(settings.device)
    from .backend import load_kokoro

    load = partial(load_kokoro, settings.folder, load_english, kept_speech=settings.kept_speech)
    return load_on_device(load, device)


def _list_voices(folder: Path) -> tuple[Voice, ...]:
    from .backend import list_kokoro_voices

    return list_kokoro_voices(folder)


def kokoro_kind(load_english: Callable[[], EnglishPhonemizer]) -> VoiceKind:
    """The kind; load_english: loads what reads English in Kokoro's alphabet."""
    load = partial(_load, load_english)
    return VoiceKind("Kokoro", "kokoro*.onnx", _matches, load, _list_voices, keeps_speech=True)
