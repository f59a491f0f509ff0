"""Codecs of calls only: L16, G.722 at 64 kbit/s, and Opus in packets of 20 ms.

Source: RFC 3551 section 4.5.11 (L16: samples of 16 bits in network order); ITU-T G.722; RFC 7587 (Opus, mono
at one rate here, whatever the peer sends).
"""

import audioop
from typing import Final

from ..format_kind import LineCodec
from ..format_kit.line_codec_state import AvCodecState
from ..pcm import SAMPLE_BYTES, require_whole_samples


def l16_encode(pcm: bytes) -> bytes:
    """Encode s16le as L16 (big-endian samples); raises ValueError for an odd number of bytes."""
    return audioop.byteswap(require_whole_samples(pcm), SAMPLE_BYTES)


def l16_decode(payload: bytes) -> bytes:
    """Decode L16 to s16le; raises ValueError for an odd number of bytes."""
    return audioop.byteswap(require_whole_samples(payload), SAMPLE_BYTES)


def make_g722(sample_rate: int) -> AvCodecState:
    """Return the state of a call. sample_rate: 16,000 Hz."""
    return AvCodecState("g722", "g722", sample_rate, {})


def make_opus(sample_rate: int) -> AvCodecState:
    """Return the state of a call. sample_rate: Hz of the audio, one that Opus has."""
    options = {"application": "voip", "frame_duration": "20", "b": "24000", "fec": "1", "packet_loss": "5"}
    return AvCodecState("libopus", "libopus", sample_rate, options)


L16: Final = LineCodec("slin", 2, l16_encode, l16_decode)
G722: Final = LineCodec("g722", 0, make_state=make_g722)
OPUS: Final = LineCodec("opus", 0, make_state=make_opus)
