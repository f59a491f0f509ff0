"""Deepgram's encodings and containers in terms of the encoders.

encoding                container           sample rate
linear16, mulaw, alaw   WAV, or none        8,000 to 48,000 Hz
opus                    Ogg                 48,000 Hz
mp3, flac, aac          their own           MP3 and AAC: 22,050 Hz
"""

from dataclasses import dataclass
from typing import Final

from .....adapters.audio.encoders import AudioFormat, Codec
from .....adapters.audio.pcm import WAV_ALAW, WAV_S16, WAV_ULAW, WavEncoding, wav_stream_header
from ...kits.error_table import InvalidField
from .models import DeepgramQuery

_SAMPLES: Final[dict[str, tuple[Codec, WavEncoding, int]]] = {  # with the default sample rate, Hz
    "linear16": ("pcm", WAV_S16, 24_000),
    "mulaw": ("ulaw", WAV_ULAW, 8_000),
    "alaw": ("alaw", WAV_ALAW, 8_000),
}
_COMPRESSED: Final[dict[str, tuple[Codec, int, int | None]]] = {  # default sample rate, bit rate
    "mp3": ("mp3", 22_050, 48_000),
    "opus": ("opus", 48_000, 24_000),
    "flac": ("flac", 24_000, None),
    "aac": ("aac", 22_050, 48_000),
}


@dataclass(frozen=True, slots=True)
class DeepgramEncoding:
    """How the bytes of a response are made."""

    audio: AudioFormat
    content_type: str
    header: bytes = b""  # before the first audio


def make_response_encoding(query: DeepgramQuery) -> DeepgramEncoding:
    """Return the encoding of a response; raises InvalidField, BadRequest for a wrong rate."""
    encoding = query.encoding or ("mp3" if query.container is None else "linear16")
    if encoding in _COMPRESSED:
        if query.container is not None and (encoding, query.container) != ("opus", "ogg"):
            raise InvalidField("container", f"{encoding} has none of {query.container!r}")
        codec, rate, bit_rate = _COMPRESSED[encoding]
        audio = AudioFormat(codec, query.sample_rate or rate, query.bit_rate or bit_rate)
        return DeepgramEncoding(audio, audio.content_type)
    if query.container == "ogg":
        raise InvalidField("container", f"{encoding} cannot be in 'ogg'")
    audio = make_socket_format(query)
    if query.container == "none":
        return DeepgramEncoding(audio, audio.content_type)
    header = wav_stream_header(audio.sample_rate, _SAMPLES[encoding][1])
    return DeepgramEncoding(audio, "audio/wav", header)


def make_socket_format(query: DeepgramQuery) -> AudioFormat:
    """Return the format of a socket; raises InvalidField, BadRequest for an unsupported rate."""
    encoding = query.encoding or "linear16"
    if encoding not in _SAMPLES:
        raise InvalidField("encoding", f"got {encoding!r}; a socket sends {', '.join(_SAMPLES)}")
    codec, _, rate = _SAMPLES[encoding]
    return AudioFormat(codec, query.sample_rate or rate)
