"""The record of a codec of calls: s16le to the payload of a packet, and back.

``line_codecs.LINE_CODECS`` lists the codecs. What a protocol calls them, and their rates there, is its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


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
