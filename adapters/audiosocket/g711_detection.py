"""Detection of raw G.711 that is labelled as 16-bit audio, from the payloads and their rate.

Asterisk sends it for ``Dial(AudioSocket/...)`` without the option ``c(slin)`` on a G.711 call. As 16-bit
samples it is noise. The length of a message does not tell: 160 bytes are 20 ms of G.711 and 10 ms of 16-bit
audio. G.711 has 8,000 bytes a second, 16-bit audio 16,000; the bytes alone could be those of loud noise.
"""

from enum import Enum
from typing import Final

import numpy as np

_SUSPECT_SAMPLE_RATE: Final = 8_000  # Hz
_MAX_BYTES_PER_S: Final = 12_000  # halfway between the two encodings
_MAX_GAP_S: Final = 0.1  # between packets of 60 ms; a longer gap is a pause of the phone and is not measured
_COMPANDED_MEASURED_S: Final = 0.3  # in shorter times, jitter could halve the rate
_LINEAR_MEASURED_S: Final = 2.0  # a burst after a stall of the network could double it; decides on silence
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
        self._last_at: float | None = None  # monotonic seconds
        self._measured_s = 0.0
        self._measured_bytes = 0

    def verdict(self, sample_rate: int, payload: bytes, now: float) -> PayloadEncoding | None:
        """Take a message received at ``now`` (monotonic s); return the call's encoding once it is clear.

        It must not be called again then.
        """
        if sample_rate != _SUSPECT_SAMPLE_RATE:
            return PayloadEncoding.LINEAR
        self._measure_rate(len(payload), now)
        match guess_encoding(payload):
            case PayloadEncoding.COMPANDED:
                self._score = min(self._score + 1, _DECISION_SCORE)
            case PayloadEncoding.LINEAR:
                self._score -= 1
        is_slow = self._measured_bytes < _MAX_BYTES_PER_S * self._measured_s
        if self._score <= -_DECISION_SCORE or (self._measured_s >= _LINEAR_MEASURED_S and not is_slow):
            return PayloadEncoding.LINEAR
        if self._score == _DECISION_SCORE and self._measured_s >= _COMPANDED_MEASURED_S and is_slow:
            return PayloadEncoding.COMPANDED
        return None

    def _measure_rate(self, size: int, now: float) -> None:
        if self._last_at is not None and now - self._last_at <= _MAX_GAP_S:
            self._measured_s += now - self._last_at
            self._measured_bytes += size
        self._last_at = now
