"""The encoders of a bundle: loads them, and enrols a recording without loading the bundle's networks.

A server enrols through its engine's ``EnrollableVoices``; ``vivavoce voices`` enrols through ``enroll``.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ...models.cosyvoice.front_end.voice_encoder import VoiceEncoder
from ...models.cosyvoice.front_end.voice_prompt import VoicePrompt, VoicePromptError
from ..bundles import bundle_errors
from ..errors import BadRequest
from .recording import Recording

if TYPE_CHECKING:
    from ...models.cosyvoice.checkpoint.bundle import CosyVoiceBundle

_ENCODER_VERSION = 1  # of this program's part of the encoding; to be raised with every change of its result


def load_voice_encoder(bundle: "CosyVoiceBundle") -> VoiceEncoder:
    """Load the speaker encoder and the speech tokenizer of a checked bundle, about 1 GB."""
    return VoiceEncoder.load(
        bundle.speaker_encoder,
        bundle.speech_tokenizer,
        bundle.version,
        bundle.yaml_config.mel_max_hz,
        bundle.network_config.lm.codebook_size,
    )


def digest_voice_encoder(bundle: "CosyVoiceBundle") -> str:
    """SHA-256 of everything that decides how a recording is encoded, in hexadecimal. Takes about a second."""
    about = [_ENCODER_VERSION, bundle.version.value, bundle.yaml_config.mel_max_hz]
    digest = hashlib.sha256(json.dumps(about).encode())
    for path in (bundle.speaker_encoder, bundle.speech_tokenizer):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def enroll(folder: Path, recording: Recording, transcript: str = "") -> VoicePrompt:
    """Encode a recording with the bundle in a folder; takes seconds.

    Raises BundleError for the folder, BadRequest for the recording, MissingExtra without torch.
    """
    with bundle_errors():
        from ...models.cosyvoice.checkpoint.bundle import open_bundle

        encoder = load_voice_encoder(open_bundle(folder))
    try:
        return encoder.enroll(recording.samples, recording.sample_rate, transcript)
    except VoicePromptError as fault:
        raise BadRequest(str(fault)) from fault
