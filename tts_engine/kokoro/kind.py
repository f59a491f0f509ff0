"""Kokoro: a folder with the graph ``kokoro*.onnx`` and the voices ``voices*.bin``."""

from functools import partial
from pathlib import Path
from typing import Final

from ..backends.base import Backend
from ..backends.devices import load_on_device, require_onnx_device
from ..backends.voice_kind import LoadSettings, VoiceKind, require_default_networks
from ..voices.voices import Voice


def _matches(bundle: str) -> bool:
    folder = Path(bundle)
    has_graph_and_voices = any(folder.glob("voices*.bin")) and any(folder.glob("*.onnx"))
    return any(folder.glob("kokoro*.onnx")) or has_graph_and_voices


def _load(settings: LoadSettings) -> Backend:
    require_default_networks(settings)
    device = require_onnx_device(settings.device)
    from .backend import load_kokoro

    return load_on_device(partial(load_kokoro, settings.folder), device)


def _list_voices(folder: Path) -> tuple[Voice, ...]:
    from .backend import list_kokoro_voices

    return list_kokoro_voices(folder)


KOKORO: Final = VoiceKind("Kokoro", "kokoro*.onnx", _matches, _load, _list_voices)
