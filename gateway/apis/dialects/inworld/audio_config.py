"""Inworld's audio encodings in terms of the encoders.

LINEAR16 has a WAV header in every piece, as the service's clients expect; WAV in the first of an utterance,
and PCM, MULAW and ALAW have none.

Source: inworld-ai/inworld-api-examples, issue 21 (the header of every piece).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .....adapters.audio.encoders import AudioFormat, Codec
from .....adapters.audio.format_kind import AudioLayout
from .....adapters.audio.pcm import wav_file
from .models import InworldAudioConfig

_CODECS: Final[Mapping[str, Codec]] = {
    "AUDIO_ENCODING_UNSPECIFIED": "mp3",
    "MP3": "mp3",
    "LINEAR16": "pcm",
    "PCM": "pcm",
    "WAV": "wav",
    "OGG_OPUS": "opus",
    "FLAC": "flac",
    "ALAW": "alaw",
    "MULAW": "ulaw",
}


@dataclass(frozen=True, slots=True)
class InworldEncoding:
    """How the pieces of an utterance are made."""

    audio: AudioFormat  # of the encoder
    has_wav_pieces: bool = False  # whether each piece is a WAV file

    def wrap(self, piece: bytes) -> bytes:
        """Return a piece of the encoder's bytes as it is sent."""
        return wav_file(piece, self.audio.sample_rate) if self.has_wav_pieces and piece else piece


def streamed_encoding(config: InworldAudioConfig) -> InworldEncoding:
    """Return the encoding of speech that is sent while it is made; raises BadRequest."""
    audio = AudioFormat(_CODECS[config.audio_encoding], config.sample_rate_hertz, config.bit_rate)
    return InworldEncoding(audio, config.audio_encoding == "LINEAR16")


def file_format(config: InworldAudioConfig) -> AudioFormat:
    """Return the format of speech that is sent as a whole; raises BadRequest."""
    codec: Codec = "wav" if config.audio_encoding == "LINEAR16" else _CODECS[config.audio_encoding]
    return AudioFormat(codec, config.sample_rate_hertz, config.bit_rate, AudioLayout.FILE)
