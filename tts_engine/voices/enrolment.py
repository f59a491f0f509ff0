"""A voice made from a recording with a bundle that is not loaded to speak: its encoders alone.

Where the bundle speaks as well, its ``Voices`` enrol.
"""

from pathlib import Path

from ...models.cosyvoice.front_end.voice_encoder import VoiceEncoder, VoicePrompt, VoicePromptError
from ..bundles import bundle_errors
from ..errors import BadRequest
from .recording import Recording


def enroll(bundle: Path, recording: Recording, transcript: str = "") -> VoicePrompt:
    """Make a recording a prompt for the bundle in a folder; takes seconds.

    Raises BundleError for the folder, BadRequest for the recording, MissingExtra without torch.
    """
    with bundle_errors():
        from ...models.cosyvoice.checkpoint.bundle import open_bundle

        checked = open_bundle(bundle)
        encoder = VoiceEncoder.load(
            checked.speaker_encoder,
            checked.speech_tokenizer,
            checked.version,
            checked.yaml_config.mel_max_hz,
            checked.network_config.lm.codebook_size,
        )
    try:
        return encoder.enroll(recording.samples, recording.sample_rate, transcript)
    except VoicePromptError as fault:
        raise BadRequest(str(fault)) from fault
