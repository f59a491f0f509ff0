"""Detection of raw G.711 that is labelled as 16-bit audio, from the payload bytes.

Asterisk sends it for ``Dial(AudioSocket/...)`` without the option ``c(slin)`` on a G.711 call. As 16-bit
samples it is noise. Genuine 16-bit audio of a phone with 10 ms packets has messages of the same length.
"""

from enum import Enum
from typing import Final

import numpy as np

_SUSPECT_SAMPLE_RATE: Final = 8_000  # Hz
_SUSPECT_BYTES: Final = 160  # 20 ms at one byte a sample; as s16le it would be 10 ms
_DECISION_SCORE: Final = 5  # surplus of messages that look alike
_QUIET_LEVEL: Final = 256  # of 32,768; below, the high bytes of 16-bit samples are 0 or -1


class PayloadEncoding(Enum):
    """Encoding that the bytes of a message suggest."""

    LINEAR = "16-bit samples"
    COMPANDED = "one byte a sample, G.711"


def guess_encoding(payload: bytes) -> PayloadEncoding | None:
    """Distinguish G.711 from 16-bit audio; return None for near-silence, which may be either.

    In 16-bit audio the high bytes of neighbouring samples are alike and the low bytes are noise. In G.711
    every byte is a sample, so that bytes at odd and even offsets have the same statistics.
    """
    if payload == payload[:1] * len(payload):
        # Constant bytes are silence: 0x00 is linear or companded, 0xff, 0x7f, 0xd5 and 0x55 are companded.
        return None if payload[0] == 0 else PayloadEncoding.COMPANDED
    if np.abs(np.frombuffer(payload, "<i2").astype(np.int32)).max() < _QUIET_LEVEL:
        return None
    places = np.frombuffer(payload, np.int8).astype(np.int32).reshape(-1, 2)  # (samples, low and high byte)
    low, high = np.abs(np.diff(places, axis=0)).mean(axis=0)
    return PayloadEncoding.LINEAR if high < 0.6 * low else PayloadEncoding.COMPANDED


class G711Detector:
    """Decides the encoding of one call from its first audio messages."""

    def __init__(self) -> None:
        self._score = 0  # companded messages less linear ones

    def verdict(self, sample_rate: int, payload: bytes) -> PayloadEncoding | None:
        """Take a message; return the call's encoding once it is clear, and must not be called again then."""
        if sample_rate != _SUSPECT_SAMPLE_RATE or len(payload) != _SUSPECT_BYTES:
            return PayloadEncoding.LINEAR
        match guess_encoding(payload):
            case PayloadEncoding.COMPANDED:
                self._score += 1
            case PayloadEncoding.LINEAR:
                self._score -= 1
        if abs(self._score) < _DECISION_SCORE:
            return None
        return PayloadEncoding.COMPANDED if self._score > 0 else PayloadEncoding.LINEAR
