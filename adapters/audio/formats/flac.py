"""FLAC. Source: FFmpeg 8 muxer flac; RFC 9639."""

from typing import Final

from ..format_kind import AudioLayout, EncoderSettings, FormatKind
from ..format_kit.ffmpeg_encoder import FfmpegEncoder, FfmpegSettings


def _open(settings: EncoderSettings) -> FfmpegEncoder:
    # Frames of 20 ms, and no 8 KiB of padding for tags before the first one.
    return FfmpegEncoder(
        FfmpegSettings(
            "flac",
            "flac",
            settings.sample_rate,
            {"frame_size": str(settings.sample_rate // 50)},
            {"metadata_header_padding": "0"},
            has_seekable_output=settings.layout is AudioLayout.FILE,
        )
    )


FLAC: Final = FormatKind("flac", "audio/flac", _open, is_cpu_intensive=True)
