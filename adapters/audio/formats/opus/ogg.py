"""Opus in Ogg. Source: FFmpeg 8 muxer ogg; RFC 7845."""

from typing import Final

from ...format_kind import EncoderSettings, FormatKind
from ...format_kit.opus_encoding import OPUS_BIT_RATES, open_opus
from .ogg_head import with_input_rate


class _OggOpusEncoder:
    """An Ogg stream whose header has the sample rate that was asked for."""

    def __init__(self, settings: EncoderSettings) -> None:
        # Pages of 20 ms (in microseconds); the default of 1 s delays the first byte.
        self._encoder = open_opus("ogg", {"page_duration": "20000"}, settings)
        self._input_rate: int | None = settings.sample_rate  # None: the header is out

    def push(self, pcm: bytes) -> bytes:
        return self._with_rate(self._encoder.push(pcm))

    def finish(self) -> bytes:
        return self._with_rate(self._encoder.finish())

    def close(self) -> None:
        self._encoder.close()

    def _with_rate(self, data: bytes) -> bytes:
        if data and self._input_rate is not None:
            data, self._input_rate = with_input_rate(data, self._input_rate), None
        return data


OGG_OPUS: Final = FormatKind(
    "opus", "audio/ogg", _OggOpusEncoder, bit_rates=OPUS_BIT_RATES, is_cpu_intensive=True
)
