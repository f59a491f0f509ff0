"""XTTS v2: a folder with ``config.json`` and ``model.pth`` or ``model.safetensors``."""

import importlib.util
from pathlib import Path
from typing import Final

from ..backends.base import Backend
from ..backends.voice_kind import LoadSettings, VoiceKind
from ..errors import BadRequest, MissingExtra
from .checkpoints import XttsCheckpoints


def _matches(bundle: str) -> bool:
    folder = Path(bundle)
    has_weights = any((folder / name).is_file() for name in ("model.pth", "model.safetensors"))
    return has_weights and (folder / "config.json").is_file()


def _load(settings: LoadSettings) -> Backend:
    if settings.executor not in ("auto", "torch"):
        raise BadRequest(f"executor is {settings.executor!r}; an XTTS bundle has torch only")
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra(f"the bundle {str(settings.folder)!r}", "cosyvoice")
    from .backend import XttsBackend
    from .policy import xtts_policy_for

    policy = xtts_policy_for(settings.device, settings.precision)
    return XttsBackend.load(settings.folder, policy, settings.voice_store)


XTTS: Final = VoiceKind(
    name="XTTS",
    looked_for="config.json with model.pth",
    matches=_matches,
    load=_load,
    checkpoints=XttsCheckpoints(),
)
