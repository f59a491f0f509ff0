"""Samples of 16 bits (s16le), and headers of the WAV files that hold them.

Pure functions over bytes; they read no files and no sockets.

Source: Multimedia Programming Interface 1.0 (RIFF WAVE); RFC 2361 (format tags).
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final

SAMPLE_BYTES: Final = 2
# Length field of a header that is written before the speech; players read to the end of the stream.
_UNKNOWN_LENGTH: Final = 0xFFFFFFFF
_RIFF: Final = Struct("<4sI4s")  # "RIFF", bytes that follow, "WAVE"
_CHUNK: Final = Struct("<4sI")  # name, bytes that follow
_FORMAT: Final = Struct("<HHIIHH")  # format, channels, samples/s, bytes/s, bytes/sample, bits/sample
WAV_HEADER_BYTES: Final = _RIFF.size + _CHUNK.size + _FORMAT.size + _CHUNK.size


@dataclass(frozen=True, slots=True)
class WavEncoding:
    """How a WAV file holds a sample."""

    format_tag: int
    sample_bytes: int


WAV_S16: Final = WavEncoding(0x0001, SAMPLE_BYTES)  # little-endian, as all others
WAV_FLOAT32: Final = WavEncoding(0x0003, 4)
WAV_ALAW: Final = WavEncoding(0x0006, 1)
WAV_ULAW: Final = WavEncoding(0x0007, 1)


def require_whole_samples(pcm: bytes) -> bytes:
    """Return ``pcm`` unchanged; raises ValueError if its length is odd."""
    if len(pcm) % SAMPLE_BYTES:
        raise ValueError(f"got {len(pcm)} bytes of 16-bit samples; the number must be even")
    return pcm


def wav_file(pcm: bytes, sample_rate: int) -> bytes:
    """Return a complete WAV file; raises ValueError for an odd number of bytes or more than 4 GiB."""
    return wav_header(sample_rate, len(require_whole_samples(pcm))) + pcm


def wav_header(sample_rate: int, pcm_bytes: int, channels: int = 1) -> bytes:
    """Return the 44-byte header of ``pcm_bytes`` bytes of s16le; raises ValueError above 4 GiB."""
    max_bytes = _UNKNOWN_LENGTH - WAV_HEADER_BYTES
    if not 0 <= pcm_bytes <= max_bytes:
        raise ValueError(f"got {pcm_bytes} bytes of speech; a WAV file holds 0 to {max_bytes}")
    return _header(sample_rate, pcm_bytes + WAV_HEADER_BYTES - _CHUNK.size, pcm_bytes, channels=channels)


def wav_stream_header(sample_rate: int, encoding: WavEncoding = WAV_S16) -> bytes:
    """Return the 44-byte header of mono sound of unknown length, for output that cannot seek."""
    return _header(sample_rate, _UNKNOWN_LENGTH, _UNKNOWN_LENGTH, encoding)


def _header(
    sample_rate: int, riff_bytes: int, data_bytes: int, encoding: WavEncoding = WAV_S16, channels: int = 1
) -> bytes:
    return b"".join(
        (
            _RIFF.pack(b"RIFF", riff_bytes, b"WAVE"),
            _CHUNK.pack(b"fmt ", _FORMAT.size),
            _FORMAT.pack(
                encoding.format_tag,
                channels,
                sample_rate,
                sample_rate * channels * encoding.sample_bytes,
                channels * encoding.sample_bytes,
                8 * encoding.sample_bytes,
            ),
            _CHUNK.pack(b"data", data_bytes),
        )
    )
