"""Formats of the audio on a media stream: how s16le samples become its bytes, and back.

G.711 is computed from the samples that the resampler returns; nothing lies between. Rates other than 8, 16
and 24 kHz go through a resampler that works in blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..audio.line_codecs import line_codec


def _same(pcm: bytes) -> bytes:
    return pcm


@dataclass(frozen=True, slots=True)
class StreamFormat:
    """An encoding and a rate."""

    name: str  # for error messages and lists
    sample_rate: int  # Hz
    sample_bytes: int
    encode: Callable[[bytes], bytes] = _same  # from s16le
    decode: Callable[[bytes], bytes] = _same  # to s16le

    @property
    def bytes_per_ms(self) -> int:
        """Bytes of a millisecond; all rates are whole kHz."""
        return self.sample_bytes * self.sample_rate // 1000


def _g711(name: str) -> StreamFormat:
    codec = line_codec(name)
    return StreamFormat(name, 8_000, codec.sample_bytes, codec.encode, codec.decode)


ULAW: Final = _g711("ulaw")
ALAW: Final = _g711("alaw")


def linear(sample_rate: int) -> StreamFormat:
    """Return the format of s16le at a rate that is a whole number of kHz."""
    return StreamFormat(f"s16le at {sample_rate} Hz", sample_rate, 2)
