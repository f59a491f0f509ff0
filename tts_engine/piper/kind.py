"""Piper: a folder of voices, each a ``NAME.onnx`` with its ``NAME.onnx.json``."""

from functools import partial
from pathlib import Path
from typing import Final

from ..backends.base import Backend
from ..backends.voice_kind import LoadSettings, VoiceKind
from ..voice_kit.loading import load_on_device, require_default_networks, require_onnx_device
from ..voices.voices import Voice


def _matches(bundle: str) -> bool:
    return any(Path(bundle).glob("*.onnx.json"))


def _load(settings: LoadSettings) -> Backend:
    require_default_networks(settings)
    device = require_onnx_device(settings.device)
    from .backend import load_piper

    return load_on_device(partial(load_piper, settings.folder, kept_speech=settings.kept_speech), device)


def _list_voices(folder: Path) -> tuple[Voice, ...]:
    from .backend import list_piper_voices

    return list_piper_voices(folder)


PIPER: Final = VoiceKind("Piper", "*.onnx.json", _matches, _load, _list_voices, keeps_speech=True)
