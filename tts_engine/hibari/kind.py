"""The packaged voice: the bundle "default", which is installed as a package."""

from functools import partial
from pathlib import Path
from typing import Final

from ...models.devices.onnx_providers import OnnxDevice
from ...models.phonemes.english_ipa import EnglishPhonemizer
from ..backends.base import Backend
from ..backends.hosted_backend import BackendParts, host_backend
from ..backends.voice_kind import KeptSpeechConfig, LoadSettings, VoiceKind
from ..voice_kit.loading import load_on_device, require_default_networks, require_onnx_device
from ..voices.voices import Voice


def _load(settings: LoadSettings) -> Backend:
    return _loader(settings)()


def _parts(settings: LoadSettings) -> BackendParts:
    return BackendParts(partial(host_backend, _loader(settings)))


def _loader(settings: LoadSettings) -> "partial[Backend]":
    require_default_networks(settings)
    return partial(
        load_on_device,
        partial(_load_on, kept_speech=settings.kept_speech),
        require_onnx_device(settings.device),
    )


def _load_on(device: OnnxDevice, kept_speech: KeptSpeechConfig) -> Backend:
    from .backend import HibariBackend

    return HibariBackend.load(device, kept_speech)


def load_phonemizer() -> EnglishPhonemizer:
    """Load what reads English words. Raises HibariGraphMismatchError for another version of the package."""
    from ...models.hibari.phonemizer import Phonemizer

    return Phonemizer.load()


def _list_voices(_: Path) -> tuple[Voice, ...]:
    from .backend import VOICE

    return (VOICE,)


PACKAGED: Final = VoiceKind(
    name="packaged",
    looked_for="",
    matches=lambda bundle: bundle == "default",
    load=_load,
    list_voices=_list_voices,
    parts=_parts,
    keeps_speech=True,
)
