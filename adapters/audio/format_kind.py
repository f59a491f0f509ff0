"""The records of an audio format in which clients get speech, and of a codec of the packets of calls.

``encoders.AUDIO_FORMATS`` and ``line_codecs.LINE_CODECS`` list them. What a protocol calls a codec, and its
rates there, is its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class AudioLayout(Enum):
    """When an encoder gives out its bytes, and what headers say about the length."""

    STREAM = "stream"  # as soon as they are encoded; the length is unknown
    FILE = "file"  # WAV, FLAC and MP3 all at the end, with the length in the header; others as in a stream


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """Settings of one encoder, within the limits of its format."""

    sample_rate: int  # Hz
    bits_per_second: int  # of a lossy format
    layout: AudioLayout


class Encoder(Protocol):
    """Encoder of one utterance: 24 kHz s16le mono in, encoded bytes out. Not thread-safe."""

    def push(self, pcm: bytes) -> bytes:
        """Encode ``pcm`` and return the bytes that are ready; raises ValueError for an odd length."""

    def finish(self) -> bytes:
        """Return the remaining bytes; ``push`` must not be called afterwards."""

    def close(self) -> None:
        """Free the memory of an encoder that is not finished. A second call, or one after it, does nothing.

        FFmpeg's objects refer to each other: 7 MB would stay until the garbage collector comes to them.
        """


@dataclass(frozen=True, slots=True)
class BitRates:
    """Bit rates of a lossy format, bits/s."""

    limits: Callable[[int], tuple[int, int]]  # the lowest and the highest one at a sample rate in Hz
    of_speech: int  # without another wish; lowered to the highest one


@dataclass(frozen=True, slots=True)
class FormatKind:
    """An audio format."""

    name: str
    media_type: str  # "{rate}" in it is the sample rate
    open: Callable[[EncoderSettings], Encoder]
    sample_bytes: int = 2  # of a format without bit rates; ignores the savings of FLAC
    bit_rates: BitRates | None = None  # None: it is lossless, or has one byte a sample
    is_cpu_intensive: bool = False  # a second of speech takes milliseconds


class LineCodecState(Protocol):
    """Encoder and decoder of one call."""

    def encode(self, pcm: bytes) -> bytes:
        """Return the payload of 20 ms of s16le."""

    def decode(self, payload: bytes) -> bytes:
        """Return s16le; b"" for a payload that cannot be decoded."""


def needs_state(audio: bytes) -> bytes:
    """Raise TypeError: the packets of this codec depend on those before."""
    raise TypeError("this encoding has a state for each call: make_state makes it")


@dataclass(frozen=True, slots=True)
class LineCodec:
    """A codec of calls. ``name`` is Asterisk's name of the format at 8 kHz."""

    name: str
    sample_bytes: int  # encoded; 0: less than one, or not the same for all
    encode: Callable[[bytes], bytes] = needs_state  # from s16le
    decode: Callable[[bytes], bytes] = needs_state  # to s16le
    make_state: Callable[[int], LineCodecState] | None = None  # for a call, by its sample rate in Hz
