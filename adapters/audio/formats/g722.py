"""G.722 at 64 kbit/s, in calls. Source: ITU-T G.722."""

from typing import Final

from ..format_kit.line_codec_state import AvCodecState
from ..line_codec import LineCodec


def make_g722(sample_rate: int) -> AvCodecState:
    """Return the state of a call. sample_rate: 16,000 Hz."""
    return AvCodecState("g722", "g722", sample_rate, {})


G722: Final = LineCodec("g722", 0, make_state=make_g722)
