"""Audio encodings of RTP calls: u-law, A-law, and linear samples in network order.

The static numbers are those of RFC 3551; those of linear audio at other rates are the defaults of Asterisk,
which sends them without a description of the session.

Source: RFC 3551, 4.5.11, 4.5.14 and table 4; main/rtp_engine.c of Asterisk 23 (payload types 11 and 118).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Self

from ..audio.codecs import (
    alaw_decode,
    alaw_encode,
    l16_decode,
    l16_encode,
    ulaw_decode,
    ulaw_encode,
)

COMFORT_NOISE: Final = 13  # payload type of RFC 3389: the caller is silent
TELEPHONE_EVENT: Final = 101  # the usual dynamic type of keys, also in Asterisk


@dataclass(frozen=True, slots=True)
class RtpCodec:
    """One encoding. ``name`` is Asterisk's name of the format."""

    name: str
    payload_type: int  # 0 to 127
    sample_rate: int  # Hz; also of the timestamps
    sample_bytes: int  # encoded
    encode: Callable[[bytes], bytes]  # from s16le
    decode: Callable[[bytes], bytes]  # to s16le

    def with_payload_type(self, payload_type: int) -> Self:
        """Return the same encoding under another type, which both sides agreed on."""
        return replace(self, payload_type=payload_type)


CODECS: Final = {
    codec.name: codec
    for codec in (
        RtpCodec("ulaw", 0, 8_000, 1, ulaw_encode, ulaw_decode),
        RtpCodec("alaw", 8, 8_000, 1, alaw_encode, alaw_decode),
        RtpCodec("slin", 11, 8_000, 2, l16_encode, l16_decode),
        RtpCodec("slin16", 118, 16_000, 2, l16_encode, l16_decode),
    )
}
