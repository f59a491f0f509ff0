"""Audio encodings of RTP calls: u-law, A-law, linear samples in network order, G.722 and Opus.

The static numbers are those of RFC 3551; those of linear audio at other rates are the defaults of Asterisk,
which sends them without a description of the session.

Source: RFC 3551, 4.5.11, 4.5.14 and table 4; main/rtp_engine.c of Asterisk 23 (payload types 11 and 118).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Self

from ..audio.format_kind import LineCodecState
from ..audio.line_codecs import line_codec

COMFORT_NOISE: Final = 13  # payload type of RFC 3389: the caller is silent
TELEPHONE_EVENT: Final = 101  # the usual dynamic type of keys, also in Asterisk


@dataclass(frozen=True, slots=True)
class RtpCodec:
    """One encoding. ``name`` is Asterisk's name of the format."""

    name: str
    payload_type: int  # 0 to 127
    sample_rate: int  # Hz
    sample_bytes: int  # encoded; 0: less than one, or not the same for all
    encode: Callable[[bytes], bytes]  # from s16le, 20 ms
    decode: Callable[[bytes], bytes]  # to s16le
    clock_rate: int = 0  # Hz of the timestamps; 0: the sample rate
    # makes what is kept from one packet to the next, at the sample rate
    make_state: Callable[[int], LineCodecState] | None = None

    def with_payload_type(self, payload_type: int) -> Self:
        """Return the same encoding under another type, which both sides agreed on."""
        return replace(self, payload_type=payload_type)

    def for_call(self) -> Self:
        """Return the encoding with a state of its own, for the packets of one call."""
        if self.make_state is None:
            return self
        state = self.make_state(self.sample_rate)
        return replace(self, encode=state.encode, decode=state.decode)

    def ticks(self, samples: int) -> int:
        """Return how far so many samples advance the timestamp."""
        return samples * self.clock_rate // self.sample_rate if self.clock_rate else samples

    def max_bytes(self, seconds: float) -> int:
        """Return the greatest payload of so much audio."""
        return round(seconds * self.sample_rate) * max(1, self.sample_bytes)


class SampleClock:
    """Timestamps of one stream in samples, for codecs whose clock has another rate."""

    def __init__(self, codec: RtpCodec) -> None:
        self._sample_rate = codec.sample_rate
        self._clock_rate = codec.clock_rate or codec.sample_rate
        self._last: int | None = None  # timestamp, counted on past 2**32

    def samples(self, timestamp: int) -> int:
        """Return a timestamp of 32 bits in samples, modulo 2**32."""
        if self._clock_rate == self._sample_rate:
            return timestamp
        last = timestamp if self._last is None else self._last
        self._last = last + (timestamp - last + 2**31) % 2**32 - 2**31
        return self._last * self._sample_rate // self._clock_rate % 2**32


def _rtp_codec(name: str, line: str, payload_type: int, sample_rate: int, clock_rate: int = 0) -> RtpCodec:
    codec = line_codec(line)
    return RtpCodec(
        name,
        payload_type,
        sample_rate,
        codec.sample_bytes,
        codec.encode,
        codec.decode,
        clock_rate,
        codec.make_state,
    )


CODECS: Final = {
    codec.name: codec
    for codec in (
        _rtp_codec("ulaw", "ulaw", 0, 8_000),
        _rtp_codec("alaw", "alaw", 8, 8_000),
        _rtp_codec("slin", "slin", 11, 8_000),
        _rtp_codec("slin16", "slin", 118, 16_000),
        _rtp_codec("g722", "g722", 9, 16_000, 8_000),
        _rtp_codec("opus", "opus", 98, 24_000, 48_000),
    )
}
