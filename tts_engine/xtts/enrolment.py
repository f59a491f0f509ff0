"""Makes a voice of recordings with a bundle of XTTS, without keeping its language model and vocoder."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ...models.xtts.checkpoint.bundle import open_bundle
from ...models.xtts.checkpoint.voice_prompt import XttsVoicePrompt
from ...models.xtts.networks import load_voice_encoder
from ..voices.recording import Recording
from .bundle_voices import XttsVoices


def enroll(folder: Path, recordings: Sequence[Recording], transcript: str = "") -> XttsVoicePrompt:
    """Encode the recordings of a voice; errors as ``bundles.enroll``."""
    bundle = open_bundle(folder)
    settings = bundle.settings
    load_encoder = partial(load_voice_encoder, bundle)
    voices = XttsVoices({}, load_encoder, settings.conditioning, settings.languages)
    return voices.encode_recordings(recordings, transcript)
