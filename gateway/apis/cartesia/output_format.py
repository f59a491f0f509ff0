"""Cartesia's output formats in terms of the encoders: G.711 and 32-bit floating point, raw or as WAV."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from ....adapters.audio.encoders import AudioFormat, Codec
from .errors import InvalidCartesiaRequest
from .models import CartesiaOutputFormat

_SAMPLE_RATES: Final = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)  # Hz
# Encoder, format tag (RFC 2361) and bytes of a sample by encoding.
_ENCODINGS: Final[dict[str, tuple[Codec, int, int]]] = {
    "pcm_s16le": ("pcm", 0x0001, 2),
    "pcm_f32le": ("pcm", 0x0003, 4),
    "pcm_alaw": ("alaw", 0x0006, 1),
    "pcm_mulaw": ("ulaw", 0x0007, 1),
}
_UNKNOWN_LENGTH: Final = 0xFFFF_FFFF  # of a stream; readers then read to its end


@dataclass(frozen=True, slots=True)
class CartesiaEncoding:
    """How the bytes of a response are made."""

    audio: AudioFormat  # of the encoder
    content_type: str
    bytes_per_s: int
    header: bytes = b""  # before the first audio
    convert: Callable[[bytes], bytes] = bytes  # from the encoder's bytes


def make_encoding(output: CartesiaOutputFormat) -> CartesiaEncoding:
    """Return the encoding; raises InvalidCartesiaRequest, or BadRequest for an unsupported bit rate."""
    rate = output.sample_rate
    if rate not in _SAMPLE_RATES:
        allowed = ", ".join(map(str, _SAMPLE_RATES))
        raise InvalidCartesiaRequest(f"output_format.sample_rate: got {rate}; allowed are {allowed}")
    if output.container == "mp3":
        audio = AudioFormat("mp3", rate, output.bit_rate)
        return CartesiaEncoding(audio, audio.content_type, audio.bytes_per_second)
    if output.encoding is None:
        raise InvalidCartesiaRequest(f"output_format.encoding: container {output.container!r} needs one")
    codec, format_tag, sample_bytes = _ENCODINGS[output.encoding]
    is_wav = output.container == "wav"
    return CartesiaEncoding(
        audio=AudioFormat(codec, rate),
        content_type="audio/wav" if is_wav else "application/octet-stream",
        bytes_per_s=sample_bytes * rate,
        header=_wav_header(format_tag, rate, sample_bytes) if is_wav else b"",
        convert=_to_float32 if output.encoding == "pcm_f32le" else bytes,
    )


def _to_float32(pcm: bytes) -> bytes:
    """Convert s16le to little-endian float32 in [-1, 1)."""
    return (np.frombuffer(pcm, "<i2") / np.float32(32_768)).astype("<f4").tobytes()


def _wav_header(format_tag: int, sample_rate: int, sample_bytes: int) -> bytes:
    """Return the header of a mono stream of unknown length."""
    bytes_per_s, sample_bits = sample_bytes * sample_rate, 8 * sample_bytes
    fields = struct.pack("<HHIIHH", format_tag, 1, sample_rate, bytes_per_s, sample_bytes, sample_bits)
    return b"".join(
        (
            struct.pack("<4sI4s", b"RIFF", _UNKNOWN_LENGTH, b"WAVE"),
            struct.pack("<4sI", b"fmt ", len(fields)) + fields,
            struct.pack("<4sI", b"data", _UNKNOWN_LENGTH),
        )
    )
