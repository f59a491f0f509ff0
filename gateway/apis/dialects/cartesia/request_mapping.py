"""Cartesia's names, fields and output formats in terms of the engine."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from .....adapters.audio.encoders import AudioFormat, Codec
from .....adapters.audio.pcm import WAV_ALAW, WAV_FLOAT32, WAV_S16, WAV_ULAW, WavEncoding, wav_stream_header
from .....tts_engine.stream_request import Delivery
from ...kits.error_table import InvalidField
from ...kits.service_names import ServiceNames
from ...shell.speech import SynthesisOptions
from .models import CartesiaGenerationConfig, CartesiaOutputFormat, CartesiaSpeechRequest
from .transcript_tags import TranscriptTags

_SAMPLE_RATES: Final = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)  # Hz
_ENCODINGS: Final[dict[str, tuple[Codec, WavEncoding]]] = {
    "pcm_s16le": ("pcm", WAV_S16),
    "pcm_f32le": ("pcm", WAV_FLOAT32),
    "pcm_alaw": ("alaw", WAV_ALAW),
    "pcm_mulaw": ("ulaw", WAV_ULAW),
}


@dataclass(frozen=True, slots=True)
class CartesiaEncoding:
    """How the bytes of a response are made."""

    audio: AudioFormat  # of the encoder
    content_type: str
    bytes_per_s: int
    header: bytes = b""  # before the first audio
    convert: Callable[[bytes], bytes] = bytes  # from the encoder's bytes


def make_encoding(output: CartesiaOutputFormat) -> CartesiaEncoding:
    """Return the encoding; raises InvalidField, or BadRequest for an unsupported bit rate."""
    rate = output.sample_rate
    if rate not in _SAMPLE_RATES:
        allowed = ", ".join(map(str, _SAMPLE_RATES))
        raise InvalidField("output_format.sample_rate", f"got {rate}; allowed are {allowed}")
    if output.container == "mp3":
        audio = AudioFormat("mp3", rate, output.bit_rate)
        return CartesiaEncoding(audio, audio.content_type, audio.bytes_per_second)
    if output.encoding is None:
        raise InvalidField("output_format.encoding", f"container {output.container!r} needs one")
    codec, samples = _ENCODINGS[output.encoding]
    is_wav = output.container == "wav"
    return CartesiaEncoding(
        audio=AudioFormat(codec, rate),
        content_type="audio/wav" if is_wav else "application/octet-stream",
        bytes_per_s=samples.sample_bytes * rate,
        header=wav_stream_header(rate, samples) if is_wav else b"",
        convert=_to_float32 if output.encoding == "pcm_f32le" else bytes,
    )


def _to_float32(pcm: bytes) -> bytes:
    """Convert s16le to little-endian float32 in [-1, 1)."""
    return (np.frombuffer(pcm, "<i2") / np.float32(32_768)).astype("<f4").tobytes()


CARTESIA_NAMES: Final = ServiceNames(
    voices=re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE),
)
_NAMED_SPEEDS: Final = {"slow": 0.8, "normal": 1.0, "fast": 1.2}


def make_synthesis_options(
    request: CartesiaSpeechRequest, voice: str, encoding: CartesiaEncoding
) -> SynthesisOptions:
    """Return the options of an utterance; raises BadRequest."""
    config = request.generation_config or CartesiaGenerationConfig()
    # A number is of the API's older form, -1 to 1, whose meaning was never defined.
    named_speed = _NAMED_SPEEDS.get(request.speed, 1.0) if isinstance(request.speed, str) else 1.0
    speed = config.speed * named_speed
    return SynthesisOptions(
        voice=voice,
        audio=encoding.audio,
        speed=speed,
        volume=config.volume,
        delivery=Delivery(language=request.locale or request.language),
        text_tags=TranscriptTags(speed, config.volume),
        lexicon_names=(request.pronunciation_dict_id,) if request.pronunciation_dict_id else (),
    )
