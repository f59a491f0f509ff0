"""The encoders of a bundle: loads them, and enrols a recording without loading the bundle's networks.

A server enrols through its engine's ``EnrollableVoices``; ``vivavoce voices`` enrols through ``enroll``.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from ...models.cosyvoice.front_end.voice_encoder import VoiceEncoder
from ...models.cosyvoice.front_end.voice_prompt import VoicePrompt, VoicePromptError
from ..bundles import bundle_errors
from ..errors import BadRequest
from .recording import Recording

if TYPE_CHECKING:
    from ...models.cosyvoice.checkpoint.bundle import CosyVoiceBundle


def load_voice_encoder(bundle: "CosyVoiceBundle") -> VoiceEncoder:
    """Load the speaker encoder and the speech tokenizer of a checked bundle, about 1 GB."""
    return VoiceEncoder.load(
        bundle.speaker_encoder,
        bundle.speech_tokenizer,
        bundle.version,
        bundle.yaml_config.mel_max_hz,
        bundle.network_config.lm.codebook_size,
    )


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
