"""The packaged voice: the bundle "default", which is installed as a package."""

from functools import partial
from pathlib import Path
from typing import Final

from ...models.onnx_providers import OnnxDevice
from ..backends.base import Backend
from ..backends.devices import load_on_device, require_onnx_device
from ..backends.voice_kind import LoadSettings, VoiceKind, require_default_networks
from ..voices.voices import Voice


def _load(settings: LoadSettings) -> Backend:
    require_default_networks(settings)
    load = partial(load_on_device, _load_on, require_onnx_device(settings.device))
    if settings.process is None:
        return load()
    from ..backends.process import ProcessBackend

    return ProcessBackend.start_backend(load, settings.process)


def _load_on(device: OnnxDevice) -> Backend:
    from .backend import HibariBackend

    return HibariBackend.load(device)


def _list_voices(_: Path) -> tuple[Voice, ...]:
    from .backend import VOICE

    return (VOICE,)


PACKAGED: Final = VoiceKind(
    name="packaged",
    looked_for="",
    matches=lambda bundle: bundle == "default",
    load=_load,
    list_voices=_list_voices,
    renders_in_child=True,
)
