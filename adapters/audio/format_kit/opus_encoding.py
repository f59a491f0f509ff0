"""Opus for speech in a container of FFmpeg."""

from collections.abc import Mapping
from typing import Final

from ....tts_engine.chunk import SAMPLE_RATE
from ..format_kind import BitRates, EncoderSettings
from .ffmpeg_encoder import FfmpegEncoder, FfmpegSettings


def _bit_rates(sample_rate: int) -> tuple[int, int]:
    return 6_000, 256_000  # limits of libopus


OPUS_BIT_RATES: Final = BitRates(_bit_rates, 32_000)


def open_opus(container: str, options: Mapping[str, str], settings: EncoderSettings) -> FfmpegEncoder:
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
