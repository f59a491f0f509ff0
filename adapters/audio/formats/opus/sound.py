"""Opus for speech in Ogg and in WebM. Source: FFmpeg 8 muxers ogg and webm; RFC 7845."""

from collections.abc import Mapping
from typing import Final

from .....tts_engine.chunk import SAMPLE_RATE
from ...format_kind import BitRates, EncoderSettings, FormatKind
from ...format_kit.ffmpeg_encoder import FfmpegEncoder, FfmpegSettings
from .ogg_head import with_input_rate


def _bit_rates(sample_rate: int) -> tuple[int, int]:
    return 6_000, 256_000  # limits of libopus


def _open_opus(container: str, options: Mapping[str, str], settings: EncoderSettings) -> FfmpegEncoder:
    """Return an encoder of packets of 20 ms; its input is 24 kHz for every stream. options: of the muxer."""
    return FfmpegEncoder(
        FfmpegSettings(
            "libopus",
            container,
            SAMPLE_RATE,
            {"frame_duration": "20"},
            options,
            settings.bits_per_second,
        )
    )


class _OggOpusEncoder:
    """An Ogg stream whose header has the sample rate that was asked for."""

    def __init__(self, settings: EncoderSettings) -> None:
        # Pages of 20 ms (in microseconds); the default of 1 s delays the first byte.
        self._encoder = _open_opus("ogg", {"page_duration": "20000"}, settings)
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


def _open_webm(settings: EncoderSettings) -> FfmpegEncoder:
    return _open_opus("webm", {"live": "1", "cluster_time_limit": "20"}, settings)


_BIT_RATES: Final = BitRates(_bit_rates, 32_000)
OGG_OPUS: Final = FormatKind(
    "opus", "audio/ogg", _OggOpusEncoder, bit_rates=_BIT_RATES, is_cpu_intensive=True
)
WEBM: Final = FormatKind("webm", "audio/webm", _open_webm, bit_rates=_BIT_RATES, is_cpu_intensive=True)
