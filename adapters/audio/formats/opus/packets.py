"""Opus in packets of calls, of 20 ms. Source: RFC 7587 (mono at one rate here, whatever the peer sends)."""

from typing import Final

from ...format_kit.line_codec_state import AvCodecState
from ...line_codec import LineCodec


def make_opus(sample_rate: int) -> AvCodecState:
    """Return the state of a call. sample_rate: Hz of the audio, one that Opus has."""
    options = {"application": "voip", "frame_duration": "20", "b": "24000", "fec": "1", "packet_loss": "5"}
    return AvCodecState("libopus", "libopus", sample_rate, options)


OPUS: Final = LineCodec("opus", 0, make_state=make_opus)
