"""Opus in WebM. Source: FFmpeg 8 muxer webm."""

from typing import Final

from ..format_kind import EncoderSettings, FormatKind
from ..format_kit.ffmpeg_encoder import FfmpegEncoder
from ..format_kit.opus_encoding import OPUS_BIT_RATES, open_opus


def _open(settings: EncoderSettings) -> FfmpegEncoder:
    return open_opus("webm", {"live": "1", "cluster_time_limit": "20"}, settings)


WEBM: Final = FormatKind("webm", "audio/webm", _open, bit_rates=OPUS_BIT_RATES, is_cpu_intensive=True)
