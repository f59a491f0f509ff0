"""The encoders of a CosyVoice bundle: loads them, and opens them without its networks."""

import functools
import hashlib
import json
from pathlib import Path

from ...models.cosyvoice.checkpoint.bundle import CosyVoiceBundle, open_bundle
from ...models.cosyvoice.front_end.voice_encoder import VoiceEncoder
from .bundle_voices import BundleVoices

_ENCODER_VERSION = 1  # of this program's part of the encoding; to be raised with every change of its result


def load_voice_encoder(bundle: CosyVoiceBundle) -> VoiceEncoder:
    """Load the speaker encoder and the speech tokenizer of a checked bundle, about 1 GB."""
    return VoiceEncoder.load(
        bundle.speaker_encoder,
        bundle.speech_tokenizer,
        bundle.version,
        bundle.yaml_config.mel_max_hz,
        bundle.network_config.lm.codebook_size,
    )


def digest_voice_encoder(bundle: CosyVoiceBundle) -> str:
    """SHA-256 of everything that decides how a recording is encoded, in hexadecimal. Takes about a second."""
    about = [_ENCODER_VERSION, bundle.version.value, bundle.yaml_config.mel_max_hz]
    digest = hashlib.sha256(json.dumps(about).encode())
    for path in (bundle.speaker_encoder, bundle.speech_tokenizer):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def open_encoders(folder: Path) -> BundleVoices:
    """As ``bundles.open_encoders``."""
    bundle = open_bundle(folder)
    return BundleVoices(
        {},
        functools.partial(load_voice_encoder, bundle),
        bundle.languages,
        digest_encoders=functools.partial(digest_voice_encoder, bundle),
        version=bundle.version,
    )
