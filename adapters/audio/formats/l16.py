"""L16: samples of 16 bits in network order. Source: RFC 3551 section 4.5.11."""

import audioop
from typing import Final

from ..line_codec import LineCodec
from ..pcm import SAMPLE_BYTES, require_whole_samples


def l16_encode(pcm: bytes) -> bytes:
    """Encode s16le as L16 (big-endian samples); raises ValueError for an odd number of bytes."""
    return audioop.byteswap(require_whole_samples(pcm), SAMPLE_BYTES)


def l16_decode(payload: bytes) -> bytes:
    """Decode L16 to s16le; raises ValueError for an odd number of bytes."""
    return audioop.byteswap(require_whole_samples(payload), SAMPLE_BYTES)


L16: Final = LineCodec("slin", 2, l16_encode, l16_decode)
