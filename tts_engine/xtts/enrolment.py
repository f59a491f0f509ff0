"""Opens the encoders of an XTTS bundle without its language model and vocoder."""

from functools import partial
from pathlib import Path

from ...models.xtts.checkpoint.bundle import open_bundle
from ...models.xtts.networks import load_voice_encoder
from .bundle_voices import XttsVoices


def open_encoders(folder: Path) -> XttsVoices:
    """As ``Checkpoints.open_encoders``."""
    bundle = open_bundle(folder)
    settings = bundle.settings
    load_encoder = partial(load_voice_encoder, bundle)
    return XttsVoices({}, load_encoder, settings.conditioning, settings.languages)
