"""What speech looks like on the wire and on disk: G.711 in both laws, L16 and WAV, from and to s16le bytes.

Pure functions over bytes: who reads files or sockets is elsewhere. Not here: Opus and what else PyAV encodes.

Source: ITU-T G.711; RFC 3551 section 4.5.11 (L16); Multimedia Programming Interface 1.0 (RIFF WAVE).
"""

import audioop
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

_SAMPLE_BYTES: Final = 2  # bytes of a sample
_WAVE_FORMAT_PCM: Final = 1
_UNKNOWN_LENGTH: Final = (
    0xFFFFFFFF  # the length in a header written before the speech; players read to the end
)
_RIFF: Final = Struct("<4sI4s")
_CHUNK: Final = Struct("<4sI")
_FORMAT: Final = Struct("<HHIIHH")
_HEADER_BYTES: Final = _RIFF.size + _CHUNK.size + _FORMAT.size + _CHUNK.size


def require_whole_samples(pcm: bytes) -> bytes:
    """The same bytes; ValueError where the last 16-bit sample is cut."""
    if len(pcm) % _SAMPLE_BYTES:
        raise ValueError(f"got {len(pcm)} bytes of 16-bit samples; the number must be even")
    return pcm


def ulaw_encode(pcm: bytes) -> bytes:
    """s16le to G.711 µ-law, one byte a sample; ValueError for part of a sample."""
    return audioop.lin2ulaw(require_whole_samples(pcm), _SAMPLE_BYTES)


def ulaw_decode(payload: bytes) -> bytes:
    """G.711 µ-law to s16le."""
    return audioop.ulaw2lin(payload, _SAMPLE_BYTES)


def alaw_encode(pcm: bytes) -> bytes:
    """s16le to G.711 A-law, one byte a sample; ValueError for part of a sample."""
    return audioop.lin2alaw(require_whole_samples(pcm), _SAMPLE_BYTES)


def alaw_decode(payload: bytes) -> bytes:
    """G.711 A-law to s16le."""
    return audioop.alaw2lin(payload, _SAMPLE_BYTES)


def l16_encode(pcm: bytes) -> bytes:
    """s16le to L16, the same samples in network byte order; ValueError for part of a sample."""
    return audioop.byteswap(require_whole_samples(pcm), _SAMPLE_BYTES)


def l16_decode(payload: bytes) -> bytes:
    """L16 to s16le; ValueError for part of a sample."""
    return audioop.byteswap(require_whole_samples(payload), _SAMPLE_BYTES)


@dataclass(frozen=True, slots=True)
class WavAudio:
    """The speech of a WAV file: s16le mono at ``sample_rate`` Hz."""

    sample_rate: int
    pcm: bytes


def wav_file(pcm: bytes, sample_rate: int) -> bytes:
    """A whole WAV file of s16le mono; ValueError for part of a sample or more than 4 GiB."""
    return wav_header(sample_rate, len(require_whole_samples(pcm))) + pcm


def wav_header(sample_rate: int, pcm_bytes: int) -> bytes:
    """The 44 bytes before ``pcm_bytes`` of s16le mono; ValueError for more than 4 GiB."""
    max_bytes = _UNKNOWN_LENGTH - _HEADER_BYTES
    if not 0 <= pcm_bytes <= max_bytes:
        raise ValueError(f"got {pcm_bytes} bytes of speech; a WAV file holds 0 to {max_bytes}")
    return _header(sample_rate, pcm_bytes + _HEADER_BYTES - _CHUNK.size, pcm_bytes)


def wav_stream_header(sample_rate: int) -> bytes:
    """The 44 bytes before s16le mono of unknown length, for a pipe that cannot be rewound."""
    return _header(sample_rate, _UNKNOWN_LENGTH, _UNKNOWN_LENGTH)


def read_wav(data: bytes) -> WavAudio:
    """The speech of a WAV file; ValueError for what is no WAV, not PCM16, not mono or cut short."""
    if len(data) < _RIFF.size:
        raise ValueError(f"got {len(data)} bytes; a WAV file has at least {_HEADER_BYTES}")
    riff, _, wave = _RIFF.unpack_from(data)
    if (riff, wave) != (b"RIFF", b"WAVE"):
        raise ValueError(f"got a file that begins with {data[:12]!r}; a WAV file begins with RIFF....WAVE")
    sample_rate = 0
    for name, body in _chunks(data):
        if name == b"fmt ":
            sample_rate = _sample_rate(body)
        elif name == b"data" and sample_rate:
            return WavAudio(sample_rate, require_whole_samples(body))
    raise ValueError("got a WAV file without a fmt chunk and a data chunk behind it")


def _header(sample_rate: int, riff_bytes: int, pcm_bytes: int) -> bytes:
    return b"".join(
        (
            _RIFF.pack(b"RIFF", riff_bytes, b"WAVE"),
            _CHUNK.pack(b"fmt ", _FORMAT.size),
            _FORMAT.pack(
                _WAVE_FORMAT_PCM,
                1,
                sample_rate,
                sample_rate * _SAMPLE_BYTES,
                _SAMPLE_BYTES,
                8 * _SAMPLE_BYTES,
            ),
            _CHUNK.pack(b"data", pcm_bytes),
        )
    )


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    offset = _RIFF.size
    while offset + _CHUNK.size <= len(data):
        name, length = _CHUNK.unpack_from(data, offset)
        offset += _CHUNK.size
        if length == _UNKNOWN_LENGTH:
            length = len(data) - offset
        if offset + length > len(data):
            raise ValueError(
                f"got {len(data) - offset} of the {length} bytes of the WAV file's {name!r} chunk"
            )
        yield name, data[offset : offset + length]
        offset += length + length % 2  # chunks begin at even places


def _sample_rate(body: bytes) -> int:
    if len(body) < _FORMAT.size:
        raise ValueError(f"got a fmt chunk of {len(body)} bytes; it has at least {_FORMAT.size}")
    encoding, channels, sample_rate, _, _, bits = _FORMAT.unpack_from(body)
    if (encoding, channels, bits) != (_WAVE_FORMAT_PCM, 1, 8 * _SAMPLE_BYTES) or not sample_rate:
        raise ValueError(
            f"got format {encoding} with {channels} channels of {bits} bits at {sample_rate} Hz; "
            "only PCM (1), mono, 16 bits is read"
        )
    return int(sample_rate)
