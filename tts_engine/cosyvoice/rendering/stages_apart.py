"""Loads the stages of a bundle apart: ids are decoded in one process and rendered in others."""

from pathlib import Path
from typing import TYPE_CHECKING

from ...backends.base import Backend
from ...backends.kinds import find_kind
from ...backends.voice_kind import LoadSettings
from ...errors import BadRequest
from ..kind import COSYVOICE, require_policy

if TYPE_CHECKING:
    from ..policy import CosyVoicePolicy
    from .render_host import RenderHost
    from .render_stage import RenderStage


def load_decode_backend(
    bundle: str, precision: str, device: str, executor: str, render_stage: "RenderStage"
) -> Backend:
    """Load a bundle without its render stage. Raises as ``load_backend``."""
    policy = _policy_of(bundle, precision, device, executor)
    from ..backend import CosyVoiceBackend

    return CosyVoiceBackend.load_decoder(Path(bundle), policy, render_stage)


def load_render_stage(
    bundle: str, precision: str, device: str, executor: str, replica: str, bundle_digest: str
) -> "RenderHost":
    """Load the render stage of a bundle only. Raises as ``load_backend``.

    replica: its id. bundle_digest: equal digests render equally.
    """
    policy = _policy_of(bundle, precision, device, executor)
    from ..loading import load_render_host

    return load_render_host(Path(bundle), policy, replica, bundle_digest)


def _policy_of(bundle: str, precision: str, device: str, executor: str) -> "CosyVoicePolicy":
    if find_kind(bundle) is not COSYVOICE:
        raise BadRequest(f"{bundle}: only the stages of a CosyVoice bundle can be apart")
    return require_policy(LoadSettings(Path(bundle), None, precision, device, executor))
