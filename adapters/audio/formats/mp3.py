"""MP3. Source: FFmpeg 8 muxer mp3; ISO/IEC 11172-3 and 13818-3 (bit rates of Layer III)."""

from typing import Final

from ..format_kind import AudioLayout, BitRates, EncoderSettings, FormatKind
from ..format_kit.ffmpeg_encoder import FfmpegEncoder, FfmpegSettings


def _bit_rates(sample_rate: int) -> tuple[int, int]:
    # Limits of MPEG-2.5, MPEG-2 and MPEG-1.
    if sample_rate < 16_000:
        return 8_000, 64_000
    return (8_000, 160_000) if sample_rate < 32_000 else (32_000, 320_000)


def _open(settings: EncoderSettings) -> FfmpegEncoder:
    # A stream cannot seek back to fill in the frame with the length.
    has_length = settings.layout is AudioLayout.FILE
    return FfmpegEncoder(
        FfmpegSettings(
            "libmp3lame",
            "mp3",
            settings.sample_rate,
            {"compression_level": "7"},
            {"write_xing": str(int(has_length)), "id3v2_version": "0"},
            settings.bits_per_second,
            has_length,
        )
    )


MP3: Final = FormatKind(
    "mp3", "audio/mpeg", _open, bit_rates=BitRates(_bit_rates, 128_000), is_cpu_intensive=True
)
